"""Damages files at random and reads them with the command: no traceback, no crash, no unknown exit code, no hang.

`python -m tests.hostile.fuzzer --seconds 600 --keep folder` keeps what it finds: the file, and what was said. A child
process reads, as a reader that trusts a file ends the process; its parent starts it again behind the seed that did.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from tests.io.dsjson import coffee

ROWS = 40
HANGS = 60
CODES = (0, 1, 2, 3, 4)
ADDRESS_SPACE = 16 * 2**30
TOML = b"""level = 0.9
seed = 3
contexts = ["x"]
[columns]
reward = "reward"
[thresholds]
drift = [0.5, 1.0]
[evaluate]
learn = false
[policies.new]
kind = "choice"
column = "best"
epsilon = 0.5
"""
TOKENS = (
    b"-1", b"0", b"1e400", b"nan", b"[[", b"]", b'"', b"\x00", b"\xff\xfe", b"\n", b",", b"null",
    b"99999999999999999999", b"=", b"{", b"'", b"true", b"\r", b"\x1b[31m", b"\xe2\x80\xae",
)  # fmt: skip


def good(folder: Path) -> dict[str, Path]:
    """A log that is right, in every format, and a configuration."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    columns = {
        "decision_id": [f"d{at}" for at in range(ROWS)], "action": rng.integers(0, 3, ROWS),
        "reward": rng.random(ROWS), "propensity": np.full(ROWS, 1 / 3), "x": rng.normal(size=ROWS),
        "best": rng.integers(0, 3, ROWS), "pi": [[0.2, 0.3, 0.5]] * ROWS, "top": [[0, 1]] * ROWS,
        "chance": [[0.6, 0.4]] * ROWS, "country": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
    }  # fmt: skip
    table = pa.table(columns)
    text = table.set_column(9, "country", table["country"].cast(pa.string()))
    for name in ("pi", "top", "chance"):
        text = text.set_column(text.column_names.index(name), name, pa.array([str(x) for x in columns[name]]))
    paths = {name: folder / f"good.{name}" for name in ("parquet", "arrow", "arrows", "csv", "csv.gz", "npz", "toml")}
    paths["plain.parquet"] = folder / "good.plain.parquet"
    pq.write_table(table, paths["parquet"], row_group_size=16, write_page_checksum=True)
    pq.write_table(table, paths["plain.parquet"], row_group_size=16, use_dictionary=False, compression="NONE")
    with pa.ipc.new_file(str(paths["arrow"]), table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(str(paths["arrows"]), table.schema) as writer:
        writer.write_table(table)
    pyarrow.csv.write_csv(text, paths["csv"])
    paths["csv.gz"].write_bytes(gzip.compress(paths["csv"].read_bytes(), mtime=0))
    arrays = {"actions": columns["action"], "rewards": columns["reward"], "propensities": columns["propensity"]}
    np.savez(paths["npz"], contexts=columns["x"][:, None], target=np.full((ROWS, 3), 1 / 3), **arrays)
    paths["toml"].write_bytes(TOML)
    paths |= {kind: folder / f"good.{kind}" for kind in ("jsonl", "jsonl.gz")}
    paths["jsonl"].write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    paths["jsonl.gz"].write_bytes(gzip.compress(paths["jsonl"].read_bytes(), mtime=0))
    paths["dsjson"] = coffee(ROWS).write(folder / "good.dsjson")
    return paths


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes changed, cut, doubled, or tokens put in; often near the end, where formats keep their sizes."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        low = max(0, len(data) - 600) if rng.random() < 0.4 else 0
        at = int(rng.integers(low, max(low + 1, len(data))))
        kind = rng.integers(0, 8)
        if kind < 4 and at < len(data):
            data[at] = int(rng.integers(0, 256))
        elif kind == 4 and at < len(data):
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 5:
            data[at:at] = TOKENS[int(rng.integers(len(TOKENS)))]
        elif kind == 6:
            del data[at : at + int(rng.integers(1, 40))]
        else:
            data[at:at] = data[at : at + int(rng.integers(1, 60))]
    return bytes(data[: int(rng.integers(1, len(data) + 1))] if rng.random() < 0.05 else data)


POLICIES = ("topk:top+chance,rest=uniform", "dense:pi", "choice:best")


def arguments(kind: str, path: Path, log: Path, rng: np.random.Generator) -> list[str]:
    """A command that reads the file."""
    if kind == "toml":
        return ["evaluate", str(log), "--config", str(path), "--format", "json"]
    if kind == "dsjson":
        more = (
            ["--contexts", "x_User_visits", "--predictions", "x_User_visits+x_User_visits"]
            if rng.random() < 0.4
            else []
        )
        return ["evaluate", str(path), "--policy", "topk:a+p", *more, "--no-learn", "--format", "json"]
    policy = ["--policy", POLICIES[int(rng.integers(3))]] if kind != "npz" else []
    more = ["--segment", "country"] if kind != "npz" and rng.random() < 0.3 else []
    if kind not in ("npz", "toml") and rng.random() < 0.4:  # streamed
        more += ["--n-actions", "3", "--predictions", "x+x"]
    return ["evaluate", str(path), *policy, *more, "--no-learn", "--format", "json"]


def once(words: list[str]) -> str:
    """What is wrong with the command's end, or nothing."""
    from cael.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
            code = 0
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            return traceback.format_exc()
    if code not in CODES:
        return f"exit code {code!r}"
    if code == 1 and not err.getvalue().strip():
        return "exit code 1 without a message"
    return f"a traceback was printed:\n{err.getvalue()}" if "Traceback" in err.getvalue() else ""


def child(folder: Path, keep: Path, kind: str, first: int, last: int) -> None:
    """Read the damaged files of these seeds; the number of the last one started is in a file."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    original = folder / f"good.{kind}"
    path = folder / f"damaged.{kind}"
    for seed in range(first, last):
        rng = np.random.default_rng([seed, sum(kind.encode())])
        path.write_bytes(damaged(original.read_bytes(), rng))
        (folder / "seed").write_text(str(seed))
        wrong = once(arguments(kind, path, folder / "good.parquet", rng))
        if wrong:
            save(keep, path, kind, seed, wrong)


def save(keep: Path, path: Path, kind: str, seed: int, what: str) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, keep / f"{seed}.{kind}")
    (keep / f"{seed}.{kind}.txt").write_text(what)


def fuzz(seconds: float, keep: Path, first: int, kinds: list[str], batch: int = 200) -> tuple[int, int]:
    """(files read, findings) within so many seconds."""
    ends, read, before = time.monotonic() + seconds, 0, set(keep.glob("*.txt"))
    with tempfile.TemporaryDirectory(prefix="cael-fuzz-") as name:
        folder = Path(name)
        all_kinds = list(good(folder))
        seeds = dict.fromkeys(kinds or all_kinds, first)
        while time.monotonic() < ends:
            for kind in seeds:
                if time.monotonic() >= ends:
                    break
                (folder / "seed").write_text(str(seeds[kind]))
                started = seeds[kind]
                seeds[kind] = spawned(folder, keep, kind, started, batch, min(ends, time.monotonic() + 30 * HANGS))
                read += seeds[kind] - started
    return read, len(set(keep.glob("*.txt")) - before)


def spawned(folder: Path, keep: Path, kind: str, first: int, batch: int, ends: float) -> int:
    """Run a child on a batch of seeds; the seed to go on with."""
    words = [sys.executable, "-m", "tests.hostile.fuzzer", "--child", str(folder), kind, str(first), str(first + batch)]
    with (folder / "stderr").open("w") as said:
        process = subprocess.Popen([*words, "--keep", str(keep.absolute())], stdout=said, stderr=said)
        seen, since = "", time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            now = (folder / "seed").read_text()
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() >= ends or time.monotonic() - since > HANGS:
                hung = time.monotonic() - since > HANGS
                process.send_signal(signal.SIGKILL)
                process.wait()
                if hung:
                    save(keep, folder / f"damaged.{kind}", kind, int(seen), f"hangs for more than {HANGS} seconds")
                return int(seen or first) + 1
    at = int((folder / "seed").read_text())
    if process.returncode:
        what = f"the process ended with {process.returncode}\n{(folder / 'stderr').read_text()[-3000:]}"
        save(keep, folder / f"damaged.{kind}", kind, at, what)
    return at + 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--first", type=int, default=int(time.time()))
    parser.add_argument("--kinds", nargs="*", default=[])
    parser.add_argument("--child", nargs=4)
    given = parser.parse_args()
    if given.child:
        folder, kind, first, last = given.child
        child(Path(folder), given.keep, kind, int(first), int(last))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    read, found = fuzz(given.seconds, given.keep, given.first, given.kinds)
    print(
        f"{read:,} damaged files read from seed {given.first}; {found} findings"
        + (f" in {given.keep}" if found else "")
    )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
