"""From predicted rewards to weights: the marginal weights of every bandwidth, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael import codes
from cael._types import Floats
from cael.embedding.rewards import SparseRewards, blocks
from cael.log import LoggedData
from cael.policy import Policy, probabilities

TABLES = 16
"""Arrays of the size of a block that the weights of one bandwidth need at once."""


@final
@dataclass(frozen=True)
class WeightPath:
    """Weights W(x_i, a_i) for J bandwidths; the first is 0 (the plain ratio), the last infinite (1 everywhere).

    bandwidths: (J,) in units of `unit`, the standard deviation of f over actions within a row. weights: (J, n).
    second: (J, n) sum_a mu W^2, what W^2 is on average in this row; cross: (J, n) the same of W w. roughness: (J, n)
    of `codes.Smoothed`. lost: (J,) target mass that no weight carries. smoothed: (J, n) sum_a mu W f, the mean of f
    under the smoothed target. f_logged, f_target: (n,) f of the logged action, and its mean under the target.
    """

    bandwidths: Floats
    unit: float
    weights: Floats
    second: Floats
    cross: Floats
    roughness: Floats
    lost: Floats
    smoothed: Floats
    f_logged: Floats
    f_target: Floats


def weight_path(log: LoggedData, policy: Policy, rewards: SparseRewards, bandwidths: Floats) -> WeightPath:
    """f(x, a) is the predicted reward; the weights are those of stochastic rounding of f (`codes.rounded`)."""
    n, k, count = len(log), log.n_actions, len(bandwidths)
    weights, second, cross, rough, smoothed = (np.empty((count, n)) for _ in range(5))
    lost, f_logged, f_target = np.zeros(count), np.empty(n), np.empty(n)
    unit = _unit(log, rewards)
    for fold, rows in enumerate(rewards.folds):
        for batch, some in blocks(log, rows, width=k * TABLES):
            own = np.arange(len(some)), batch.actions
            f = rewards.predict(fold, batch)
            mu, pi = probabilities(log.logging, batch), probabilities(policy, batch)  # type: ignore[arg-type]
            f_logged[some], f_target[some] = f[own], np.einsum("ij,ij->i", pi, f)
            for j, bandwidth in enumerate(bandwidths):
                found = smooth(f, mu, pi, bandwidth * unit)
                weights[j, some] = found.weights[own]
                second[j, some] = np.einsum("ij,ij,ij->i", mu, found.weights, found.weights)
                cross[j, some] = np.einsum("ij,ij->i", np.where(mu > 0, pi, 0.0), found.weights)
                smoothed[j, some] = np.einsum("ij,ij,ij->i", mu, found.weights, f)
                rough[j, some] = found.roughness
                lost[j] += found.lost.sum() / n
    return WeightPath(bandwidths, unit, weights, second, cross, rough, lost, smoothed, f_logged, f_target)


def smooth(f: Floats, mu: Floats, pi: Floats, bandwidth: float) -> codes.Smoothed:
    """The weights of one bandwidth; 0 is the plain ratio, infinity the on-policy mean."""
    if bandwidth == 0:
        return codes.sharp(mu, pi)
    if np.isinf(bandwidth):
        return codes.flat(mu, pi)
    return codes.rounded(f, mu, pi, bandwidth)


def _unit(log: LoggedData, rewards: SparseRewards, rows: int = 256) -> float:
    """The standard deviation of f over actions within a row, under the logging policy, from some rows of each fold."""
    total, count = 0.0, 0
    for fold, every in enumerate(rewards.folds):
        for batch in log.take(every[:rows]).batches(width=log.n_actions):
            f, mu = rewards.predict(fold, batch), probabilities(log.logging, batch)  # type: ignore[arg-type]
            mean = np.einsum("ij,ij->i", mu, f)
            total += float(np.einsum("ij,ij->", mu, (f - mean[:, None]) ** 2))
            count += len(batch)
    return float(np.sqrt(total / count)) or 1.0
