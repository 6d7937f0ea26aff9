"""How much to smooth, and how far to trust it: one bandwidth, blended with the sharp estimate.

The sharp estimate (bandwidth 0) has no bias but a large variance; a smoothed one the other way round. The bias of a
smoothed estimate gets a prior: mean 0, variance tau^2 = D^2 (S + c s^2), where D in [0, 1] is the roughness of the
smoothing (`codes.Smoothed`), S how much of the unexplained reward may still depend on the action, and the last term a
miscalibration of f that fades with the bandwidth. The difference d between the two estimates then gives the posterior
mean of the bias, and subtracting it is a blend of the two:

    V = (1 - kappa) V_smooth + kappa V_sharp,    kappa = tau^2 / (tau^2 + Var d).

S is large where the model explains nothing, and grows when d, at this bandwidth or a larger one, is larger than noise
allows. What the model explains is the lesser of two shares: of the reward, and of the difference between the actions
beside the noise. A model can explain most of the reward by the context alone and know nothing about actions.

The log also shows where f misses: the residual r - f is regressed on the place of the logged action between the two
policies, w^(1/4). That takes no large weights, so it sees a bias that is hidden in the noise of V_sharp. Where the
slope is beyond chance, what it implies for V_smooth is added to tau^2: it never moves the estimate towards the model.

The bias of the blend is (1 - kappa) times that of V_smooth; the interval allows for BOUND prior standard deviations of
it, by a prior that trusts the model less, and the share of the sharp estimate is raised until the interval is no longer
than that of the sharp estimate alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.inference.reach import reach, steadied

TRUST, CAUTION = 4.0, 2.0
"""S before the data speak is (1 - explained)^TRUST of the residual variance, as what a good model leaves is noise; with
CAUTION in the place of TRUST for what the interval allows for."""
MISCALIBRATION = 0.01
"""The variance of a smooth error of f, as a share of the reward variance that f explains."""
SURPRISE, FEW = 3.0, 10.0
"""A squared difference is evidence of bias beyond SURPRISE (1 + FEW / rows) times its variance; rows: what the log is
worth to the sharp estimate. With few rows its error is far from normal."""
EVIDENT = 2.0
"""A slope of the residual is evidence of bias beyond so many standard errors."""
BOUND = 2.0
"""The interval allows for so many prior standard deviations of the bias."""
FACTOR, STEPS = 1.96, 40
"""Standard errors at which lengths are compared, and the steps in which the share of the sharp estimate is raised."""


@final
@dataclass(frozen=True)
class PathFacts:
    """What the choice looks at, for J bandwidths (first 0, last infinite).

    bandwidths: (J,). values: (J,) estimates; sharp: the unbiased one. seen, apart: (J,) variances of the values and of
    value - sharp, by the contributions; sharp_seen: of the sharp one. second, cross: (J,) E W^2 and E W w. n: rows.
    roughness: (J,) D. shift: (J,) bias that the model itself predicts (0 for doubly robust forms). residual, reward:
    variances of what the model leaves, and of the rewards. noise: that of what is weighted; kurtosis: its fourth moment
    over its squared second one. explained: held-out R^2; explained_of_actions: the same of the difference between the
    actions. hole: variance of the sharp estimate's own bias, from target mass on actions that are never logged. slope:
    of what the model leaves on the place of the logged action, and its standard error; placed: (J,) mean place under
    the smoothed target, less that under the target.
    misfit: variance of the bias of smoothed weights whose logging policy is fitted; the sharp ones are logged.
    """

    bandwidths: Floats
    values: Floats
    sharp: float
    seen: Floats
    apart: Floats
    sharp_seen: float
    second: Floats
    cross: Floats
    n: float
    roughness: Floats
    shift: Floats
    residual: float
    reward: float
    noise: float
    kurtosis: float
    explained: float
    explained_of_actions: float
    hole: float
    slope: tuple[float, float]
    placed: Floats
    misfit: float = 0.0

    @property
    def rows(self) -> float:
        """The number of rows that the log is worth to the sharp estimate, n / E w^2."""
        return self.n / max(float(self.second[0]), 1e-300)

    @property
    def between(self) -> Floats:
        """E (W - w)^2 (J,)."""
        return np.maximum(self.second[0] - 2 * self.cross + self.second, 0.0)

    @property
    def gap(self) -> Floats:
        """The variance (J,) of value - sharp, raised towards what the second moments imply, and of the hole."""
        return steadied(self.apart, self.between, self.noise, self.kurtosis, self.n) + self.hole

    @property
    def missed(self) -> Floats:
        """The squared bias (J,) that the slope of the residual shows, as far as it is beyond chance."""
        slope, error = self.slope
        missed: Floats = max(slope**2 - (EVIDENT * error) ** 2, 0.0) * self.placed**2
        return missed

    def variance(self, shares: Floats) -> Floats:
        """The variance (J,) of the blends with these shares (J,) of the sharp estimate."""
        mixed = shares * (1 - shares)
        seen = (1 - shares) * self.seen + shares * self.sharp_seen - mixed * self.apart
        second = (1 - shares) * self.second + shares * self.second[0] - mixed * self.between
        return steadied(np.maximum(seen, 0.0), second, self.noise, self.kurtosis, self.n)


@final
@dataclass(frozen=True)
class Blend:
    """index: the bandwidth taken. share: kappa, the weight of the sharp estimate. bias_bound: what the interval allows
    for. variance: of the blend. error: its estimated mean squared error.

    errors: (J,) the least estimated mean squared error at each bandwidth. shares: (J,) kappa there. prior: (J,)
    variance of the bias.
    """

    index: int
    share: float
    bias_bound: float
    variance: float
    error: float
    errors: Floats
    shares: Floats
    prior: Floats


def prior_of(facts: PathFacts, trust: float) -> Floats:
    """The variance (J,) of the bias of each smoothed estimate."""
    difference = facts.values - facts.sharp
    rough = np.maximum(facts.roughness, 1e-9) ** 2
    surprise = np.maximum(difference**2 - SURPRISE * (1 + FEW / facts.rows) * facts.gap, 0) / rough
    # Evidence of bias counts for every bandwidth up to the one that showed it: a difference at a small bandwidth, where
    # D is tiny, would say absurd things about the large ones.
    surprise = np.maximum.accumulate(surprise[::-1])[::-1]
    explained = min(facts.explained, facts.explained_of_actions)
    left = (facts.residual * (1 - explained) ** trust + surprise) / 2
    fade = 1 / (1 + 1 / np.maximum(facts.bandwidths, 1e-9))
    prior: Floats = rough * (left + MISCALIBRATION * facts.explained * facts.reward * fade**2)
    prior += facts.shift**2 + facts.missed + facts.misfit
    prior[0] = 0.0
    return prior


def blend(facts: PathFacts) -> Blend:
    """The bandwidth whose blend has the least estimated mean squared error."""
    prior = prior_of(facts, TRUST)
    shares = prior / np.maximum(prior + facts.gap, 1e-300)
    shares[0] = 1.0
    errors = errors_of(facts, prior, shares)
    at = int(errors.argmin())
    return taken(facts, shares, errors, at, share_of(facts, at, float(shares[at])))


def errors_of(facts: PathFacts, prior: Floats, shares: Floats) -> Floats:
    """Estimated mean squared errors (J,)."""
    return facts.variance(shares) + (1 - shares) ** 2 * prior + shares**2 * facts.hole


def taken(facts: PathFacts, shares: Floats, errors: Floats, at: int, share: float) -> Blend:
    """The blend of one bandwidth with a share of the sharp estimate."""
    here, prior = np.where(np.arange(len(shares)) == at, share, shares), prior_of(facts, TRUST)
    return Blend(
        at, share, allowance(facts, at, share), float(facts.variance(here)[at]),
        float(errors_of(facts, prior, here)[at]), errors, shares, prior,
    )  # fmt: skip


def allowance(facts: PathFacts, at: int, share: float) -> float:
    """What the interval allows for: BOUND standard deviations of the bias of a blend."""
    spread = float(np.sqrt(prior_of(facts, CAUTION)[at]))
    return BOUND * ((1 - share) * spread + share * float(np.sqrt(facts.hole)))


def share_of(facts: PathFacts, at: int, share: float) -> float:
    """The share of the sharp estimate, raised until the interval is no longer than that of the sharp estimate."""

    def length(share: float) -> float:
        error = float(np.sqrt(facts.variance(np.full(len(facts.values), share))[at]))
        return reach(error, allowance(facts, at, share), None, FACTOR)[0]

    longest = length(1.0)
    raised = (share + (1 - share) * step / STEPS for step in range(STEPS))
    return next((kappa for kappa in raised if length(kappa) <= longest), 1.0)
