"""judge: the verdict on an estimate, from what a pass kept; the same for every kind of log."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.engine.answer import Answer
from cael.engine.columns import Column, Product, Residual, Reward, SecondMoment, Surprise, Weight
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
    dropped_rows,
    effect,
    effective_rows,
    evidence,
    frequencies,
    largest_row,
    logging_fit,
    mean_weight,
    no_lift,
    reward_tail,
    skewness,
    successes,
    support,
    surprise,
    tail,
    unsmoothed,
)
from cael.judging.likely import likeliness
from cael.judging.sensitivity import sensitivity_check, sensitivity_of
from cael.judging.survey import (
    Survey,
    count_p_values,
    depends_on_contexts,
    drift_of,
    holm,
    inverse_means,
    two_sided,
)
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.trained_here import trained_here
from cael.judging.verdict import Check, Verdict, by_gravity, verdict_of
from cael.log.held import Held
from cael.log.logged import LoggedData

TINY = 1e-300
FLOOR, SAME_FLOOR = 5, 1.05
"""So many rows with nearly the smallest propensity, within this factor, are a floor and no tail."""


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
    rows = single_rows(answer)
    second = answer.second_moment(target) if SecondMoment(target) in answer.index else None
    rows_alone = answer.kish / second if second else None
    known = known_by_fit(answer, best, limits) if second is None else known_rows(answer, target, best, second)
    tails = tail(best, known, ceiling_of(rows), limits)
    normal = tails is None or tails.status == "pass"
    weights = mean_weights(answer, target, best, limits, normal=normal)
    # Where the weights do not average 1, for whatever reason, no other estimator by weights is a second witness.
    witness = normal and (weights is None or weights.status != "fail")
    alone = (rows_alone or math.inf) if witness else 0.0
    checks = [
        evidence(best, propensities=answer.log.has_propensities, estimated=answer.log.estimates_logging),
        dropped_rows(*kept_rows(answer), limits),
        sensitivity_check(sensitivity_of(answer, target, estimates, headline, level)),
        effective_rows(best, known, limits),
        unsmoothed(best, rows_alone or seen_rows(answer, target), limits),
        logging_fit(best, limits),
        successes(best, limits),
        largest_row(best, limits),
        skewness(best, limits),
        None if rows is None else reward_tail(rows, limits),
        tails,
        weights,
        support(best, counts, limits),
        trained_here(answer, target, limits),
        eased(disagreement(best, estimates, alone, level, limits), answer),
        frequencies_of(answer, counts, limits),
        None if likely is None else surprise(*likely, limits),
        *related(answer, target, best, rows, no_lift(estimates, alone, limits), level, limits),
        drifting(answer, target, best, level, limits),
        bias(best, level, limits),
    ]
    return verdict_of(headline, [check for check in checks if check is not None], limits)


def eased(check: Check, answer: Answer) -> Check:
    """Where propensities are estimated, estimators that agree on a right model also differ by its error: no refusal."""
    return replace(check, status="warn") if check.status == "fail" and answer.log.estimates_logging else check


def kept_rows(answer: Answer) -> tuple[int, int]:
    """Rows of the table that are in the log, and all of them."""
    table = answer.log.log.table if isinstance(answer.log, Held) else None
    return (answer.n, answer.read) if table is None else (len(table.log), table.rows_read)


def single_rows(answer: Answer) -> LoggedData | None:
    """The log, or a sample of one in files, for checks that look at single rows."""
    log = answer.log
    if isinstance(log, Held):
        return log.log if not log.weighted else answer.once(("alike", answer.number), log.log.alike)
    rows = answer.once("rows", lambda: sampled(log))
    if rows is None:
        return None
    measured = rows.measured(log.measures[0]) if log.measures else rows
    return measured.alike()


def mean_weights(answer: Answer, target: int, best: Estimate, limits: Thresholds, *, normal: bool) -> Check | None:
    """The check of the mean weight; where the logging policy was fitted, whose weights average 1 by construction, the
    graver one of these and of the weights by the logged propensities."""
    check = mean_weight(best, limits, normal=normal, estimated=answer.log.estimates_logging)
    if best.diagnostics.logging_fit is None:
        return check
    weight = Weight(target)
    facts = answer.weight_facts(weight)
    plain = replace(
        best.diagnostics, mean_weight=facts.mean, mean_weight_z=facts.z,
        effective_sample_size=answer.effective_size(weight),
    )  # fmt: skip
    light = facts.tail is None or limits.status("tail_index", facts.tail) == "pass"
    logged = mean_weight(replace(best, diagnostics=plain), limits, normal=light)
    both = by_gravity([each for each in (check, logged) if each is not None])
    return both[0] if both else None


def seen_rows(answer: Answer, target: int) -> float | None:
    """n / E w^2 as the weights of the log show it, where a policy is not known; None without weights."""
    return answer.effective_size(Weight(target)) if Weight(target) in answer.index else None


def known_rows(answer: Answer, target: int, best: Estimate, second: float) -> float | None:
    """n / E W^2 of the weights that were used, by both policies; None where it is not known. second: of w = pi / mu."""
    d = best.diagnostics
    if d.embedding is not None and d.pooled is not None:
        return answer.kish / d.pooled.second
    plain = answer.effective_size(Weight(target))
    return answer.kish / second if second > 0 and d.effective_sample_size in (plain, None) else None


def known_by_fit(answer: Answer, best: Estimate, limits: Thresholds) -> float | None:
    """The same by a logging policy that was fitted to the logged propensities, where the fit is good; its
    probabilities bound the weights as those of a known one do."""
    d = best.diagnostics
    if d.logging_fit is None or d.pooled is None or limits.cautions("logging_error", d.logging_fit.error):
        return None
    return answer.kish / d.pooled.second


def ceiling_of(log: LoggedData | None) -> float:
    """1 / the smallest logged propensity where several rows have it, as under an epsilon-greedy policy: no weight can
    be larger. Infinity where there is no such floor."""
    if log is None or log.propensities is None or len(log) < FLOOR:
        return math.inf
    low = np.partition(log.propensities, FLOOR - 1)[:FLOOR]
    return 1 / float(low.min()) if low.max() <= SAME_FLOOR * low.min() else math.inf


def related(
    answer: Answer,
    target: int,
    best: Estimate,
    rows: LoggedData | None,
    lift: float | None,
    level: float,
    limits: Thresholds,
) -> list[Check | None]:
    """Whether propensities, and rewards, depend on the actions beside them. lift: p-value of no lift."""
    if rows is None:
        return []
    known = answer.log.logging is not None
    matched = answer.once(("column", limits), lambda: column(rows, limits, known=known))
    half_width, vouched = half_width_of(answer, target, best, level), joined(answer, rows, matched, limits)
    return [matched, effect(rows, limits, half_width, lift, joined=vouched)]


def joined(answer: Answer, rows: LoggedData, matched: Check | None, limits: Thresholds) -> bool:
    """Whether contexts vouch that actions and rewards belong to the same rows: rewards depend on them, and so do the
    actions, or else the check of the surprise or of the propensities would have said so."""
    if answer.log.logging is None:
        actions = matched is not None and matched.status == "pass"
    else:
        # Shuffled, log mu / popularity would be lower by twice the divergence of the two, which is about its variance.
        apart = answer.variance(Surprise(relative=True))
        actions = apart > limits.surprise[0] and math.sqrt(apart * answer.n) > limits.vouched_z
    return actions and depends_on_contexts(rows.rewards, rows) <= limits.column_p_value


def half_width_of(answer: Answer, target: int, best: Estimate, level: float) -> float:
    """Half the width of the interval, in standard deviations of the reward, and of the weights where that is below 1: a
    policy that hardly differs from the logging policy has nearly its value, whatever the actions do."""
    weighted = Weight(target) in answer.index
    differs = math.sqrt(max(answer.second_moment(target) - 1, 0.0)) if weighted else 1.0
    scale = math.sqrt(answer.variance(Reward())) * min(differs, 1.0)
    return best.interval(level).width / 2 / scale if scale > 0 else math.inf


def survey_of(answer: Answer, target: int | None = None) -> Survey:
    """What the pass counted, by action; the mass of a target where there is one that is known."""
    sums, known, scale = answer.partial.actions, answer.log.logging is not None, answer.scale
    variance = np.maximum(sums.variance, sums.seen) * (scale**2 * answer.cluster_effect)
    return Survey(
        sums.rows, sums.expected * scale if known else None, variance if known else None,
        None if target is None or not answer.targets[target].complete else answer.mean_mass(target),
        sums.counted * scale,
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
    logged = counts.counted
    if counts.expected is not None and counts.variance is not None:
        # Sums of sampling weights are counts of as many rows as they vary like.
        fewer = counts.expected / np.maximum(counts.variance, TINY) if answer.weighted else np.ones(len(logged))
        p_values = count_p_values(logged * fewer, counts.expected * fewer, counts.variance * fewer**2, answer.n)
        return Tested(counts.expected, p_values, np.ones(len(logged), dtype=bool))
    sums, scale = answer.partial.actions, answer.scale
    first, second, there = sums.inverse * scale, sums.squares * scale**2, sums.eligible * scale
    if answer.weighted:  # at most: a row on which the action was not taken has s^2
        second = second + answer.n**2 / answer.kish + 2 * first - there
    mean, share, error = inverse_means(first, second, there, answer.n, answer.cluster_effect)
    tested = (counts.logged >= limits.least_count) & (error > 0)
    z = np.divide(mean - share, error, out=np.zeros_like(mean), where=tested)
    # Rows of an action in a log with correct propensities: logged / mean, if the mean is off by a factor.
    expected = np.divide(logged * share, mean, out=np.zeros_like(mean), where=mean > 0)
    return Tested(expected, np.array([two_sided(value) for value in z]), tested)


def frequencies_of(answer: Answer, counts: Survey, limits: Thresholds) -> Check:
    actions = tested_actions(answer, counts, limits)
    if actions is None:
        return NO_FREQUENCIES
    off = (holm(actions.p_values) < limits.p_value) & actions.tested
    gap = (counts.counted - actions.expected) / answer.n
    return frequencies(off, gap, limits, open=setless(answer))


def setless(answer: Answer) -> bool:
    """Whether only logged propensities are known, and not which actions were eligible."""
    return answer.log.has_propensities and answer.log.logging is None and not answer.log.has_eligible


def drifting(answer: Answer, target: int, best: Estimate, level: float, limits: Thresholds) -> Check:
    """Whether rewards, or the estimate's contributions, change over time by more than the interval allows for."""
    if why := timeless(answer, BLOCKS, limits.drift_rows):
        return Check("drift", "unknown", None, why)
    column = reward_of(answer, best)
    name = "logged reward" + ("" if column == Reward() else " for given contexts and actions")
    changes = [(name, *drift(answer, BLOCKS, answer.single(column).coefficients))]
    if best.estimator != "LoggedMean" and best.sums is not None:
        weighted = weighted_rest(answer, target) if answer.log.has_eligible else None
        given = "" if weighted is None else " for given contexts and eligible actions"
        coefficients = best.sums.coefficients if weighted is None else answer.single(weighted).coefficients
        changes.append((f"new policy's value{given}", *drift(answer, BLOCKS, coefficients)))
    return drifted(changes, best, level, limits, order_of(answer))


