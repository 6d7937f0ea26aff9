"""Ids of decisions in a pass: whether one of them is repeated, within a bound on memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Array, Ints
from cael.log.flaws import SHOWN

MOST = 2**21
"""Ids that are kept; beyond it, only those whose hash falls into a half, a quarter, ... of all, which still finds
repeats of many ids."""


@final
@dataclass(frozen=True, eq=False)
class Ids:
    """keys: (m,) sorted 64-bit hashes of ids. places: (m,) of their rows. share: one in 2^share of all is looked at.
    repeats: of ids that were there before. again: the places of the first of them."""

    keys: Array
    places: Ints
    share: int = 0
    repeats: int = 0
    again: tuple[int, ...] = ()

    def merge(self, other: Ids) -> Ids:
        share = max(self.share, other.share)
        a, b = self.within(share), other.within(share)
        keys, places = np.concatenate([a.keys, b.keys]), np.concatenate([a.places, b.places])
        return ids_of(keys, places, share, a.repeats + b.repeats, (*a.again, *b.again))

    def within(self, share: int) -> Ids:
        """The ids whose hash falls into one part of 2^share."""
        if share == self.share:
            return self
        kept = (self.keys & np.uint64(2**share - 1)) == 0
        return Ids(self.keys[kept], self.places[kept], share, self.repeats, self.again)


def ids_of(keys: Array, places: Ints, share: int = 0, repeats: int = 0, again: tuple[int, ...] = ()) -> Ids:
    """The distinct ids of rows, and how many of the rows repeat one; keys: (n,), places: (n,)."""
    order = np.lexsort((places, keys))
    keys, places = keys[order], places[order]
    twice = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if len(twice):
        again = (*again, *np.sort(places[twice])[:SHOWN].tolist())
        keys, places = np.delete(keys, twice), np.delete(places, twice)
    ids = Ids(keys, places, share, repeats + len(twice), tuple(sorted(again)[:SHOWN]))
    while len(ids.keys) > MOST:
        ids = ids.within(ids.share + 1)
    return ids
