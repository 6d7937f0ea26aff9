"""Commands that judge policies on a log: evaluate, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cael.cli.large import Large, open_large
from cael.cli.options import Columns_, Judging, Policies, Reading, estimators_of, names_of, specs_of
from cael.cli.output import Format, about_reading, lines_about, save_report, settings_of, show, writable

if TYPE_CHECKING:
    from cael.io import LogTable
    from cael.judging.audits import Audit
    from cael.judging.thresholds import Thresholds
    from cael.results.calibration import Calibration
    from cael.results.evaluation import Evaluation

FEWEST_FOR_AUDIT = 20
OK, UNTRUSTED, WORSE = 0, 3, 4
"""Exit codes. An answer that is not to be trusted is never reported as worse or not worse."""


def evaluate(
    log: str,
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
    windows: int | None = None,
    calibrate: Annotated[bool, Parameter(negative=())] = False,
    gate: Annotated[bool, Parameter(negative=())] = False,
    format: Format = "table",
    out: Path | None = None,
) -> int:
    """What would a policy have earned on this log, and can the answer be trusted?

    Parameters
    ----------
    log
        A file (Parquet, CSV, Arrow, .npz), a folder of them, or a pattern in quotes.
    policy
        The policy to evaluate, such as choice:COLUMN or table:FILE; the kinds are listed below.
    estimators
        Estimators to add to the panel; "all" adds every one.
    headline
        The estimator that the verdict is about.
    level
        Level of the intervals.
    learn
        Show Auto, which trains networks (CAEL), first: seconds to minutes. --no-learn leaves it out.
    windows
        Also give values for so many stretches of time.
    calibrate
        Also plant known rewards on this log, rank the estimators on them and check their intervals.
    gate
        Exit with 4 if the policy is shown to be worse than the logging policy.
    format
        Print a table, JSON or Markdown.
    out
        Write a report to this HTML file.
    """
    from cael.io.specs import named
    from cael.results.evaluate import asked_about, evaluation_of

    settings, limits = reading or Reading(), (judging or Judging()).limits()
    writable(out)
    given = estimators_of(estimators)
    opened_log = open_large(log, columns, settings, large or Large(), [policy], windows)
    name, spec = named(policy)
    answer, asked = asked_about(opened_log.log, {name: spec}, given, None if learn else False, **opened_log.cuts())
    found = replace(evaluation_of(answer, asked, level, headline, limits), policy=name)
    table, more = opened_log.facts(answer), opened_log.parts(answer, found.headline, level, settings.seed, limits)
    audit = _audited(opened_log.table, limits) if out is not None and opened_log.table is not None else None
    if calibrate:
        rows = opened_log.log if opened_log.table is None else opened_log.table.log
        more["calibration"] = _calibrated(rows, spec, given, level, settings.seed, limits)
    labels = names_of(table)
    if found.overlap is not None and labels is not None:
        found = replace(found, overlap=found.overlap.labelled(labels))
    show(found, format, kind="evaluation", more=more, extra={"reading": about_reading(table)}, after=lines_about(table))
    if out is not None:
        told = settings_of(table, policy)
        save_report(out, found, table, settings=told, seed=settings.seed, audit=audit, **more)
    if found.verdict.level == "refuse" or _calibration(found, more) == "fail":
        return UNTRUSTED
    return WORSE if gate and found.direction == "worse" else OK


def _calibration(found: Evaluation, more: dict[str, Any]) -> str:
    """How the intervals of the headline did on planted rewards; "unknown" where nobody asked."""
    names = [row.estimator for row in more.get("calibration", ())]
    return more["calibration"].check(found.headline).status if found.headline in names else "unknown"


def _audited(table: LogTable, limits: Thresholds) -> Audit | None:
    """The audit, where the log is long enough for one."""
    from cael import audit

    enough = len(table.log) >= FEWEST_FOR_AUDIT
    return audit(table.log, names=names_of(table), thresholds=limits) if enough else None


def _calibrated(
    log: Any, policy: str, estimators: Sequence[Any], level: float, seed: int, limits: Thresholds
) -> Calibration:
    """Of the usual panel, and what was asked for."""
    from cael import calibrate
    from cael.results.evaluate import panel

    wanted = {each.name: each for each in (*panel(), *estimators)}
    return calibrate(log, policy, tuple(wanted.values()), level=level, seed=seed, thresholds=limits)


def compare(
    log: str,
    *,
    policy: Policies,
    columns: Columns_ = None,
    reading: Reading | None = None,
    large: Large | None = None,
    judging: Judging | None = None,
    estimator: str | None = None,
    level: float = 0.95,
    learn: bool = True,
    gate: Annotated[bool, Parameter(negative=())] = False,
    format: Format = "table",
    out: Path | None = None,
) -> int:
    """Which of these policies beats the logging policy? Paired contrasts, with simultaneous intervals.

    Parameters
    ----------
    log
        A file (Parquet, CSV, Arrow, .npz), a folder of them, or a pattern in quotes.
    policy
        A policy, such as choice:COLUMN or table:FILE, with a name before it if you like: new=choice:COLUMN. Repeat it.
    estimator
        The estimator that all policies are compared by; if not given, the headline of evaluate: Auto, or with
        --no-learn SNDR, or SNIPS where only the probabilities of logged actions are known.
    level
        Level of the simultaneous intervals.
    learn
        Let Auto train networks (CAEL): seconds to minutes. --no-learn leaves it out.
    gate
        Exit with 4 if one of the policies is shown to be worse than the logging policy.
    format
        Print a table, JSON or Markdown.
    out
        Write a report to this HTML file.
    """
    from cael.results.comparison import ask_to_compare, comparison_of

    settings, limits = reading or Reading(), (judging or Judging()).limits()
    writable(out)
    chosen = None if estimator is None else estimators_of([estimator])[0]
    opened_log = open_large(log, columns, settings, large or Large(), policy)
    answer, used = ask_to_compare(opened_log.log, specs_of(policy), chosen, None if learn else False)
    found, table = comparison_of(answer, used, level, settings.seed, limits), opened_log.facts(answer)
    show(found, format, kind="comparison", extra={"reading": about_reading(table)}, after=lines_about(table))
    if out is not None:
        told = settings_of(table, ", ".join(policy))
        save_report(out, None, table, settings=told, seed=settings.seed, comparison=found)
    if found.verdict.level == "refuse":
        return UNTRUSTED
    return WORSE if gate and any(row.direction == "worse" for row in found) else OK
