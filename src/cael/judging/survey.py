"""Survey: one pass over a log that counts, by action, what was logged and what the policies say should be there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.inference import intervals as inference
from cael.log.logged import FEW, LoggedData
from cael.policies.expectations import surprises, totals, variances, worst_sum
from cael.policies.policy import Policy

NORMAL_VARIANCE = 25.0
"""From this variance on, a count is compared by a normal z with its own variance; below, by a binomial tail."""

LEAST_ROWS, MOST_CONTEXTS, HARDLY, FEWEST = 500, 50, 0.05, 10
MOST_ROWS = 200_000


@final
@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass over the rows finds; k actions, n rows.

    logged: (k,) rows of each action. expected: (k,) sum over rows of the logging policy's probability, and variance:
    (k,) of the count around it (both None where only the logged action's propensity is known). score: (n,)
    log mu(a_i|x_i) + entropy of mu(.|x_i), which has mean zero if the logging policy is what it says. relation: (n,)
    the same of mu(a|x) / mean over rows of mu(a|.), which sees most sharply whether actions belong to these contexts,
    as the popularity of the actions is taken out of it. worst_sum: the
    largest distance of a row's probabilities from one. target: (k,) the target's mean probability of each action.
    """

    logged: Floats
    expected: Floats | None
    variance: Floats | None
    score: Floats | None
    relation: Floats | None
    worst_sum: float | None
    target: Floats | None


def survey(log: LoggedData, target: Policy | None = None) -> Survey:
    """Count in one pass; nothing of size n x k is kept."""
    k = log.n_actions
    logged = np.bincount(log.actions, minlength=k).astype(np.float64)
    mass = None if target is None or not target.complete else sums_over(log, target)[0] / len(log)
    if log.logging is None or not log.logging.complete:
        return Survey(logged, None, None, None, None, None, mass)
    expected, variance, worst = sums_over(log, log.logging)
    popularity = np.log(np.maximum(expected / len(log), 1e-300))
    parts = [surprises(log.logging, batch, popularity) for batch in log.batches(width=FEW)]
    score, relation = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Survey(logged, expected, variance * design_effect(log.clusters), score, relation, worst, mass)


def sums_over(log: LoggedData, policy: Policy) -> tuple[Floats, Floats, float]:
    """Sums over rows of the probability of each action and of its variance, (k,) each, and the worst row's sum."""
    first, second, worst = np.zeros(log.n_actions), np.zeros(log.n_actions), 0.0
    for batch in log.batches(width=FEW):
        first += totals(policy, batch)
        second += totals(policy, batch, variances)
        worst = max(worst, worst_sum(policy, batch))
    return first, second, worst


def design_effect(clusters: Ints | None) -> float:
    """How much a count can vary more when the rows of a cluster may share their draw: at most sum of sizes^2 / n."""
    if clusters is None:
        return 1.0
    sizes = np.unique(clusters, return_counts=True)[1].astype(np.float64)
    return float((sizes**2).sum() / sizes.sum())


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


def inverse_means(log: LoggedData) -> tuple[Floats, Floats]:
    """For each action the mean over rows of 1{a_i = a} / mu_i and its standard error, both (k,).

    The mean is 1 for an action that the logging policy plays on every row, and less for one that it leaves out on some.
    """
    assert log.propensities is not None
    k = log.n_actions
    inverse = 1 / log.propensities
    first: Floats = np.bincount(log.actions, weights=inverse, minlength=k).astype(np.float64, copy=False)
    second: Floats = np.bincount(log.actions, weights=inverse**2, minlength=k).astype(np.float64, copy=False)
    return inverse_means_of(first, second, len(log), design_effect(log.clusters))


def inverse_means_of(first: Floats, second: Floats, n: int, effect: float) -> tuple[Floats, Floats]:
    """The same from the sums of 1/mu and of its square by action, both (k,); effect: the design effect of clusters."""
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


