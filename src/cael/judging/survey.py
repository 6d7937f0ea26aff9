"""Survey: what a pass counted by action; and the tests of counts, columns and time that checks rest on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.log.logged import LoggedData

NORMAL_VARIANCE = 25.0
"""From this variance on, a count is compared by a normal z with its own variance; below, by a binomial tail."""

MOST_CONTEXTS, FEWEST = 50, 10
MOST_ROWS = 200_000
MOST_CELLS = 100_000
"""Rows times columns of what is permuted: a thirtieth of a second."""
SHUFFLED_ROWS, SHUFFLED_STRETCHES = 99, 199
"""Permutations of rows and of time periods: p-values down to 0.01 and 0.005 are exact."""
ROUNDING = 1e-9
SINGULAR = 1e-12
"""Eigenvalues of the products of columns that are so much smaller than the largest are 0."""


@final
@dataclass(frozen=True, eq=False)
class Survey:
    """What a pass over the rows counted, by action, (k,) each: logged: rows. counted: the same by sampling weights with
    mean 1. expected: the sum over rows of the logging policy's probability, and variance: of what was counted around it
    (both None where only the logged action's propensity is known). target: the target's mean probability (None: not
    known)."""

    logged: Floats
    expected: Floats | None
    variance: Floats | None
    target: Floats | None
    counted: Floats


def count_p_values(logged: Floats, expected: Floats, variance: Floats, n: int) -> Floats:
    """Two-sided p-values (k,) of counts around their expectations."""
    from scipy.special import bdtr, bdtrc, ndtr

    z = np.divide(logged - expected, np.sqrt(variance), out=np.zeros_like(expected), where=variance > 0)
    p = 2 * ndtr(-np.abs(z))
    few = variance < NORMAL_VARIANCE
    share = np.clip(expected[few] / n, 0.0, 1.0)
    count = logged[few]
    below = bdtr(count, n, share)
    above = np.where(count > 0, bdtrc(count - 1, n, share), 1.0)
    p[few] = np.minimum(1.0, 2 * np.minimum(below, above))
    return p


def inverse_means(
    first: Floats, second: Floats, eligible: Floats, n: int, effect: float
) -> tuple[Floats, Floats, Floats]:
    """For each action the mean over rows of 1{a_i = a} / mu_i, the share of rows on which it was eligible, which is
    what the mean should be, and the standard error of their difference, (k,) each.

    The mean is less for an action that the logging policy leaves out on some rows where it was eligible.
    first, second: sums of 1/mu and of its square by action. eligible: rows. effect: the design effect of clusters.
    """
    mean = first / n
    share = eligible / n
    square = second / n - 2 * mean + share  # of 1{a_i = a} / mu_i less 1 where the action was eligible
    return mean, share, np.sqrt(np.maximum(square - (mean - share) ** 2, 0.0) / (n - 1) * effect)


def holm(p: Floats) -> Floats:
    """Holm's step-down adjusted p-values: the chance of even one false alarm among all stays below the level."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted


def two_sided(z: float) -> float:
    """The p-value of a normal z."""
    from scipy.special import ndtr

    return float(2 * ndtr(-abs(z)))


def further(scores: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(mean, p-value) of the (mean, z) that is further from 0, for two tests together."""
    tests = []
    for mean, z in scores:
        if z == 0 and abs(mean) > 1e-9:  # no spread, and not 0
            z = math.inf
        tests.append((mean, min(1.0, 2 * two_sided(z))))
    return min(tests, key=lambda pair: pair[1])


def time_blocks(log: LoggedData, blocks: int) -> Ints:
    """The block (0 .. blocks-1) of each row (n,); blocks follow each other in time and have equal sizes."""
    n = len(log)
    if log.timestamps is None:
        return np.arange(n) * blocks // n
    place = np.empty(n, dtype=np.intp)
    place[np.argsort(log.timestamps, kind="stable")] = np.arange(n)
    return place * blocks // n


def permuted(statistics: Floats) -> float:
    """p-value of the first of B + 1 draws of m statistics, (B + 1, m), that are exchangeable under the null; large is
    unlikely.

    Each is centred and scaled over all draws, and the largest of a draw counts: the rank of the first is exact. Beyond
    all others an exponential tail is fitted to the upper tenth (Knijnenburg et al. 2009).
    """
    spread = statistics.std(axis=0)
    varies = spread > ROUNDING * np.abs(statistics).max(axis=0)
    if not varies.any():
        return 1.0
    largest = ((statistics - statistics.mean(axis=0)) / np.where(varies, spread, np.inf)).max(axis=1)
    first, others = float(largest[0]), np.sort(largest[1:])
    exceeding = int((others >= first - ROUNDING).sum())
    if exceeding:
        return (1 + exceeding) / len(largest)
    upper = others[-(len(others) // 10) :]
    scale = float((upper - upper[0]).mean())
    return min(1 / len(largest), 0.1 * math.exp(-(first - float(upper[0])) / scale) if scale > 0 else 0.0)


@lru_cache(maxsize=2)
def orders_of(n: int) -> Ints:
    """(B + 1, n) random orders of n stretches, after the one that they have."""
    orders = np.random.default_rng(0).random((SHUFFLED_STRETCHES + 1, n)).argsort(axis=1)
    orders[0] = np.arange(n)
    return orders


def drift_of(count: Floats, mean: Floats, block: Ints, factor: float = 1.0) -> tuple[float, float]:
    """(last fifth minus the rest, p-value) of stretches that follow each other in time: rows, means, and the number of
    the block that each is in, (s,) each. factor: the design effect of clusters.

    Two statistics, of which the larger counts: the spread of the means of blocks, and their trend. The stretches change
    places at random, which is exact where nothing drifts, whatever the tails of the rewards.
    """
    late = block >= min(np.ceil(0.8 * (block[-1] + 1)), block[-1])
    change = float(np.average(mean[late], weights=count[late]) - np.average(mean[~late], weights=count[~late]))
    order, starts = orders_of(len(mean)), np.flatnonzero(np.diff(block, prepend=-1))
    rows = np.add.reduceat(count[order], starts, axis=1)
    away = np.add.reduceat((count * (mean - np.average(mean, weights=count)))[order], starts, axis=1)
    time = np.arange(len(starts)) - (len(starts) - 1) / 2
    statistics = np.stack([(away**2 / rows).sum(axis=1), (away @ time) ** 2], axis=1)
    statistics[0] /= factor
    return change, permuted(statistics)


def evenly(n: int, most: int) -> Ints:
    """At most so many row numbers out of n, evenly spaced."""
    return np.arange(n) if n <= most else np.unique(np.linspace(0, n - 1, most).astype(np.intp))


def action_matters(log: LoggedData, limits: Thresholds = DEFAULT) -> float | None:
    """p-value that the logged propensities do not depend on the logged action, given the contexts.

    Propensities are probabilities of the action taken, so what contexts leave open in their logarithm must depend on
    the action. None where there is nothing to test: no contexts, too few rows, or propensities that hardly vary. With
    eligible actions, they are taken as multiples of the uniform policy's, which depend on the set of these alone.
    """
    if log.propensities is None or log.contexts.shape[1] == 0:
        return None
    logs = np.log(log.propensities if log.eligible is None else log.propensities * log.eligible.sizes)
    return None if logs.std() < limits.related_spread else depends_on_action(logs, log, limits)


def depends_on_action(values: Floats, log: LoggedData, limits: Thresholds = DEFAULT) -> float | None:
    """p-value that values (n,) do not depend on the action, alone or together with a context, given the contexts.

    What contexts and their squares leave of the values is permuted over the rows. That is exact where the actions were
    shuffled or drawn without a look at the contexts, whatever the tails of the values. None: too few rows, or rows of
    an action.
    """
    if len(log) < limits.related_rows:
        return None
    rows = evenly(len(log), MOST_CELLS // (2 + min(log.contexts.shape[1], MOST_CONTEXTS)))
    rows = rows[np.bincount(log.actions[rows], minlength=log.n_actions)[log.actions[rows]] >= limits.related_count]
    if len(rows) == 0 or (log.actions[rows] == log.actions[rows[0]]).all():
        return None
    rows = rows[np.argsort(log.actions[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(log.actions[rows], prepend=-1))
    scores = scores_of(values[rows], log.contexts[rows, :MOST_CONTEXTS])
    shuffled = (scores.take(order, axis=1) for order in row_orders(len(rows)))
    return permuted(np.array([between(drawn, starts) for drawn in itertools.chain([scores], shuffled)]))


@lru_cache(maxsize=1)
def row_orders(n: int) -> Ints:
    """(B, n) random orders of n rows, fewer than 2^16: two tests of a log share them."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(n).astype(np.uint16) for _ in range(SHUFFLED_ROWS)])


def depends_on_contexts(values: Floats, log: LoggedData) -> float:
    """p-value that values (n,) do not depend on the contexts: the largest correlation of their ranks with a context or
    its square, by Bonferroni."""
    rows = evenly(len(log), MOST_CELLS // (1 + MOST_CONTEXTS))
    x = standardised(log.contexts[rows, :MOST_CONTEXTS])
    x = standardised(np.column_stack([x, x**2]))
    z = np.abs(standardised(ranks_of(values[rows])[:, None])[:, 0] @ x) / math.sqrt(len(rows))
    return min(1.0, len(z) * two_sided(float(z.max()))) if len(z) else 1.0


def scores_of(values: Floats, contexts: Floats) -> Floats:
    """(2 + d, n) of values (n,) and contexts (n, d): what contexts and their squares leave of the values and of their
    ranks, and the latter times each context; all standardised."""
    x = standardised(contexts[:, contexts.std(axis=0) > 0])
    model, both = np.column_stack([np.ones(len(x)), x, x**2]), np.column_stack([values, ranks_of(values)])
    rest = left_by(model, left_by(model, both))  # twice: what rounding left of the first time
    rest[:, np.abs(rest).max(axis=0) <= ROUNDING * np.abs(both).max(axis=0)] = 0.0
    return np.ascontiguousarray(standardised(np.column_stack([rest, rest[:, 1:] * x])).T)


def left_by(model: Floats, values: Floats) -> Floats:
    """What the least squares of a few long columns (n, p) leave of values (n, m), by their products."""
    inverse = np.linalg.pinv(model.T @ model, rcond=SINGULAR, hermitian=True)
    left: Floats = values - model @ (inverse @ (model.T @ values))
    return left


def standardised(columns: Floats) -> Floats:
    """Columns (n, d) with mean 0 and variance 1; 0 of one that does not vary."""
    spread = columns.std(axis=0)
    scaled: Floats = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    return scaled


def ranks_of(values: Floats) -> Floats:
    """The ranks (n,) of values (n,); equal ones share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    shared: Floats = (np.cumsum(count) - count / 2)[place]
    return shared


def between(scores: Floats, starts: Ints) -> Floats:
    """(4,) how far the groups of rows that begin at `starts` are from the mean of all, of scores (2 + d, n): of the
    first two, of the furthest group in the first, and of all others together."""
    squares = np.add.reduceat(scores, starts, axis=1) ** 2 / np.diff(starts, append=scores.shape[1])
    sums = squares.sum(axis=1)
    return np.array([*sums[:2], squares[0].max(), sums[2:].sum()])


def action_drift(actions: Ints, block: Ints, k: int) -> tuple[float, float]:
    """(share of rows between the first and the second half of the time, p-value): a chi-square test of two halves."""
    from scipy.special import chdtrc

    late = block >= (int(block.max()) + 1) / 2
    a, b = (np.bincount(actions[at], minlength=k).astype(np.float64) for at in (~late, late))
    both = a + b
    big = both >= FEWEST
    a, b = np.append(a[big], a[~big].sum()), np.append(b[big], b[~big].sum())
    both = a + b
    a, b, both = a[both > 0], b[both > 0], both[both > 0]
    if len(both) < 2:
        return 0.0, 1.0
    share = a.sum() / both.sum()
    statistic = float((((a - share * both) ** 2) / (both * share * (1 - share))).sum())
    moved = float(np.abs(a / a.sum() - b / b.sum()).sum() / 2)
    return moved, float(chdtrc(len(both) - 1, statistic))


def row_keys(columns: list[Array]) -> Array:
    """A 64-bit key for each row of the columns; equal rows have equal keys, and others almost never."""
    rng = np.random.default_rng(0)
    keys = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        bits = np.ascontiguousarray(column + 0.0 if column.dtype.kind == "f" else column.astype(np.int64)).view(
            np.uint64
        )
        keys = (keys ^ bits) * np.uint64(int(rng.integers(2**63)) * 2 + 1)
        keys ^= keys >> np.uint64(29)
    return keys


def repeats(context: Array, whole: Array, propensities: Floats | None) -> tuple[int, int, Floats]:
    """Of rows with the context of an earlier row: how many, how many equal it wholly, and each one's chance of that.

    The chance that an action comes again is its propensity (0.5 where that is not known), and the reward lowers it.
    """
    order = np.argsort(context, kind="stable")
    pair = context[order][1:] == context[order][:-1]
    match = pair & (whole[order][1:] == whole[order][:-1])
    chance = np.full(len(context), 0.5) if propensities is None else propensities
    return int(pair.sum()), int(match.sum()), np.asarray(chance[order][1:][pair], dtype=np.float64)
