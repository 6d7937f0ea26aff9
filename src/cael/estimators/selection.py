"""SLOPE: choose among estimators, or values of a hyperparameter, without knowing the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.engine.asking import Asking
from cael.engine.parts import ChoicePart, Part
from cael.errors import InputError
from cael.estimators.estimator import Estimator
from cael.inference.diagnostics import Candidate, with_warnings
from cael.inference.estimate import Estimate

SLACK = math.sqrt(6) - 1


class setting(Enum):
    """What kind of number a hyperparameter is; decides the default candidates of SLOPE()."""

    WEIGHT = "on the scale of a weight"
    SQUARED_WEIGHT = "on the scale of a squared weight"
    SHARE = "between 0 and 1"


class Tuned(Estimator):
    """An estimator with a setting that SLOPE can choose. tuned: its name, and what kind of number it is."""

    tuned: ClassVar[tuple[str, setting]]

    @property
    def chooser(self) -> SLOPE | None:
        """SLOPE where it is to choose the setting."""
        told = getattr(self, self.tuned[0])
        return told if isinstance(told, SLOPE) else None

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target, getattr(self, "outcome", None))
        if self.chooser is None:
            return super().part(asking, target)
        candidates = self.chooser.settled(self, lambda: asking.look(target).largest)
        return choice(self.name, candidates, self.chooser.delta, asking, target)


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
        every = [need for each in self.candidates if isinstance(each, Estimator) for need in each.needs]
        return tuple(dict.fromkeys(every))

    @property
    def name(self) -> str:
        shown = (each.name if isinstance(each, Estimator) else f"{each:g}" for each in self.candidates)
        return f"SLOPE({', '.join(shown)})"

    def __str__(self) -> str:
        return self.name

    def part(self, asking: Asking, target: int) -> Part:
        return choice(self.name, self.estimators(), self.delta, asking, target)

    def estimators(self) -> tuple[Estimator, ...]:
        """The candidates of SLOPE as an estimator."""
        if len(self.candidates) < 2 or not all(isinstance(each, Estimator) for each in self.candidates):
            raise InputError(f"SLOPE as an estimator needs at least two candidate estimators; got {self.candidates!r}.")
        return tuple(self.candidates)

    def settled(self, estimator: Tuned, largest: Callable[[], float]) -> list[Estimator]:
        """The estimator with each of the candidate numbers, or of a default grid. largest: the largest weight."""
        name, kind = estimator.tuned
        return [replace(estimator, **{name: value}) for value in self.candidates or default_grid(largest, kind)]  # type: ignore[type-var]


def choice(name: str, candidates: Sequence[Estimator], delta: float, asking: Asking, target: int) -> ChoicePart:
    """The choice of SLOPE++ among estimators."""
    parts = tuple(candidate.part(asking, target) for candidate in candidates)
    return ChoicePart(name, target, parts, lambda estimates: select(name, estimates, delta))


def default_grid(largest: Callable[[], float], kind: setting) -> tuple[float, ...]:
    """Nine candidates: from 1 to the largest weight, geometrically, and no change at all; or 0 .. 1 for a share."""
    if kind is setting.SHARE:
        return (0.0, *(float(x) for x in np.geomspace(1e-3, 1.0, 8)))
    top = max(largest(), 1.0 + 1e-9)
    grid = np.geomspace(1.0, top, 8)
    return (*(float(x) for x in (grid if kind is setting.WEIGHT else grid**2)), math.inf)


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

    values = np.array([each.value for each in estimates])
    quantile = np.array([float(stdtrit(each.independent - 1, 1 - delta)) for each in estimates])
    widths = quantile * np.array([each.stderr for each in estimates])
    order, accepted = np.argsort(-widths, kind="stable"), slope(values, widths)
    chosen = accepted[-1]
    path = tuple(
        Candidate(estimates[i].estimator, float(values[i]), float(widths[i]), int(i) in accepted, int(i) == chosen)
        for i in order
    )
    winner = estimates[chosen]
    note = f"SLOPE chose {winner.estimator} out of {len(path)}; the interval does not account for the choice."
    found = with_warnings(replace(winner.diagnostics, path=path), (note,))
    # A range that held for a candidate chosen by looking at the data guarantees nothing.
    return replace(winner, estimator=name, diagnostics=found, score_range=None)
