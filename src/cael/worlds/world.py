"""What a world is, how it draws actions, and what its settings may be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError, positive_int
from cael.log.batch import Batch
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

    def _means(self, members: Batch) -> Floats:
        return self.q(members.contexts)

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


def unlogged(
    contexts: Floats, n_actions: int, action_features: Floats | None = None, rows: Ints | None = None
) -> Batch:
    """Contexts as rows that a policy can see, before any action was taken. rows: their numbers."""
    n = len(contexts)
    return Batch(
        rows=slice(0, n) if rows is None else rows, contexts=contexts, actions=np.zeros(n, dtype=np.intp),
        rewards=np.zeros(n), propensities=None, n_actions=n_actions, action_features=action_features,
    )  # fmt: skip


def check_settings(world: object, **least: int) -> None:
    """The settings that worlds share, so far as this one has them. least: of its other whole numbers, the smallest."""
    settings = vars(world)
    for name, low in {"n_actions": 2, "context_dim": 1, "population": 2, **least}.items():
        if name in settings:
            positive_int(name, settings[name], least=low)
    for name in ("epsilon", "logging_epsilon", "flip"):
        if not 0 <= settings.get(name, 0) <= 1:
            raise InputError(f"{name} must be in [0, 1]; got {settings[name]!r}.")
    if not 0 <= settings.get("reward_std", 0) < np.inf:
        raise InputError(f"reward_std must be >= 0 and finite; got {settings['reward_std']!r}.")
    if not np.isfinite(settings.get("gamma", 0)):
        raise InputError(f"gamma must be finite; got {settings['gamma']!r}.")


def sigmoid(x: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * x))
