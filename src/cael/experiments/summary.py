"""From rows to numbers: bias, variance and MSE with Monte Carlo errors, coverage, time and memory."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError, choose
from cael.experiments.spec import Spec
from cael.experiments.trial import canonical

RESAMPLES = 4000
STATISTICS = ("bias", "variance", "mse")
COLUMNS = ("bias_loss", "variance_loss", "entropy")
"""Facts in the rows whose means over the runs are statistics, too: the losses of the paper, the posterior's entropy."""


@final
@dataclass(frozen=True)
class Accuracy:
    """Bias, variance and mean squared error of an estimator, each with its Monte Carlo standard error over runs."""

    bias: float
    bias_error: float
    variance: float
    variance_error: float
    mse: float
    mse_error: float


def accuracy_of(errors: Floats) -> Accuracy:
    """errors: (n,) estimate minus truth of each run; NaN is what they cannot tell, of one run all spreads."""
    n = len(errors)
    if n < 2:
        bias, mse = (float(errors[0]), float(errors[0] ** 2)) if n else (np.nan, np.nan)
        return Accuracy(bias, np.nan, np.nan, np.nan, mse, np.nan)
    scale, squares = np.sqrt(n), errors**2
    variance, fourth = float(errors.var(ddof=1)), float(((errors - errors.mean()) ** 4).mean())
    spread = max(fourth - variance**2 * (n - 3) / (n - 1), 0.0)
    return Accuracy(
        float(errors.mean()), float(np.sqrt(variance) / scale), variance, float(np.sqrt(spread) / scale),
        float(squares.mean()), float(squares.std(ddof=1) / scale),
    )  # fmt: skip


