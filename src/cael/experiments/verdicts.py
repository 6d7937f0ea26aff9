"""How often the verdict says "ok" while the truth lies outside the interval, on sound logs and on broken ones.

    python -m cael.experiments.verdicts run  --out docs/results/verdicts.json --trials 60      (make verdicts)
    python -m cael.experiments.verdicts run  --out docs/results/verdicts_learned.json --learn --trials 15 [--jobs 16]
    python -m cael.experiments.verdicts page --out docs/results

Trial t of a world is the log of seed 3000 + t, broken with the random numbers of that seed; the thresholds were set
while looking at seeds below 3000. Every evaluation is that of `cael.evaluate(learn=False)`, with SNDR as its headline,
or with --learn that of `cael.evaluate`, with Auto; the interval is the 95% interval that decisions rest on. A run that
was stopped goes on where it was: each trial is a line of the file that --rows names. With --learn, worlds whose
networks take too long to train are left out, and the page names them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

import cael
from cael.errors import CaelError
from cael.experiments.broken import CONDITIONS, worlds
from cael.experiments.ledger import append, in_parallel, read_lines
from cael.experiments.verdicts_page import LEVELS, page
from cael.log.logged import LoggedData
from cael.policies.policy import Policy

FIRST = 3000
SLOW_TO_TRAIN = ("embedding-logistic", "embedding-drawn", "paper, 50 actions")
"""Worlds that --learn leaves out: the largest of their kinds, which would take most of the time."""


@final
@dataclass(frozen=True)
class Trial:
    """One log: its verdict ("errors": evaluate raised one, a refusal that cannot be overlooked), whether the truth lay
    outside the interval, and the processor time."""

    world: str
    condition: str
    rows: int
    seed: int
    learn: bool
    level: str
    missed: bool
    seconds: float


@final
@dataclass(frozen=True)
class Cell:
    """One world under one condition: how many of `trials` logs got each verdict, and for how many of each the truth
    lay outside the interval."""

    world: str
    condition: str
    rows: int
    trials: int
    ok: int
    caution: int
    refuse: int
    errors: int
    ok_missed: int
    caution_missed: int
    refuse_missed: int


def verdict_on(log: LoggedData, target: Policy, truth: float, learn: bool = False) -> tuple[str, bool]:
    """The level of the verdict, or "errors", and whether the truth lies outside the interval."""
    try:
        evaluation = cael.evaluate(log, target, learn=learn)
    except CaelError:
        return "errors", False
    return evaluation.verdict.level, truth not in evaluation.best.interval()


def trial(name: str, world: Any, rows: int, condition: str, seed: int, learn: bool = False) -> Trial:
    start = time.process_time()
    truth = world.value(world.target)
    try:
        log, rise = CONDITIONS[condition](world.sample(rows, seed), np.random.default_rng([seed, 6]))
    except CaelError:  # the door refused the broken log
        level, missed = "errors", False
    else:
        level, missed = verdict_on(log, world.target, truth + rise, learn)
    return Trial(name, condition, rows, seed, learn, level, missed, round(time.process_time() - start, 2))


def cell(trials: Sequence[Trial]) -> Cell:
    """The counts of the trials of one world under one condition."""
    first = trials[0]
    counts = Counter(trial.level for trial in trials)
    missed = Counter(trial.level for trial in trials if trial.missed)
    return Cell(
        first.world, first.condition, first.rows, len(trials), *(counts[level] for level in (*LEVELS, "errors")),
        *(missed[level] for level in LEVELS),
    )  # fmt: skip


def planned(trials: int, only: Sequence[str], learn: bool) -> list[tuple[str, Any, int, str, int]]:
    """World, rows, condition and seed of each trial; all conditions of a seed before the next, so that a run that is
    stopped has seen them all."""
    chosen = {
        name: entry
        for name, entry in worlds().items()
        if (not only or name in only) and not (learn and name in SLOW_TO_TRAIN)
    }
    return [
        (name, world, rows, condition, seed)
        for seed in range(FIRST, FIRST + trials)
        for name, (world, rows) in chosen.items()
        for condition in CONDITIONS
    ]


def run(
    out: Path, rows: Path, trials: int, only: Sequence[str] = (), *, learn: bool = False, jobs: int = 1
) -> list[Cell]:
    """Run what is missing, on several processes, and write the counts of all."""
    for path in (out, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
    done = {(row["world"], row["condition"], row["seed"]): Trial(**row) for row in read_lines(rows)}
    other = [row for row in done.values() if row.learn != learn]
    if other:
        raise SystemExit(f"{rows} holds trials with learn={other[0].learn}: name another file with --rows.")
    wanted = {(name, condition, seed): (name, world, size, condition, seed, learn)
              for name, world, size, condition, seed in planned(trials, only, learn)}  # fmt: skip
    for result in in_parallel(trial, [call for key, call in wanted.items() if key not in done], jobs):
        done[result.world, result.condition, result.seed] = result
        append(rows, [asdict(result)])
        print(f"{len(done)} of {len(wanted)}: {result}", file=sys.stderr, flush=True)
    groups: dict[tuple[str, str], list[Trial]] = {}
    for name, condition, seed in wanted:
        groups.setdefault((name, condition), []).append(done[name, condition, seed])
    cells = [cell(group) for group in groups.values()]
    out.write_text(json.dumps([asdict(counts) for counts in cells], indent=1) + "\n")
    return cells


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--out", type=Path, required=True, help="a .json file; for page, the folder of the results")
    parser.add_argument("--trials", type=int, default=60, help="logs of each world and condition")
    parser.add_argument("--only", nargs="*", default=(), help="names of worlds; all by default")
    parser.add_argument("--learn", action="store_true", help="with Auto, which trains networks, as the headline")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--rows", type=Path, help="where trials are kept; results/NAME.jsonl by default")
    options = parser.parse_args(arguments)
    if options.what == "page":
        page(options.out)
        return
    rows = options.rows or Path("results") / f"{options.out.stem}.jsonl"
    run(options.out, rows, options.trials, options.only, learn=options.learn, jobs=options.jobs)


if __name__ == "__main__":
    main()
