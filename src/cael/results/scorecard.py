"""Scorecard: several metrics of one or more policies in one table, with simultaneous intervals and a decision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.inference import intervals as inference
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import moved, relative_lift, rows_to_detect
from cael.inference.shares import relative_interval
from cael.judging.verdict import Verdict
from cael.results.decision import Decision, Finding, decided, rule_of
from cael.results.lifts import Lifted, direction, within
from cael.results.metric import Metric
from cael.results.plots import plot_scorecard
from cael.results.sheet import Column, Note, Sheet, Shown, by_sentence, level_text

POWER = 0.8
"""The probability with which the rows that are said to settle a decision would."""
WORDS = {
    "no difference shown": "no difference", "within": "within bound", "beyond": "beyond bound", "open": "not settled",
}  # fmt: skip
"""How a table has them, which is narrow."""
STYLES = {"better": "better", "worse": "worse", "within": "better", "beyond": "worse"}


@final
@dataclass(frozen=True, eq=False)
class Row:
    """A metric of a policy before the intervals are joined. excess: of a guardrail, what its bound is compared with:
    above 0 where more is better, below 0 where less is, it is within its bound."""

    metric: Metric
    policy: str
    lifted: Lifted
    verdict: Verdict
    cut: int
    excess: Estimate | None

    @property
    def tested(self) -> Estimate:
        """What the decision looks at."""
        return self.lifted.lift if self.excess is None else self.excess


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """A metric of a policy: its value, that of the baseline, and the lift with a simultaneous interval.

    excess: of a guardrail, the interval that its bound is judged by: of the lift plus what the margin allows (minus it,
    where less is better), or of the value less the limit. cut: rows above the cap.
    estimate, baseline, lift: of the metric. interval: of the lift. verdict: on the metric.
    """

    metric: Metric
    policy: str
    estimate: Estimate
    baseline: Estimate
    lift: Estimate
    interval: Interval
    excess: Interval | None
    verdict: Verdict
    cut: int

    @property
    def direction(self) -> str:
        """Whether the interval shows the policy to be "better" or "worse" by this metric, or "no difference shown"."""
        return direction(self.interval, self.metric.sign)

    @property
    def status(self) -> str:
        """The direction of a goal; of a guardrail whether it is shown to be "within" or "beyond" its bound, or is
        "open"."""
        if self.excess is None:
            return self.direction
        return {"better": "within", "worse": "beyond"}.get(direction(self.excess, self.metric.sign), "open")

    @property
    def relative_lift(self) -> float | None:
        """The lift as a share of the baseline's value; None where that is 0."""
        return relative_lift(self.lift, self.baseline)

    def to_dict(self, level: float) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            **self.metric.to_dict(),
            "policy": self.policy,
            "estimate": self.estimate.to_dict(level),
            "baseline": self.baseline.value,
            "lift": self.lift.value,
            "lift_error": self.lift.error,
            "relative_lift": self.relative_lift,
            "interval": self.interval.to_dict(),
            "excess": None if self.excess is None else self.excess.to_dict(),
            "direction": self.direction,
            "status": self.status,
            "rows_above_cap": self.cut,
            "verdict": self.verdict.to_dict(),
        }


@final
@dataclass(frozen=True, eq=False, repr=False)
class Scorecard(Shown):
    """Metrics of one or more policies, with intervals that are simultaneous at `level`, and what to do.

    rows: by policy, the primary metric first. decisions: one for each policy. baseline: the name of what the policies
    are compared with. factor: of the simultaneous intervals.
    estimator: its name.
    """

    rows: tuple[Measured, ...]
    decisions: tuple[Decision, ...]
    estimator: str
    baseline: str
    level: float
    factor: float

    @property
    def decision(self) -> Decision:
        """The decision about the first policy."""
        return self.decisions[0]

    def __iter__(self) -> Iterator[Measured]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Measured:
        for row in self.rows:
            if row.metric.name == name:
                return row
        raise KeyError(f"no metric named {name!r}; there are: {', '.join(row.metric.name for row in self.rows)}")

    def of(self, policy: str) -> tuple[Measured, ...]:
        """The rows of a policy."""
        return tuple(row for row in self.rows if row.policy == policy)

    def __repr__(self) -> str:
        rows = "; ".join(f"{row.metric.name}: {row.lift.value:+.5g} {row.interval} {row.status}" for row in self.rows)
        return f"Scorecard({self.decision.choice}; {rows})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "estimator": self.estimator,
            "baseline": self.baseline,
            "level": self.level,
            "simultaneous_factor": self.factor,
            "metrics": [row.to_dict(self.level) for row in self.rows],
            "decisions": [decision.to_dict() for decision in self.decisions],
        }

    def sheet(self) -> Sheet:
        several = len(self.decisions) > 1
        columns = (
            *([Column("policy")] if several else []), Column("metric"), Column("value", "short", wide=several),
            Column("baseline", "short", wide=True), Column("lift", "short lift"),
            Column("relative", "percent lift", "", wide=True),
            Column("interval", "short interval", f"simultaneous {level_text(self.level)}"), Column("status", head=""),
        )  # fmt: skip
        rows = tuple(
            (
                *([row.policy] if several else []), row.metric.label, row.estimate.value, row.baseline.value,
                row.lift.value, row.relative_lift, row.interval, WORDS.get(row.status, row.status),
            )
            for row in self.rows
        )  # fmt: skip
        title = f"metrics by {self.estimator}; lift over {self.baseline}"
        notes = (*(decision.note() for decision in self.decisions), Note(self.decision.rule))
        doubts = tuple(Note(doubt, "warn") for doubt in self.doubts())
        return Sheet(title, columns, rows, notes, doubts, tuple(STYLES.get(row.status, "") for row in self.rows))

    def sheet_under(self, lead: tuple[Note, ...]) -> Sheet:
        """The table below sentences that hold the decisions already."""
        sheet = self.sheet()
        return replace(sheet, lead=lead, summary=sheet.summary[len(self.decisions) :])

    def relative_intervals(self) -> list[Interval | None]:
        """The intervals of the lifts as shares of the baseline's values (Fieller), simultaneous like the others; None
        where the baseline's value is too near to 0."""
        return [relative_interval(row.lift, row.baseline, self.factor, self.level) for row in self.rows]

    def plot(self, axes: Any = None) -> Any:
        """The relative lifts of all metrics, on Matplotlib's axes, which are returned."""
        return plot_scorecard(self, axes)

    def doubts(self) -> list[str]:
        """Caps, and the reasons of all verdicts, each once, with the metrics that they concern."""
        caps = {
            f"{row.metric.name}: {row.cut:,} rows above {row.metric.cap:g} count as {row.metric.cap:g} (cap)."
            for row in self.rows
            if row.metric.cap is not None
        }
        reasons = by_sentence((row.metric.name, reason) for row in self.rows for reason in row.verdict.reasons)
        return [*sorted(caps), *reasons]


