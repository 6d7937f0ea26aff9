"""Estimators that correct an outcome model with weighted residuals: DR, SNDR, SwitchDR, DRos, SubGaussianDR.

All have V = (1/n) sum_i [ q(x_i, pi) + w'_i (r_i - q(x_i, a_i)) ], q(x, pi) = sum_a pi(a|x) q(x, a), and differ in the
weight w' made from w = pi / mu. Unbiased, with w' = w, if the propensities or the outcome model are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

from cael.common.types import Floats
from cael.estimators.estimator import lowest_bound, mean_of, mean_plus_ratio, weight_diagnostics
from cael.estimators.problem import Problem
from cael.estimators.selection import SLOPE, Tuned, setting
from cael.estimators.weighting import check_positive, check_share
from cael.inference import weights as W
from cael.inference.estimate import Estimate, ScoreRange
from cael.outcomes.outcome_model import FixedOutcome, OutcomeModel
from cael.outcomes.ridge import Ridge

DR_NEEDS = ("propensities", "probabilities")


def corrected(
    estimator: DR | SwitchDR | DRos | SubGaussianDR, problem: Problem, w: Floats, bound: float | None
) -> Estimate:
    """mean(q_target + w (r - q_logged)) for weights w (n,) of at most `bound`."""
    terms = problem.outcome(estimator.outcome, estimator.folds, estimator.seed)
    z = problem.log.rewards - terms.q_logged
    z *= w
    z += terms.q_target
    # Rows that share a trained model are not independent, so only injected predictions have a known range.
    known = ScoreRange("doubly_robust", bound) if isinstance(estimator.outcome, FixedOutcome) else None
    return mean_of(estimator.name, problem, z, weight_diagnostics(problem, w, terms.cross_fitted), known)


@final
@dataclass(frozen=True)
class DR(Tuned):
    """Doubly robust (Robins and Rotnitzky 1995; Dudik et al. 2011), optionally with clipped weights.

    V = (1/n) sum_i [ q(x_i, pi) + min(w_i, clip) (r_i - q(x_i, a_i)) ].

    outcome, folds, seed: as of `DM`. clip: as of `IPS`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.DR(cael.FixedOutcome([0.0, 0.0])).estimate(log, [0.0, 1.0]).value  # q = 0: IPS
    3.0
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    tuned: ClassVar[tuple[str, setting]] = ("clip", setting.WEIGHT)
    outcome: OutcomeModel = field(default_factory=Ridge)
    clip: float | SLOPE | None = None
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive("clip", self.clip)

    def solve(self, problem: Problem) -> Estimate:
        if isinstance(self.clip, SLOPE):
            return self.clip.choose(self, problem)
        w = problem.weights if self.clip is None else W.clip(problem.weights, self.clip)
        return corrected(self, problem, w, lowest_bound(problem, self.clip))


