"""Worlds over a finite, fixed population of contexts: logs are drawn from it, and values are exact sums over it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import positive_int
from cael.log.batch import Batch
from cael.log.eligible import Eligible
from cael.log.logged import LoggedData
from cael.policies.given import as_policy
from cael.policies.policy import Policy, probabilities
from cael.worlds.world import draw_actions, unlogged


@final
@dataclass(frozen=True, eq=False)
class Population:
    """The contexts that a world draws from, with replacement and equal probability.

    contexts: (N, d). n_actions: k. action_features: (k, m) or None. eligible: actions of the members; None: all.
    """

    contexts: Floats
    n_actions: int
    action_features: Floats | None = None
    eligible: Eligible | None = None

    def batch(self, members: Ints) -> Batch:
        """Members of the population as rows that a policy can see."""
        rows = unlogged(self.contexts[members], self.n_actions, self.action_features, members)
        return replace(rows, eligible=self._eligible(members))

    def _eligible(self, members: Ints) -> Eligible | None:
        return None if self.eligible is None else self.eligible.part(members)

    def draw(self, n: int, policy: Policy, rng: np.random.Generator, actions: np.random.Generator) -> tuple[Ints, Ints]:
        """n members and the actions that `policy` takes for them; `actions` is the generator of the latter."""
        members = rng.integers(0, len(self.contexts), positive_int("n", n, least=2))
        return members, self.play(members, policy, actions)

    def play(self, members: Ints, policy: Policy, actions: np.random.Generator) -> Ints:
        """The actions that `policy` takes for members."""
        taken = [draw_actions(probabilities(policy, part), actions) for part in self.batch(members).parts()]
        return np.concatenate(taken)

    def log(self, members: Ints, actions: Ints, rewards: Floats, logging: Policy, **more: Any) -> LoggedData:
        return LoggedData(
            self.contexts[members], actions, rewards, logging=logging, n_actions=self.n_actions,
            action_features=self.action_features, eligible=self._eligible(members), **more,
        )  # fmt: skip


class PopulationWorld(ABC):
    """A world over a population, which is the first of what it is made of."""

    _made: Any

    @property
    def _population(self) -> Population:
        population: Population = self._made[0]
        return population

    @property
    def n_actions(self) -> int:
        """The number of actions k."""
        return self._population.n_actions

    @property
    def action_features(self) -> Floats | None:
        """(k, m) numbers that describe the actions, or None."""
        return self._population.action_features

    @abstractmethod
    def _means(self, members: Batch) -> Floats:
        """Expected rewards of all actions for some members of the population, (b, k)."""

    def value(self, policy: Policy) -> float:
        """The true value of a policy of contexts: an exact sum over the population."""
        policy, everyone = as_policy(policy), self._population.batch(np.arange(len(self._population.contexts)))
        sums = [
            float(np.einsum("ij,ij->", probabilities(policy, part), self._means(part))) for part in everyone.parts()
        ]
        return sum(sums) / len(everyone)


class DrawnWorld(PopulationWorld):
    """One whose logs are members, then actions, then rewards, all drawn from one random stream. stream: its number."""

    stream: ClassVar[int]

    @property
    @abstractmethod
    def logging(self) -> Policy:
        """The policy that makes the logs."""

    @abstractmethod
    def _rewards(self, members: Ints, actions: Ints, rng: np.random.Generator) -> Floats:
        """(n,) rewards of members of the population for the actions taken."""

    def sample(self, n: int, seed: int) -> LoggedData:
        """A log of n rows, contexts with replacement."""
        rng = generator(seed, self.stream)
        members, actions = self._population.draw(n, self.logging, rng, rng)
        return self._population.log(members, actions, self._rewards(members, actions, rng), self.logging)


def generator(seed: int, world: int) -> np.random.Generator:
    """The random stream of a log: its seed, and a number that keeps the worlds apart."""
    return np.random.default_rng(np.random.SeedSequence([positive_int("seed", seed, least=0), world]))
