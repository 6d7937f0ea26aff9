"""evaluate, compare and segments on a scanned log: the same results as of a log in memory."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from cael.common.types import Floats
from cael.engine.asking import Answer, ask, named_policies
from cael.engine.estimates import estimate_of, estimates_of, judge, overlap_of, refuse_constant
from cael.engine.moments import Combination, Moments
from cael.engine.predictions import Pair
from cael.engine.tally import Rule
from cael.engine.windows import Windows, names_of, windows_of
from cael.errors import InputError
from cael.estimators import SNDR, SNIPS, Estimator, LoggedMean
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate
from cael.inference.lift import lift_of
from cael.judging.verdict import Thresholds
from cael.log.scanned import ScannedLog
from cael.results.comparison import Compared, Comparison, within
from cael.results.evaluation import Evaluation, concluded, panel_with
from cael.results.segmentation import FEWEST_ROWS, MOST_SEGMENTS, Segments, assembled


def evaluation_of(
    answer: Answer, asked: Collection[str], level: float, headline: Any, thresholds: Thresholds | None
) -> Evaluation:
    """The evaluation of the first target of an answer. asked: names of the estimators that were asked for."""
    refuse_constant(answer)
    found, skipped = estimates_of(answer, 0, asked)
    limits = Thresholds() if thresholds is None else thresholds
    return concluded(
        found, skipped, headline, lambda chosen: judge(answer, 0, found, chosen, level, limits), log=described(answer),
        policy=answer.targets[0].label, overlap=overlap_of(answer, 0), level=level,
    )  # fmt: skip


def described(answer: Answer) -> str:
    log = answer.log
    known = log.known
    parts = [f"n={answer.n}", f"n_actions={log.n_actions}", f"files={len(log.source.files)}", *known]
    return f"ScannedLog({', '.join(parts)})"


def evaluate(
    log: ScannedLog,
    policy: Any,
    estimators: Sequence[Estimator] | Estimator | None,
    *,
    level: float,
    headline: Any,
    thresholds: Thresholds | None,
    learn: bool | None,
) -> Evaluation:
    """`cael.evaluate` on a scanned log."""
    inference.check_level(level)
    wanted, asked = panel_with(estimators, learn)
    answer = ask(log, {"": policy}, list(wanted.values()), asked=asked)
    warn(answer)
    return evaluation_of(answer, asked, level, headline, thresholds)


def warn(answer: Answer) -> None:
    for each in answer.warnings:
        python_warnings.warn(each, stacklevel=4)


def default_estimator(log: ScannedLog, answer_targets: Sequence[bool]) -> Estimator:
    """SNDR where all targets are known on all actions, or predictions for the target are given; else SNIPS."""
    given = isinstance(log.predictions, Pair) and len(answer_targets) == 1
    return SNDR() if given or all(answer_targets) else SNIPS()


def compare(
    log: ScannedLog,
    policies: Any,
    estimator: Estimator | None,
    *,
    level: float,
    seed: int,
    thresholds: Thresholds | None,
) -> Comparison:
    """`cael.compare` on a scanned log."""
    answer, chosen = ask_to_compare(log, policies, estimator)
    warn(answer)
    return comparison_of(answer, chosen, level, seed, thresholds)


def ask_to_compare(log: ScannedLog, policies: Any, estimator: Estimator | None) -> tuple[Answer, Estimator]:
    named = named_policies(policies)
    if not named:
        raise InputError("compare needs at least one policy.")
    chosen = estimator
    if chosen is None:
        chosen = default_estimator(log, [log.target(each).complete for each in named.values()])
    panel_ = {each.name: each for each in (LoggedMean(), chosen, *((SNIPS(),) if log.has_propensities else ()))}
    return ask(log, named, list(panel_.values()), asked=(LoggedMean().name, chosen.name)), chosen


def comparison_of(
    answer: Answer, chosen: Estimator, level: float, seed: int, thresholds: Thresholds | None
) -> Comparison:
    """Each target against the logged mean, with intervals that hold together."""
    refuse_constant(answer)
    limits = Thresholds() if thresholds is None else thresholds
    baseline = estimate_of(answer, answer.of("LoggedMean", 0))
    rows: list[tuple[str, Estimate, Estimate, Any]] = []
    for t, name in enumerate(answer.names):
        found, _ = estimates_of(answer, t, {chosen.name})
        best = next(each for each in found if each.estimator == chosen.name)
        opinions = [each for each in found if each.estimator in (chosen.name, "SNIPS")]
        rows.append((name, best, lift_of(best, baseline), judge(answer, t, opinions, chosen.name, level, limits)))
    factor = inference.max_t(np.stack([lift.units for _, _, lift, _ in rows], axis=1), level, seed=seed)
    compared = [Compared(name, best, lift, within(lift, factor, level), verdict) for name, best, lift, verdict in rows]
    return Comparison(tuple(sorted(compared, key=lambda row: -row.estimate.value)), baseline, level, factor)


def segments(
    log: ScannedLog, policy: Any, labels: Any, windows: int | None, estimator: Estimator | None, level: float, seed: int
) -> Segments:
    """`cael.segments` on a scanned log; labels is the name of a column."""
    if (labels is None) == (windows is None) or not isinstance(labels, str | None):
        raise InputError(
            "segments of a scanned log are given by the name of a column, segments(log, policy, 'country'), or by a "
            "number of windows, segments(log, policy, windows=8)."
        )
    inference.check_level(level)
    chosen = default_estimator(log, [log.target(policy).complete]) if estimator is None else estimator
    both = [LoggedMean(), chosen]
    cut = None if windows is None else windows_of(log, windows)
    columns = () if labels is None else (labels,)
    answer = ask(log, {"": policy}, both, asked=[each.name for each in both], segments=columns, windows=cut)
    warn(answer)
    refuse_constant(answer)
    return segments_of(answer, 0, chosen, level, seed, cut)


def segments_of(
    answer: Answer, column: int, chosen: Estimator, level: float, seed: int, windows: Windows | None = None
) -> Segments:
    """By the labels of one of the segment columns of an answer. windows: of which the column is made."""
    sums = answer.partial.segments[column]
    if windows is not None:
        named = zip(names_of(windows, answer.partial), map(str, range(windows.count)), strict=True)
        sums = {name: sums[number] for name, number in named if number in sums}
    if len(sums) > MOST_SEGMENTS:
        raise InputError(f"there are {len(sums)} different labels, more than {MOST_SEGMENTS}: group them first.")
    few = [f"{label} ({each.n})" for label, each in sums.items() if each.n < FEWEST_ROWS]
    if few:
        raise InputError(
            f"a segment needs at least {FEWEST_ROWS} rows; too few: {', '.join(few[:5])}. Put small ones together."
        )
    names = sorted(sums) if windows is None else list(sums)
    value, base = (estimate_of(answer, answer.of(name, 0)).sums for name in (chosen.name, "LoggedMean"))
    assert value is not None
    assert base is not None
    parts = [sums[name] for name in names]
    values, bases, lifts = (np.array([_value(each, part) for part in parts]) for each in (value, base, value - base))
    columns = np.stack([_influence((value - base).coefficients, part) for part in parts], axis=1)
    clustered = answer.log.columns.cluster is not None
    errors = (
        np.sqrt((columns**2).sum(axis=0))
        if clustered
        else np.array([_error((value - base).coefficients, part) for part in parts])
    )
    at = answer.index.get(("w", 0, Rule()))
    worth = [None if at is None else _worth(part, at) for part in parts]
    return assembled(
        names, [part.n for part in parts], worth, values, bases, lifts, errors, columns, chosen.name, level, seed,
        windows=windows is not None,
    )  # fmt: skip


def _value(combination: Combination, part: Moments) -> float:
    return combination.constant + float(combination.coefficients @ part.mean)


def _error(coefficients: Floats, part: Moments) -> float:
    return float(np.sqrt(max(0.0, float(coefficients @ part.comoment @ coefficients)) / max(1, part.n - 1) / part.n))


def _influence(coefficients: Floats, part: Moments) -> Floats:
    """What each bucket adds to the segment's lift."""
    apart = coefficients @ (part.bucket_sums - part.mean[:, None] * part.bucket_rows)
    return apart / np.sqrt(part.n * max(1, part.n - 1))


def _worth(part: Moments, at: int) -> float:
    mean = float(part.mean[at])
    return part.n / (1 + float(part.comoment[at, at]) / part.n / mean / mean) if mean > 0 else 0.0
