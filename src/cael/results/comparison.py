"""compare: several policies against the logging policy, with simultaneous intervals and a verdict on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike

from cael.errors import InputError, SupportError
from cael.estimators import SNDR, SNIPS, Estimator, LoggedMean
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import control, lift_of, relative_lift
from cael.judging.checks import judge
from cael.judging.survey import Survey, survey, target_mass
from cael.judging.verdict import Thresholds, Verdict
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.policies.policy import Policy, as_policy
from cael.results.evaluation import direction, refuse_constant_rewards
from cael.results.sheet import Column, Note, Sheet, level_text, text_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


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
class Comparison:
    """Several policies against the logging policy, best first, with simultaneous intervals at `level`."""

    rows: tuple[Compared, ...]
    baseline: Estimate
    level: float
    factor: float

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
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no policy named {name!r}; there are: {', '.join(row.name for row in self.rows)}")

    def __repr__(self) -> str:
        told = "; ".join(
            f"{row.name}: {row.lift.value:+.5g} {row.interval} {row.direction} ({row.verdict.level})"
            for row in self.rows
        )
        return f"Comparison(baseline {self.baseline.value:.5g}; {told})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "baseline": self.baseline.to_dict(self.level),
            "level": self.level,
            "simultaneous_factor": self.factor,
            "policies": [
                {
                    "name": row.name,
                    "estimate": row.estimate.to_dict(self.level),
                    "lift": row.lift.value,
                    "lift_stderr": row.lift.stderr,
                    "interval": row.interval.to_dict(),
                    "direction": row.direction,
                    "verdict": row.verdict.to_dict(),
                }
                for row in self.rows
            ],
        }

    def sheet(self) -> Sheet:
        """What the printed forms show."""
        base = text_of("value", self.baseline.value), text_of("error", self.baseline.stderr)
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
        return Sheet(f"logging policy: {' ± '.join(base)}", columns, rows, (), notes, tuple(map(_style, self.rows)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.sheet()

    def _repr_html_(self) -> str:
        return self.sheet().html()

    def doubts(self) -> list[str]:
        """The reasons of all verdicts, each once, with the policies that it concerns."""
        said: dict[str, list[str]] = {}
        for row in self.rows:
            for reason in row.verdict.reasons:
                said.setdefault(reason, []).append(row.name)
        return [f"{', '.join(names)}: {reason}" for reason, names in said.items()]


def _style(row: Compared) -> str:
    return "doubtful" if row.verdict.level == "refuse" else row.direction


def compare(
    log: LoggedData | ScannedLog,
    policies: Mapping[str, Policy | ArrayLike | str] | Sequence[Policy],
    estimator: Estimator | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
    thresholds: Thresholds | None = None,
) -> Comparison:
    """Which of these policies beats the logging policy, and by how much?

    Each policy's estimate (by `estimator`; if None, by SNDR, or by SNIPS where only the probabilities of logged actions
    are known) is contrasted, row by row, with the mean logged reward, which is the value of the logging policy; where
    that is known in full, what chance did to the logged actions is taken out of the lift. A max-t multiplier bootstrap
    makes the intervals hold for all policies at once; they count the bias of an estimator that bounds it.
    log: in memory, or scanned (`cael.scan`); for a scanned one, policies may be texts such as "topk:items+chances".
    """
    if isinstance(log, ScannedLog):
        from cael.engine import stream_results as results

        return results.compare(log, policies, estimator, level=level, seed=seed, thresholds=thresholds)
    refuse_constant_rewards(log)
    named = policies if isinstance(policies, Mapping) else {f"{i}: {as_policy(p)!r}": p for i, p in enumerate(policies)}
    if not named:
        raise InputError("compare needs at least one policy.")
    chosen = default_estimator([as_policy(policy) for policy in named.values()]) if estimator is None else estimator
    baseline = LoggedMean().estimate(log, as_policy(next(iter(named.values()))))
    estimates, verdicts = {}, {}
    found = survey(log)
    problem = Problem(log, next(iter(named.values())))
    for name, policy in named.items():
        estimates[name], verdicts[name] = _judged(problem.of(policy), chosen, found, level, thresholds)
    adjustment = control(problem, chosen)
    lifts = {name: lift_of(each, baseline, adjustment) for name, each in estimates.items()}
    factor = inference.max_t(np.stack([lift.units for lift in lifts.values()], axis=1), level, seed=seed)
    rows = [
        Compared(name, estimates[name], lift, within(lift, factor, level), verdicts[name])
        for name, lift in lifts.items()
    ]
    return Comparison(tuple(sorted(rows, key=lambda row: -row.estimate.value)), baseline, level, factor)


def default_estimator(policies: Sequence[Policy]) -> Estimator:
    """SNDR; SNIPS where one of the policies is known on logged actions alone."""
    return SNDR() if all(policy.complete for policy in policies) else SNIPS()


def _judged(
    problem: Problem, estimator: Estimator, found: Survey, level: float, thresholds: Thresholds | None
) -> tuple[Estimate, Verdict]:
    """An estimate and the verdict on it; SNIPS, cheap once the weights are there, is its second opinion."""
    problem.require(estimator.name, estimator.needs)
    estimate = estimator.solve(problem)
    opinions = [estimate]
    if estimator.name != "SNIPS" and not problem.missing(SNIPS.needs):
        try:
            opinions.append(SNIPS().solve(problem))
        except SupportError:
            opinions = [estimate]
    if problem.unsupported_mass is None and problem.policy.complete:
        found = replace(found, target=target_mass(problem.log, problem.policy))
    return estimate, judge(problem.log, found, opinions, estimate.estimator, level, thresholds)


def within(lift: Estimate, factor: float, level: float) -> Interval:
    """The joint interval; that of an estimator with a bound on its bias holds for the value, at the same factor."""
    if lift.diagnostics.bias_bound is None:
        half = factor * lift.stderr
    else:
        from scipy.special import ndtr

        half = lift.interval(float(2 * ndtr(factor) - 1), "bias_aware").width / 2
    return Interval(lift.value - half, lift.value + half, level, "simultaneous")
