"""How much to smooth, and how far to trust it: one bandwidth, blended with the sharp estimate.

The sharp estimate (bandwidth 0) has no bias but a large variance; a smoothed one the other way round. The bias of a
smoothed estimate gets a prior: mean 0, variance tau^2 = D^2 (S + c s^2), where D in [0, 1] is the roughness of the
smoothing (`codes.Smoothed`), S how much of the unexplained reward may still depend on the action, and the last term a
miscalibration of f that fades with the bandwidth. The difference d between the two estimates then gives the posterior
mean of the bias, and subtracting it is a blend of the two:

    V = (1 - kappa) V_smooth + kappa V_sharp,    kappa = tau^2 / (tau^2 + Var d).

S is large where the model explains nothing, and grows when d, at this bandwidth or a larger one, is larger than noise
allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats

TRUST = 4.0
"""S before the data speak is (1 - R^2)^TRUST of the residual variance: a network that explains most leaves noise."""
MISCALIBRATION = 0.01
"""The variance of a smooth error of f, as a share of the reward variance that f explains."""
SURPRISE, FEW = 3.0, 10.0
"""A squared difference is evidence of bias beyond SURPRISE (1 + FEW / rows) times its variance; rows: what the log is
worth to the sharp estimate. With few rows its error is far from normal."""
BOUND = 3.0
"""The bias bound is so many posterior standard deviations of the bias."""


@final
@dataclass(frozen=True)
class PathFacts:
    """What the choice looks at, for J bandwidths (first 0, last infinite).

    bandwidths: (J,). values: (J,) estimates; sharp: the unbiased one. variance: (J,) of each. gap: (J,) variance of
    value - sharp. roughness: (J,) D. shift: (J,) bias that the model itself predicts (0 for doubly robust forms).
    rows: the number of rows that the log is worth to the sharp estimate, n / E w^2.
    residual, reward: variances of what the model leaves, and of the rewards. explained: held-out R^2. hole: variance of
    the sharp estimate's own bias, from target mass on actions that are never logged.
    """

    bandwidths: Floats
    values: Floats
    sharp: float
    variance: Floats
    gap: Floats
    roughness: Floats
    shift: Floats
    rows: float
    residual: float
    reward: float
    explained: float
    hole: float


@final
@dataclass(frozen=True)
class Blend:
    """index: the bandwidth taken. share: kappa, the weight of the sharp estimate. bias_bound: on |bias|.

    errors: (J,) the estimated mean squared error of the blend at each bandwidth. shares: (J,) kappa at each.
    """

    index: int
    share: float
    bias_bound: float
    errors: Floats
    shares: Floats


def blend(facts: PathFacts) -> Blend:
    """The bandwidth whose blend has the least estimated mean squared error."""
    gap = facts.gap + facts.hole
    difference = facts.values - facts.sharp
    rough = np.maximum(facts.roughness, 1e-9) ** 2
    surprise = np.maximum(difference**2 - SURPRISE * (1 + FEW / facts.rows) * gap, 0) / rough
    # Evidence of bias counts for every bandwidth up to the one that showed it: a difference at a small bandwidth, where
    # D is tiny, would say absurd things about the large ones.
    surprise = np.maximum.accumulate(surprise[::-1])[::-1]
    left = (facts.residual * (1 - facts.explained) ** TRUST + surprise) / 2
    fade = 1 / (1 + 1 / np.maximum(facts.bandwidths, 1e-9))
    prior = rough * (left + MISCALIBRATION * facts.explained * facts.reward * fade**2) + facts.shift**2
    prior[0] = 0.0
    total = np.maximum(prior + gap, 1e-300)
    shares, posterior = prior / total, prior * gap / total
    errors = facts.variance + posterior
    shares[0], errors[0] = 1.0, facts.variance[0] + facts.hole
    at = int(errors.argmin())
    spread = posterior[at] if at else facts.hole
    return Blend(at, float(shares[at]), BOUND * float(np.sqrt(spread)), errors, shares)
