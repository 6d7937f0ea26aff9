"""segments: values and lifts by a label of the rows or by time, shrunk towards each other, with joint intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Floats, Ints
from cael.errors import InputError, first_bad, positive_int
from cael.estimators import Estimator, LoggedMean
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.intervals import Interval
from cael.inference.lift import control, lift_of
from cael.inference.weights import effective_sample_size
from cael.judging.survey import time_blocks
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.policies.policy import Policy
from cael.results.comparison import default_estimator
from cael.results.evaluation import direction, refuse_constant_rewards
from cael.results.sheet import Column, Note, Sheet, level_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

FEWEST_ROWS = 20
MOST_SEGMENTS = 1000


@final
@dataclass(frozen=True)
class Segment:
    """One segment: rows, their worth after weighting (None: no weights), value, and lift over the logging policy.

    interval: of the lift, holding for all segments together. shrunk, shrunk_interval: the lift drawn towards the others
    as far as their differences look like noise; the best guess of it, with an interval for this segment alone.
    """

    label: str
    rows: int
    effective_rows: float | None
    value: float
    baseline: float
    lift: float
    stderr: float
    interval: Interval
    shrunk: float
    shrunk_interval: Interval

    @property
    def direction(self) -> str:
        """Whether the joint interval of the lift lies above 0 ("better"), below ("worse"), or holds it."""
        return direction(self.interval)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Segments:
    """The lift of a policy by segment; the values, weighted by their rows, add up to that of the whole log.

    rows: the segments, the largest lift first (in the order of time for windows). estimator: its name. level: of the
    intervals. factor: of the joint ones. differ: p-value that all segments have one lift (Cochran's Q). spread:
    standard deviation of the true lifts over the segments (Paule and Mandel). kind: "segment" or "window".
    """

    rows: tuple[Segment, ...]
    estimator: str
    level: float
    factor: float
    differ: float
    spread: float
    kind: str

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.rows)

    def __getitem__(self, label: str) -> Segment:
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(f"no segment named {label!r}; there are: {', '.join(row.label for row in self.rows[:20])}")

    def sentence(self) -> str:
        """Whether the segments differ, in words."""
        told = f"The lifts of the {len(self.rows)} {self.kind}s"
        if self.differ < 0.01:
            return f"{told} differ beyond chance (p = {self.differ:.2g}); their spread is {self.spread:.3g}."
        return f"{told} differ no more than chance explains (p = {self.differ:.2g})."

    def __repr__(self) -> str:
        told = "; ".join(f"{row.label}: {row.lift:+.4g} {row.interval}" for row in self.rows[:10])
        return f"Segments({self.sentence()} {told}{' ...' if len(self.rows) > 10 else ''})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        told = {name: value for name, value in asdict(self).items() if name != "rows"}
        return {
            **told,
            "sentence": self.sentence(),
            "rows": [{**asdict(r), "direction": r.direction} for r in self.rows],
        }

    def sheet(self) -> Sheet:
        """What the printed forms show."""
        columns = (
            Column(self.kind), Column("rows", "count"), Column("effective_rows", "count", "eff. n", wide=True),
            Column("value", "value", wide=True), Column("lift", "lift"),
            Column("interval", "lift interval", f"simultaneous {level_text(self.level)}"),
            Column("direction", head=""), Column("shrunk", "lift", "shrunk lift"),
            Column("shrunk_interval", "lift interval", level_text(self.level), wide=True),
        )  # fmt: skip
        rows = tuple(
            (
                row.label, row.rows, row.effective_rows, row.value, row.lift, row.interval,
                None if row.direction == "no difference shown" else row.direction, row.shrunk, row.shrunk_interval,
            )
            for row in self.rows
        )  # fmt: skip
        styles = tuple(row.direction for row in self.rows)
        return Sheet(f"{self.estimator}, by {self.kind}", columns, rows, (Note(self.sentence()),), (), styles)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.sheet()

    def _repr_html_(self) -> str:
        return self.sheet().html()


def segments(
    log: LoggedData | ScannedLog,
    policy: Policy | ArrayLike | str,
    labels: ArrayLike | str | None = None,
    *,
    windows: int | None = None,
    estimator: Estimator | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Segments:
    """For whom, or when, is the policy better? Values and lifts by segment.

    labels: (n,) strings or numbers, one per row. windows: instead of labels, this many stretches of time of equal
    numbers of rows, by the timestamps, or by the order of the rows where there are none. estimator: as of `compare`.
    The intervals of the lifts hold for all segments together (max-t bootstrap); the shrunk lifts are empirical Bayes
    estimates under a normal prior whose spread is estimated (no shrinkage with fewer than 4 segments). For a scanned
    log (`cael.scan`), labels is the name of a column, and windows need rows that are in the order of time.
    """
    if isinstance(log, ScannedLog):
        from cael.engine import stream_results as results

        return results.segments(log, policy, labels, windows, estimator, level, seed)
    refuse_constant_rewards(log)
    inference.check_level(level)
    names, codes = _codes(log, labels, windows)
    problem = Problem(log, policy)
    chosen = default_estimator([problem.policy]) if estimator is None else estimator
    problem.require(chosen.name, chosen.needs)
    estimate = chosen.solve(problem)
    lift = lift_of(estimate, LoggedMean().solve(problem), control(problem, chosen))
    z = np.asarray(lift.contributions)
    groups = [np.flatnonzero(codes == code) for code in range(len(names))]
    lifts = np.array([z[at].mean() for at in groups])
    columns, errors = _influence(z, codes, lifts, log.clusters)
    weights = None if log.propensities is None else problem.weights
    return assembled(
        names, [len(at) for at in groups],
        [None if weights is None else effective_sample_size(weights[at]) for at in groups],
        np.array([estimate.contributions[at].mean() for at in groups]),
        np.array([log.rewards[at].mean() for at in groups]),
        lifts, errors, columns, chosen.name, level, seed, windows=windows is not None,
    )  # fmt: skip


def assembled(
    names: Sequence[str],
    counts: Sequence[int],
    worth: Sequence[float | None],
    values: Floats,
    baselines: Floats,
    lifts: Floats,
    errors: Floats,
    columns: Floats,
    estimator: str,
    level: float,
    seed: int,
    *,
    windows: bool = False,
) -> Segments:
    """The result from what is known of g segments: all but columns, (units, g), have one entry for each."""
    factor = inference.max_t(columns, level, seed=seed)
    shrunk, posterior, spread = shrink(lifts, errors)
    normal = _quantile(level)
    rows = [
        Segment(
            str(names[g]), int(counts[g]), worth[g], float(values[g]), float(baselines[g]), float(lifts[g]),
            float(errors[g]), _around(lifts[g], factor * errors[g], level, "simultaneous"),
            float(shrunk[g]), _around(shrunk[g], normal * posterior[g], level, "empirical Bayes"),
        )
        for g in range(len(names))
    ]  # fmt: skip
    if not windows:
        rows.sort(key=lambda row: -row.shrunk)
    kind = "window" if windows else "segment"
    return Segments(tuple(rows), estimator, level, factor, cochran(lifts, errors)[1], spread, kind)


def _influence(z: Floats, codes: Ints, lifts: Floats, clusters: Ints | None) -> tuple[Floats, Floats]:
    """What each row or cluster adds to each segment's lift, (units, segments), and the lifts' standard errors.

    Where there are many units, sums of randomly grouped ones stand for them, as in every bootstrap here.
    """
    n, g = len(z), len(lifts)
    size = np.bincount(codes, minlength=g)
    unit = np.arange(n) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    part = (z - lifts[codes]) / np.sqrt(size * np.maximum(size - 1, 1))[codes]
    pairs, place = np.unique(unit * g + codes, return_inverse=True)
    whole = np.bincount(place, weights=part)
    errors = np.sqrt(np.bincount(pairs % g, weights=whole**2, minlength=g))
    units = int(unit.max()) + 1
    if units > inference.BUCKETS:
        unit = np.random.default_rng(0).integers(0, inference.BUCKETS, units)[unit]
        units = inference.BUCKETS
    sums = np.bincount(unit * g + codes, weights=part, minlength=units * g)
    return sums.astype(np.float64).reshape(units, g), errors


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def _around(centre: float, half: float, level: float, method: str) -> Interval:
    return Interval(float(centre - half), float(centre + half), level, method)


def _codes(log: LoggedData, labels: ArrayLike | None, windows: int | None) -> tuple[list[str], Ints]:
    """Names of the segments and the (n,) number of each row's segment."""
    if (labels is None) == (windows is None):
        raise InputError(
            "segments needs labels, one per row, or windows, a number of stretches of time; got both or none."
        )
    if windows is not None:
        positive_int("windows", windows, least=2)
        if len(log) < FEWEST_ROWS * windows:
            raise InputError(f"windows={windows} needs at least {FEWEST_ROWS * windows} rows; the log has {len(log)}.")
        block = time_blocks(log, windows)
        found = [np.flatnonzero(block == number) for number in range(windows)]
        first = [None if log.timestamps is None else log.timestamps[rows].min() for rows in found]
        return [window_name(number, rows[0], first[number]) for number, rows in enumerate(found)], block
    array = np.asarray(labels)
    if array.shape != (len(log),):
        raise InputError(f"labels must have one entry per row ({len(log)}); got shape {array.shape}.")
    missing = np.array([each is None or each != each for each in array]) if array.dtype == object else array != array
    if missing.any():
        raise InputError(
            f"labels must not be missing; {first_bad(missing, array)}. Give such rows a label of their own."
        )
    names, codes = np.unique(array.astype(str) if array.dtype == object else array, return_inverse=True)
    count = np.bincount(codes)
    if len(names) > MOST_SEGMENTS:
        raise InputError(f"there are {len(names)} different labels, more than {MOST_SEGMENTS}: group them first.")
    if (count < FEWEST_ROWS).any():
        few = ", ".join(f"{names[g]!s} ({count[g]})" for g in np.flatnonzero(count < FEWEST_ROWS)[:5])
        raise InputError(f"a segment needs at least {FEWEST_ROWS} rows; too few: {few}. Put small ones together.")
    return [str(name) for name in names], codes.astype(np.intp)


def window_name(number: int, row: int, first: Any) -> str:
    """Of a window that begins with a row, and a time where there are any."""
    if first is None:
        return f"{number + 1}: from row {row:,}"
    if isinstance(first, np.datetime64):
        return f"{number + 1}: from {str(first)[:16].replace('T', ' ')}"
    return f"{number + 1}: from {first:g}"


def cochran(values: Floats, errors: Floats) -> tuple[float, float]:
    """Cochran's Q of values (g,) with standard errors (g,), and the p-value that they have one mean."""
    from scipy.special import chdtrc

    known = errors > 0
    if known.sum() < 2:
        return 0.0, 1.0
    v, w = values[known], 1 / errors[known] ** 2
    q = float((w * (v - (w @ v) / w.sum()) ** 2).sum())
    return q, float(chdtrc(int(known.sum()) - 1, q))


def between_variance(values: Floats, errors: Floats) -> float:
    """The variance t of the true means for which sum (v - m)^2 / (s^2 + t) is its expectation g - 1; 0 if none is
    (Paule and Mandel 1982)."""

    def excess(t: float) -> float:
        w = 1 / (errors**2 + t)
        return float((w * (values - (w @ values) / w.sum()) ** 2).sum()) - (len(values) - 1)

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, float(values.var()) + float((errors**2).max())
    while excess(high) > 0:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def shrink(values: Floats, errors: Floats) -> tuple[Floats, Floats, float]:
    """Empirical Bayes: posterior means (g,), their standard errors (g,), and the spread of the true means.

    Normal means under a normal prior; the errors hold the uncertainty of the prior's mean and, by Morris (1983), of its
    variance. With fewer than 4 values, or one without error, nothing is shrunk.
    """
    g = len(values)
    if g < 4 or (errors <= 0).any():
        return values.copy(), errors.copy(), 0.0
    t = between_variance(values, errors)
    w = 1 / (errors**2 + t)
    mean = float((w @ values) / w.sum())
    keep = (g - 3) / (g - 1) * errors**2 / (errors**2 + t)  # the share of each value that the prior's mean takes
    shrunk = values - keep * (values - mean)
    average = float(w @ errors**2 / w.sum())
    doubt = 2 / (g - 3) * keep**2 * (average + t) / (errors**2 + t) * (values - mean) ** 2
    variance = errors**2 * (1 - keep * (1 - w / w.sum())) + doubt
    return shrunk, np.sqrt(variance), math.sqrt(t)
