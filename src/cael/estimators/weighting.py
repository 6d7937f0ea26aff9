"""Estimators that weight rewards: LoggedMean, IPS, SNIPS, BaselineIPS, SubGaussianIPS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from cael.errors import InputError
from cael.estimators.estimator import Estimator, lowest_bound, mean_of, mean_plus_ratio, weight_diagnostics
from cael.estimators.problem import Problem
from cael.estimators.selection import SLOPE, Tuned, setting
from cael.inference import weights as W
from cael.inference.diagnostics import Diagnostics
from cael.inference.estimate import Estimate, ScoreRange

WEIGHTING_NEEDS = ("propensities", "logged_probability")


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

    def solve(self, problem: Problem) -> Estimate:
        r = problem.log.rewards
        ones = Diagnostics(n=len(r), effective_sample_size=float(len(r)), max_weight=1.0, mean_weight=1.0)
        return mean_of(self.name, problem, r, ones, ScoreRange("mean", 1.0))


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
    tuned: ClassVar[tuple[str, setting]] = ("clip", setting.WEIGHT)
    clip: float | SLOPE | None = None

    def __post_init__(self) -> None:
        check_positive("clip", self.clip)

    def solve(self, problem: Problem) -> Estimate:
        if isinstance(self.clip, SLOPE):
            return self.clip.choose(self, problem)
        w = problem.weights if self.clip is None else W.clip(problem.weights, self.clip)
        bound = ScoreRange("weighted", lowest_bound(problem, self.clip))
        return mean_of(self.name, problem, w * problem.log.rewards, weight_diagnostics(problem, w), bound)


@final
@dataclass(frozen=True)
class SNIPS(Tuned):
    """Self-normalised IPS (Hesterberg 1995; Swaminathan and Joachims 2015).

    V = sum_i w_i r_i / sum_i w_i. Consistent under the assumption of IPS, with a bias of order 1/n; it moves with the
    reward when a constant is added, which makes it far better than IPS where rewards have an offset. The interval is
    that of the ratio: contributions are V + w_i (r_i - V) / mean(w).

    clip: as of `IPS`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 1], [1.0, 3.0, 5.0], [0.5, 0.5, 0.5])
    >>> cael.SNIPS().estimate(log, [0.0, 1.0]).value
    4.0
    """

    needs: ClassVar[tuple[str, ...]] = WEIGHTING_NEEDS
    tuned: ClassVar[tuple[str, setting]] = ("clip", setting.WEIGHT)
    clip: float | SLOPE | None = None

    def __post_init__(self) -> None:
        check_positive("clip", self.clip)

    def solve(self, problem: Problem) -> Estimate:
        if isinstance(self.clip, SLOPE):
            return self.clip.choose(self, problem)
        w = problem.weights if self.clip is None else W.clip(problem.weights, self.clip)
        return mean_plus_ratio(self.name, problem, 0.0, w, problem.log.rewards, weight_diagnostics(problem, w))


@final
@dataclass(frozen=True)
class BaselineIPS(Estimator):
    """IPS with the optimal constant baseline (Gupta et al. 2024).

    V = (1/n) sum_i [ b + w_i (r_i - b) ], b = Cov(w r, w) / Var(w), estimated on the other folds so that V stays
    unbiased. With the true b its variance is never above that of IPS.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 0, 1], [1.0, 3.0, 1.0, 3.0], [0.5] * 4)
    >>> cael.BaselineIPS(folds=2).estimate(log, [0.0, 1.0]).diagnostics.cross_fitted
    True
    """

    needs: ClassVar[tuple[str, ...]] = WEIGHTING_NEEDS
    folds: int = 5
    seed: int = 0

    def solve(self, problem: Problem) -> Estimate:
        w, r = problem.weights, problem.log.rewards
        b = np.empty(len(r))
        for rows in problem.log.folds(self.folds, self.seed):
            others = np.ones(len(r), dtype=bool)
            others[rows] = False
            b[rows] = W.best_baseline(w[others], r[others])
        return mean_of(self.name, problem, b + w * (r - b), weight_diagnostics(problem, w, cross_fitted=True))


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
    tuned: ClassVar[tuple[str, setting]] = ("lambda_", setting.SHARE)
    lambda_: float | SLOPE | None = None

    def __post_init__(self) -> None:
        check_share("lambda_", self.lambda_)

    def solve(self, problem: Problem) -> Estimate:
        if isinstance(self.lambda_, SLOPE):
            return self.lambda_.choose(self, problem)
        raw = problem.weights
        lambda_ = W.subgaussian_lambda(raw) if self.lambda_ is None else self.lambda_
        w = W.subgaussian(raw, lambda_)
        # A lambda that was computed from the sample bounds nothing beforehand.
        bound = None if self.lambda_ is None or lambda_ == 0 else 1 / lambda_
        score_range = None if self.lambda_ is None else ScoreRange("weighted", lowest_bound(problem, bound))
        return mean_of(self.name, problem, w * problem.log.rewards, weight_diagnostics(problem, w), score_range)


def check_positive(name: str, value: float | SLOPE | None) -> None:
    """Refuse a hyperparameter that is not positive (infinity is allowed)."""
    for each in value.candidates if isinstance(value, SLOPE) else (value,):
        if each is not None and not (isinstance(each, int | float) and each > 0):
            raise InputError(f"{name} must be a positive number, None, or SLOPE of such; got {each!r}.")


def check_share(name: str, value: float | SLOPE | None) -> None:
    """Refuse a hyperparameter outside [0, 1]."""
    for each in value.candidates if isinstance(value, SLOPE) else (value,):
        if each is not None and not (isinstance(each, int | float) and 0 <= each <= 1):
            raise InputError(f"{name} must be in [0, 1], None, or SLOPE of such; got {each!r}.")
