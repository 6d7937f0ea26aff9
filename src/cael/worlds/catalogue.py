"""A catalogue: items that come and go, so that only some of them are eligible on each day."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError, positive_int
from cael.log.batch import Batch
from cael.log.eligible import Eligible, of_mask, sets_of
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, Uniform
from cael.policies.scored import Softmax
from cael.worlds.population import DrawnWorld, Population, generator
from cael.worlds.world import check_settings, sigmoid


@final
@dataclass(frozen=True)
class CatalogueWorld(DrawnWorld):
    """Items of a catalogue, each on sale for one stretch of the days (which may go on from the last to the first day).

    Rewards are clicks: q(x, a) = sigmoid(level + z(x, a)), with z(x, a) = appeal of the item + x'taste of the item,
    scaled to standard deviation `spread`. Logging: softmax of gamma z over the items of the day (0: uniform over them).
    Target: softmax of delta z over them. Rows are in the order of the days, which are their timestamps. Users, items
    and days are fixed by `seed`; `share` of the days an item is on sale for, on average.

    >>> CatalogueWorld(n_actions=60, days=20).sample(100, seed=0)
    LoggedData(n=100, n_actions=60, context_dim=3, propensities, logging, timestamps, eligible)
    """

    stream: ClassVar[int] = 0xCA7A
    n_actions: int = 60
    days: int = 20
    share: float = 0.35
    context_dim: int = 3
    level: float = -1.5
    spread: float = 0.5
    gamma: float = 1.0
    delta: float = 3.0
    population: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self, days=1)
        if not 0 < self.share <= 1:
            raise InputError(f"share must be in (0, 1]; got {self.share!r}.")
        if not np.isfinite([self.level, self.spread, self.delta]).all() or self.spread < 0:
            raise InputError("level, spread and delta must be finite, and spread >= 0.")

    @cached_property
    def _made(self) -> _Parts:
        """Everything random about the world, from its seed. Members of the population are users on days."""
        rng = generator(self.seed, self.stream)
        contexts = rng.standard_normal((self.population, self.context_dim))
        taste = rng.standard_normal((1 + self.context_dim, self.n_actions))
        taste *= self.spread / max(float((_with_one(contexts) @ taste).std()), 1e-300)
        mask = on_sale(rng, self.n_actions, self.days, self.share)
        sets, _, _ = sets_of(*of_mask(mask), self.n_actions)
        day = np.repeat(np.arange(self.days), self.population)
        everyone = Population(
            np.tile(contexts, (self.days, 1)), self.n_actions, None, Eligible(sets.sets, sets.codes[day])
        )
        return _Parts(everyone, taste, mask, day)

    @property
    def on_sale(self) -> Array:
        """(days, k) whether an item can be bought on a day."""
        return self._made.mask

    def z(self, contexts: Floats) -> Floats:
        """How much users like all items, (b, d) -> (b, k)."""
        liking: Floats = _with_one(contexts) @ self._made.taste
        return liking

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all items, (b, d) -> (b, k)."""
        return sigmoid(self.level + self.z(contexts))

    def _means(self, members: Batch) -> Floats:
        return self.q(members.contexts)

    def _tilted(self, contexts: Floats) -> Floats:
        return self.gamma * self.z(contexts)

    def _aimed(self, contexts: Floats) -> Floats:
        return self.delta * self.z(contexts)

    @property
    def logging(self) -> Policy:
        """Softmax of gamma z over the items of the day."""
        return Uniform(self.n_actions) if self.gamma == 0 else Softmax(self._tilted)

    @property
    def target(self) -> Policy:
        """Softmax of delta z over the items of the day."""
        return Softmax(self._aimed)

    def _rewards(self, members: Ints, actions: Ints, rng: np.random.Generator) -> Floats:
        liking = np.einsum("ij,ji->i", _with_one(self._made.everyone.contexts[members]), self._made.taste[:, actions])
        return (rng.random(len(members)) < sigmoid(self.level + liking)).astype(np.float64)

    def sample(self, n: int, seed: int) -> LoggedData:
        """A log of n rows in the order of the days."""
        rng = generator(seed, self.stream)
        everyone = self._made.everyone
        members = np.sort(rng.integers(0, len(everyone.contexts), positive_int("n", n, least=2)))
        actions = everyone.play(members, self.logging, rng)
        rewards = self._rewards(members, actions, rng)
        return everyone.log(members, actions, rewards, self.logging, timestamps=self._made.day[members])


class _Parts(NamedTuple):
    """everyone: all users on all days. taste: (1 + d, k). mask: (days, k). day: (members,)."""

    everyone: Population
    taste: Floats
    mask: Array
    day: Ints


def on_sale(rng: np.random.Generator, k: int, days: int, share: float) -> Array:
    """(days, k) a stretch of days for each item, which may go on from the last to the first; no day has no item."""
    length = np.clip(np.round(share * days * rng.uniform(0.5, 1.5, k)), 1, days).astype(np.intp)
    first = rng.integers(0, days, k)
    mask: Array = (np.arange(days)[:, None] - first) % days < length
    mask[~mask.any(axis=1), 0] = True
    return mask


def _with_one(contexts: Floats) -> Floats:
    return np.column_stack([np.ones(len(contexts)), contexts])
