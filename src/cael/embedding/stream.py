"""Random numbers that are the same on every device: each trial has its own stream, a hash of (seed, place)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from cael.embedding.arrays import AnyArray, Arrays, of


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x


LAST = 2**63 - 1
GOLDEN, FIRST, SECOND = (_signed(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mix(x: AnyArray) -> AnyArray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014) on int64, which wraps around like unsigned numbers."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * FIRST
    x = (x ^ ((x >> 27) & (2**37 - 1))) * SECOND
    return x ^ ((x >> 31) & (2**33 - 1))


@final
class Stream:
    """T independent streams, one per seed. The numbers depend on the seed and on how many were drawn before."""

    def __init__(self, seeds: Sequence[int], xp: Arrays) -> None:
        self.xp = xp
        self.keys = mix(xp.asarray([int(seed) for seed in seeds], xp.int64) * GOLDEN + GOLDEN)
        self.drawn = xp.zeros_like(self.keys)

    @property
    def trials(self) -> int:
        return len(self.keys)

    def bits(self, count: int, trials: slice | AnyArray = slice(None), used: int | AnyArray | None = None) -> AnyArray:
        """(T, count) random int64, for some of the trials; only their streams move on, by `used` (all) of them."""
        place = self.drawn[trials][:, None] + self.xp.arange(1, count + 1)
        self.drawn[trials] += count if used is None else used
        return mix(self.keys[trials][:, None] + place * GOLDEN)

    def uniform(self, *shape: int) -> AnyArray:
        """(T, *shape) float32 from U[0, 1)."""
        bits = (self.bits(math.prod(shape)) >> 40) & 0xFFFFFF
        return (self.xp.astype(bits, self.xp.float32) * 2.0**-24).reshape(self.trials, *shape)

    def kept(self, rate: float, *shape: int) -> AnyArray:
        """(T, *shape) bool, each False with probability `rate`, to 16 bits: a random number serves four of them."""
        count = math.prod(shape)
        parts = self.bits(-(-count // 4)).view(self.xp.int16)[:, :count]
        return (parts >= min(round(rate * 2**16), 2**16 - 1) - 2**15).reshape(self.trials, *shape)

    def shuffled(self, rows: AnyArray, trial: int) -> AnyArray:
        """One trial's rows in random order."""
        return rows[order(self.bits(len(rows), slice(trial, trial + 1)))[0]]

    def shuffled_together(self, rows: AnyArray, lengths: AnyArray, trials: AnyArray) -> AnyArray:
        """Padded rows (m, longest) of some trials, each in its own random order, the padding last; as one by one."""
        longest = rows.shape[1]
        bits = self.bits(longest, trials, lengths)
        padding = self.xp.arange(longest) >= lengths[:, None]
        return self.xp.take_along(rows, order(self.xp.where(padding, LAST, bits)))


def order(bits: AnyArray) -> AnyArray:
    """The order of each line of bits (T, count), by their upper part and then by place.

    With the place inside them they need only be sorted, which takes half the time of an order.
    """
    count, xp = bits.shape[1], of(bits)
    places = 2 ** max(0, count - 1).bit_length() - 1
    return xp.sort((bits & ~places) | xp.arange(count)) & places
