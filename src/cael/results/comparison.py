"""compare: several policies against a baseline, with simultaneous intervals and a verdict on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from cael.engine.asking import as_engine_log
from cael.errors import InputError, PolicyError
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.weighting import SNIPS, LoggedMean
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import relative_lift
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Verdict
from cael.log.held import EngineLog
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.policies.given import PolicyLike
from cael.policies.policy import Policy
from cael.results.decision import Decision, Finding, decided, rule_of
from cael.results.evaluate import controls_of, default_estimator, warn
from cael.results.evaluation import LESS
from cael.results.headline import Headline
from cael.results.lifts import LOGGING, direction, within
from cael.results.metric import Metric
from cael.results.plots import plotted
from cael.results.question import Asked, Question, ask_question, question_of, refuse_constant_rewards
from cael.results.scope import Scope, scope_of
from cael.results.scorecard import Scorecard, joint_factor, rows_to_settle
from cael.results.sheet import Column, Note, Sheet, Shown, by_sentence, level_text, named, text_of


@final
@dataclass(frozen=True)
class Compared:
    """One policy of a comparison: its value, its lift over the baseline with a simultaneous interval, and the verdict
    on whether its estimate can be trusted. sign: 1 where more is better, -1 where less is."""

    name: str
    estimate: Estimate
    lift: Estimate
    interval: Interval
    verdict: Verdict
    sign: int = 1

    @property
    def direction(self) -> str:
        """Whether the interval of the lift shows it to be "better" or "worse", or "no difference shown"."""
        return direction(self.interval, self.sign)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Several policies against a baseline, best first, with simultaneous intervals at `level`.

    metric: the name of what is earned. baseline_name: of what the lifts are over. scorecard: of several metrics.
    rows: one for each policy. factor: of the simultaneous intervals, in standard errors. estimator: its name. scope:
    rows, period and unit.
    """

    rows: tuple[Compared, ...]
    baseline: Estimate
    level: float
    factor: float
    estimator: str
    metric: str = "reward"
    baseline_name: str = LOGGING
    scorecard: Scorecard | None = None
    scope: Scope | None = None

    @property
    def answer(self) -> Headline:
        """The answer about the first policy, the one that looks best, in words."""
        return self.answer_on(self.rows[0].name)

    def answer_on(self, name: str) -> Headline:
        """The answer about a policy, in words."""
        row, at = self[name], [other.name for other in self.rows].index(name)
        return Headline(
            self.metric, row.name, self.baseline_name, self.sign, self.scope or Scope(self.baseline.n), row.estimate,
            self.baseline, row.lift, row.interval, self.factor, self.decisions[at], row.verdict,
        )  # fmt: skip

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What to do about each policy: ship, test or keep."""
        if self.scorecard is not None:
            return tuple(next(d for d in self.scorecard.decisions if d.policy in ("", row.name)) for row in self.rows)
        rule = rule_of(self.metric, 0, self.baseline_name)
        return tuple(
            decided(
                row.name, Finding(self.metric, row.direction), (),
                [self.metric] if row.verdict.level == "refuse" else [], rows_to_settle(row.lift, self.factor), rule,
            )
            for row in self.rows
        )  # fmt: skip

    @property
    def sign(self) -> int:
        """1 where more of the metric is better, -1 where less is."""
        return self.rows[0].sign

    @property
    def verdict(self) -> Verdict:
        """The verdict on the first policy, the one that looks best."""
        return self.rows[0].verdict

    @property
    def relative_lift(self) -> float | None:
        """The lift of the first policy as a share of the baseline's value; None where that is 0."""
        return relative_lift(self.rows[0].lift, self.baseline)

    def __iter__(self) -> Iterator[Compared]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Compared:
        return named("policy", {row.name: row for row in self.rows}, name)

    def __repr__(self) -> str:
        rows = "; ".join(
            f"{row.name}: {row.lift.value:+.5g} {row.interval} {row.direction} ({row.verdict.level})"
            for row in self.rows
        )
        return f"Comparison(baseline {self.baseline.value:.5g}; {rows})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "estimator": self.estimator,
            "answer": self.answer.to_dict(),
            "metric": self.metric,
            "better": "more" if self.sign > 0 else "less",
            "baseline": self.baseline.to_dict(self.level),
            "baseline_name": self.baseline_name,
            "level": self.level,
            "simultaneous_factor": self.factor,
            "policies": [
                {
                    "name": row.name,
                    "estimate": row.estimate.to_dict(self.level),
                    "lift": row.lift.value,
                    "lift_error": row.lift.error,
                    "interval": row.interval.to_dict(),
                    "direction": row.direction,
                    "verdict": row.verdict.to_dict(),
                }
                for row in self.rows
            ],
            "decisions": [decision.to_dict() for decision in self.decisions],
            **({} if self.scorecard is None else {"scorecard": self.scorecard.to_dict()}),
        }

    def sheet(self) -> Sheet:
        base = text_of("value", self.baseline.value), text_of("error", self.baseline.error)
        columns = (
            Column("policy"), Column("value", "value", wide=True), Column("lift", "lift"),
            Column("interval", "lift interval", f"simultaneous {level_text(self.level)}"),
            Column("direction", head=""), Column("verdict"),
        )  # fmt: skip
        rows = tuple(
            (row.name, row.estimate.value, row.lift.value, row.interval, row.direction, row.verdict.level)
            for row in self.rows
        )
        notes = tuple(Note(doubt, "warn") for doubt in self.doubts())
        less = LESS if self.sign < 0 else ""
        metric = "" if self.metric == "reward" and not less else f"{self.metric}{less} "
        title = f"{metric}by {self.estimator}; {self.baseline_name.removeprefix('the ')}: {' ± '.join(base)}"
        lead = self._lead() if self.scorecard is None else ()
        return Sheet(title, columns, rows, (), notes, tuple(map(_style, self.rows)), lead)

    def _lead(self) -> tuple[Note, ...]:
        """The answer on the best policy, and the decision on every one."""
        sentence, *rest = self.answer.notes(decided=False)
        best = f"Best of {len(self.rows)} policies. " if len(self.rows) > 1 else ""
        decisions = [decision.note() for decision in self.decisions]
        return replace(sentence, sentence=f"{best}{sentence.sentence}"), *decisions, *rest

    def sheets(self) -> tuple[Sheet, ...]:
        """The table of all metrics with the decisions first, where there are several."""
        if self.scorecard is None:
            return (self.sheet(),)
        return self.scorecard.sheet_under(self._lead()), self.sheet()

    def plot(self, axes: Any = None) -> Any:
        """The simultaneous intervals of all lifts, on Matplotlib's axes, which are returned."""
        return plotted(self.sheet(), "interval", "lift", (0.0, "no lift"), axes)

    def doubts(self) -> list[str]:
        """The reasons of all verdicts, each once, with the policies that it concerns, and what the intervals assume, by
        the largest bias that one of them allows for."""
        reasons = by_sentence((row.name, reason) for row in self.rows for reason in row.verdict.reasons)
        most = max((row.lift for row in self.rows), key=lambda lift: lift.diagnostics.bias_bound or 0.0)
        return [*reasons, *([f"{self.estimator}: {most.assumes}"] if most.assumes else [])]


