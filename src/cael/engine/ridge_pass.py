"""The pass that trains Ridge: sums by fold and action, which merge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.engine.passes import pieces, reduced
from cael.engine.predictions import Folded
from cael.errors import CaelError
from cael.log.batch import Batch, chunks
from cael.log.held import EngineLog
from cael.log.keys import parts_of_keys
from cael.log.logged import LoggedData
from cael.log.pieces import Piece, Reading
from cael.log.targets import Target
from cael.outcomes.action_sums import Summing, Sums
from cael.outcomes.outcome_model import FittedOutcome
from cael.outcomes.ridge import FOLDS, Choice, Inputs, Ridge
from cael.policies.expectations import totals
from cael.policies.policy import Policy, probabilities


@final
@dataclass(frozen=True, eq=False)
class RidgeWork:
    """What is summed: parts of the rows, around shifts of contexts and of each reward. by_action: see `Summing`."""

    reading: Reading
    folds: int
    halves: int
    seed: int
    x_shift: Floats
    r_shifts: tuple[float, ...]
    by_action: bool

    @property
    def parts(self) -> int:
        return self.folds * self.halves


@final
@dataclass(frozen=True, eq=False)
class RidgeSums:
    """The sums of each part, of so many rows, and the same of further rewards."""

    parts: tuple[Sums, ...]
    rows: int
    others: tuple[RidgeSums, ...] = ()

    def merge(self, other: RidgeSums) -> RidgeSums:
        others = tuple(a.merge(b) for a, b in zip(self.others, other.others, strict=True))
        parts = tuple(a.plus(b) for a, b in zip(self.parts, other.parts, strict=True))
        return RidgeSums(parts, self.rows + other.rows, others)

    @property
    def all(self) -> tuple[RidgeSums, ...]:
        """Those of each reward."""
        return (replace(self, others=()), *self.others)

    def as_rows(self) -> RidgeSums:
        """Of rows with sampling weights: the sums with weights that average 1, so that penalties mean the same."""
        scale = self.rows / max(sum(float(part.counts.sum()) for part in self.parts), 1e-300)
        parts = tuple(part.times(scale) for part in self.parts)
        return RidgeSums(parts, self.rows, tuple(other.as_rows() for other in self.others))


def ridge_run(work: RidgeWork, task: object) -> RidgeSums:
    """The sums of one task."""
    k = work.reading.n_actions
    sums = Summing(work.parts, k, work.x_shift, work.r_shifts, by_action=work.by_action)
    rows = 0
    for _, piece in pieces(work.reading, task):
        sums.add(_parts(work, piece), piece.actions, piece.contexts, (piece.rewards, *piece.metrics), piece.sampling)
        rows += len(piece)
    first, *others = (RidgeSums(tuple(sums.done(number)), rows) for number in range(len(work.r_shifts)))
    return RidgeSums(first.parts, rows, tuple(others))


def _parts(work: RidgeWork, piece: Piece) -> Ints:
    if work.parts == 1:
        return np.zeros(len(piece), dtype=np.intp)
    return parts_of_keys(piece.keys, work.folds, work.halves, work.seed)


def cut_of(model: Ridge, folds: int) -> tuple[int, int]:
    """(folds, halves) in which the rows are summed: more than the folds where penalties are chosen on the rest."""
    if not isinstance(model.alpha, str):
        return max(1, folds), 1
    return (FOLDS, 1) if folds < 2 else (2, 2) if folds == 2 else (folds, 1)


def sums_of(model: Ridge, folds: int, log: EngineLog) -> tuple[int, int, bool]:
    """What `ridge_sums` is to sum for a model: folds, halves, and whether by action."""
    cut = cut_of(model, folds)
    return *cut, model.sums_by_action(cut[0] * cut[1], log.n_actions, log.context_dim)


def ridge_sums(log: EngineLog, folds: int, halves: int, seed: int, by_action: bool) -> RidgeSums:
    """The sums of a pass over the log, of all the metrics that it measures."""
    probe = log.probe(contexts=True)
    reading = log.reading(contexts=True, propensities=False)
    x, rewards = probe.contexts, (probe.rewards, *probe.metrics)
    if not len(probe):  # every row is flawed, which the pass will say
        x, rewards = np.zeros((1, x.shape[1])), tuple(np.zeros(1) for _ in rewards)
    r_shifts = tuple(float(r.mean()) for r in rewards)
    work = RidgeWork(reading, folds, halves, seed, x.mean(axis=0), r_shifts, by_action)
    sums = reduced(ridge_run, work, log)
    return sums.as_rows() if log.weighted else sums


def balanced(
    model: Ridge, sums: RidgeSums, log: EngineLog, target: Target, *, interacting: bool = False
) -> FittedOutcome:
    """The model's `balancing` for a target, whose mean probabilities are those in the first rows of the log."""
    choice, probe = Choice(model, Inputs.of(model, like(log)), sums.parts), log.probe(contexts=True)
    try:
        policy, batch = target.on(probe), probe.batch()
        s = None if probe.sampling is None else probe.sampling / probe.sampling.mean()
        tilt = (
            tilted(policy, batch, sums.parts[0].x_shift, probe.counted if s is None else s)
            if interacting
            else totals(policy, batch, sampling=s)[:, None]
        )
    except CaelError:  # the pass says what is wrong, with its place
        tilt = np.ones((log.n_actions, 1 + log.context_dim)) / log.n_actions
    return choice.balancing(tilt / max(1, len(probe)), interacting=interacting)


def tilted(policy: Policy, batch: Batch, shift: Floats, counted: Floats) -> Floats:
    """(k, 1 + d) sums over rows of the probability of each action times [1, x - shift]. counted: (b,) how often each
    row counts."""
    sums = np.zeros((batch.n_actions, 1 + len(shift)))
    for rows in chunks(len(batch), batch.n_actions):
        part = batch.part(rows)
        inputs = np.column_stack([np.ones(len(part)), part.contexts - shift]) * counted[rows, None]
        sums += probabilities(policy, part).T @ inputs
    return sums


def solved(model: Ridge, sums: RidgeSums, folds: int, halves: int, log: EngineLog, seed: int) -> Folded:
    """The models of all folds; one of all rows without folds."""
    parts = list(sums.parts)
    without = [frozenset(range(at * halves, (at + 1) * halves)) for at in range(folds)] if folds >= 2 else [frozenset()]
    return Folded(tuple(model.solve_from(like(log), parts, without)), seed)


def like(log: EngineLog) -> LoggedData:
    """A log of two rows that has the actions and the contexts' width of this one: what Ridge asks of a log."""
    x = np.zeros((2, log.probe(contexts=True).contexts.shape[1]))
    return LoggedData(x, [0, 0], [0.0, 0.0], n_actions=log.n_actions, action_features=log.action_features)
