"""Run a spec: rows appended to trials.jsonl, a manifest, and, when all is done, summary, figures and verdicts.

    python -m cael.experiments.run NAME [NAME ...] --out DIR [--runs N] [--jobs N] [--quick] [--device cuda]
        [--estimators NAME ...] [--extended] [--all]

The command `cael reproduce` does the same. A trial has a key made of its content; what has a row is not run again.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

from cael.common.cluster import connected, losses_told
from cael.common.whole import only_writer
from cael.errors import CaelError, InputError
from cael.experiments import registry, trial
from cael.experiments.ledger import Ledger
from cael.experiments.manifest import write_manifest
from cael.experiments.reporter import Reporter
from cael.experiments.spec import BASE, EXTENDED, FIGURES, NAMES, Cell, Spec, experiments_of, load

KEPT = "; the rows that were finished are kept, and it goes on behind them."
TOGETHER = 50
"""Trials that are trained at once on a GPU."""
TOGETHER_ON_CPU = 5
"""Trials of one cell that are trained at once on a CPU: an operation on five takes little longer than on one."""
TOGETHER_NUMBERS = 1.2e8
"""Fewer are trained at once where trials x rows x actions would be more than this."""
SAME_SHAPE = ("gamma", "epsilon", "reward_std")
"""Settings of a world that leave the shape of its logs as it is: their trials are trained at once, too."""


@final
@dataclass(frozen=True)
class Where:
    """Where the trials run. jobs: processes on this machine. dask: address of a scheduler. device: of the networks."""

    jobs: int = 1
    dask: str | None = None
    device: str = "cpu"


def plan(spec: Spec, device: str) -> list[trial.Task]:
    """All trials of a spec, in order: blocks of them where networks are trained, else one per task.

    Estimators that have no `solve_many` stay on the CPU. Where both CAEL and Auto are asked for, they train together.
    """
    tasks = []
    auto = next((name for name, settings in spec.estimators.items() if settings == {"kind": "Auto"}), "")
    auto = auto if {"kind": "CAEL"} in spec.estimators.values() else ""
    for name, settings in spec.estimators.items():
        if name == auto:
            continue
        trains = hasattr(registry.make(**settings), "solve_many")
        there = device if trains else "cpu"
        alone = not trains or settings["kind"] == "CAEL"  # which trains many networks for each log anyway
        seeds = spec.seeds_of(name)
        for n, trials in _many(spec, seeds) if there != "cpu" else _few(spec, seeds, 1 if alone else TOGETHER_ON_CPU):
            chooses = auto if settings == {"kind": "CAEL"} else ""
            tasks.append(trial.Task(trials, n, settings, name, there, spec.quick, chooses))
    return tasks


def keys_of(spec: Spec) -> list[str]:
    """Of all trials of a spec, in the order of its rows."""
    return [key for task in plan(spec, "cpu") for key in task.keys]


Trials: TypeAlias = tuple[int, tuple[tuple[dict[str, Any], int], ...]]


def _few(spec: Spec, seeds: range, size: int) -> Iterator[Trials]:
    """Blocks of trials of one cell, so that cells which several specs have are the same blocks there."""
    for cell in spec.cells:
        for start in range(0, len(seeds), size):
            yield cell.n, tuple((cell.world, seed) for seed in seeds[start : start + size])


def _many(spec: Spec, seeds: range) -> Iterator[Trials]:
    """Blocks of trials of one shape. Their bounds do not depend on what is done: one cut short is run again whole."""
    groups: dict[str, list[Cell]] = {}
    for cell in spec.cells:
        shape = {name: value for name, value in cell.world.items() if name not in SAME_SHAPE}
        groups.setdefault(trial.canonical([cell.n, shape]), []).append(cell)
    for cells in groups.values():
        n, actions = cells[0].n, cells[0].world.get("n_actions", 500)
        size = max(1, min(TOGETHER, int(TOGETHER_NUMBERS / (n * actions))))
        for part in (seeds[: spec.runs], seeds[spec.runs :]):  # more runs later leave the first blocks as they are
            every = [(cell.world, seed) for cell in cells for seed in part]
            for start in range(0, len(every), size):
                yield n, tuple(every[start : start + size])


def execute(spec: Spec, out: Path, where: Where, *, quiet: bool = False) -> list[dict[str, Any]]:
    """Run what has no row yet; all rows of the spec, in the order of the plan, which is also that of the file."""
    return next(execute_all([(spec, out)], where, quiet=quiet))[1]


def execute_all(
    wanted: Sequence[tuple[Spec, Path]], where: Where, *, quiet: bool = False
) -> Iterator[tuple[Spec, list[dict[str, Any]]]]:
    """The trials of several specs together; each spec with its rows as soon as it has all of them.

    A trial that several specs have is run once. No other process may write to their folders meanwhile.
    """
    with ExitStack() as locks:
        for _, folder in wanted:
            folder.mkdir(parents=True, exist_ok=True)
            locks.enter_context(only_writer(folder))
        yield from _executed(wanted, where, quiet)


def _executed(
    wanted: Sequence[tuple[Spec, Path]], where: Where, quiet: bool
) -> Iterator[tuple[Spec, list[dict[str, Any]]]]:
    ledgers = [Ledger(spec, folder, plan(spec, where.device)) for spec, folder in wanted]
    check_machine([task for ledger in ledgers for task in ledger.tasks])
    for ledger in ledgers:
        write_manifest(ledger.folder, ledger.spec, where, finished=False)
    tasks = list({tuple(task.keys): task for ledger in ledgers for task in ledger.pending}.values())
    tasks.sort(key=lambda task: task.seeds)  # run by run, so that the time left is right from early on
    left = len({key for task in tasks for key in task.keys})
    before = len({key for ledger in ledgers for key in ledger.names}) - left
    name = ledgers[0].spec.name if len(ledgers) == 1 else f"{len(ledgers)} experiments"
    reporter = Reporter(name, before + left, before, quiet=quiet)
    yield from _closed(ledgers, where)
    for rows in results(tasks, where):
        for ledger in ledgers:
            ledger.add(rows)
        reporter.done(len(rows))
        yield from _closed(ledgers, where)
    reporter.close()


def _closed(ledgers: Sequence[Ledger], where: Where) -> Iterator[tuple[Spec, list[dict[str, Any]]]]:
    """Those that have all rows and were not told yet."""
    for ledger in ledgers:
        if not ledger.closed and not ledger.awaited:
            rows = ledger.close(keys_of(ledger.spec))
            write_manifest(ledger.folder, ledger.spec, where, finished=True)
            yield ledger.spec, rows


def check_machine(tasks: list[trial.Task]) -> None:
    """Refuse at once what this machine cannot do, so that it does not end as the failure of a trial."""
    from cael.embedding import CAEL, Auto
    from cael.embedding.arrays import arrays_on
    from cael.embedding.settings import require_torch

    for task in tasks:
        estimator = trial.built(task)
        if hasattr(estimator, "solve_many"):
            arrays_on(task.device)
            if not isinstance(estimator, Auto | CAEL):
                require_torch(task.name)


def results(tasks: list[trial.Task], where: Where) -> Iterator[list[dict[str, Any]]]:
    """The rows of each task as it ends, in any order. Several processes share the GPU."""
    from joblib import Parallel, delayed

    tasks = mixed(tasks)
    if where.dask is None and where.jobs == 1:
        yield from (trial.run(task) for task in tasks)
        return
    if not tasks:
        return
    calls = [delayed(trial.run)(task) for task in tasks]
    with _cluster(where) as jobs, warnings.catch_warnings():
        # Workers are replaced when they have grown, as those do that load torch after their first task.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        # A worker that took several tasks at once could hold two that the GPU trains, while others have none.
        batch: Any = 1 if any(task.device != "cpu" for task in tasks) else "auto"
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="4*n_jobs", batch_size=batch)
        yield from pool(calls)


def mixed(tasks: list[trial.Task]) -> list[trial.Task]:
    """What a GPU trains, the largest first, evenly among what needs none: neither it nor the cores wait for the other.

    One after the other, the GPU was busy for the first half of the time and the cores for the second.
    """
    there = sorted((task for task in tasks if task.device != "cpu"), key=lambda task: -task.size)
    here = [task for task in tasks if task.device == "cpu"]
    bounds = [round(i * len(here) / max(1, len(there))) for i in range(len(there) + 1)]
    spread = [task for i, large in enumerate(there) for task in (large, *here[bounds[i] : bounds[i + 1]])]
    return spread or here


@contextmanager
def _cluster(where: Where) -> Iterator[int]:
    """Processes of this machine, which do not outlive us, or those of a Dask scheduler."""
    import joblib

    if where.dask is not None:
        with connected(where.dask), losses_told(KEPT), joblib.parallel_config(backend="dask"):
            yield -1
        return
    main = threading.current_thread() is threading.main_thread()  # only there can a signal be caught
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)) if main else None
    try:
        yield where.jobs
    finally:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=False, kill_workers=True)
        if main:
            signal.signal(signal.SIGTERM, before)


def reproduce(
    names: Iterable[str],
    out: Path,
    where: Where,
    *,
    runs: int | None = None,
    quick: bool = False,
    quiet: bool = False,
    estimators: Sequence[str] = (),
    extended: bool = False,
) -> Iterator[Any]:
    """Run, sum up, draw, judge. The outcomes as they come, for printing; files are under out/NAME."""
    from cael.experiments.outcome import conclude

    specs = [load(name, quick=quick, runs=runs, estimators=estimators, extended=extended) for name in names]
    for spec, rows in execute_all([(spec, out / spec.name) for spec in specs], where, quiet=quiet):
        yield conclude(spec, rows, out / spec.name)


def command(
    names: Sequence[str],
    out: Path,
    where: Where,
    *,
    runs: int | None = None,
    quick: bool = False,
    every: bool = False,
    estimators: Sequence[str] = (),
    extended: bool = False,
) -> None:
    """Run and print what came of it: named experiments or figures, or every one; then a figure of several as one."""
    from cael.experiments.composite import compose
    from cael.experiments.outcome import judged, verdict_text

    if not names and (every or quick or extended):
        names = EXTENDED if extended and not every else NAMES if extended else BASE
    if not names:
        every_name = ", ".join((*FIGURES, *NAMES))
        raise InputError(f"name an experiment, or say --all, --extended or --quick; there are: {every_name}.")
    figures = [name for name in names if name in FIGURES]
    some = estimators or (["paper"] if figures == list(names) and not extended else [])
    outcomes = {}
    for outcome in reproduce(
        experiments_of(names), out, where, runs=runs, quick=quick, estimators=some, extended=extended
    ):
        outcomes[outcome.table.spec.name] = outcome.table
        print(outcome.text(), end="\n\n", flush=True)
    for verdict in judged(outcomes):
        if len(verdict.claim.specs) > 1:  # those of one experiment were told with it
            print(verdict_text(verdict))
    for path in compose(figures, outcomes, out):
        print(f"wrote {path}")


def main(arguments: list[str]) -> None:
    """A command line that needs nothing but the numerical packages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dask")
    parser.add_argument("--estimators", nargs="+", default=())
    for flag in ("--quick", "--all", "--extended"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args(arguments)
    where = Where(options.jobs, options.dask, options.device)
    chosen = {"every": options.all, "estimators": options.estimators, "extended": options.extended}
    try:
        command(options.names, options.out, where, runs=options.runs, quick=options.quick, **chosen)
    except CaelError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
