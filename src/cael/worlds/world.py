"""What a world is, and how it draws actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import numpy as np

from cael.common.types import Floats, Ints
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, Uniform
from cael.policies.scored import EpsilonGreedy, Softmax


@runtime_checkable
class World(Protocol):
    """A problem with known truth."""

    @property
    def target(self) -> Policy:
        """The policy whose value is asked for."""

    def sample(self, n: int, seed: int) -> LoggedData:
        """n rows of the logging policy."""

    def value(self, policy: Policy) -> float:
        """The true value of a policy."""


class ScoredWorld(ABC):
    """A world whose two policies follow from its expected rewards q."""

    n_actions: int
    gamma: float
    epsilon: float

    @abstractmethod
    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k)."""

    def _tilted(self, contexts: Floats) -> Floats:
        return self.gamma * self.q(contexts)

    @property
    def logging(self) -> Policy:
        """Softmax of gamma q."""
        return Uniform(self.n_actions) if self.gamma == 0 else Softmax(self._tilted)

    @property
    def target(self) -> Policy:
        """Epsilon-greedy on q."""
        return EpsilonGreedy(self.q, self.epsilon)


def draw_actions(p: Floats, rng: np.random.Generator) -> Ints:
    """One action per row of the probabilities p (b, k), by inversion."""
    edges = np.cumsum(p, axis=1)
    u = rng.random(len(p))[:, None] * edges[:, -1:]
    return (edges <= u).sum(axis=1)
