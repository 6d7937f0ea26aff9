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
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from cael.io.lakes import newest_metadata
from cael.learning.saved import digest
from tests.hostile.faults import learnable
from tests.hostile.files_of_policies import learned
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
LAKES = {"delta.json": ("delta", "_delta_log/*0.json"), "iceberg.json": ("ice/n/log", "metadata/*1-*.metadata.json")}
"""Folders of tables, and the file in them that is damaged."""
BESIDE = ("policy.csv", "actions.csv", "eligible.csv", "tree.json", "ridge.json", *LAKES)
VALUES = (None, -1, 0, 1.5, 1e308, float("nan"), 10**20, 2**31, "x", "", "\x1b[31m\u202e", True, [], {}, [1, "x"],
          "9" * 30, "s3://b/x", "../x", "file:///etc/passwd")  # fmt: skip
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
    return paths | beside(folder, table)


def beside(folder: Path, table: Any) -> dict[str, Path]:
    """What is read beside a log: policies, actions, eligible actions; and what describes Delta and Iceberg tables."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = {kind: folder / f"good.{kind}" for kind in BESIDE}
    rows = [f"d{row},{action},{p}" for row in range(ROWS) for action, p in enumerate((0.2, 0.3, 0.5))]
    paths["policy.csv"].write_text("\n".join(["decision_id,action,probability", *rows, ""]))
    paths["actions.csv"].write_text("action,size,name\n0,1.5,a\n1,2.5,b\n2,0.5,c\n")
    paths["eligible.csv"].write_text("action,period\n" + "".join(f"{a},{c}\n" for a in range(3) for c in "ab"))
    pq.write_table(pa.table(learnable()), folder / "learn.parquet")
    for kind in ("tree", "ridge"):
        paths[f"{kind}.json"].write_text(learned(kind))
    with contextlib.suppress(ImportError):
        import deltalake

        deltalake.write_deltalake(str(folder / "delta"), table.drop(["country"]))
        shutil.copy(next((folder / "delta").glob(LAKES["delta.json"][1])), paths["delta.json"])
    with contextlib.suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.catalog.memory import InMemoryCatalog

        catalog = InMemoryCatalog("c", warehouse=(folder / "ice").as_uri())
        catalog.create_namespace("n")
        catalog.create_table("n.log", schema=table.drop(["country"]).schema).append(table.drop(["country"]))
        shutil.copy(newest_metadata(folder / "ice" / "n" / "log"), paths["iceberg.json"])
    return {kind: path for kind, path in paths.items() if path.exists()}


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


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """JSON lines of which one has a value, anywhere in it, changed; a learned policy is signed anew."""
    lines = content.splitlines()
    at = int(rng.integers(len(lines)))
    document = json.loads(lines[at])
    for _ in range(int(rng.integers(1, 3))):
        part: Any = document
        while True:
            key = list(part)[int(rng.integers(len(part)))] if isinstance(part, dict) else int(rng.integers(len(part)))
            if not isinstance(part[key], dict | list) or not part[key] or rng.random() < 0.2:
                break
            part = part[key]
        change = int(rng.integers(len(VALUES) + 1))
        if change == len(VALUES):
            del part[key]
        else:
            part[key] = VALUES[change]
        if not document:
            break
    if isinstance(document, dict) and "sha256" in document:
        document["sha256"] = digest(document.get("policy"))
    lines[at] = json.dumps(document).encode()
    return b"\n".join(lines)


def changed(kind: str, content: bytes, rng: np.random.Generator) -> bytes:
    """The content of a file with damage: of its bytes, or of what they say."""
    share = {".json": 0.9, "jsonl": 0.5, "sjson": 0.5}.get(kind[-5:], 0.0)
    return mutated(content, rng) if rng.random() < share else damaged(content, rng)


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
    if kind in BESIDE:
        return [*beside_log(kind, path, log), "--no-learn", "--format", "json"]
    policy = ["--policy", POLICIES[int(rng.integers(3))]] if kind != "npz" else []
    more = ["--segment", "country"] if kind != "npz" and rng.random() < 0.3 else []
    if kind not in ("npz", "toml") and rng.random() < 0.4:  # streamed
        more += ["--n-actions", "3", "--predictions", "x+x"]
    return ["evaluate", str(path), *policy, *more, "--no-learn", "--format", "json"]


def beside_log(kind: str, path: Path, log: Path) -> list[str]:
    """A command that reads the file beside its log, or a table that it describes."""
    if kind in LAKES:
        return ["evaluate", str(table_of(path.parent, kind)), "--policy", POLICIES[1]]
    if kind in ("tree.json", "ridge.json"):
        return ["evaluate", str(path.parent / "learn.parquet"), "--policy", f"learned:{path}"]
    more = {
        "policy.csv": ["--policy", f"table:{path}"], "actions.csv": ["--policy", POLICIES[0], "--actions", str(path)],
        "eligible.csv": ["--policy", POLICIES[2] + ",epsilon=0.5", "--eligible", str(path), "--period", "country"],
    }  # fmt: skip
    return ["evaluate", str(log), *more[kind]]


def table_of(folder: Path, kind: str) -> Path:
    return folder / LAKES[kind][0]


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

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    original = folder / f"good.{kind}"
    path = folder / f"damaged.{kind}"
    for seed in range(first, last):
        rng = np.random.default_rng([seed, sum(kind.encode())])
        content = changed(kind, original.read_bytes(), rng)
        path.write_bytes(content)
        if kind in LAKES:
            next(table_of(folder, kind).glob(LAKES[kind][1])).write_bytes(content)
        (folder / "seed").write_text(str(seed))
        wrong = once(arguments(kind, path, folder / "good.parquet", rng))
        if wrong:
            save(keep, path, kind, seed, wrong)


def save(keep: Path, path: Path, kind: str, seed: int, what: str) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, keep / f"{seed}.{kind}")
    (keep / f"{seed}.{kind}.txt").write_text(what)


def fuzz(seconds: float, keep: Path, first: int, kinds: list[str], batch: int = 50) -> tuple[int, int]:
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
