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
from cael.engine.predictions import placed, rows_of
from cael.inference.weights import tail_of
from cael.io.encode import Actions
from cael.log.keys import folds_of
from cael.log.logged import BATCH_BYTES
from cael.log.pieces import Piece
from cael.policies.policy import Policy

if TYPE_CHECKING:
    from cael.embedding.rewards import SparseRewards
    from cael.engine.demands import Key

SUMMED = ("second", "cross", "roughness", "lost", "smoothed")
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
        found = (shares[:, None] * self.pairs).sum(axis=0)
        sure = found >= float(shares[used] @ self.floors[used])
        return np.sort(found[sure] if sure.any() else found)


def largest(smoothed: Floats, sharp: Floats, most: int) -> Largest:
    return Largest(most, np.stack([smoothed, sharp]), np.full(2, -np.inf)).cut()


@final
@dataclass(frozen=True, eq=False)
class PathSums:
    """Of some rows. sums: (5, J) of SUMMED. tops: of each of the J bandwidths."""

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

    target: its number. rewards: trained, on the CPU, without the rows of its folds. folds, seed: of the folds. drawn:
    as of `WeightPath`. r0: taken off the rewards. top: largest weights to keep.
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

    @property
    def width(self) -> int:
        """The number of columns: those of `embedding.scores`, and r - f."""
        return 2 * len(self.bandwidths) + 3

    def of(self, piece: Piece, policy: Policy, logging: Policy, actions: Actions, file: int) -> tuple[Floats, PathSums]:
        """The columns (2J + 3, n) of a batch, and its sums."""
        from cael.embedding.scores import columns_of
        from cael.embedding.weight_paths import TABLES, block_path, cells_of, width_of

        n, count = len(piece), len(self.bandwidths)
        weights, f_logged, f_target = np.empty((count, n)), np.empty(n), np.empty(n)
        sums, pitches = np.zeros((len(SUMMED), count)), self.bandwidths * self.unit
        fold, whole = folds_of(piece, file, self.folds, self.seed), placed(piece, actions, file)
        size = max(1, BATCH_BYTES // (8 * TABLES * width_of(policy, whole.part(slice(0, 1)), self.drawn)))
        for number in range(self.folds):
            rows = np.flatnonzero(fold == number)
            for at in range(0, len(rows), size):
                some = rows[at : at + size]
                cells = cells_of(logging, policy, self.rewards, number, rows_of(whole, some), self.drawn, self.seed)
                found = block_path(cells, pitches)
                weights[:, some], f_logged[some], f_target[some] = found.weights, found.f_logged, found.f_target
                sums += np.stack([getattr(found, name).sum(axis=1) for name in SUMMED])
        columns = columns_of(weights, f_logged, f_target, piece.rewards, self.form, self.r0)
        tops = tuple(largest(each, weights[0], self.top) for each in weights)
        return np.concatenate([columns, (piece.rewards - f_logged)[None]]), PathSums(sums, tops)


def fill(
    rows: dict[Key, Floats],
    paths: tuple[Path, ...],
    piece: Piece,
    policies: list[Policy],
    logging: Policy | None,
    actions: Actions,
    file: int,
    predicted: dict[tuple[int, int], tuple[Floats, Floats]],
) -> tuple[PathSums, ...]:
    """Fill those rows (n,) that `features_of` does not know: ('path', path, column); ('d', target, outcome),
    what the model leaves of the reward; ('lost', target) and ('second', target), target mass that is never logged and
    sum_a pi^2 / mu. The sums of each path."""
    if not any(key[0] in ("path", "d", "lost", "second") for key in rows):
        return ()
    from cael.embedding.auto import second_moments
    from cael.estimators.problem import unsupported

    batch = piece.batch(slice(0, len(piece)), len(actions), actions.features)
    columns, sums = [], []
    for path in paths:
        assert logging is not None
        found = path.of(piece, policies[path.target], logging, actions, file)
        columns.append(found[0])
        sums.append(found[1])
    for key, row in rows.items():
        if key[0] == "path":
            row[:] = columns[int(key[1])][int(key[2])]  # type: ignore[arg-type]
        elif key[0] == "d":
            np.subtract(piece.rewards, predicted[key[1], key[2]][0], out=row)  # type: ignore[index]
        elif key[0] in ("lost", "second"):
            assert logging is not None
            made = unsupported if key[0] == "lost" else second_moments
            row[:] = made(logging, policies[int(key[1])], batch)  # type: ignore[arg-type]
    return tuple(sums)
