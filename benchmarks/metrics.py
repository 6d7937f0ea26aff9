"""What three metrics cost beside one: evaluate on the same log, in memory and scanned, in turn.

    python benchmarks/metrics.py [--rows 1000000] [--repeats 5] [--write]

Processor seconds of one process; the ratio is the median over the repeats, each of which runs both in turn.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import cael

OUT = Path(__file__).parent / "METRICS.md"
METRICS = ["clicked", "spend/clicked", "latency:min:+2%"]
ROLES = {"reward": "clicked", "metric": ["spend", "latency"]}


def written(folder: Path, rows: int, actions: int, seed: int = 0) -> Path:
    """A log with three metrics and the probabilities of the logging and of the target policy, as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    order = np.argsort(x @ rng.normal(size=(4, actions)), axis=1)
    logging = np.full((rows, actions), 0.5 / actions)
    logging[np.arange(rows), order[:, -1]] += 0.5
    action = (rng.random((rows, 1)) > logging.cumsum(axis=1)[:, :-1]).sum(axis=1)
    clicked = (rng.random(rows) < 0.05 + 0.1 * action / actions).astype(float)
    columns = {f"x_{at}": x[:, at] for at in range(4)}
    columns |= {f"mu_{at}": logging[:, at] for at in range(actions)}
    table = pa.table(
        {
            "action": action, "clicked": clicked, "spend": clicked * rng.lognormal(1.0, 1.0, rows),
            "latency": rng.normal(100 + action / actions, 10), "best": order[:, -2], **columns,
        }
    )  # fmt: skip
    pq.write_table(table, folder / "log.parquet")
    return folder / "log.parquet"


def seconds(log: object, metrics: list[str]) -> float:
    """Processor seconds of an evaluation."""
    start = time.process_time()
    cael.evaluate(log, "choice:best", metrics=metrics, learn=False)
    return time.process_time() - start


def ratios(log: object, repeats: int) -> tuple[float, float, float]:
    """Median seconds of one metric and of three, and the median ratio."""
    seconds(log, METRICS)
    pairs = [(seconds(log, METRICS[:1]), seconds(log, METRICS)) for _ in range(repeats)]
    one, three = (statistics.median(column) for column in zip(*pairs, strict=True))
    return one, three, statistics.median(b / a for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--actions", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {OUT.name}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), given.rows, given.actions)
        logs = {
            "in memory": cael.read(path, ROLES, logging="dense:mu_*"),
            "scanned": cael.scan(path, ROLES, logging="dense:mu_*"),
        }
        lines = [
            f"`python benchmarks/metrics.py --rows {given.rows} --actions {given.actions}`: processor seconds of one "
            f"process, median of {given.repeats}.",
            "",
            "| log | one metric | three metrics | ratio |",
            "|---|---|---|---|",
        ]
        for name, log in logs.items():
            one, three, ratio = ratios(log, given.repeats)
            lines.append(f"| {name} | {one:.2f} s | {three:.2f} s | {ratio:.2f} |")
    print("\n".join(lines))
    if given.write:
        OUT.write_text("\n".join(["# Three metrics beside one", "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
