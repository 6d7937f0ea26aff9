"""SNIPS, SNDR and CAEL on a log with very many actions: time, peak memory, and how both grow.

Each size runs in a process of its own. The world: one of 8 action features matters, q(x, a) = 10 exp(-(x_1 - a_1)^2);
actions are logged by popularity, mixed with a tenth of uniform; the target plays the 20 actions nearest to x_1.

    python benchmarks/many_actions.py                                             # 20,000 rows, 100,000 actions
    python benchmarks/many_actions.py --rows 1000000 --growth --out benchmarks    # the figures of the documentation
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import cael

HERE = Path(__file__).parent
DIM, FEATURES = 5, 8
ESTIMATORS = ("SNIPS", "SNDR", "CAEL")


def build(rows: int, actions: int, listed: int, seed: int = 0) -> tuple[cael.LoggedData, cael.Policy, float]:
    """The log, the target, and the value of the target on these contexts."""
    rng = np.random.default_rng(seed)
    phi = rng.random((actions, FEATURES)).astype(np.float64)
    phi[:, 0] = np.arange(1, actions + 1) / actions
    popularity = rng.permutation(1 / np.arange(10, actions + 10))
    logging = cael.Tabular(0.9 * popularity / popularity.sum() + 0.1 / actions)
    x = rng.random((rows, DIM))
    a = np.searchsorted(np.cumsum(logging.table), rng.random(rows) * (1 - 1e-12))
    q = 10 * np.exp(-((x[:, 0] - phi[a, 0]) ** 2))
    log = cael.LoggedData(
        x, a, q + rng.normal(size=rows), logging=logging, n_actions=actions, action_features=phi, copy=False
    )
    first = np.clip((x[:, 0] * actions).astype(np.int64) - listed // 2, 0, actions - listed)
    lists = first[:, None] + np.arange(listed)
    target = cael.TopK(lists, np.full(lists.shape, 1 / listed), actions)
    blocks = np.array_split(np.arange(rows), max(1, rows // 50_000))
    means = [10 * np.exp(-((x[part, :1] - phi[lists[part], 0]) ** 2)).mean(axis=1) for part in blocks]
    return log, target, float(np.concatenate(means).mean())


def _peak() -> float:
    """The largest resident size of this process so far, in GiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 2**20
    raise RuntimeError("/proc/self/status has no VmHWM")


def measure(rows: int, actions: int, listed: int, candidates: int | str) -> dict[str, Any]:
    """Build, estimate with each estimator, and tell; in this process."""
    start = time.perf_counter()
    log, target, truth = build(rows, actions, listed)
    told: dict[str, Any] = {"rows": rows, "actions": actions, "listed": listed, "truth": truth}
    told |= {"build_seconds": time.perf_counter() - start, "build_peak_gib": _peak()}
    for estimator in (cael.SNIPS(), cael.SNDR(), cael.CAEL(candidates=candidates)):
        start, cpu = time.perf_counter(), time.process_time()
        found = estimator.estimate(log, target)
        covers = found.interval(method="bias_aware" if isinstance(estimator, cael.CAEL) else "normal")
        facts = found.diagnostics.embedding
        told[type(estimator).__name__] = {
            "value": found.value, "stderr": found.stderr, "low": covers.low, "high": covers.high,
            "seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu, "peak_gib": _peak(),
            "effective_rows": found.diagnostics.effective_sample_size,
        }  # fmt: skip
        if facts is not None:
            told["CAEL"] |= {
                "bandwidth": facts.bandwidth, "lost_mass": facts.lost_mass, "explained": facts.explained,
                "candidates": facts.candidates, "trained_rows": facts.trained_rows,
            }  # fmt: skip
    return {**told, "load": os.getloadavg()[0]}