@final
@dataclass(frozen=True)
class Line:
    """One estimator on one cell, with the numbers of its `Accuracy`. failed: runs without a value.

    bias_loss, variance_loss, entropy, effective_actions: means over runs, of estimators that learn a posterior.
    """

    at: float | str
    estimator: str
    runs: int
    failed: int
    truth: float
    bias: float
    bias_error: float
    variance: float
    variance_error: float
    mse: float
    mse_error: float
    coverage: float
    coverage_error: float
    mean_weight: float | None
    seconds: float
    megabytes: float | None
    bias_loss: float | None = None
    variance_loss: float | None = None
    entropy: float | None = None
    effective_actions: float | None = None


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Estimates by cell and estimator: values[at][estimator] is (runs,), NaN where a run failed.

    Run t of all estimators is on the same log; where one has more runs than another, they share the first ones.
    """

    spec: Spec
    truths: dict[float | str, float]
    values: dict[float | str, dict[str, Floats]]
    rows: dict[tuple[float | str, str], list[dict[str, Any]]]

    @property
    def places(self) -> list[float | str]:
        """Where on the axis of the spec its cells are."""
        return [cell.at for cell in self.spec.cells]

    def errors(self, at: float | str, estimator: str) -> Floats:
        """(runs of the estimator,) estimate minus truth."""
        return self.values[at][estimator] - self.truths[at]

    def numbers(self, at: float | str, estimator: str, statistic: str) -> Floats:
        """(runs,) what the statistic is made of: errors, or a column of the rows; NaN where there is none."""
        if statistic not in COLUMNS:
            return self.errors(at, estimator)
        values = [row.get(statistic) for row in self.rows[at, estimator]]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    def point(self, at: float | str, estimator: str, statistic: str) -> float:
        """A statistic over all runs."""
        return float(statistic_of(self.numbers(at, estimator, statistic), statistic))

    def band(self, at: float | str, estimator: str, statistic: str) -> Floats:
        """The ends (2,) of a 95% bootstrap interval of a statistic over runs; of |bias| those of the bias, folded."""
        numbers = self.numbers(at, estimator, statistic)
        resampled = statistic_of(numbers[draws(len(numbers))], "signed" if statistic == "bias" else statistic)
        finite = resampled[np.isfinite(resampled)]
        if not len(finite):
            return np.full(2, np.nan)
        ends = np.quantile(finite, [(1 - 0.95) / 2, (1 + 0.95) / 2])
        return folded(ends) if statistic == "bias" else ends


def folded(ends: Floats) -> Floats:
    """The interval of |b| for an interval of b: from 0 where that holds both signs, so it contains its own estimate.

    >>> folded(np.array([-0.3, 0.1])).tolist(), folded(np.array([-0.3, -0.1])).tolist()
    ([0.0, 0.3], [0.1, 0.3])
    """
    sizes = np.sort(np.abs(ends))
    return np.array([0.0 if ends[0] <= 0 <= ends[1] else sizes[0], sizes[1]])


@cache
def draws(runs: int) -> Ints:
    """(RESAMPLES, runs) bootstrap samples of the runs, the same for all estimators: comparisons are paired."""
    return np.random.default_rng(0).integers(0, runs, (RESAMPLES, runs))


def statistic_of(numbers: Floats, statistic: str) -> Floats:
    """Of errors (..., runs): |bias|, "signed" bias, variance or MSE along the last axis; of a column its mean.

    Runs that failed (NaN) are left out.
    """
    choose("statistic", statistic, (*STATISTICS, "signed", *COLUMNS))
    good = np.isfinite(numbers)
    count = good.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(good, numbers, 0.0).sum(axis=-1) / count
        if statistic not in ("variance", "mse"):
            return np.abs(mean) if statistic == "bias" else mean
        centre = mean[..., None] if statistic == "variance" else 0.0
        squares = np.where(good, (numbers - centre) ** 2, 0.0).sum(axis=-1)
        return squares / np.maximum(count - 1, 0) if statistic == "variance" else squares / count


def table_of(spec: Spec, rows: list[dict[str, Any]]) -> Table:
    """Rows arranged by cell and estimator; every trial of the spec must be there."""
    places = {(canonical(cell.world), cell.n): cell.at for cell in spec.cells}
    by_seed: dict[tuple[float | str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        by_seed.setdefault((places[canonical(row["world"]), row["n"]], row["estimator"]), {})[row["seed"]] = row
    values: dict[float | str, dict[str, Floats]] = {}
    for at, name in product([cell.at for cell in spec.cells], spec.estimators):
        trials, seeds = by_seed.get((at, name), {}), spec.seeds_of(name)
        missing = [seed for seed in seeds if seed not in trials]
        if missing:
            raise InputError(f"{spec.name}: no row for {name} at {at!r}, seed {missing[0]}: run it again.")
        numbers = [trials[seed].get("value", np.nan) for seed in seeds]
        values.setdefault(at, {})[name] = np.array(numbers, dtype=np.float64)
    truths = {at: next(iter(trials.values()))["truth"] for (at, _), trials in by_seed.items()}
    wanted = {key: trials for key, trials in by_seed.items() if key[1] in spec.estimators}
    kept = {key: [trials[seed] for seed in spec.seeds_of(key[1])] for key, trials in wanted.items()}
    return Table(spec, truths, values, kept)


def lines_of(table: Table) -> list[Line]:
    """One line per cell and estimator, in the order of the spec."""
    return [_line(table, at, name) for at, name in product(table.places, table.spec.estimators)]


def _line(table: Table, at: float | str, name: str) -> Line:
    rows, truth, errors = table.rows[at, name], table.truths[at], table.errors(at, name)
    good = [row for row in rows if "value" in row]
    n = len(good)
    coverage = float(np.mean([row["low"] <= truth <= row["high"] for row in good])) if n else np.nan
    memory = [row["cost"]["megabytes"] for row in rows if row["cost"]["megabytes"] is not None]
    return Line(
        at=at, estimator=name, runs=n, failed=len(rows) - n, truth=truth,
        **vars(accuracy_of(errors[np.isfinite(errors)])),
        coverage=coverage, coverage_error=float(np.sqrt(coverage * (1 - coverage)) / np.sqrt(n)) if n else np.nan,
        mean_weight=_mean(good, "mean_weight"),
        seconds=float(np.median([row["cost"]["seconds"] for row in rows])),
        megabytes=float(np.median(memory)) if memory else None,
        bias_loss=_mean(good, "bias_loss"), variance_loss=_mean(good, "variance_loss"),
        entropy=_mean(good, "entropy"), effective_actions=_mean(good, "effective_actions"),
    )  # fmt: skip


def _mean(rows: list[dict[str, Any]], name: str) -> float | None:
    """Over the rows that have the number."""
    numbers = [row[name] for row in rows if row.get(name) is not None]
    return float(np.mean(numbers)) if numbers else None


def to_csv(lines: list[Line]) -> str:
    """The lines as a CSV file; numbers with six digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(vars(lines[0]))
    for line in lines:
        writer.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in vars(line).values()])
    return buffer.getvalue()


def to_text(lines: list[Line], axis: str = "") -> str:
    """The lines as a table for people."""
    head = ["estimator", "bias", "±", "variance", "±", "MSE", "±", "95% covers", "seconds", "MiB"]
    rows = [[str(line.at), line.estimator + failed_of(line), *numbers_of(line)] for line in lines]
    start = 0 if axis else 1
    return aligned([[axis, *head][start:], *(row[start:] for row in rows)], left=2 - start)


def failed_of(line: Line) -> str:
    return f" ({line.failed} failed)" if line.failed else ""


def numbers_of(line: Line) -> list[str]:
    """Bias, variance and MSE, each followed by its error; coverage, seconds and memory."""
    return [
        f"{line.bias:+.3g}", f"{line.bias_error:.2g}", f"{line.variance:.3g}", f"{line.variance_error:.2g}",
        f"{line.mse:.3g}", f"{line.mse_error:.2g}", f"{line.coverage:.0%}", f"{line.seconds:.2g}",
        "" if line.megabytes is None else f"{line.megabytes:.0f}",
    ]  # fmt: skip


def aligned(cells: list[list[str]], left: int = 1) -> str:
    """Columns of text; the first `left` flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    forms = [f"{'<' if i < left else '>'}{width}" for i, width in enumerate(widths)]
    return "\n".join("  ".join(map(format, row, forms)).rstrip() for row in cells)
