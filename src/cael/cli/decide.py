"""Commands that judge policies on a log: evaluate, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cael.cli.large import Large, Opened, open_large
from cael.cli.options import (
    Baseline,
    Columns_,
    Flag,
    Guardrails,
    Judging,
    Log,
    MaybeNumber,
    MaybeWhole,
    Number,
    Out,
    Policies,
    Printed,
    Reading,
    estimators_of,
    specs_of,
)
from cael.cli.output import Facts, save_report, show, writable
from cael.io.roles import Columns

if TYPE_CHECKING:
    from cael.judging.audits import Audit
    from cael.judging.thresholds import Thresholds
    from cael.results.metric import Metric
    from cael.results.question import Question

FEWEST_FOR_AUDIT = 20
OK, UNTRUSTED, WORSE, UNSETTLED = 0, 3, 4, 5
"""Exit codes. An answer that is not to be trusted is never reported as worse or not worse."""


def evaluate(
    log: Log,
    *,
    policy: str = "target",
    columns: Columns_ = None,
    reading: Reading | None = None,
    large: Large | None = None,
    judging: Judging | None = None,
    estimators: Annotated[Sequence[str], Parameter(consume_multiple=True, negative=())] = (),
    headline: str | None = None,
    level: Number = 0.95,
    learn: bool = True,
    budget: MaybeNumber = None,
    guardrail: Guardrails = None,
    baseline: Baseline = None,
    windows: MaybeWhole = None,
    calibrate: Flag = False,
    gate: Flag = False,
    ship: Flag = False,
    format: Printed = "table",
    out: Out = None,
) -> int:
    """What would a policy have earned on this log, and can the answer be trusted?

    Parameters
    ----------
    policy
        The policy to evaluate, such as choice:COLUMN or table:FILE; the kinds are listed below.
    estimators
        Estimators to add to the panel; "all" adds every one.
    headline
        The estimator that the verdict is about.
    level
        Level of the intervals.
    learn
        Show Auto, which trains networks (CAEL) where that can help, first. --no-learn leaves it out.
    budget
        Seconds of training at most; without it training ends when it no longer helps.
    windows
        Also give values for so many time periods.
    calibrate
        Also plant known rewards on this log, rank the estimators on them and check their intervals.
    gate
        Exit with 4 if the decision is to keep the baseline: the policy is shown to be worse, or beyond a guardrail.
    ship
        Exit with 5 unless the decision is to ship (4 if it is to keep the baseline).
    """
    from cael import calibrate as calibrated
    from cael.io.specs import named
    from cael.results.evaluate import asked_about, evaluation_of, panel

    settings, limits = reading or Reading(), (judging or Judging()).limits()
    writable(out)
    added = estimators_of(estimators)
    columns, metrics = measuring(columns, guardrail)
    opened = open_large(log, columns, settings, large or Large(), specs_with(policy, baseline), windows)
    name, spec = named(policy)
    target = opened.policy(spec)
    asked = asked_about(
        opened.log, {name: target}, added, None if learn else False, budget,
        headline=headline, question=asked_over(metrics, baseline, opened), **opened.cuts,
    )  # fmt: skip
    answer = asked.answer
    evaluation = replace(evaluation_of(asked, level, headline, limits, settings.seed), policy=name)
    facts, parts = opened.facts(answer), opened.parts(asked, evaluation.headline, level, settings.seed, limits)
    audit = None if out is None else audited(opened.rows, facts, limits)
    if calibrate:
        tried = tuple({estimator.name: estimator for estimator in (*panel(), *added)}.values())
        parts["calibration"] = calibrated(
            opened.rows, target, tried, level=level, seed=settings.seed, thresholds=limits
        )  # fmt: skip
    if evaluation.overlap is not None and facts.names is not None:
        evaluation = replace(evaluation, overlap=evaluation.overlap.labelled(facts.names))
    show(evaluation, format, kind="evaluation", facts=facts, parts=parts)
    if out is not None:
        save_report(out, facts, policy, evaluation=evaluation, seed=settings.seed, audit=audit, **parts)
    refused = not evaluation.decision.trusted or failed(parts.get("calibration"), evaluation.headline)
    return exit_code([evaluation.decision.choice], refused=refused, gate=gate, ship=ship)


def failed(calibration: Any, headline: str) -> bool:
    """Whether the intervals of the headline missed planted rewards too often."""
    tried = calibration is not None and headline in [row.estimator for row in calibration]
    return tried and calibration.check(headline).status == "fail"


def audited(log: Any, facts: Facts, limits: Thresholds) -> Audit | None:
    """The audit, where the log is long enough for one; a log in files is read once more for it."""
    from cael import audit

    return None if facts.rows < FEWEST_FOR_AUDIT else audit(log, names=facts.names, thresholds=limits)


def exit_code(decisions: Sequence[str] = (), *, refused: bool, gate: bool = False, ship: bool = False) -> int:
    """Of a command. decisions: about the policies. gate, ship: whether they count."""
    if refused:
        return UNTRUSTED
    if (gate or ship) and "keep" in decisions:
        return WORSE
    return UNSETTLED if ship and "test" in decisions else OK


def measuring(columns: Columns | None, guardrails: Sequence[str] | None) -> tuple[Columns | None, list[Metric]]:
    """The columns of the log with those of the metrics, and the metrics; none where only the reward is asked about."""
    from cael.results.metric import Metric

    given = columns or Columns()
    metrics = [Metric.of(text) for text in given.metric or ()]
    bounds = [Metric.of(text, guardrail=True) for text in guardrails or ()]
    if not metrics and not bounds:
        return columns, []
    if given.reward is not None and given.reward not in [metric.name for metric in metrics]:
        metrics = [Metric(given.reward), *metrics]
    names = dict.fromkeys(column for metric in (*metrics, *bounds) for column in metric.columns)
    reward = given.reward or next((metric.column for metric in metrics), None)
    return replace(given, reward=reward, metric=tuple(name for name in names if name != reward)), [*metrics, *bounds]


def asked_over(metrics: Sequence[Metric], baseline: str | None, opened: Opened) -> Question:
    """The question about these metrics, over this baseline."""
    from cael.io.specs import named
    from cael.results.metric import Metric
    from cael.results.question import question_of

    goals = list(metrics)
    if goals and all(metric.guardrail for metric in goals):
        goals = [Metric(opened.log.reward_name), *goals]
    if baseline is None:
        return question_of(goals or None, None)
    name, spec = named(baseline)
    return question_of(goals or None, (name, opened.policy(spec)))


def specs_with(policy: str, baseline: str | None) -> list[str]:
    """The specs of a policy and of the baseline, where there is one."""
    return [policy, *([] if baseline is None else [baseline])]


def compare(
    log: Log,
    *,
    policy: Policies,
    columns: Columns_ = None,
    reading: Reading | None = None,
    large: Large | None = None,
    judging: Judging | None = None,
    estimator: str | None = None,
    level: Number = 0.95,
    learn: bool = True,
    budget: MaybeNumber = None,
    guardrail: Guardrails = None,
    baseline: Baseline = None,
    gate: Flag = False,
    ship: Flag = False,
    format: Printed = "table",
    out: Out = None,
) -> int:
    """Which of these policies beats the baseline? Paired contrasts, with simultaneous intervals.

    Parameters
    ----------
    policy
        A policy, such as choice:COLUMN or table:FILE, with a name before it if you like: new=choice:COLUMN. Repeat it.
    estimator
        The estimator that all policies are compared by; if not given, the headline of evaluate: Auto, or with
        --no-learn SNDR, or SNIPS where only the probabilities of logged actions are known.
    level
        Level of the simultaneous intervals.
    learn
        Let Auto train networks (CAEL) where that can help. --no-learn leaves it out.
    budget
        Seconds of training at most; without it training ends when it no longer helps.
    gate
        Exit with 4 if the decision about one of the policies is to keep the baseline.
    ship
        Exit with 5 unless the decision about every policy is to ship (4 if it is to keep the baseline).
    """
    from cael.results.comparison import ask_to_compare, comparison_of

    settings, limits = reading or Reading(), (judging or Judging()).limits()
    writable(out)
    chosen = None if estimator is None else estimators_of([estimator])[0]
    columns, metrics = measuring(columns, guardrail)
    opened = open_large(log, columns, settings, large or Large(), [*policy, *([baseline] if baseline else [])])
    targets = {name: opened.policy(spec) for name, spec in specs_of(policy).items()}
    asked, used = ask_to_compare(
        opened.log, targets, chosen, None if learn else False, budget, asked_over(metrics, baseline, opened)
    )  # fmt: skip
    comparison, facts = comparison_of(asked, used, level, settings.seed, limits), opened.facts(asked.answer)
    show(comparison, format, kind="comparison", facts=facts)
    if out is not None:
        save_report(out, facts, ", ".join(policy), comparison=comparison, seed=settings.seed)
    decisions = [decision.choice for decision in comparison.decisions]
    return exit_code(decisions, refused=not comparison.decisions[0].trusted, gate=gate, ship=ship)
