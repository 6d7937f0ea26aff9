"""segments: values and lifts by a label of the rows or by time, shrunk towards each other, with joint intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints
from cael.engine.answer import Answer
from cael.engine.asking import as_engine_log
from cael.engine.columns import Weight
from cael.engine.moments import Combination, Moments
from cael.engine.windows import FEWEST_ROWS, Windows, names_of, window_name, windows_of
from cael.errors import InputError, first_bad
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.weighting import LoggedMean
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.shrinkage import cochran, shrink
from cael.judging.survey import time_blocks
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.log.held import EngineLog, Held
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.policies.given import PolicyLike
from cael.results.evaluate import controls_of, default_estimator, warn
from cael.results.lifts import LOGGING, Lifted, direction
from cael.results.metric import Metric
from cael.results.plots import plotted
from cael.results.question import Asked, ask_question, question_of
from cael.results.segment_noise import Noise, influence, noise_in, value_of
from cael.results.sheet import Column, Note, Sheet, Shown, level_text, named


@final
@dataclass(frozen=True)
class Segment:
    """One segment: rows, their worth after weighting (None: no weights), value, and lift over the baseline.

    interval: of the lift, holding for all segments together. shrunk, shrunk_interval: the lift drawn towards the others
    as far as their differences look like noise; the best guess of it, with an interval for this segment alone. sign: 1
    where more is better, -1 where less is.

    label: of the segment. effective_rows: effective sample size. stderr: of the lift.
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
    sign: int = 1

    @property
    def direction(self) -> str:
        """Whether the joint interval of the lift shows it to be "better" or "worse", or "no difference shown"."""
        return direction(self.interval, self.sign)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Segments(Shown):
    """The lift of a policy by segment; the values, weighted by their rows, add up to that of the whole log.

    rows: the segments, the largest lift first (in the order of time for windows). estimator: its name. level: of the
    intervals. factor: of the joint ones. differ: p-value that all segments have one lift (Cochran's Q). spread:
    standard deviation of the true lifts over the segments (Paule and Mandel). kind: "segment" or "window". thresholds:
    by which the sentence says whether they differ. metric: the name of what is earned. baseline: the name of what the
    lifts are over. others: the same of further metrics; the joint intervals then hold for all metrics together.
    assumes: what intervals that allow for a bias assume; None of others.
    """

    rows: tuple[Segment, ...]
    estimator: str
    level: float
    factor: float
    differ: float
    spread: float
    kind: str
    thresholds: Thresholds = DEFAULT
    metric: str = "reward"
    baseline: str = LOGGING
    others: tuple[Segments, ...] = ()
    assumes: str | None = None

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.rows)

    def __getitem__(self, label: str) -> Segment:
        return named("segment", {row.label: row for row in self.rows}, label, 20)

    @property
    def noun(self) -> str:
        """What a row is, in words."""
        return "time period" if self.kind == "window" else self.kind

    def sentence(self) -> str:
        """Whether the segments differ, in words."""
        lifts = f"The lifts of the {len(self.rows)} {self.noun}s"
        if self.differ < self.thresholds.segments_p_value:
            spread = f"; the standard deviation of the true lifts is about {self.spread:.3g}" if self.spread else ""
            return f"{lifts} differ beyond chance (p = {self.differ:.2g}){spread}."
        return f"{lifts} differ no more than chance explains (p = {self.differ:.2g})."

    def __repr__(self) -> str:
        rows = "; ".join(f"{row.label}: {row.lift:+.4g} {row.interval}" for row in self.rows[:10])
        return f"Segments({self.sentence()} {rows}{' ...' if len(self.rows) > 10 else ''})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        hidden = ("rows", "thresholds", "others")
        fields = {name: value for name, value in vars(self).items() if name not in hidden}
        rows = [{**asdict(row), "direction": row.direction} for row in self.rows]
        others = {"others": [other.to_dict() for other in self.others]} if self.others else {}
        return {**fields, "sentence": self.sentence(), "rows": rows, **others}

    def sheet(self) -> Sheet:
        head = "time period from" if self.kind == "window" else self.kind
        joint, single = f"simultaneous {level_text(self.level)}", f"{level_text(self.level)} of it"
        columns = (
            Column(self.kind, head=head), Column("rows", "count"),
            Column("effective_rows", "count", "eff. n", wide=True), Column("value", "value", wide=True),
            Column("lift", "lift"), Column("interval", "lift interval", joint), Column("direction", head=""),
            Column("shrunk", "lift", "shrunk lift", spare=True),
            Column("shrunk_interval", "lift interval", single, wide=True),
        )  # fmt: skip
        rows = tuple(
            (
                row.label, row.rows, row.effective_rows, row.value, row.lift, row.interval,
                None if row.direction == "no difference shown" else row.direction, row.shrunk, row.shrunk_interval,
            )
            for row in self.rows
        )  # fmt: skip
        styles = tuple(row.direction for row in self.rows)
        metric = "" if self.metric == "reward" else f"{self.metric}: "
        over = "" if self.baseline == LOGGING else f"; lift over {self.baseline}"
        title = f"{metric}{self.estimator}, by {self.noun}{over}"
        doubts = (Note(f"{self.estimator}: {self.assumes}", "warn"),) if self.assumes else ()
        return Sheet(title, columns, rows, (Note(self.sentence()),), doubts, styles)

    def sheets(self) -> tuple[Sheet, ...]:
        """The tables of all metrics."""
        return (self.sheet(), *(other.sheet() for other in self.others))

    def plot(self, axes: Any = None) -> Any:
        """The simultaneous intervals of the lift by segment, on Matplotlib's axes, which are returned."""
        return plotted(self.sheet(), "interval", "lift", (0.0, "no lift"), axes)


