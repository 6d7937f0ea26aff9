"""Worlds whose logs do not say their propensities: policies of the contexts alone, and policies that saw more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.log.eligible import Eligible, of_mask, sets_of
from cael.log.logged import LoggedData
from cael.policies.policy import Policy
from cael.policies.scored import Softmax
from cael.worlds.population import Population, PopulationWorld, generator
from cael.worlds.world import draw_actions

SHAPES = ("linear", "waves", "steps", "categories", "epsilon-greedy", "rewards")
"""How the logging policy depends on the contexts."""


@final
@dataclass(frozen=True)
class UntoldWorld(PopulationWorld):
    """Rewards q(x, a) = b_a + 0.5 x'c + sin(w_a'x) with normal noise of standard deviation 0.5, and logging policies of
    many shapes, which lean towards good actions. Contexts are standard normal (of "categories": five dummies of one
    category, and two numbers).

    Logging: softmax of 0.6 z, z = 0.5 (b_a + w_a'x) + a shape: linear in x, waves (sines), steps (two splits);
    "epsilon-greedy" plays the largest linear z with probability 0.7 more than the others. Of "rewards" z is 2 q itself:
    what neither model holds drives both, which is the worst case. Target: softmax of 2 q. factor: with a factor G above
    1 something hidden moves the probabilities of a row by a factor between 1 / G and G, up for half of the actions and
    down for the others, and with it the rewards of the former, by `effect`. sets: of 70% of the actions, drawn at
    random, of which each row has one; 0: all actions on all rows.
    """

    stream: ClassVar[int] = 0x0701D
    actions: int = 5
    shape: str = "linear"
    context_dim: int = 5
    factor: float = 1.0
    effect: float = 0.0
    sets: int = 0
    population: int = 20_000
    seed: int = 0

    @cached_property
    def _made(self) -> _Parts:
        rng = generator(self.seed, self.stream)
        contexts = rng.standard_normal((self.population, self.context_dim))
        if self.shape == "categories":
            category = rng.choice(5, self.population, p=[0.4, 0.25, 0.2, 0.1, 0.05])
            contexts = np.column_stack([category[:, None] == np.arange(5), contexts[:, :2]]).astype(np.float64)
        d, k = contexts.shape[1], self.actions
        base, slopes = 0.5 * rng.standard_normal(k), rng.standard_normal((d, k)) / np.sqrt(d)
        lean, common = rng.standard_normal((d, k)) / np.sqrt(d), np.asarray(0.5 * rng.standard_normal(d))
        splits = rng.standard_normal((2, k))
        people = Population(contexts, k, None, self._eligible(rng))
        return _Parts(people, base, slopes, common, lean, splits)

    def _eligible(self, rng: np.random.Generator) -> Eligible | None:
        if self.sets == 0:
            return None
        mask = rng.random((self.sets, self.actions)) < 0.7
        mask[:, :2] = True
        sets, _, _ = sets_of(*of_mask(mask), self.actions)
        return Eligible(sets.sets, sets.codes[rng.integers(0, self.sets, self.population)])

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k); over what is hidden, too."""
        made = self._made
        q: Floats = made.base + (contexts @ made.common)[:, None] + np.sin(contexts @ made.slopes)
        return q

    def _means(self, members: Any) -> Floats:
        return self.q(members.contexts)

    def z(self, contexts: Floats) -> Floats:
        """What the logging policy likes, (b, d) -> (b, k)."""
        made, x = self._made, contexts
        good: Floats = 0.5 * (made.base + x @ made.slopes)
        if self.shape == "rewards":
            return 2 * self.q(x)
        if self.shape == "waves":
            return good + 1.5 * np.sin(2 * x @ made.lean)
        if self.shape == "steps":
            first, second = x[:, :1] > 0.3, (x[:, 1:2] > 0) ^ (x[:, 2:3] > -0.5)
            return good + 1.2 * (first * made.splits[0] + second * made.splits[1])
        return good + 1.2 * x @ made.lean

    @property
    def logging(self) -> Policy:
        """What the logging policy does with the contexts, over what is hidden."""
        return Greedy(self.z) if self.shape == "epsilon-greedy" else Softmax(self._tilted)

    def _tilted(self, contexts: Floats) -> Floats:
        return 0.6 * self.z(contexts)

    @property
    def target(self) -> Policy:
        return Softmax(self._aimed)

    def _aimed(self, contexts: Floats) -> Floats:
        return 2 * self.q(contexts)

    def logged_value(self) -> float:
        """What the logging policy earns: with something hidden, more than its mean policy, where that lifts rewards."""
        people = self._made.everyone
        value, k = 0.0, self.actions
        favoured = np.where(np.arange(k) % 2 == 0, 1.0, -1.0)
        for start in range(0, self.population, 1000):
            batch = people.batch(np.arange(start, min(start + 1000, self.population)))
            p, q = self.logging.probabilities(batch), self.q(batch.contexts)
            for hidden in (-1.0, 1.0):
                moved = hidden_from(p, np.full(len(p), hidden), favoured, self.factor)
                value += 0.5 * float((moved * (q + self.effect * hidden * (favoured > 0))).sum())
        return value / self.population

    def sample(self, n: int, seed: int) -> LoggedData:
        """A log with the propensities that the contexts imply; `bare` takes them off."""
        rng, people = generator(seed, self.stream), self._made.everyone
        members = rng.integers(0, self.population, n)
        batch, hidden = people.batch(members), rng.choice([-1.0, 1.0], n)
        favoured = np.where(np.arange(self.actions) % 2 == 0, 1.0, -1.0)
        actions = np.empty(n, dtype=np.intp)
        for start in range(0, n, 1000):
            rows = slice(start, min(start + 1000, n))
            p = self.logging.probabilities(batch.part(rows))
            actions[rows] = draw_actions(hidden_from(p, hidden[rows], favoured, self.factor), rng)
        q = np.concatenate([self.q(batch.contexts[at : at + 1000]) for at in range(0, n, 1000)])
        rewards = q[np.arange(n), actions] + self.effect * hidden * (favoured[actions] > 0)
        rewards = rewards + 0.5 * rng.standard_normal(n)
        return people.log(members, actions, rewards, self.logging)


class _Parts(NamedTuple):
    """everyone: the population. base (k,), slopes (d, k), common (d,): of the rewards. lean (d, k), splits (2, k): of
    the logging policy."""

    everyone: Population
    base: Floats
    slopes: Floats
    common: Floats
    lean: Floats
    splits: Floats


def hidden_from(p: Floats, hidden: Floats, favoured: Floats, factor: float) -> Floats:
    """Probabilities (b, k) that follow what is hidden (b,), -1 or 1, as far as a factor allows; over both they are p.

    With s_a = favoured_a less its mean under p, over its largest size, they are p (1 + hidden g s), g = 1 - 1/factor:
    between p / factor and p factor.
    """
    s = favoured - (p @ favoured)[:, None]
    s = s / np.maximum(np.abs(s).max(axis=1, keepdims=True), 1e-12)
    moved: Floats = p * (1 + hidden[:, None] * (1 - 1 / factor) * s)
    return moved


@final
@dataclass(frozen=True, eq=False)
class Greedy(Policy):
    """0.7 for the largest score among the actions that can be taken, the rest evenly over all of them."""

    scores: Any
    keeps: ClassVar[bool] = True

    def probabilities(self, batch: Any) -> Floats:
        scores = self.scores(batch.contexts)
        mask: Array = np.ones(scores.shape, dtype=bool) if batch.eligible is None else batch.eligible.mask()
        best: Ints = np.where(mask, scores, -np.inf).argmax(axis=1)
        p = 0.3 * mask / mask.sum(axis=1, keepdims=True)
        p[np.arange(len(p)), best] += 0.7
        return p


def bare(log: LoggedData) -> LoggedData:
    """The log without its propensities."""
    return LoggedData(log.contexts, log.actions, log.rewards, n_actions=log.n_actions, eligible=log.eligible)


WORLDS: dict[str, tuple[UntoldWorld, int]] = {
    "linear, 2 actions": (UntoldWorld(2), 1000),
    "linear, 10 actions": (UntoldWorld(10), 3000),
    "waves, 5 actions": (UntoldWorld(5, "waves"), 3000),
    "steps, 4 actions": (UntoldWorld(4, "steps"), 3000),
    "categories, 6 actions": (UntoldWorld(6, "categories"), 2000),
    "epsilon-greedy, 5 actions": (UntoldWorld(5, "epsilon-greedy"), 3000),
    "rewards, 5 actions": (UntoldWorld(5, "rewards"), 3000),
    "rewards, 2 actions": (UntoldWorld(2, "rewards", seed=1), 2000),
    "rewards, 12 actions": (UntoldWorld(12, "rewards", seed=2), 4000),
    "linear, 100 actions": (UntoldWorld(100), 8000),
    "waves, 100 actions": (UntoldWorld(100, "waves"), 8000),
    "eligible, 12 actions": (UntoldWorld(12, sets=15), 3000),
    "eligible steps, 12 actions": (UntoldWorld(12, "steps", sets=15), 4000),
}
"""What the contexts hold everything of: name -> (world, rows)."""
HIDDEN: dict[str, tuple[UntoldWorld, int]] = {
    "hidden 1.2, 2 actions": (UntoldWorld(2, factor=1.2, effect=1.0), 3000),
    "hidden 1.3, 4 actions": (UntoldWorld(4, factor=1.3, effect=1.0), 3000),
    "hidden 1.5, 5 actions, waves": (UntoldWorld(5, "waves", factor=1.5, effect=1.5), 3000),
    "hidden 2, 5 actions": (UntoldWorld(5, factor=2.0, effect=1.0), 3000),
    "hidden 1.3, 20 actions": (UntoldWorld(20, factor=1.3, effect=1.0), 5000),
    "hidden 1.5, eligible": (UntoldWorld(12, factor=1.5, effect=1.0, sets=15), 3000),
}
"""Where something hidden moves propensities by up to the factor in the name."""
