"""The same tasks with the source of an earlier commit and with today's, in one run: ratios of time and of memory.

    python benchmarks/before_after.py COMMIT                  prints the table
    python benchmarks/before_after.py COMMIT --write [FILE]   and writes BEFORE_AFTER.md, or another file beside it
    python benchmarks/before_after.py COMMIT --only stream    tasks whose name has this in it

The earlier source is taken from git into a temporary folder. Each task runs in a process of its own, on files that
both read, before and after in turn, several rounds, after a warm-up on a small log; the least processor time and the
least peak of resident memory of the rounds count. Processor times are of all threads together.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROUNDS = 5
ACTIONS = 50


def write(folder: Path, rows: int, files: int, seed: int = 0) -> None:
    """A log with contexts, its whole logging policy, a target, segments, times and predictions, in Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    theta = rng.normal(size=(4, ACTIONS)) / 2
    for number in range(files):
        n = rows // files
        x = rng.normal(size=(n, 4))
        old, new = softmax(x @ theta), softmax(2 * x @ theta)
        actions = np.minimum((np.cumsum(old, axis=1) < rng.random((n, 1))).sum(axis=1), ACTIONS - 1)
        at = np.arange(n)
        columns = {
            "action": actions.astype(np.int16), "reward": (rng.random(n) < 0.1 + 0.05 * (x[:, 0] > 0)).astype(np.int8),
            "propensity": old[at, actions], "target": new[at, actions],
            "q_logged": np.full(n, 0.12, np.float32), "q_target": np.full(n, 0.13, np.float32),
            "country": rng.choice(["de", "fr", "it", "pl", "se"], n), "device": rng.choice(["phone", "desk"], n),
            "timestamp": (number * n + at) * 60, **{f"x_{j}": x[:, j] for j in range(4)},
        }  # fmt: skip
        table = pa.table(columns)
        for name, policy in (("mu", old), ("pi", new)):
            lists = pa.FixedSizeListArray.from_arrays(policy.ravel(), ACTIONS).cast(pa.list_(pa.float64()))
            table = table.append_column(name, lists)
        pq.write_table(table, folder / f"part-{number:02}.parquet")


def softmax(scores: np.ndarray) -> np.ndarray:
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def command(*arguments: str) -> None:
    """The command in this process, its output thrown away."""
    from cael.cli import main as cael

    with contextlib.redirect_stdout(io.StringIO()):
        try:
            cael(list(arguments))
        except SystemExit as ended:
            if ended.code not in (0, 3):  # 3: the verdict is "refuse"
                raise


def evaluate_command(folder: Path, *more: str) -> None:
    given = ("--policy", "dense:pi", "--logging", "mu", "--n-actions", str(ACTIONS), "--contexts", "x_*", "--no-learn")
    command("evaluate", str(folder), *given, "--format", "json", *more)


def arrays(rows: int, actions: int) -> tuple[Any, Any]:
    """A log in memory and a target, both policies dense."""
    import cael

    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 5))
    logging, target = (rng.dirichlet(np.full(actions, 0.5), rows) * 0.9 + 0.1 / actions for _ in range(2))
    chosen = np.minimum((np.cumsum(logging, axis=1) < rng.random((rows, 1))).sum(axis=1), actions - 1)
    rewards = x[:, 0] + rng.normal(size=rows)
    return cael.LoggedData(x, chosen, rewards, logging=logging, n_actions=actions), cael.Tabular(target)


def singly(name: str, rows: int, actions: int) -> Callable[[Path], Callable[[], Any]]:
    def build(_: Path) -> Callable[[], Any]:
        import cael

        log, target = arrays(rows, actions)
        return lambda: getattr(cael, name)().estimate(log, target)

    return build


def contrasted(rows: int, actions: int) -> Callable[[Path], Callable[[], Any]]:
    """Two targets, by DR."""

    def build(_: Path) -> Callable[[], Any]:
        import cael

        log, target = arrays(rows, actions)
        targets = {"new": target, "even": cael.Uniform(actions)}
        return lambda: cael.compare(log, targets, estimator=cael.DR())

    return build


