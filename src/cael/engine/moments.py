"""Moments: what is kept of rows that were read, and Combination: a column of contributions made from them.

Every contribution of a streamed estimator is a fixed linear combination of a few columns ("features") whose
coefficients are known once all rows were read. So means, co-moments and bucket sums of the features are enough for
its value, its exact standard error, its paired contrasts and its bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.engine.standing import Standing, standing_of
from cael.errors import NEED_CLUSTERS, NEED_ROWS, InputError

BUCKETS = 997
"""Sums of rows that the bootstrap resamples. A prime, so that no period of a log falls into step with it."""

SHORT = 64
"""Runs of no more columns than this on average are summed together."""
CACHED = 2**14
"""Rows whose contributions are computed together."""
FEW, LONG = 8, 4096
"""Of so few rows that are longer, products are taken vector by vector."""
LOSSLESS = 1e3
"""Sums of squares may be so many times those of the deviations before deviations are summed by themselves: three
digits of sixteen."""


@final
@dataclass(frozen=True, eq=False)
class Moments:
    """Of p features over n rows, B buckets.

    mean: (p,). comoment: (p, p), sums of products of deviations from the mean. bucket_rows: (B,). bucket_sums: (p, B).
    standing: of rows with sampling weights s, what noise is made of; mean, comoment, bucket_rows and bucket_sums are
    then sums in which each row counts s times, and the comoment is scaled to n rows.
    """

    n: int
    mean: Floats
    comoment: Floats
    bucket_rows: Floats
    bucket_sums: Floats
    standing: Standing | None = None

    @property
    def total(self) -> float:
        """What the rows stand for: their number, or the sum of their sampling weights."""
        return self.n if self.standing is None else self.standing.total

    @property
    def scale(self) -> float:
        """Rows for each that they stand for: what makes sums of sampling weights sums over rows."""
        return 1.0 if self.standing is None else self.n / self.standing.total

    @property
    def squares(self) -> float:
        """The sum of squares of what each row stands for."""
        return self.n if self.standing is None else self.standing.squares

    @property
    def kish(self) -> float:
        """Rows that count alike and are worth as many of these (Kish 1965)."""
        return self.n if self.standing is None else self.standing.total**2 / self.standing.squares

    @property
    def noise(self) -> Floats:
        """(p, p) sums of products of the rows' influences on the means: the comoment, where all rows count alike."""
        return self.comoment if self.standing is None else self.standing.products * self.scale**2

    def counted_variance(self, c: Floats, value: float) -> float:
        """The variance over the rows of a combination c (p,) of columns with this mean, times sampling weights."""
        if self.standing is None:
            return float(c @ self.comoment @ c) / self.n
        return self.standing.second(c, value) * self.scale**2 / self.n - value**2

    def merge(self, other: Moments) -> Moments:
        """Of the rows of both (Chan, Golub and LeVeque 1979): no digits are lost where means are large."""
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        total, apart = self.total + other.total, other.mean - self.mean
        mean = self.mean + apart * (other.total / total)
        comoment = np.outer(apart, apart) * (self.total * (other.total / total))
        standing = None
        if self.standing is None or other.standing is None:
            comoment = self.comoment + other.comoment + comoment
        else:
            comoment += self.comoment / self.scale + other.comoment / other.scale
            comoment *= (self.n + other.n) / total
            standing = self.standing.about(mean - self.mean).plus(other.standing.about(mean - other.mean))
        return Moments(
            self.n + other.n, mean, comoment,
            self.bucket_rows + other.bucket_rows, self.bucket_sums + other.bucket_sums, standing,
        )  # fmt: skip

    def resampled(self, counts: Floats) -> Floats:
        """Means (p, b) where the rows of each bucket are taken so many times: counts (b, B)."""
        return np.asarray((self.bucket_sums @ counts.T) / (counts @ self.bucket_rows))


def no_moments(p: int) -> Moments:
    return Moments(0, np.zeros(p), np.zeros((p, p)), np.zeros(BUCKETS), np.zeros((p, BUCKETS)))


