"""The pass that trains Ridge: sums by fold and action, which merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.engine.passes import pieces, reduced
from cael.engine.predictions import Folded
from cael.log.held import EngineLog
from cael.log.keys import parts_of_keys
from cael.log.logged import LoggedData
from cael.log.pieces import Piece, Reading
from cael.outcomes.ridge import FOLDS, Ridge, Sums


@final
@dataclass(frozen=True, eq=False)
class RidgeWork:
    """What is summed: parts of the rows, around shifts of contexts and rewards."""

    reading: Reading
    folds: int
    halves: int
    seed: int
    x_shift: Floats
    r_shift: float

    @property
    def parts(self) -> int:
        return self.folds * self.halves


@final
@dataclass(frozen=True, eq=False)
class RidgeSums:
    """The sums of each part."""

    parts: tuple[Sums, ...]

    def merge(self, other: RidgeSums) -> RidgeSums:
        return RidgeSums(tuple(a.plus(b) for a, b in zip(self.parts, other.parts, strict=True)))


@final
class Summing:
    """Sums of one task that grow by batches; f parts, k actions, d contexts."""

    def __init__(self, f: int, k: int, d: int) -> None:
        self.f, self.k = f, k
        self.counts, self.r_sum, self.x_sum = np.zeros(f * k), np.zeros(f * k), np.zeros((f * k, d))
        self.xx, self.xr, self.rr = np.zeros((f, d, d)), np.zeros((f, d)), np.zeros(f)

    def add(self, part: Ints, actions: Ints, x: Floats, r: Floats) -> None:
        cell, size = part * self.k + actions, self.f * self.k
        self.counts += np.bincount(cell, minlength=size)
        self.r_sum += np.bincount(cell, weights=r, minlength=size)
        self.rr += np.bincount(part, weights=r * r, minlength=self.f)
        for column in range(x.shape[1]):
            self.x_sum[:, column] += np.bincount(cell, weights=x[:, column], minlength=size)
        for number in range(self.f):
            mine = slice(None) if self.f == 1 else part == number
            self.xx[number] += x[mine].T @ x[mine]
            self.xr[number] += x[mine].T @ r[mine]

    def done(self, x_shift: Floats, r_shift: float) -> RidgeSums:
        cuts = [slice(at * self.k, (at + 1) * self.k) for at in range(self.f)]
        return RidgeSums(
            tuple(
                Sums(self.counts[s], self.x_sum[s], self.r_sum[s], self.xx[at], self.xr[at], float(self.rr[at]),
                     x_shift, r_shift)
                for at, s in enumerate(cuts)
            )
        )  # fmt: skip


def ridge_run(work: RidgeWork, task: object) -> RidgeSums:
    """The sums of one task."""
    sums = Summing(work.parts, work.reading.n_actions, len(work.x_shift))
    for _, piece in pieces(work.reading, task):
        part = _parts(work, piece)
        sums.add(part, piece.actions, piece.contexts - work.x_shift, piece.rewards - work.r_shift)
    return sums.done(work.x_shift, work.r_shift)


def _parts(work: RidgeWork, piece: Piece) -> Ints:
    if work.parts == 1:
        return np.zeros(len(piece), dtype=np.intp)
    return parts_of_keys(piece.keys, work.folds, work.halves, work.seed)


def cut_of(model: Ridge, folds: int) -> tuple[int, int]:
    """(folds, halves) in which the rows are summed: more than the folds where penalties are chosen on the rest."""
    if not isinstance(model.alpha, str):
        return max(1, folds), 1
    return (FOLDS, 1) if folds < 2 else (2, 2) if folds == 2 else (folds, 1)


def ridge_sums(log: EngineLog, folds: int, halves: int, seed: int) -> RidgeSums:
    """The sums of a pass over the log."""
    probe = log.probe(contexts=True)
    reading = log.reading(contexts=True, propensities=False)
    work = RidgeWork(
        reading, folds, halves, seed, probe.contexts.mean(axis=0), float(probe.rewards.mean()) if len(probe) else 0.0
    )
    return reduced(ridge_run, work, log)


def solved(model: Ridge, sums: RidgeSums, folds: int, halves: int, log: EngineLog, seed: int) -> Folded:
    """The models of all folds; one of all rows without folds."""
    parts = list(sums.parts)
    without = [frozenset(range(at * halves, (at + 1) * halves)) for at in range(folds)] if folds >= 2 else [frozenset()]
    return Folded(tuple(model.solve_from(like(log), parts, without)), seed)


def like(log: EngineLog) -> LoggedData:
    """A log of two rows that has the actions and the contexts' width of this one: what Ridge asks of a log."""
    x = np.zeros((2, log.probe(contexts=True).contexts.shape[1]))
    return LoggedData(x, [0, 0], [0.0, 0.0], n_actions=log.n_actions, action_features=log.action_features)
