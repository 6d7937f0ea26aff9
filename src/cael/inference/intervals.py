"""Intervals: pure functions of per-row contributions.

The mean of the contributions is the estimate, and centred they are its influence function. With clusters, rows
that belong together are summed first, so every method below is cluster-robust.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError, positive_int
from cael.inference.reach import reach

METHODS = ("normal", "t", "studentised", "bca", "bernstein", "betting", "steadied", "bias_aware")
BLOCK = 2**16
BUCKETS = 1000
"""The bootstrap resamples at most this many sums of rows: the skewness of their mean is that of the rows' mean."""


@final
@dataclass(frozen=True)
class Interval:
    """A two-sided interval [low, high] that is meant to cover at the stated level.

    low, high: its ends. level: such as 0.95. method: how it was made.
    """

    low: float
    high: float
    level: float
    method: str

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __iter__(self) -> Iterator[float]:
        """low, high = interval."""
        return iter((self.low, self.high))

    @property
    def width(self) -> float:
        """high - low."""
        return self.high - self.low

    def to_dict(self) -> dict[str, float | str]:
        """Plain types, ready for JSON."""
        return {"low": self.low, "high": self.high, "level": self.level, "method": self.method}

    def __str__(self) -> str:
        return f"[{self.low:.6g}, {self.high:.6g}]"


def inside(interval: Interval, ends: tuple[float, float] | None) -> Interval:
    """The part of an interval between two numbers, of one that lies beyond them the nearer number; None: all of it."""
    if ends is None:
        return interval
    low, high = (min(max(end, ends[0]), ends[1]) for end in interval)
    return replace(interval, low=low, high=high)


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1, e.g. 0.95; got {level!r}.")


def units(contributions: Floats, clusters: Ints | None) -> Floats:
    """Independent units whose mean is the estimate: the rows, or one scaled sum per cluster.

    U_c = v + (C / n) sum over the cluster of (z_i - v), for C clusters: a cluster's influence, its size included.
    """
    if clusters is None:
        return contributions
    value = contributions.mean()
    codes = np.unique(clusters, return_inverse=True)[1]
    sums = np.bincount(codes, weights=contributions - value)
    return value + len(sums) / len(contributions) * sums


def bucketed(z: Floats, seed: int) -> Floats:
    """At most BUCKETS sums of randomly grouped units, scaled so that their mean is that of z."""
    n = len(z)
    if n <= BUCKETS:
        return z
    value, rng, sums = z.mean(), np.random.default_rng(seed), np.zeros(BUCKETS)
    for start in range(0, n, BLOCK):  # in blocks, so that no second array of n is made
        part = z[start : start + BLOCK] - value
        sums += np.bincount(rng.integers(0, BUCKETS, len(part), dtype=np.uint16), weights=part, minlength=BUCKETS)
    return value + BUCKETS / n * sums


def skewness_of_mean(z: Floats) -> float:
    """Third standardised moment of z (n,) over sqrt(n); 0 without spread."""
    centred = z - z.mean()
    spread = float(np.mean(centred**2))
    return float(np.mean((centred / math.sqrt(spread)) ** 3)) / math.sqrt(len(z)) if spread > 0 else 0.0


def stderr(z: Floats) -> float:
    """Standard error of the mean of independent units."""
    value, n = z.mean(), len(z)
    squares = sum(float(d @ d) for s in range(0, n, BLOCK) for d in (z[s : s + BLOCK] - value,))
    return math.sqrt(squares / (n - 1) / n)


def around(value: float, error: float, level: float, method: str, freedom: int) -> Interval:
    """value +- a quantile of the normal distribution, or of Student's t, times a known standard error."""
    from scipy.special import stdtrit

    factor = quantile(level) if method == "normal" else float(stdtrit(freedom, 0.5 + level / 2))
    half = factor * error
    return Interval(value - half, value + half, level, method)


