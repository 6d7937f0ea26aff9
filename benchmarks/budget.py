"""Peak memory and processor time of `cael evaluate --memory` on files that are made to exceed it.

python benchmarks/budget.py [--memory 512MiB] [--only NAME] [--check] [--write]

Each file is evaluated in a process of its own, whose peak resident memory is compared with the budget plus what the
interpreter takes with the imports of the command. Processor time, without that of a log of 1,000 rows, is divided by
the rows and by the bytes of their columns, decoded, and compared with the plain file. --check: exit with 1 where a peak
is above 1.25 of the budget and interpreter. --write: the table into BUDGET.md.
"""

from __future__ import annotations

import argparse
import gzip
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cael.log.budget import bytes_of, shown

FACTOR = 1.25
MEASURE = """
import atexit, pathlib, sys
from cael.cli import main
atexit.register(lambda: pathlib.Path(sys.argv[1]).write_text(pathlib.Path("/proc/self/status").read_text()))
main(sys.argv[2:])
"""
NOTHING = "import atexit, sys; import numpy, scipy, pyarrow.parquet, pyarrow.compute, cael.log.scanned"


def base(n: int, k: int = 5, seed: int = 0) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    return {
        "action": rng.integers(0, k, n), "reward": rng.random(n), "propensity": np.full(n, 1 / k),
        "target": rng.uniform(0.1, 0.3, n),
    }  # fmt: skip


def ragged(lengths: np.ndarray, seed: int = 0) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(ends, np.random.default_rng(seed).random(int(ends[-1])))


def start(path: Path) -> tuple[int, list[str]]:
    pq.write_table(pa.table(base(1000)), path)
    return 1000, ["--policy", "probability:target", "--n-actions", "5"]


def plain(path: Path) -> tuple[int, list[str]]:
    pq.write_table(pa.table(base(1_000_000)), path)
    return 1_000_000, ["--policy", "probability:target", "--n-actions", "5"]


def growing_lists(path: Path) -> tuple[int, list[str]]:
    """Lists of 2 for most of the file, and of 5,000 at its end."""
    n, late = 60_000, 8_000
    lengths = np.where(np.arange(n) < n - late, 2, 5000)
    top = pa.ListArray.from_arrays(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        np.concatenate([np.arange(length) for length in lengths]).astype(np.int32),
    )
    chance = pa.ListArray.from_arrays(top.offsets, np.repeat(1 / lengths, lengths))
    table = pa.table({**base(n, 5000), "top": top, "chance": chance})
    pq.write_table(table, path, row_group_size=20_000)
    return n, ["--policy", "topk:top+chance", "--n-actions", "5000"]


def large_dictionary(path: Path) -> tuple[int, list[str]]:
    """1,000 users whose ids have 10 kB."""
    n = 200_000
    users = pa.array([f"{at:05d}" * 2000 for at in range(1000)])
    codes = pa.array(np.arange(n) % 1000, pa.int32())
    table = pa.table({**base(n), "user": pa.DictionaryArray.from_arrays(codes, users)})
    pq.write_table(table, path)
    return n, ["--policy", "probability:target", "--n-actions", "5", "--cluster", "user"]


def compressed_text(path: Path) -> tuple[int, list[str]]:
    row = "1,0.5,0.2,0.25," + "x" * 100 + "\n0,1.5,0.2,0.15," + "x" * 100 + "\n"
    with gzip.open(path, "wt") as file:
        file.write("action,reward,propensity,target,note\n")
        for _ in range(1000):
            file.write(row * 1000)
    return 2_000_000, ["--policy", "probability:target", "--n-actions", "5"]


