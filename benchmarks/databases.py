"""A log in PostgreSQL and SQLite: rows per second, peak memory, and where the time goes.

python benchmarks/databases.py --rows 2000000 --write     # benchmarks/DATABASES.md

The database is PostgreSQL of this machine, started by the benchmark in a temporary folder. Each step runs in a
process of its own: reading the query into the temporary file, and evaluating from there within 1 GiB, against the
same rows in Parquet.
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SQL = "select * from clicks order by decision_id"
MAKE = """create table clicks as select i as decision_id, 'arm-' || (hashint8(i) & 15) as action,
(hashint8(i * 7) & 1023) / 1023.0::float8 as reward, 1 / 16.0::float8 as propensity,
(hashint8(i * 11) & 255)::float8 as x_1, (hashint8(i * 13) & 255)::float8 as x_2, (hashint8(i * 17) & 15)::int as x_3,
timestamp '2026-01-01' + i * interval '1 second' as ts from generate_series(1, {rows}) i"""


def spool(url: str) -> None:
    from cael.io.databases import Query
    from cael.io.sources import files_of

    files_of([Query(url, SQL)])


def bare(url: str) -> None:
    """The driver alone: the rows fetched and thrown away."""
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(SQL)
        for _ in cursor.fetch_record_batch():
            pass


def evaluate(source: str) -> None:
    import cael

    log = cael.io.Query(source, SQL) if "://" in source else source
    cael.evaluate(cael.scan(log, {"contexts": ["x_*"]}, memory="1GiB", workers=2), "uniform", learn=False)


STEPS = {"bare": bare, "spool": spool, "evaluate": evaluate}


def measured(step: str, source: str) -> dict[str, float]:
    """Seconds by the clock and of the processor, and peak memory, of a step in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--step", step, source], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def child(step: str, source: str) -> None:
    start, own = time.perf_counter(), time.process_time()
    STEPS[step](source)
    seconds, processor = time.perf_counter() - start, time.process_time() - own
    peak = re.search(
        r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text()
    )  # ru_maxrss is that of the parent, too
    print(json.dumps({"seconds": seconds, "processor": processor, "MiB": int(peak[1]) / 1024 if peak else 0.0}))


def run(rows: int) -> str:
    import adbc_driver_postgresql.dbapi as driver
    import pyarrow.parquet as pq
    from tests.io.postgres import server

    lines = ["| rows | step | seconds | rows a second | processor seconds | peak MiB |", "|--:|---|--:|--:|--:|--:|"]
    for count in (rows // 4, rows):
        with server() as url, tempfile.TemporaryDirectory() as folder:
            parquet = Path(folder) / "log.parquet"
            with driver.connect(url) as connection:
                with connection.cursor() as cursor:
                    cursor.execute(MAKE.format(rows=count))
                connection.commit()
                with connection.cursor() as cursor:
                    cursor.execute(SQL)
                    reader = cursor.fetch_record_batch()
                    with pq.ParquetWriter(parquet, reader.schema) as writer:
                        for batch in reader:
                            writer.write_batch(batch)
            for name, step, source in (
                ("the driver alone", "bare", url), ("query to temporary file", "spool", url), ("evaluate the query",
                "evaluate", url),
                ("evaluate the same rows in Parquet", "evaluate", str(parquet)),
            ):  # fmt: skip
                result = measured(step, source)
                speed = f"{count / result['seconds']:,.0f}"
                lines.append(
                    f"| {count:,} | {name} | {result['seconds']:.2f} | {speed} | {result['processor']:.2f} | "
                    f"{result['MiB']:.0f} |"
                )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--step", nargs=2)
    given = parser.parse_args()
    if given.step:
        child(*given.step)
        return
    table = run(given.rows)
    load = os.getloadavg()[0]
    text = f"""# Logs in a database

`python benchmarks/databases.py --rows {given.rows} --write`, with PostgreSQL on the same machine (2 cores; load at
the end {load:.1f}). The query is run once and its rows are written to a temporary Parquet file; everything else reads
that file.

{table}
Seconds are by the clock; processor seconds are those of the step's process alone, without the server. What the query
costs beside Parquet is the driver and the server (the first step), and then writing the temporary file. Memory is that
of batches, whatever the number of rows.
"""
    print(text)
    if given.write:
        (ROOT / "benchmarks" / "DATABASES.md").write_text(text)


if __name__ == "__main__":
    main()
