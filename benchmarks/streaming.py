"""A log in Parquet files that is never in memory: time and peak memory beside DuckDB, workers, and growth in rows.

python benchmarks/streaming.py                               2 million rows, what `make bench` runs
python benchmarks/streaming.py --rows 50000000 --write       the full size; writes STREAMING.md and the figure

The files are made in a temporary folder and deleted. cael does LoggedMean, IPS, SNIPS, and DM, DR and SNDR with given
predictions, with intervals, diagnostics and verdict; DuckDB does the two sums of IPS and SNIPS by hand-written SQL, on
the same files and with as many threads; pyarrow decodes the six columns that cael needs and drops them, which is the
floor of all that reads through it. Each runs in a process of its own, in turn, after a warm-up on 10,000 rows that
loads what it needs; the best of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
FIGURE = HERE.parent / "docs" / "_static" / "streaming-growth.svg"
ACTIONS, GROUPS, FILES = 100, 1000, 10
SQL = """
select sum(w * reward) / count(*) as ips, sum(w * reward) / sum(w) as snips
from (select target / propensity as w, reward from '{folder}/*.parquet')
"""


def write(folder: Path, rows: int, seed: int = 0) -> float:
    """A log with known propensities, a target and predictions, in 10 files; its size in bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    q = 1 / (1 + np.exp(2.5 - 0.7 * rng.normal(size=(GROUPS, ACTIONS))))
    old, new = (_softmax(strength * np.log(q)) for strength in (1.0, 2.0))
    guess = q * np.exp(0.2 * rng.normal(size=q.shape))
    cumulated = (np.cumsum(old, axis=1) + np.arange(GROUPS)[:, None]).ravel()
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        path, writer = folder / f"part-{number:02}.parquet", None
        left = rows // FILES + (number < rows % FILES)
        while left > 0:
            n = min(left, 1_000_000)
            left -= n
            g, free = rng.integers(0, GROUPS, n), rng.uniform(0.02, 0.3, n)
            drawn = np.minimum(np.searchsorted(cumulated, g + rng.random(n)) - g * ACTIONS, ACTIONS - 1)
            a = np.where(rng.random(n) < free, rng.integers(0, ACTIONS, n), drawn)
            columns = {
                "action": a.astype(np.int16),
                "reward": (rng.random(n) < q[g, a]).astype(np.int8),
                "propensity": (1 - free) * old[g, a] + free / ACTIONS,
                "target": (1 - free) * new[g, a] + free / ACTIONS,
                "q_logged": guess[g, a].astype(np.float32),
                "q_target": ((1 - free) * (new * guess).sum(axis=1)[g] + free * guess.mean(axis=1)[g]).astype("f4"),
            }
            part = pa.table(columns)
            writer = writer or pq.ParquetWriter(path, part.schema)
            writer.write_table(part)
        if writer is not None:
            writer.close()
    return float(sum(each.stat().st_size for each in folder.iterdir()))


def _softmax(scores: np.ndarray) -> np.ndarray:
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def ours(folder: str, threads: int, memory: str, dask: str | None = None) -> dict[str, Any]:
    """cael: six estimators with intervals, diagnostics and verdict."""
    import cael

    start, used = time.perf_counter(), time.process_time()
    log = cael.scan(
        folder, n_actions=ACTIONS, predictions="q_logged+q_target", memory=memory, workers=threads, client=dask
    )
    found = cael.evaluate(log, "probability:target", learn=False)
    for name in ("IPS", "SNIPS", "DR"):
        found[name].interval(0.95, "bca")
    return {
        "seconds": time.perf_counter() - start, "cpu": time.process_time() - used,
        "ips": found["IPS"].value, "snips": found["SNIPS"].value, "dr": found["DR"].value,
        "stderr": found["DR"].stderr, "verdict": found.verdict.level,
    }  # fmt: skip


