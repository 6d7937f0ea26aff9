"""How far a lift can move if the estimated propensities are off by a factor: the marginal sensitivity model (Tan 2006).

The true propensity of each row is t times the estimated one, 1/G <= t <= G: the logging policy looked at something that
the contexts do not hold, or the model is off. A normalised mean V of y with weights w then moves by at most D with
D = c E_w|y - m|, c = (G^2 - 1) / (G^2 + 1) and m where it moves to. By E_w|y - m| <= sqrt(s^2 + D^2), s the standard
deviation of y under w, and by E_w|y - m| <= M + D, M = E_w|y - V|,

    D <= min(s (G - 1/G) / 2, M (G^2 - 1) / 2),

which needs sums of the rows alone, so that a log in files has the same bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from cael.engine.answer import Answer
from cael.engine.parts import FormPart
from cael.inference.estimate import Estimate
from cael.inference.lift import lift_of
from cael.judging.verdict import Check

TOLD = ("SNDR", "SNIPS")
"""The estimators whose sensitivity is told; the first that is there."""
EXAMPLE = 1.5
MOST = 1e3
"""Larger factors are not told apart."""


@final
@dataclass(frozen=True)
class Sensitivity:
    """Of an estimate that divides by its mean weight. spread, distance: s and M. low, high: the interval of the lift
    with the propensities as they are."""

    estimator: str
    spread: float
    distance: float
    low: float
    high: float

    def shift(self, factor: float) -> float:
        """By how much the value and the lift can move at most if propensities are off by up to a factor."""
        return min(self.spread * (factor - 1 / factor), self.distance * (factor**2 - 1)) / 2

    @property
    def factor(self) -> float:
        """Up to this factor the interval of the lift keeps away from 0; 1 where it holds 0 already."""
        margin = max(self.low, -self.high, 0.0)
        if self.spread == 0 or self.distance == 0:
            return MOST if margin > 0 else 1.0
        slope = margin / self.spread
        return min(MOST, max(slope + math.hypot(slope, 1.0), math.sqrt(1 + 2 * margin / self.distance)))

    @property
    def sentence(self) -> str:
        moves = f"a factor of {EXAMPLE:g} can move it by {self.shift(EXAMPLE):.3g}."
        if self.low <= 0 <= self.high:
            return f"By {self.estimator}, the interval of the lift holds 0 with the propensities as estimated; {moves}"
        side, factor = ("above" if self.low > 0 else "below"), self.factor
        off = f"{factor:.2f}" if factor < 10 else "10 and more"
        stays = f"By {self.estimator}, the lift stays {side} 0 if the propensities are off by a factor of up to"
        return f"{stays} {off}; {moves}"


def sensitivity_of(answer: Answer, target: int, estimates: Sequence[Estimate], level: float) -> Sensitivity | None:
    """Of SNDR, or of SNIPS; None where neither is there, or no mean reward to compare with."""
    by_name = {estimate.estimator: estimate for estimate in estimates}
    name = next((name for name in TOLD if name in by_name), None)
    if name is None or "LoggedMean" not in by_name:
        return None
    part = answer.part(name, target)
    assert isinstance(part, FormPart)
    assert part.weight is not None
    weight, weighted, square, size = answer.means([part.weight, part.columns[1], *part.doubted])
    mean = weighted / weight
    spread = math.sqrt(max(square / weight - mean**2, 0.0))
    interval = lift_of(by_name[name], by_name["LoggedMean"]).interval(level)
    return Sensitivity(name, spread, float(size / weight + abs(mean)), interval.low, interval.high)


def sensitivity(answer: Answer, target: int, estimates: Sequence[Estimate], level: float) -> Check | None:
    """What a log without propensities says about an error of the estimated ones: always a doubt."""
    if not answer.log.estimates_logging:
        return None
    bound = sensitivity_of(answer, target, estimates, level)
    return None if bound is None else Check("sensitivity", "warn", bound.factor, bound.sentence)
