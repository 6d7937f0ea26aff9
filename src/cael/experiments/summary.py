"""From rows to numbers: bias, variance and MSE with Monte Carlo errors, coverage, time and memory."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError, choose
from cael.experiments.spec import Spec
from cael.experiments.trial import canonical

RESAMPLES = 2000
STATISTICS = ("bias", "variance", "mse")


@final
@dataclass(frozen=True)
class Line:
    """One estimator on one cell. Errors are Monte Carlo standard errors over runs. failed: runs without a value."""

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


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Estimates by cell and estimator, aligned by run: values[at][estimator] is (runs,), NaN where a run failed."""

    spec: Spec
    truths: dict[float | str, float]
    values: dict[float | str, dict[str, Floats]]
    rows: dict[tuple[float | str, str], list[dict[str, Any]]]

    def errors(self, at: float | str, estimator: str) -> Floats:
        """(runs,) estimate minus truth."""
        return self.values[at][estimator] - self.truths[at]

    @cached_property
    def draws(self) -> Ints:
        """(RESAMPLES, runs) bootstrap samples of the runs, the same for all estimators: comparisons are paired."""
        rng = np.random.default_rng(0)
        return rng.integers(0, self.spec.runs, (RESAMPLES, self.spec.runs))

    def bootstrap(self, at: float | str, estimator: str, statistic: str) -> Floats:
        """(RESAMPLES,) values of a statistic."""
        return statistic_of(self.errors(at, estimator)[self.draws], statistic)

    def band(self, at: float | str, estimator: str, statistic: str, level: float = 0.95) -> tuple[float, float]:
        """A bootstrap interval of a statistic over runs."""
        found = self.bootstrap(at, estimator, statistic)
        found = found[np.isfinite(found)]
        if not len(found):
            return np.nan, np.nan
        low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)


def statistic_of(errors: Floats, statistic: str) -> Floats:
    """Of errors (..., runs): |bias|, variance or MSE along the last axis; runs that failed (NaN) are left out."""
    choose("statistic", statistic, STATISTICS)
    good = np.isfinite(errors)
    count = good.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(good, errors, 0.0).sum(axis=-1) / count
        if statistic == "bias":
            return np.abs(mean)
        centre = mean[..., None] if statistic == "variance" else 0.0
        squares = np.where(good, (errors - centre) ** 2, 0.0).sum(axis=-1)
        return squares / np.maximum(count - 1, 0) if statistic == "variance" else squares / count


def table_of(spec: Spec, rows: list[dict[str, Any]]) -> Table:
    """Rows arranged by cell and estimator; every trial of the spec must be there."""
    where = {(canonical(cell.world), cell.n): cell.at for cell in spec.cells}
    found: dict[tuple[float | str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        at = where[canonical(row["world"]), row["n"]]
        found.setdefault((at, row["estimator"]), {})[row["seed"]] = row
    seeds = range(spec.seed, spec.seed + spec.runs)
    values: dict[float | str, dict[str, Floats]] = {}
    for cell in spec.cells:
        for name in spec.estimators:
            have = found.get((cell.at, name), {})
            missing = [seed for seed in seeds if seed not in have]
            if missing:
                raise InputError(f"{spec.name}: no row for {name} at {cell.at!r}, seed {missing[0]}: run it again.")
            numbers = [have[seed].get("value", np.nan) for seed in seeds]
            values.setdefault(cell.at, {})[name] = np.array(numbers, dtype=np.float64)
    truths = {at: next(iter(of.values()))["truth"] for (at, _), of in found.items()}
    return Table(spec, truths, values, {key: [of[seed] for seed in seeds] for key, of in found.items()})


def lines_of(table: Table) -> list[Line]:
    """One line per cell and estimator, in the order of the spec."""
    return [_line(table, cell.at, name) for cell in table.spec.cells for name in table.spec.estimators]


def _line(table: Table, at: float | str, name: str) -> Line:
    rows = table.rows[at, name]
    good = [row for row in rows if "value" in row]
    error = table.errors(at, name)[np.isfinite(table.errors(at, name))]
    n, truth = len(good), table.truths[at]
    scale = np.sqrt(n) if n else np.nan
    covered = np.array([row["low"] <= truth <= row["high"] for row in good], dtype=float)
    coverage = float(covered.mean()) if n else np.nan
    variance = float(error.var(ddof=1)) if n > 1 else np.nan
    fourth = float(((error - error.mean()) ** 4).mean()) if n else np.nan
    spread = max(fourth - variance**2 * (n - 3) / (n - 1), 0.0) if n > 1 else np.nan
    weights = [row["mean_weight"] for row in good if row["mean_weight"] is not None]
    memory = [row["cost"]["megabytes"] for row in rows if row["cost"]["megabytes"] is not None]
    return Line(
        at=at, estimator=name, runs=n, failed=len(rows) - n, truth=truth,
        bias=float(error.mean()) if n else np.nan, bias_error=float(np.sqrt(variance) / scale),
        variance=variance, variance_error=float(np.sqrt(spread) / scale),
        mse=float((error**2).mean()) if n else np.nan,
        mse_error=float((error**2).std(ddof=1) / scale) if n > 1 else np.nan,
        coverage=coverage, coverage_error=float(np.sqrt(max(coverage * (1 - coverage), 0.0)) / scale),
        mean_weight=float(np.mean(weights)) if weights else None,
        seconds=float(np.median([row["cost"]["seconds"] for row in rows])),
        megabytes=float(np.median(memory)) if memory else None,
    )  # fmt: skip


def to_csv(lines: list[Line]) -> str:
    """The lines as a CSV file; numbers with six digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(asdict(lines[0]))
    for line in lines:
        writer.writerow(
            [f"{x:.6g}" if isinstance(x, float) else ("" if x is None else x) for x in asdict(line).values()]
        )
    return buffer.getvalue()


def to_text(lines: list[Line], axis: str = "") -> str:
    """The lines as a table for people."""
    head = ["estimator", "bias", "±", "variance", "±", "MSE", "±", "95% covers", "seconds", "MiB"]
    cells = [[axis, *head] if axis else head]
    for line in lines:
        failed = f" ({line.failed} failed)" if line.failed else ""
        told = [
            line.estimator + failed, f"{line.bias:+.3g}", f"{line.bias_error:.2g}", f"{line.variance:.3g}",
            f"{line.variance_error:.2g}", f"{line.mse:.3g}", f"{line.mse_error:.2g}", f"{line.coverage:.0%}",
            f"{line.seconds:.2g}", "" if line.megabytes is None else f"{line.megabytes:.0f}",
        ]  # fmt: skip
        cells.append([str(line.at), *told] if axis else told)
    return aligned(cells, left=2 if axis else 1)


def aligned(cells: list[list[str]], left: int = 1) -> str:
    """Columns of text; the first `left` flush left, the others flush right."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = (
        "  ".join(
            text.ljust(w) if i < left else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)
