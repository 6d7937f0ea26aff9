"""Worlds for calibration: small, with known truth, and weights of moderate size."""

from dataclasses import dataclass

import numpy as np

import cael


@dataclass(frozen=True)
class CoinWorld:
    """Binary rewards; five actions; P(r = 1 | x, a) = 0.2 + 0.6 x 1{a even} + 0.1 1{a = 4}; x uniform on [0, 1].

    Logging: softmax with probabilities between 0.08 and 0.45; target: mostly the even actions. Everything is linear in
    x, so the truth is the value at x = 1/2 of q averaged over policies that do not depend on x.
    """

    mu: tuple[float, ...] = (0.15, 0.35, 0.2, 0.2, 0.1)
    pi: tuple[float, ...] = (0.3, 0.1, 0.3, 0.05, 0.25)

    def q(self, x):
        a = np.arange(5)
        return 0.2 + 0.6 * x * (a % 2 == 0) + 0.1 * (a == 4)

    def value(self, p):
        return float(np.asarray(p) @ self.q(np.array([[0.5]]))[0])

    def sample(self, n, seed):
        rng = np.random.default_rng([seed, 77])
        x = rng.random((n, 1))
        a = rng.choice(5, size=n, p=self.mu)
        r = (rng.random(n) < self.q(x)[np.arange(n), a]).astype(float)
        return cael.LoggedData(x, a, r, logging=self.mu)


@dataclass(frozen=True)
class GroupWorld:
    """Rewards that depend on the action only through its group, which the log shows: MIPS is unbiased."""

    k: int = 60

    @property
    def group(self):
        return np.arange(self.k) % 3

    def policies(self):
        rng = np.random.default_rng(5)
        return 0.5 * rng.dirichlet(np.ones(self.k)) + 0.5 / self.k, rng.dirichlet(np.full(self.k, 0.5))

    def value(self):
        return float(self.policies()[1] @ self.group)

    def sample(self, n, seed):
        rng = np.random.default_rng([seed, 78])
        mu, _ = self.policies()
        a = rng.choice(self.k, size=n, p=mu)
        return cael.LoggedData(None, a, self.group[a] + rng.standard_normal(n), logging=mu)
