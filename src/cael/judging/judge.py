"""judge: the verdict on an estimate, from what a pass kept; the same for every kind of log."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Array, Floats
from cael.engine.answer import Answer
from cael.engine.columns import Reward, Surprise
from cael.engine.moments import Combination
from cael.engine.partial import Stretch
from cael.engine.sample import sampled
from cael.engine.work import STRETCHES
from cael.inference.estimate import Estimate
from cael.judging.checks import (
    BLOCKS,
    DISORDER,
    NO_FREQUENCIES,
    bias,
    column,
    disagreement,
    drifted,
    effect,
    effective_rows,
    evidence,
    frequencies,
    largest_row,
    mean_weight,
    skewness,
    support,
    surprise,
    tail,
)
from cael.judging.survey import Survey, count_p_values, drift_of, further, holm, inverse_means, two_sided
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Check, Verdict, verdict_of
from cael.log.held import Held

ROUNDING = 1e-14
"""A standard error that is smaller, as a share of the mean, is rounding of a column without spread."""


def judge(
    answer: Answer,
    target: int,
    estimates: Sequence[Estimate],
    headline: str,
    level: float = 0.95,
    thresholds: Thresholds | None = None,
) -> Verdict:
    """The verdict on the estimate named `headline`, from its own diagnostics, the other estimates and the log."""
    limits = thresholds or DEFAULT
    best = next(estimate for estimate in estimates if estimate.estimator == headline)
    counts, likely = survey_of(answer, target), likeliness(answer)
    rows = answer.log.log if isinstance(answer.log, Held) else sampled(answer.log)  # for checks of single rows
    checks = [
        evidence(best, propensities=answer.log.has_propensities, estimated=answer.log.estimates_logging),
        effective_rows(best, limits),
        largest_row(best, limits),
        skewness(best, limits),
        tail(best, limits),
        mean_weight(best, limits),
        support(best, counts, limits),
        disagreement(best, estimates, limits),
        frequencies_of(answer, counts, limits),
        None if likely is None else surprise(*likely, limits),
        None if rows is None else column(rows, limits, known=counts.expected is not None),
        None if rows is None else effect(rows, limits),
        drifting(answer, best, level, limits),
        bias(best, level, limits),
    ]
    return verdict_of(headline, [check for check in checks if check is not None], limits)


def survey_of(answer: Answer, target: int | None = None) -> Survey:
    """What the pass counted, by action; the mass of a target where there is one that is known."""
    sums, known = answer.partial.actions, answer.log.logging is not None
    return Survey(
        sums.rows, sums.expected if known else None, sums.variance * answer.cluster_effect if known else None,
        None if target is None or not answer.targets[target].complete else answer.partial.masses[target] / answer.n,
    )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Tested:
    """Rows of each action against the propensities, (k,) each: expected rows, p-values (1 where it is not tested), and
    whether it is tested."""

    expected: Floats
    p_values: Floats
    tested: Array


def tested_actions(answer: Answer, counts: Survey, limits: Thresholds) -> Tested | None:
    """By the counts where the logging policy is known, else by the mean of 1/mu; None without propensities."""
    if not answer.log.has_propensities:
        return None
    logged = counts.logged
    if counts.expected is not None and counts.variance is not None:
        p_values = count_p_values(logged, counts.expected, counts.variance, answer.n)
        return Tested(counts.expected, p_values, np.ones(len(logged), dtype=bool))
    sums = answer.partial.actions
    mean, error = inverse_means(sums.inverse, sums.squares, answer.n, answer.cluster_effect)
    tested = (logged >= limits.least_count) & (error > 0)
    z = np.divide(mean - 1, error, out=np.zeros_like(mean), where=tested)
    # Rows of an action in a log with correct propensities: logged / mean, if the mean is off by a factor.
    expected = np.divide(logged, mean, out=np.zeros_like(mean), where=mean > 0)
    return Tested(expected, np.array([two_sided(value) for value in z]), tested)


def frequencies_of(answer: Answer, counts: Survey, limits: Thresholds) -> Check:
    actions = tested_actions(answer, counts, limits)
    if actions is None:
        return NO_FREQUENCIES
    off = (holm(actions.p_values) < limits.p_value) & actions.tested
    return frequencies(off, (counts.logged - actions.expected) / answer.n, limits)


def likeliness(answer: Answer) -> tuple[float, float] | None:
    """(mean, p-value) of the surprise further from 0, for both tests together; None: the policy is not known."""
    if answer.log.logging is None:
        return None
    scores = [answer.single(Surprise(relative)) for relative in (False, True)]
    return further([(score.value, z_of(score)) for score in scores])


def z_of(score: Combination, expected: float = 0.0) -> float:
    """The distance of a column's mean from what is expected, in standard errors; 0 where it has no spread."""
    error = score.stderr
    return (score.value - expected) / error if error > ROUNDING * abs(score.value) else 0.0


def drifting(answer: Answer, best: Estimate, level: float, limits: Thresholds) -> Check:
    """Whether rewards, or the estimate's contributions, change over time by more than the interval allows for."""
    if why := timeless(answer, BLOCKS, limits.drift_rows):
        return Check("drift", "unknown", None, why)
    blocks, reward = blocks_of(answer, BLOCKS), answer.single(Reward()).coefficients
    changes = [("logged reward", *drift(blocks, reward, answer.cluster_effect))]
    if best.estimator != "LoggedMean" and best.sums is not None:
        changes.append(("new policy's value", *drift(blocks, best.sums.coefficients, answer.cluster_effect)))
    return drifted(changes, best, level, limits, order_of(answer))


def order_of(answer: Answer) -> str:
    """What the rows follow, in words."""
    return "time" if answer.log.timed else "the order of the rows"


def timeless(answer: Answer, blocks: int, least: float) -> str:
    """Why changes over time cannot be looked for in so many blocks, of at least so many rows; "" where they can."""
    if answer.n < least or len(answer.partial.stretches) < blocks:
        return f"{answer.n} rows are too few to look for changes over time."
    timed = [stretch for stretch in answer.partial.stretches if stretch.low is not None]
    ordered = not answer.log.timed or all(a.high <= b.low for a, b in itertools.pairwise(timed))
    return "" if ordered else DISORDER


def blocks_of(answer: Answer, count: int) -> list[Stretch]:
    """So many runs of stretches with the same number of rows, or about the same where these were not counted before."""
    blocks: list[Stretch] = []
    before, current = 0, -1
    for stretch in answer.partial.stretches:
        middle = (before + stretch.moments.n / 2) / answer.n
        counted = answer.work.rows is not None
        block = stretch.number * count // STRETCHES if counted else min(count - 1, int(middle * count))
        blocks = [*blocks[:-1], blocks[-1].merge(stretch)] if block == current else [*blocks, stretch]
        before, current = before + stretch.moments.n, block
    return blocks


def drift(blocks: Sequence[Stretch], coefficients: Floats, factor: float) -> tuple[float, float]:
    """(last fifth minus the rest, p-value) of a column."""
    count = np.array([block.moments.n for block in blocks], dtype=np.float64)
    mean = np.array([float(coefficients @ block.moments.mean) for block in blocks])
    squares = np.array([float(coefficients @ block.moments.comoment @ coefficients) for block in blocks])
    return drift_of(count, mean, np.maximum(squares, 0.0) / np.maximum(count - 1, 1) / count * factor)
