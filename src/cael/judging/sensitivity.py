"""How far a lift can move if the estimated propensities are off by a factor: the marginal sensitivity model (Tan 2006).

The true propensity of each row is t times the estimated one, 1/G <= t <= G: the logging policy looked at something that
the contexts do not hold, or the model is off. A normalised mean V of y with weights w then moves by at most D with
D = c E_w|y - m|, c = (G^2 - 1) / (G^2 + 1) and m where it moves to. By E_w|y - m| <= sqrt(s^2 + D^2), s the standard
deviation of y under w, and by E_w|y - m| <= M + D, M = E_w|y - V|,

    D <= min(s (G - 1/G) / 2, M (G^2 - 1) / 2),

which needs sums of the rows alone, so that a log in files has the same bound. CAEL's weights are ratios of sums over
alike actions, and are off by no larger a factor; a blend of two normalised means moves by no more than its shares of
what they move by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.embedding.auto import AutoPart
from cael.embedding.exact.path_part import PathPart, noise_of
from cael.embedding.exact.scores import is_robust
from cael.engine.answer import Answer
from cael.engine.columns import Column, Reward
from cael.engine.parts import FormPart, Part
from cael.errors import InputError
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import lift_of
from cael.judging.verdict import Check

TOLD = ("SNDR", "SNIPS")
"""Where the estimate itself is not a normalised mean, the sensitivity is that of the first of these that is there."""
EXAMPLE = 1.5
MOST = 1e3
"""Larger factors count as this one."""


@final
@dataclass(frozen=True)
class Weighted:
    """A normalised mean of what is weighted, as a part of an estimate. share: of it. spread, distance: s and M
    (infinite where it is not known)."""

    share: float
    spread: float
    distance: float = math.inf

    def shift(self, factor: float) -> float:
        sizes = self.spread * (factor - 1 / factor), self.distance * (factor**2 - 1) if factor > 1 else 0.0
        return self.share * min(sizes) / 2


@final
@dataclass(frozen=True)
class Sensitivity:
    """What a lift could be if the estimated propensities were off, each by a factor of its own of up to G.

    In `Evaluation.sensitivity`, where propensities are estimated. estimator: whose lift it is. parts: the normalised
    means that the estimate is made of. value, lift: the intervals with the propensities as they are.

    Assumption: each true propensity is between 1/G and G times the estimated one; the reward model is held fixed.
    Reference: Tan, A distributional approach for causal inference using propensity scores (2006), as a bound by two
    moments; at most as sharp as the exact one.

    >>> value, lift = Interval(5.0, 7.0, 0.95, "normal"), Interval(1.0, 3.0, 0.95, "normal")
    >>> bound = Sensitivity("SNIPS", (Weighted(1.0, 2.0),), value, lift)
    >>> print(f"{bound.factor:.3f}", f"{bound.shift(1.25):.3f}", bound.lift_at(1.25))
    1.618 0.450 [0.55, 3.45]
    """

    estimator: str
    parts: tuple[Weighted, ...]
    value: Interval
    lift: Interval

    def shift(self, factor: float) -> float:
        """By how much the value and the lift can move at most if propensities are off by up to a factor."""
        if not factor >= 1:
            raise InputError(f"factor must be a number >= 1; got {factor!r}.")
        return sum(part.shift(factor) for part in self.parts)

    def value_at(self, factor: float) -> Interval:
        """The interval of the value, wide enough for propensities that are off by up to a factor."""
        return self._at(self.value, factor)

    def lift_at(self, factor: float) -> Interval:
        """The same of the lift over the logging policy."""
        return self._at(self.lift, factor)

    def _at(self, interval: Interval, factor: float) -> Interval:
        shift = self.shift(factor)
        return Interval(interval.low - shift, interval.high + shift, interval.level, "sensitivity")

    @property
    def factor(self) -> float:
        """Up to this factor the interval of the lift keeps away from 0; 1 where it holds 0 already."""
        margin = max(self.lift.low, -self.lift.high, 0.0)
        if margin == 0 or self.shift(MOST) <= margin:
            return 1.0 if margin == 0 else MOST
        low, high = 0.0, math.log(MOST)
        for _ in range(60):  # the shift rises with the factor
            middle = (low + high) / 2
            low, high = (middle, high) if self.shift(math.exp(middle)) <= margin else (low, middle)
        return math.exp(low)

    @property
    def sentence(self) -> str:
        """What it says, in words."""
        moves = f"a factor of {EXAMPLE:g} can move it by {self.shift(EXAMPLE):.3g}."
        if self.lift.low <= 0 <= self.lift.high:
            return f"By {self.estimator}, the interval of the lift holds 0 with the propensities as estimated; {moves}"
        side, factor = ("above" if self.lift.low > 0 else "below"), self.factor
        off = f"{factor:.2f}" if factor < 10 else "10 and more"
        stays = f"By {self.estimator}, the lift stays {side} 0 if the propensities are off by a factor of up to"
        return f"{stays} {off}; {moves}"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "estimator": self.estimator, "factor": self.factor, "example": EXAMPLE, "shift": self.shift(EXAMPLE),
            "value": self.value_at(EXAMPLE).to_dict(), "lift": self.lift_at(EXAMPLE).to_dict(),
            "sentence": self.sentence,
        }  # fmt: skip


def sensitivity_of(
    answer: Answer, target: int, estimates: Sequence[Estimate], headline: str, level: float
) -> Sensitivity | None:
    """Of the headline where that is made of normalised means, else of SNDR or SNIPS; None where propensities are not
    estimated, where none of these is there, or no mean reward to compare with."""
    by_name = {estimate.estimator: estimate for estimate in estimates}
    if not answer.log.estimates_logging or "LoggedMean" not in by_name:
        return None
    for name in (headline, *TOLD):
        parts = _parts(answer, _chosen(answer, target, by_name[name]), by_name[name]) if name in by_name else ()
        if parts:
            lift = lift_of(by_name[name], by_name["LoggedMean"]).interval(level)
            return Sensitivity(name, parts, by_name[name].interval(level), lift)
    return None


def _chosen(answer: Answer, target: int, estimate: Estimate) -> Part:
    """What made an estimate; of Auto the part that it chose."""
    part = answer.part(estimate.estimator, target)
    if not isinstance(part, AutoPart):
        return part
    chosen = next(candidate.name for candidate in estimate.diagnostics.path if candidate.chosen)
    return next(one for one in part.parts if one.name == chosen)


def _parts(answer: Answer, part: Part, estimate: Estimate) -> tuple[Weighted, ...]:
    if isinstance(part, FormPart) and part.doubted:
        assert part.weight is not None
        weight, weighted, square, size = answer.means([part.weight, part.columns[1], *part.doubted])
        mean = weighted / weight
        return (Weighted(1.0, _spread(weight, weighted, square), float(size / weight + abs(mean))),)
    if isinstance(part, PathPart) and part.path.form.startswith("self_normalised"):
        return _blended(answer, part, estimate)
    return ()


def _spread(weight: float, weighted: float, square: float) -> float:
    return math.sqrt(max(square / weight - (weighted / weight) ** 2, 0.0))


def _blended(answer: Answer, part: PathPart, estimate: Estimate) -> tuple[Weighted, ...]:
    """The smoothed and the sharp end of a blend; the sharp one is SNIPS or doubly robust, whichever moves more."""
    facts, path, columns = estimate.diagnostics.embedding, part.path, part.path.columns
    assert facts is not None
    count, noisy = len(path.bandwidths), noise_of(path)
    at = int(np.flatnonzero(path.bandwidths == facts.bandwidth)[0])

    def spread(weight: Column, weighted: Column, noisy: Column) -> float:
        mean_weight, mean, mean_noisy = answer.means([weight, weighted, noisy])
        return _spread(mean_weight, mean, answer.products([weighted, noisy])[0, 1] + mean * mean_noisy)

    smooth = spread(columns[1 + at], columns[1 + count + at], noisy)
    ends = [spread(columns[1], columns[1 + count], noisy)]
    if is_robust(path.form):
        ends.append(spread(columns[1], columns[2 * count + 1], Reward()))
    return Weighted(1 - facts.sharp_share, smooth), Weighted(facts.sharp_share, max(ends))


def sensitivity_check(bound: Sensitivity | None) -> Check | None:
    """What a log without propensities says about an error of the estimated ones: always a doubt."""
    return None if bound is None else Check("sensitivity", "warn", bound.factor, bound.sentence)
