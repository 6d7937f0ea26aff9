"""segments: values and lifts by a label of the rows or by time, from the sums of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints
from cael.engine.answer import Answer
from cael.engine.asking import as_engine_log, ask
from cael.engine.columns import Weight
from cael.engine.moments import Combination, Moments
from cael.engine.windows import FEWEST_ROWS, Windows, names_of, window_name, windows_of
from cael.errors import InputError, first_bad, positive_int
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.weighting import LoggedMean
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import lift_of
from cael.inference.shrinkage import cochran, shrink
from cael.judging.survey import time_blocks
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.log.held import EngineLog
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.policies.policy import Policy
from cael.results.evaluate import control_of, default_estimator, outcome_of, refuse_constant_rewards, warn
from cael.results.segmentation import Segment, Segments

MOST_SEGMENTS = 1000


def segments(
    log: LoggedData | ScannedLog,
    policy: Policy | ArrayLike | str,
    labels: ArrayLike | str | None = None,
    *,
    windows: int | None = None,
    estimator: Estimator | None = None,
    level: float = 0.95,
    seed: int = 0,
    learn: bool | None = None,
    thresholds: Thresholds | None = None,
) -> Segments:
    """For whom, or when, is the policy better? Values and lifts by segment.

    labels: (n,) strings or numbers, one per row; of a scanned log (`cael.scan`) the name of a column. windows: instead
    of labels, this many time periods of equal numbers of rows, by the timestamps, or by the order of the rows where
    there are none; a scanned log must be in the order of time. estimator, learn: as of `compare`. The intervals of the
    lifts are simultaneous (max-t bootstrap); the shrunk lifts are empirical Bayes estimates under a normal prior whose
    spread is estimated (no shrinkage with fewer than 4 segments). thresholds: by which they are said to differ.
    """
    inference.check_level(level)
    engine_log, column, cut = cut_of(log, labels, windows)
    refuse_constant_rewards(engine_log)
    target = engine_log.target(policy)
    chosen = default_estimator(engine_log, [target], learn) if estimator is None else estimator
    both = [LoggedMean(), chosen]
    answer = ask(
        engine_log, {"": policy}, both, asked=[each.name for each in both], segments=column, windows=cut,
        controls=list(dict.fromkeys([outcome_of(chosen), outcome_of(SNDR())])),
    )  # fmt: skip
    warn(answer)
    answer.refuse_constant()
    limits = DEFAULT if thresholds is None else thresholds
    return replace(segments_of(answer, 0, chosen.name, level, seed, windows=windows is not None), thresholds=limits)


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
    positive_int("windows", windows, least=2)
    if len(log) < FEWEST_ROWS * windows:
        raise InputError(f"windows={windows} needs at least {FEWEST_ROWS * windows} rows; the log has {len(log)}.")
    block, names = time_blocks(log, windows), []
    for number in range(windows):
        rows = np.flatnonzero(block == number)
        first = None if log.timestamps is None else log.timestamps[rows].min()
        names.append(window_name(number, int(rows[0]), first))
    return names, block


def by_label(log: LoggedData, labels: Any) -> tuple[list[str], Ints]:
    """Names of the segments and the (n,) number of each row's segment."""
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


@final
@dataclass(frozen=True, eq=False)
class Lifts:
    """What is known of g segments. names, counts, worth (effective rows), values, baselines, lifts, errors: one each.
    columns: (units, g) what each unit adds to the lifts."""

    names: Sequence[str]
    counts: Sequence[int]
    worth: Sequence[float | None]
    values: Floats
    baselines: Floats
    lifts: Floats
    errors: Floats
    columns: Floats


def segments_of(answer: Answer, number: int, name: str, level: float, seed: int, *, windows: bool = False) -> Segments:
    """The lift of an estimate by the labels of one of the segment columns of an answer."""
    sums = named_sums(answer, number, windows=windows)
    refuse_few(sums)
    names = list(sums) if windows else sorted(sums)
    estimate, baseline = answer.of(name, 0), answer.of("LoggedMean", 0)
    lift = lift_of(estimate, baseline, control_of(answer, name))
    return assembled(lifts_of(answer, names, [sums[each] for each in names], estimate, baseline, lift), lift, name,
                     level, seed, windows=windows)  # fmt: skip


