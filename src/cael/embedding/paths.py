"""From predicted rewards to weights: the marginal weights of every bandwidth, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael._types import Floats
from cael.embedding.cells import Cells, all_cells, drawn_cells
from cael.embedding.rewards import SparseRewards, blocks
from cael.log import Batch, LoggedData
from cael.policy import Policy, support

TABLES = 16
"""Arrays of the size of a block that the weights of one bandwidth need at once."""


@final
@dataclass(frozen=True)
class WeightPath:
    """Weights W(x_i, a_i) for J bandwidths; the first is 0 (the plain ratio), the last infinite (1 everywhere).

    bandwidths: (J,) in units of `unit`, the standard deviation of f over actions within a row. weights: (J, n).
    second: (J, n) sum_a mu W^2, what W^2 is on average in this row; cross: (J, n) the same of W w. roughness: (J, n)
    of `codes.Smoothed`. lost: (J,) target mass that no weight carries. smoothed: (J, n) sum_a mu W f, the mean of f
    under the smoothed target. f_logged, f_target: (n,) f of the logged action, and its mean under the target. drawn:
    actions that were drawn for each row; None: all were looked at.
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
    drawn: int | None = None


def weight_path(
    log: LoggedData, policy: Policy, rewards: SparseRewards, bandwidths: Floats, drawn: int | None = None, seed: int = 0
) -> WeightPath:
    """f(x, a) is the predicted reward; the weights are those of stochastic rounding of f (`codes.rounded`).

    drawn: how many actions of each row are drawn (`cells`), None for all actions.
    """
    assert log.logging is not None
    n, count = len(log), len(bandwidths)
    weights, second, cross, rough, smoothed = (np.empty((count, n)) for _ in range(5))
    lost, f_logged, f_target = np.zeros(count), np.empty(n), np.empty(n)
    unit = _unit(log, policy, rewards, drawn, seed)
    for fold, rows in enumerate(rewards.folds):
        for batch, some in blocks(log, rows, width=_width(log, policy, drawn) * TABLES):
            cells = _cells(log.logging, policy, rewards, fold, batch, drawn, seed)
            f, mu, pi = cells.f, cells.mu, cells.pi
            f_logged[some], f_target[some] = cells.logged(f), np.einsum("ij,ij->i", pi, f)
            for j, bandwidth in enumerate(bandwidths):
                found = cells.smooth(bandwidth * unit)
                weights[j, some] = cells.logged(found.weights)
                second[j, some] = np.einsum("ij,ij,ij->i", mu, found.weights, found.weights) if j else cells.second
                cross[j, some] = np.einsum("ij,ij,ij->i", mu, found.weights, cells.ratio) if j else cells.second
                smoothed[j, some] = np.einsum("ij,ij,ij->i", mu, found.weights, f)
                rough[j, some] = found.roughness
                lost[j] += found.lost.sum() / n
    return WeightPath(bandwidths, unit, weights, second, cross, rough, lost, smoothed, f_logged, f_target, drawn)


def _cells(
    logging: Policy, policy: Policy, rewards: SparseRewards, fold: int, batch: Batch, drawn: int | None, seed: int
) -> Cells:
    if drawn is None:
        return all_cells(logging, policy, rewards, fold, batch)
    return drawn_cells(logging, policy, rewards, fold, batch, drawn, seed)


def _width(log: LoggedData, policy: Policy, drawn: int | None) -> int:
    """About how many actions of a row are looked at."""
    if drawn is None:
        return log.n_actions
    first = log.take(np.arange(1))
    found = support(policy, next(first.batches()))
    listed = 0 if found is None else found.actions.shape[1]
    return 1 + drawn + listed + (0 if found is not None and not found.rest.any() else drawn)


def _unit(
    log: LoggedData, policy: Policy, rewards: SparseRewards, drawn: int | None, seed: int, rows: int = 256
) -> float:
    """The standard deviation of f over actions within a row, under the logging policy, from some rows of each fold."""
    assert log.logging is not None
    total, count = 0.0, 0
    for fold, every in enumerate(rewards.folds):
        for batch, _ in blocks(log, every[:rows], width=_width(log, policy, drawn)):
            cells = _cells(log.logging, policy, rewards, fold, batch, drawn, seed)
            mean = np.einsum("ij,ij->i", cells.mu, cells.f)
            square = float(np.einsum("ij,ij->", cells.mu, (cells.f - mean[:, None]) ** 2))
            total += square if drawn is None else square * (drawn + 1) / drawn
            count += len(batch)
    return float(np.sqrt(total / count)) or 1.0
