"""Two opposite worlds: actions that share nothing, and actions whose every feature matters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints, frozen
from cael.worlds.population import DrawnWorld, Population
from cael.worlds.world import ScoredWorld, check_settings


class SmoothWorld(ScoredWorld, DrawnWorld):
    """Normal contexts and noise. least: the smallest values of settings that are whole numbers, by name."""

    least: ClassVar[dict[str, int]]
    context_dim: int
    reward_std: float
    population: int
    seed: int

    def __post_init__(self) -> None:
        check_settings(self, **self.least)

    def _rewards(self, members: Ints, actions: Ints, rng: np.random.Generator) -> Floats:
        batch = self._population.batch(members)
        mean = batch.in_parts(lambda part, rows: self.q(part.contexts)[np.arange(len(part)), actions[rows]])
        return mean + self.reward_std * rng.standard_normal(len(members))


@final
@dataclass(frozen=True)
class IndependentWorld(SmoothWorld):
    """Rewards that are independent across actions: what one action earns says nothing about another.

    q(x, a) = b_a + sin(w_a'x + c_a) with b_a, w_a, c_a drawn for each action on its own. The action features, if
    feature_dim > 0, are standard normal and have nothing to do with the rewards. Contexts: standard normal. Logging:
    softmax of gamma q. Target: epsilon-greedy on q. Reward noise: normal.

    >>> IndependentWorld(population=500).sample(100, seed=0)
    LoggedData(n=100, n_actions=60, context_dim=5, propensities, logging, action_features)
    """

    stream: ClassVar[int] = 0x1DE
    least: ClassVar[dict[str, int]] = {"feature_dim": 0}
    n_actions: int = 60
    context_dim: int = 5
    reward_std: float = 0.5
    gamma: float = 0.5
    epsilon: float = 0.2
    feature_dim: int = 5
    population: int = 10_000
    seed: int = 0

    @cached_property
    def _made(self) -> tuple[Population, Floats, Floats, Floats]:
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, self.stream]))
        contexts = rng.standard_normal((self.population, self.context_dim))
        base, phase = rng.standard_normal(self.n_actions), rng.uniform(0, 2 * np.pi, self.n_actions)
        slopes = rng.standard_normal((self.context_dim, self.n_actions)) / np.sqrt(self.context_dim)
        features = frozen(rng.standard_normal((self.n_actions, self.feature_dim))) if self.feature_dim else None
        return Population(contexts, self.n_actions, features), base, phase, slopes

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k)."""
        _, base, phase, slopes = self._made
        return base + np.sin(contexts @ slopes + phase)


@final
@dataclass(frozen=True)
class DenseWorld(SmoothWorld):
    """A problem where every input matters: all context coordinates and all features of the action enter the reward.

    q(x, a) = x'B f(a) / sqrt(d m) + tanh(x'C f(a) / sqrt(d m)) with dense B, C; contexts and features f(a) are standard
    normal. Nothing can be dropped, so sparsity does not help. Logging: softmax of gamma q. Target: epsilon-greedy on q.

    >>> DenseWorld(population=500).sample(100, seed=0)
    LoggedData(n=100, n_actions=200, context_dim=10, propensities, logging, action_features)
    """

    stream: ClassVar[int] = 0xDE5E
    least: ClassVar[dict[str, int]] = {"feature_dim": 1}
    n_actions: int = 200
    context_dim: int = 10
    feature_dim: int = 10
    reward_std: float = 1.0
    gamma: float = 0.0
    epsilon: float = 0.2
    population: int = 10_000
    seed: int = 0

    @cached_property
    def _made(self) -> tuple[Population, Floats, Floats]:
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, self.stream]))
        contexts = rng.standard_normal((self.population, self.context_dim))
        features = frozen(rng.standard_normal((self.n_actions, self.feature_dim)))
        scale = np.sqrt(self.context_dim * self.feature_dim)
        linear, bent = rng.standard_normal((2, self.context_dim, self.feature_dim)) / scale
        return Population(contexts, self.n_actions, features), linear @ features.T, bent @ features.T

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k)."""
        _, linear, bent = self._made
        return contexts @ linear + np.tanh(contexts @ bent)
