"""The lift of a policy over a baseline: a paired contrast, adjusted by a control variate where there is one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cael.common.types import Floats
from cael.errors import InputError
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.pairs import unbiased_pairs

if TYPE_CHECKING:
    from cael.engine.moments import Combination

ROUNDING = 1e-9
SINGLE = 1e-6
"""A lift of so many standard deviations of the contributions is rounding: probabilities may be kept in float32."""
ALIKE = 1e-6
"""Controls whose products have an eigenvalue so much smaller than the largest count as one."""


def lift_of(estimate: Estimate, baseline: Estimate, controls: Sequence[Combination] = ()) -> Estimate:
    """The lift (`alone`); its interval is no wider than that of an unbiased estimate that the two know."""
    unbiased = tuple(lift_of(*pair, controls) for pair in unbiased_pairs(estimate, baseline))
    return replace(alone(estimate, baseline, controls), unbiased=unbiased)


def alone(estimate: Estimate, baseline: Estimate, controls: Sequence[Combination]) -> Estimate:
    """estimate - baseline, paired row by row; its bias is at most that of both (a mean reward has none).

    controls: c_i = q(x_i, a_i) - sum_a mu(a|x_i) q(x_i, a) of one or more models q, what the draw of the logged action
    did to its reward. Its expectation is 0 whatever q is, because q was trained without row i and mu is known. The lift
    is the contrast plus b mean(c), with the b that have the least variance. b = 1 is the same doubly robust estimator
    applied to both policies, and a policy that is the logging policy has lift 0 exactly.
    """
    contrast = estimate - baseline
    proportion = estimate.diagnostics.proportion
    diagnostics = replace(
        contrast.diagnostics,
        bias_bound=both_biases(estimate, baseline),
        proportion=None if proportion is None else replace(proportion, baseline=baseline.error),
    )
    if contrast.sums is None or estimate.sums is None:
        return replace(contrast, diagnostics=diagnostics)
    slopes, adjusted = slopes_of(contrast.sums, controls), contrast.sums
    for slope, control in zip(slopes.tolist(), controls, strict=True):
        adjusted = adjusted.plus(slope, control)
    if is_rounding(adjusted, estimate.sums):
        return no_lift(contrast, adjusted)
    if not slopes.any():
        return replace(contrast, diagnostics=diagnostics)
    lift = with_sums(contrast, adjusted)
    floor = floor_without(diagnostics.stderr_floor, contrast.stderr, lift.stderr)
    return replace(lift, diagnostics=replace(diagnostics, stderr_floor=floor))


def both_biases(a: Estimate, b: Estimate) -> float | None:
    """How far the difference of two may be biased; None where neither is."""
    bounds = [each.diagnostics.bias_bound for each in (a, b)]
    return None if bounds == [None, None] else sum(bound or 0.0 for bound in bounds)


def moved(lift: Estimate, slope: float, baseline: Estimate) -> Estimate:
    """lift + slope * baseline, paired row by row: a lift beside a share of what it is a lift over."""
    if lift.sums is None or baseline.sums is None:
        raise InputError(f"{lift.estimator} does not keep the sums that a relative margin needs.")
    together = with_sums(lift, lift.sums.plus(slope, baseline.sums))
    unbiased = tuple(moved(one, slope, other) for one, other in unbiased_pairs(lift, baseline))
    d = lift.diagnostics
    own = baseline.diagnostics.bias_bound
    bias = d.bias_bound if own is None else (d.bias_bound or 0.0) + abs(slope) * own
    floor = floor_without(d.stderr_floor, lift.stderr, together.stderr)
    return replace(together, diagnostics=replace(d, stderr_floor=floor, bias_bound=bias), unbiased=unbiased)


def with_sums(contrast: Estimate, sums: Combination) -> Estimate:
    """The contrast with these contributions."""
    rows = sums.buckets if contrast.streamed else sums.rows
    return replace(contrast, value=sums.value, contributions=rows, sums=sums)


def no_lift(contrast: Estimate, sums: Combination) -> Estimate:
    """A lift of exactly 0, without noise and bias: the logging policy against itself."""
    known = replace(contrast.diagnostics, bias_bound=None, stderr_floor=None, pooled=None, proportion=None)
    nothing = replace(sums, constant=0.0, coefficients=np.zeros_like(sums.coefficients))
    return replace(with_sums(contrast, nothing), diagnostics=known, ratio=None)


def floor_without(floor: float | None, contrast: float, adjusted: float) -> float | None:
    """The floor of a contrast's standard error after an adjustment that took the error from `contrast` to `adjusted`:
    what a control takes away is the same, however large the rest is."""
    return None if floor is None else math.sqrt(max(floor**2 - contrast**2 + adjusted**2, 0.0))


def slopes_of(contrast: Combination, controls: Sequence[Combination]) -> Floats:
    """The regression of -z on the controls, over the independent units, rows or clusters; 0 of what does not vary, and
    shared between controls that are the same."""
    squares = np.array([control.covariance(control) for control in controls])
    sizes = np.array([max(size_of(control), 1e-300) for control in controls])
    used = np.flatnonzero(squares > ROUNDING**2 * sizes).tolist()
    slopes, lengths = np.zeros(len(controls)), np.sqrt(squares[used])
    products = np.array([[controls[i].covariance(controls[j]) for j in used] for i in used]).reshape(2 * (len(used),))
    along = -np.array([contrast.covariance(controls[i]) for i in used])
    scaled = np.linalg.lstsq(products / np.outer(lengths, lengths), along / lengths, rcond=ALIKE)[0]
    slopes[used] = scaled / lengths
    return slopes


def is_rounding(lift: Combination, estimate: Combination) -> bool:
    """Whether every row's lift is rounding beside what its contribution to the estimate varies by."""
    return size_of(lift) <= SINGLE**2 * spread_of(estimate)


def size_of(sums: Combination) -> float:
    """The sum of squares of a column."""
    return spread_of(sums) + sums.n * sums.value**2


def spread_of(sums: Combination) -> float:
    """The sum of squared deviations of a column."""
    return max(0.0, float(sums.coefficients @ sums.moments.noise @ sums.coefficients))


def rows_to_detect(spread: float, goal: float, factor: float) -> int:
    """Rows for which a lift is so many standard errors. spread: standard deviation of a row's contribution to it."""
    return max(2, math.ceil((factor * spread / goal) ** 2))


def relative_lift(lift: Estimate, baseline: Estimate) -> float | None:
    """The lift as a share of the baseline; None where that is 0."""
    return lift.value / abs(baseline.value) if baseline.value else None


def lift_dict(lift: Estimate, baseline: Estimate, interval: Interval, *, adjusted: bool) -> dict[str, Any]:
    """A lift as plain types. adjusted: by a control."""
    return {
        "value": lift.value,
        "stderr": lift.stderr,
        "error": lift.error,
        "interval": interval.to_dict(),
        "relative": relative_lift(lift, baseline),
        "adjusted": adjusted,
    }
