"""The lift of a policy over the logging policy: a paired contrast, adjusted by a control variate where there is one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cael.common.types import Floats
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval

if TYPE_CHECKING:
    from cael.engine.moments import Combination

ROUNDING = 1e-9
ALIKE = 1e-6
"""Controls whose products have an eigenvalue so much smaller than the largest count as one."""


def lift_of(estimate: Estimate, baseline: Estimate, controls: Sequence[Combination] = ()) -> Estimate:
    """estimate - baseline, paired row by row; its bias is that of the estimate, since a mean reward has none.

    controls: c_i = q(x_i, a_i) - sum_a mu(a|x_i) q(x_i, a) of one or more models q, what the draw of the logged action
    did to its reward. Its expectation is 0 whatever q is, because q was trained without row i and mu is known. The lift
    is the contrast plus b mean(c), with the b that have the least variance. b = 1 is the same doubly robust estimator
    applied to both policies, and a policy that is the logging policy has lift 0 exactly.
    """
    contrast = estimate - baseline
    diagnostics = replace(contrast.diagnostics, bias_bound=estimate.diagnostics.bias_bound)
    slopes = np.zeros(0) if contrast.sums is None else slopes_of(contrast.sums, controls)
    if contrast.sums is None or not slopes.any():
        return replace(contrast, diagnostics=diagnostics)
    adjusted = contrast.sums
    for slope, control in zip(slopes.tolist(), controls, strict=True):
        adjusted = adjusted.plus(slope, control)
    sums = without_rounding(adjusted, contrast.sums)
    rows = sums.buckets if contrast.streamed else sums.rows
    lift = replace(contrast, value=sums.value, contributions=rows, sums=sums)
    if diagnostics.stderr_floor is not None:  # what the control takes away is the same, however large the rest is
        floor = diagnostics.stderr_floor**2 - contrast.stderr**2 + lift.stderr**2
        diagnostics = replace(diagnostics, stderr_floor=math.sqrt(max(floor, 0.0)))
    return replace(lift, diagnostics=diagnostics)


def slopes_of(contrast: Combination, controls: Sequence[Combination]) -> Floats:
    """The regression of -z on the controls, over the independent units, rows or clusters; 0 of what does not vary, and
    shared between controls that are the same."""
    squares = np.array([control.covariance(control) for control in controls])
    sizes = np.array([max(size_of(control), 1e-300) for control in controls])
    used = np.flatnonzero(squares > ROUNDING**2 * sizes)
    slopes, lengths = np.zeros(len(controls)), np.sqrt(squares[used])
    products = np.array([[controls[i].covariance(controls[j]) for j in used] for i in used]).reshape(2 * (len(used),))
    along = -np.array([contrast.covariance(controls[i]) for i in used])
    scaled = np.linalg.lstsq(products / np.outer(lengths, lengths), along / lengths, rcond=ALIKE)[0]
    slopes[used] = scaled / lengths
    return slopes


def without_rounding(rest: Combination, whole: Combination) -> Combination:
    """What is left of a contrast; exactly 0 where that is rounding: the logging policy against itself."""
    if size_of(rest) > ROUNDING**2 * size_of(whole):
        return rest
    return replace(rest, constant=0.0, coefficients=np.zeros_like(rest.coefficients))


def size_of(sums: Combination) -> float:
    """The sum of squares of a column."""
    spread = float(sums.coefficients @ sums.moments.comoment @ sums.coefficients)
    return max(spread, 0.0) + sums.n * sums.value**2


def relative_lift(lift: Estimate, baseline: Estimate) -> float | None:
    """The lift as a share of the baseline; None where that is 0."""
    return lift.value / abs(baseline.value) if baseline.value else None


def lift_dict(lift: Estimate, baseline: Estimate, interval: Interval, *, adjusted: bool) -> dict[str, Any]:
    """A lift as plain types. adjusted: by a control."""
    return {
        "value": lift.value,
        "stderr": lift.stderr,
        "interval": interval.to_dict(),
        "relative": relative_lift(lift, baseline),
        "adjusted": adjusted,
    }
