"""Estimators that weight rewards: LoggedMean, IPS, SNIPS, BaselineIPS, SubGaussianIPS."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.engine.answer import Answer
from cael.engine.asking import Asking
from cael.engine.columns import Column, InFold, Product, Reward, Weight
from cael.engine.parts import Form, Part, weight_diagnostics
from cael.engine.score import Score
from cael.engine.steadying import pooled_of, steady
from cael.estimators.estimator import Estimator
from cael.estimators.selection import SLOPE, Setting, Tuned
from cael.inference.diagnostics import Diagnostics
from cael.inference.estimate import Estimate
from cael.inference.weight_rules import SubGaussian, clipped
from cael.inference.weights import lambda_of

WEIGHTING_NEEDS = ("propensities", "logged_probability")
CLIP = Setting("clip", clipped, power=1)
SUBGAUSSIAN = Setting("lambda_", SubGaussian, power=0, default=lambda look: lambda_of(look.second, look.rows))


@final
@dataclass(frozen=True)
class LoggedMean(Estimator):
    """The mean logged reward: the value of the logging policy, not of the target.

    V = (1/n) sum_i r_i. It answers no off-policy question, and stands in every table because an estimator that does
    not beat it has added nothing.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.LoggedMean().estimate(log, cael.Uniform(2)).value
    2.0
    """

    needs: ClassVar[tuple[str, ...]] = ()
    panel: ClassVar[str] = "default"

    def formula(self, asking: Asking, target: int) -> Form:
        return Form(bounded=True)


@final
@dataclass(frozen=True)
class IPS(Tuned):
    """Inverse propensity scoring (Horvitz and Thompson 1952), optionally clipped (Ionides 2008).

    V = (1/n) sum_i min(w_i, clip) r_i, w = pi(a|x) / mu(a|x). Unbiased without a clip when the target plays only what
    the logging policy plays; a clip lowers the variance and biases towards 0.

    clip: the largest weight allowed, None for none, or SLOPE([...]) to choose among several.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.IPS().estimate(log, [0.0, 1.0]).value
    3.0
    """

    needs: ClassVar[tuple[str, ...]] = WEIGHTING_NEEDS
    panel: ClassVar[str] = "default"
    tuned: ClassVar[Setting] = CLIP
    clip: float | SLOPE | None = None


@final
@dataclass(frozen=True)
class SNIPS(Tuned):
    """Self-normalised IPS (Hesterberg 1995; Swaminathan and Joachims 2015).

    V = sum_i w_i r_i / sum_i w_i. Consistent under the assumption of IPS, with a bias of order 1/n; it moves with the
    reward when a constant is added, which makes it far better than IPS where rewards have an offset. The interval is
    that of the ratio: contributions are V + w_i (r_i - V) / mean(w).

    clip: see `IPS`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 1], [1.0, 3.0, 5.0], [0.5, 0.5, 0.5])
    >>> cael.SNIPS().estimate(log, [0.0, 1.0]).value
    4.0
    """

    needs: ClassVar[tuple[str, ...]] = WEIGHTING_NEEDS
    panel: ClassVar[str] = "default"
    tuned: ClassVar[Setting] = CLIP
    self_normalised: ClassVar[bool] = True
    clip: float | SLOPE | None = None


@final
@dataclass(frozen=True)
class BaselineIPS(Estimator):
    """IPS with the optimal constant baseline (Gupta et al. 2024).

    V = (1/n) sum_i [ b + w_i (r_i - b) ], b = Cov(w r, w) / Var(w), estimated on the other folds so that V stays
    unbiased. With the true b its variance is never above that of IPS.

    folds, seed: of the cross-fitting.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 0, 1], [1.0, 3.0, 1.0, 3.0], [0.5] * 4)
    >>> cael.BaselineIPS(folds=2).estimate(log, [0.0, 1.0]).diagnostics.cross_fitted
    True
    """

    needs: ClassVar[tuple[str, ...]] = WEIGHTING_NEEDS
    folds: int = 5
    seed: int = 0

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        return BaselinePart(self.name, target, self.folds, self.seed)


@final
@dataclass(frozen=True)
class BaselinePart(Part):
    """b + w (r - b), with another b in each fold: columns 1, w and w r of each fold."""

    name: str
    target: int
    folds: int
    seed: int

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        weight = Weight(self.target)
        columns: list[Column] = []
        for fold in range(self.folds):
            inside = InFold(self.folds, self.seed, fold)
            columns += [inside, Product(inside, weight), Product(inside, Product(weight, Reward()))]
        return tuple(columns)

    def estimate(self, answer: Answer) -> Estimate:
        answer.need_support(self.target)
        means, c = answer.means(self.columns), np.zeros(3 * self.folds)
        for fold, b in enumerate(baselines(means, answer.products(self.columns))):
            c[3 * fold : 3 * fold + 3] = b, -b, 1.0  # r0 + b + w (r - r0 - b)
        return answer.estimate(self.name, self.columns, Score(answer.r0, c), partial(self._steadied, answer))

    def _steadied(self, answer: Answer, estimate: Estimate) -> Diagnostics:
        """The diagnostics, with what the interval needs."""
        weight = Weight(self.target)
        diagnostics = weight_diagnostics(answer, weight, cross_fitted=True)
        return steady(answer, estimate, diagnostics, pooled_of(answer, weight, answer.variance(Reward())))


def baselines(means: Floats, covariances: Floats) -> Floats:
    """For each fold Cov(w r, w) / Var(w) of the rows of the others; 0 where w does not vary (`best_baseline`).

    means: (3 f,) of 1, w and w r in each fold. covariances: (3 f, 3 f).
    """
    one, w, wr = np.arange(len(means)).reshape(-1, 3).T
    products = covariances + np.outer(means, means)
    sums = np.stack([means[one], means[w], means[wr], products[w, w], products[w, wr]])
    share, w_mean, wr_mean, square, cross = sums.sum(axis=1, keepdims=True) - sums
    spread = share * square - w_mean * w_mean
    varies = spread > 1e-12 * share * square
    return np.divide(share * cross - w_mean * wr_mean, spread, out=np.zeros(len(one)), where=varies)


@final
@dataclass(frozen=True)
class SubGaussianIPS(Tuned):
    """IPS with sub-Gaussian weights (Metelli, Russo and Restelli 2021).

    V = (1/n) sum_i w_i / (1 - lambda + lambda w_i) r_i. lambda = 0 is IPS, lambda = 1 the mean logged reward.

    lambda_: in [0, 1]; None takes sqrt(2 log(1/0.05) / (3 n E[w^2])); or SLOPE([...]).

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.SubGaussianIPS(lambda_=1.0).estimate(log, cael.Uniform(2)).value
    2.0
    """

    needs: ClassVar[tuple[str, ...]] = WEIGHTING_NEEDS
    tuned: ClassVar[Setting] = SUBGAUSSIAN
    lambda_: float | SLOPE | None = None