def in_a_process(rows: int, actions: int, given: argparse.Namespace) -> dict[str, Any]:
    options = ["--rows", rows, "--actions", actions, "--listed", given.listed, "--candidates", given.candidates]
    ran = subprocess.run(
        [sys.executable, __file__, "--here", *map(str, options)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(
            f"{rows} rows, {actions} actions: the process ended with {ran.returncode}\n{ran.stderr[-2000:]}"
        )
    found: dict[str, Any] = json.loads(ran.stdout)
    print(told_in_words(found), flush=True)
    return found


def obp_bytes(rows: int, actions: int) -> int:
    """What obp takes for the same: (n, k, 1) float64 of the target, of the logging policy, and of the reward model."""
    return 3 * 8 * rows * actions


def told_in_words(found: dict[str, Any]) -> str:
    lines = [
        f"{found['rows']:,} rows, {found['actions']:,} actions, top-{found['listed']} target (load {found['load']:.1f})"
    ]
    for name in ESTIMATORS:
        e = found[name]
        lines.append(
            f"  {name:6} {e['value']:.4f} [{e['low']:.4f}, {e['high']:.4f}]  {e['seconds']:7.1f} s  "
            f"{e['cpu_seconds']:7.1f} s of processor  peak {e['peak_gib']:.2f} GiB"
        )
    obp = obp_bytes(found["rows"], found["actions"]) / 2**30
    return "\n".join([*lines, f"  truth  {found['truth']:.4f}; obp's arrays for the same: {obp:,.1f} GiB"])


def table(found: list[dict[str, Any]]) -> str:
    """The measurements as Markdown."""
    head = "| rows | actions | estimator | value | 95% interval | truth | seconds | processor seconds | peak memory |"
    head += " obp's arrays | load |"
    lines = [head, "|" + "---|" * 11]
    for each in found:
        obp = obp_bytes(each["rows"], each["actions"]) / 2**30
        for name in ESTIMATORS:
            e = each[name]
            lines.append(
                f"| {each['rows']:,} | {each['actions']:,} | {name} | {e['value']:.3f} "
                f"| [{e['low']:.3f}, {e['high']:.3f}] | {each['truth']:.3f} "
                f"| {e['seconds']:.1f} | {e['cpu_seconds']:.1f} | {e['peak_gib']:.2f} GiB | {obp:,.1f} GiB "
                f"| {each['load']:.1f} |"
            )
    return "\n".join(lines) + "\n"


def picture(by_actions: list[dict[str, Any]], by_rows: list[dict[str, Any]], path: Path) -> None:
    """Processor time against the number of actions and of rows, on logarithmic axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, runs, what in ((axes[0], by_actions, "actions"), (axes[1], by_rows, "rows")):
        sizes = [each[what] for each in runs]
        for name in ESTIMATORS:
            axis.loglog(sizes, [each[name]["cpu_seconds"] for each in runs], marker="o", label=name)
        fixed = "rows" if what == "actions" else "actions"
        axis.set(xlabel=f"{what} ({runs[0][fixed]:,} {fixed})")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("processor seconds")
    axes[0].legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--actions", type=int, default=100_000)
    parser.add_argument("--listed", type=int, default=20)
    parser.add_argument("--candidates", default="64", help="actions drawn for each row by CAEL, or auto, or all")
    parser.add_argument("--out", type=Path, help="folder for MANY_ACTIONS.md and many_actions.json")
    parser.add_argument("--picture", type=Path, help="file for the picture of the growth, such as growth.svg")
    parser.add_argument("--growth", action="store_true", help="also a tenth and a hundredth of rows and of actions")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        candidates = given.candidates if given.candidates in ("auto", "all") else int(given.candidates)
        print(json.dumps(measure(given.rows, given.actions, given.listed, candidates)))
        return
    one = in_a_process(given.rows, given.actions, given)
    few = max(1000, min(given.rows, 20_000))
    by_actions = [in_a_process(few, given.actions // part, given) for part in (100, 10, 1)] if given.growth else []
    by_rows = [in_a_process(given.rows // part, given.actions, given) for part in (100, 10)] if given.growth else []
    by_rows = [*by_rows, one] if given.growth else []
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        found = {"one": one, "by_actions": by_actions, "by_rows": by_rows}
        (given.out / "many_actions.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        (given.out / "MANY_ACTIONS.md").write_text(table([*by_actions, *by_rows] or [one]), "utf-8")
    if given.picture is not None and given.growth:
        picture(by_actions, by_rows, given.picture)


if __name__ == "__main__":
    main()
