"""The ratio of two estimates of one pass, such as revenue per click, with its joint influence function."""

from __future__ import annotations

from dataclasses import replace

from cael.errors import InputError, SupportError
from cael.inference.diagnostics import contrast_floor, of_contrast
from cael.inference.estimate import Estimate
from cael.inference.pairs import unbiased_pairs

CLEAR = 4.0
"""A denominator must be so many standard errors away from 0: nearer, the delta method says little of the ratio."""


def ratio_of(top: Estimate, bottom: Estimate, name: str) -> Estimate:
    """top / bottom; both of one policy, from one pass.

    R = T / B has the influence (t_i - R b_i) / B of a row (the delta method): what the two share cancels. Its floor is
    that of the contrast T - R B, and its bias at most (bias of T + |R| bias of B) / |B|. name: of the metric.
    """
    refuse_near_zero(bottom, name)
    if top.sums is None or bottom.sums is None:
        raise InputError(f"metric {name}: {top.estimator} does not keep the sums that a ratio needs.")
    value, size = top.value / bottom.value, abs(bottom.value)
    rest = top.sums.plus(-value, bottom.sums)
    sums = replace(rest, constant=rest.constant / bottom.value + value, coefficients=rest.coefficients / bottom.value)
    a, b = top.diagnostics, bottom.diagnostics
    floor = contrast_floor(
        (top.stderr, abs(value) * bottom.stderr, rest.stderr), (a.stderr_floor, times(b.stderr_floor, abs(value)))
    )
    biases = [bias for bias in (a.bias_bound, times(b.bias_bound, abs(value))) if bias is not None]
    diagnostics = replace(
        of_contrast(a, b), stderr_floor=times(floor, 1 / size), bias_bound=sum(biases) / size if biases else None,
        choices=max(a.choices, b.choices), mean_weight=a.mean_weight, mean_weight_z=a.mean_weight_z,
    )  # fmt: skip
    rows = sums.buckets if top.streamed else sums.rows
    return replace(
        top, value=sums.value if top.streamed else float(rows.mean()), contributions=rows, sums=sums, ratio=None,
        score_range=None, diagnostics=diagnostics, ends=None,
        unbiased=tuple(ratio_of(*pair, name) for pair in unbiased_pairs(top, bottom)),
    )  # fmt: skip


def refuse_near_zero(bottom: Estimate, name: str) -> None:
    """An error where the denominator may be 0."""
    if abs(bottom.value) <= CLEAR * bottom.error:
        raise SupportError(
            f"metric {name} cannot be computed: its denominator is {bottom.value:.4g} ± {bottom.error:.2g}, which may "
            "be 0. Collect more rows, or evaluate numerator and denominator as metrics of their own."
        )


def times(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor
