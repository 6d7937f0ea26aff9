"""judge: the verdict on an estimate, from what a pass kept; the same for every kind of log."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from cael.common.types import Floats
from cael.engine.answer import Answer
from cael.engine.columns import Reward, Surprise
from cael.engine.moments import Combination
from cael.engine.partial import Stretch
from cael.engine.sample import sampled
from cael.engine.work import STRETCHES
from cael.inference.estimate import Estimate
from cael.judging.checks import (
    BLOCKS,
    NO_FREQUENCIES,
    bias,
    column,
    drifted,
    effect,
    evidence,
    frequencies,
    of_weights,
    off_by_counts,
    off_by_means,
    surprise,
)
from cael.judging.survey import Survey, drift_of, further, inverse_means_of
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Check, Verdict, verdict_of
from cael.log.held import Held
from cael.log.logged import LoggedData


def judge(
    answer: Answer,
    target: int,
    estimates: Sequence[Estimate],
    headline: str,
    level: float = 0.95,
    thresholds: Thresholds | None = None,
) -> Verdict:
    """The verdict on the estimate named `headline`, from its own diagnostics, the other estimates and the log."""
    limits = DEFAULT if thresholds is None else thresholds
    best = next(estimate for estimate in estimates if estimate.estimator == headline)
    found, rows = survey_of(answer, target), rows_of(answer)
    checks = [
        evidence(best, propensities=answer.log.has_propensities, estimated=answer.log.estimates_logging),
        *of_weights(best, estimates, found, limits),
        frequencies_of(answer, found, limits),
        surprise_of(answer, limits),
        None if rows is None else column(rows, found, limits),
        None if rows is None else effect(rows, limits),
        drifting(answer, best, level, limits),
        bias(best, level, limits),
    ]
    return verdict_of(headline, [check for check in checks if check is not None], limits)


def rows_of(answer: Answer) -> LoggedData | None:
    """Rows for the checks that look at single ones: all of a log in memory, or a sample."""
    return answer.log.log if isinstance(answer.log, Held) else sampled(answer.log)


def survey_of(answer: Answer, target: int) -> Survey:
    """What the pass counted, by action."""
    sums, known = answer.partial.actions, answer.log.logging is not None
    mass = answer.partial.masses[target] / answer.n if answer.targets[target].complete else None
    return Survey(
        sums.rows, sums.expected if known else None, sums.variance * answer.cluster_effect if known else None, None,
        None, sums.worst if known else None, mass,
    )  # fmt: skip


def frequencies_of(answer: Answer, found: Survey, limits: Thresholds) -> Check:
    if not answer.log.has_propensities:
        return NO_FREQUENCIES
    if found.expected is not None:
        return frequencies(*off_by_counts(found, answer.n, limits.p_value), limits)
    sums, n = answer.partial.actions, answer.n
    mean, error = inverse_means_of(sums.inverse, sums.squares, n, answer.cluster_effect)
    return frequencies(*off_by_means(sums.rows, mean, error, n, limits), limits)


def surprise_of(answer: Answer, limits: Thresholds) -> Check | None:
    if answer.log.logging is None:
        return None
    scores = [answer.single(Surprise(relative)) for relative in (False, True)]
    return surprise(*further([(each.value, z_of(each)) for each in scores]), limits)


def z_of(score: Combination) -> float:
    """The mean of a column in standard errors; 0 where it has no spread."""
    error = score.stderr
    return score.value / error if error > 0 else 0.0


def drifting(answer: Answer, best: Estimate, level: float, limits: Thresholds) -> Check:
    """Whether rewards, or the estimate's contributions, change over time by more than the interval allows for."""
    n, stretches, timed = answer.n, answer.partial.stretches, answer.log.timed
    if n < 10 * BLOCKS or len(stretches) < BLOCKS:
        return Check("drift", "unknown", None, f"{n} rows are too few to look for changes over time.")
    if timed and not in_time(stretches):
        message = "The files are not in the order of time, and a stream is not sorted: changes over time are not seen."
        return Check("drift", "unknown", None, message)
    blocks = blocks_of(stretches, n, counted=answer.work.rows is not None)
    reward = answer.single(Reward()).coefficients
    seen = [("logged reward", *drift(blocks, reward, answer.cluster_effect))]
    if best.estimator != "LoggedMean" and best.sums is not None:
        seen.append(("new policy's value", *drift(blocks, best.sums.coefficients, answer.cluster_effect)))
    return drifted(seen, best, level, limits, "time" if timed else "the order of the rows")


def in_time(stretches: Sequence[Stretch]) -> bool:
    known = [stretch for stretch in stretches if stretch.low is not None]
    return all(a.high <= b.low for a, b in itertools.pairwise(known))


def blocks_of(stretches: Sequence[Stretch], n: int, *, counted: bool) -> list[Stretch]:
    """Ten runs of stretches with the same number of rows, or about the same where these were not counted before."""
    blocks: list[Stretch] = []
    before, current = 0, -1
    for stretch in stretches:
        middle = (before + stretch.moments.n / 2) / n
        block = stretch.number * BLOCKS // STRETCHES if counted else min(BLOCKS - 1, int(middle * BLOCKS))
        blocks = [*blocks[:-1], blocks[-1].merge(stretch)] if block == current else [*blocks, stretch]
        before, current = before + stretch.moments.n, block
    return blocks


def drift(blocks: Sequence[Stretch], coefficients: Floats, factor: float) -> tuple[float, float]:
    """(last fifth minus the rest, p-value) of a column."""
    count = np.array([block.moments.n for block in blocks], dtype=np.float64)
    mean = np.array([float(coefficients @ block.moments.mean) for block in blocks])
    squares = np.array([float(coefficients @ block.moments.comoment @ coefficients) for block in blocks])
    return drift_of(count, mean, np.maximum(squares, 0.0) / np.maximum(count - 1, 1) / count * factor)