@final
@dataclass(frozen=True)
class SNDR(Tuned):
    """Self-normalised doubly robust (Robins et al. 2007; Thomas and Brunskill 2016).

    V = (1/n) sum_i q(x_i, pi) + sum_i w_i (r_i - q(x_i, a_i)) / sum_i w_i. A strong default when weights are wild.

    outcome, folds, seed: as of `DM`. clip: as of `IPS`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 1], [1.0, 3.0, 5.0], [0.5] * 3)
    >>> cael.SNDR(cael.FixedOutcome([0.0, 0.0])).estimate(log, [0.0, 1.0]).value  # q = 0: SNIPS
    4.0
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    tuned: ClassVar[tuple[str, setting]] = ("clip", setting.WEIGHT)
    outcome: OutcomeModel = field(default_factory=Ridge)
    clip: float | SLOPE | None = None
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive("clip", self.clip)

    def solve(self, problem: Problem) -> Estimate:
        if isinstance(self.clip, SLOPE):
            return self.clip.choose(self, problem)
        w = problem.weights if self.clip is None else W.clip(problem.weights, self.clip)
        terms = problem.outcome(self.outcome, self.folds, self.seed)
        residual = problem.log.rewards - terms.q_logged
        diagnostics = weight_diagnostics(problem, w, terms.cross_fitted)
        return mean_plus_ratio(self.name, problem, terms.q_target, w, residual, diagnostics)


@final
@dataclass(frozen=True)
class SwitchDR(Tuned):
    """Switch-DR (Wang, Agarwal and Dudik 2017): rows with a weight above tau are left to the outcome model.

    V as of `DR` with w' = w 1{w <= tau}. tau = 0 is DM, tau = inf is DR.

    tau: the threshold, or SLOPE([...]) (the default, on a grid spanned by the weights). outcome, folds, seed: as of
    `DM`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.SwitchDR(cael.FixedOutcome([1.0, 2.0]), tau=1.0).estimate(log, [0.0, 1.0]).value  # w = 2 > tau: DM
    2.0
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    tuned: ClassVar[tuple[str, setting]] = ("tau", setting.WEIGHT)
    outcome: OutcomeModel = field(default_factory=Ridge)
    tau: float | SLOPE = field(default_factory=SLOPE)
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive("tau", self.tau)

    def solve(self, problem: Problem) -> Estimate:
        if isinstance(self.tau, SLOPE):
            return self.tau.choose(self, problem)
        return corrected(self, problem, W.switch(problem.weights, self.tau), lowest_bound(problem, self.tau))


@final
@dataclass(frozen=True)
class DRos(Tuned):
    """Doubly robust with optimistic shrinkage (Su, Dimakopoulou, Krishnamurthy and Dudik 2020).

    V as of `DR` with w' = lambda w / (w^2 + lambda). lambda -> 0 is DM, lambda = inf is DR.

    lambda_: the shrinkage, or SLOPE([...]) (the default, on a grid spanned by the squared weights). outcome, folds,
    seed: as of `DM`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.DRos(cael.FixedOutcome([1.0, 2.0]), lambda_=4.0).estimate(log, [0.0, 1.0]).value  # w' = 1
    2.5
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    tuned: ClassVar[tuple[str, setting]] = ("lambda_", setting.SQUARED_WEIGHT)
    outcome: OutcomeModel = field(default_factory=Ridge)
    lambda_: float | SLOPE = field(default_factory=SLOPE)
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive("lambda_", self.lambda_)

    def solve(self, problem: Problem) -> Estimate:
        if isinstance(self.lambda_, SLOPE):
            return self.lambda_.choose(self, problem)
        # lambda w / (w^2 + lambda) is largest, sqrt(lambda) / 2, at w = sqrt(lambda).
        bound = lowest_bound(problem, self.lambda_**0.5 / 2)
        return corrected(self, problem, W.shrink(problem.weights, self.lambda_), bound)


@final
@dataclass(frozen=True)
class SubGaussianDR(Tuned):
    """Doubly robust with sub-Gaussian weights (Metelli, Russo and Restelli 2021).

    V as of `DR` with w' = w / (1 - lambda + lambda w).

    lambda_: as of `SubGaussianIPS`. outcome, folds, seed: as of `DM`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.SubGaussianDR(cael.FixedOutcome([1.0, 2.0]), lambda_=0.0).estimate(log, [0.0, 1.0]).value
    3.0
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    tuned: ClassVar[tuple[str, setting]] = ("lambda_", setting.SHARE)
    outcome: OutcomeModel = field(default_factory=Ridge)
    lambda_: float | SLOPE | None = None
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_share("lambda_", self.lambda_)

    def solve(self, problem: Problem) -> Estimate:
        if isinstance(self.lambda_, SLOPE):
            return self.lambda_.choose(self, problem)
        lambda_ = W.subgaussian_lambda(problem.weights) if self.lambda_ is None else self.lambda_
        bound = lowest_bound(problem, 1 / lambda_ if self.lambda_ else None)
        return corrected(self, problem, W.subgaussian(problem.weights, lambda_), bound)