def duckdb_sums(folder: str, threads: int) -> dict[str, Any]:
    """DuckDB: the sums of IPS and SNIPS."""
    import duckdb

    start, used = time.perf_counter(), time.process_time()
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {threads}")
        ips, snips = connection.execute(SQL.format(folder=folder)).fetchone() or (np.nan, np.nan)
    return {
        "seconds": time.perf_counter() - start, "cpu": time.process_time() - used, "ips": ips, "snips": snips,
    }  # fmt: skip


def decoded(folder: str, threads: int) -> dict[str, Any]:
    """pyarrow: the columns decoded in batches, a file by each thread, and nothing done with them."""
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow.parquet as pq

    from cael.io.reading import PARQUET_BUFFER
    from cael.log.budget import MOST_ROWS

    def one(path: Path) -> int:
        with pq.ParquetFile(path, buffer_size=PARQUET_BUFFER, pre_buffer=False) as file:
            return sum(batch.num_rows for batch in file.iter_batches(MOST_ROWS, use_threads=False))

    start, used = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        rows = sum(pool.map(one, sorted(Path(folder).iterdir())))
    return {"seconds": time.perf_counter() - start, "cpu": time.process_time() - used, "rows": rows}


SIDES = {"ours": ours, "duckdb": duckdb_sums, "pyarrow": decoded}


def peak_mib() -> float:
    """Peak resident memory of this process since it began; the usual resource counters include the parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    return float(found[1]) / 1024 if found else float("nan")


def child(*arguments: str) -> dict[str, Any]:
    """One of the two in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--only", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def best(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return min(rounds, key=lambda each: each["seconds"])


def workers(folder: Path, given: argparse.Namespace) -> dict[str, float]:
    """Seconds with one and with two Dask workers of one thread each, and with one and two threads; CPU seconds on the
    workers and in this process, which merges and judges."""
    from distributed import Client, LocalCluster

    found: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        for count in (1, 2):
            with (
                LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
                Client(cluster) as client,
            ):
                ours(str(folder.parent / "warm"), 1, given.memory, cluster.scheduler_address)  # loads what is needed
                before = sum(client.run(time.process_time).values())
                told = ours(str(folder), 1, given.memory, cluster.scheduler_address)
                there = sum(client.run(time.process_time).values()) - before
            found.setdefault(f"dask {count}", []).append(told["seconds"])
            found.setdefault(f"there {count}", []).append(there)
            found.setdefault(f"here {count}", []).append(told["cpu"])
            alone = child("ours", str(folder), str(count), given.memory)
            found.setdefault(f"threads {count}", []).append(alone["seconds"])
    return {name: min(each) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write benchmarks/STREAMING.md and the figure")
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        which, folder, threads, *more = given.only
        for each in (str(Path(folder).parent / "warm"), folder):
            told = SIDES[which](each, int(threads), *more)
        print(json.dumps(told | {"peak_mib": peak_mib()}))
        return
    with tempfile.TemporaryDirectory() as place:
        found = measure(Path(place), given)
    text = page(found)
    print(text)
    if given.write:
        (HERE / "STREAMING.md").write_text(text, "utf-8")
        draw(found["growth"])


def measure(place: Path, given: argparse.Namespace) -> dict[str, Any]:
    folder = place / "log"
    size = write(folder, given.rows)
    write(place / "warm", 10_000)
    threads = str(given.threads)
    sides: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
    for _ in range(given.rounds):
        for name, runs in sides.items():
            runs.append(child(name, str(folder), threads, *([given.memory] if name == "ours" else [])))
    mine, other = best(sides["ours"]), best(sides["duckdb"])
    for name in ("ips", "snips"):
        if abs(mine[name] - other[name]) > 1e-9 * abs(other[name]):
            raise SystemExit(f"{name}: cael says {mine[name]!r}, DuckDB says {other[name]!r}")
    growth = []
    for rows in (given.rows // 100, given.rows // 10):
        write(place / str(rows), rows)
        runs = [child("ours", str(place / str(rows)), threads, given.memory) for _ in range(given.rounds)]
        growth.append((rows, best(runs)["seconds"], max(each["peak_mib"] for each in runs)))
    growth.append((given.rows, mine["seconds"], max(each["peak_mib"] for each in sides["ours"])))
    return {
        "rows": given.rows, "threads": given.threads, "memory": given.memory, "size": size, "ours": mine,
        "duckdb": other, "pyarrow": best(sides["pyarrow"]), "growth": growth, "workers": workers(folder, given),
        "rounds": given.rounds, "load": os.getloadavg()[1], "cores": os.cpu_count(),
    }  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """The results in Markdown."""
    rows, mine, other, w, floor = (found[each] for each in ("rows", "ours", "duckdb", "workers", "pyarrow"))
    peak = max(each[2] for each in found["growth"])
    lines = [
        "# A log that is never in memory",
        "",
        f"`python benchmarks/streaming.py --rows {rows}`: {rows:,} rows in {FILES} Parquet files of together "
        f"{found['size'] / 2**30:.2f} GiB, {ACTIONS} actions; {found['threads']} threads on {found['cores']} cores, "
        f"memory budget {found['memory']}; best of {found['rounds']} rounds, load average {found['load']:.1f} (1 is "
        "one busy core, and other work shared the machine).",
        "",
        "| | seconds | rows/s | CPU seconds | peak memory |",
        "|---|---|---|---|---|",
        f"| cael: 6 estimators, 3 BCa intervals, diagnostics, verdict | {mine['seconds']:.2f} | "
        f"{rows / mine['seconds'] / 1e6:.1f} M | {mine['cpu']:.2f} | {peak:.0f} MiB |",
        f"| DuckDB: the sums of IPS and SNIPS in SQL | {other['seconds']:.2f} | "
        f"{rows / other['seconds'] / 1e6:.1f} M | {other['cpu']:.2f} | {other['peak_mib']:.0f} MiB |",
        f"| ratio | {mine['seconds'] / other['seconds']:.1f} | | {mine['cpu'] / other['cpu']:.1f} | |",
        f"| pyarrow: the six columns decoded and dropped | {floor['seconds']:.2f} | "
        f"{rows / floor['seconds'] / 1e6:.1f} M | {floor['cpu']:.2f} | {floor['peak_mib']:.0f} MiB |",
        f"| its ratio to DuckDB | {floor['seconds'] / other['seconds']:.1f} | | {floor['cpu'] / other['cpu']:.1f} | |",
        "",
        f"Both say IPS {mine['ips']:.9f} and SNIPS {mine['snips']:.9f}; DR says {mine['dr']:.9f} ± "
        f"{mine['stderr']:.1e}, verdict {mine['verdict']}.",
        "",
        "| workers | seconds | against one | CPU seconds of the workers, of the merging process |",
        "|---|---|---|---|",
        f"| one Dask worker | {w['dask 1']:.2f} | | {w['there 1']:.2f}, {w['here 1']:.2f} |",
        f"| two Dask workers | {w['dask 2']:.2f} | {w['dask 1'] / w['dask 2']:.2f}x | {w['there 2']:.2f}, "
        f"{w['here 2']:.2f} |",
        f"| one thread | {w['threads 1']:.2f} | | |",
        f"| two threads | {w['threads 2']:.2f} | {w['threads 1'] / w['threads 2']:.2f}x | |",
        "",
        "| rows | seconds | rows/s | peak memory |",
        "|---|---|---|---|",
        *(f"| {n:,} | {s:.2f} | {n / s / 1e6:.1f} M | {mib:.0f} MiB |" for n, s, mib in found["growth"]),
        "",
    ]
    return "\n".join(lines)


def draw(growth: list[tuple[int, float, float]]) -> None:
    """Seconds against rows, both on logarithmic axes, with a line of slope 1 through the last point."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cael", "font.size": 9})
    import matplotlib.pyplot as plt

    rows, seconds = np.array([each[0] for each in growth]), np.array([each[1] for each in growth])
    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    axes.loglog(rows, seconds, "o-", color="#1f5fa8", label="measured")
    axes.loglog(rows, seconds[-1] * rows / rows[-1], "--", color="#888888", label="proportional to rows")
    axes.set(xlabel="rows", ylabel="seconds", title="One pass over a streamed log")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
