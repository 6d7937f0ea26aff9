"""What is read off importance weights: pure functions of arrays of shape (n,). Names follow the papers."""

from __future__ import annotations

import math

import numpy as np

from cael.common.types import Floats


def lambda_of(second: float, n: int) -> float:
    """The lambda of Metelli et al. 2021 for n weights with this mean square: sqrt(2 log(1/0.05) / (3 n E[w^2]))."""
    return 0.0 if second == 0 else min(1.0, math.sqrt(2 * math.log(20) / (3 * n * second)))


def effective_sample_size(w: Floats) -> float:
    """(sum w)^2 / sum w^2: the number of equally weighted rows that would be worth as much; 0 if all are 0."""
    total, squares = float(w.sum()), float(w @ w)
    if 1e-200 < squares < 1e200:
        return total / squares * total
    top = float(w.max())
    # Squares of very small or very large weights leave the range of floats.
    return effective_sample_size(w / top) if top > 0 else 0.0


def tail_index(w: Floats) -> float:
    """Pareto tail index k of the largest weights: above 0.5 the variance, above 1 the mean is in doubt.

    A generalised Pareto distribution is fitted (Zhang and Stephens 2009, with the weak prior towards 0.5 of
    Vehtari et al. 2024) to the min(n/5, 3 sqrt(n)) largest weights. NaN where there is no tail to fit: fewer than
    5 exceedances, or weights that pile up under a ceiling, as those of an epsilon-greedy target do: the fifth largest
    is within 5% of the largest (under a tail with k = 0.5 that happens once in ten thousand samples).
    """
    n = len(w)
    size = int(min(0.2 * n, 3 * math.sqrt(n)))
    if size < 5:
        return math.nan
    return tail_of(np.sort(np.partition(w, n - size - 1)[n - size - 1 :]))


def tail_of(top: Floats) -> float:
    """The tail index of the largest weights alone, sorted, with the largest one below the tail in front."""
    if top[-5] >= 0.95 * top[-1]:
        return math.nan
    excess = top[1:] - top[0]
    excess = excess[excess > 0]
    if len(excess) < 5:
        return math.nan
    k = pareto_shape(excess)
    return (k * len(excess) + 0.5 * 10) / (len(excess) + 10)


def pareto_shape(excess: Floats) -> float:
    """Shape k of a generalised Pareto distribution with location 0; excess is sorted, positive (Zhang-Stephens)."""
    n = len(excess)
    grid = 30 + int(math.sqrt(n))
    quartile = excess[int(n / 4 + 0.5) - 1]
    j = np.arange(1, grid + 1)
    b = 1 / excess[-1] + (1 - np.sqrt(grid / (j - 0.5))) / (3 * quartile)
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    profile = n * (np.log(-b / k) - k - 1)
    weight = np.exp(profile - profile.max())
    b_mean = float((b * weight).sum() / weight.sum())
    return float(np.log1p(-b_mean * excess).mean())
