"""What estimators made of other estimators share: candidates, and their values on parts or resamples of the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.engine.answer import Answer
from cael.engine.asking import Asking
from cael.engine.columns import Column
from cael.engine.moments import BUCKETS, Moments, moments_by
from cael.engine.parts import FormPart, Part
from cael.errors import InputError
from cael.estimators.doubly_robust import DR, SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.weighting import IPS, SNIPS
from cael.inference.estimate import Estimate


def consistent() -> tuple[Estimator, ...]:
    """IPS, SNIPS, DR and SNDR: without bias in long logs, if the propensities are right."""
    return IPS(), SNIPS(), DR(), SNDR()


class Several(Estimator):
    """An estimator made of others. candidates: them."""

    candidates: Sequence[Estimator]

    @abstractmethod
    def merged(self, looked: Looked) -> Estimate:
        """The estimate, from those of the parts."""

    @property
    def parts_of(self) -> tuple[Estimator, ...]:
        """All the estimators that it looks at."""
        return tuple(self.candidates)

    def check_candidates(self) -> None:
        """Settle the candidates, or say why they will not do."""
        candidates = tuple(self.candidates)
        object.__setattr__(self, "candidates", candidates)
        if len(candidates) < 2 or not all(isinstance(item, Estimator) for item in candidates):
            raise InputError(f"{type(self).__name__} needs at least two candidate estimators; got {candidates!r}.")

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(need for estimator in self.parts_of for need in estimator.needs))

    @property
    def name(self) -> str:
        usual, said = type(self)(), [candidate.name for candidate in self.candidates]
        if said == [candidate.name for candidate in usual.candidates]:
            said = []
        others = [setting.name for setting in fields(self) if setting.name != "candidates"]  # type: ignore[arg-type]
        changed = [name for name in others if getattr(self, name) != getattr(usual, name)]
        said += [f"{name}={getattr(getattr(self, name), 'name', getattr(self, name))}" for name in changed]
        return type(self).__name__ + (f"({', '.join(said)})" if said else "")

    @final
    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        parts = tuple(estimator.part(asking, target) for estimator in self.parts_of)
        return SeveralPart(self.name, target, parts, self)


@final
@dataclass(frozen=True, eq=False)
class SeveralPart(Part):
    """An estimator made of others, on a target. parts: theirs."""

    name: str
    target: int
    parts: tuple[Part, ...]
    estimator: Several

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return tuple(column for part in self.parts for column in part.columns)

    def estimate(self, answer: Answer) -> Estimate:
        return self.estimator.merged(self.looked(answer))

    def looked(self, answer: Answer) -> Looked:
        return Looked(answer, self.parts, tuple(part.estimate(answer) for part in self.parts))


@final
@dataclass(frozen=True, eq=False)
class Looked:
    """What a pass found of several estimators. parts, estimates: theirs, in one order."""

    answer: Answer
    parts: tuple[Part, ...]
    estimates: tuple[Estimate, ...]

    @property
    def values(self) -> Floats:
        """(m,) the estimates."""
        return np.array([estimate.value for estimate in self.estimates])

    @property
    def errors(self) -> Floats:
        """(m, m) their covariance, from the contributions of the rows: on the diagonal the squared standard errors."""
        sums = [estimate.sums for estimate in self.estimates]
        return np.array([[one.shared_error(other) for other in sums if other] for one in sums if one])

    def resampled(self, moments: Moments, counts: Floats) -> Floats:
        """(m, b) the values where buckets of rows are taken counts (b, B) times; nan where there is none.

        Ratios are taken anew. Outcome models, settings and choices are those of all rows.
        """
        means = moments.resampled(counts)
        return np.stack([self._values(at, means) for at in range(len(self.parts))])

    def _values(self, at: int, means: Floats) -> Floats:
        part, sums = self.parts[at], self.estimates[at].sums
        if isinstance(part, FormPart):
            return part.values(means[[self.answer.index[column] for column in part.columns]], self.answer.r0)
        assert sums is not None
        return np.asarray(sums.constant + sums.coefficients @ means)


def bucketed(answer: Answer) -> Moments:
    """The sums of the columns in buckets that hold rows: whole clusters, where the log has them.

    Clusters of one row each are rows: in memory they are in the buckets in which rows without clusters would be.
    """
    partial, moments = answer.partial, answer.partial.moments
    if partial.block is not None and partial.clusters is not None and len(partial.clusters.keys) == answer.n:
        moments = moments_by(partial.block, np.arange(answer.n) % BUCKETS, answer.counted)
    kept = moments.bucket_rows > 0
    return replace(moments, bucket_rows=moments.bucket_rows[kept], bucket_sums=moments.bucket_sums[:, kept])
