"""Headline: the answer of a result in plain words, decided once: what, of what, how sure, what to do, what would make
it surer. Terminal, notebook, report, Markdown and JSON show these sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import relative_lift
from cael.inference.shares import chance_positive, relative_interval
from cael.judging.remedies import advice_on
from cael.judging.verdict import Verdict
from cael.results.decision import Decision, enough, rough
from cael.results.notebook import paragraphs
from cael.results.scope import Scope
from cael.results.sheet import Note, level_text

LONGEST = 40
"""A policy whose name is longer is "the new policy" in a sentence."""
SURE = 0.999
"""A chance is not told to more digits than this."""
CHANCE = "one minus the one-sided p-value, by a normal approximation"
"""What the chance to be better assumes."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Headline:
    """The answer about one policy and metric.

    metric, policy, baseline_name: names. sign: 1 where more is better, -1 where less is. scope: rows, period and unit.
    estimate, baseline, lift: of the estimator that decisions rest on. interval: of the lift. factor: standard errors of
    that interval, which is simultaneous where there are several metrics or policies. decision, verdict: on it.
    """

    metric: str
    policy: str
    baseline_name: str
    sign: int
    scope: Scope
    estimate: Estimate
    baseline: Estimate
    lift: Estimate
    interval: Interval
    factor: float
    decision: Decision
    verdict: Verdict

    def __repr__(self) -> str:
        return f"Headline({self.sentence})"

    def _repr_html_(self) -> str:
        return paragraphs(self.notes())

    @property
    def trusted(self) -> bool:
        """Whether the verdict is not "refuse"."""
        return self.verdict.level != "refuse"

    @property
    def relative(self) -> float | None:
        """The lift as a share of the baseline's value; None where that is 0."""
        return relative_lift(self.lift, self.baseline)

    @cached_property
    def relative_interval(self) -> Interval | None:
        """Its interval, by Fieller's theorem; None where the baseline's value is too near to 0."""
        return relative_interval(self.lift, self.baseline, self.factor, self.interval.level)

    @cached_property
    def chance(self) -> float:
        """The chance that the policy is better: one minus the one-sided p-value of the lift."""
        above = chance_positive(self.lift)
        return above if self.sign > 0 else 1 - above

    @property
    def total(self) -> tuple[float, float, float] | None:
        """The lift over all rows of the period and the ends of its interval; None of a ratio."""
        if not self.scope.total:
            return None
        rows = self.scope.size
        return self.lift.value * rows, self.interval.low * rows, self.interval.high * rows

    @property
    def values(self) -> tuple[str, str]:
        """The values of the policy and of the baseline, in the unit of the scope, with the digits that are known."""
        scale = self.scope.scale
        sizes = [self.interval.width / 2, abs(self.lift.value)]
        places = places_for(scale * min((size for size in sizes if size > 0), default=1.0) / 2)
        return plain(scale * self.estimate.value, places), plain(scale * self.baseline.value, places)

    @property
    def lift_text(self) -> str:
        """The lift with its interval: relative, or in units of the metric where the baseline's value is near to 0."""
        if self.relative is None or self.relative_interval is None:
            scale = self.scope.scale
            value, low, high = alike([scale * x for x in (self.lift.value, self.interval.low, self.interval.high)])
            return f"{value} (between {low} and {high})"
        value, low, high = percents((self.relative, self.relative_interval.low, self.relative_interval.high))
        return f"{value} ({low} to {high})"

    @property
    def sentence(self) -> str:
        """The answer with metric, policy, period and unit."""
        scope, (value, base) = self.scope, self.values
        when = f"{scope.period[:1].upper()}{scope.period[1:]}" if scope.period else "On this log"
        short = len(self.policy) <= LONGEST and "(" not in self.policy  # what Python prints of an object is no name
        name = f"the policy {self.policy}" if self.policy and short else "the new policy"
        earned = scope.earned(value, self.metric, self.sign)
        against = f"instead of {base} under {self.baseline_name}"
        if not self.trusted:
            doubt = f"it cannot be said what {name} would have earned"
            return f"{when}, {doubt}: the estimate, {earned.partition(' ')[2]} {against}, is not to be relied on."
        better = "" if self.sign > 0 else ", and less is better"
        open_ = ". This is no significant difference" if self.interval.low <= 0 <= self.interval.high else ""
        return f"{when}, {name} would have {earned} {against}: {self.lift_text}{better}{open_}."

    @property
    def chance_text(self) -> str:
        """The chance that it is better, as a percentage."""
        if self.chance > SURE or self.chance < 1 - SURE:
            return f"above {SURE:.1%}" if self.chance > 0.5 else f"below {1 - SURE:.1%}"
        return f"{self.chance:.1%}" if not 0.1 <= self.chance <= 0.9 else f"{self.chance:.0%}"

    @property
    def total_text(self) -> str | None:
        """The lift over all rows, with its interval; None of a ratio."""
        if self.total is None:
            return None
        value, low, high = alike(self.total)
        return f"{self.scope.amount(value, self.metric)} (between {low} and {high})"

    @property
    def impact(self) -> str:
        """Total and chance, in a sentence; "" where the number is not to be relied on."""
        if not self.trusted:
            return ""
        total = "" if self.total_text is None else f"{self.scope.over}: {self.total_text}. "
        return f"{total}Chance that it is better: {self.chance_text}."

    @property
    def surer(self) -> list[str]:
        """What would make the answer surer: advice on the checks that warn or fail, or how many rows."""
        advice, rows = advice_on(self.verdict.checks), self.decision.rows
        if not self.trusted:
            return advice
        if self.decision.choice == "test" and rows is not None:
            return [enough(rows), *advice][:2]
        more = f"Four times the rows (about {rough(4 * self.scope.rows)}) would halve the interval."
        return advice or [more]

    def notes(self, *, decided: bool = True) -> tuple[Note, ...]:
        """The sentences for people. decided: with the decision, which a table of several metrics has already."""
        decision, surer = (self.decision.note(),) if decided else (), self._new(self.surer)
        more = [text for text in (self.impact, f"To be surer: {' '.join(surer)}" if surer else "") if text]
        return (Note(self.sentence, "" if self.trusted else "refuse"), *decision, *map(Note, more))

    def _new(self, sentences: list[str]) -> list[str]:
        """Those that the decision does not say already."""
        return [sentence for sentence in sentences if sentence not in self.decision.reasons]

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        scope, relative = self.scope, self.relative_interval
        return {
            "sentence": self.sentence, "metric": self.metric, "policy": self.policy, "baseline": self.baseline_name,
            "rows": scope.rows, "decisions": scope.size, "first_day": scope.first, "last_day": scope.last,
            "unit": scope.unit, "scale": scope.scale, "value": self.estimate.value,
            "baseline_value": self.baseline.value, "lift": self.lift.value, "interval": self.interval.to_dict(),
            "relative_lift": self.relative,
            "relative_interval": None if relative is None else relative.to_dict(),
            "chance_better": self.chance, "chance_assumes": CHANCE,
            "total": None if self.total is None else dict(zip(("value", "low", "high"), self.total, strict=True)),
            "decision": self.decision.choice, "verdict": self.verdict.level, "surer": self.surer,
            "level": level_text(self.interval.level),
        }  # fmt: skip