def wide_rows(path: Path) -> tuple[int, list[str]]:
    n, d = 100_000, 300
    rng = np.random.default_rng(0)
    writer = None
    for at in range(10):
        part = pa.table({**base(n // 10, seed=at), **{f"x_{j}": rng.normal(size=n // 10) for j in range(d)}})
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    writer.close()
    return n, ["--policy", "probability:target", "--n-actions", "5"]


def one_row_group(path: Path) -> tuple[int, list[str]]:
    n = 3_000_000
    pq.write_table(pa.table(base(n)), path, row_group_size=n)
    return n, ["--policy", "probability:target", "--n-actions", "5"]


def many_actions(path: Path) -> tuple[int, list[str]]:
    n, k = 300_000, 100_000
    pq.write_table(pa.table({**base(n, k), "best": np.arange(n) % k}), path)
    return n, ["--policy", "choice:best,epsilon=0.5", "--n-actions", str(k)]


def long_strings(path: Path) -> tuple[int, list[str]]:
    """Segments and users of 2 kB in every row."""
    n = 200_000
    users = pa.array([f"{at % 5000:08d}" * 250 for at in range(n)])
    pq.write_table(pa.table({**base(n), "user": users}), path, use_dictionary=False, row_group_size=n)
    return n, ["--policy", "probability:target", "--n-actions", "5", "--cluster", "user"]


def skewed_clusters(path: Path) -> tuple[int, list[str]]:
    """Half of the rows in one cluster, and a cluster of its own for each other row."""
    n = 2_000_000
    users = np.where(np.arange(n) % 2, 0, np.arange(n))
    pq.write_table(pa.table({**base(n), "user": users}), path)
    return n, ["--policy", "probability:target", "--n-actions", "5", "--cluster", "user"]


FILES = {
    "growing lists": growing_lists, "large dictionary": large_dictionary, "gzip": compressed_text,
    "wide rows": wide_rows, "one row group": one_row_group, "100,000 actions": many_actions,
    "long strings": long_strings, "skewed clusters": skewed_clusters,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """code: exit code. said: on standard error. peak: resident bytes. seconds: of the processor."""

    code: int
    said: str
    peak: int
    seconds: float


def run(folder: Path, code: str, *arguments: str) -> Run:
    told, before = folder / "status", spent()
    done = subprocess.run([sys.executable, "-c", code, str(told), *arguments], capture_output=True, text=True)
    size = int(re.search(r"VmHWM:\s+(\d+) kB", told.read_text())[1]) * 1024
    return Run(done.returncode, done.stderr.strip(), size, spent() - before)


def spent() -> float:
    """Processor time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def decoded(path: Path) -> int:
    """Bytes of the columns as Arrow has them, batch by batch; of compressed text, of the text."""
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            return sum(map(len, iter(lambda: file.read(2**20), b"")))
    with pq.ParquetFile(path) as file:
        return sum(batch.nbytes for batch in file.iter_batches(2**12))


def interpreter(folder: Path) -> int:
    """What Python takes with the packages that the command loads."""
    code = NOTHING + "; open(sys.argv[1], 'w').write(open('/proc/self/status').read())"
    return run(folder, code).peak


@dataclass(frozen=True)
class Line:
    """Of one file. share: of the budget and the interpreter. row, byte: processor time, against the plain file."""

    kind: str
    run: Run
    share: float
    width: float
    row: float
    byte: float

    def cells(self) -> list[str]:
        numbers = [f"{self.share:.2f}", f"{self.width:,.0f}", f"{self.row:.2f}", f"{self.byte:.2f}"]
        return [self.kind, str(self.run.code), shown(self.run.peak), *numbers]


HEAD = ("file", "exit", "peak", "of budget + interpreter", "bytes a row", "time a row", "time a byte")


def measured(folder: Path, kinds: dict[str, Any], memory: str) -> Iterator[Line]:
    """A line for each file, the plain one first."""
    room, nothing, ones = bytes_of(memory) + interpreter(folder), 0.0, (1.0, 1.0)
    for kind, make in {"start": start, "plain": plain, **kinds}.items():
        path = folder / ("log.csv.gz" if kind == "gzip" else "log.parquet")
        rows, options = make(path)
        done = run(
            folder, MEASURE, "evaluate", str(path), *options, "--memory", memory, "--no-learn", "--format", "json"
        )
        size, seconds = decoded(path), done.seconds - nothing
        path.unlink()
        if kind == "start":
            nothing = done.seconds
            continue
        each = (seconds / rows, seconds / size)
        ones = each if kind == "plain" else ones
        yield Line(kind, done, done.peak / room, size / rows, each[0] / ones[0], each[1] / ones[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--only", default="")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as name:
        for line in measured(Path(name), {k: make for k, make in FILES.items() if given.only in k}, given.memory):
            print("  ".join(f"{cell:>16}" for cell in line.cells()), line.run.said[:90], flush=True)
            lines.append(line)
    if given.write:
        rows = [HEAD, ["---"] * len(HEAD), *(line.cells() for line in lines)]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        head = f"`python benchmarks/budget.py --memory {given.memory} --write`: processor time, against the plain file."
        Path(__file__).with_name("BUDGET.md").write_text(f"# A budget of {given.memory}\n\n{head}\n\n{table}\n")
    if given.check and max(line.share for line in lines) > FACTOR:
        sys.exit(1)


if __name__ == "__main__":
    main()
