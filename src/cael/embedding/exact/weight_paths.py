"""From predicted rewards to weights: the marginal weights of every bandwidth, row by row."""

from __future__ import annotations

import numpy as np

from cael.common.types import Floats
from cael.embedding.arrays import NUMPY, Arrays
from cael.embedding.exact.grid import Cells, all_cells, drawn_cells
from cael.embedding.exact.rewards import SparseRewards
from cael.log.batch import Batch
from cael.log.pieces import Piece
from cael.policies.policy import Policy, support

UNIT_ROWS = 256
"""Rows of each fold from which the unit of the bandwidths is taken."""
TABLES = 16
"""Arrays of the size of a block that the weights of one bandwidth need at once."""
DEVICE_BYTES = 2**28
"""Of these arrays together on a device, where large blocks keep it busy; a CPU has BATCH_BYTES, which fit its cache."""
DEVICE_CELLS = 2**21
"""Rows times actions from which on the weights are made where the networks are; a device that trains for several
processes has better things to do with less."""
TOWARDS = 0.25
"""The place of an action between the two policies is its weight w to this power: it rises with w, and has no tail."""


def weights_of(cells: Cells, pitches: Floats, xp: Arrays = NUMPY) -> Floats:
    """(7, J, b) of b rows and J bandwidths; pitches: (J,) bandwidths times the unit, the first 0 (the plain ratio), the
    last infinite (weights of 1). xp: what computes them.

    W of the logged action; sum_a mu W^2, what W^2 is on average in this row; the same of W w; roughness, as in
    `codes.Smoothed`; target mass that no weight carries; sum_a mu W f and sum_a mu W w^TOWARDS, the means of f and of
    the place of the actions under the smoothed target.
    """
    cells = cells.on(xp)
    place = cells.ratio**TOWARDS
    numbers = xp.zeros((7, len(pitches), len(cells.f)), xp.float64)
    with xp.deterministic():
        for j, pitch in enumerate(pitches.tolist()):
            smooth = cells.smooth(pitch)
            mass = cells.mu * smooth.weights
            second = xp.dots(mass, smooth.weights) if j else cells.second
            cross = xp.dots(mass, cells.ratio) if j else cells.second
            of_weights = cells.logged(smooth.weights), second, cross, smooth.roughness, smooth.lost
            means = xp.dots(mass, cells.f), xp.dots(mass, place)
            for i, values in enumerate((*of_weights, *means)):
                numbers[i, j] = values
    return xp.to_numpy(numbers)


def cells_of(
    logging: Policy, policy: Policy, rewards: SparseRewards, fold: int, batch: Batch, drawn: int | None, seed: int
) -> Cells:
    """The actions of a block of rows that are looked at."""
    if drawn is None:
        return all_cells(logging, policy, rewards, fold, batch)
    return drawn_cells(logging, policy, rewards, fold, batch, drawn, seed)


def width_of(policy: Policy, first: Batch, drawn: int | None) -> int:
    """About how many actions of a row are looked at; first: one row."""
    if drawn is None:
        return first.n_actions
    lists = support(policy, first)
    if lists is None:
        return 1 + 2 * drawn
    return 1 + drawn + lists.actions.shape[1] + (drawn if lists.rest.any() else 0)


def unit_of(
    piece: Piece, logging: Policy, policy: Policy, rewards: SparseRewards, folds: int, drawn: int | None, seed: int,
    rows: int = UNIT_ROWS,
) -> float:  # fmt: skip
    """The standard deviation of f over actions within a row, under the logging policy, from some rows of each fold.

    piece: the first rows of the log; the policies count rows within it.
    """
    total, count = 0.0, 0
    whole, fold = piece.batch(), piece.folds(folds, seed)
    width = width_of(policy, whole.part(slice(0, 1)), drawn)
    for number in range(folds):
        for batch in whole.some(np.flatnonzero(fold == number)[:rows]).parts(width):
            cells = cells_of(logging, policy, rewards, number, batch, drawn, seed)
            mean = np.einsum("ij,ij->i", cells.mu, cells.f)
            square = float(np.einsum("ij,ij->", cells.mu, (cells.f - mean[:, None]) ** 2))
            total += square if drawn is None else square * (drawn + 1) / drawn
            count += len(batch)
    return float(np.sqrt(total / count)) or 1.0
