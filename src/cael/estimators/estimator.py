"""What an estimator is: frozen settings, and what it needs of a pass over a log."""

from __future__ import annotations

from abc import ABC
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.engine.asking import Asking, as_engine_log, ask
from cael.engine.columns import Given, Outcome
from cael.engine.parts import Form, Part, WholePart, form_part
from cael.errors import NeedsError
from cael.estimators.problem import Problem
from cael.inference.diagnostics import Diagnostics, with_fit
from cael.inference.estimate import Estimate
from cael.inference.intervals import stderr
from cael.inference.reach import ends_of
from cael.inference.score_range import ScoreRange
from cael.log.held import EngineLog, Held
from cael.log.logged import LoggedData
from cael.policies.given import PolicyLike

if TYPE_CHECKING:
    from cael.log.scanned import ScannedLog


class Estimator(ABC):
    """Frozen settings, no state. `estimate(log, policy)` is a pure function of log, policy and settings.

    needs: what must be known (keys of `cael.engine.asking.NEEDS`); the error says what is missing. An estimator says
    what it is by `formula`; one of another shape by `part`; one that needs all rows at once by `solve`, and a log in
    files refuses it. panel: of `cael.panel` it is in: "default", "all" or "learned"; "" is none.
    """

    needs: ClassVar[tuple[str, ...]]
    panel: ClassVar[str] = "all"

    def formula(self, asking: Asking, target: int) -> Form:
        """Weights and outcome model of an estimator of the usual form."""
        raise NotImplementedError(f"{type(self).__name__} defines neither formula, nor part, nor solve.")

    def part(self, asking: Asking, target: int) -> Part:
        """What the estimator needs of a pass, if this log and this target have it."""
        asking.require(self.needs, target, getattr(self, "outcome", None))
        if type(self).solve is not Estimator.solve:
            return self._whole(asking, target)
        return form_part(asking, self.name, target, self.formula(asking, target))

    def _whole(self, asking: Asking, target: int) -> WholePart:
        log, policy = asking.held, asking.targets[target].policy
        refuse_weights(type(self).__name__, asking.log)
        if log is None or policy is None:
            raise NeedsError(f"{type(self).__name__} needs the whole log in memory, and this one is streamed.")
        estimate = self._solved(Problem(log, policy))
        return WholePart(self.name, target, estimate, Given(estimate.contributions))

    def _solved(self, given: Problem) -> Estimate:
        """By `solve`, which finds a fitted logging policy where the log does not know all of it."""
        problem, fit = given.completed(self.name, self.needs)
        estimate = self.solve(problem)
        if fit is None:
            return estimate
        diagnostics = with_fit(estimate.diagnostics, fit, float(np.mean(given.log.rewards**2)))
        return replace(estimate, key=given.log.key, diagnostics=diagnostics)

    def solve(self, problem: Problem) -> Estimate:
        """The estimate of a log in memory and a policy; by default from one pass over it."""
        return self.estimate(problem.log, problem.policy)

    @final
    def estimate(self, log: LoggedData | ScannedLog, policy: PolicyLike) -> Estimate:
        """What the policy would have earned per row of the log."""
        if type(self).solve is not Estimator.solve and isinstance(log, LoggedData):
            refuse_weights(self.name, Held(log))
            return self._solved(Problem(log, policy))
        return ask(as_engine_log(log), {"": policy}, [self], asked=(self.name,), controls=None).of(self.name, 0)

    @property
    def modelled(self) -> Outcome | None:
        """The outcome model, where there is one, and how it is cross-fitted: the settings outcome, folds, seed."""
        if not hasattr(self, "outcome"):
            return None
        return Outcome(self.outcome, getattr(self, "folds", 0), getattr(self, "seed", 0))

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
    estimate = Estimate(name, float(z.mean()), z, log.key, diagnostics, log.clusters, score_range)
    return replace(estimate, ends=ends_of(two_values(log.rewards), estimate.n / effect_of(estimate)))


def refuse_weights(name: str, log: EngineLog) -> None:
    """Refuse a log whose rows do not count alike, for an estimator that needs all rows at once."""
    if log.weighted:
        raise NeedsError(
            f"{name} needs rows that count alike, and this log has sampling weights. CAEL and the estimators that are "
            "sums over rows take them."
        )


def two_values(rewards: Floats) -> tuple[float, float] | None:
    """The two values that all rewards have; None where there are more, or one."""
    low, high = float(rewards.min()), float(rewards.max())
    return (low, high) if low < high and bool(((rewards == low) | (rewards == high)).all()) else None


def effect_of(estimate: Estimate) -> float:
    """How many times larger clusters make the variance of an estimate that keeps its rows; at least 1."""
    alone = stderr(estimate.contributions)
    return max(1.0, (estimate.stderr / alone) ** 2) if alone > 0 else 1.0
