"""A million rows, 500 actions and a top-20 policy, from a Parquet file to the panel, in a process of its own.

python benchmarks/million_rows.py writes the file, runs `cael evaluate` on it and prints seconds and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write(path: Path, rows: int, actions: int, listed: int, dim: int, seed: int = 0) -> None:
    """A log in row groups of 100,000, with two columns of lists for the policy, and the policy as a long table."""
    rng = np.random.default_rng(seed)
    effect = rng.normal(size=actions) / 10
    writer = long = None
    for start in range(0, rows, 100_000):
        n = min(100_000, rows - start)
        x = rng.normal(size=(n, dim)).astype(np.float32)
        a = rng.integers(0, actions, n)
        top = (rng.integers(0, actions, (n, 1)) + np.arange(listed) * (actions // listed)) % actions
        chance = rng.dirichlet(np.ones(listed), n)
        lists = pa.FixedSizeListArray.from_arrays
        table = pa.table(
            {
                "decision_id": np.arange(start, start + n),
                "action": pa.array(a.astype(np.int32)),
                "reward": (rng.random(n) < 0.1 + 0.02 * x[:, 0] + 0.05 * effect[a]).astype(np.int8),
                "propensity": np.full(n, 1 / actions),
                **{f"x_{j}": x[:, j] for j in range(dim)},
                "top": lists(top.ravel().astype(np.int32), listed).cast(pa.list_(pa.int32())),
                "chance": lists(chance.ravel(), listed).cast(pa.list_(pa.float64())),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        ids = np.repeat(np.arange(start, start + n), listed)
        rows_of_policy = pa.table({"decision_id": ids, "action": top.ravel(), "probability": chance.ravel()})
        long = long or pq.ParquetWriter(path.with_name("policy.parquet"), rows_of_policy.schema)
        long.write_table(rows_of_policy)
    for each in (writer, long):
        if each:
            each.close()


def run(arguments: list[str]) -> dict[str, float]:
    """Wall seconds and peak resident memory in MiB of a command."""
    start = time.perf_counter()
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    out = child.stdout.read() if child.stdout else b""
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 3):
        raise SystemExit(f"{' '.join(arguments)} ended with {code}")
    names = [each["estimator"] for each in json.loads(out)["estimates"]]
    return {"seconds": round(seconds, 1), "peak_mib": round(usage.ru_maxrss / 1024), "estimators": names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--actions", type=int, default=500)
    parser.add_argument("--listed", type=int, default=20)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--form", choices=("topk", "table"), default="topk")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write(path, given.rows, given.actions, given.listed, given.dim)
        policy = "topk:top+chance" if given.form == "topk" else f"table:{folder}/policy.parquet"
        options = ["--policy", policy, "--n-actions", str(given.actions), "--format", "json"]
        command = str(Path(sys.executable).parent / "cael")
        found = run([command, "evaluate", str(path), *options])
        found["file_mib"] = round(path.stat().st_size / 2**20)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
