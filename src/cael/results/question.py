"""Question: which metrics are asked about, and over which baseline; and the answers of the one pass to all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

from cael.engine.answer import Answer
from cael.engine.asking import Wanted, ask_all
from cael.engine.columns import Outcome
from cael.errors import InputError, LogError, SupportError
from cael.estimators.estimator import Estimator
from cael.inference.estimate import Estimate, reworded
from cael.inference.ratio import ratio_of
from cael.judging.checks import choose_headline
from cael.judging.judge import judge
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import LEVELS, Verdict
from cael.log.held import EngineLog, Held
from cael.log.measure import Measure
from cael.results.lifts import LOGGING, Lifted, lifted, ratio_lifted
from cael.results.metric import Metric, measures_of, metrics_of
from cael.results.scorecard import Row, Scorecard, excess_of, scorecard_of


@final
@dataclass(frozen=True, eq=False)
class Question:
    """What is asked beside policies. metrics: none: the reward of the log. baseline: the policy that lifts are over,
    under this name; None: the logging policy."""

    metrics: tuple[Metric, ...] = ()
    baseline: Any = None
    name: str = LOGGING

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The columns of the log that it needs."""
        return measures_of(self.metrics)


def question_of(metrics: Any, baseline: Any) -> Question:
    """The question of a user. baseline: a policy, or (name, policy)."""
    named = isinstance(baseline, tuple) and len(baseline) == 2 and isinstance(baseline[0], str)
    name, policy = baseline if named else (baseline if isinstance(baseline, str) else "the baseline", baseline)
    return Question(() if metrics is None else metrics_of(metrics), policy, LOGGING if policy is None else name)


@final
@dataclass(frozen=True, eq=False)
class Asked:
    """The answers to a question, by the columns of its metrics. names: of the policies, without the baseline."""

    question: Question
    answers: tuple[Answer, ...]
    names: tuple[str, ...]
    asked: Collection[str] = ()

    @property
    def answer(self) -> Answer:
        """That of the first column, the reward."""
        return self.answers[0]

    @property
    def baseline(self) -> int | None:
        """The number of the target that is the baseline; None: it is the logging policy."""
        return None if self.question.baseline is None else len(self.names)

    @property
    def primary(self) -> Metric | None:
        """The metric that decides; None: the reward of the log."""
        return next(iter(self.question.metrics), None)

    @property
    def metric(self) -> str:
        """The name of the primary metric, or of the reward."""
        return self.answer.log.reward_name if self.primary is None else self.primary.name

    @property
    def sign(self) -> int:
        """1 where more of the primary metric is better, -1 where less is."""
        return 1 if self.primary is None else self.primary.sign

    @property
    def ratio(self) -> bool:
        """Whether the primary metric is a ratio."""
        return self.primary is not None and self.primary.per is not None

    @property
    def carded(self) -> bool:
        """Whether there is more than one metric to tell about, or a bound."""
        return len(self.question.metrics) > 1

    def of(self, column: str) -> Answer:
        """The answer about a column."""
        columns = [measure.column for measure in self.question.measures]
        return self.answers[columns.index(column)]

    def answers_to(self, metric: Metric | None) -> tuple[Answer, ...]:
        """Those of the columns of a metric; None: of the reward."""
        return (self.answer,) if metric is None else tuple(map(self.of, metric.columns))

    def estimates(self, target: int) -> tuple[list[Estimate], list[tuple[str, str]]]:
        """The primary metric of a target by all estimators, and (estimator, reason) for those that cannot say it."""
        estimates, skipped = self.answer.estimates(target, self.asked)
        if self.primary is None or self.primary.per is None:
            return estimates, skipped
        bottoms, more = self.of(self.primary.per).estimates(target, self.asked)
        per = {estimate.estimator: estimate for estimate in bottoms}
        ratios = [ratio_of(each, per[each.estimator], self.metric) for each in estimates if each.estimator in per]
        return ratios, [*skipped, *(pair for pair in more if pair not in skipped)]

    def lifted(self, metric: Metric | None, target: int, headline: str, limits: Thresholds = DEFAULT) -> Lifted:
        """A metric of a target, and its lift over the baseline, with warnings that follow these limits."""
        with naming(self.names[target]):
            parts = [
                lifted(answer, name_in(answer, target, headline), target, self.baseline)
                for answer in self.answers_to(metric)
            ]
        whole = parts[0] if metric is None or len(parts) == 1 else ratio_lifted(parts[0], parts[1], metric.name)
        return replace(whole, estimate=reworded(whole.estimate, limits), baseline=reworded(whole.baseline, limits))

    def verdict(self, metric: Metric | None, target: int, headline: str, level: float, limits: Thresholds) -> Verdict:
        """The verdict on a metric of a target; of a ratio the graver one of its two parts."""
        verdicts = [
            answer.once(
                ("verdict", answer.number, target, headline, level, limits),
                partial(judged, answer, target, headline, level, limits),
            )
            for answer in self.answers_to(metric)
        ]
        return max(verdicts, key=lambda verdict: LEVELS.index(verdict.level))

    def row(self, metric: Metric, target: int, headline: str, level: float, limits: Thresholds) -> Row:
        """A metric of a target, before the intervals are joined."""
        whole = self.lifted(metric, target, headline, limits)
        return Row(
            metric, self.names[target], whole, self.verdict(metric, target, headline, level, limits),
            self.of(metric.column).range.cut, excess_of(metric, whole),
        )  # fmt: skip

    def scorecard(self, headline: str, level: float, limits: Thresholds, seed: int) -> Scorecard | None:
        """All metrics of all policies; None where there is only one metric."""
        if not self.carded:
            return None
        rows = [
            self.row(metric, target, headline, level, limits)
            for target in range(len(self.names))
            for metric in self.question.metrics
        ]
        return scorecard_of(rows, self.names, self.question.name, headline, level, seed)


