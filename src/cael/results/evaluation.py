"""evaluate: the panel of estimates of one policy, side by side, with the verdict on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from cael.common.version import __version__
from cael.engine.moments import Combination
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval, quantile
from cael.inference.lift import lift_dict, relative_lift
from cael.inference.overlap import Overlap
from cael.judging.sensitivity import Sensitivity
from cael.judging.thresholds import Thresholds
from cael.judging.verdict import Verdict
from cael.results.course import Point
from cael.results.decision import Decision, Finding, decided, rule_of
from cael.results.headline import Headline
from cael.results.lifts import LOGGING, Lifted, direction
from cael.results.plots import plotted
from cael.results.scope import Scope
from cael.results.scorecard import Scorecard, rows_to_settle
from cael.results.sheet import Column, Note, Sheet, Shown, by_sentence, level_text, named, signed, text_of

LESS = " (less is better)"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Shown):
    """The estimates of one policy's value, side by side.

    estimates: in the order of the panel. skipped: (estimator, reason) for those of the panel that this log or policy
    does not allow. log, policy: in words. headline: the name of the estimate that `best`, `lift` and `verdict` are
    about. lifted: of the headline, over the baseline of this name. overlap: where the weight of the policy lies in the
    log (None: there are no weights). metric: the name of what is earned, and sign: 1 where more of it is better, -1
    where less is. scorecard: of several metrics (None: there is one).
    sensitivity: what an error of the estimated propensities could do (None: they are logged). scope: the rows and the
    period, and the unit of the metric. course: the sum of the lift as time goes on.
    level: of the intervals. baseline_name: of what the lift is over.
    """

    estimates: tuple[Estimate, ...]
    skipped: tuple[tuple[str, str], ...]
    log: str
    policy: str
    headline: str
    verdict: Verdict
    lifted: Lifted
    overlap: Overlap | None = None
    level: float = 0.95
    metric: str = "reward"
    sign: int = 1
    baseline_name: str = LOGGING
    scorecard: Scorecard | None = None
    sensitivity: Sensitivity | None = None
    scope: Scope | None = None
    course: tuple[Point, ...] = ()

    @property
    def best(self) -> Estimate:
        """The estimate that the verdict is about."""
        return self[self.headline]

    @property
    def baseline(self) -> Estimate:
        """The value of the baseline; that of the logging policy is the mean logged reward."""
        return self.lifted.baseline

    @property
    def controls(self) -> tuple[Combination, ...]:
        """Control variates for the lift (none: the logging policy is not known in full)."""
        return self.lifted.controls

    @property
    def lift(self) -> Estimate:
        """The best estimate minus the value of the baseline, paired row by row; its bias is at most that of both.

        Where the logging policy is known in full, it is adjusted by a control variate for the random choice of logged
        actions, so that the value is not exactly the difference of the two.
        """
        return self.lifted.lift

    @property
    def direction(self) -> str:
        """Whether the interval of the lift shows the policy to be "better" or "worse", or "no difference shown"."""
        return direction(self.lift_interval, self.sign)

    @property
    def decision(self) -> Decision:
        """What to do: ship, test or keep."""
        if self.scorecard is not None:
            return self.scorecard.decision
        refused = [self.metric] if self.verdict.level == "refuse" else []
        primary = Finding(self.metric, self.direction)
        rows = rows_to_settle(self.lift, self.factor)
        return decided("", primary, (), refused, rows, rule_of(self.metric, 0, self.baseline_name))

    @property
    def factor(self) -> float:
        """Standard errors of the interval of the lift; more of them where it is simultaneous."""
        return quantile(self.level) if self.scorecard is None else self.scorecard.factor

    @cached_property
    def answer(self) -> Headline:
        """The answer in words: what, of what, how sure, what to do, what would make it surer."""
        return Headline(
            self.metric, self.policy, self.baseline_name, self.sign, self.scope or Scope(self.best.n), self.best,
            self.baseline, self.lift, self.lift_interval, self.factor, self.decision, self.verdict,
        )  # fmt: skip

    @property
    def interval(self) -> Interval:
        """The interval of the best estimate that decisions rest on."""
        return self.best.interval(self.level)

    @property
    def lift_interval(self) -> Interval:
        """The interval of the lift that decisions rest on; simultaneous over all metrics, where there are several."""
        card = self.scorecard
        return self.lift.interval(self.level) if card is None else card.rows[0].interval

    @property
    def relative_lift(self) -> float | None:
        """The lift as a share of the baseline's value; None where that is 0."""
        return relative_lift(self.lift, self.baseline)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the log."""
        return self.best.fingerprint

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates)

    def __getitem__(self, name: str) -> Estimate:
        if why := dict(self.skipped).get(name):
            raise KeyError(f"no estimate named {name!r} ({why})")
        return named("estimate", {estimate.estimator: estimate for estimate in self.estimates}, name)

    def __repr__(self) -> str:
        return f"Evaluation({'; '.join(map(repr, self.estimates))})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        lift = self.lift
        return {
            "version": __version__,
            "log": self.log,
            "fingerprint": self.fingerprint,
            "policy": self.policy,
            "answer": self.answer.to_dict(),
            "metric": self.metric,
            "better": "more" if self.sign > 0 else "less",
            "baseline": {"name": self.baseline_name, "value": self.baseline.value},
            "level": self.level,
            "headline": self.headline,
            "verdict": self.verdict.to_dict(),
            "lift": lift_dict(lift, self.baseline, self.lift_interval, adjusted=bool(self.controls)),
            "direction": self.direction,
            "decision": self.decision.to_dict(),
            **({} if self.scorecard is None else {"scorecard": self.scorecard.to_dict()}),
            "sensitivity": None if self.sensitivity is None else self.sensitivity.to_dict(),
            "overlap": None if self.overlap is None else self.overlap.to_dict(),
            "estimates": [estimate.to_dict(self.level) for estimate in self.estimates],
            "skipped": [{"estimator": name, "reason": reason} for name, reason in self.skipped],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def sheet(self) -> Sheet:
        columns = (
            Column("estimator"), Column("value", "value"), Column("error", "error", "error"),
            Column("interval", "interval", f"{level_text(self.level)} interval", point="value"),
            Column("effective_rows", "count", "eff. n"), Column("max_weight", "weight", "max weight", wide=True),
        )  # fmt: skip
        rows = tuple(
            (
                estimate.estimator, estimate.value, estimate.error, estimate.interval(self.level),
                estimate.diagnostics.effective_sample_size, estimate.diagnostics.max_weight,
            )
            for estimate in self.estimates
        )  # fmt: skip
        summary = (*self.verdict.notes(), Note(self.sentence()))
        notes = tuple(Note(doubt, "warn") for doubt in self.doubts(self.headline))
        more = tuple(Note(doubt, "warn") for doubt in self._others())
        lead = self.answer.notes() if self.scorecard is None else ()
        styles = tuple(map(self._style, self.estimates))
        return Sheet(
            f"{self.titled}{self.policy} on\n{self.log}", columns, rows, summary, notes, styles, lead, more,
        )  # fmt: skip

    @property
    def titled(self) -> str:
        """The metric for the title, where it has a name of its own."""
        return "" if self.metric == "reward" and self.sign > 0 else f"{self.metric}{LESS if self.sign < 0 else ''}: "

    def sheets(self) -> tuple[Sheet, ...]:
        """The table of all metrics with the decision first, where there are several."""
        if self.scorecard is None:
            return (self.sheet(),)
        return self.scorecard.sheet_under(self.answer.notes()), self.sheet()

    def plot(self, axes: Any = None) -> Any:
        """The intervals of all estimates and the baseline's value, on Matplotlib's axes, which are returned."""
        line = self.baseline.value, self.baseline_name.removeprefix("the ")
        return plotted(self.sheet(), "interval", "value", line, axes)

    def _style(self, estimate: Estimate) -> str:
        doubtful = self.verdict.level == "refuse" or rests_on_little(estimate, self.verdict.thresholds)
        words = ["headline"] if estimate.estimator == self.headline else []
        return " ".join([*words, "doubtful"] if doubtful and estimate.estimator != "LoggedMean" else words)

    def sentence(self) -> str:
        """The lift, in words."""
        share = "" if self.relative_lift is None else f" ({self.relative_lift:+.1%})"
        interval = text_of("lift interval", self.lift_interval)
        return f"lift over {self.baseline_name}: {signed(self.lift.value)}{share} {interval}, {self.direction}"

    def doubts(self, estimator: str | None = None) -> list[str]:
        """Every warning once, with the estimators that it concerns, and what was skipped; or only the warnings of one
        estimator, and what was skipped."""
        skipped = [f"{name} was not computed: {reason}" for name, reason in self.skipped]
        return [*self._warnings([e for e in self.estimates if estimator in (None, e.estimator)]), *skipped]

    def _others(self) -> list[str]:
        """The warnings of the estimators that decisions do not rest on."""
        return self._warnings([e for e in self.estimates if e.estimator != self.headline])

    def _warnings(self, shown: Sequence[Estimate]) -> list[str]:
        warnings = by_sentence((e.estimator, warning) for e in shown for warning in e.diagnostics.warnings)
        return [*self._biases(shown), *warnings]

    def _biases(self, shown: Sequence[Estimate]) -> list[str]:
        """What the intervals that allow for a bias assume, and would be without it."""
        return [
            f"{e.estimator}: {e.assumes} The interval without it {text_of('interval', without)}."
            for e in shown
            if (without := e.without_bias(self.level)) is not None
        ]


def rests_on_little(estimate: Estimate, limits: Thresholds) -> bool:
    """Whether an estimate rests on a model alone, or on next to no rows."""
    size = estimate.diagnostics.effective_sample_size
    return size is None or limits.status("effective_rows", size) == "fail"