def places_for(size: float) -> int:
    """Decimal places that show a number of this size with one digit."""
    return min(12, max(0, -math.floor(math.log10(size)))) if size > 0 else 0


def plain(value: float, places: int, sign: str = "") -> str:
    """A number with so many decimal places, no more than five digits after the first; without an exponent."""
    if 0 < abs(value) < 1e-9 or abs(value) >= 1e15:
        return f"{value:{sign}.3g}"
    places = max(0, min(places, 5 - math.floor(math.log10(abs(value))))) if value else places
    return f"{value:{sign},.{places}f}"


def alike(numbers: Any) -> list[str]:
    """A value and its ends, signed, with decimal places that show half the width to two digits."""
    width = abs(numbers[2] - numbers[1]) / 2 or abs(numbers[0])
    places = places_for(width / 10) if width < 10 else 0
    if width >= 1000:
        unit = 10.0 ** (math.floor(math.log10(width)) - 1)
        return [plain(round(number / unit) * unit, 0, "+") for number in numbers]
    return [plain(number, places, "+") for number in numbers]


def percents(shares: tuple[float, float, float]) -> list[str]:
    """Shares as percentages, with so many places that none that is not 0 looks like 0."""
    width = 100 * (shares[2] - shares[1]) / 2
    places = 0 if width >= 3 else 1 if width >= 0.3 else places_for(width / 10)
    while places < 6 and any(share and not float(f"{100 * share:.{places}f}") for share in shares):
        places += 1
    return [f"{100 * share:+,.{places}f}%" for share in shares]
