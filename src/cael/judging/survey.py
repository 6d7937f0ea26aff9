"""Survey: what a pass counted by action; and the tests of counts, columns and time that checks rest on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.log.logged import LoggedData

NORMAL_VARIANCE = 25.0
"""From this variance on, a count is compared by a normal z with its own variance; below, by a binomial tail."""

MOST_CONTEXTS, FEWEST = 50, 10
MOST_ROWS = 200_000


@final
@dataclass(frozen=True, eq=False)
class Survey:
    """What a pass over the rows counted, by action, (k,) each: logged: rows. expected: the sum over rows of the logging
    policy's probability, and variance: of the count around it (both None where only the logged action's propensity is
    known). target: the target's mean probability (None: not known)."""

    logged: Floats
    expected: Floats | None
    variance: Floats | None
    target: Floats | None


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


def inverse_means(first: Floats, second: Floats, n: int, effect: float) -> tuple[Floats, Floats]:
    """For each action the mean over rows of 1{a_i = a} / mu_i and its standard error, both (k,).

    The mean is 1 for an action that the logging policy plays on every row, and less for one that it leaves out on some.
    first, second: sums of 1/mu and of its square by action. effect: the design effect of clusters.
    """
    mean = first / n
    return mean, np.sqrt(np.maximum(second / n - mean**2, 0.0) / (n - 1) * effect)


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


def skewness_ratio(z: Floats) -> float:
    """|third standardised moment| of z (n,) over sqrt(n); 0 without spread."""
    centred = z - z.mean()
    spread = float(np.mean(centred**2))
    return abs(float(np.mean((centred / math.sqrt(spread)) ** 3))) / math.sqrt(len(z)) if spread > 0 else 0.0


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


def drift_of(count: Floats, mean: Floats, variance: Floats) -> tuple[float, float]:
    """(last fifth minus the rest, p-value) of blocks that follow each other in time: rows, means and variances of the
    means, (b,) each.

    Two tests, each at half the level: that all blocks have one mean (chi-square), and that they have no trend (normal).
    """
    from scipy.special import chdtrc

    if (variance <= 0).all():
        return 0.0, 1.0 if np.allclose(mean, mean[0]) else 0.0
    variance = np.maximum(variance, variance[variance > 0].min())
    centre = float((mean / variance).sum() / (1 / variance).sum())
    statistic = float(((mean - centre) ** 2 / variance).sum())
    late = np.arange(len(mean)) >= np.ceil(0.8 * len(mean))
    change = float(np.average(mean[late], weights=count[late]) - np.average(mean[~late], weights=count[~late]))
    time = np.arange(len(mean)) - (np.arange(len(mean)) / variance).sum() / (1 / variance).sum()
    trend = float((time * mean / variance).sum() / np.sqrt((time**2 / variance).sum()))
    return change, min(1.0, 2 * min(float(chdtrc(len(mean) - 1, statistic)), two_sided(trend)))


def evenly(n: int, most: int) -> Ints:
    """At most so many row numbers out of n, evenly spaced."""
    return np.arange(n) if n <= most else np.unique(np.linspace(0, n - 1, most).astype(np.intp))


def action_matters(log: LoggedData, limits: Thresholds = DEFAULT) -> float | None:
    """p-value that the logged propensities do not depend on the logged action, given the contexts.

    Propensities are probabilities of the action taken, so what contexts leave open in their logarithm must depend on
    the action. None where there is nothing to test: no contexts, too few rows, or propensities that hardly vary.
    """
    if log.propensities is None or log.contexts.shape[1] == 0:
        return None
    logs = np.log(log.propensities)
    return None if logs.std() < limits.related_spread else depends_on_action(logs, log, limits)


def depends_on_action(values: Floats, log: LoggedData, limits: Thresholds = DEFAULT) -> float | None:
    """p-value that values (n,) do not depend on the action, alone or together with a context, given the contexts.

    Score statistics over actions and contexts: the largest, by Bonferroni, or the sum of their squares, by a
    chi-square, each at half the level. None: too few rows, or rows of an action.
    """
    from scipy.special import chdtrc

    k = log.n_actions
    if len(log) < limits.related_rows:
        return None
    rows = evenly(len(log), MOST_ROWS)
    n, actions, x = len(rows), log.actions[rows], log.contexts[rows, :MOST_CONTEXTS]
    spread = x.std(axis=0)
    x = np.column_stack([np.ones(n), (x[:, spread > 0] - x[:, spread > 0].mean(axis=0)) / spread[spread > 0]])
    rest = values[rows] - x @ np.linalg.lstsq(x, values[rows], rcond=None)[0]
    count = np.bincount(actions, minlength=k)
    largest, squares, tests = 0.0, 0.0, 0
    for column in x.T:
        score = rest * column
        total = np.bincount(actions, weights=score, minlength=k)
        square = np.bincount(actions, weights=score**2, minlength=k)
        enough = (count >= limits.related_count) & (square > 0)
        tests += int(enough.sum())
        z = np.abs(total[enough]) / np.sqrt(square[enough])
        largest, squares = max(largest, float(z.max(initial=0.0))), squares + float(z @ z)
    return min(1.0, 2 * min(tests * two_sided(largest), float(chdtrc(tests, squares)))) if tests else None


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
