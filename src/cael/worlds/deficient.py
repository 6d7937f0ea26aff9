"""A logging policy that never plays some of the actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from cael.common.types import Array, Floats
from cael.errors import InputError
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, Tabular
from cael.worlds.paper import PaperWorld


@final
@dataclass(frozen=True)
class DeficientWorld:
    """The paper's problem with deficient support: the logging policy is uniform over some actions and 0 on the rest.

    missing: share of the actions that are never played; which ones is fixed by `seed`. Weighting cannot see them; an
    estimator that shares information between neighbouring actions can. The target is epsilon-greedy over all actions.

    >>> world = DeficientWorld(n_actions=40)
    >>> int((~world.supported).sum())
    10
    """

    n_actions: int = 200
    context_dim: int = 5
    reward_std: float = 1.0
    missing: float = 0.25
    epsilon: float = 0.2
    action_dim: int | None = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.missing < 1:
            raise InputError(f"missing must be between 0 and 1; got {self.missing!r}.")
        if not 0 < round(self.missing * self.n_actions) < self.n_actions:
            raise InputError(f"missing = {self.missing} of {self.n_actions} actions leaves none out, or none in.")
        _ = self._whole

    @cached_property
    def _whole(self) -> PaperWorld:
        return PaperWorld(
            self.n_actions, self.context_dim, self.reward_std, epsilon=self.epsilon, action_dim=self.action_dim,
            seed=self.seed,
        )  # fmt: skip

    @cached_property
    def supported(self) -> Array:
        """(k,) True for the actions that are played."""
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, 0xDEF]))
        mask = np.ones(self.n_actions, dtype=bool)
        mask[rng.permutation(self.n_actions)[: round(self.missing * self.n_actions)]] = False
        return mask

    @property
    def action_features(self) -> Floats:
        """(k, action_dim); the first column is a/k, the others say nothing."""
        return self._whole.action_features

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k)."""
        return self._whole.q(contexts)

    @property
    def logging(self) -> Policy:
        """Uniform over the supported actions."""
        return Tabular(self.supported / self.supported.sum())

    @property
    def target(self) -> Policy:
        """Epsilon-greedy on q, over all actions."""
        return self._whole.target

    def sample(self, n: int, seed: int) -> LoggedData:
        """A log of n rows."""
        rng = np.random.default_rng(np.random.SeedSequence([seed, 0xDEF]))
        contexts = rng.random((n, self.context_dim))
        return self._whole.log(contexts, rng.choice(np.flatnonzero(self.supported), n), self.logging, rng)

    def value(self, policy: Policy) -> float:
        """The true value, by the quadrature of `PaperWorld.value`."""
        return self._whole.value(policy)
