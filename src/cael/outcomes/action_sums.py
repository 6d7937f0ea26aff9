"""Sufficient statistics of contexts, actions and rewards, which train linear models of the reward and judge them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import final

import numpy as np

from cael.common.types import Floats, Ints

GROUP_CELLS = 1000
"""So many products of contexts take as long as the sums of one group of rows by itself."""


@final
@dataclass(frozen=True)
class Sums:
    """Sufficient statistics of (x, a, r), mergeable.

    counts: (k,). x: (k, d) and r: (k,), sums by action. xx: (g, d, d) and xr: (g, d), sums of products by action
    (g = k) or over all actions (g = 1). rr: sum of r^2. x and r are shifted by constants (the first batch's means),
    which keeps the digits when their means are large.
    """

    counts: Floats
    x: Floats
    r: Floats
    xx: Floats
    xr: Floats
    rr: float
    x_shift: Floats
    r_shift: float

    @property
    def by_action(self) -> bool:
        return len(self.xx) == len(self.counts)

    @cached_property
    def pooled(self) -> Sums:
        """The sums with products over all actions, which an additive model needs."""
        return replace(self, xx=self.xx.sum(axis=0)[None], xr=self.xr.sum(axis=0)[None])

    def times(self, scale: float) -> Sums:
        """Of rows that count so many times as much."""
        return Sums(
            self.counts * scale, self.x * scale, self.r * scale, self.xx * scale, self.xr * scale, self.rr * scale,
            self.x_shift, self.r_shift,
        )  # fmt: skip

    def plus(self, other: Sums, sign: int = 1) -> Sums:
        return Sums(
            self.counts + sign * other.counts, self.x + sign * other.x, self.r + sign * other.r,
            self.xx + sign * other.xx, self.xr + sign * other.xr, self.rr + sign * other.rr, self.x_shift, self.r_shift,
        )  # fmt: skip

    def squared_errors(self, effects: Floats, slopes: Floats) -> Floats:
        """(s,) of s models with shared slopes: effects (s, k), slopes (s, d); products summed over all actions."""
        along = np.einsum("sj,ij->si", slopes, self.x)
        cross = np.einsum("sj,j->s", slopes, self.xr[0]) + np.einsum("si,i->s", effects, self.r)
        within = np.einsum("si,ij,sj->s", slopes, self.xx[0], slopes)
        square = within + np.einsum("si,si->s", effects, 2 * along + self.counts * effects)
        return np.maximum(0.0, self.rr - 2 * cross + square)

    def squared_error(self, effect: Floats, slope: Floats) -> float:
        """sum (r - effect[a] - x'slope[a])^2 of the rows in these sums; effect (k,), slope (k, d) or (1, d)."""
        if len(slope) == 1 < len(self.xx):
            return self.pooled.squared_error(effect, slope)
        # einsum, not @: a threaded BLAS takes a hundred times as long for this where other work keeps the cores busy
        along = np.einsum("ij,ij->i", self.x, np.broadcast_to(slope, self.x.shape))
        cross = float(np.einsum("ij,ij->", self.xr, slope)) + float(self.r @ effect)
        within = (np.matmul(self.xx, slope[:, :, None])[:, :, 0] * slope).sum()
        square = float(within) + float(effect @ (2 * along + self.counts * effect))
        return max(0.0, self.rr - 2 * cross + square)


def total(parts: Sequence[Sums], without: Collection[int] = ()) -> Sums:
    """The sums of all parts together, but some."""
    everything = reduce(Sums.plus, parts)
    for at in sorted(without):
        everything = everything.plus(parts[at], sign=-1)
    return everything


@final
class Summing:
    """Sums that grow by batches of rows, for each of f parts of them; k actions, d contexts. r_shifts: of each of the m
    rewards, which share the sums of the contexts."""

    def __init__(self, f: int, k: int, x_shift: Floats, r_shifts: Sequence[float], *, by_action: bool) -> None:
        self.f, self.k, self.by_action, self.x_shift, self.r_shifts = f, k, by_action, x_shift, tuple(r_shifts)
        d, g, m = len(x_shift), f * k if by_action else f, len(self.r_shifts)
        self.counts, self.x = np.zeros(f * k), np.zeros((f * k, d))
        self.r, self.rr = np.zeros((m, f * k)), np.zeros((m, f))
        self.xx, self.xr = np.zeros((g, d, d)), np.zeros((m, g, d))

    def add(
        self, part: Ints, actions: Ints, contexts: Floats, rewards: Sequence[Floats], sampling: Floats | None = None
    ) -> None:
        """rewards: m arrays (n,). sampling: (n,) weights of the rows."""
        x = contexts - self.x_shift
        r = np.stack([column - shift for column, shift in zip(rewards, self.r_shifts, strict=True)])
        cell, size = part * self.k + actions, self.f * self.k
        self.counts += np.bincount(cell, weights=sampling, minlength=size)
        if sampling is not None:  # sums of products of what is multiplied by a root are sums by weight
            self._weighted(part, cell, x, r, sampling)
            return
        for at, column in enumerate(r):
            self.r[at] += np.bincount(cell, weights=column, minlength=size)
            self.rr[at] += np.bincount(part, weights=column * column, minlength=self.f)
        for column in range(x.shape[1]):
            self.x[:, column] += np.bincount(cell, weights=x[:, column], minlength=size)
        self._products(cell if self.by_action else part, x, r)

    def _weighted(self, part: Ints, cell: Ints, x: Floats, r: Floats, sampling: Floats) -> None:
        """The sums of rows with sampling weights."""
        root, size = np.sqrt(sampling), self.f * self.k
        for at, column in enumerate(r):
            self.r[at] += np.bincount(cell, weights=sampling * column, minlength=size)
            self.rr[at] += np.bincount(part, weights=sampling * column * column, minlength=self.f)
        for column in range(x.shape[1]):
            self.x[:, column] += np.bincount(cell, weights=sampling * x[:, column], minlength=size)
        self._products(cell if self.by_action else part, root[:, None] * x, root * r)

    def _products(self, group: Ints, x: Floats, r: Floats) -> None:
        """x'x and x'r of the rows of each group; where these are short, column by column."""
        if len(x) * x.shape[1] ** 2 < len(self.xx) * GROUP_CELLS:
            self._by_columns(group, x, r)
            return
        if len(self.xx) > 1:
            order = np.argsort(group, kind="stable")
            group, x, r = group[order], x[order], r[:, order]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(group)], strict=True):
            rows, at = x[start:stop], group[start]
            self.xx[at] += rows.T @ rows
            for number, column in enumerate(r):
                self.xr[number, at] += rows.T @ column[start:stop]

    def _by_columns(self, group: Ints, x: Floats, r: Floats) -> None:
        groups = len(self.xx)
        for i in range(x.shape[1]):
            for number, column in enumerate(r):
                self.xr[number, :, i] += np.bincount(group, weights=x[:, i] * column, minlength=groups)
            for j in range(i + 1):
                sums = np.bincount(group, weights=x[:, i] * x[:, j], minlength=groups)
                self.xx[:, i, j] += sums
                if i != j:
                    self.xx[:, j, i] += sums

    def done(self, number: int = 0) -> list[Sums]:
        """The sums of each part, of one of the rewards."""
        k, g, r, xr, rr = self.k, len(self.xx) // self.f, self.r[number], self.xr[number], self.rr[number]
        return [
            Sums(
                self.counts[at * k : (at + 1) * k], self.x[at * k : (at + 1) * k], r[at * k : (at + 1) * k],
                self.xx[at * g : (at + 1) * g], xr[at * g : (at + 1) * g], float(rr[at]), self.x_shift,
                self.r_shifts[number],
            )
            for at in range(self.f)
        ]  # fmt: skip