def studentised(z: Floats, level: float, *, resamples: int = 999, seed: int = 0) -> Interval:
    """Bootstrap of t = (mean* - mean) / stderr*: right to second order for skewed contributions."""
    value, spread = float(z.mean()), stderr(z)
    z = bucketed(z, seed)
    m = len(z)
    if spread == 0:
        return Interval(value, value, level, "studentised")
    rng = np.random.default_rng(seed)
    t = np.empty(resamples)
    centred, kind = z - value, np.uint16 if m <= 2**16 else np.int64
    for start in range(0, resamples, 64):
        drawn = centred.take(rng.integers(0, m, size=(min(64, resamples - start), m), dtype=kind))
        total = drawn.sum(axis=1)
        raw = np.einsum("ij,ij->i", drawn, drawn)
        squares = raw - total**2 / m
        # The difference of two sums keeps rounding residue: a resample of equal values must count as spreadless.
        squares[squares <= 1e-12 * raw] = 0.0
        error = np.sqrt(squares / (m - 1) / m)
        # A resample without spread says nothing about t: it counts as an extreme value on the side it lies on.
        extreme = np.where(total > 0, np.inf, np.where(total < 0, -np.inf, 0.0))
        t[start : start + len(drawn)] = np.divide(total / m, error, out=extreme, where=error > 0)
    low, high = np.quantile(t, [0.5 - level / 2, 0.5 + level / 2], method="inverted_cdf")
    return Interval(value - float(high) * spread, value - float(low) * spread, level, "studentised")


def bca(z: Floats, level: float, *, resamples: int = 999, seed: int = 0) -> Interval:
    """Bias-corrected and accelerated bootstrap of the mean (Efron 1987)."""
    from scipy.special import ndtr, ndtri

    z = bucketed(z, seed)
    value, m = float(z.mean()), len(z)
    if stderr(z) == 0:
        return Interval(value, value, level, "bca")
    rng = np.random.default_rng(seed)
    sizes = [min(64, resamples - start) for start in range(0, resamples, 64)]
    means = np.concatenate([z.take(rng.integers(0, m, size=(size, m))).mean(axis=1) for size in sizes])
    below = float((means < value).mean() + (means <= value).mean()) / 2
    if not 0 < below < 1:
        raise InputError(
            f"method='bca': all of the {resamples} resampled means lie on one side of the value. Give more resamples, "
            "or use method='t'."
        )
    bias, centred = ndtri(below), z - value
    # The jackknife's acceleration, which a mean has in closed form.
    acceleration = (centred**3).sum() / (centred**2).sum() ** 1.5 / 6
    ends = bias + ndtri([0.5 - level / 2, 0.5 + level / 2])
    low, high = np.quantile(means, ndtr(bias + ends / (1 - acceleration * ends)))
    return Interval(float(low), float(high), level, "bca")


def bernstein(z: Floats, level: float, bounds: tuple[float, float]) -> Interval:
    """Empirical Bernstein (Maurer and Pontil 2009), two-sided, for units known beforehand to lie in `bounds`."""
    low, high = _checked_bounds(z, bounds)
    n, log_term = len(z), math.log(4 / (1 - level))
    half = math.sqrt(2 * float(z.var(ddof=1)) * log_term / n) + 7 * (high - low) * log_term / (3 * (n - 1))
    value = float(z.mean())
    return Interval(max(low, value - half), min(high, value + half), level, "bernstein")


def betting(z: Floats, level: float, bounds: tuple[float, float], *, seed: int = 0) -> Interval:
    """Hedged betting (Waudby-Smith and Ramdas 2024), for units known beforehand to lie in `bounds`.

    The value m is excluded once a fair bet against it has multiplied its stake by 2 / (1 - level). The capital that
    bets on "more than m" falls in m and the other one rises, so each end of the interval is found by bisection.
    The units are bet on in random order. The interval is widened, where need be, to hold the mean of the units.
    """
    low, high = _checked_bounds(z, bounds)
    if high == low:
        return Interval(low, high, level, "betting")
    y = np.random.default_rng(seed).permutation((z - low) / (high - low))
    stakes = _stakes(y, 1 - level)
    goal = math.log(2 / (1 - level))

    def excluded_below(m: float) -> bool:
        return _log_capital(y - m, np.minimum(stakes, 0.5 / m if m > 0 else np.inf)) >= goal

    def excluded_above(m: float) -> bool:
        return _log_capital(m - y, np.minimum(stakes, 0.5 / (1 - m) if m < 1 else np.inf)) >= goal

    middle = float(y.mean())
    left = min(middle, _edge(excluded_below))
    right = max(middle, 1 - _edge(lambda m: excluded_above(1 - m)))
    return Interval(low + left * (high - low), low + right * (high - low), level, "betting")