MOST_SEGMENTS = 1000


def segments(
    log: LoggedData | ScannedLog,
    policy: PolicyLike,
    labels: ArrayLike | str | None = None,
    *,
    windows: int | None = None,
    metrics: Sequence[str | Metric] | None = None,
    baseline: Any = None,
    estimator: Estimator | None = None,
    level: float = 0.95,
    seed: int = 0,
    learn: bool | None = None,
    budget: float | None = None,
    thresholds: Thresholds | None = None,
) -> Segments:
    """For whom, or when, is the policy better? Values and lifts by segment.

    labels: (n,) strings or numbers, one per row; or the name of a column of the table that the log was read from.
    windows: instead of labels, this many time periods of equal numbers of rows, by the timestamps, or by the order of
    the rows where there are none; a scanned log must be in the order of time. estimator, learn, budget: see
    `compare`. Intervals of lifts are simultaneous (max-t bootstrap); the shrunk lifts are empirical Bayes estimates
    under a normal prior whose spread is estimated (no shrinkage with fewer than 4 segments). thresholds: by which they
    are said to differ.
    metrics, baseline: see `evaluate`; further metrics are `others` of the first, and all intervals are simultaneous.
    """
    inference.check_level(level)
    engine_log, column, cut = cut_of(log, labels, windows)
    question = question_of(metrics, baseline)
    target = engine_log.target(policy)
    chosen = default_estimator(engine_log, [target], learn, budget) if estimator is None else estimator
    panel = (LoggedMean(), chosen)
    controls, required = controls_of((chosen, SNDR())), (LoggedMean().name, chosen.name)
    asked = ask_question(
        engine_log, {"": policy}, question, (panel, panel), controls, required, segments=column, windows=cut
    )  # fmt: skip
    warn(asked.answer)
    return segments_of(
        asked, 0, chosen.name, level, seed, windows=windows is not None, thresholds=thresholds or DEFAULT
    )  # fmt: skip


