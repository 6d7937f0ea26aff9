"""The lift of an estimate over the baseline of a question: the logging policy, or another policy of the same pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

from cael.engine.answer import Answer
from cael.engine.columns import Control, Outcome
from cael.engine.moments import Combination
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import lift_of
from cael.inference.ratio import ratio_of

LOGGING = "the logging policy"
"""What a lift is over where no other baseline is named."""


@final
@dataclass(frozen=True, eq=False)
class Lifted:
    """An estimate, that of the baseline, and the lift between them. controls: control variates for the lift."""

    estimate: Estimate
    baseline: Estimate
    controls: tuple[Combination, ...]

    @cached_property
    def lift(self) -> Estimate:
        """The paired contrast, adjusted by the controls."""
        return lift_of(self.estimate, self.baseline, self.controls)


def lifted(answer: Answer, name: str, target: int = 0, baseline: int | None = None) -> Lifted:
    """The lift of an estimator on a target. baseline: the number of the target that it is over; None: the mean logged
    reward, which is the value of the logging policy."""
    best = answer.of(name, target)
    if baseline is None:
        return Lifted(best, answer.of("LoggedMean", target), controls_for(answer, name, target))
    controls = (*controls_for(answer, name, target), *controls_for(answer, name, baseline))
    return Lifted(best, answer.of(name, baseline), controls)


def ratio_lifted(top: Lifted, bottom: Lifted, name: str) -> Lifted:
    """The same of the ratio of two metrics of one pass. name: of the ratio."""
    estimate, baseline = ratio_of(top.estimate, bottom.estimate, name), ratio_of(top.baseline, bottom.baseline, name)
    return Lifted(estimate, baseline, (*top.controls, *bottom.controls))


def direction(interval: Interval, sign: int = 1) -> str:
    """Whether an interval of a lift shows a policy to be "better" or "worse", or holds 0 ("no difference shown"). sign:
    1 where more is better, -1 where less is."""
    above, below = ("better", "worse") if sign > 0 else ("worse", "better")
    return above if interval.low > 0 else below if interval.high < 0 else "no difference shown"


def within(lift: Estimate, factor: float, level: float) -> Interval:
    """The joint interval: the one that decisions rest on, at the factor that makes it joint."""
    below, above = lift.reach(factor)
    return Interval(lift.value - below, lift.value + above, level, "simultaneous")


def outcome_of(estimator: Estimator) -> Outcome:
    """The outcome model of an estimator, that of SNDR where it has none; a control variate is made of it."""
    usual = type(estimator).formula is not Estimator.formula
    outcome = estimator.modelled if usual else None
    return outcome or outcome_of(SNDR())


def controls_for(answer: Answer, name: str, target: int = 0) -> tuple[Combination, ...]:
    """The control variates for the lift of an estimate: what it learned itself, and its outcome model or that of SNDR;
    none where the logging policy is not known in full or estimated: their expectation is then not 0."""
    if answer.log.estimates_logging:
        return ()
    columns = answer.part(name, target).columns
    outcomes = [column.outcome for column in columns if hasattr(column, "outcome")]
    modelled = [Control(outcome) for outcome in (*outcomes[:1], outcome_of(SNDR()))]
    known = [control for control in modelled if control in answer.index]
    return tuple(map(answer.single, [*dict.fromkeys(column for column in columns if column.control), *known[:1]]))