def _stakes(y: Floats, alpha: float) -> Floats:
    """Predictable bets: lambda_i = sqrt(2 log(2/alpha) / (n s2_{i-1})), from the units before i only."""
    n = len(y)
    i = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(y)) / (i + 1)
    variance = (0.25 + np.cumsum((y - mean) ** 2)) / (i + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.sqrt(2 * math.log(2 / alpha) / (n * before))


def _log_capital(gain: Floats, stakes: Floats) -> float:
    """The largest logarithm that the capital of these bets ever reached (Ville's inequality holds for the maximum)."""
    return float(np.cumsum(np.log1p(stakes * gain)).max())


def _edge(excluded: Callable[[float], bool]) -> float:
    """Where excluded(m), true from 0 up to some m in [0, 1] and false after it, stops being true; 0 if it never is."""
    low, high = 0.0, 1.0
    if not excluded(low):
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if excluded(middle) else (low, middle)
    return low


def _checked_bounds(z: Floats, bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = float(bounds[0]), float(bounds[1])
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InputError(f"an a-priori range must be finite, (low, high) with low <= high; got {bounds}.")
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    if z.min() < low - slack or z.max() > high + slack:
        raise InputError(
            f"the contributions reach from {z.min():.6g} to {z.max():.6g}, outside the a-priori range "
            f"[{low:.6g}, {high:.6g}]: the reward range or the largest weight that was stated is wrong."
        )
    return low, high


def bias_aware(value: float, error: float, bound: float, level: float) -> Interval:
    """value +- c error, c the `level` quantile of |N(bound/error, 1)| (Armstrong and Kolesar 2018).

    If |bias| <= bound, which is an assumption, and the error is normal, no shorter interval has the level.
    """
    below, above = reach(error, bound, None, quantile(level))
    return Interval(value - below, value + above, level, "bias_aware")


def quantile(level: float) -> float:
    """The number of standard errors of a two-sided normal interval."""
    from scipy.special import ndtri

    check_level(level)
    return float(ndtri(0.5 + level / 2))


ROUNDED = 1e-12
"""Less than that is rounding."""


def max_t(
    columns: Floats, level: float, *, hidden: Floats | None = None, resamples: int = 4000, seed: int = 0
) -> float:
    """The factor f for which mean_j +- f stderr_j covers the means of all columns of (units, p) together at `level`.

    Gaussian multipliers on the centred units give the distribution of the largest |t| (Chernozhukov et al. 2013): the
    p sums of a draw are normal, with the covariance of the units, so that as many numbers as columns draw them. Of one
    column the factor is that of a normal interval, without a draw.

    hidden: (p,) shares of the squared standard errors that the units do not show, which are independent: an arm without
    a success counts, too.
    """
    check_level(level)
    positive_int("resamples", resamples)
    if columns.shape[1] == 1:
        return quantile(level)
    grouped = np.stack([bucketed(column, seed) for column in columns.T], axis=1)
    centred = grouped - grouped.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    scaled = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    scaled[np.abs(scaled) < ROUNDED] = 0.0  # the sign of a first number that is rounding would choose other draws
    root = np.asarray(np.linalg.qr(scaled, mode="r"))  # its product with itself is the correlation of the columns
    rng = np.random.default_rng(seed)
    sizes = [min(500, resamples - start) for start in range(0, resamples, 500)]
    alone = np.zeros(columns.shape[1]) if hidden is None else hidden
    roots = np.concatenate([root * np.sqrt(1 - alone), np.diag(np.sqrt(alone))[alone > 0]])
    largest = np.concatenate([np.abs(rng.standard_normal((size, len(roots))) @ roots).max(axis=1) for size in sizes])
    return float(np.quantile(largest, level, method="higher"))


def hidden_share(seen: float, error: float) -> float:
    """The share of a squared standard error that the rows, whose own is `seen`, do not show."""
    share = 1 - (seen / error) ** 2 if error > 0 else 0.0
    return share if share > ROUNDED else 0.0  # rounding must not change how many random numbers a factor draws


def interval(
    z: Floats,
    level: float,
    method: str,
    *,
    bounds: tuple[float, float] | None = None,
    resamples: int = 999,
    seed: int = 0,
) -> Interval:
    """The interval of independent units z by a method's name, which needs no more than they."""
    check_level(level)
    positive_int("resamples", resamples)
    if method in ("normal", "t"):
        return around(float(z.mean()), stderr(z), level, method, len(z) - 1)
    if method == "studentised":
        return studentised(z, level, resamples=resamples, seed=seed)
    if method == "bca":
        return bca(z, level, resamples=resamples, seed=seed)
    if bounds is None:
        raise InputError(f"method={method!r} needs an a-priori range of the contributions.")
    return bernstein(z, level, bounds) if method == "bernstein" else betting(z, level, bounds, seed=seed)