def cut_of(
    log: LoggedData | ScannedLog, labels: ArrayLike | str | None, windows: int | None
) -> tuple[EngineLog, tuple[str, ...], Windows | None]:
    """The log with its segments, a column of them, or windows of time."""
    if isinstance(log, LoggedData):
        if (labels is None) == (windows is None):
            raise InputError(
                "segments needs labels, one per row, or windows, a number of time periods; got both or none."
            )
        part = by_label(log, labels) if windows is None else by_time(log, windows)
        return as_engine_log(log, (part,)), (), None
    if (labels is None) == (windows is None) or not isinstance(labels, str | None):
        raise InputError(
            "segments of a scanned log are given by the name of a column, segments(log, policy, 'country'), or by a "
            "number of windows, segments(log, policy, windows=8)."
        )
    engine_log = as_engine_log(log)
    return engine_log, () if labels is None else (labels,), None if windows is None else windows_of(engine_log, windows)


def by_time(log: LoggedData, windows: int) -> tuple[list[str], Ints]:
    """Names of windows of time, and the number (n,) of each row's window."""
    windows_of(Held(log), windows)  # refuses a number of windows that the log is too short for
    block, names = time_blocks(log, windows), []
    for number in range(windows):
        rows = np.flatnonzero(block == number)
        first = None if log.timestamps is None else log.timestamps[rows].min()
        names.append(window_name(number, int(rows[0]), first))
    return names, block


def of_column(log: LoggedData, name: str) -> Array:
    """The labels (n,) of a column of the table that a log was read from."""
    if log.table is None:
        raise InputError(
            f"segments {name!r} names a column, and this log was made from arrays. Give the labels, one per row; or "
            "read the log with cael.read, which keeps its columns."
        )
    labels: Array = log.table.labels(name)[log.rows]
    return labels


def by_label(log: LoggedData, labels: Any) -> tuple[list[str], Ints]:
    """Names of the segments and the (n,) number of each row's segment."""
    if isinstance(labels, str):
        labels = of_column(log, labels)
    array = np.asarray(labels)
    if array.shape != (len(log),):
        raise InputError(f"labels must have one entry per row ({len(log)}); got shape {array.shape}.")
    missing = np.array([each is None or each != each for each in array]) if array.dtype == object else array != array
    if missing.any():
        raise InputError(
            f"labels must not be missing; {first_bad(missing, array)}. Give such rows a label of their own."
        )
    names, codes = np.unique(array.astype(str) if array.dtype == object else array, return_inverse=True)
    return [str(name) for name in names], codes.astype(np.intp)


def segments_of(
    asked: Asked, number: int, name: str, level: float, seed: int, *, windows: bool = False,
    thresholds: Thresholds = DEFAULT,
) -> Segments:  # fmt: skip
    """The lifts of an estimate by the labels of one of the segment columns, of every metric that was asked about.

    Intervals allow for a bias where the estimator does.
    """
    parts = parts_of(asked.answer, number, windows=windows)
    cuts = [cut_by(asked, metric, parts, name) for metric in asked.question.metrics or (None,)]
    influences = np.concatenate([cut.influences for cut in cuts], axis=1)
    factor = inference.max_t(influences, level, hidden=np.concatenate([cut.hidden for cut in cuts]), seed=seed)
    kind = "window" if windows else "segment"
    first, *others = (cut.segments(asked, factor, level, kind, thresholds) for cut in cuts)
    return replace(first, others=tuple(others))


