"""Estimators that correct an outcome model with weighted residuals: DR, SNDR, SwitchDR, DRos, SubGaussianDR.

All have V = (1/n) sum_i [ q(x_i, pi) + w'_i (r_i - q(x_i, a_i)) ], q(x, pi) = sum_a pi(a|x) q(x, a), and differ in the
weight w' made from w = pi / mu. Unbiased, with w' = w, if the propensities or the outcome model are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

from cael.estimators.selection import SLOPE, Setting, Tuned
from cael.estimators.weighting import CLIP, SUBGAUSSIAN
from cael.inference.weight_rules import Shrink, Switch
from cael.outcomes.outcome_model import OutcomeModel
from cael.outcomes.ridge import Ridge

DR_NEEDS = ("propensities", "probabilities")


@final
@dataclass(frozen=True)
class DR(Tuned):
    """Doubly robust (Robins and Rotnitzky 1995; Dudik et al. 2011), optionally with clipped weights.

    V = (1/n) sum_i [ q(x_i, pi) + min(w_i, clip) (r_i - q(x_i, a_i)) ].

    outcome, folds, seed: see `DM`. clip: see `IPS`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.DR(cael.FixedOutcome([0.0, 0.0])).estimate(log, [0.0, 1.0]).value  # q = 0: IPS
    3.0
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    panel: ClassVar[str] = "default"
    tuned: ClassVar[Setting] = CLIP
    outcome: OutcomeModel = field(default_factory=Ridge)
    clip: float | SLOPE | None = None
    folds: int = 5
    seed: int = 0


@final
@dataclass(frozen=True)
class SNDR(Tuned):
    """Self-normalised doubly robust (Robins et al. 2007; Thomas and Brunskill 2016).

    V = (1/n) sum_i q(x_i, pi) + sum_i w_i (r_i - q(x_i, a_i)) / sum_i w_i. A strong default when weights are wild.

    outcome, folds, seed: see `DM`. clip: see `IPS`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 1], [1.0, 3.0, 5.0], [0.5] * 3)
    >>> cael.SNDR(cael.FixedOutcome([0.0, 0.0])).estimate(log, [0.0, 1.0]).value  # q = 0: SNIPS
    4.0
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    panel: ClassVar[str] = "default"
    tuned: ClassVar[Setting] = CLIP
    self_normalised: ClassVar[bool] = True
    outcome: OutcomeModel = field(default_factory=Ridge)
    clip: float | SLOPE | None = None
    folds: int = 5
    seed: int = 0


@final
@dataclass(frozen=True)
class SwitchDR(Tuned):
    """Switch-DR (Wang, Agarwal and Dudik 2017): rows with a weight above tau are left to the outcome model.

    V of `DR` with w' = w 1{w <= tau}. tau = 0 is DM, tau = inf is DR.

    tau: the threshold, or SLOPE([...]) (the default, on a grid spanned by the weights). outcome, folds, seed: see `DM`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.SwitchDR(cael.FixedOutcome([1.0, 2.0]), tau=1.0).estimate(log, [0.0, 1.0]).value  # w = 2 > tau: DM
    2.0
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    tuned: ClassVar[Setting] = Setting("tau", lambda tau: Switch(float(tau or 0.0)), power=1)
    outcome: OutcomeModel = field(default_factory=Ridge)
    tau: float | SLOPE = field(default_factory=SLOPE)
    folds: int = 5
    seed: int = 0


@final
@dataclass(frozen=True)
class DRos(Tuned):
    """Doubly robust with optimistic shrinkage (Su, Dimakopoulou, Krishnamurthy and Dudik 2020).

    V of `DR` with w' = lambda w / (w^2 + lambda). lambda -> 0 is DM, lambda = inf is DR.

    lambda_: the shrinkage, or SLOPE([...]) (the default, on a grid spanned by the squared weights). outcome, folds,
    seed: see `DM`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.DRos(cael.FixedOutcome([1.0, 2.0]), lambda_=4.0).estimate(log, [0.0, 1.0]).value  # w' = 1
    2.5
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    tuned: ClassVar[Setting] = Setting("lambda_", lambda most: Shrink(float(most or 0.0)), power=2)
    outcome: OutcomeModel = field(default_factory=Ridge)
    lambda_: float | SLOPE = field(default_factory=SLOPE)
    folds: int = 5
    seed: int = 0


@final
@dataclass(frozen=True)
class SubGaussianDR(Tuned):
    """Doubly robust with sub-Gaussian weights (Metelli, Russo and Restelli 2021).

    V of `DR` with w' = w / (1 - lambda + lambda w).

    lambda_: see `SubGaussianIPS`. outcome, folds, seed: see `DM`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.SubGaussianDR(cael.FixedOutcome([1.0, 2.0]), lambda_=0.0).estimate(log, [0.0, 1.0]).value
    3.0
    """

    needs: ClassVar[tuple[str, ...]] = DR_NEEDS
    tuned: ClassVar[Setting] = SUBGAUSSIAN
    outcome: OutcomeModel = field(default_factory=Ridge)
    lambda_: float | SLOPE | None = None
    folds: int = 5
    seed: int = 0
