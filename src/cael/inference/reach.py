"""How far an interval reaches below and above a value: noise, where rewards are 0 or 1 by a binomial, and bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats

ASSUMPTION = (
    "it assumes that the reward model misses no more than that where the target policy differs from the logging policy"
)
"""What an interval that allows for a bias assumes: no log shows it."""


def allowance(bound: float, moved: float | None = None) -> str:
    """What the interval allows for and assumes, wherever that is said; a sentence without its full stop. moved: see
    `Diagnostics`."""
    if moved is None:
        return f"This interval allows for a bias of up to {bound:.3g}; {ASSUMPTION}"
    model = f", and {ASSUMPTION.removeprefix('it assumes ')}" if bound > moved else ""
    return (
        f"This interval allows for a bias of up to {bound:.3g}: the weights, whose propensities are estimated, moved "
        f"the value by {moved:.3g} from what the reward model alone says; it assumes that their error is no larger"
        f"{model}"
    )


VARIES = 0.2
"""The variance where a target goes differs from the mean one by so much: a relative variance. It is what the pooled
variance is believed to be worth beside rows of the target itself."""
FEWEST = 20
"""Rewards are said to take two values from so many independent rows on."""
NONE = 1e-6
"""So few successes are none, but for rounding."""
SKEWED, KNOWN = 0.25, 30
"""A skewness that is larger counts as this; units that it takes to know one."""
NORMAL = 2.0
"""The kurtosis of a normal distribution, less one."""


@final
@dataclass(frozen=True)
class Pooled:
    """What is known of the variance of a weighted mean beside its own contributions.

    second: E W^2 of the weights. noise: variance of what is weighted, over all rows. kurtosis: of the same. level: of
    weights that are not normalised, whose noise is a mean square: the mean of what is weighted, times the weights.

    A variance that m = n / E W^2 rows show has itself the relative variance (kurtosis - 1) / m, which is large for rare
    successes and few rows. (noise E W^2 - level^2) / n is another estimate of it, which is off by VARIES. Where it is
    the larger, the mean of the two by their precisions is taken.
    """

    second: float
    noise: float
    kurtosis: float
    level: float = 0.0

    def variance(self, seen: float, n: float) -> float:
        """The variance of the mean, from that of its contributions. n: independent rows."""
        return float(steadied(np.array(seen), np.array(self.second), self.noise, self.kurtosis, n, self.level))

    def spread(self, own: float, seen: float, n: float) -> float:
        """The variance of one reward where the target goes, raised as `variance` is. own: what its value implies."""
        if (self.noise * self.second - self.level**2) / n <= seen:
            return own
        return own + max(self.noise - own, 0.0) * float(belief(np.array(self.second), self.kurtosis, n))


def belief(second: Floats, kurtosis: float, n: float) -> Floats:
    """The share of the pooled variance in a mean of two by their precisions."""
    doubt: Floats = max(kurtosis - 1, NORMAL) * second / n
    return doubt / (doubt + VARIES)


def steadied(seen: Floats, second: Floats, noise: float, kurtosis: float, n: float, level: float = 0.0) -> Floats:
    """Variances of weighted means, raised towards (noise E W^2 - level^2) / n where that is larger (`Pooled`)."""
    raised: Floats = seen + np.maximum((noise * second - level**2) / n - seen, 0.0) * belief(second, kurtosis, n)
    return raised


def ends_of(values: tuple[float, float] | None, n: float) -> tuple[float, float] | None:
    """The two rewards between which every mean of them lies; None where there are others, or too few independent rows
    to say so. values: all that rewards are, where they are two. n: independent rows."""
    return values if n >= FEWEST else None


@final
@dataclass(frozen=True)
class Proportion:
    """A value of rewards that are either low or high.

    share: of the high ones. trials: so many independent trials would be as exact. error: the standard error of the
    value. baseline: of a lift, the standard error of the value that it is compared with; None: this is no lift.
    """

    share: float
    trials: float
    low: float
    high: float
    error: float
    baseline: float | None = None

    def reach(self, factor: float) -> tuple[float, float]:
        """From the share to the ends of its Jeffreys interval, at the level of a normal one of so many errors."""
        from scipy.special import betaincinv, ndtr

        tail, share = float(ndtr(-factor)), min(max(self.share, 0.0), 1.0)
        a, b = share * self.trials + 0.5, (1 - share) * self.trials + 0.5
        low = 0.0 if a - 0.5 < NONE else float(betaincinv(a, b, tail))
        high = 1.0 if b - 0.5 < NONE else float(1 - betaincinv(b, a, tail))
        size = self.high - self.low
        return (share - low) * size, (high - share) * size

    def noise(self, error: float, factor: float) -> tuple[float, float]:
        """How far the noise of a value or a lift with this standard error reaches below and above.

        The part of a lift's variance that is the value's has the value's shape; the rest is normal. What the shape
        lacks below where there are almost no successes, the value that it is compared with has of its own.
        """
        below, above = (part / self.error for part in self.reach(factor))
        own, rest = min(error, self.error) ** 2, max(error**2 - self.error**2, 0.0) * factor**2
        lacking = min(error, self.baseline or 0.0) ** 2 * max(factor**2 - below**2, 0.0)
        return math.sqrt(own * below**2 + max(rest, lacking)), math.sqrt(own * above**2 + rest)


def reach(error: float, bound: float, proportion: Proportion | None, factor: float) -> tuple[float, float]:
    """How far an interval reaches below and above: factor standard errors, and what a bias up to a bound needs more."""
    below = above = factor * error
    if proportion is not None and proportion.error > 0 and error > 0:
        below, above = proportion.noise(error, factor)
    if bound == 0:
        return below, above
    if error == 0:
        return bound, bound
    more = with_bias(bound / error, factor) / factor
    return below * more, above * more


def no_wider(reach: tuple[float, float], others: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A reach below and above, both shortened alike where it is wider than the widest of others; as it is without."""
    size, most = sum(reach), max(map(sum, others), default=math.inf)
    return reach if size <= most else (reach[0] * (most / size), reach[1] * (most / size))


def lacking(skew: float, units: int, factor: float) -> float:
    """How many standard errors a normal interval lacks on the side of the long tail. skew: of the mean of so many
    independent units; of too few of them it is not known.

    By the Edgeworth expansion of a studentised mean both ends belong skew (2 z^2 + 1) / 6 further towards that tail,
    since a mean that came out low has a small standard error, too (Johnson 1978; Hall 1992). The other end stays: a
    skewness is hardly known where it matters. Beyond SKEWED the expansion says no more.
    """
    return 0.0 if units < KNOWN else min(max(skew, -SKEWED), SKEWED) * (2 * factor**2 + 1) / 6


def heavier(factor: float, freedom: int | None) -> float:
    """The quantile of Student's t with so many degrees of freedom in place of a normal one; None: infinitely many."""
    from scipy.special import ndtr, stdtrit

    return factor if freedom is None else -float(stdtrit(freedom, ndtr(-factor)))


def with_bias(ratio: float, factor: float) -> float:
    """The number of standard errors that holds a value whose bias is up to `ratio` standard errors at the level of
    `factor`: the quantile of |N(ratio, 1)| (Armstrong and Kolesar 2018)."""
    from scipy.special import chndtrix, ndtr, ndtri

    level = float(2 * ndtr(factor) - 1)
    # For a large ratio |N| is N: the noncentral chi-square has lost its lower tail.
    return math.sqrt(float(chndtrix(level, 1.0, ratio**2))) if ratio < 30 else ratio + float(ndtri(level))
