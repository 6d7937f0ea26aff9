"""Standard errors that hold with few rows and rare successes: of a whole log, or of one of its segments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cael.engine.answer import Answer, kurtosis_of
from cael.engine.columns import Column, Reward, Weight, Weights, squared
from cael.engine.moments import Moments
from cael.inference.diagnostics import Diagnostics
from cael.inference.estimate import Estimate
from cael.inference.reach import Pooled, Proportion, ends_of

TINY = 1e-300


def pooled_of(answer: Answer, weight: Weights | None, noise: float) -> Pooled:
    """What is known of the variance of a weighted mean; noise: the variance of what is weighted."""
    second = 1.0 if weight is None else second_of_weights(answer, weight)
    return Pooled(second, noise, answer.tails(Reward())[1])


def second_of_weights(answer: Answer, weight: Weights) -> float:
    """E W^2 as the weights of this log have it, divided by their mean where that is below 1; at least what both
    policies say where they are known: with few rows that match, the weights of a log show far less."""
    seen = second_moment(answer.mean(weight), answer.variance(weight))
    return max(seen, answer.second_moment(weight.target)) if weight == Weight(weight.target) else seen


def second_moment(mean: float, variance: float) -> float:
    """Of weights, which should have the mean 1: divided by their mean where that is below it."""
    second = variance + mean**2
    return second / min(1.0, mean**2) if mean > 0 else second


def second_of(answer: Answer, column: Column, shift: float = 0.0) -> float:
    """The mean square of a column about -shift."""
    return answer.variance(column) + (answer.mean(column) + shift) ** 2


def steadied(answer: Answer, estimate: Estimate, pooled: Pooled) -> Estimate:
    """The estimate with a floor of its standard error, and with the shape of a proportion where rewards are one."""
    return replace(estimate, diagnostics=steady(answer, estimate, estimate.diagnostics, pooled))


def steady(answer: Answer, estimate: Estimate, diagnostics: Diagnostics, pooled: Pooled) -> Diagnostics:
    """The diagnostics of an estimate with that floor and that shape."""
    assert estimate.sums is not None
    seen, n = estimate.stderr**2, answer.worth / estimate.sums.cluster_effect
    error = float(np.sqrt(pooled.variance(seen, n)))
    proportion = proportion_of(answer.two_values, estimate.value, error, seen, pooled, n)
    return replace(diagnostics, stderr_floor=error, pooled=pooled, proportion=proportion)


def proportion_of(
    values: tuple[float, float] | None, value: float, error: float, seen: float, pooled: Pooled, n: float
) -> Proportion | None:
    """The shape of an interval of rewards that take two values; None of others, and without any noise. error: the
    standard error of the value, raised; seen: the square of what the rows show; n: independent rows."""
    ends = ends_of(values, n)
    if ends is None or error == 0:
        return None
    low, high = ends
    share = (value - low) / (high - low)
    inside = min(max(share, 0.0), 1.0)
    spread = pooled.spread(inside * (1 - inside) * (high - low) ** 2, seen, n)
    return Proportion(share, spread / error**2, low, high, error) if spread > 0 else None


def pooled_in(answer: Answer, pooled: Pooled, part: Moments, n: float, target: int = 0) -> Pooled:
    """The same of a segment of n independent rows: second moment and noise are changed by as much as those of weights
    and rewards are."""
    weight, whole = answer.index.get(Weight(target)), answer.partial.moments
    ratio = 1.0 if weight is None else second_at(part, weight) / max(second_at(whole, weight), TINY)
    rewards = rewards_in(answer, part, n)
    share = rewards.noise / max(spread_at(whole, answer.index[Reward()]), TINY)
    return Pooled(pooled.second * ratio, pooled.noise * share, rewards.kurtosis, pooled.level * float(np.sqrt(share)))


def rewards_in(answer: Answer, part: Moments, n: float) -> Pooled:
    """What is known of the rewards of a segment of n independent rows, raised towards those of the whole log: few rows
    may lack a success."""
    at, square = answer.index[Reward()], answer.index[squared(Reward())]
    whole = answer.partial.moments
    kurtosis = max(kurtosis_of(moments, at, square) for moments in (part, whole))
    raised = Pooled(1.0, spread_at(whole, at), kurtosis).variance(spread_at(part, at) / n, n) * n
    return Pooled(1.0, raised, kurtosis)


def spread_at(moments: Moments, at: int) -> float:
    """The variance of a column."""
    return float(moments.comoment[at, at]) / moments.n


def second_at(moments: Moments, at: int) -> float:
    return second_moment(float(moments.mean[at]), spread_at(moments, at))
