"""How long all experiments would take, from the rows of a shorter run of them.

    cael reproduce --all --runs 5 --jobs 2 --out FOLDER       (on a CPU)
    python -m cael.experiments.hours FOLDER [NAME ...]

Every trial of the experiments is taken to need the mean seconds of the rows of its cell and estimator; a trial that
several experiments have counts once. What it cannot know is how the processes of a longer run wait for each other.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from cael.errors import CaelError, InputError
from cael.experiments import trial
from cael.experiments.ledger import read_rows
from cael.experiments.run import plan
from cael.experiments.spec import NAMES, Spec, load


def seconds_of(folder: Path, specs: Sequence[Spec]) -> tuple[float, float]:
    """Seconds of one core: of the trials that have rows under `folder`, and of all trials of the specs."""
    tasks = {tuple(task.keys): task for spec in specs for task in plan(spec, "cpu")}.values()
    cell_of = {key: _cell(task, i) for task in tasks for i, key in enumerate(_priced(task))}
    rows = {key: row for spec in specs for key, row in read_rows(folder / spec.name / "trials.jsonl").items()}
    seen: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for key, row in rows.items():
        if key in cell_of:
            seen[cell_of[key]].append(row["cost"]["seconds"])
    missing = [cell for cell in cell_of.values() if cell not in seen]
    if missing:
        raise InputError(f"no row under {folder} says how long {missing[0][2]} takes on {missing[0][0]}: run it first.")
    whole = sum(sum(seen[cell]) / len(seen[cell]) for cell in cell_of.values())
    return sum(sum(seconds) for seconds in seen.values()), whole


def _priced(task: trial.Task) -> list[str]:
    """The keys whose rows tell the time of the task: of Auto, which counts what CAEL took, where it chooses."""
    return task.keys[-len(task.trials) :]


def _cell(task: trial.Task, i: int) -> tuple[str, int, str]:
    return trial.canonical(task.trials[i][0]), task.n, task.name


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m cael.experiments.hours", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path, help="the --out of a run with few trials of each cell, on a CPU")
    parser.add_argument("names", nargs="*", help="experiments; all by default")
    options = parser.parse_args(arguments)
    try:
        seen, whole = seconds_of(options.folder, [load(name) for name in options.names or NAMES])
    except CaelError as error:
        sys.exit(f"error: {error}")
    print(f"rows that are there: {seen / 3600:.2f} hours of one core; all trials: {whole / 3600:.2f} hours.")


if __name__ == "__main__":
    main(sys.argv[1:])
