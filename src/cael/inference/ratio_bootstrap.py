"""Bootstraps of estimates that are ratios: numerator and denominator are resampled together, not their linear form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError
from cael.inference.intervals import Interval, bucketed

BLOCK = 64


@final
@dataclass(frozen=True)
class Ratios:
    """An estimate value + sum_j mean(numerators_j) / mean(denominators_j) of m independent units.

    numerators: (J, m), each with mean 0. denominators: (J, m), each with mean 1.
    """

    value: float
    numerators: Floats
    denominators: Floats

    @property
    def influence(self) -> Floats:
        """(m,) of the units."""
        total: Floats = self.numerators.sum(axis=0)
        return total

    @property
    def stderr(self) -> float:
        m = self.numerators.shape[1]
        return float(np.sqrt((self.influence**2).sum() / (m - 1) / m))

    def few(self, seed: int) -> Ratios:
        """The same of at most as many sums of units as a bootstrap resamples, each unit in the same sum everywhere."""
        parts = (np.stack([bucketed(row, seed) for row in rows]) for rows in (self.numerators, self.denominators))
        return Ratios(self.value, *parts)

    def drawn(self, resamples: int, seed: int, kind: type = np.int64) -> Iterator[tuple[Floats, Floats]]:
        """Blocks of resamples (J, b, m): their numerators and denominators. kind: of the numbers that are drawn."""
        rng, m = np.random.default_rng(seed), self.numerators.shape[1]
        for start in range(0, resamples, BLOCK):
            rows = rng.integers(0, m, size=(min(BLOCK, resamples - start), m), dtype=kind)
            yield self.numerators[:, rows], self.denominators[:, rows]


def by_cluster(ratios: Ratios, clusters: Ints) -> Ratios:
    """Units that are clusters of rows: scaled sums, also of the rows of a cluster, which are a denominator."""
    codes = np.unique(clusters, return_inverse=True)[1]
    scale = (codes.max() + 1) / len(codes)
    sums = (
        np.stack([scale * np.bincount(codes, weights=row) for row in rows])
        for rows in (ratios.numerators, ratios.denominators)
    )
    return Ratios(ratios.value, *sums)


def studentised(ratios: Ratios, level: float, *, resamples: int, seed: int) -> Interval:
    """Bootstrap of t = (value* - value) / stderr*, the error taken anew in each resample."""
    ratios = ratios.few(seed)
    value, spread = ratios.value, ratios.stderr
    if spread == 0:
        return Interval(value, value, level, "studentised")
    t = np.concatenate([_t(*block) for block in ratios.drawn(resamples, seed, np.uint16)])
    low, high = np.quantile(t, [0.5 - level / 2, 0.5 + level / 2], method="inverted_cdf")
    return Interval(value - float(high) * spread, value - float(low) * spread, level, "studentised")


def _t(numerators: Floats, denominators: Floats) -> Floats:
    """(b,) of resamples (J, b, m); one that has no denominator, or no spread, says nothing: an extreme value."""
    above, below = numerators.mean(axis=2), denominators.mean(axis=2)
    fine = (below > 0).all(axis=0)
    below = np.where(below > 0, below, 1.0)
    ratio, m = above / below, numerators.shape[2]
    influence = ((numerators - ratio[..., None] * denominators) / below[..., None]).sum(axis=0)
    shift = ratio.sum(axis=0)
    squares, size = (influence**2).sum(axis=1), (numerators**2).sum(axis=(0, 2))
    fine &= squares > 1e-12 * size
    error = np.sqrt(squares / (m - 1) / m)
    side = np.where(shift == 0, np.where(np.arange(len(shift)) % 2 == 0, 1.0, -1.0), shift)
    return np.divide(shift, error, out=np.copysign(np.inf, side), where=fine)


def bca(ratios: Ratios, level: float, *, resamples: int, seed: int) -> Interval:
    """Bias-corrected and accelerated bootstrap (Efron 1987), with the jackknife's acceleration."""
    from scipy.special import ndtr, ndtri

    ratios = ratios.few(seed)
    value = ratios.value
    if ratios.stderr == 0:
        return Interval(value, value, level, "bca")
    blocks = [(a.mean(axis=2), b.mean(axis=2)) for a, b in ratios.drawn(resamples, seed)]
    above, below = (np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True))
    fine = (below > 0).all(axis=0)
    shifts = (above[:, fine] / below[:, fine]).sum(axis=0)
    share = float((shifts < 0).mean() + (shifts <= 0).mean()) / 2
    if not 0 < share < 1:
        raise InputError(
            f"method='bca': all of the {resamples} resampled values lie on one side of the value. Give more resamples, "
            "or use method='t'."
        )
    bias = ndtri(share)
    ends = bias + ndtri([0.5 - level / 2, 0.5 + level / 2])
    low, high = np.quantile(shifts, ndtr(bias + ends / (1 - acceleration(ratios) * ends)))
    return Interval(value + float(low), value + float(high), level, "bca")


def acceleration(ratios: Ratios) -> float:
    """Of the jackknife: from the values without one unit each."""
    rest = ratios.denominators.sum(axis=1, keepdims=True) - ratios.denominators
    without = np.divide(-ratios.numerators, rest, out=np.zeros_like(rest), where=rest > 0).sum(axis=0)
    centred = without.mean() - without
    size = float((centred**2).sum())
    return float((centred**3).sum()) / size**1.5 / 6 if size > 0 else 0.0
