"""Actions described by categories, as in the paper on MIPS: the reward depends on the context and the categories."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, final

import numpy as np

from cael.common.types import Floats, Ints, frozen
from cael.errors import InputError, choose
from cael.log.logged import LoggedData
from cael.worlds.population import Population, PopulationWorld, generator
from cael.worlds.world import ScoredWorld, check_settings, sigmoid

REWARDS = ("linear", "logistic", "sparse")


@final
@dataclass(frozen=True)
class EmbeddingWorld(ScoredWorld, PopulationWorld):
    """Actions with categorical embeddings (Saito and Joachims 2022), through which alone they act on the reward.

    An action has `dims` embedding dimensions of `categories` values each. q(x, e) = sum_d importance_d s_d(x, e_d) with
    s_d(x, c) = theta_c + x'A_d[c], each s_d standardised over the population. Contexts are standard normal. The logging
    policy is the softmax of gamma q(x, a); the target is epsilon-greedy on q(x, a) = E[q(x, e) | a].

    reward: "linear" (normal noise of reward_std), "logistic" (binary, P(r = 1) = sigmoid(q)), or "sparse" (as linear,
    but only two context coordinates and the first embedding dimension matter).
    drawn: True draws e from p(e|a) with each row, as the MIPS paper does (`sample_embeddings` tells it, `density` is
    p(e|a), and the log's action_features are p(e|a)); False gives each action one embedding, and its features are the
    one-hot codes of it. hidden: how many of the dimensions the features leave out.
    obp_defects: True repeats two defects of obp's generator, to compare with numbers published with it: the scores are
    not standardised (x - mean/std in place of (x - mean)/std), and every log draws its actions and embeddings from one
    and the same stream whatever its seed.

    >>> world = EmbeddingWorld(n_actions=50, population=500)
    >>> world.sample(100, seed=0)
    LoggedData(n=100, n_actions=50, context_dim=10, propensities, logging, action_features)
    """

    stream: ClassVar[int] = 0xE3B
    n_actions: int = 200
    context_dim: int = 10
    dims: int = 3
    categories: int = 5
    reward: str = "linear"
    reward_std: float = 1.0
    gamma: float = -1.0
    epsilon: float = 0.05
    drawn: bool = False
    hidden: int = 0
    obp_defects: bool = False
    population: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self, dims=1, categories=2, hidden=0)
        choose("reward", self.reward, REWARDS)
        if self.hidden >= self.dims:
            raise InputError(f"hidden must be less than dims = {self.dims}; got {self.hidden}.")

    @cached_property
    def _made(self) -> _Parts:
        """Everything random about the world, from its seed."""
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, self.stream]))
        contexts = rng.standard_normal((self.population, self.context_dim))
        logits = rng.standard_normal((self.n_actions, self.dims, self.categories))
        intercepts = rng.standard_normal((self.dims, self.categories))
        slopes = rng.standard_normal((self.dims, self.categories, self.context_dim)) / np.sqrt(self.context_dim)
        importance = rng.dirichlet(np.full(self.dims, 2.0))
        if self.reward == "sparse":
            slopes[:, :, 2:] = 0
            importance = np.eye(self.dims)[0]
        if self.drawn:
            density = np.exp(logits)
            density /= density.sum(axis=2, keepdims=True)
        else:
            density = np.eye(self.categories)[logits.argmax(axis=2)]
        raw = np.einsum("nx,dcx->ndc", contexts, slopes) + intercepts
        mean, std = raw.mean(axis=(0, 2)), raw.std(axis=(0, 2))
        shift, scale = (mean / std, np.ones(self.dims)) if self.obp_defects else (mean, std)
        shown = density[:, : self.dims - self.hidden].reshape(self.n_actions, -1)
        population = Population(contexts, self.n_actions, frozen(shown))
        return _Parts(population, density, intercepts, slopes, importance, shift, scale)

    @property
    def density(self) -> Floats:
        """p(e_d = c | a), shape (k, dims, categories)."""
        return self._made.density

    def scores(self, contexts: Floats) -> Floats:
        """s_d(x, c), weighted by importance: (b, d) -> (b, dims, categories)."""
        made = self._made
        raw = np.einsum("nx,dcx->ndc", contexts, made.slopes) + made.intercepts
        return (raw - made.shift[:, None]) / made.scale[:, None] * made.importance[:, None]

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k)."""
        scores = self.scores(contexts)
        if self.reward != "logistic":
            return scores.reshape(len(contexts), -1) @ self.density.reshape(self.n_actions, -1).T
        total = np.zeros((len(contexts), self.n_actions))
        for codes in np.ndindex(*(self.categories,) * self.dims):
            chance = np.prod([self.density[:, d, c] for d, c in enumerate(codes)], axis=0)
            if chance.any():
                total += sigmoid(scores[:, range(self.dims), codes].sum(axis=1))[:, None] * chance
        return total

    def sample(self, n: int, seed: int) -> LoggedData:
        """A log of n rows."""
        return self.sample_embeddings(n, seed)[0]

    def sample_embeddings(self, n: int, seed: int) -> tuple[LoggedData, Ints]:
        """A log of n rows and the (n, shown dimensions) categories drawn with them, for MIPS(row_embeddings=...)."""
        rng = generator(seed, self.stream)
        inner = generator(0, 0x0B9) if self.obp_defects else rng
        members, actions = self._population.draw(n, self.logging, rng, inner)
        edges = np.cumsum(self.density[actions], axis=2)
        u = inner.random((n, self.dims, 1)) * edges[:, :, -1:]
        codes = (edges <= u).sum(axis=2)
        scores = self.scores(self._population.contexts[members])
        mean = np.take_along_axis(scores, codes[:, :, None], axis=2)[:, :, 0].sum(axis=1)
        if self.reward == "logistic":
            rewards = (rng.random(n) < sigmoid(mean)).astype(np.float64)
        else:
            rewards = mean + self.reward_std * rng.standard_normal(n)
        return self._population.log(members, actions, rewards, self.logging), codes[:, : self.dims - self.hidden]


class _Parts(NamedTuple):
    population: Population
    density: Floats
    intercepts: Floats
    slopes: Floats
    importance: Floats
    shift: Floats
    scale: Floats
