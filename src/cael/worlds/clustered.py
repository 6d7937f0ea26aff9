"""The world of the OffCEM paper: clusters of actions with an effect of their own, and a residual of each action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import ClassVar, NamedTuple, final

import numpy as np

from cael.common.types import Floats, Ints, frozen
from cael.worlds.population import Population
from cael.worlds.smooth import SmoothWorld
from cael.worlds.world import draw_actions

DEGREE = 3
"""Of the polynomial of the context that a cluster's effect is; its standard deviation, too."""
SHARPNESS = 4.0
"""Spread of the logits from which an action's categories are drawn: one category has nearly all of the mass."""
MIXING = 10.0
"""The features of an action say so little about its cluster: its logits are divided by this."""


@final
@dataclass(frozen=True)
class OffCEMWorld(SmoothWorld):
    """The synthetic problem of OffCEM (Saito, Ren and Joachims 2023): q(x, a) = g(x, c(a)) + h(x, a).

    g is a cubic polynomial of the context with coefficients of its own for each cluster (standard deviation 3), plus
    four steps in x that all clusters share. h is linear in the context, the action's features and their products, with
    coefficients of its own for each cluster (standard deviation 1 in each). An action has `dims` categorical features
    of `categories` values, one-hot without the first; they hardly tell its cluster, which `clusters` does. Contexts are
    normal, of `population` users. Logging: softmax of gamma q, against the better actions by default. Target:
    epsilon-greedy on q. Reward noise: normal.

    Users, features, clusters and coefficients are fixed by `seed`; the authors draw users, features and clusters anew
    with each log, and their truth is that of a test set with other users and clusters. They use 3000 rows.

    >>> OffCEMWorld(n_actions=50, n_clusters=5).sample(100, seed=0)
    LoggedData(n=100, n_actions=50, context_dim=10, propensities, logging, action_features)
    """

    stream: ClassVar[int] = 0x0FFCE
    least: ClassVar[dict[str, int]] = {"n_clusters": 1, "dims": 1, "categories": 2, "context_dim": 6}
    n_actions: int = 1000
    context_dim: int = 10
    n_clusters: int = 50
    dims: int = 10
    categories: int = 5
    reward_std: float = 3.0
    gamma: float = -0.1
    epsilon: float = 0.2
    population: int = 200
    seed: int = 0

    @cached_property
    def _made(self) -> _Parts:
        """Everything random about the world, from its seed."""
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, self.stream]))
        contexts = rng.standard_normal((self.population, self.context_dim))
        features = _features(rng, self.n_actions, self.dims, self.categories)
        clusters = _clusters(rng, features, self.n_clusters)
        effect = _effect(rng, polynomial(contexts), self.n_clusters)
        residual = np.empty((1 + self.context_dim, self.n_actions))
        for cluster in np.unique(clusters):
            members = clusters == cluster
            residual[:, members] = _residual(rng, contexts, features[members])
        population = Population(contexts, self.n_actions, frozen(features))
        return _Parts(population, frozen(clusters), effect, residual, rng.uniform(-3, 3, 4))

    @property
    def clusters(self) -> Ints:
        """(k,) the cluster of each action, numbered from 0."""
        return self._made.clusters

    def effects(self, contexts: Floats) -> Floats:
        """g of all clusters, (b, d) -> (b, n_clusters)."""
        steps = steps_of(contexts) @ self._made.steps
        return polynomial(contexts) @ self._made.effect + steps[:, None]

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k)."""
        own: Floats = polynomial(contexts, 1) @ self._made.residual
        return own + self.effects(contexts)[:, self.clusters]


class _Parts(NamedTuple):
    """effect: (monomials, n_clusters). residual: (1 + d, k). steps: (4,) heights."""

    population: Population
    clusters: Ints
    effect: Floats
    residual: Floats
    steps: Floats


def polynomial(contexts: Floats, degree: int = DEGREE) -> Floats:
    """All monomials of the contexts (b, d) up to a degree, (b, m); the first is 1, the next are the contexts."""
    powers: list[Sequence[int]] = []
    for total in range(degree + 1):
        powers += combinations_with_replacement(range(contexts.shape[1]), total)
    return np.stack([contexts[:, list(power)].prod(axis=1) for power in powers], axis=1)


def steps_of(contexts: Floats) -> Floats:
    """Which of the four steps a context is on, (b, d) -> (b, 4)."""
    with np.errstate(divide="ignore"):
        first, middle = 1 / contexts[:, :3].mean(axis=1), 1 / contexts[:, 2:8].mean(axis=1)
    second, last = contexts[:, 1:3].mean(axis=1), contexts[:, 5:].mean(axis=1)
    return np.stack([first < 1.5, middle < -0.5, second > 3.0, last < 1.0], axis=1).astype(np.float64)


def _features(rng: np.random.Generator, k: int, dims: int, categories: int) -> Floats:
    """(k, dims * (categories - 1)) one-hot codes, without the first, of categories that are drawn for each action."""
    logits = SHARPNESS * rng.standard_normal((k * dims, categories))
    chance = np.exp(logits - logits.max(axis=1, keepdims=True))
    drawn = draw_actions(chance, rng)
    return np.eye(categories)[drawn][:, 1:].reshape(k, -1)


def _clusters(rng: np.random.Generator, features: Floats, count: int) -> Ints:
    """(k,) the cluster of each action, drawn with logits that are linear in its features; none is empty if k allows."""
    if count == 1:
        return np.zeros(len(features), dtype=np.intp)
    logits = features @ rng.uniform(-1, 1, (features.shape[1], count)) + rng.uniform(-1, 1, count)
    chance = np.exp((logits - logits.mean()) / logits.std() / MIXING)
    return np.unique(draw_actions(chance, rng), return_inverse=True)[1]


def _effect(rng: np.random.Generator, monomials: Floats, count: int) -> Floats:
    """(m, count) coefficients of monomials (N, m), so that the effects have mean 0 and standard deviation DEGREE.

    The authors' polynomial of degree 3 in the one-hot code of a cluster holds the code three times: as itself, its
    square and its cube.
    """
    shared, own = rng.uniform(-1, 1, (2, monomials.shape[1])), rng.uniform(-1, 1, (3, monomials.shape[1], count))
    coefficients = shared.sum(axis=0)[:, None] + own.sum(axis=0)
    coefficients[0] += rng.uniform(-1, 1, (3, count)).sum(axis=0)
    return _standardised(monomials, coefficients, DEGREE)


def _residual(rng: np.random.Generator, contexts: Floats, features: Floats) -> Floats:
    """(1 + d, members) coefficients of 1 and the context, for the actions of one cluster."""
    slopes = rng.uniform(-1, 1, (1 + contexts.shape[1], 1 + features.shape[1]))
    slopes[:, 0] += rng.uniform(-1, 1, 1 + contexts.shape[1])
    slopes[0] += rng.uniform(-1, 1, 1 + features.shape[1])
    table = np.hstack([np.ones((len(features), 1)), features])
    return _standardised(polynomial(contexts, 1), slopes @ table.T, 1)


def _standardised(inputs: Floats, coefficients: Floats, spread: float) -> Floats:
    """Coefficients (m, j) so that inputs (N, m) @ coefficients has mean 0 and a standard deviation over everything."""
    values = inputs @ coefficients
    scaled = coefficients * (spread / values.std())
    scaled[0] -= spread * values.mean() / values.std()
    return scaled