def buckets_at(block: Floats, first: int, n: int) -> tuple[Floats, Floats]:
    """Rows (B,) and sums (p, B) of features in `block` (p, m * BUCKETS).

    The n columns from `first` on are rows, and all others are 0. A row's bucket is its place modulo BUCKETS.
    """
    p, width = block.shape
    ends = np.zeros(BUCKETS)
    ends[: (first + n) % BUCKETS] += 1
    ends[: first % BUCKETS] -= 1
    rows = ends + ((first + n) // BUCKETS - first // BUCKETS)
    return rows, np.ones(width // BUCKETS) @ block.reshape(p, -1, BUCKETS)


def buckets_by(features: Floats, bucket: Ints, sampling: Floats | None = None) -> tuple[Floats, Floats]:
    """Rows (B,) and sums (p, B) of features (p, n) whose rows fall into the given buckets (n,). sampling: weights."""
    rows = np.bincount(bucket, weights=sampling, minlength=BUCKETS).astype(np.float64)
    counted = features if sampling is None else features * sampling
    return rows, np.stack([np.bincount(bucket, weights=row, minlength=BUCKETS) for row in counted]).astype(float)


def moments_by(features: Floats, bucket: Ints, sampling: Floats | None = None) -> Moments:
    """Of features (p, n) whose rows fall into the given buckets (n,). sampling: (n,) weights of the rows."""
    rows, sums = buckets_by(features, bucket, sampling)
    return together(runs_of(features, [len(bucket)], sums, sampling), rows, sums)


def runs_of(features: Floats, bounds: Sequence[int], sums: Floats, sampling: Floats | None = None) -> list[Moments]:
    """Of runs of columns of features (p, n) that end at the bounds, without buckets. sums: (p, B) of the buckets.
    sampling: (n,) weights of the rows."""
    n = features.shape[1]
    if sampling is not None:
        cuts = zip([0, *bounds[:-1]], bounds, strict=True)
        return [weighted_run(features[:, start:stop], sampling[start:stop]) for start, stop in cuts]
    if list(bounds) == [n]:
        return [about_mean(features, sums.sum(axis=1) / n)]
    if n <= SHORT * len(bounds):
        return short_runs(features, np.array(bounds))
    parts = (features[:, start:stop] for start, stop in zip([0, *bounds[:-1]], bounds, strict=True))
    return [about_mean(part, part.mean(axis=1)) for part in parts]


def short_runs(features: Floats, stops: Ints) -> list[Moments]:
    """Of many runs of few columns, all at once: each is filled up with zeros to the length of the longest."""
    p, n = features.shape
    starts = np.concatenate([[0], stops[:-1]])
    sizes = stops - starts
    within = np.arange(sizes.max())
    means = np.add.reduceat(features, starts, axis=1) / sizes
    apart = features[:, np.minimum(starts[:, None] + within, n - 1)] - means[:, :, None]
    apart[:, within >= sizes[:, None]] = 0.0
    by_run = np.ascontiguousarray(apart.transpose(1, 0, 2))
    comoments = by_run @ by_run.transpose(0, 2, 1)
    none, columns = np.empty((p, 0)), np.ascontiguousarray(means.T)
    return [Moments(*facts, np.empty(0), none) for facts in zip(sizes.tolist(), columns, comoments, strict=True)]


def weighted_run(rows: Floats, sampling: Floats) -> Moments:
    """Of rows (p, n) that count by their sampling weights (n,), without buckets."""
    p, n = rows.shape
    total = float(sampling.sum())
    mean = rows @ sampling / total
    apart = rows - mean[:, None]
    counted = apart * sampling
    comoment = counted @ apart.T * (n / total)
    return Moments(n, mean, comoment, np.empty(0), np.empty((p, 0)), standing_of(counted, sampling))


def about_mean(rows: Floats, mean: Floats) -> Moments:
    """Of rows (p, n) with the mean (p,), without buckets.

    Products of the rows as they are, moved to the mean, save a pass over the rows. Where that would lose digits they
    are taken again, of deviations.
    """
    p, n = rows.shape
    raw = products(rows)
    comoment = raw - n * np.outer(mean, mean)
    if (raw.diagonal() > LOSSLESS * comoment.diagonal()).any():
        comoment = products(rows - mean[:, None])
    return Moments(n, mean, comoment, np.empty(0), np.empty((p, 0)))


def together(parts: Sequence[Moments], rows: Floats, sums: Floats) -> Moments:
    """Of the rows of all parts, with their buckets."""
    if parts[0].standing is not None:
        return replace(reduce(Moments.merge, parts), bucket_rows=rows, bucket_sums=sums)
    count = np.array([part.n for part in parts], dtype=np.float64)
    means = np.stack([part.mean for part in parts])
    mean = count @ means / count.sum()
    apart = means - mean
    comoment = np.sum([part.comoment for part in parts], axis=0) + (apart.T * count) @ apart
    return Moments(int(count.sum()), mean, comoment, rows, sums)


def products(rows: Floats) -> Floats:
    """rows @ rows.T for rows (p, n); of few long ones by vectors, which is up to three times as fast."""
    p = len(rows)
    if p > FEW or rows.shape[1] <= LONG:
        return np.asarray(rows @ rows.T)
    square = np.empty((p, p))
    for at in range(p):
        square[at, at:] = square[at:, at] = rows[at:] @ rows[at]
    return square


@final
@dataclass(frozen=True, eq=False)
class Clusters:
    """Sums of the features by cluster. keys: (m,) 64-bit hashes, sorted. rows: (m,), or sums of their sampling weights.
    sums: (m, p)."""

    keys: Array
    rows: Floats
    sums: Floats

    def merge(self, other: Clusters) -> Clusters:
        return joined([self, other])


def joined(parts: Sequence[Clusters]) -> Clusters:
    """The clusters of all parts, each once."""
    arrays = zip(*((part.keys, part.rows, part.sums) for part in parts), strict=True)
    return grouped(*map(np.concatenate, arrays))


def grouped(keys: Array, rows: Floats, sums: Floats) -> Clusters:
    """Sums (m, p) and row counts (m,) added up by key."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.empty(0, np.intp)
    if len(starts) == len(keys):
        return Clusters(keys, rows[order], sums[order])
    return Clusters(keys[starts], np.add.reduceat(rows[order], starts), np.add.reduceat(sums[order], starts, axis=0))


@final
@dataclass(frozen=True, eq=False)
class Combination:
    """One column of contributions: constant + coefficients @ features, over the rows of `moments`.

    clusters: the sums by cluster where rows belong together and all clusters are kept; where there were too many,
    `by_bucket` is true and the buckets, each of which holds whole clusters, stand for them. block: (p, n) the features
    themselves, of a log in memory, and counted: (n,) their sampling weights, with mean 1 (None: all count alike).
    """

    constant: float
    coefficients: Floats
    moments: Moments
    clusters: Clusters | None = None
    by_bucket: bool = False
    block: Floats | None = None
    counted: Floats | None = None

    @property
    def rows(self) -> Floats:
        """The contributions (n,) of the rows themselves, of a log in memory: their mean is the value. With sampling
        weights s, that of a row is V + s (z - V) / mean(s)."""
        z = self.scores
        return z if self.counted is None else self.value + self.counted * (z - self.value)

    @property
    def shares(self) -> Floats:
        """The scores (n,) as rows count: their mean is the value, too, but in a bootstrap of a ratio both of its parts
        follow the rows that are drawn."""
        return self.scores if self.counted is None else self.counted * self.scores

    @property
    def scores(self) -> Floats:
        """constant + coefficients @ features (n,) of the rows, of a log in memory."""
        assert self.block is not None
        z = np.full(self.block.shape[1], self.constant)
        used = [(int(at), float(self.coefficients[at])) for at in np.flatnonzero(self.coefficients)]
        for start in range(0, len(z), CACHED):  # what is added stays in the processor's cache
            part = slice(start, start + CACHED)
            for at, coefficient in used:
                z[part] += coefficient * self.block[at, part]
        return z

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.moments.n

    @property
    def value(self) -> float:
        return self.constant + float(self.coefficients @ self.moments.mean)

    @property
    def variance(self) -> float:
        """The variance over the rows of a column of weights, which are times sampling weights where there are any."""
        return self.moments.counted_variance(self.coefficients, self.value)

    @property
    def independent(self) -> int:
        """The number of independent units behind the standard error: rows, clusters, or buckets of clusters."""
        if self.by_bucket:
            return int((self.moments.bucket_rows > 0).sum())
        return self.n if self.clusters is None else len(self.clusters.keys)

    @property
    def stderr(self) -> float:
        """The standard error of the value, like that of an estimate that has its contributions in memory."""
        # Rounding can leave a quadratic form of a matrix without spread a little below 0.
        return math.sqrt(max(0.0, self.shared_error(self)))

    def shared_error(self, other: Combination) -> float:
        """The covariance of the two values, as the rows show it; of one with itself, the square of `stderr`."""
        m, n = self.independent, self.n
        if m < 2:
            raise InputError(f"all rows are in one cluster: {NEED_CLUSTERS}" if n > 1 else NEED_ROWS)
        products = self.covariance(other)
        if self.clusters is not None and not self.by_bucket:
            products *= (m / self.moments.total) ** 2
        return products / (m - 1) / m

    @property
    def cluster_effect(self) -> float:
        """How many times larger the variance is than if the rows of a cluster were independent; at least 1."""
        if self.clusters is None and not self.by_bucket:
            return 1.0
        alone = replace(self, clusters=None, by_bucket=False).stderr
        return max(1.0, (self.stderr / alone) ** 2) if alone > 0 else 1.0

    @property
    def buckets(self) -> Floats:
        """Sums of rows in buckets, scaled so that their mean is the value: units for a bootstrap."""
        kept = self.moments.bucket_rows > 0
        rows, sums = self.moments.bucket_rows[kept], self.moments.bucket_sums[:, kept]
        apart = self.coefficients @ (sums - self.moments.mean[:, None] * rows)
        return self.value + len(rows) / self.moments.total * apart

    def minus(self, other: Combination) -> Combination | None:
        """The difference of two columns of one pass; of two passes over a log in memory, the rows know better."""
        if self.moments is not other.moments:
            if self.block is not None and other.block is not None:
                return None
            raise InputError("cannot subtract estimates that were not made in one pass over the log.")
        return self.plus(-1.0, other)

    def plus(self, slope: float, other: Combination) -> Combination:
        """This one and a multiple of another one of the same pass."""
        coefficients = self.coefficients + slope * other.coefficients
        return replace(self, constant=self.constant + slope * other.constant, coefficients=coefficients)

    def covariance(self, other: Combination) -> float:
        """Sum over independent units of the products of deviations, on the scale of `stderr`: rows, or clusters."""
        if self.by_bucket:
            return float((self.buckets - self.value) @ (other.buckets - other.value))
        if self.clusters is None:
            return float(self.coefficients @ self.moments.noise @ other.coefficients)
        sums = self.clusters.sums - self.clusters.rows[:, None] * self.moments.mean
        return float((sums @ self.coefficients) @ (sums @ other.coefficients))