def segmented(rows: int, actions: int) -> Callable[[Path], Callable[[], Any]]:
    """Five segments, by DR."""

    def build(_: Path) -> Callable[[], Any]:
        import cael

        log, target = arrays(rows, actions)
        labels = np.random.default_rng(2).choice(list("abcde"), rows)
        return lambda: cael.segments(log, target, labels, estimator=cael.DR())

    return build


def panel(rows: int, actions: int) -> Callable[[Path], Callable[[], Any]]:
    def build(_: Path) -> Callable[[], Any]:
        import cael

        log, target = arrays(rows, actions)
        return lambda: cael.evaluate(log, target, learn=False)

    return build


def personalised(strength: float, name: str = "") -> Callable[[Path], Callable[[], Any]]:
    """60,000 rows, 300 actions, 10 contexts, actions' own slopes of this size: the panel, or one estimator."""

    def build(_: Path) -> Callable[[], Any]:
        import cael

        log, target = arrays(60_000, 300)
        rng = np.random.default_rng(2)
        x = rng.normal(size=(len(log), 10))
        rewards = x[:, 0] + strength * (x * rng.normal(size=(300, 10))[log.actions]).sum(axis=1) + log.rewards
        log = cael.LoggedData(x, log.actions, rewards, logging=log.logging, n_actions=300)
        if name:
            return lambda: getattr(cael, name)().estimate(log, target)
        return lambda: cael.evaluate(log, target, learn=False)

    return build


def paper(name: str, actions: int = 100) -> Callable[[Path], Callable[[], Any]]:
    """An estimator on the paper's problem. What it imports is loaded before, by an estimate on a tiny log."""

    def build(_: Path) -> Callable[[], Any]:
        import cael

        world, tiny = (cael.worlds.PaperWorld(n_actions=k) for k in (actions, 5))
        log, estimator = world.sample(1000, seed=0), getattr(cael, name)()
        estimator.estimate(tiny.sample(100, seed=0), tiny.target)
        return lambda: estimator.estimate(log, world.target)

    return build


def streamed(predictions: str | None) -> Callable[[Path], Callable[[], Any]]:
    def build(folder: Path) -> Callable[[], Any]:
        import cael

        known = {} if predictions else {"columns": {"contexts": ["x_*"]}, "logging": "mu"}
        return lambda: cael.evaluate(
            cael.scan(folder, n_actions=ACTIONS, predictions=predictions, memory="1GiB", workers=2, **known),
            "probability:target" if predictions else "dense:pi", learn=False,
        )  # fmt: skip

    return build


def many_actions(_: Path) -> Callable[[], Any]:
    import cael

    sys.path.insert(0, str(HERE))
    from many_actions import build

    log, target, _ = build(20_000, 20_000, 20)
    return lambda: [each.estimate(log, target) for each in (cael.SNIPS(), cael.SNDR())]


TASKS: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "evaluate in memory, two segment columns and windows": lambda folder: (
        lambda: evaluate_command(folder, "--segment", "country", "--segment", "device", "--windows", "8")
    ),
    "evaluate in memory": lambda folder: lambda: evaluate_command(folder),
    "evaluate within a memory budget (a stream)": lambda folder: lambda: evaluate_command(folder, "--memory", "400MiB"),
    "stream, given predictions": streamed("q_logged+q_target"),
    "stream, trains ridge": streamed(None),
    **{
        f"{name}, 10,000 rows, {k} actions": singly(name, 10_000, k)
        for k in (10, 500)
        for name in ("IPS", "SNIPS", "DM", "DR", "SNDR")
    },
    "compare two by DR, 10,000 rows, 500 actions": contrasted(10_000, 500),
    "segments by DR, 10,000 rows, 500 actions": segmented(10_000, 500),
    "panel, 10,000 rows, 500 actions": panel(10_000, 500),
    "panel, 300,000 rows, 10 actions": panel(300_000, 10),
    "panel, 60,000 rows, 300 actions, additive rewards": personalised(0.0),
    "panel, 60,000 rows, 300 actions, personalised rewards": personalised(0.5),
    "SNDR, 60,000 rows, 300 actions, additive rewards": personalised(0.0, "SNDR"),
    "SNIPS and SNDR, 20,000 rows, 20,000 actions": many_actions,
    "MIPS, 1,000 rows, 100 actions": paper("MIPS"),
    "CAEL, 1,000 rows, 100 actions": paper("CAEL"),
    "CAEL, 1,000 rows, 500 actions": paper("CAEL", 500),
    "CAELMIPS, 1,000 rows, 100 actions": paper("CAELMIPS"),
}
SLOW = ("CAEL",)
"""Tasks whose names begin so run two rounds."""
QUICK = ("10,000 rows", 15)
"""Tasks with this in their names take milliseconds, and run at least so many rounds."""


