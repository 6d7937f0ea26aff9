"""The synthetic world of the CAEL-MIPS paper, with every knob."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from cael.common.types import Array, Floats, frozen
from cael.errors import positive_int
from cael.log.logged import LoggedData
from cael.policies.given import as_policy
from cael.policies.policy import Policy, probabilities
from cael.worlds.world import ScoredWorld, check_settings, draw_actions, unlogged


@final
@dataclass(frozen=True)
class PaperWorld(ScoredWorld):
    """Contexts uniform on [0, 1]^d; action a has a vector whose first component is a/k (a = 1..k), the others U[0, 1].

    Reward: normal with mean q(x, a) = 10 exp(-(x_1 - a_1)^2) and standard deviation reward_std. Logging policy:
    softmax of gamma q (gamma = 0: uniform). Target: epsilon-greedy on q. The action vectors have `action_dim`
    components (k by default) and are fixed by `seed`; redraw: each log has others, from its own seed. (The text leaves
    it open. Neither q nor the policies look at more than a_1, which is the same.)

    >>> world = PaperWorld()
    >>> round(world.value(world.target), 5)
    9.72305
    """

    n_actions: int = 500
    context_dim: int = 5
    reward_std: float = 1.0
    gamma: float = 0.0
    epsilon: float = 0.2
    action_dim: int | None = None
    seed: int = 0
    redraw: bool = False

    def __post_init__(self) -> None:
        check_settings(self)

    @cached_property
    def action_features(self) -> Floats:
        """(k, action_dim) action vectors; with `redraw`, of no log."""
        return self._vectors(self.seed)

    def _vectors(self, seed: int | list[int]) -> Floats:
        dim = self.n_actions if self.action_dim is None else positive_int("action_dim", self.action_dim)
        table = np.random.default_rng(seed).random((self.n_actions, dim))
        table[:, 0] = np.arange(1, self.n_actions + 1) / self.n_actions
        return frozen(table)

    def q(self, contexts: Floats) -> Floats:
        """Expected rewards of all actions, (b, d) -> (b, k)."""
        return self.mean(contexts[:, :1], np.arange(self.n_actions))

    def mean(self, x_1: Floats, actions: Array) -> Floats:
        """Expected rewards of actions in contexts with this first coordinate."""
        return 10 * np.exp(-((x_1 - (actions + 1) / self.n_actions) ** 2))

    def sample(self, n: int, seed: int) -> LoggedData:
        """A log of n rows; block by block, so that no n x k array is made."""
        positive_int("n", n, least=2)
        rng = np.random.default_rng(np.random.SeedSequence([seed, 0xCAE1]))
        contexts = rng.random((n, self.context_dim))
        taken = [
            draw_actions(probabilities(self.logging, part), rng)
            if self.gamma
            else rng.integers(0, self.n_actions, len(part))
            for part in unlogged(contexts, self.n_actions).parts()
        ]
        vectors = self._vectors([self.seed, seed, 0xAC7]) if self.redraw else None
        return self.log(contexts, np.concatenate(taken), self.logging, rng, vectors)

    def log(
        self, contexts: Floats, actions: Array, logging: Policy, rng: np.random.Generator, vectors: Floats | None = None
    ) -> LoggedData:
        """The log of these actions, with rewards that are drawn for them. vectors: of the actions; else the world's."""
        rewards = self.mean(contexts[:, 0], actions) + self.reward_std * rng.standard_normal(len(contexts))
        features = self.action_features if vectors is None else vectors
        return LoggedData(
            contexts, actions, rewards, logging=logging, n_actions=self.n_actions, action_features=features
        )

    def value(self, policy: Policy) -> float:
        """The true value of a policy, by Gauss-Legendre quadrature over x_1.

        Between the points where the greedy action changes the integrand is smooth, so the result is exact to rounding
        for policies that depend on x_1 alone, as those of this world do. The other coordinates follow a Sobol
        sequence: for policies that depend on them the result is a quasi-Monte Carlo value.
        """
        policy, total = as_policy(policy), 0.0
        contexts, weights = self._nodes
        for part in unlogged(contexts, self.n_actions, self.action_features).parts():
            rewards = np.einsum("ij,ij->i", probabilities(policy, part), self.q(part.contexts))
            total += float(weights[part.rows] @ rewards)
        return total

    @cached_property
    def _nodes(self) -> tuple[Floats, Floats]:
        from scipy.stats import qmc

        k = self.n_actions
        edges = np.concatenate([[0.0], (np.arange(1, k) + 0.5) / k, [1.0]])
        per_cell = max(4, -(-2048 // k))
        node, weight = np.polynomial.legendre.leggauss(per_cell)
        half = np.diff(edges)[:, None] / 2
        x_1 = (edges[:-1, None] + half * (1 + node)).ravel()
        contexts = np.empty((len(x_1), self.context_dim))
        contexts[:, 0] = x_1
        if self.context_dim > 1:
            sobol = qmc.Sobol(self.context_dim - 1, rng=np.random.default_rng(0))
            contexts[:, 1:] = sobol.random_base2(int(np.ceil(np.log2(len(x_1)))))[: len(x_1)]
        return contexts, (half * weight).ravel()
