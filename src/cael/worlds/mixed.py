"""Worlds put together from parts: a shape of the rewards, a kind of noise, a logging policy and a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, TypeAlias, final

import numpy as np

from cael.common.types import Floats, Ints, frozen
from cael.errors import InputError, choose
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.policies.mixture import Mixture
from cael.policies.policy import Policy, Tabular, Uniform
from cael.policies.scored import EpsilonGreedy, Softmax
from cael.worlds.population import DrawnWorld, Population, generator
from cael.worlds.world import check_settings, sigmoid

LATENT = 5
"""How many numbers lie behind an action, where its features say something about the reward."""


# Noise


@final
class Noise(NamedTuple):
    """mean: effect times score (b, k) and rate -> expected rewards. draw: means (n,), reward_std, generator -> (n,)."""

    mean: Callable[[Floats, float], Floats]
    draw: Callable[[Floats, float, np.random.Generator], Floats]


def _chance(score: Floats, rate: float) -> Floats:
    return sigmoid(np.log(rate / (1 - rate)) + score)


def _revenue(mean: Floats, spread: float, rng: np.random.Generator) -> Floats:
    bought = rng.random(len(mean)) < mean
    amount = np.exp(spread * rng.standard_normal(len(mean)) - spread**2 / 2)
    return np.where(bought, amount, 0.0)


NOISES = {
    "normal": Noise(lambda score, rate: score, lambda mean, std, rng: mean + std * rng.standard_normal(len(mean))),
    "heavy": Noise(
        lambda score, rate: score, lambda mean, std, rng: mean + std / np.sqrt(3) * rng.standard_t(3, len(mean))
    ),
    "clicks": Noise(_chance, lambda mean, std, rng: (rng.random(len(mean)) < mean).astype(np.float64)),
    "revenue": Noise(_chance, _revenue),
    "counts": Noise(
        lambda score, rate: rate * np.exp(score), lambda mean, std, rng: rng.poisson(mean).astype(np.float64)
    ),
}

# Scores


@final
class _Score(NamedTuple):
    """outer(inner(x) M + c), shifted and scaled, and x'w. behind: (k, LATENT) numbers that lie behind it."""

    inner: Floats
    shift: Floats
    behind: Floats
    context: Floats
    mean: float = 0.0
    scale: float = 1.0


Draw: TypeAlias = Callable[[np.random.Generator, int, int, Floats], tuple[Floats, Floats, Floats]]
"""Generator, d, k, (k, LATENT) standard normal numbers -> M, c, and the numbers that lie behind the actions."""


@final
class Shape(NamedTuple):
    """draw: its random numbers. inner, outer: what is done to the contexts before M and to the products after it."""

    draw: Draw
    inner: Callable[[Floats], Floats] = lambda contexts: contexts
    outer: Callable[[Floats], Floats] = lambda product: product


def _slopes(rng: np.random.Generator, d: int, k: int) -> Floats:
    return rng.standard_normal((d, k)) / np.sqrt(d)