def peak_mib() -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    return float(found[1]) / 1024 if found else float("nan")


def here(task: str, folder: Path) -> dict[str, float]:
    """One task in this process: once on the small log, then once that counts."""
    warnings.simplefilter("ignore")
    if not task.startswith(SLOW):
        TASKS[task](folder / "small")()
    run = TASKS[task](folder / "log")
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "mib": peak_mib()}


def there(source: Path, task: str, folder: Path) -> dict[str, float]:
    """One task in a process of its own, with the source of one side."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    given = [sys.executable, __file__, "-", "--here", task, "--folder", str(folder)]
    done = subprocess.run(given, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{task} with {source}:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def rounds(task: str, sources: tuple[Path, Path], folder: Path, count: int) -> list[dict[str, float]]:
    """The least of each number over the rounds, before and after."""
    measured: list[list[dict[str, float]]] = [[], []]
    count = 2 if task.startswith(SLOW) else max(count, QUICK[1]) if QUICK[0] in task else count
    for turn in range(count):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            measured[side].append(there(sources[side], task, folder))
    return [{name: min(each[name] for each in side) for name in ("cpu", "wall", "mib")} for side in measured]


def line(task: str, before: dict[str, float], after: dict[str, float]) -> str:
    ratios = [f"{after[name] / before[name]:.2f}" for name in ("cpu", "wall", "mib")]
    cells = [f"{before['cpu']:.3g}", f"{after['cpu']:.3g}", *ratios[:2]]
    return f"| {task} | {' | '.join(cells)} | {before['mib']:.0f} | {after['mib']:.0f} | {ratios[2]} |"


def at_commit(commit: str, folder: Path) -> str:
    """The source of a commit in a folder; the whole name of the commit."""
    root = HERE.parent
    name = subprocess.run(["git", "rev-parse", commit], capture_output=True, text=True, check=True, cwd=root).stdout
    packed = subprocess.run(["git", "archive", name.strip(), "src"], capture_output=True, check=True, cwd=root).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return name.strip()


def page(commit: str, options: str, lines: list[str]) -> str:
    return f"""# Before and after

`python benchmarks/before_after.py {commit[:12]} {options}`: processor seconds of all threads and peak memory with
the source of commit {commit[:12]} and with that of the commit that this file is in; the least of the rounds, in turn;
ratios are after / before. Load of the machine at the end: {os.getloadavg()[0]:.1f} (2 cores).

| task | before s | after s | processor | wall clock | before MiB | after MiB | memory |
|---|--:|--:|--:|--:|--:|--:|--:|
""" + "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write", nargs="?", const="BEFORE_AFTER.md")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(here(given.here, given.folder)))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        commit = at_commit(given.commit, folder)
        write(folder / "log", given.rows, 6)
        write(folder / "small", 3000, 2)
        lines = []
        for task in [task for task in TASKS if given.only in task]:
            before, after = rounds(task, (folder / "src", HERE.parent / "src"), folder, given.rounds)
            lines.append(line(task, before, after))
            print(lines[-1], flush=True)
    if given.write:
        (HERE / given.write).write_text(page(commit, shlex.join(sys.argv[2:]), lines), "utf-8")


if __name__ == "__main__":
    main()
