"""Whether evaluate, compare and segments can be trusted: errors, intervals, verdicts and checks on worlds with truth.

    python -m cael.experiments.trust run  --out docs/results/trust.json [--jobs 2]          (make trust)
    python -m cael.experiments.trust page --out docs/results

Log t of a world is that of seed --seeds + t, broken with the random numbers of that seed; what is tuned is tuned on
seeds below 7000. World t of the population is `cael.worlds.random_world(--seeds + t)`, two logs each. Of every log
`cael.evaluate` is asked without learning, with SNDR as its headline, and with it, with Auto; the interval is the 95%
interval that decisions rest on. A run that was stopped goes on where it was: each log is a line of the file that --rows
names. --estimators adds others by name (of `cael.experiments.registry`, or OffCEMGiven: with the clusters of a world
that has them), which the evaluated logs need not be run again for.

All rows are also kept in a small file beside the tables (--kept), and the tables are of all that is kept. So a run goes
on elsewhere, and a part is run again by itself: --only with --again replaces what other versions of the source made.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np
from threadpoolctl import threadpool_limits

import cael
from cael.errors import CaelError, NeedsError
from cael.estimators.estimator import Estimator
from cael.experiments import broken, registry
from cael.experiments.ledger import append, in_parallel, read_lines
from cael.experiments.trust_counts import POPULATION, SOUND
from cael.experiments.trust_page import page
from cael.experiments.trust_rows import keep, kept, version
from cael.experiments.trust_summary import summary
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, Tabular, probabilities
from cael.worlds import LearningWorld, MixedWorld, random_world, wide

FIRST, GIVEN = 7000, "OffCEMGiven"
KEPT = Path("docs/results/trust_rows.xz")
RATES = (0.005, 0.02)
"""Success rates of the ten equal arms that compare and segments are judged on."""


@final
@dataclass(frozen=True)
class Task:
    """One thing to run. kind: "evaluate", "estimate" (one more estimator) or "joint" (compare or segments, which stands
    in condition; world is the success rate). learn: with Auto, too."""

    kind: str
    world: str
    seed: int
    condition: str = SOUND
    learn: bool = False
    estimator: str = ""


@cache
def listed() -> dict[str, tuple[Any, int]]:
    """Name -> (world, rows): all that have a name. OffCEM's joins where it is there."""
    named = {**broken.worlds(), **wide()}
    offcem = getattr(cael.worlds, "OffCEMWorld", None)
    if offcem is None or any(isinstance(world, offcem) for world, _ in named.values()):
        return named
    return {**named, "OffCEM": (offcem(), 3000)}


@cache
def world_of(name: str) -> tuple[Any, int]:
    """A world of the list, or one that was drawn at random."""
    return random_world(int(name.split()[1])) if name.startswith(f"{POPULATION} ") else listed()[name]


@cache
def truth_of(name: str) -> float:
    world, _ = world_of(name)
    return float(world.value(world.target))


@cache
def _logging_value(name: str) -> float:
    world, _ = world_of(name)
    return float(world.value(world.sample(2, 0).logging))


def baseline_of(name: str, log: LoggedData) -> float:
    """The value of the logging policy; of one that learned, of its mean over the rows."""
    world, _ = world_of(name)
    if not isinstance(world, LearningWorld):
        return _logging_value(name)
    assert isinstance(log.logging, Tabular)
    return world.value(Tabular(np.asarray(log.logging.table).mean(axis=0)))


def overlap(log: LoggedData, policy: Policy) -> float:
    """n / E w^2 of the unsmoothed weights, the expectation over the actions of the logging policy; 0 where the policy
    plays what the logging policy never does."""
    assert log.logging is not None
    total = 0.0
    for batch in log.batches(width=log.n_actions):
        new, old = probabilities(policy, batch), probabilities(log.logging, batch)
        total += float(np.divide(new**2, old, out=np.where(new > 0, np.inf, 0.0), where=old > 0).sum())
    return len(log) ** 2 / total


# One log


def short(value: float | None, digits: int = 7) -> float | None:
    """As many digits as are enough for all that is made of it."""
    return None if value is None else float(f"{value:.{digits}g}")


def numbers(estimate: cael.Estimate, interval: cael.Interval | None = None) -> list[float | None]:
    """The value and the interval that decisions rest on."""
    interval = interval or estimate.interval()
    return [short(estimate.value), short(interval.low), short(interval.high)]


def evaluated(log: LoggedData, policy: Policy, *, learn: bool) -> dict[str, Any]:
    """What an evaluation says, and the processor time; level "errors" where it raised, which cannot be overlooked."""
    start = time.process_time()
    try:
        evaluation = cael.evaluate(log, policy, learn=learn)
    except CaelError as error:
        return {"level": "errors", "why": str(error)[:200], "checks": {}}
    seconds, verdict = time.process_time() - start, evaluation.verdict
    return {
        "seconds": round(seconds, 3), "level": verdict.level, "headline": evaluation.headline,
        "best": numbers(evaluation.best, evaluation.interval),
        "lift": numbers(evaluation.lift, evaluation.lift_interval),
        "checks": {check.name: [check.status, short(check.value, 4)] for check in verdict.checks},
        "estimates": {estimate.estimator: numbers(estimate) for estimate in evaluation},
    }  # fmt: skip