@final
@dataclass(frozen=True, eq=False)
class Cut:
    """A metric, cut into segments. parts: their sums. noises: of their lifts. influences: (B, g) of buckets of rows."""

    metric: Metric | None
    name: str
    parts: dict[str, Moments]
    lifted: Lifted
    noises: list[Noise]
    influences: Floats

    @property
    def errors(self) -> Floats:
        """(g,) standard errors of the lifts."""
        return np.array([noise.error for noise in self.noises])

    @property
    def hidden(self) -> Floats:
        """(g,) what of the squared errors the rows do not show."""
        seen = np.sqrt((self.influences**2).sum(axis=0))
        return np.array([inference.hidden_share(*pair) for pair in zip(seen, self.errors, strict=True)])

    def segments(self, asked: Asked, factor: float, level: float, kind: str, thresholds: Thresholds) -> Segments:
        """The table of this metric, with a factor that makes its intervals joint."""
        sign = 1 if self.metric is None else self.metric.sign
        lifts = np.array([value_of(sums_of(self.lifted.lift), part) for part in self.parts.values()])
        shrunk, posterior, spread = shrink(lifts, self.errors)
        rows = [
            self._row(asked.answer, at, float(lifts[at]), (float(shrunk[at]), float(posterior[at])), (factor, level))
            for at in range(len(self.parts))
        ]
        if kind == "segment":
            rows.sort(key=lambda row: -sign * row.shrunk)
        metric = asked.metric if self.metric is None else self.metric.name
        return Segments(
            tuple(rows), self.name, level, factor, cochran(lifts, self.errors)[1], spread, kind, thresholds, metric,
            asked.question.name, assumes=self.lifted.lift.assumes,
        )  # fmt: skip

    def _row(
        self, answer: Answer, at: int, lift: float, shrunk: tuple[float, float], joint: tuple[float, float]
    ) -> Segment:
        """One segment. shrunk: its shrunk lift, and the error of that. joint: factor and level."""
        label, part = list(self.parts.items())[at]
        noise, (factor, level), lifted = self.noises[at], joint, self.lifted
        weight, bound = answer.index.get(Weight(0)), lifted.lift.diagnostics.bias_bound or 0.0
        alone = replace(noise, error=shrunk[1], proportion=None).reach(bound, inference.quantile(level))
        return Segment(
            label, part.n, None if weight is None else effective_rows(part, weight),
            value_of(sums_of(lifted.estimate), part), value_of(sums_of(lifted.baseline), part), lift, noise.error,
            around(lift, noise.reach(bound, factor), level, "simultaneous"), shrunk[0],
            around(shrunk[0], alone, level, "empirical Bayes"), 1 if self.metric is None else self.metric.sign,
        )  # fmt: skip


def sums_of(estimate: Estimate) -> Combination:
    """What a pass kept of the rows of an estimate."""
    assert estimate.sums is not None
    return estimate.sums


def cut_by(asked: Asked, metric: Metric | None, parts: dict[str, Moments], name: str) -> Cut:
    """A metric of the first target by segment."""
    lifted, answer = asked.lifted(metric, 0, name), asked.answers_to(metric)[0]
    coefficients = sums_of(lifted.lift).coefficients
    influences = np.stack([influence(coefficients, part) for part in parts.values()], axis=1)
    noises = [noise_in(answer, part, lifted, asked.baseline) for part in parts.values()]
    return Cut(metric, name, parts, lifted, noises, influences)


def parts_of(answer: Answer, number: int, *, windows: bool) -> dict[str, Moments]:
    """The sums of each segment, sorted by label, or in the order of time; an error where they are too many or small."""
    sums, cut = answer.partial.segments[number], answer.work.windows
    names = sorted(sums)
    if windows and cut is None:
        names.sort(key=lambda label: int(label.split(":")[0]))
    if windows and cut is not None:
        named = zip(names_of(cut, answer.partial), map(str, range(cut.count)), strict=True)
        sums = {label: sums[window] for label, window in named if window in sums}
        names = list(sums)
    if len(names) > MOST_SEGMENTS:
        raise InputError(f"there are {len(names)} different labels, more than {MOST_SEGMENTS}: group them first.")
    few = [f"{label} ({part.n})" for label, part in sums.items() if part.n < FEWEST_ROWS]
    if few:
        raise InputError(
            f"a segment needs at least {FEWEST_ROWS} rows; too few: {', '.join(few[:5])}. Put small ones together."
        )
    return {name: sums[name] for name in names}


def effective_rows(part: Moments, at: int) -> float:
    """The effective sample size of a segment; at: the place of the weights."""
    mean, column = float(part.mean[at]), np.zeros(len(part.mean))
    column[at] = 1.0
    return part.n / (1 + part.counted_variance(column, mean) / mean / mean) if mean > 0 else 0.0


def around(centre: float, ends: tuple[float, float], level: float, method: str) -> Interval:
    """From so far below to so far above."""
    return Interval(float(centre - ends[0]), float(centre + ends[1]), level, method)
