"""Commands that judge policies on a log: evaluate, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cael.cli.large import Large, open_large
from cael.cli.options import (
    Columns_,
    Flag,
    Judging,
    Log,
    MaybeWhole,
    Out,
    Policies,
    Printed,
    Reading,
    estimators_of,
    specs_of,
)
from cael.cli.output import Facts, save_report, show, writable

if TYPE_CHECKING:
    from cael.io import LogTable
    from cael.judging.audits import Audit
    from cael.judging.thresholds import Thresholds

FEWEST_FOR_AUDIT = 20
OK, UNTRUSTED, WORSE = 0, 3, 4
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
    level: float = 0.95,
    learn: bool = True,
    budget: float | None = None,
    windows: MaybeWhole = None,
    calibrate: Flag = False,
    gate: Flag = False,
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
        Exit with 4 if the policy is shown to be worse than the logging policy.
    """
    from cael import calibrate as calibrated
    from cael.io.specs import named
    from cael.results.evaluate import asked_about, evaluation_of, panel

    settings, limits = reading or Reading(), (judging or Judging()).limits()
    writable(out)
    added = estimators_of(estimators)
    opened = open_large(log, columns, settings, large or Large(), [policy], windows)
    name, spec = named(policy)
    target = opened.policy(spec)
    answer, asked = asked_about(opened.log, {name: target}, added, None if learn else False, budget, **opened.cuts)
    evaluation = replace(evaluation_of(answer, asked, level, headline, limits), policy=name)
    facts, parts = opened.facts(answer), opened.parts(answer, evaluation.headline, level, settings.seed, limits)
    audit = None if out is None else audited(opened.table, facts, limits)
    if calibrate:
        tried = tuple({each.name: each for each in (*panel(), *added)}.values())
        parts["calibration"] = calibrated(
            opened.rows, target, tried, level=level, seed=settings.seed, thresholds=limits
        )  # fmt: skip
    if evaluation.overlap is not None and facts.names is not None:
        evaluation = replace(evaluation, overlap=evaluation.overlap.labelled(facts.names))
    show(evaluation, format, kind="evaluation", facts=facts, parts=parts)
    if out is not None:
        save_report(out, facts, policy, evaluation=evaluation, seed=settings.seed, audit=audit, **parts)
    refused = evaluation.verdict.level == "refuse" or failed(parts.get("calibration"), evaluation.headline)
    return exit_code(refused, gate and evaluation.direction == "worse")


def failed(calibration: Any, headline: str) -> bool:
    """Whether the intervals of the headline missed planted rewards too often."""
    tried = calibration is not None and headline in [row.estimator for row in calibration]
    return tried and calibration.check(headline).status == "fail"


def audited(table: LogTable | None, facts: Facts, limits: Thresholds) -> Audit | None:
    """The audit, where the log is in memory and long enough for one."""
    from cael import audit

    if table is None or len(table.log) < FEWEST_FOR_AUDIT:
        return None
    return audit(table.log, names=facts.names, thresholds=limits)


def exit_code(refused: bool, worse: bool = False) -> int:
    return UNTRUSTED if refused else WORSE if worse else OK


def compare(
    log: Log,
    *,
    policy: Policies,
    columns: Columns_ = None,
    reading: Reading | None = None,
    large: Large | None = None,
    judging: Judging | None = None,
    estimator: str | None = None,
    level: float = 0.95,
    learn: bool = True,
    budget: float | None = None,
    gate: Flag = False,
    format: Printed = "table",
    out: Out = None,
) -> int:
    """Which of these policies beats the logging policy? Paired contrasts, with simultaneous intervals.

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
        Exit with 4 if one of the policies is shown to be worse than the logging policy.
    """
    from cael.results.comparison import ask_to_compare, comparison_of

    settings, limits = reading or Reading(), (judging or Judging()).limits()
    writable(out)
    chosen = None if estimator is None else estimators_of([estimator])[0]
    opened = open_large(log, columns, settings, large or Large(), policy)
    targets = {name: opened.policy(spec) for name, spec in specs_of(policy).items()}
    answer, used = ask_to_compare(opened.log, targets, chosen, None if learn else False, budget)
    comparison, facts = comparison_of(answer, used, level, settings.seed, limits), opened.facts(answer)
    show(comparison, format, kind="comparison", facts=facts)
    if out is not None:
        save_report(out, facts, ", ".join(policy), comparison=comparison, seed=settings.seed)
    worse = any(row.direction == "worse" for row in comparison)
    return exit_code(comparison.verdict.level == "refuse", gate and worse)
