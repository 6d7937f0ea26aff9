"""Limits: what a policy must keep to, to be shipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from cael.errors import LARGEST, InputError, positive_int
from cael.judging.thresholds import DEFAULT

ROOM = 1.5
"""The certificate must rest on so many times the effective sample size below which it is refused."""
SAFE = 2.0
"""Standard errors by which the share of changed decisions stays below its limit: other rows change others."""


def sharpest(rows: int) -> float:
    """The largest E w^2 of a policy that so many rows can certify."""
    return rows / (ROOM * DEFAULT.effective_rows[1])


@final
@dataclass(frozen=True)
class Limits:
    """min_lift: the lift that the lower bound must exceed, in units of the reward. max_changed: share of decisions that
    may be changed. explore: share of decisions that are drawn uniformly. max_actions: how many actions may be advised.
    level: of the one-sided bound."""

    min_lift: float = 0.0
    max_changed: float = 1.0
    explore: float = 0.0
    max_actions: int | None = None
    level: float = 0.95

    def __post_init__(self) -> None:
        if not 0 <= self.min_lift <= LARGEST:
            raise InputError(
                f"min_lift must be between 0 and {LARGEST:g}, in units of the reward; got {self.min_lift!r}."
            )
        if not 0 < self.max_changed <= 1:
            raise InputError(f"max_changed must be a share in (0, 1]; got {self.max_changed!r}.")
        if not 0 <= self.explore < 1:
            raise InputError(f"explore must be a share in [0, 1); got {self.explore!r}.")
        if not 0.5 < self.level < 1:
            raise InputError(f"level must be in (0.5, 1); got {self.level!r}.")
        if self.max_actions is not None:
            positive_int("max_actions", self.max_actions)

    @property
    def two_sided(self) -> float:
        """The level of the two-sided interval whose lower end is the bound."""
        return 2 * self.level - 1

    def share(self, changed: float, explored: float, n: int) -> float:
        """How much of a rule may be played beside the old policy. changed, explored: share of decisions that the rule
        and uniform exploration change, measured on n rows."""
        if self.max_changed == 1 or changed == 0:
            return 1.0
        left = (self.max_changed - self.explore * explored) / (1 - self.explore)
        if left <= 0:
            raise InputError(
                f"explore={self.explore:g} alone changes {self.explore * explored:.1%} of the decisions, and "
                f"max_changed={self.max_changed:g}. Explore less, or allow more changes."
            )
        most = changed + SAFE * math.sqrt(changed * (1 - min(changed, 1.0)) / n)
        return min(1.0, left / most)
