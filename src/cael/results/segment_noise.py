"""The noise of a lift in a segment: its standard error, and the shape of its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from cael.common.types import Array, Floats
from cael.engine.answer import Answer
from cael.engine.moments import Combination, Moments
from cael.engine.steadying import pooled_in, proportion_of, rewards_in
from cael.inference.diagnostics import contrast_floor
from cael.inference.lift import floor_without
from cael.inference.reach import Proportion, heavier, reach
from cael.results.lifts import Lifted


@final
@dataclass(frozen=True)
class Noise:
    """Of a lift in a segment: its standard error, the shape of its interval where rewards are a proportion, and the
    degrees of freedom where its rows are in clusters."""

    error: float
    proportion: Proportion | None = None
    freedom: int | None = None

    def reach(self, bound: float, factor: float) -> tuple[float, float]:
        """How far an interval of the lift reaches below and above, at so many standard errors of a normal one."""
        return reach(self.error, bound, self.proportion, heavier(factor, self.freedom))


def noise_in(answer: Answer, part: Moments, lifted: Lifted, target: int | None = None) -> Noise:
    """The noise of a lift in a segment, raised as that of the whole log is (`cael.engine.steadying`). target: the
    number of the baseline, where it is not the logging policy."""
    estimate, baseline = lifted.estimate, lifted.baseline
    assert estimate.sums is not None
    sums = (each.sums for each in (estimate, baseline, lifted.lift))
    value, base, adjusted = (each.coefficients for each in sums if each is not None)
    error = partial(error_of, part=part, clustered=answer.log.clustered)
    if not adjusted.any():  # the logging policy against itself
        return Noise(0.0)
    whole, freedom = estimate.diagnostics.pooled, freedom_in(answer, part)
    if whole is None:
        return Noise(error(adjusted), freedom=freedom)
    worth = part.n * answer.worth / answer.n
    seen, n = error(value) ** 2, worth / estimate.sums.cluster_effect
    pooled = pooled_in(answer, whole, part, n)
    raised, logged = math.sqrt(pooled.variance(seen, n)), math.sqrt(rewards_in(answer, part, n).noise / n)
    if target is not None and baseline.diagnostics.pooled is not None:
        other = pooled_in(answer, baseline.diagnostics.pooled, part, n, target)
        logged = math.sqrt(other.variance(error(base) ** 2, n))
    errors = error(value), error(base), error(value - base)
    floor = floor_without(contrast_floor(errors, (raised, logged)), errors[2], error(adjusted))
    inside = value_of(estimate.sums, part)
    proportion = proportion_of(answer.two_values, inside, raised, seen, pooled, n)
    shaped = None if proportion is None else replace(proportion, baseline=max(errors[1], logged))
    return Noise(max(error(adjusted), floor or 0.0), shaped, freedom)


def freedom_in(answer: Answer, part: Moments) -> int | None:
    """Degrees of freedom of a segment: buckets of whole clusters, less one; None of rows."""
    return max(1, int((part.bucket_rows > 0).sum()) - 1) if answer.log.clustered else None


def value_of(sums: Combination, part: Moments) -> float:
    return sums.constant + float(sums.coefficients @ part.mean)


def error_of(coefficients: Floats, part: Moments, *, clustered: bool) -> float:
    """The standard error of a column in a segment, over its rows, or over buckets of whole clusters."""
    if clustered:
        return float(np.sqrt((influence(coefficients, part) ** 2).sum()))
    return float(np.sqrt(max(0.0, float(coefficients @ part.noise @ coefficients)) / max(1, part.n - 1) / part.n))


def influence(coefficients: Floats, part: Moments) -> Floats:
    """What each bucket adds to the segment's lift."""
    apart: Array = coefficients @ (part.bucket_sums - part.mean[:, None] * part.bucket_rows)
    return apart * part.scale / np.sqrt(part.n * max(1, part.n - 1))
