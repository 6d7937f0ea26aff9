"""Random numbers that are the same on every device: each trial has its own stream, a hash of (seed, place)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x


LAST = 2**63 - 1
GOLDEN, FIRST, SECOND = (_signed(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014) on int64, which wraps around like unsigned numbers."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * FIRST
    x = (x ^ ((x >> 27) & (2**37 - 1))) * SECOND
    return x ^ ((x >> 31) & (2**33 - 1))


@final
class Stream:
    """T independent streams, one per seed. The numbers depend on the seed and on how many were drawn before."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        start = torch.tensor([int(seed) for seed in seeds], dtype=torch.int64, device=device)
        self.keys = mix(start * GOLDEN + GOLDEN)
        self.drawn = torch.zeros_like(self.keys)

    @property
    def trials(self) -> int:
        return len(self.keys)

    @property
    def device(self) -> torch.device:
        return self.keys.device

    def bits(self, count: int, trials: slice | Tensor = slice(None), used: int | Tensor | None = None) -> Tensor:
        """(T, count) random int64, for some of the trials; only their streams move on, by `used` (all) of them."""
        place = self.drawn[trials][:, None] + torch.arange(1, count + 1, dtype=torch.int64, device=self.device)
        self.drawn[trials] += count if used is None else used
        return mix(self.keys[trials][:, None] + place * GOLDEN)

    def uniform(self, *shape: int) -> Tensor:
        """(T, *shape) float32 from U[0, 1)."""
        count = int(torch.Size(shape).numel())
        return (((self.bits(count) >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24).reshape(self.trials, *shape)

    def kept(self, rate: float, *shape: int) -> Tensor:
        """(T, *shape) bool, each False with probability `rate`, to 16 bits: a random number serves four of them."""
        count = int(torch.Size(shape).numel())
        parts = self.bits(-(-count // 4)).view(torch.int16)[:, :count]
        return (parts >= min(round(rate * 2**16), 2**16 - 1) - 2**15).reshape(self.trials, *shape)

    def shuffled(self, rows: Tensor, trial: int) -> Tensor:
        """One trial's rows in random order."""
        return rows[order(self.bits(len(rows), slice(trial, trial + 1)))[0]]

    def shuffled_together(self, rows: Tensor, lengths: Tensor, trials: Tensor) -> Tensor:
        """Padded rows (m, longest) of some trials, each in its own random order, the padding last; as one by one."""
        longest = rows.shape[1]
        bits = self.bits(longest, trials, lengths)
        padding = torch.arange(longest, device=self.device) >= lengths[:, None]
        return torch.gather(rows, 1, order(bits.masked_fill_(padding, LAST)))


def order(bits: Tensor) -> Tensor:
    """The order of each line of bits (T, count), by their upper part and then by place.

    With the place inside them they need only be sorted, which numpy does on a CPU in half the time that torch takes for
    an order.
    """
    count = bits.shape[1]
    places = 2 ** max(0, count - 1).bit_length() - 1
    packed = (bits & ~places) | torch.arange(count, device=bits.device)
    packed = torch.sort(packed, dim=1).values if bits.is_cuda else torch.as_tensor(np.sort(packed.numpy(), axis=1))
    return packed & places