def judged(answer: Answer, target: int, headline: str, level: float, limits: Thresholds) -> Verdict:
    """The verdict on the headline of a target, or on the next best where that was not computed."""
    estimates = [reworded(estimate, limits) for estimate in answer.estimates(target)[0]]
    return judge(answer, target, estimates, name_in(answer, target, headline), level, limits)


@contextmanager
def naming(policy: str) -> Iterator[None]:
    """An error about one of several policies says which it is about."""
    try:
        yield
    except SupportError as error:
        if not policy:
            raise
        raise SupportError(f"policy {policy}: {error} Leave it out to compare the others.") from error


def name_in(answer: Answer, target: int, headline: str) -> str:
    """The headline in an answer, or the next best where it was not computed."""
    names = [part.name for part in answer.parts if part.target == target]
    if headline in names:
        return headline
    return choose_headline(answer.estimates(target)[0], None)


def ask_question(
    log: EngineLog,
    policies: Mapping[str, Any],
    question: Question,
    panels: tuple[Sequence[Estimator], Sequence[Estimator]],
    controls: Sequence[Outcome],
    asked: Collection[str] = (),
    **cuts: Any,
) -> Asked:
    """One pass for all metrics, policies and the baseline. panels: estimators of the first metric, and of the others.
    asked: those whose impossibility is an error. cuts: segments, windows."""
    targets = dict(policies)
    if question.baseline is not None:
        if question.name in targets:
            raise InputError(f"a policy and the baseline are both named {question.name!r}: name them apart.")
        targets[question.name] = question.baseline
    measures = question.measures
    views = [log.measured(measure) for measure in measures] or [log]
    for view in views:
        refuse_constant_rewards(view)
    first = len(question.metrics[0].columns) if question.metrics else 1  # columns of the primary metric
    wanted = [
        Wanted(view, panels[number >= first], asked if number < first else (), tuple(controls))
        for number, view in enumerate(views)
    ]
    answers = ask_all(log.measuring(measures) if measures else log, targets, wanted, **cuts)
    for answer, measure in zip(answers, measures or (None,), strict=True):
        if measure is not None:
            refuse_low_cap(answer, measure)
        answer.refuse_constant()
    return Asked(question, answers, tuple(policies), asked)


def refuse_low_cap(answer: Answer, measure: Measure) -> None:
    """A cap below every value would make them all the same."""
    if measure.cap is not None and answer.range.low == measure.cap:
        raise low_cap(measure, answer.n)


def low_cap(measure: Measure, rows: int) -> LogError:
    return LogError(
        f"the cap {measure.cap:g} of metric {measure.column!r} lies at or below all of its {rows:,} values, so that "
        "nothing of them would be left. Raise it: a cap is for a few extreme values."
    )


def refuse_constant_rewards(log: EngineLog) -> None:
    """A log in memory in which every reward is the same is refused before anything is trained."""
    rows = log.log if isinstance(log, Held) else None
    if rows is None or not (rows.rewards == rows.rewards[0]).all():
        return
    measure = rows.measure
    if measure is not None and measure.cap == rows.rewards[0]:
        raise low_cap(measure, len(rows))
    named = "" if measure is None else f" of metric {measure.column!r}"
    raise LogError(
        f"every one of the {len(rows)} rewards{named} is {rows.rewards[0]:g}: all policies look alike on this log. "
        "Check that the reward column is the right one, or collect more rows. (A single estimator can still be run by "
        "its own estimate(log, policy).)"
    )
