"""The weights of CAEL in a stream: from a batch to columns of features, and sums that merge.

A row of fold j is weighted by the models of fold j, which were trained on rows of the sample that are in other folds:
whether or not a row is in the sample, no model that weights it has seen it, or a row of its cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from cael.common.types import Floats
from cael.embedding.arrays import NUMPY
from cael.engine.columns import Member
from cael.inference.weights import tail_of
from cael.log.batch import BATCH_BYTES, at_rows
from cael.log.pieces import Piece
from cael.policies.policy import Policy

if TYPE_CHECKING:
    from cael.embedding.exact.rewards import SparseRewards

MOST_TOP = 2**15
"""Of so many of the largest weights at each end of the blend, the tail index is made at most."""


@final
@dataclass(frozen=True, eq=False)
class Largest:
    """Rows with the largest smoothed or the largest sharp weights. pairs: (2, m), smoothed and sharp weight of each.
    floors: (2,) no row that is not among them has a larger one of either (-inf: all rows are among them)."""

    most: int
    pairs: Floats
    floors: Floats

    def merge(self, other: Largest) -> Largest:
        floors = np.maximum(self.floors, other.floors)
        return Largest(self.most, np.concatenate([self.pairs, other.pairs], axis=1), floors).cut()

    def cut(self) -> Largest:
        """At most `most` rows by each of the two."""
        if self.pairs.shape[1] <= 2 * self.most:
            return self
        first = self.pairs.shape[1] - self.most
        top = np.argpartition(self.pairs, first, axis=1)[:, first:]
        lowest = np.take_along_axis(self.pairs, top, axis=1).min(axis=1)
        return Largest(self.most, self.pairs[:, np.unique(top)], np.maximum(self.floors, lowest))

    def blended(self, share: float) -> Floats:
        """The largest of (1 - share) smoothed + share sharp, sorted: exactly those that no other row can exceed."""
        shares = np.array([1 - share, share])
        used = shares > 0
        weights = (shares[:, None] * self.pairs).sum(axis=0)
        sure = weights >= float(shares[used] @ self.floors[used])
        return np.sort(weights[sure] if sure.any() else weights)


def largest(smoothed: Floats, sharp: Floats, most: int) -> Largest:
    return Largest(most, np.stack([smoothed, sharp]), np.full(2, -np.inf)).cut()


@final
@dataclass(frozen=True, eq=False)
class PathSums:
    """Of some rows. sums: (6, J) of the numbers of `weights_of` after the first. tops: of each of the J bandwidths.
    Rows with sampling weights count by these."""

    sums: Floats
    tops: tuple[Largest, ...]

    def merge(self, other: PathSums) -> PathSums:
        return PathSums(self.sums + other.sums, tuple(a.merge(b) for a, b in zip(self.tops, other.tops, strict=True)))

    def tail_index(self, j: int, share: float, n: int) -> tuple[float, float | None]:
        """The largest blended weight of n rows, and the tail index (None: no tail) of as many as are known."""
        top = self.tops[j].blended(share)
        size = min(int(min(0.2 * n, 3 * math.sqrt(n))), len(top) - 1)
        if size < 5:
            return float(top[-1]), None
        tail = tail_of(top[len(top) - size - 1 :])
        return float(top[-1]), None if math.isnan(tail) else tail


@final
@dataclass(frozen=True, eq=False)
class Path:
    """How the columns of a target are made; a description that can be sent to another machine.

    target: its number. rewards: trained without the rows of its folds. folds, seed: of the folds. drawn: see
    `WeightPath`. r0: taken off the rewards. top: largest weights to keep. on_device: whether weights are made where the
    networks are. known: whether the logging policy is, and not fitted.
    """

    target: int
    rewards: SparseRewards
    bandwidths: Floats
    unit: float
    drawn: int | None
    folds: int
    seed: int
    form: str
    r0: float
    top: int
    on_device: bool = False
    known: bool = True

    @property
    def columns(self) -> tuple[Member, ...]:
        """The columns of `scores`; r - f; f less its mean over the actions of the logging policy; the place of the
        logged action (`TOWARDS`), and its product with r - f."""
        return tuple(Member(self, number) for number in range(2 * len(self.bandwidths) + 6))

    @property
    def residual(self) -> Member:
        """r - f."""
        return self.columns[-4]

    @property
    def controls(self) -> tuple[int, ...]:
        """The number of the column that has mean 0 whatever f is, if the logging policy is known."""
        return (2 * len(self.bandwidths) + 3,) if self.known else ()

    def of(self, piece: Piece, policy: Policy, logging: Policy | None) -> tuple[Floats, PathSums]:
        """The columns (2J + 6, n) of a batch, and its sums."""
        from cael.embedding.exact.scores import columns_of
        from cael.embedding.exact.weight_paths import DEVICE_BYTES, TABLES, TOWARDS, cells_of, weights_of, width_of

        assert logging is not None
        xp = self.rewards.xp if self.on_device else NUMPY
        n, count = len(piece), len(self.bandwidths)
        weights, f_logged, f_target, f_mean = np.empty((count, n)), np.empty(n), np.empty(n), np.empty(n)
        sums, pitches = np.zeros((6, count)), self.bandwidths * self.unit
        fold, whole = piece.folds(self.folds, self.seed), piece.batch()
        width = width_of(policy, whole.part(slice(0, 1)), self.drawn)
        size = max(1, (DEVICE_BYTES if self.on_device else BATCH_BYTES) // (8 * TABLES * width))
        for number in range(self.folds):
            rows = np.flatnonzero(fold == number)
            for at in range(0, len(rows), size):
                part = rows[at : at + size]
                cells = cells_of(logging, policy, self.rewards, number, whole.some(part), self.drawn, self.seed)
                numbers = weights_of(cells, pitches, xp)
                weights[:, part], sums = numbers[0], sums + _sums(numbers[1:], at_rows(piece.sampling, part))
                f_logged[part] = cells.logged(cells.f)
                f_target[part], f_mean[part] = (np.einsum("ij,ij->i", p, cells.f) for p in (cells.pi, cells.mu))
        columns = columns_of(weights, f_logged, f_target, piece.rewards, self.form, self.r0)
        used = weights if piece.sampling is None else weights * piece.sampling
        tops = tuple(largest(smoothed, used[0], self.top) for smoothed in used)
        left, place = piece.rewards - f_logged, weights[0] ** TOWARDS
        others = np.stack([left, f_logged - f_mean, place, place * left])
        return np.concatenate([columns, others]), PathSums(sums, tops)


def _sums(numbers: Floats, sampling: Floats | None) -> Floats:
    """Sums over the rows of numbers (6, J, b)."""
    sums: Floats = numbers.sum(axis=2) if sampling is None else numbers @ sampling
    return sums
