"""SLOPE: choose among estimators, or values of a hyperparameter, without knowing the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.engine.asking import Asking, Look
from cael.engine.parts import ChoicePart, Form, Part
from cael.errors import InputError
from cael.estimators.estimator import Estimator
from cael.inference.diagnostics import Candidate, with_warnings
from cael.inference.estimate import Estimate
from cael.inference.weight_rules import WeightRule
from cael.outcomes.outcome_model import FixedOutcome

SLACK = math.sqrt(6) - 1


@final
@dataclass(frozen=True)
class Setting:
    """A hyperparameter that makes weights. name: of the field. rule: the weights of a value. power: 1 on the scale of
    a weight, 2 of a squared one, 0 for a share. default: what None stands for after a look at the weights, if at all.
    """

    name: str
    rule: Callable[[Any], WeightRule]
    power: int
    default: Callable[[Look], float] | None = None

    def check(self, value: float | SLOPE | None) -> None:
        """Refuse values out of range; only one on the scale of weights may be infinite."""
        most, words = (1.0, "in [0, 1]") if self.power == 0 else (math.inf, "a positive number")
        for number in value.candidates if isinstance(value, SLOPE) else (value,):
            positive = isinstance(number, int | float) and (number > 0 or (number == 0 and self.power == 0))
            if number is not None and not (positive and number <= most):
                raise InputError(f"{self.name} must be {words}, None, or SLOPE of such; got {number!r}.")

    def grid(self, largest: float) -> tuple[float, ...]:
        """Nine candidates: from 1 to the largest weight, geometrically, and no change at all; or 0 .. 1 for a share."""
        if self.power == 0:
            return (0.0, *np.geomspace(1e-3, 1.0, 8).tolist())
        grid = np.geomspace(1.0, max(largest, 1.0 + 1e-9), 8) ** self.power
        return (*grid.tolist(), math.inf)


class Tuned(Estimator):
    """An estimator whose weights are made by a setting, which SLOPE can choose."""

    tuned: ClassVar[Setting]
    self_normalised: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.tuned.check(self.setting)

    @property
    def setting(self) -> Any:
        """The value of the setting."""
        return getattr(self, self.tuned.name)

    def part(self, asking: Asking, target: int) -> Part:
        slope = self.setting
        if not isinstance(slope, SLOPE):
            return super().part(asking, target)
        asking.require(self.needs, target, getattr(self, "outcome", None))
        values = slope.candidates or self.tuned.grid(asking.look(target).largest)
        candidates = [replace(self, **{self.tuned.name: value}) for value in values]  # type: ignore[type-var]
        return choice(self.name, candidates, slope.delta, asking, target)

    def formula(self, asking: Asking, target: int) -> Form:
        value, outcome = self.setting, self.modelled
        # Rows that share a trained model are not independent, so only injected predictions have a known range; and a
        # setting that was computed from the sample bounds nothing beforehand.
        bounded = not self.self_normalised and (outcome is None or isinstance(outcome.model, FixedOutcome))
        if value is None and self.tuned.default is not None:
            value, bounded = self.tuned.default(asking.look(target)), False
        return Form(self.tuned.rule(value), outcome, self.self_normalised, bounded)


@final
@dataclass(frozen=True)
class SLOPE(Estimator):
    """SLOPE++ (Su et al. 2020; Tucker and Lee 2021): the narrowest candidate that no wider one contradicts.

    Candidates are sorted by the half-width c_i = t_{1-delta, n-1} stderr_i, widest first; candidate i is accepted if
    |V_i - V_j| <= c_i + (sqrt(6) - 1) c_j for every j accepted before, and the last one accepted is taken. No order
    of the biases needs to be known. The interval of the result is that of the chosen candidate and does not account
    for the choice.

    candidates: estimators, when SLOPE is used as an estimator; numbers, when it stands for a hyperparameter, as in
    IPS(clip=SLOPE([2, 5, 20])); empty for a default grid spanned by the weights of the log.

    >>> import cael
    >>> cael.SLOPE([cael.IPS(), cael.SNIPS()]).name
    'SLOPE(IPS, SNIPS)'
    """

    panel: ClassVar[str] = ""
    candidates: Sequence[Any] = ()
    delta: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not 0 < self.delta < 1:
            raise InputError(f"delta must be between 0 and 1; got {self.delta!r}.")

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """What its candidates need."""
        estimators = [candidate for candidate in self.candidates if isinstance(candidate, Estimator)]
        return tuple(dict.fromkeys(need for estimator in estimators for need in estimator.needs))

    @property
    def name(self) -> str:
        """For tables."""
        names = (item.name if isinstance(item, Estimator) else f"{item:g}" for item in self.candidates)
        return f"SLOPE({', '.join(names)})"

    def __str__(self) -> str:
        return self.name

    def part(self, asking: Asking, target: int) -> Part:
        return choice(self.name, self.estimators(), self.delta, asking, target)

    def estimators(self) -> tuple[Estimator, ...]:
        """The candidates of SLOPE as an estimator."""
        if len(self.candidates) < 2 or not all(isinstance(item, Estimator) for item in self.candidates):
            raise InputError(f"SLOPE as an estimator needs at least two candidate estimators; got {self.candidates!r}.")
        return tuple(self.candidates)


def choice(name: str, candidates: Sequence[Estimator], delta: float, asking: Asking, target: int) -> ChoicePart:
    """The choice of SLOPE++ among estimators."""
    parts = tuple(candidate.part(asking, target) for candidate in candidates)
    return ChoicePart(name, target, parts, lambda estimates: select(name, estimates, delta))


def slope(values: Floats, widths: Floats) -> list[int]:
    """The candidates that SLOPE++ accepts, widest first, by values and half-widths (m,); the last one is taken."""
    accepted: list[int] = []
    for i in np.argsort(-widths, kind="stable"):
        gaps = np.abs(values[i] - values[accepted])
        if not (gaps <= widths[i] + SLACK * widths[accepted]).all():
            break
        accepted.append(int(i))
    return accepted


def select(name: str, estimates: Sequence[Estimate], delta: float) -> Estimate:
    """The estimate that SLOPE++ takes, under the name of the one who asked, with the whole path on its diagnostics."""
    from scipy.special import stdtrit

    values = np.array([estimate.value for estimate in estimates])
    quantile = np.array([float(stdtrit(estimate.independent - 1, 1 - delta)) for estimate in estimates])
    widths = quantile * np.array([estimate.stderr for estimate in estimates])
    order, accepted = np.argsort(-widths, kind="stable"), slope(values, widths)
    chosen = accepted[-1]
    path = tuple(
        Candidate(estimates[i].estimator, float(values[i]), float(widths[i]), int(i) in accepted, int(i) == chosen)
        for i in order
    )
    winner = estimates[chosen]
    note = f"SLOPE chose {winner.estimator} out of {len(path)}; the interval does not account for the choice."
    diagnostics = with_warnings(replace(winner.diagnostics, path=path), (note,))
    # A range that held for a candidate chosen by looking at the data guarantees nothing.
    return replace(winner, estimator=name, diagnostics=diagnostics, score_range=None)
