"""Linear combinations of estimators, with weights that sum to one: MetaOPE and OPERA."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.errors import InputError, positive_int
from cael.estimators.estimator import Estimator
from cael.estimators.several import Looked, Several, bucketed, consistent
from cael.inference.diagnostics import of_contrast, with_warnings
from cael.inference.estimate import Estimate

SHRINKAGE = 0.05
"""IPS - SNIPS and DR - SNDR are both nearly multiples of w - 1, so a difference of differences has no variance to first
order, and weights without bound. With so much of the diagonal, intervals held where the weights are tame."""
CONDITION = 1e-8
"""The least eigenvalue of a correlation matrix that is inverted, as a share of the largest."""
NONE = 1e-12
"""A standard error that is so small a share of the largest is none."""


class Combined(Several):
    """A linear combination of estimators of one value. shrinkage: of the correlations of their errors."""

    shrinkage: float

    def check_candidates(self) -> None:
        super().check_candidates()
        if not 0 <= self.shrinkage <= 1:
            raise InputError(f"shrinkage must be in [0, 1]; got {self.shrinkage!r}.")

    @abstractmethod
    def shares(self, looked: Looked) -> Floats:
        """(m,) the weights of the candidates; they sum to one."""

    @final
    def merged(self, looked: Looked) -> Estimate:
        shares, sums = self.shares(looked), [estimate.sums for estimate in looked.estimates if estimate.sums]
        constant = sum(share * one.constant for share, one in zip(shares, sums, strict=True))
        coefficients = np.stack([one.coefficients for one in sums])
        diagnostics = reduce(of_contrast, [estimate.diagnostics for estimate in looked.estimates])
        floor = floor_of(looked, shares)
        diagnostics = with_warnings(replace(diagnostics, stderr_floor=floor), (self._note(shares),))
        together = replace(sums[0], constant=float(constant), coefficients=shares @ coefficients)
        return looked.answer.estimate_of(self.name, together, diagnostics)

    def _note(self, shares: Floats) -> str:
        pairs = zip(shares, self.candidates, strict=True)
        terms = ", ".join(f"{share:.3g} {candidate.name}" for share, candidate in pairs)
        return f"{type(self).__name__} weighted {terms}; the interval takes these weights as fixed."


@final
@dataclass(frozen=True)
class MetaOPE(Combined):
    """The combination of estimators with the least variance (Jeunen 2025, "Meta Off-Policy Estimation").

    V = sum_j s_j V_j, s = S^-1 1 / (1' S^-1 1), with S the covariance of the V_j as their contributions show it.
    The best linear unbiased combination if all V_j are unbiased and S is known. Here S is estimated from the same rows,
    and the standard error takes s as fixed: both it and the estimate are too optimistic where a few rows carry S.

    candidates: IPS, SNIPS, DR and SNDR by default; each must be consistent, or the combination follows its bias.
    shrinkage: share of the diagonal in the correlation matrix that is inverted, between 0 and 1 (1: weights by inverse
    variance); raised as far as needed where S is near singular.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> alone, best = cael.SNDR().estimate(log, policy), cael.MetaOPE().estimate(log, policy)
    >>> best.stderr <= alone.stderr
    True
    """

    candidates: Sequence[Estimator] = field(default_factory=consistent)
    shrinkage: float = SHRINKAGE

    def __post_init__(self) -> None:
        self.check_candidates()

    def shares(self, looked: Looked) -> Floats:
        return least(looked.errors, self.shrinkage)


@final
@dataclass(frozen=True)
class OPERA(Combined):
    """The combination of estimators with the least bootstrapped error (Nie et al. 2024, arXiv:2405.17708).

    V = sum_j s_j V_j, where s minimises s' A s with sum_j s_j = 1 and A_jl is the mean over resamples of
    (V_j* - V_j)(V_l* - V_l). Assumes that a resample is to the log what the log is to the truth: A sees the variance
    and the bias of ratios, and no other bias. Resampled are the sums of at most 997 buckets of rows (whole clusters
    where the log has them); ratios are taken anew, outcome models are not trained anew. The standard error takes s as
    fixed.

    candidates: see `MetaOPE`. resamples: of the bootstrap. seed: of it.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> cael.OPERA([cael.SNIPS(), cael.SNDR()]).estimate(log, policy).estimator
    'OPERA(SNIPS, SNDR)'
    """

    candidates: Sequence[Estimator] = field(default_factory=consistent)
    resamples: int = 500
    shrinkage: float = SHRINKAGE
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_candidates()
        positive_int("resamples", self.resamples, least=2)

    def shares(self, looked: Looked) -> Floats:
        moments = bucketed(looked.answer)
        buckets = len(moments.bucket_rows)
        rng = np.random.default_rng(self.seed)
        counts = rng.multinomial(buckets, np.full(buckets, 1 / buckets), self.resamples).astype(np.float64)
        apart = looked.resampled(moments, counts) - looked.values[:, None]
        apart = apart[:, np.isfinite(apart).all(axis=0)]
        return least(apart @ apart.T / max(1, apart.shape[1]), self.shrinkage)


def least(errors: Floats, shrinkage: float = 0.0) -> Floats:
    """The weights s (m,) with sum 1 that make s' errors s least, for mean products of errors (m, m).

    Candidates without any error share the weight; those that are nearly the same do, by shrinkage of the correlations.
    """
    scale = np.sqrt(np.maximum(errors.diagonal(), 0.0))
    exact = scale <= NONE * scale.max()
    if exact.any():
        return exact / exact.sum()
    correlation = errors / np.outer(scale, scale)
    share = max(shrinkage, needed(correlation))
    mixed = (1 - share) * correlation + share * np.eye(len(scale))
    weights = np.linalg.solve(mixed, 1 / scale) / scale
    return np.asarray(weights / weights.sum())


def needed(correlation: Floats) -> float:
    """The share of the identity that brings the least eigenvalue to CONDITION times the largest; 0 if it is there."""
    low, high = np.linalg.eigvalsh(correlation)[[0, -1]]
    lacking = CONDITION * high - low
    return max(0.0, float(lacking / (lacking + 1 - CONDITION)))


def floor_of(looked: Looked, shares: Floats) -> float | None:
    """The floor of the standard error of a combination: the errors of its parts are raised to their floors, and the
    correlations that the rows show are kept, as in a contrast."""
    floors = [estimate.diagnostics.stderr_floor or 0.0 for estimate in looked.estimates]
    if not any(floors):
        return None
    errors = looked.errors
    seen = np.sqrt(np.maximum(errors.diagonal(), 0.0))
    raised = np.maximum(seen, floors)
    ratio = np.divide(raised, seen, out=np.ones_like(seen), where=seen > 0)
    added = shares[seen == 0] @ raised[seen == 0]
    weights = shares * ratio
    return float(np.sqrt(max(0.0, weights @ errors @ weights) + added**2))
