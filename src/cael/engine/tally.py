"""What is kept of importance weights: the largest of them, and a fine histogram. Both merge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.inference import weights as W
from cael.inference.overlap import binned
from cael.log.scratch import Scratch

SHIFT = 47
"""A weight's bin is its bits without the last 47: 32 bins for each factor of two."""

MOST_TOP = 2**18
"""Enough of the largest weights for the tail index of seven billion rows."""


@final
@dataclass(frozen=True, eq=False)
class Changed:
    """Of weights after a rule: the largest, and the number of rows whose weight the rule changed."""

    largest: float = 0.0
    rows: int = 0

    def merge(self, other: Changed) -> Changed:
        return Changed(max(self.largest, other.largest), self.rows + other.rows)


@final
@dataclass(frozen=True, eq=False)
class Tally:
    """Of unmodified weights. top: the largest `most` of them, in no order. bins: (m,) sorted numbers of the bins that
    hold weights; counts, sums: (m,) of the weights in each."""

    most: int
    top: Floats
    bins: Ints
    counts: Ints
    sums: Floats

    @property
    def largest(self) -> float:
        return float(self.top.max(initial=0.0))

    @property
    def zeros(self) -> int:
        """Rows with weight 0, or one too small for a float's full precision."""
        return int(self.counts[0]) if len(self.bins) and self.bins[0] == 0 else 0

    def merge(self, other: Tally) -> Tally:
        most = max(self.most, other.most)
        bins = np.union1d(self.bins, other.bins)
        counts, sums = np.zeros(len(bins), np.int64), np.zeros(len(bins))
        for tally in (self, other):
            place = np.searchsorted(bins, tally.bins)
            counts[place] += tally.counts
            sums[place] += tally.sums
        return Tally(most, largest_of(np.concatenate([self.top, other.top]), most), bins, counts, sums)

    def times(self, scale: float) -> Tally:
        """Of the weights times a number; the numbers of the bins stay, which only merging looks at."""
        return Tally(self.most, self.top * scale, self.bins, self.counts, self.sums * scale)

    def tail_index(self, n: int) -> float | None:
        """As `cael.inference.weights.tail_index` of all n weights; None where there is no tail to fit."""
        size = int(min(0.2 * n, 3 * math.sqrt(n)))
        if size + 1 > len(self.top) and len(self.top) < n:  # beyond seven billion rows
            size = len(self.top) - 1
        if size < 5:
            return None
        index = W.tail_of(np.sort(largest_of(self.top, size + 1)))
        return None if math.isnan(index) else index

    def top_share(self, n: int, total: float) -> float:
        """Share of all the weight on the heaviest 1% of n rows; inside a bin, all rows count as its mean."""
        left, weight = max(1, n // 100), 0.0
        for count, in_bin in zip(self.counts[::-1].tolist(), self.sums[::-1].tolist(), strict=True):
            taken = min(count, left)
            left, weight = left - taken, weight + in_bin * (taken / count)
            if left == 0:
                break
        return weight / total if total > 0 else 0.0

    def histogram(self, total: float) -> tuple[tuple[float, ...], tuple[int, ...], tuple[float, ...]]:
        """As `cael.inference.overlap.histogram`; the rows of a fine bin go where their mean lies."""
        positive = self.sums > 0
        if not positive.any():
            return (), (), ()
        means = self.sums[positive] / self.counts[positive]
        return binned(means, self.counts[positive], self.sums[positive], total)


def largest_of(w: Floats, most: int) -> Floats:
    return w if len(w) <= most else np.partition(w, len(w) - most)[len(w) - most :]


@final
class Tallying:
    """A tally that grows by batches of weights; it compares most of them with one number and no more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: list[Floats] = []
        self._size, self._floor = 0, -1.0
        self._scratch = Scratch()
        self._counts: Array = np.zeros(2**16 + 1, dtype=np.int64)
        self._sums: Array = np.zeros(2**16 + 1)

    def add(self, w: Floats) -> None:
        n = len(w)
        bits = np.right_shift(w.view(np.uint64), SHIFT, out=self._scratch.take("bits", n, np.uint64))
        place = bits.view(np.int64)
        first = int(place.min(initial=len(self._counts)))
        np.subtract(place, first, out=place)  # so that the counts of a batch are few
        counts = np.bincount(place)
        self._counts[first : first + len(counts)] += counts
        self._sums[first : first + len(counts)] += np.bincount(place, weights=w)
        above = np.greater(w, self._floor, out=self._scratch.take("above", n, np.bool_))
        new = w[above]  # a copy: the caller may use the array again
        if not len(new):
            return
        self._kept.append(new)
        self._size += len(new)
        if self._size > 2 * self.most:
            top = largest_of(np.concatenate(self._kept), self.most)
            self._kept, self._size, self._floor = [top], len(top), float(top.min())

    def done(self) -> Tally:
        self._counts[0] += self._counts[-1]  # the last bin is that of -0.0
        self._counts[-1] = 0
        bins = np.flatnonzero(self._counts)
        top = largest_of(np.concatenate(self._kept), self.most) if self._kept else np.empty(0)
        return Tally(self.most, top.copy(), bins, self._counts[bins], self._sums[bins])


def most_top(rows: int | None) -> int:
    """How many of the largest weights the tail index of so many rows needs."""
    return MOST_TOP if rows is None else min(MOST_TOP, int(3 * math.sqrt(rows)) + 2)
