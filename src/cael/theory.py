"""The theory of the CAEL-MIPS paper on problems small enough to sum over: exact bias and variance, its propositions.

Everything is a finite sum. E[.] is over the log, X ~ p_x, A ~ mu(.|X), E ~ p_e(.|X, A). Labels in square brackets are
those of the paper. Post is the posterior mu(a|x, e). Variances are n times those of the estimator.

A function evaluates the paper's expression for any problem. Whether the expression is a bound depends on assumptions;
`common_support` and `no_direct_effect` tell whether these hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from cael.common.types import Floats, frozen
from cael.errors import InputError, SupportError, positive_int
from cael.inference.reach import reach


@final
@dataclass(frozen=True, eq=False)
class DiscreteProblem:
    """X contexts, k actions and m embeddings, all finite, with known distributions.

    p_x (X,), mu and pi (X, k), p_e (X, k, m) are probabilities. q (X, k, m) are the mean rewards q(x, a, e) and noise
    (X, k, m) the variances of the reward given (x, a, e). Common embedding support [as:common-embed-supp] is required.

    >>> even = [[0.5, 0.5]]
    >>> blind = DiscreteProblem([1.0], even, [[0.0, 1.0]], [[[1.0], [1.0]]], [[[0.0], [1.0]]], [[[0.0], [0.0]]])
    >>> blind.value, mips_bias(blind), bias_bound(blind)
    (1.0, -0.5, 0.25)
    """

    p_x: Floats
    mu: Floats
    pi: Floats
    p_e: Floats
    q: Floats
    noise: Floats

    def __post_init__(self) -> None:
        names = ("p_x", "mu", "pi", "p_e", "q", "noise")
        arrays = {name: np.asarray(getattr(self, name), dtype=np.float64) for name in names}
        if arrays["p_e"].ndim != 3 or 0 in arrays["p_e"].shape:
            raise InputError(f"p_e must have three axes (X, k, m), none empty; got shape {arrays['p_e'].shape}.")
        x, k, m = arrays["p_e"].shape
        shapes = ((x,), (x, k), (x, k), (x, k, m), (x, k, m), (x, k, m))
        for (name, array), shape in zip(arrays.items(), shapes, strict=True):
            if array.shape != shape:
                raise InputError(f"{name} must have shape {shape}, as p_e says; got {array.shape}.")
            if not np.isfinite(array).all() or (name != "q" and (array < 0).any()):
                raise InputError(f"{name} must be finite{' and >= 0' if name != 'q' else ''}.")
            if name not in ("q", "noise") and not np.allclose(array.sum(axis=-1), 1, rtol=0, atol=1e-9):
                raise InputError(f"{name} must sum to 1 over its last axis.")
            object.__setattr__(self, name, frozen(array))
        if ((self.marginal(self.mu) == 0) & (self.marginal(self.pi) > 0))[self.p_x > 0].any():
            raise SupportError("the target reaches an embedding that the logging policy never shows.")

    def marginal(self, policy: Floats) -> Floats:
        """p(e|x, policy) = sum_a policy(a|x) p_e(e|x, a), (X, k) -> (X, m)."""
        return np.einsum("xa,xae->xe", policy, self.p_e)

    @property
    def n_actions(self) -> int:
        return int(self.mu.shape[1])

    @cached_property
    def p_xe(self) -> Floats:
        """(X, m) joint probability of context and embedding in the log, p_x(x) p(e|x, mu)."""
        return self.p_x[:, None] * self.marginal(self.mu)

    @cached_property
    def w(self) -> Floats:
        """(X, k) weights pi / mu; 0 where mu is 0."""
        return np.divide(self.pi, self.mu, out=np.zeros_like(self.mu), where=self.mu > 0)

    @cached_property
    def rho(self) -> Floats:
        """(X, m) marginal weights p(e|x, pi) / p(e|x, mu) [eq:mips]; 0 where e cannot be seen."""
        seen = self.marginal(self.mu)
        return np.divide(self.marginal(self.pi), seen, out=np.zeros_like(seen), where=seen > 0)

    @cached_property
    def posterior(self) -> Floats:
        """(X, m, k) mu(a|x, e) = mu(a|x) p_e(e|x, a) / p(e|x, mu) [eq:mips_in_practice]; mu where e cannot be seen."""
        joint = np.swapaxes(self.mu[:, :, None] * self.p_e, 1, 2)
        seen = joint.sum(axis=-1, keepdims=True)
        prior = np.broadcast_to(self.mu[:, None, :], joint.shape).copy()
        return np.divide(joint, seen, out=prior, where=seen > 0)

    @cached_property
    def q_by_embedding(self) -> Floats:
        """(X, m, k) q with the actions last, as the posterior has them."""
        return np.swapaxes(self.q, 1, 2)

    @cached_property
    def mean_reward(self) -> Floats:
        """(X, m) E[R|x, e] = sum_a Post(a) q(x, a, e)."""
        return np.einsum("xea,xea->xe", self.posterior, self.q_by_embedding)

    @cached_property
    def squared_reward(self) -> Floats:
        """(X, m) E[R^2|x, e] = sum_a Post(a) (q(x, a, e)^2 + noise(x, a, e))."""
        return np.einsum("xea,xae->xe", self.posterior, self.q**2 + self.noise)

    @cached_property
    def value(self) -> float:
        """v(pi) = sum_x p_x sum_a pi(a|x) sum_e p_e(e|x, a) q(x, a, e)."""
        return float(np.einsum("x,xa,xae,xae->", self.p_x, self.pi, self.p_e, self.q))

    @property
    def common_support(self) -> bool:
        """Whether mu > 0 wherever pi > 0 [as:common-supp]."""
        return not bool(((self.mu == 0) & (self.pi > 0))[self.p_x > 0].any())

    @property
    def no_direct_effect(self) -> bool:
        """Whether q and noise are the same for all actions, given x and e [as:no-direct-eff], to rounding.

        Two moments are all that bias and variance can see of the reward, so this stands for independence here.
        """
        same_mean = np.allclose(self.q, self.q[:, :1], rtol=1e-12, atol=1e-12)
        return same_mean and np.allclose(self.noise, self.noise[:, :1], rtol=1e-12, atol=1e-12)

    def expect(self, table: Floats) -> float:
        """E[f(X, E)] for f as an (X, m) table."""
        return float((self.p_xe * table).sum())


# Bias


def mips_mean(problem: DiscreteProblem) -> float:
    """E[rho(X, E) R] = E[rho(X, E) E[R|X, E]]."""
    return problem.expect(problem.rho * problem.mean_reward)


def mips_bias(problem: DiscreteProblem) -> float:
    """Bias of MIPS from its definition, E[rho R] - v(pi)."""
    return mips_mean(problem) - problem.value


def pairwise_bias(problem: DiscreteProblem) -> float:
    """E[sum_{a<b} Post(a) Post(b) (q(X, a, E) - q(X, b, E)) (w(X, b) - w(X, a))] [eq:mips-bias].

    The paper asks for common embedding support alone, but without common support this is not the bias.
    """
    p, q, w = problem.posterior, problem.q_by_embedding, problem.w[:, None, :]
    gap_q = q[..., :, None] - q[..., None, :]
    gap_w = w[..., None, :] - w[..., :, None]
    return problem.expect(np.triu(p[..., :, None] * p[..., None, :] * gap_q * gap_w, 1).sum(axis=(-2, -1)))


def covariance_bias(problem: DiscreteProblem) -> float:
    """-E[Cov_Post(w, q)], the same number as the pairwise sum, in O(k)."""
    p, q, w = problem.posterior, problem.q_by_embedding, problem.w[:, None, :]
    centre = (p * w).sum(axis=-1, keepdims=True)
    return -problem.expect((p * (w - centre) * q).sum(axis=-1))


def half_gini(p: Floats, w: Floats) -> Floats:
    """G = sum_{a<b} p_a p_b |w_a - w_b|, as sum_j F_j (1 - F_j) (w_(j+1) - w_(j)) with F = cumsum of p by rising w.

    (..., k) and (..., k) -> (...).
    """
    p, w = np.broadcast_arrays(p, w)
    order = np.argsort(w, axis=-1)
    below = np.cumsum(np.take_along_axis(p, order, axis=-1), axis=-1)[..., :-1]
    return np.asarray((below * (1 - below) * np.diff(np.take_along_axis(w, order, axis=-1))).sum(axis=-1))


def half_deviation(p: Floats, w: Floats) -> Floats:
    """D = (1/2) sum_a p_a |w_a - sum p w|, the most that Cov_p(w, q) can be for 0 <= q <= 1; (..., k) -> (...)."""
    centre = (p * w).sum(axis=-1, keepdims=True)
    return np.asarray(0.5 * (p * np.abs(w - centre)).sum(axis=-1))


def reward_range(problem: DiscreteProblem) -> float:
    """q_max - q_min over all (x, a, e) [as:bounded-mean-var]."""
    return float(np.ptp(problem.q))


def bias_loss(problem: DiscreteProblem) -> float:
    """L_bias = (E[G])^2 [eq:bias-loss], G the half-Gini of the weights under the posterior.

    At most 1 whatever the weights, since G <= sum_a Post w = rho and E[rho] = 1; the paper does not say so.
    """
    return problem.expect(half_gini(problem.posterior, problem.w[:, None, :])) ** 2


def bias_bound(problem: DiscreteProblem) -> float:
    """Proposition 1 [prop:bias-bound]: Bias^2 <= (q_max - q_min)^2 (E[G])^2.

    The paper asks for common embedding support alone; the statement is wrong without common support.
    """
    return reward_range(problem) ** 2 * bias_loss(problem)


def sharp_bias_bound(problem: DiscreteProblem) -> float:
    """Bias^2 <= (q_max - q_min)^2 (E[D])^2, attained by q = 1{w > rho}; at most Proposition 1, at least a quarter."""
    deviation = problem.expect(half_deviation(problem.posterior, problem.w[:, None, :]))
    return (reward_range(problem) * deviation) ** 2


def ips_bias(problem: DiscreteProblem) -> float:
    """Bias of IPS from its definition, E[w R] - v(pi)."""
    weighted = problem.mu[:, :, None] * problem.p_e * problem.w[:, :, None] * problem.q
    return float(np.einsum("x,xae->", problem.p_x, weighted)) - problem.value


def unsupported_bias(problem: DiscreteProblem) -> float:
    """-E[sum_{a in U(X)} pi(a|X) q(X, a)], U(x) the actions with mu(a|x) = 0: the bias of IPS without common support.

    The paper prints |Bias| = E[sum_U pi q], which is wrong where rewards can be negative: the bars are missing.
    """
    never = problem.pi * (problem.mu == 0)
    return -float(np.einsum("x,xa,xae,xae->", problem.p_x, never, problem.p_e, problem.q))


# Trust: the doubly robust form, V = E_pi f + E[rho (R - f)], which CAEL smooths


def missed(problem: DiscreteProblem, f: Floats) -> DiscreteProblem:
    """The problem whose rewards are what a model f (X, k) misses, q - f."""
    return replace(problem, q=problem.q - np.asarray(f, dtype=np.float64)[:, :, None])


def robust_bias(problem: DiscreteProblem, f: Floats) -> float:
    """Bias of the doubly robust form with marginal weights, -E[Cov_Post(w, q - f)] with common support."""
    return mips_bias(missed(problem, f))


def roughness(problem: DiscreteProblem) -> float:
    """E[D] of the weights under the posterior, in [0, 1]: 0 if embeddings give actions away, or weights are equal."""
    return problem.expect(half_deviation(problem.posterior, problem.w[:, None, :]))


def within_context(problem: DiscreteProblem, f: Floats) -> float:
    """The largest difference over actions, within a context that occurs, of what f misses."""
    left = missed(problem, f)
    return float(np.ptp(left.q.reshape(len(left.p_x), -1)[left.p_x > 0], axis=1).max())


def coverage(bias: float, error: float, allowed: float, level: float = 0.95) -> float:
    """How often V +- the reach of an interval that allows for a bias holds the truth; V ~ N(truth + bias, error^2).

    At least `level` if |bias| <= allowed, whatever its sign; the further beyond, the less.
    """
    from scipy.special import ndtr, ndtri

    half = reach(error, allowed, None, float(ndtri((1 + level) / 2)))[0]
    return float(ndtr((half - bias) / error) - ndtr((-half - bias) / error))


# Variance


def mips_variance(problem: DiscreteProblem) -> float:
    """n Var[MIPS] = E[rho^2 R^2] - (E[rho R])^2."""
    return problem.expect(problem.rho**2 * problem.squared_reward) - mips_mean(problem) ** 2


def ips_variance(problem: DiscreteProblem) -> float:
    """n Var[IPS] = E[w^2 R^2] - (E[w R])^2.

    The paper's display of three terms divides only the first by n; all three must be.
    """
    chance = problem.p_x[:, None, None] * problem.mu[:, :, None] * problem.p_e
    weighted = chance * problem.w[:, :, None]
    second = (weighted * problem.w[:, :, None] * (problem.q**2 + problem.noise)).sum()
    return float(second - (weighted * problem.q).sum() ** 2)


def variance_reduction(problem: DiscreteProblem) -> float:
    """E[E[R^2|X, E] Var_Post(w)] [eq:mips-var0]: n (Var[IPS] - Var[MIPS]), given support and no direct effect."""
    p, w = problem.posterior, problem.w[:, None, :]
    centre = (p * w).sum(axis=-1, keepdims=True)
    return problem.expect(problem.squared_reward * (p * (w - centre) ** 2).sum(axis=-1))


def least_reward_variance(problem: DiscreteProblem) -> float:
    """sigma^2_min, the least Var[R|x, e] over the (x, e) that can be seen [as:bounded-mean-var]."""
    centred = (problem.q_by_embedding - problem.mean_reward[..., None]) ** 2 + np.swapaxes(problem.noise, 1, 2)
    return float((problem.posterior * centred).sum(axis=-1)[problem.p_xe > 0].min())


def _squares(problem: DiscreteProblem) -> Floats:
    """(X, m) sum_a Post(a)^2 sum_a w(x, a)^2, at least rho^2 by Cauchy-Schwarz."""
    return np.asarray((problem.posterior**2).sum(axis=-1) * (problem.w**2).sum(axis=-1)[:, None])


def variance_bound(problem: DiscreteProblem) -> float:
    """Proposition 2 [prop:var-bound]: n Var[MIPS] <= n Var[IPS] + E[(s + E[R|X, E]^2) sum_a Post^2 sum_a w^2].

    s is sigma^2_min. Needs common support and no direct effect, and is false with a direct effect. It is true but idle:
    under these assumptions n Var[MIPS] <= n Var[IPS] already.
    """
    second = least_reward_variance(problem) + problem.mean_reward**2
    return ips_variance(problem) + problem.expect(second * _squares(problem))


def direct_variance_bound(problem: DiscreteProblem) -> float:
    """n Var[MIPS] <= E[E[R^2|X, E] sum_a Post^2 sum_a w^2] - (E[rho R])^2; not in the paper.

    Only Cauchy-Schwarz on rho = sum_a Post w, so common support suffices and a direct effect is allowed.
    """
    return problem.expect(problem.squared_reward * _squares(problem)) - mips_mean(problem) ** 2


# Entropy


def renyi2(p: Floats) -> Floats:
    """H2 = -log sum_a p_a^2, from 0 (Dirac) to log k (uniform); (..., k) -> (...)."""
    return np.asarray(-np.log((p**2).sum(axis=-1)))


def mean_entropy(problem: DiscreteProblem) -> float:
    """E[H2] of the posterior."""
    return problem.expect(renyi2(problem.posterior))


def weight_range(problem: DiscreteProblem) -> float:
    """C, the largest |w(x, a) - w(x, b)| of a context that occurs [prop:entropy-bias]."""
    return float(np.ptp(problem.w[problem.p_x > 0], axis=1).max())


@final
@dataclass(frozen=True)
class EntropyBias:
    """L_bias and what bounds it, smallest first where the order is certain: loss <= entropy <= actions <= printed.

    Also entropy <= linear_squared <= linear, and loss <= spread.
    """

    loss: float
    entropy: float
    actions: float
    printed: float
    linear_squared: float
    linear: float
    spread: float


def entropy_bias_bound(problem: DiscreteProblem) -> EntropyBias:
    """Proposition 3 [prop:entropy-bias], with C the range of the weights.

    loss            L_bias
    entropy         (C^2/4) (1 - E[e^-H2])^2
    actions         (C^2/4) (1 - 1/k)^2; the paper prints the exponent 1, which is true but not what its proof gives
    printed         (C^2/4) (1 - 1/k)
    linear_squared  (C^2/4) min(1, E[H2])^2, sharper than the paper's third claim
    linear          (C^2/4) E[H2], the third claim
    spread          C^2/16, since F (1 - F) <= 1/4 in the half-Gini; not in the paper, and below `actions` for k > 2
    """
    quarter = weight_range(problem) ** 2 / 4
    clash = 1 - problem.expect(np.exp(-renyi2(problem.posterior)))
    entropy, other = mean_entropy(problem), 1 - 1 / problem.n_actions
    return EntropyBias(
        loss=bias_loss(problem),
        entropy=quarter * clash**2,
        actions=quarter * other**2,
        printed=quarter * other,
        linear_squared=quarter * min(1.0, entropy) ** 2,
        linear=quarter * entropy,
        spread=quarter / 4,
    )


@final
@dataclass(frozen=True)
class EntropyVariance:
    """L_var in two forms and what it lies between: uniform <= loss = by_entropy <= dirac."""

    loss: float
    by_entropy: float
    dirac: float
    uniform: float


def entropy_variance(problem: DiscreteProblem, n: int = 1) -> EntropyVariance:
    """Proposition 4 [prop:entropy-var], for a log of n rows.

    loss        L_var = (1/n) E[E[R|X, E]^2 sum_a Post^2 sum_a w^2] [eq:var-loss]
    by_entropy  (1/n) E[E[R|X, E]^2 e^-H2 sum_a w^2], equal to loss; the proof's "sum_a Post = e^-H2" lacks the square
    dirac       (1/n) sum_a E[E[R|X, E]^2 w(X, a)^2], the upper bound, which is loss for a Dirac posterior
    uniform     dirac / k, a lower bound; the paper says L_var -> 0 for a uniform posterior, but it stops here
    """
    positive_int("n", n)
    total = (problem.w**2).sum(axis=-1)[:, None]
    dirac = problem.expect(problem.mean_reward**2 * total) / n
    return EntropyVariance(
        loss=problem.expect(problem.mean_reward**2 * _squares(problem)) / n,
        by_entropy=problem.expect(problem.mean_reward**2 * np.exp(-renyi2(problem.posterior)) * total) / n,
        dirac=dirac,
        uniform=dirac / problem.n_actions,
    )