def evaluation_row(task: Task) -> dict[str, Any]:
    """A log under a condition: the facts, what evaluate says without learning, and with it where that is asked for."""
    world, n = world_of(task.world)
    sound = world.sample(n, task.seed)
    truth, baseline = truth_of(task.world), baseline_of(task.world, sound)
    facts = {
        "n": n, "k": sound.n_actions, "overlap": short(overlap(sound, world.target)), "truth": short(truth),
        "true_lift": short(truth - baseline), "spread": short(float(sound.rewards.std())),
    }  # fmt: skip
    try:
        log, rise = broken.CONDITIONS[task.condition](sound, chance_of(task))
    except CaelError as error:  # the door refused the broken log
        refused = {"level": "errors", "why": str(error)[:200], "checks": {}}
        return {**facts, "plain": refused, "learned": refused if task.learn else None}
    said = {
        "plain": evaluated(log, world.target, learn=False),
        "learned": evaluated(log, world.target, learn=True) if task.learn else None,
    }
    if task.condition != SOUND:  # nobody asks which estimator is best on a broken log
        said = {kind: words and {**words, "estimates": {}} for kind, words in said.items()}
    return {**facts, "truth": short(truth + rise), **said}


def chance_of(task: Task) -> np.random.Generator:
    """The random numbers that break a log: others in each condition, so that no two have the same shuffled actions."""
    return np.random.default_rng([task.seed, 6, list(broken.CONDITIONS).index(task.condition)])


def estimate_row(task: Task) -> dict[str, Any]:
    """One more estimator on a sound log; null where it cannot be computed."""
    world, n = world_of(task.world)
    log, start = world.sample(n, task.seed), time.process_time()
    try:
        estimate = rival(task.estimator, world).estimate(log, world.target)
    except CaelError as error:
        return {"estimate": None, "why": str(error)[:200]}
    return {"estimate": numbers(estimate), "seconds": round(time.process_time() - start, 3)}


def rival(name: str, world: Any) -> Estimator:
    """An estimator by its name; "OffCEMGiven" needs a world that has clusters of actions."""
    if name != GIVEN:
        return registry.make(name)
    if not hasattr(world, "clusters"):
        raise NeedsError(f"{GIVEN} needs a world with clusters of actions.")
    return cael.OffCEM(world.clusters)


def joint_row(task: Task) -> dict[str, Any]:
    """Ten arms with one success rate: how many of ten directions are shown, all of them false; with verdict "ok"."""
    world = MixedWorld("none", "clicks", n_actions=10, rate=float(task.world), effect=0.0)
    log = world.sample(2000, task.seed)
    if task.condition == "compare":
        arms = {str(arm): Tabular(row) for arm, row in enumerate(np.eye(10))}
        rows = cael.compare(log, arms, learn=task.learn)
        wrong = [row for row in rows if row.direction != "no difference shown"]
        return {"false": len(wrong), "false_ok": sum(row.verdict.level == "ok" for row in wrong)}
    labels = np.random.default_rng([task.seed, 8]).integers(0, 10, len(log)).astype(str)
    parts = cael.segments(log, Tabular(np.eye(10)[0]), labels, learn=task.learn)
    return {"false": sum(row.direction != "no difference shown" for row in parts), "false_ok": None}


ROWS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "evaluate": evaluation_row,
    "estimate": estimate_row,
    "joint": joint_row,
}