def z_of_mean(values: Floats, clusters: Ints | None) -> tuple[float, float]:
    """(mean, its z against 0) of per-row values (n,); z is 0 where they have no spread."""
    mean = float(values.mean())
    error = inference.stderr(inference.units(values, clusters))
    return mean, mean / error if error > 0 else 0.0


def likeliness(found: Survey, clusters: Ints | None) -> tuple[float, float] | None:
    """(mean, p-value) of the score that is further from 0, for both tests together; None: the policy is not known."""
    if found.score is None or found.relation is None:
        return None
    return further([z_of_mean(score, clusters) for score in (found.score, found.relation)])


def further(scores: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(mean, p-value) of the (mean, z) that is further from 0, for two tests together."""
    tests = []
    for mean, z in scores:
        if z == 0 and abs(mean) > 1e-9:  # no spread, and not 0
            z = math.inf
        tests.append((mean, min(1.0, 2 * two_sided(z))))
    return min(tests, key=lambda pair: pair[1])


def time_order(log: LoggedData) -> Ints:
    """Row numbers in the order of time: of the timestamps, or as they stand where there are none."""
    return np.arange(len(log)) if log.timestamps is None else np.argsort(log.timestamps, kind="stable")


def time_blocks(log: LoggedData, blocks: int) -> Ints:
    """The block (0 .. blocks-1) of each row (n,); blocks follow each other in time and have equal sizes."""
    place = np.empty(len(log), dtype=np.intp)
    place[time_order(log)] = np.arange(len(log))
    return place * blocks // len(log)


def drift(values: Floats, block: Ints, clusters: Ints | None) -> tuple[float, float]:
    """(last fifth minus the rest, p-value) of values (n,) whose blocks follow each other in time.

    Two tests, each at half the level: that all blocks have one mean (chi-square), and that they have no trend (normal).
    With clusters the variance of a block's mean is inflated by the design effect, as clusters may share their level.
    """
    count = np.bincount(block).astype(np.float64)
    mean = np.bincount(block, weights=values) / count
    inside = values - mean[block]
    variance = np.bincount(block, weights=inside**2) / (count - 1) / count * design_effect(clusters)
    return drift_of(count, mean, variance)


def drift_of(count: Floats, mean: Floats, variance: Floats) -> tuple[float, float]:
    """The same from blocks: rows (b,), means (b,) and variances of the means (b,)."""
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


def action_matters(log: LoggedData) -> float | None:
    """p-value that the logged propensities do not depend on the logged action, given the contexts.

    Propensities are probabilities of the action taken, so what contexts leave open in their logarithm must depend on
    the action. None where there is nothing to test: no contexts, too few rows, or propensities that hardly vary.
    """
    if log.propensities is None or log.contexts.shape[1] == 0:
        return None
    logs = np.log(log.propensities)
    return None if logs.std() < HARDLY else depends_on_action(logs, log)


def depends_on_action(values: Floats, log: LoggedData) -> float | None:
    """p-value that values (n,) do not depend on the action, alone or together with a context, given the contexts.

    Score statistics over actions and contexts: the largest, by Bonferroni, or the sum of their squares, by a
    chi-square, each at half the level. None: too few rows, or rows of an action.
    """
    from scipy.special import chdtrc

    k = log.n_actions
    if len(log) < LEAST_ROWS:
        return None
    some = evenly(len(log), MOST_ROWS)
    n, actions, x = len(some), log.actions[some], log.contexts[some, :MOST_CONTEXTS]
    spread = x.std(axis=0)
    x = np.column_stack([np.ones(n), (x[:, spread > 0] - x[:, spread > 0].mean(axis=0)) / spread[spread > 0]])
    rest = values[some] - x @ np.linalg.lstsq(x, values[some], rcond=None)[0]
    count = np.bincount(actions, minlength=k)
    largest, squares, tests = 0.0, 0.0, 0
    for column in x.T:
        score = rest * column
        total = np.bincount(actions, weights=score, minlength=k)
        square = np.bincount(actions, weights=score**2, minlength=k)
        enough = (count >= 20) & (square > 0)
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
