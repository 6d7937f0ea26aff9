"""Evidence: the rows that policies are learned from, with a cross-fitted reward model of all their actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.embedding.exact.rewards import SparseRewards, sparse_rewards
from cael.embedding.settings import Growth
from cael.learning.guardrails import Guard
from cael.log.batch import BATCH_BYTES, Batch, chunks
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, probabilities

MOST_CELLS = 2**23
"""Predictions of all actions are kept for at most so many rows times actions (32 MiB): beyond that a sample of the rows
trains the candidates."""
FEWEST = 2000
"""But of no fewer rows than these."""


def most_rows(n_actions: int, growth: Growth) -> int:
    """How many rows policies are learned from at most."""
    return min(growth.rows, max(FEWEST, MOST_CELLS // n_actions))


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """log: the rows. fold: (n,) of each. model: reward models, one for each fold, trained on the others. table: (n, k)
    what they predict. old: the policy that made the log. exact: whether it is that, and not a model of it. guards: what
    else must stay within its bounds. left_out: rows that are kept for the certificate."""

    log: LoggedData
    fold: Ints
    model: SparseRewards
    table: np.ndarray
    old: Policy
    exact: bool = True
    guards: tuple[Guard, ...] = ()
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.log)

    @property
    def folds(self) -> int:
        return len(self.model.folds)

    def blocks(self, rows: Ints) -> Iterator[tuple[Ints, Batch, Floats]]:
        """(row numbers, batch, old policy (b, k)) of some rows."""
        for part in chunks(len(rows), self.log.n_actions, BATCH_BYTES):
            batch = self.log.whole.part(rows[part])
            yield rows[part], batch, probabilities(self.old, batch)

    def predicted(self, rows: Ints) -> Floats:
        """(b, k) what the model predicts for some rows."""
        return self.table[rows].astype(np.float64)

    def some(self, most: int) -> Evidence:
        """At most so many of the rows, evenly spaced; its model is not cross-fitted any more."""
        rows = np.linspace(0, len(self) - 1, min(len(self), most)).astype(np.intp)
        return Evidence(self.log.take(rows), self.fold[rows], self.model, self.table[rows], self.old, self.exact)

    @cached_property
    def logged(self) -> Floats:
        """(n,) what the model predicts for the logged action."""
        return self.table[np.arange(len(self)), self.log.actions].astype(np.float64)

    @cached_property
    def left(self) -> Floats:
        """(n,) the reward less that prediction."""
        return self.log.rewards - self.logged

    @cached_property
    def usual(self) -> Floats:
        """(n,) what the model predicts for the old policy; where that is not known exactly, for the logged action."""
        if not self.exact:
            return self.logged
        values = np.empty(len(self))
        for rows, _, old in self.blocks(np.arange(len(self))):
            values[rows] = np.einsum("ij,ij->i", old, self.table[rows])
        return values

    @cached_property
    def pull(self) -> Floats:
        """(n,) the residual of the logged action over its propensity, shrunk where that is small: w' left with
        w' = w / (1 + w^2 / n), w = 1 / propensity."""
        assert self.log.propensities is not None
        w = 1 / self.log.propensities
        return np.asarray(w / (1 + w**2 / len(self)) * self.left)

    def gains(self, rows: Ints) -> Floats:
        """(b, k) doubly robust scores of all actions of some rows, less that of the old policy."""
        z = self.predicted(rows)
        z -= (self.usual[rows] + self.left[rows])[:, None]
        z[np.arange(len(rows)), self.log.actions[rows]] += self.pull[rows]
        return self._eligible(z, rows)

    def _eligible(self, z: Floats, rows: Ints) -> Floats:
        """The same, where an action that is not eligible gains nothing: the old policy is played instead."""
        eligible = self.log.whole.part(rows).eligible
        return z if eligible is None else np.where(eligible.mask(), z, 0.0)


def gathered(
    log: LoggedData, old: Policy, growth: Growth, folds: int, seed: int, *, exact: bool,
    guards: tuple[Guard, ...] = (), left_out: int = 0,
) -> Evidence:  # fmt: skip
    """The evidence of these rows: the networks are trained here, and nowhere else."""
    model = sparse_rewards([log], growth, folds, [seed])[0]
    fold, table = np.empty(len(log), dtype=np.intp), np.empty((len(log), log.n_actions), dtype=np.float32)
    for number, rows in enumerate(model.folds):
        fold[rows] = number
        for part in chunks(len(rows), log.n_actions):
            table[rows[part]] = model.predict(number, log.whole.part(rows[part]))
    return Evidence(log, fold, model, table, old, exact, guards, left_out)