def _style(row: Compared) -> str:
    return "doubtful" if row.verdict.level == "refuse" else row.direction


def compare(
    log: LoggedData | ScannedLog,
    policies: Mapping[str, PolicyLike] | Sequence[Policy],
    estimator: Estimator | None = None,
    *,
    metrics: Sequence[str | Metric] | None = None,
    baseline: Any = None,
    level: float = 0.95,
    seed: int = 0,
    thresholds: Thresholds | None = None,
    learn: bool | None = None,
    budget: float | None = None,
) -> Comparison:
    """Which of these policies beats the baseline, and by how much?

    Each policy's estimate (by `estimator`; if None, by the headline of `evaluate`: Auto, or SNDR with learn=False, or
    what the log allows) is contrasted, row by row, with the mean logged reward, which is the value of the logging
    policy, or with the same estimate of another policy (baseline, alone or as (name, policy)); where the logging policy
    is known in full, the lift is adjusted by a control variate for the random choice of logged actions. A max-t
    multiplier bootstrap makes the intervals simultaneous; they allow for a bias where the estimator does.
    metrics: see `evaluate`; intervals are simultaneous over metrics and policies. log: in memory, or scanned
    (`cael.scan`); policies may be texts such as "topk:items+chances" where the log was read from a table.
    budget: so many seconds of training at most.
    """
    inference.check_level(level)
    question = question_of(metrics, baseline)
    asked, chosen = ask_to_compare(as_engine_log(log), policies, estimator, learn, budget, question)
    warn(asked.answer)
    return comparison_of(asked, chosen, level, seed, thresholds)


def ask_to_compare(
    log: EngineLog, policies: Any, estimator: Estimator | None, learn: bool | None, budget: float | None = None,
    question: Question | None = None,
) -> tuple[Asked, Estimator]:  # fmt: skip
    """The answer for all policies; SNIPS, cheap once the weights are there, is a second opinion."""
    named = named_policies(policies)
    if not named:
        raise InputError("compare needs at least one policy.")
    chosen = estimator
    if chosen is None:
        refuse_constant_rewards(log)
        chosen = default_estimator(log, [log.target(policy) for policy in named.values()], learn, budget)
    panel = {e.name: e for e in (LoggedMean(), chosen, *((SNIPS(),) if log.has_propensities else ()))}
    controls, required = controls_of((chosen, SNDR())), (LoggedMean().name, chosen.name)
    both = tuple(panel.values()), tuple(panel.values())
    return ask_question(log, named, question or Question(), both, controls, required), chosen


def comparison_of(
    asked: Asked, chosen: Estimator, level: float, seed: int, thresholds: Thresholds | None
) -> Comparison:
    """Each target against the baseline, with simultaneous intervals."""
    limits, metric = thresholds or DEFAULT, asked.primary
    scorecard = asked.scorecard(chosen.name, level, limits, seed)
    lifts = [asked.lifted(metric, t, chosen.name, limits) for t in range(len(asked.names))]
    factor = joint_factor([row.lift for row in lifts], level, seed) if scorecard is None else scorecard.factor
    compared = [
        Compared(
            name, lifts[t].estimate, lifts[t].lift, within(lifts[t].lift, factor, level),
            asked.verdict(metric, t, chosen.name, level, limits), asked.sign,
        )
        for t, name in enumerate(asked.names)
    ]  # fmt: skip
    ordered = tuple(sorted(compared, key=lambda row: -row.sign * row.estimate.value))
    baseline = lifts[0].baseline
    return Comparison(
        ordered, baseline, level, factor, chosen.name, asked.metric, asked.question.name, scorecard,
        scope_of(asked.answer, ratio=asked.ratio),
    )  # fmt: skip


def named_policies(policies: Any) -> dict[str, Any]:
    """Policies by name, from a mapping or a sequence."""
    if isinstance(policies, Mapping):
        return dict(policies)
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise PolicyError("compare needs several policies: a mapping of names to policies, or a list.")
    return {f"{at}: {p if isinstance(p, str) else repr(p)}": p for at, p in enumerate(policies)}
