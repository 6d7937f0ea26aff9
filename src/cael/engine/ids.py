"""Ids of decisions in a pass: whether one of them is repeated, within a bound on memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Array, Ints

MOST = 2**21
"""Ids that are kept; beyond it, only those whose hash falls into a half, a quarter, ... of all, which still finds
repeats of many ids."""


@final
@dataclass(frozen=True, eq=False)
class Ids:
    """keys: (m,) sorted 64-bit hashes of ids. places: (m,) of their rows. share: one in 2^share of all is looked at.
    repeats: of ids that were there before. first: the place of the first of them, -1 without."""

    keys: Array
    places: Ints
    share: int = 0
    repeats: int = 0
    first: int = -1

    def merge(self, other: Ids) -> Ids:
        share = max(self.share, other.share)
        a, b = self.within(share), other.within(share)
        keys, places = np.concatenate([a.keys, b.keys]), np.concatenate([a.places, b.places])
        first = min((first for first in (a.first, b.first) if first >= 0), default=-1)
        return ids_of(keys, places, share, a.repeats + b.repeats, first)

    def within(self, share: int) -> Ids:
        """The ids whose hash falls into one part of 2^share."""
        if share == self.share:
            return self
        kept = (self.keys & np.uint64(2**share - 1)) == 0
        return Ids(self.keys[kept], self.places[kept], share, self.repeats, self.first)


def ids_of(keys: Array, places: Ints, share: int = 0, repeats: int = 0, first: int = -1) -> Ids:
    """The distinct ids of rows, and how many of the rows repeat one; keys: (n,), places: (n,)."""
    order = np.lexsort((places, keys))
    keys, places = keys[order], places[order]
    again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if len(again):
        lowest = int(places[again].min())
        first = lowest if first < 0 else min(first, lowest)
        keep = np.ones(len(keys), dtype=bool)
        keep[again] = False
        keys, places = keys[keep], places[keep]
    ids = Ids(keys, places, share, repeats + len(again), first)
    while len(ids.keys) > MOST:
        ids = ids.within(ids.share + 1)
    return ids