def _linear(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    return _slopes(rng, d, k), 0.5 * rng.standard_normal(k), behind


def _sparse(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    slopes = _slopes(rng, d, k)
    slopes[3:] = 0
    return slopes, 0.5 * rng.standard_normal(k), behind


def _waves(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    return 1.5 * _slopes(rng, d, k), rng.uniform(0, 2 * np.pi, k), behind


def _bumps(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    centre = np.linspace(-1.5, 1.5, k)
    first = np.zeros((d, k))
    first[0] = 1
    return first, -centre, np.column_stack([centre, behind[:, 1:]])


def _clusters(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    groups = max(2, min(25, k // 4))
    member = np.arange(k) % groups
    effects = rng.standard_normal(groups)[member] + 0.3 * rng.standard_normal(k)
    return _slopes(rng, d, groups)[:, member], effects, behind[:groups][member] + 0.1 * behind


def _items(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    return np.zeros((d, k)), rng.standard_normal(k), behind


def _interaction(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    return _slopes(rng, d, LATENT) @ behind.T, behind @ rng.standard_normal(LATENT) / 2, behind


def _tree(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    return rng.standard_normal((2 ** min(d, 3), k)), np.zeros(k), behind


def _none(rng: np.random.Generator, d: int, k: int, behind: Floats) -> tuple[Floats, Floats, Floats]:
    return np.zeros((d, k)), np.zeros(k), behind


def _orthants(contexts: Floats) -> Floats:
    """(b, d) -> (b, 2^min(d, 3)) which orthant of the first 3 coordinates a context lies in, one-hot."""
    signs = contexts[:, :3] > 0
    powers = 2 ** np.arange(signs.shape[1])
    return np.asarray(np.eye(2 ** signs.shape[1])[signs @ powers])


SHAPES = {
    "linear": Shape(_linear),
    "sparse": Shape(_sparse),
    "waves": Shape(_waves, outer=np.sin),
    "bumps": Shape(_bumps, outer=lambda product: np.exp(-2 * product**2)),
    "clusters": Shape(_clusters),
    "items": Shape(_items),
    "interaction": Shape(_interaction),
    "saturated": Shape(_interaction, outer=lambda product: np.tanh(2 * product)),
    "tree": Shape(_tree, inner=_orthants),
    "none": Shape(_none),
}


def _raw(shape: str, score: _Score, contexts: Floats) -> Floats:
    return SHAPES[shape].outer(SHAPES[shape].inner(contexts) @ score.inner + score.shift)


def _scores(shape: str, score: _Score, contexts: Floats) -> Floats:
    return (_raw(shape, score, contexts) - score.mean) * score.scale + (contexts @ score.context)[:, None]


def _score(world: MixedWorld, contexts: Floats, behind: Floats, rng: np.random.Generator) -> _Score:
    """A score of the world's shape; its scale is that on (at most) 1000 members of the population."""
    inner, shift, numbers = SHAPES[world.shape].draw(rng, world.context_dim, world.n_actions, behind)
    context = np.exp2(-np.arange(world.context_dim, dtype=np.float64))
    context *= np.sqrt(world.context_share / (context @ context))
    score = _Score(inner, shift, numbers, context)
    raw = _raw(world.shape, score, contexts[:1000])
    spread = raw.std()
    return score._replace(
        mean=float(raw.mean()), scale=float(np.sqrt(1 - world.context_share) / spread) if spread > 0 else 0.0
    )


# Policies


@final
@dataclass(frozen=True)
class _Seen:
    """Scores as a policy sees them, times a factor: contexts in, (b, k) out."""

    world: MixedWorld
    sight: float
    factor: float = 1.0

    def __call__(self, contexts: Floats) -> Floats:
        return self.factor * self.world.scores(contexts, self.sight)


def _arm(k: int, share: float) -> Policy:
    return Tabular(np.append(np.full(k - 1, (1 - share) / (k - 1)), share))


def _popular(k: int, power: float) -> Policy:
    odds = np.arange(1.0, k + 1) ** -power
    return Tabular(odds / odds.sum())


PLAYS: dict[str, Callable[[MixedWorld, Play], Policy]] = {
    "uniform": lambda world, play: Uniform(world.n_actions),
    "softmax": lambda world, play: Softmax(_Seen(world, play.sight, play.strength)),
    "greedy": lambda world, play: EpsilonGreedy(_Seen(world, play.sight), play.strength),
    "arm": lambda world, play: _arm(world.n_actions, play.strength),
    "popular": lambda world, play: _popular(world.n_actions, play.strength),
    "near": lambda world, play: Mixture(
        [EpsilonGreedy(_Seen(world, play.sight), 0.1), world.logging], [play.strength, 1 - play.strength]
    ),
}


@final
@dataclass(frozen=True)
class Play:
    """A policy of a `MixedWorld`. strength and sight: see there.

    >>> Play("greedy", 0.05)
    Play(kind='greedy', strength=0.05, sight=1.0)
    """

    kind: str = "uniform"
    strength: float = 1.0
    sight: float = 1.0

    def __post_init__(self) -> None:
        choose("kind", self.kind, tuple(PLAYS))
        if not -1 <= self.sight <= 1:
            raise InputError(f"sight must be in [-1, 1]; got {self.sight!r}.")


# Worlds


@final
@dataclass(frozen=True)
class MixedWorld(DrawnWorld):
    """A world from parts. Its score s(x, a) is the sum of a part of the context alone, of variance `context_share`, and
    a part of context and action with mean 0 and the rest of variance 1 over contexts and actions.

    shape, the second part: "linear" (x'w_a + b_a), "sparse" (the same with the first 3 coordinates of x), "waves"
    (sin(x'w_a + c_a)), "bumps" (each action is best for some x_1), "clusters" (x'w_c + b_c of the action's cluster c,
    and a small effect of its own), "items" (b_a), "interaction" (x'B f(a)), "saturated" (tanh of that), "tree" (a value
    for each action in each of the 8 orthants of the first 3 coordinates), or "none".
    noise: "normal", "heavy" (Student's t with 3 degrees of freedom) with q = effect s; "clicks" (0 or 1), "revenue"
    (mostly 0, else log-normal with mean 1) with q = sigmoid(logit(rate) + effect s); or "counts" (Poisson) with
    q = rate exp(effect s). reward_std: of the noise; for revenue of the logarithm.
    logging, target: `Play(kind, strength)`. kind: "uniform"; "softmax" of strength times the score; "greedy" on the
    score, with epsilon = strength; "arm" (the last action with probability strength, the others alike); "popular"
    (the a-th action with probability proportional to a^-strength); "near" (only for the target: with probability
    strength greedy with epsilon = 0.1, else as the logging policy). sight: the correlation of the score that a policy
    sees with the true one.
    feature_dim: 0, or the number of features of an action. The first 5 are what lies behind "bumps", "clusters",
    "interaction" and "saturated"; all others, and those of other shapes, say nothing.

    >>> MixedWorld(population=500).sample(100, seed=0)
    LoggedData(n=100, n_actions=20, context_dim=5, propensities, logging)
    """

    stream: ClassVar[int] = 0x317
    shape: str = "linear"
    noise: str = "normal"
    logging_play: Play = Play()
    target_play: Play = Play("greedy", 0.2)
    n_actions: int = 20
    context_dim: int = 5
    feature_dim: int = 0
    context_share: float = 0.0
    effect: float = 1.0
    rate: float = 0.05
    reward_std: float = 1.0
    population: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self, feature_dim=0)
        choose("shape", self.shape, tuple(SHAPES))
        choose("noise", self.noise, tuple(NOISES))
        if not 0 <= self.context_share <= 1:
            raise InputError(f"context_share must be in [0, 1]; got {self.context_share!r}.")
        if self.logging_play.kind == "near":
            raise InputError("the logging policy cannot be near itself: logging_play must be of another kind.")

    @cached_property
    def _made(self) -> tuple[Population, _Score, _Score]:
        """The population, the true score, and another of the same shape, which blurs what policies see."""
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, self.stream]))
        contexts = rng.standard_normal((self.population, self.context_dim))
        behind = rng.standard_normal((self.n_actions, LATENT))
        true, other = (_score(self, contexts, behind, rng) for _ in range(2))
        noise = rng.standard_normal((self.n_actions, self.feature_dim))
        features = frozen(np.hstack([true.behind, noise])[:, : self.feature_dim]) if self.feature_dim else None
        return Population(contexts, self.n_actions, features), true, other

    def scores(self, contexts: Floats, sight: float = 1.0) -> Floats:
        """The scores of all actions as a policy with this sight sees them, (b, d) -> (b, k)."""
        _, true, other = self._made
        seen = sight * _scores(self.shape, true, contexts)
        return seen if abs(sight) == 1 else seen + np.sqrt(1 - sight**2) * _scores(self.shape, other, contexts)

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k)."""
        return NOISES[self.noise].mean(self.effect * self.scores(contexts), self.rate)

    @property
    def logging(self) -> Policy:
        """The policy that makes the logs."""
        return PLAYS[self.logging_play.kind](self, self.logging_play)

    @property
    def target(self) -> Policy:
        """The policy whose value is asked for."""
        return PLAYS[self.target_play.kind](self, self.target_play)

    def _means(self, members: Batch) -> Floats:
        return self.q(members.contexts)

    def _rewards(self, members: Ints, actions: Ints, rng: np.random.Generator) -> Floats:
        batch = self._population.batch(members)
        mean = batch.in_parts(lambda part, rows: self.q(part.contexts)[np.arange(len(part)), actions[rows]])
        return NOISES[self.noise].draw(mean, self.reward_std, rng)


@final
@dataclass(frozen=True)
class LearningWorld:
    """A mixed world whose logging policy learns from its own log: after each of `stages` equal parts of the log it
    plays with probability 1 - epsilon the softmax of strength times the mean rewards of the actions so far, in their
    standard deviations, else any action. The log knows the probabilities of every row; no one policy made it.

    >>> LearningWorld(MixedWorld("items", population=500)).sample(100, seed=0).logging
    Tabular((100, 20))
    """

    world: MixedWorld
    stages: int = 10
    epsilon: float = 0.1
    strength: float = 2.0

    def __post_init__(self) -> None:
        check_settings(self, stages=1)

    @property
    def n_actions(self) -> int:
        """The number of actions k."""
        return self.world.n_actions

    @property
    def target(self) -> Policy:
        """The policy whose value is asked for."""
        return self.world.target

    def value(self, policy: Policy) -> float:
        """The true value of a policy."""
        return self.world.value(policy)

    def _learned(self, actions: Ints, rewards: Floats) -> Floats:
        """(k,) probabilities after some rows; an action counts as if it had earned the mean of all once more."""
        if len(actions) == 0:
            return np.full(self.n_actions, 1 / self.n_actions)
        count = 1 + np.bincount(actions, minlength=self.n_actions)
        mean = np.bincount(actions, rewards - rewards.mean(), self.n_actions) / count
        odds = np.exp(self.strength * mean / (mean.std() + 1e-12))
        return self.epsilon / self.n_actions + (1 - self.epsilon) * odds / odds.sum()

    def sample(self, n: int, seed: int) -> LoggedData:
        """A log of n rows, contexts with replacement."""
        rng, world = generator(seed, 0x1EA2), self.world
        members, actions, rewards, table = np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0), []
        for part in np.array_split(np.arange(n), min(self.stages, n // 2)):
            p = self._learned(actions, rewards)
            drawn, taken = world._population.draw(len(part), Tabular(p), rng, rng)
            members, actions = np.append(members, drawn), np.append(actions, taken)
            rewards = np.append(rewards, world._rewards(drawn, taken, rng))
            table.append(np.broadcast_to(p, (len(part), len(p))))
        return world._population.log(members, actions, rewards, Tabular(np.concatenate(table)))
