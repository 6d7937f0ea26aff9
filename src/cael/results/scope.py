"""Scope: the rows and the period that a result speaks about, and the unit of its metric, for sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

if TYPE_CHECKING:
    from cael.engine.answer import Answer

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
HUNDRED = 100
"""Metrics that are 0 or 1 are given per so many decisions."""
NOUNS = {
    "click": "clicks", "clicked": "clicks", "is_click": "clicks", "conversion": "conversions",
    "converted": "conversions", "purchase": "purchases", "purchased": "purchases", "visit": "visits",
    "visited": "visits", "open": "opens", "opened": "opens", "sale": "sales", "sold": "sales", "order": "orders",
    "ordered": "orders", "signup": "signups", "signed_up": "signups", "booked": "bookings", "solved": "solved tasks",
}  # fmt: skip
"""What is counted, by the usual names of columns that are 0 or 1."""


@final
@dataclass(frozen=True)
class Scope:
    """rows: that were used. decisions: that they stand for, by their sampling weights (None: as many). first, last:
    dates of the period, as YYYY-MM-DD (None: the log has no times that are dates). counted: whether the metric is 0 or
    1 on every row. total: whether it adds up over rows (a ratio does not)."""

    rows: int
    first: str | None = None
    last: str | None = None
    counted: bool = False
    total: bool = True
    decisions: int | None = None

    @property
    def size(self) -> int:
        """Decisions over which a total is taken."""
        return self.rows if self.decisions is None else self.decisions

    @property
    def over(self) -> str:
        """What a total is taken over, in words."""
        if self.decisions is None:
            return f"Over all {self.rows:,} rows"
        return f"Over the {self.decisions:,} decisions that the rows stand for"

    @property
    def period(self) -> str | None:
        """The period in words: "from 1 to 14 May 2026"; None without dates."""
        if self.first is None or self.last is None:
            return None
        (y0, m0, d0), (y1, m1, d1) = ([*map(int, date.split("-"))] for date in (self.first, self.last))
        end = f"{d1} {MONTHS[m1 - 1]} {y1}"
        if self.first == self.last:
            return f"on {end}"
        month = "" if (y0, m0) == (y1, m1) else f" {MONTHS[m0 - 1]}"
        return f"from {d0}{month}{'' if y0 == y1 else f' {y0}'} to {end}"

    @property
    def scale(self) -> int:
        """Decisions that a value is for."""
        return HUNDRED if self.counted else 1

    def noun(self, metric: str) -> str:
        """What is earned: "clicks", or the name of the metric."""
        return NOUNS.get(metric.lower(), metric) if self.counted else metric

    def amount(self, value: str, metric: str) -> str:
        """So much of what is earned: "6.2 clicks", "0.62 in revenue"."""
        noun = self.noun(metric)
        return f"{value} in {metric}" if noun == metric else f"{value} {noun}"

    def earned(self, value: str, metric: str, sign: int) -> str:
        """What was earned, with its verb: "earned 6.2 clicks per 100 decisions", "had a mean revenue of 0.62"."""
        if not self.total:
            return f"had {metric} of {value}"
        noun, kind = self.noun(metric), "total" if self.counted else "mean"
        amount = f"a {kind} {metric} of {value}" if noun == metric else f"{value} {noun}"
        return f"{'earned' if sign > 0 else 'had'} {amount} {self.unit}"

    @property
    def unit(self) -> str:
        """What a value is for: "per 100 decisions"."""
        return "" if not self.total else f"per {HUNDRED} decisions" if self.counted else "per decision"


def scope_of(answer: Answer, *, ratio: bool) -> Scope:
    """The scope of an answer about a metric, or about the numerator of a ratio."""
    stretches = answer.partial.stretches
    times = [(part.low, part.high) for part in stretches]
    dated = bool(times) and all(isinstance(time, np.datetime64) for pair in times for time in pair)
    first = date_of(min(low for low, _ in times)) if dated else None
    last = date_of(max(high for _, high in times)) if dated else None
    decisions = round(answer.partial.moments.total) if answer.weighted else None
    return Scope(answer.n, first, last, not ratio and answer.two_values == (0.0, 1.0), not ratio, decisions)


def date_of(time: Any) -> str:
    """The day of a time, as YYYY-MM-DD."""
    return str(np.datetime64(time, "D"))
