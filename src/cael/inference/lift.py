"""The lift of a policy over the logging policy: a paired contrast, without what chance did to the logged actions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from cael.common.types import Floats
from cael.estimators import DM, DR, SNDR, DRos, Estimator, SubGaussianDR, SwitchDR
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.log.logged import LoggedData
from cael.policies.policy import Policy
from cael.policies.propensity import EstimatedLogging

ROUNDING = 1e-9


def known_logging(log: LoggedData) -> Policy | None:
    """The logging policy, if all its probabilities are known and not estimated."""
    known = log.logging is not None and log.logging.complete and not isinstance(log.logging, EstimatedLogging)
    return log.logging if known else None


def control(problem: Problem, estimator: Estimator) -> Floats | None:
    """c_i = q(x_i, a_i) - sum_a mu(a|x_i) q(x_i, a), shape (n,): what the draw of the logged action did to its reward.

    mu is the logging policy and q the outcome model of the estimator (of SNDR where it has none). The expectation of c
    is 0 whatever q is, because q was trained without row i and mu is known; None where mu is not known in full.
    """
    logging = known_logging(problem.log)
    if logging is None:
        return None
    modelled = estimator if isinstance(estimator, DM | DR | SNDR | SwitchDR | DRos | SubGaussianDR) else SNDR()
    trained = problem.trained(modelled.outcome, modelled.folds, modelled.seed)
    if trained.cross_fitted is False:
        return None
    logged, mean = trained.columns(logging)
    return logged - mean


def lift_of(estimate: Estimate, baseline: Estimate, control: Floats | None = None) -> Estimate:
    """estimate - baseline, paired row by row; its bias is that of the estimate, since a mean reward has none.

    With a control c (n,) of mean 0, the contrast plus b mean(c), with the b that has the least variance. b = 1 is the
    same doubly robust estimator applied to both policies, and a policy that is the logging policy has lift 0 exactly.
    """
    found = estimate - baseline
    told = replace(found.diagnostics, bias_bound=estimate.diagnostics.bias_bound)
    z = found.contributions
    slope = 0.0 if control is None else _slope(z, control, found)
    if control is None or slope == 0:
        return replace(found, diagnostics=told)
    rest = z + slope * control
    if np.abs(rest).max() <= ROUNDING * np.abs(z).max():  # the logging policy against itself
        rest = np.zeros_like(rest)
    made = replace(found, value=float(rest.mean()), contributions=rest)
    if told.stderr_floor is not None:  # what the control takes away is the same, however large the rest is
        floor = told.stderr_floor**2 - found.stderr**2 + made.stderr**2
        told = replace(told, stderr_floor=math.sqrt(max(floor, 0.0)))
    return replace(made, diagnostics=told)


def _slope(z: Floats, control: Floats, like: Estimate) -> float:
    """-cov(z, c) / var(c) over the independent units, rows or clusters."""
    a, c = inference.units(z, like.clusters), inference.units(control, like.clusters)
    c = c - c.mean()
    square = float(c @ c)
    return 0.0 if square <= ROUNDING**2 * len(c) * float(np.abs(control).max()) ** 2 else -float(a @ c) / square


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
