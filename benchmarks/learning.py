"""What learning costs: beside one CAEL estimate, and on a million rows.

    python benchmarks/learning.py --write       # benchmarks/LEARNING.md
    python benchmarks/learning.py --rows 100000

The first part runs `cael.CAEL()` and `cael.learn` on the same logs of the paper's world (n = 1000, k = 500) in one
process, in turns, and compares processor times. The second writes a Parquet file of 50 actions and 10 contexts and runs
`cael learn` on it in a process of its own, on at most two cores.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import cael

PAGE = Path(__file__).resolve().parent / "LEARNING.md"
ACTIONS, DIM, BLOCK = 50, 10, 100_000


def processor(function: Callable[[], Any]) -> float:
    """Processor seconds of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def beside(logs: int) -> list[tuple[float, float]]:
    """(CAEL, learn) processor seconds of each log; the first log, which warms up, is left out."""
    world, pairs = cael.worlds.PaperWorld(n_actions=500), []
    for seed in range(logs + 1):
        log = world.sample(1000, seed)
        estimate = processor(partial(cael.CAEL().estimate, log, world.target))
        pairs.append((estimate, processor(partial(cael.learn, log))))
    return pairs[1:]


def write(path: Path, rows: int) -> None:
    """A log in row groups: clicks that depend on the action and a context."""
    rng = np.random.default_rng(0)
    effect = rng.normal(size=(ACTIONS, 2)) / 2
    writer = None
    for start in range(0, rows, BLOCK):
        n = min(BLOCK, rows - start)
        x, a = rng.normal(size=(n, DIM)), rng.integers(0, ACTIONS, n)
        score = -2.5 + effect[a, 0] + effect[a, 1] * x[:, 0]
        columns = {
            "action": a, "reward": (rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.int8),
            "propensity": np.full(n, 1 / ACTIONS), **{f"x_{j}": x[:, j] for j in range(DIM)},
        }  # fmt: skip
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer:
        writer.close()


def on_rows(rows: int, memory: str) -> dict[str, Any]:
    """What `cael learn` takes on so many rows, and its first sentence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write(path, rows)
        cores = sorted(os.sched_getaffinity(0))[:2]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-c", "from cael.cli import main; main()",
             "learn", str(path), "--memory", memory],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "rows": rows, "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "clock": time.perf_counter() - start, "peak": after.ru_maxrss / 1024,
        "sentence": sentence_of(done.stdout),
    }  # fmt: skip


def sentence_of(text: str) -> str:
    """The decision in what `cael learn` prints; it is wrapped."""
    lines = [line.strip() for line in text.splitlines()]
    first = next(at for at, line in enumerate(lines) if line.startswith(("Ship it", "Keep the old")))
    return " ".join(lines[first : first + 2])


def page(pairs: list[tuple[float, float]], large: dict[str, Any], memory: str) -> str:
    ratio = median(learn / estimate for estimate, learn in pairs)
    estimate, learn = (median(pair[at] for pair in pairs) for at in (0, 1))
    versions = f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    return f"""# What learning costs

`python benchmarks/learning.py --write`, {versions}.

**Beside one CAEL estimate**: paper's world, n = 1000, k = 500, {len(pairs)} logs, medians of processor seconds.
CAEL takes {estimate:.2f} s and `cael.learn` {learn:.2f} s, {ratio:.2f} times as much.

**{large["rows"]:,} rows** in a Parquet file: {ACTIONS} actions, {DIM} contexts, `--memory {memory}`, two cores.
`cael learn` takes {large["processor"]:.0f} s of processor time, {large["clock"]:.0f} s by the clock, and
{large["peak"]:.0f} MiB at its peak.

> {large["sentence"]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = page(beside(given.logs), on_rows(given.rows, given.memory), given.memory)
    if given.write:
        PAGE.write_text(text, "utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
