"""Sampled: an outcome model whose mean under a policy with very many actions is taken over a sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import positive_int
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.outcomes.outcome_model import FittedOutcome, OutcomeModel
from cael.policies import draws
from cael.policies.policy import Policy, draw, support


@final
@dataclass(frozen=True)
class Sampled(OutcomeModel):
    """q(x, pi) from `size` actions drawn for each row, instead of a visit to all of them.

    Listed actions of the policy count exactly, and draws stand for the rest of its mass; a policy without a list is
    drawn as it is. The mean over the draws is unbiased for q(x, pi), so DM and DR keep their expectation, and their
    intervals contain what the draws add to the variance (of q over the drawn actions, divided by n size). Nothing is
    drawn where the exact mean takes no visit to all actions: lists without a rest, `Ridge` with a list, k <= size.

    >>> import cael
    >>> cael.Sampled(cael.Logistic(C=2.0), 32)
    Sampled(model=Logistic(C=2.0, actions='auto'), size=32)
    """

    model: OutcomeModel
    size: int = 64

    def __post_init__(self) -> None:
        positive_int("size", self.size)

    @property
    def trains(self) -> bool:  # type: ignore[override]
        """Whether it is trained on the log."""
        return self.model.trains

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        return SampledOutcome(self.model.fit(log, seed), self.size, seed)

    def fit_without(self, log: LoggedData, held_out: list[Array], seed: int) -> list[FittedOutcome]:
        return [SampledOutcome(fitted, self.size, seed) for fitted in self.model.fit_without(log, held_out, seed)]


@final
@dataclass(frozen=True)
class SampledOutcome(FittedOutcome):
    """A trained model; `expected` is from draws that belong to the rows."""

    fitted: FittedOutcome
    size: int
    seed: int

    def predict(self, batch: Batch) -> Floats:
        return self.fitted.predict(batch)

    def at(self, batch: Batch, actions: Ints) -> Floats:
        return self.fitted.at(batch, actions)

    def expected(self, batch: Batch, policy: Policy) -> Floats:
        listed = support(policy, batch)
        exact = listed is not None and (self.fitted.averages or not listed.rest.any())
        if exact or batch.n_actions <= self.size:
            return self.fitted.expected(batch, policy)
        u = draws.uniforms(self.seed, batch.draw_numbers, self.size)
        if listed is None:
            return self.at(batch, draw(policy, batch, u)).mean(axis=1)
        others = listed.others(batch.n_actions)
        rest = self.at(batch, listed.unlisted(batch.n_actions, u)).mean(axis=1)
        value: Floats = np.einsum("ij,ij->i", listed.probabilities, self.at(batch, listed.actions))
        return value + listed.rest * others * rest