def weighted_rest(answer: Answer, target: int) -> Column | None:
    """What a model leaves of the rewards, weighted for a target: unlike its value, it does not follow the eligible
    actions."""
    products = (column for column in answer.index if isinstance(column, Product) and column.left == Weight(target))
    return next((product for product in products if isinstance(product.right, Residual)), None)


def reward_of(answer: Answer, best: Estimate) -> Column:
    """What is left of the rewards by a model, where there is one: it does not change as the logging policy learns."""
    return Reward() if best.estimator == "LoggedMean" else left_of_reward(answer)


def left_of_reward(answer: Answer) -> Column:
    """What a model leaves of the rewards, where there is one; else the rewards."""
    return next((column for column in answer.index if isinstance(column, Residual)), Reward())


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
    numbers = block_numbers(answer, count)
    for stretch, new in zip(answer.partial.stretches, np.diff(numbers, prepend=-1) > 0, strict=True):
        blocks = [*blocks, stretch] if new else [*blocks[:-1], blocks[-1].merge(stretch)]
    return blocks


def block_numbers(answer: Answer, count: int) -> Ints:
    """The number (s,) of the block that each stretch is in."""
    stretches = answer.partial.stretches
    if answer.work.rows is not None:
        return np.array([stretch.number for stretch in stretches]) * count // STRETCHES
    rows = np.array([stretch.moments.n for stretch in stretches])
    return np.minimum(count - 1, (np.cumsum(rows) - rows / 2) / answer.n * count).astype(np.intp)


def drift(answer: Answer, blocks: int, coefficients: Floats) -> tuple[float, float]:
    """(last fifth minus the rest, p-value) of a column, from so many blocks."""
    stretches = [stretch.moments for stretch in answer.partial.stretches]
    count = np.array([moments.total * answer.scale for moments in stretches], dtype=np.float64)
    mean = np.array([moments.mean for moments in stretches]) @ coefficients
    return drift_of(count, mean, block_numbers(answer, blocks), answer.cluster_effect)