def row(task: Task) -> dict[str, Any]:
    """One thread, so that as many logs as there are cores do not wait for each other."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {**asdict(task), **ROWS[task.kind](task), "version": version()}


# All of them


@final
@dataclass(frozen=True)
class Sizes:
    """How much is run: sound logs of a world with learning (logs); of each other condition (broken); logs of each
    condition without learning, for the checks (plain); worlds of the population, with two logs each; logs for compare
    and segments (joint), and of those with learning (joint_learned)."""

    logs: int = 40
    broken: int = 10
    plain: int = 10
    population: int = 200
    joint: int = 200
    joint_learned: int = 60


def planned(sizes: Sizes, first: int, only: Sequence[str] = (), estimators: Sequence[str] = ()) -> list[Task]:
    """All tasks, those of a seed before those of the next: sound logs, compare and segments, the population, and last
    the broken logs. So a run that is stopped has the most important ones, and of all worlds."""
    names = [name for name in listed() if not only or name in only]
    return [
        *(task for t in range(max(sizes.logs, sizes.plain)) for name in names
          for task in _of_sound(name, t, first, sizes, estimators)),
        *(task for t in range(sizes.joint) if not only or "joint" in only for task in _of_joint(first + t, t, sizes)),
        *(task for t in range(sizes.population) if not only or POPULATION in only for log in range(2)
          for task in [Task("evaluate", f"{POPULATION} {first + t}", log, learn=True)]),
        *(Task("evaluate", name, first + t, condition, t < sizes.broken)
          for t in range(max(sizes.broken, sizes.plain)) for name in names
          for condition in broken.CONDITIONS if condition != SOUND),
    ]  # fmt: skip


def _of_sound(name: str, t: int, first: int, sizes: Sizes, estimators: Sequence[str]) -> Iterator[Task]:
    yield Task("evaluate", name, first + t, learn=t < sizes.logs)
    if t < sizes.logs:
        yield from (Task("estimate", name, first + t, estimator=estimator) for estimator in estimators)


def _of_joint(seed: int, t: int, sizes: Sizes) -> Iterator[Task]:
    for rate in map(str, RATES):
        for what in ("compare", "segments"):
            yield Task("joint", rate, seed, what)
            if t < sizes.joint_learned:
                yield Task("joint", rate, seed, what, learn=True)


def task_of(line: dict[str, Any]) -> Task:
    return Task(**{name: line[name] for name in Task.__dataclass_fields__})


@final
@dataclass(frozen=True)
class Files:
    """out: of the summary. rows: where a log is a line as soon as it is done. kept: the rows of all runs; None: none.
    again: rows that another version of the source made do not count."""

    out: Path
    rows: Path
    kept: Path | None = None
    again: bool = False

    def lines(self) -> dict[Task, dict[str, Any]]:
        """The rows that are there: the kept ones, and those of the last run in the place of theirs."""
        before = kept(self.kept) if self.kept else []
        return {task_of(line): line for line in (*before, *read_lines(self.rows))}

    def counts(self, line: dict[str, Any] | None) -> bool:
        """Whether a row need not be run."""
        return line is not None and not (self.again and line.get("version") != version())


def run(files: Files, tasks: Sequence[Task], jobs: int = 1, seconds: float = math.inf) -> dict[str, Any] | None:
    """Run what is missing, on several processes, and write the summary of all rows that are there.

    seconds: after which nothing new is begun; what has begun ends. Then there is no summary (None) until another run
    has done the rest.
    """
    for path in (files.out, files.rows):
        path.parent.mkdir(parents=True, exist_ok=True)
    lines = files.lines()
    missing = [task for task in tasks if not files.counts(lines.get(task))]
    start = time.monotonic()
    for count, line in enumerate(in_parallel(row, in_time(missing, start + seconds), jobs, ahead=1), start=1):
        lines[task_of(line)] = line
        append(files.rows, [line])
        left = (time.monotonic() - start) / count * (len(missing) - count) / 60
        print(f"{count} of {len(missing)}, {left:.0f} min left: {task_of(line)}", file=sys.stderr, flush=True)
    if files.kept is not None:
        keep(files.kept, lines.values())
    if left_over := sum(not files.counts(lines.get(task)) for task in missing):
        print(f"{left_over} of {len(tasks)} are left; the same command goes on with them.", file=sys.stderr)
        return None
    facts = summary(list(lines.values()))
    files.out.write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def in_time(tasks: Sequence[Task], end: float) -> Iterator[tuple[Task]]:
    """The tasks, one after the other, as long as there is time."""
    for task in tasks:
        if time.monotonic() > end:
            return
        yield (task,)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--out", type=Path, required=True, help="a .json file; for page, the folder of the results")
    parser.add_argument("--only", nargs="*", default=(), help=f"names of worlds, {POPULATION} or joint; all by default")
    parser.add_argument("--estimators", nargs="*", default=(), help="more estimators, by their names in cael")
    parser.add_argument("--seeds", type=int, default=FIRST, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--rows", type=Path, default=Path("results/trust.jsonl"), help="where logs are kept")
    parser.add_argument("--kept", type=Path, default=KEPT, help=f"the rows of all runs; {KEPT} by default")
    parser.add_argument("--again", action="store_true", help="replace rows that other versions of the source made")
    for name, size in asdict(Sizes()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size, help=f"{size} by default; see Sizes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing new after them; go on next time")
    options = parser.parse_args(arguments)
    if options.what == "page":
        page(options.out)
        return
    known = (GIVEN, *registry.ESTIMATORS, *registry.MORE)
    if unknown := [name for name in options.estimators if name not in known]:
        parser.error(f"there is no estimator {unknown[0]!r}; there are: {', '.join(known)}.")
    sizes = Sizes(**{name: getattr(options, name) for name in Sizes.__dataclass_fields__})
    os.environ["OMP_NUM_THREADS"] = "1"
    tasks = planned(sizes, options.seeds, options.only, options.estimators)
    files = Files(options.out, options.rows, options.kept, options.again)
    run(files, tasks, options.jobs, options.seconds)


if __name__ == "__main__":
    from cael.experiments import trust  # by its name, so that other processes find its functions

    trust.main()