def named_sums(answer: Answer, number: int, *, windows: bool) -> dict[str, Moments]:
    sums = answer.partial.segments[number]
    cut = answer.work.windows
    if not windows or cut is None:
        order = list(sums)
        if windows:
            order.sort(key=lambda label: int(label.split(":")[0]))
        return {label: sums[label] for label in order}
    named = zip(names_of(cut, answer.partial), map(str, range(cut.count)), strict=True)
    return {label: sums[number] for label, number in named if number in sums}


def refuse_few(sums: dict[str, Moments]) -> None:
    if len(sums) > MOST_SEGMENTS:
        raise InputError(f"there are {len(sums)} different labels, more than {MOST_SEGMENTS}: group them first.")
    few = [f"{label} ({part.n})" for label, part in sums.items() if part.n < FEWEST_ROWS]
    if few:
        raise InputError(
            f"a segment needs at least {FEWEST_ROWS} rows; too few: {', '.join(few[:5])}. Put small ones together."
        )


def lifts_of(
    answer: Answer, names: Sequence[str], parts: Sequence[Moments], estimate: Estimate, baseline: Estimate,
    lift: Estimate,
) -> Lifts:  # fmt: skip
    assert estimate.sums is not None
    assert baseline.sums is not None
    assert lift.sums is not None
    c = lift.sums.coefficients
    columns = np.stack([influence(c, part) for part in parts], axis=1)
    clustered = answer.log.clustered
    errors = np.sqrt((columns**2).sum(axis=0)) if clustered else np.array([error_of(c, part) for part in parts])
    at = answer.index.get(Weight(0))
    values, baselines, lifts = (
        np.array([value_of(sums, part) for part in parts]) for sums in (estimate.sums, baseline.sums, lift.sums)
    )
    worth = [None if at is None else worth_of(part, at) for part in parts]
    return Lifts(names, [part.n for part in parts], worth, values, baselines, lifts, errors, columns)


def value_of(sums: Combination, part: Moments) -> float:
    return sums.constant + float(sums.coefficients @ part.mean)


def error_of(coefficients: Floats, part: Moments) -> float:
    return float(np.sqrt(max(0.0, float(coefficients @ part.comoment @ coefficients)) / max(1, part.n - 1) / part.n))


def influence(coefficients: Floats, part: Moments) -> Floats:
    """What each bucket adds to the segment's lift."""
    apart: Array = coefficients @ (part.bucket_sums - part.mean[:, None] * part.bucket_rows)
    return apart / np.sqrt(part.n * max(1, part.n - 1))


def worth_of(part: Moments, at: int) -> float:
    """The effective sample size of a segment; at: the place of the weights."""
    mean = float(part.mean[at])
    return part.n / (1 + float(part.comoment[at, at]) / part.n / mean / mean) if mean > 0 else 0.0


def assembled(found: Lifts, lift: Estimate, estimator: str, level: float, seed: int, *, windows: bool) -> Segments:
    """The result from what is known of the segments; intervals allow for the bias of an estimator that bounds it."""
    factor = inference.max_t(found.columns, level, seed=seed)
    shrunk, posterior, spread = shrink(found.lifts, found.errors)
    normal, bound = quantile(level), lift.diagnostics.bias_bound or 0.0
    rows = [
        Segment(
            str(found.names[g]), int(found.counts[g]), found.worth[g], float(found.values[g]),
            float(found.baselines[g]), float(found.lifts[g]), float(found.errors[g]),
            around(found.lifts[g], half_width(factor, found.errors[g], bound), level, "simultaneous"),
            float(shrunk[g]),
            around(shrunk[g], half_width(normal, posterior[g], bound), level, "empirical Bayes"),
        )
        for g in range(len(found.names))
    ]  # fmt: skip
    if not windows:
        rows.sort(key=lambda row: -row.shrunk)
    kind = "window" if windows else "segment"
    differ = cochran(found.lifts, found.errors)[1]
    return Segments(tuple(rows), estimator, level, factor, differ, spread, kind)


def half_width(factor: float, error: float, bound: float) -> float:
    """So many standard errors, or as much as a bias up to the bound needs for the same level."""
    from scipy.special import ndtr

    if bound == 0 or error == 0:
        return float(factor * error + bound)
    return inference.bias_aware(0.0, float(error), bound, float(2 * ndtr(factor) - 1)).width / 2


def quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def around(centre: float, half: float, level: float, method: str) -> Interval:
    return Interval(float(centre - half), float(centre + half), level, method)
