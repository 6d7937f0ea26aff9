"""Commands that write files, and ways to disturb them: a pause at a place of the program, and a process around it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.experiments.conftest import without_cost, written
from tests.hostile.cases import columns

ANSWER = (0, 3)
PAUSED = "paused"
PRELUDE = """
import importlib, os, signal, sys, time

def rest():
    print("paused", file=sys.__stderr__, flush=True)
    for _ in range(1200):
        if os.path.exists("go"):
            return
        time.sleep(0.1)

def pausing(place):
    module, name = place.split(":")
    module = importlib.import_module(module)
    function = getattr(module, name)
    setattr(module, name, lambda *given, **named: (rest(), function(*given, **named))[1])

def pausing_in_a_file():
    import contextlib
    from cael.common import whole
    opened = whole.whole_file
    @contextlib.contextmanager
    def half(path):
        with opened(path) as file:
            file.write(b"half of it")
            file.flush()
            rest()
            yield file
    whole.whole_file = half

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what is started in the background
sys.path.insert(0, os.getcwd())
if os.environ.get("PAUSE"):
    pausing_in_a_file() if os.environ["PAUSE"] == "a file" else pausing(os.environ["PAUSE"])
if os.environ.get("MOST"):
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["MOST"]),) * 2)
from cael.cli import main
main(sys.argv[1:])
"""
POLICY = """
import time
import numpy as np
def policy(contexts):
    time.sleep(0.4)
    return np.full((len(contexts), 3), 1 / 3)
"""


@dataclass(frozen=True)
class Command:
    """words: of the command line; `--out out` is added. work: a function that it calls amid its work, where a test can
    stop it. done: the file below out/ that is there when it is done. dask: more words with which it runs on a cluster.
    """

    words: tuple[str, ...]
    work: str
    done: str
    out: str
    dask: tuple[str, ...] = ("--n-actions", "3")

    def on_dask(self) -> list[str]:
        """The command as it runs on a cluster: `learn` cannot write its decisions on a log in files."""
        words = [word.replace("choice:best,epsilon=0.5", "python:slowly:policy") for word in self.line()]
        return [*(words if "--decisions" not in words else self.without(words, "--decisions")), *self.dask]

    @staticmethod
    def without(words: list[str], option: str) -> list[str]:
        at = words.index(option)
        return words[:at] + words[at + 2 :]

    def line(self, *more: str) -> list[str]:
        return [*self.words, "--out", self.out, *more]


LOG = ("--policy", "choice:best,epsilon=0.5", "--no-learn")
COMMANDS = {
    "evaluate": Command(("evaluate", "log.parquet", *LOG), "cael.results.evaluate:evaluation_of", "report.html",
                        "out/report.html"),
    "compare": Command(("compare", "log.parquet", *LOG, "--policy", "uniform"), "cael.results.comparison:comparison_of",
                       "report.html", "out/report.html"),
    "learn": Command(("learn", "learn.parquet", "--candidates", "tree", "--save", "out/policy.json", "--decisions",
                      "out/decisions.csv", "--code", "out/policy.py"), "cael.learning.learner:chosen", "report.html",
                     "out/report.html"),
    "reproduce": Command(("reproduce", "small.toml", "--jobs", "1"), "cael.experiments.trial:run",
                         "small/claims.json", "out", ()),
}  # fmt: skip
"""What writes files; a new command is one more line. `tests/hostile/test_faults.py` puts each through every fault."""


def prepare(folder: Path, runs: int = 2) -> Path:
    """A folder with a log, an experiment and an empty folder out/."""
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns()), folder / "log.parquet")
    pq.write_table(pa.table(learnable()), folder / "learn.parquet")
    written(folder, runs)
    (folder / "out").mkdir()
    return folder


def learnable(n: int = 240) -> dict[str, Any]:
    """A log from which a tree can be learned: the best action follows the sign of the context."""
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=n).round(3), np.arange(n) % 3
    reward = ((action == (x > 0)) + 0.1 * rng.random(n)).round(3)
    return {"action": action, "reward": reward, "propensity": np.full(n, 1 / 3), "x_0": x}


def start(command: list[str], folder: Path, *, without_rights: bool = False, **more: Any) -> subprocess.Popen:
    """The command in a process of its own. more: environment variables (capitals), and arguments of Popen."""
    environment = {name: more.pop(name) for name in list(more) if name.isupper()}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE, *command], cwd=folder, text=True, env={**os.environ, **environment},
        preexec_fn=drop_rights if without_rights else None, **streams,
    )  # fmt: skip


def run(command: list[str], folder: Path, **more: Any) -> tuple[int, str, str]:
    process = start(command, folder, **more)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def drop_rights() -> None:
    """Root may write where nobody may: without these two capabilities it is a user like others."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; takes effect with exec


def until_paused(process: subprocess.Popen) -> None:
    lines = []
    for line in process.stderr:
        if line.strip() == PAUSED:
            return
        lines.append(line)
    raise AssertionError(f"it ended before it paused: {lines}")


OWN = re.compile(rb"cael (evaluate|compare|learn) [^<]*")
"""A page says by which command it was made, with the cluster's address."""


def content(folder: Path) -> dict[str, Any]:
    """What the files below out/ hold, of which two runs of a command must hold the same."""
    files = {}
    for path in sorted((folder / "out").rglob("*")):
        name = str(path.relative_to(folder / "out"))
        if path.name == "trials.jsonl":
            files[name] = without_cost([json.loads(line) for line in path.read_text().splitlines()])
        elif path.is_file() and path.name not in ("manifest.json", "summary.csv"):  # times of the runs
            files[name] = OWN.sub(b"", path.read_bytes())
    return files


def leftovers(folder: Path) -> list[str]:
    return [str(path) for path in (folder / "out").rglob(".*")]


def parts(folder: Path, count: int = 8) -> None:
    """The log in several files, for tasks on a cluster; and a policy that takes its time."""
    for name, table in (("log.parquet", pa.table(columns())), ("learn.parquet", pa.table(learnable()))):
        (folder / name).unlink()
        (folder / name).mkdir()
        rows = -(-len(table) // count)
        for at in range(count):
            pq.write_table(table.slice(at * rows, rows), folder / name / f"{at:02}.parquet")
    (folder / "slowly.py").write_text(POLICY)
