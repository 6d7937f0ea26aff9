"""ScoreRange: the range of a contribution, from ranges known before the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from cael.errors import InputError


@final
@dataclass(frozen=True)
class ScoreRange:
    """How the range of a contribution follows from ranges known before the data.

    form: "mean" (z = r), "weighted" (z = w r), "doubly_robust" (z = q(x, pi) + w (r - q), q inside the reward range).
    max_weight: the largest weight possible, where the policies or a clip fix it; else the user must state it.
    """

    form: str
    max_weight: float | None

    def bounds(self, reward_range: tuple[float, float], max_weight: float | None) -> tuple[float, float]:
        """The range of a contribution, from those of reward and weight."""
        low, high = map(float, reward_range)
        if not low < high:
            raise InputError(f"reward_range must be (low, high) with low < high; got {reward_range}.")
        if self.form == "mean":
            return low, high
        w = self.max_weight if max_weight is None else float(max_weight)
        if w is None or not math.isfinite(w):
            raise InputError(
                "the largest possible weight is not known beforehand: neither policy bounds it. State it with "
                "max_weight=, from how the policies were made and never from this sample; or clip the weights."
            )
        if self.form == "weighted":
            return min(0.0, w * low), max(0.0, w * high)
        return low - w * (high - low), high + w * (high - low)
