"""Committed rows, drawn at random, run again alone on a CPU: does each give the number that is published?

    python -m cael.experiments.recheck docs/results [--rows 20] [--seed 0]

The rows were made on a GPU, many logs at once; here each log is drawn again from its seed, and nothing is beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from cael.errors import CaelError, InputError
from cael.experiments import compact, registry, trial
from cael.experiments.ledger import read_json
from cael.experiments.publish import ROWS, as_run
from cael.experiments.spec import Spec
from cael.experiments.summary import Table, aligned, table_of

EXACT, TRAINED = 1e-4, 0.1
TOLERANCES = {
    # sums, solvers and networks in 64 bits
    **dict.fromkeys((*registry.ESTIMATORS, *registry.MORE), EXACT),
    # networks in 32 bits: rounding decides now and then between two penalties that predict equally well
    **dict.fromkeys(("CAEL", "Auto"), TRAINED),
}
"""Kind of an estimator -> how far a row may be from the published one, as a share of the row's standard error."""
DIGITS = 2e-8
"""Published numbers have nine digits: no row is asked to be closer than this share of its value."""


@final
@dataclass(frozen=True)
class Place:
    """A committed row. task: the trial that makes it again."""

    experiment: str
    at: float | str
    estimator: str
    seed: int
    row: dict[str, Any]
    task: trial.Task


@final
@dataclass(frozen=True)
class Rerun:
    """A committed row beside its rerun. A row that failed has an error in place of a value (NaN)."""

    place: Place
    published: float
    again: float
    tolerance: float

    @property
    def difference(self) -> float:
        return abs(self.again - self.published)

    @property
    def equal(self) -> bool:
        """Within the tolerance; or both failed."""
        return bool(self.difference <= self.tolerance or (np.isnan(self.again) and np.isnan(self.published)))


@final
@dataclass(frozen=True)
class Recheck:
    """What came of the reruns, and the experiments whose rows are of another version of the arithmetic."""

    reruns: tuple[Rerun, ...]
    older: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return all(rerun.equal for rerun in self.reruns)

    def text(self) -> str:
        """A table and a sentence, for a terminal."""
        head = ["experiment", "at", "estimator", "seed", "published", "again", "difference", "tolerance", ""]
        cells = [
            [
                rerun.place.experiment, str(rerun.place.at), rerun.place.estimator, str(rerun.place.seed),
                f"{rerun.published:.8g}", f"{rerun.again:.8g}", f"{rerun.difference:.1e}", f"{rerun.tolerance:.1e}",
                "equal" if rerun.equal else "DIFFERS",
            ]
            for rerun in self.reruns
        ]  # fmt: skip
        count = sum(rerun.equal for rerun in self.reruns)
        parts = [aligned([head, *cells], left=3), "", f"{count} of {len(self.reruns)} rows are equal within tolerance."]
        if self.older:
            parts.append(f"Not drawn from, as their rows are of another version: {', '.join(self.older)}.")
        return "\n".join(parts)


def recheck(folder: Path, rows: int, seed: int) -> Recheck:
    """Run so many rows of a folder of results again, drawn by this seed."""
    places, older = committed(folder)
    if not places:
        raise InputError(
            f"{folder} has no rows of this version (format {trial.FORMAT}); it has experiments of other versions: "
            f"{', '.join(older) or 'none'}. Name the folder of published results, as docs/results."
        )
    drawn = np.random.default_rng(seed).permutation(len(places))[:rows]
    return Recheck(tuple(rerun(places[int(i)]) for i in drawn), older)


def committed(folder: Path) -> tuple[list[Place], tuple[str, ...]]:
    """All rows of a folder, and the names of its experiments that are of another format."""
    places: list[Place] = []
    older = []
    for path in sorted(folder.glob("*/manifest.json")):
        name = path.parent.name
        spec = _spec_of_today(read_json(path, {}))
        if spec is None:
            older.append(name)
        else:
            rows = compact.read(spec, folder / name / ROWS)
            places += _places(spec, table_of(spec, rows))
    return places, tuple(older)


def _spec_of_today(manifest: dict[str, Any]) -> Spec | None:
    """The spec of published rows, if today's code would make them by the same arithmetic and settings."""
    if manifest.get("format") != trial.FORMAT:
        return None
    spec = as_run(manifest)
    today = {
        name: registry.described(registry.make(**told, quick=spec.quick)) for name, told in spec.estimators.items()
    }
    return spec if trial.canonical(today) == trial.canonical(manifest["estimators"]) else None


def _places(spec: Spec, table: Table) -> Iterator[Place]:
    worlds = {cell.at: cell for cell in spec.cells}
    for (at, estimator), rows in table.rows.items():
        cell = worlds[at]
        for row in rows:
            one = ((cell.world, row["seed"]),)
            task = trial.Task(one, cell.n, spec.estimators[estimator], estimator, "cpu", spec.quick)
            yield Place(spec.name, at, estimator, row["seed"], row, task)


def rerun(place: Place) -> Rerun:
    """The row of a place again, alone and on a CPU."""
    again = trial.run(place.task)[0]
    value, row = place.row.get("value", np.nan), place.row
    kind = str(place.task.estimator["kind"])
    spread = (row["normal_high"] - row["normal_low"]) / (2 * 1.96) if "normal_low" in row else 0.0
    tolerance = max(TOLERANCES[kind] * spread, DIGITS * abs(value) if value == value else 0.0)
    return Rerun(place, float(value), float(again.get("value", np.nan)), float(tolerance))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        found = recheck(options.results, options.rows, options.seed)
    except CaelError as error:
        sys.exit(f"error: {error}")
    print(found.text())
    sys.exit(not found.equal)


if __name__ == "__main__":
    main()
