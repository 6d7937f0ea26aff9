"""What an estimator is, and the two shapes that nearly all of them have: a mean, and a mean plus a ratio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Floats
from cael.errors import SupportError
from cael.estimators.problem import Problem
from cael.inference.diagnostics import Diagnostics, weighted
from cael.inference.estimate import Estimate, ScoreRange
from cael.policies.policy import Policy

if TYPE_CHECKING:
    from cael.log.logged import LoggedData


class Estimator(ABC):
    """Frozen settings, no state. `estimate(log, policy)` is a pure function of log, policy and settings.

    needs: what must be known (keys of `cael.estimators.problem.NEEDS`); the error says what is missing.
    """

    needs: ClassVar[tuple[str, ...]]

    @abstractmethod
    def solve(self, problem: Problem) -> Estimate:
        """The estimate of a problem; estimators of one problem share its weights and outcome models."""

    @final
    def estimate(self, log: LoggedData, policy: Policy | ArrayLike) -> Estimate:
        """What the policy would have earned per row of the log."""
        problem = Problem(log, policy)
        problem.require(self.name, self.needs)
        return self.solve(problem)

    @property
    def name(self) -> str:
        """The class name, with every setting that is not the default."""
        changed = []
        for setting in fields(self):  # type: ignore[arg-type]
            default: Any = setting.default_factory() if callable(setting.default_factory) else setting.default
            value = getattr(self, setting.name)
            if setting.repr and (default is MISSING or not _same(value, default)):
                changed.append(f"{setting.name}={value:g}" if isinstance(value, float) else f"{setting.name}={value}")
        return type(self).__name__ + (f"({', '.join(changed)})" if changed else "")


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, type(default)) and bool(value == default))


def mean_of(
    name: str, problem: Problem, z: Floats, diagnostics: Diagnostics, score_range: ScoreRange | None = None
) -> Estimate:
    """The estimate whose contributions are z (n,): its value is their mean."""
    log = problem.log
    return Estimate(name, float(z.mean()), z, log.key, diagnostics, log.clusters, score_range)


def mean_plus_ratio(
    name: str, problem: Problem, start: Floats | float, w: Floats, residual: Floats, diagnostics: Diagnostics
) -> Estimate:
    """V = mean(start) + T, T = mean(w residual) / mean(w), with contributions start + T + w (residual - T) / mean(w).

    Centred, they are the influence function of V: the uncertainty of the denominator is in it.
    """
    mean_w = float(w.mean())
    if mean_w == 0:
        raise SupportError(
            f"{name} is undefined: every weight is 0, no logged action has positive target probability. "
            "Collect more rows, or use DM."
        )
    ratio = float(w @ residual) / len(w) / mean_w
    z = residual - ratio
    z *= w
    z /= mean_w
    z += ratio
    z += start
    return mean_of(name, problem, z, diagnostics)


def weight_diagnostics(
    problem: Problem, w: Floats, cross_fitted: bool | None = None, extra: tuple[str, ...] = ()
) -> Diagnostics:
    """Diagnostics of an estimator that used w (n,) in place of the problem's own weights."""
    return weighted(w, problem.weights, problem.weight_facts, cross_fitted=cross_fitted, extra=extra)


def lowest_bound(problem: Problem, ceiling: float | None) -> float | None:
    """The largest weight possible after a ceiling, None if unknown."""
    known = [bound for bound in (problem.max_weight, ceiling) if bound is not None and np.isfinite(bound)]
    return min(known) if known else None
