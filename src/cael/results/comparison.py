"""compare: several policies against the logging policy, with simultaneous intervals and a verdict on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.engine.answer import Answer
from cael.engine.asking import as_engine_log, ask
from cael.errors import InputError, PolicyError
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.weighting import SNIPS, LoggedMean
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate, reworded
from cael.inference.intervals import Interval
from cael.inference.lift import lift_of, relative_lift
from cael.judging.judge import judge
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Verdict
from cael.log.held import EngineLog
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.policies.given import PolicyLike
from cael.policies.policy import Policy
from cael.results.evaluate import controls_for, controls_of, default_estimator, refuse_constant_rewards, warn
from cael.results.evaluation import direction
from cael.results.plots import plotted
from cael.results.sheet import Column, Note, Sheet, Shown, by_sentence, level_text, named, text_of


@final
@dataclass(frozen=True)
class Compared:
    """One policy of a comparison: its value, its lift over the logging policy with a simultaneous interval, and the
    verdict on whether its estimate can be trusted."""

    name: str
    estimate: Estimate
    lift: Estimate
    interval: Interval
    verdict: Verdict

    @property
    def direction(self) -> str:
        """Whether the interval of the lift lies above 0 ("better"), below ("worse"), or holds it."""
        return direction(self.interval)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Several policies against the logging policy, best first, with simultaneous intervals at `level`."""

    rows: tuple[Compared, ...]
    baseline: Estimate
    level: float
    factor: float
    estimator: str

    @property
    def verdict(self) -> Verdict:
        """The verdict on the first policy, the one that looks best."""
        return self.rows[0].verdict

    @property
    def relative_lift(self) -> float | None:
        """The lift of the first policy as a share of the logging policy's value; None where that is 0."""
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
            "baseline": self.baseline.to_dict(self.level),
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
        }

    def sheet(self) -> Sheet:
        base = text_of("value", self.baseline.value), text_of("error", self.baseline.error)
        columns = (
            Column("policy"), Column("value", "value"), Column("lift", "lift"),
            Column("interval", "lift interval", f"simultaneous {level_text(self.level)} interval"),
            Column("direction", head=""), Column("verdict"),
        )  # fmt: skip
        rows = tuple(
            (row.name, row.estimate.value, row.lift.value, row.interval, row.direction, row.verdict.level)
            for row in self.rows
        )
        notes = tuple(Note(doubt, "warn") for doubt in self.doubts())
        title = f"by {self.estimator}; logging policy: {' ± '.join(base)}"
        return Sheet(title, columns, rows, (), notes, tuple(map(_style, self.rows)))

    def plot(self, axes: Any = None) -> Any:
        """The simultaneous intervals of all lifts, on Matplotlib's axes, which are returned."""
        return plotted(self.sheet(), "interval", "lift", (0.0, "no lift"), axes)

    def doubts(self) -> list[str]:
        """The reasons of all verdicts, each once, with the policies that it concerns."""
        return by_sentence((row.name, reason) for row in self.rows for reason in row.verdict.reasons)


def _style(row: Compared) -> str:
    return "doubtful" if row.verdict.level == "refuse" else row.direction


def compare(
    log: LoggedData | ScannedLog,
    policies: Mapping[str, PolicyLike] | Sequence[Policy],
    estimator: Estimator | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
    thresholds: Thresholds | None = None,
    learn: bool | None = None,
    budget: float | None = None,
) -> Comparison:
    """Which of these policies beats the logging policy, and by how much?

    Each policy's estimate (by `estimator`; if None, by the headline of `evaluate`: Auto, or SNDR with learn=False, or
    what the log allows) is contrasted, row by row, with the mean logged reward, which is the value of the logging
    policy; where that is known in full, the lift is adjusted by a control variate for the random choice of logged
    actions. A max-t multiplier bootstrap makes the intervals simultaneous; they allow for a bias where the estimator
    does. log: in memory, or scanned (`cael.scan`); policies may be texts such as "topk:items+chances" where the
    log was read from a table. budget: so many seconds of training at most.
    """
    inference.check_level(level)
    answer, chosen = ask_to_compare(as_engine_log(log), policies, estimator, learn, budget)
    warn(answer)
    return comparison_of(answer, chosen, level, seed, thresholds)


def ask_to_compare(
    log: EngineLog, policies: Any, estimator: Estimator | None, learn: bool | None, budget: float | None = None
) -> tuple[Answer, Estimator]:
    """The answer for all policies; SNIPS, cheap once the weights are there, is a second opinion."""
    named = named_policies(policies)
    if not named:
        raise InputError("compare needs at least one policy.")
    refuse_constant_rewards(log)
    chosen = estimator
    if chosen is None:
        chosen = default_estimator(log, [log.target(policy) for policy in named.values()], learn, budget)
    panel = {e.name: e for e in (LoggedMean(), chosen, *((SNIPS(),) if log.has_propensities else ()))}
    controls, required = controls_of((chosen, SNDR())), (LoggedMean().name, chosen.name)
    answer = ask(log, named, list(panel.values()), asked=required, controls=controls)
    answer.refuse_constant()
    return answer, chosen


def comparison_of(
    answer: Answer, chosen: Estimator, level: float, seed: int, thresholds: Thresholds | None
) -> Comparison:
    """Each target against the logged mean, with simultaneous intervals."""
    baseline = answer.of("LoggedMean", 0)
    limits = thresholds or DEFAULT
    rows = []
    for t, name in enumerate(answer.names):
        estimates = {e.estimator: reworded(e, limits) for e in answer.estimates(t, {chosen.name})[0]}
        best = estimates[chosen.name]
        lift = lift_of(best, baseline, controls_for(answer, chosen.name, t))
        rows.append((name, best, lift, judge(answer, t, list(estimates.values()), chosen.name, level, limits)))
    hidden = np.array([inference.hidden_share(lift.stderr, lift.error) for _, _, lift, _ in rows])
    groups = np.stack([lift.groups for _, _, lift, _ in rows], axis=1)
    factor = inference.max_t(groups, level, hidden=hidden, seed=seed)
    compared = [Compared(name, best, lift, within(lift, factor, level), verdict) for name, best, lift, verdict in rows]
    ordered = tuple(sorted(compared, key=lambda row: -row.estimate.value))
    return Comparison(ordered, baseline, level, factor, chosen.name)


def within(lift: Estimate, factor: float, level: float) -> Interval:
    """The joint interval: the one that decisions rest on, at the factor that makes it joint."""
    below, above = lift.reach(factor)
    return Interval(lift.value - below, lift.value + above, level, "simultaneous")


def named_policies(policies: Any) -> dict[str, Any]:
    """Policies by name, from a mapping or a sequence."""
    if isinstance(policies, Mapping):
        return dict(policies)
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise PolicyError("compare needs several policies: a mapping of names to policies, or a list.")
    return {f"{at}: {p if isinstance(p, str) else repr(p)}": p for at, p in enumerate(policies)}