def scorecard_of(
    rows: Sequence[Row], names: Sequence[str], baseline: str, estimator: str, level: float, seed: int
) -> Scorecard:
    """The rows with intervals that hold for all of them together, and the decision about each policy."""
    tested = [row.lifted.lift for row in rows] + [row.excess for row in rows if row.excess is not None]
    factor = joint_factor(tested, level, seed)
    measured = tuple(measured_row(row, factor, level) for row in rows)
    primary = rows[0].metric
    guardrails = sum(row.metric.guardrail for row in rows[: len(rows) // len(names)])
    rule = rule_of(primary.name, guardrails, baseline)
    decisions = tuple(_decided(name, rows, measured, factor, rule, len(names) > 1) for name in names)
    return Scorecard(measured, decisions, estimator, baseline, level, factor)


def joint_factor(tested: Sequence[Estimate], level: float, seed: int) -> float:
    """The factor that makes the intervals of all of these simultaneous."""
    hidden = np.array([inference.hidden_share(lift.stderr, lift.error) for lift in tested])
    return inference.max_t(np.stack([lift.groups for lift in tested], axis=1), level, hidden=hidden, seed=seed)


def measured_row(row: Row, factor: float, level: float) -> Measured:
    """With intervals of so many standard errors."""
    lifted = row.lifted
    excess = None if row.excess is None else within(row.excess, factor, level)
    return Measured(
        row.metric, row.policy, lifted.estimate, lifted.baseline, lifted.lift, within(lifted.lift, factor, level),
        excess, row.verdict, row.cut,
    )  # fmt: skip


def _decided(
    name: str, rows: Sequence[Row], measured: Sequence[Measured], factor: float, rule: str, several: bool
) -> Decision:
    rows_of_policy = [(row, done) for row, done in zip(rows, measured, strict=True) if row.policy == name]
    judged = [(row, done) for at, (row, done) in enumerate(rows_of_policy) if at == 0 or row.metric.guardrail]
    findings = [Finding(done.metric.name, done.status) for _, done in judged]
    refused = [done.metric.name for _, done in judged if done.verdict.level == "refuse"]
    unsettled = [row for row, done in judged if done.status in ("open", "no difference shown")]
    needed = [rows_to_settle(row.tested, factor) for row in unsettled]
    known = [count for count in needed if count is not None]
    rows_needed = max(known) if known and len(known) == len(needed) else None
    return decided(name if several else "", findings[0], findings[1:], refused, rows_needed, rule)


def rows_to_settle(tested: Estimate, factor: float) -> int | None:
    """Rows with which the interval would not hold 0, with power 80%, if it is as far from it as estimated; None: none.

    What a bias may be does not shrink with more rows.
    """
    distance = abs(tested.value) - (tested.diagnostics.bias_bound or 0.0)
    if distance <= 0:
        return None
    rows = rows_to_detect(tested.error * math.sqrt(tested.n), distance, factor + inference.quantile(2 * POWER - 1))
    return None if rows > MOST_ROWS else max(rows, tested.n + 1)


MOST_ROWS = 10**12
"""More rows than this are as good as none."""


def excess_of(metric: Metric, lifted: Lifted) -> Estimate | None:
    """What the bound of a guardrail is compared with; None of a goal."""
    if not metric.guardrail:
        return None
    if metric.limit is not None:
        return shifted(lifted.estimate, -metric.limit)
    size, relative = metric.tolerance
    if not relative:
        return shifted(lifted.lift, metric.sign * size)
    sign = math.copysign(1.0, lifted.baseline.value)
    return moved(lifted.lift, metric.sign * size * sign, lifted.baseline)


def shifted(estimate: Estimate, by: float) -> Estimate:
    """The estimate plus a constant."""
    sums = None if estimate.sums is None else replace(estimate.sums, constant=estimate.sums.constant + by)
    return replace(
        estimate, value=estimate.value + by, contributions=estimate.contributions + by, sums=sums, score_range=None
    )  # fmt: skip
