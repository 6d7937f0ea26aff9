"""Worlds over a finite, fixed population of contexts: logs are drawn from it, and values are exact sums over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError, positive_int
from cael.log.logged import BATCH_BYTES, Batch, LoggedData
from cael.policies.policy import Policy, as_policy, probabilities
from cael.worlds.world import draw_actions


@final
@dataclass(frozen=True, eq=False)
class Population:
    """The contexts that a world draws from, with replacement and equal probability.

    contexts: (N, d). n_actions: k. action_features: (k, m) or None.
    """

    contexts: Floats
    n_actions: int
    action_features: Floats | None = None

    def batch(self, members: Ints) -> Batch:
        """Members of the population as rows that a policy can see."""
        none = np.zeros(len(members))
        return Batch(
            rows=members, contexts=self.contexts[members], actions=np.zeros(len(members), dtype=np.intp), rewards=none,
            propensities=None, n_actions=self.n_actions, action_features=self.action_features,
        )  # fmt: skip

    def blocks(self, members: Ints) -> list[Ints]:
        """The members in runs whose (rows x k) table fits a block of memory."""
        size = max(1, BATCH_BYTES // (8 * self.n_actions))
        return [members[start : start + size] for start in range(0, len(members), size)]

    def value(self, policy: Policy, means: Callable[[Ints], Floats]) -> float:
        """(1/N) sum over members and actions of policy x mean reward: exact, no sampling."""
        policy = as_policy(policy)
        every = np.arange(len(self.contexts))
        total = [
            float(np.einsum("ij,ij->", probabilities(policy, self.batch(part)), means(part)))
            for part in self.blocks(every)
        ]
        return sum(total) / len(every)

    def draw(self, n: int, policy: Policy, rng: np.random.Generator, actions: np.random.Generator) -> tuple[Ints, Ints]:
        """n members and the actions that `policy` takes for them; `actions` is the generator of the latter."""
        positive_int("n", n, least=2)
        members = rng.integers(0, len(self.contexts), n)
        taken = [draw_actions(probabilities(policy, self.batch(part)), actions) for part in self.blocks(members)]
        return members, np.concatenate(taken)

    def log(self, members: Ints, actions: Ints, rewards: Floats, logging: Policy) -> LoggedData:
        return LoggedData(
            self.contexts[members], actions, rewards, logging=logging, n_actions=self.n_actions,
            action_features=self.action_features,
        )  # fmt: skip


def generator(seed: int, world: int) -> np.random.Generator:
    """The random stream of a log: its seed, and a number that keeps the worlds apart."""
    return np.random.default_rng(np.random.SeedSequence([positive_int("seed", seed, least=0), world]))


def check_common(n_actions: int, context_dim: int, population: int, epsilon: float, **numbers: float) -> None:
    """The checks that the worlds share; `numbers` must be finite."""
    positive_int("n_actions", n_actions, least=2)
    positive_int("context_dim", context_dim)
    positive_int("population", population, least=2)
    if not 0 <= epsilon <= 1:
        raise InputError(f"epsilon must be in [0, 1]; got {epsilon!r}.")
    for name, value in numbers.items():
        if not np.isfinite(value):
            raise InputError(f"{name} must be finite; got {value!r}.")


def check_noise(name: str, value: float) -> None:
    if not 0 <= value < np.inf:
        raise InputError(f"{name} must be >= 0 and finite; got {value!r}.")
