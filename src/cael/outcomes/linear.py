"""Trained linear models: an effect for each action, and a slope on the context that actions share or have alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.log.batch import Batch
from cael.outcomes.outcome_model import FittedOutcome
from cael.policies.policy import Policy, fixed_on


@final
@dataclass(frozen=True)
class AdditiveOutcome(FittedOutcome):
    """q(x, a) = constant + x'slope + effect[a]: slope (d,), effect (k,)."""

    averages: ClassVar[bool] = True
    constant: float
    slope: Floats
    effect: Floats

    def _context_part(self, batch: Batch) -> Floats:
        return self.constant + batch.contexts @ self.slope

    def predict(self, batch: Batch) -> Floats:
        return self._context_part(batch)[:, None] + self.effect

    def at(self, batch: Batch, actions: Ints) -> Floats:
        return self._context_part(batch)[:, None] + self.effect[np.maximum(actions, 0)]

    def average(self, batch: Batch) -> Floats:
        return self._context_part(batch) + mean_of(self.effect, batch)

    def value(self, batch: Batch, p: Floats) -> Floats:
        # einsum, not @: a threaded BLAS takes a hundred times as long for this where other work keeps the cores busy
        return self._context_part(batch) + np.einsum("ij,j->i", p, self.effect)


@final
@dataclass(frozen=True)
class InteractingOutcome(FittedOutcome):
    """q(x, a) = effect[a] + (x - centre)'slope[a]: effect (k,), slope (k, d), centre (d,)."""

    averages: ClassVar[bool] = True
    effect: Floats
    slope: Floats
    centre: Floats

    def _centred(self, batch: Batch) -> Floats:
        return batch.contexts - self.centre

    def predict(self, batch: Batch) -> Floats:
        return self._centred(batch) @ self.slope.T + self.effect

    def at(self, batch: Batch, actions: Ints) -> Floats:
        named = np.maximum(actions, 0)
        if actions.shape[1] * 4 > batch.n_actions:
            return batch.in_parts(lambda part, rows: np.take_along_axis(self.predict(part), named[rows], axis=1))
        width = actions.shape[1] * self.slope.shape[1]
        return batch.in_parts(
            lambda part, rows: (
                np.einsum("ij,imj->im", self._centred(part), self.slope[named[rows]]) + self.effect[named[rows]]
            ),
            width,
        )

    def average(self, batch: Batch) -> Floats:
        if batch.eligible is None:
            return self._centred(batch) @ self.slope.mean(axis=0) + self.effect.mean()
        return np.einsum("ij,ij->i", self._centred(batch), mean_of(self.slope, batch)) + mean_of(self.effect, batch)

    def value(self, batch: Batch, p: Floats) -> Floats:
        of_policy = p @ np.column_stack([self.slope, self.effect])
        return np.einsum("ij,ij->i", self._centred(batch), of_policy[:, :-1]) + of_policy[:, -1]

    def expected(self, batch: Batch, policy: Policy) -> Floats:
        fixed = fixed_on(policy, batch)
        if fixed is None:
            return super().expected(batch, policy)
        return self._centred(batch) @ (fixed @ self.slope) + float(fixed @ self.effect)


def mean_of(values: Floats, batch: Batch) -> Floats:
    """The mean of values (k, ...) over the actions, or over those that are eligible on each row, (b, ...)."""
    if batch.eligible is None:
        return values.mean(axis=0)
    sizes = batch.eligible.sizes.reshape(-1, *[1] * (values.ndim - 1))
    return batch.eligible.sums(values) / sizes
