"""OCV: choose the estimator that predicts an unbiased estimate on other rows best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.errors import positive_int
from cael.estimators.direct import DM
from cael.estimators.doubly_robust import DR
from cael.estimators.estimator import Estimator
from cael.estimators.several import Looked, Several, bucketed, consistent
from cael.inference.diagnostics import with_warnings
from cael.inference.estimate import Estimate


def with_model() -> tuple[Estimator, ...]:
    """DM, and the consistent estimators."""
    return (DM(), *consistent())


@final
@dataclass(frozen=True)
class OCV(Several):
    """Cross-validated off-policy evaluation (Cief, Kveton and Kompan 2024, arXiv:2405.15332): a choice of estimators.

    V = V_j of the candidate j with the least L_j + standard error of L_j, L_j the mean of (V_j(part) - V_0(rest))^2
    over random splits of the rows, V_0 an unbiased validator. The part has the share of the rows at which V_j on it
    and V_0 on the rest have the same variance. Assumes that V_0 is unbiased on the rest: its noise is the same for all
    candidates, their bias is not. Split are at most 997 buckets of rows (whole clusters where the log has them);
    outcome models are those of all rows, cross-fitted. The interval is that of the chosen candidate on all rows, and
    does not account for the choice.

    candidates: DM, IPS, SNIPS, DR and SNDR by default. validator: V_0. splits: how many. seed: of them.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> cael.OCV().estimate(log, policy).diagnostics.choices
    5
    """

    candidates: Sequence[Estimator] = field(default_factory=with_model)
    validator: Estimator = field(default_factory=DR)
    splits: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_candidates()
        positive_int("splits", self.splits, least=2)

    @property
    def parts_of(self) -> tuple[Estimator, ...]:
        """Its candidates and the criterion, for a log."""
        return (*self.candidates, self.validator)

    def merged(self, looked: Looked) -> Estimate:
        scores = self.scores(looked)
        winner = looked.estimates[int(np.argmin(scores))]
        pairs = zip(self.candidates, np.sqrt(scores), strict=True)
        said = ", ".join(f"{candidate.name} {root:.3g}" for candidate, root in pairs)
        note = (
            f"OCV chose {winner.estimator} by the distance from {self.validator.name} on other rows: {said}; the "
            "interval does not account for the choice."
        )
        diagnostics = with_warnings(replace(winner.diagnostics, choices=len(scores)), (note,))
        # A range that held for a candidate chosen by looking at the data guarantees nothing.
        return replace(winner, estimator=self.name, diagnostics=diagnostics, score_range=None)

    def scores(self, looked: Looked) -> Floats:
        """(m,) the mean squared difference of each candidate and the validator, plus its standard error."""
        losses = self.losses(looked)
        lost = ~np.isfinite(losses).all(axis=1)
        losses[lost] = 0.0
        scores = losses.mean(axis=1) + losses.std(axis=1, ddof=1) / np.sqrt(self.splits)
        return np.where(lost, np.inf, scores)

    def losses(self, looked: Looked) -> Floats:
        """(m, splits) squared differences of each candidate and the validator; nan where either has no weights."""
        moments = bucketed(looked.answer)
        order = np.random.default_rng(self.seed).permuted(
            np.tile(np.arange(len(moments.bucket_rows)), (self.splits, 1)), axis=1
        )
        variances = looked.errors.diagonal()
        losses = np.empty((len(self.candidates), self.splits))
        for at, variance in enumerate(variances[:-1]):
            part = (order < size_of(variance, variances[-1], order.shape[1])).astype(np.float64)
            inside, outside = looked.resampled(moments, part)[at], looked.resampled(moments, 1 - part)[-1]
            losses[at] = (inside - outside) ** 2
        return losses


def size_of(variance: float, validators: float, buckets: int) -> int:
    """How many of the buckets the candidate gets, so that it has the variance of the validator on the rest."""
    total = variance + validators
    share = variance / total if total > 0 else 0.5
    return int(np.clip(round(share * buckets), 1, buckets - 1))
