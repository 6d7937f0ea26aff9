"""Random numbers that belong to rows, and actions drawn with them; pure functions of arrays.

A draw is a function of (policy, row, uniform number). The uniform numbers are a hash of (seed, row number, place), so
that they do not depend on how a log is cut into batches or in which order these come.
"""

from __future__ import annotations

import numpy as np

from cael.common.types import Floats, Ints
from cael.log.keys import FIRST, GOLDEN, bijection, mixed

BELOW_ONE = 1 - 2.0**-52


def uniforms(seed: int, rows: Ints, size: int) -> Floats:
    """(b, size) numbers from U[0, 1) for rows (b,) of a log: the same for a row whatever its neighbours."""
    start = mixed(np.array([seed % 2**64], dtype=np.uint64) * GOLDEN)
    keys = bijection(start + (rows.astype(np.uint64) + np.uint64(1)) * FIRST)
    place = np.arange(1, size + 1, dtype=np.uint64) * GOLDEN
    bits = bijection(keys[:, None] + place)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def from_table(p: Floats, u: Floats) -> Ints:
    """Actions (b, size) with probabilities p (b, k), by inversion: the first whose cumulated probability exceeds u."""
    cumulated = np.cumsum(p, axis=1)
    level = u * (cumulated[:, -1:] * BELOW_ONE)
    drawn = np.empty(u.shape, dtype=np.intp)
    for i in range(len(p)):
        drawn[i] = np.searchsorted(cumulated[i], level[i], side="right")
    return drawn


def from_list(actions: Ints, p: Floats, rest: Floats, n_actions: int | Ints, u: Floats) -> Ints:
    """Actions (b, size) of lists: `actions` (b, m) with probabilities p (b, m), every other action with rest (b,).

    The listed come first in the inversion, then the unlisted in the order of their numbers. n_actions may be of each
    row, (b,).
    """
    cumulated = np.cumsum(p, axis=1)
    listed = cumulated[:, -1] if p.shape[1] else np.zeros(len(u))
    others = n_actions - (actions >= 0).sum(axis=1)
    level = u * ((listed + rest * others) * BELOW_ONE)[:, None]
    place = np.zeros(u.shape, dtype=np.intp)
    for j in range(p.shape[1]):
        place += level >= cumulated[:, j : j + 1]
    drawn = np.full(u.shape, -1, dtype=np.intp)
    beyond = place == p.shape[1]
    if p.shape[1]:
        drawn = np.take_along_axis(actions, np.minimum(place, p.shape[1] - 1), axis=1)
    if beyond.any():
        step = np.where(rest > 0, rest, 1.0)[:, None]
        rank = np.clip(np.floor((level - listed[:, None]) / step), 0, np.maximum(others - 1, 0)[:, None])
        drawn = np.where(beyond, unlisted(actions, rank.astype(np.intp)), drawn)
    return drawn


def unlisted(actions: Ints, rank: Ints) -> Ints:
    """The rank-th (b, size) of the actions that are not in the row's list (b, m), in the order of their numbers."""
    number = rank.copy()
    for column in np.sort(actions, axis=1).T:
        number += (column >= 0)[:, None] & (number >= column[:, None])
    return number


def merged(actions: Ints, *masses: Floats) -> tuple[Ints, Ints, list[Floats]]:
    """Each row's distinct actions (b, w), -1 where there are fewer; the place (b, m) of every entry; the summed masses.

    Entries of -1 are empty and their masses must be 0.
    """
    b, m = actions.shape
    order = np.argsort(actions, axis=1, kind="stable")
    ordered = np.take_along_axis(actions, order, axis=1)
    group = np.zeros((b, m), dtype=np.intp)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=group[:, 1:])
    width = int(group[:, -1].max(initial=0)) + 1
    place = np.empty_like(group)
    np.put_along_axis(place, order, group, axis=1)
    distinct = np.full((b, width), -1, dtype=np.intp)
    np.put_along_axis(distinct, group, ordered, axis=1)
    at = (np.arange(b)[:, None] * width + place).ravel()
    sums: list[Floats] = [
        np.bincount(at, mass.ravel(), b * width).astype(np.float64, copy=False).reshape(b, width) for mass in masses
    ]
    return distinct, place, sums
