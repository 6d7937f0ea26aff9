"""Commands that judge policies on a log: evaluate, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cael.cli import large as streaming
from cael.cli.large import Large, streamed
from cael.cli.options import Columns_, Policies, Reading, estimators_of, names_of, opened, policies_of
from cael.cli.output import Facts, Format, about_reading, lines_about, save_report, settings_of, show, writable

if TYPE_CHECKING:
    from cael.io import LogTable
    from cael.judging.audits import Audit
    from cael.log.logged import LoggedData
    from cael.log.scanned import ScannedLog
    from cael.policies.policy import Policy
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
    from cael import evaluate as call
    from cael.io.specs import named

    settings = reading or Reading()
    writable(out)
    asked = estimators_of(estimators)
    scanned = streamed(log, columns, settings, large or Large(), [policy])
    audit = None
    table: LogTable | Facts
    if scanned is not None:
        judged: tuple[Any, Any] = scanned, named(policy)[1]
        found, more, table = streaming.evaluate(
            scanned, policy, asked, level=level, headline=headline, learn=learn, windows=windows, seed=settings.seed
        )
    else:
        table = opened(log, columns, settings)
        ((name, chosen),) = policies_of(table, [policy]).items()
        judged = table.log, chosen
        found = call(table.log, chosen, asked, level=level, headline=headline, learn=None if learn else False)
        found = replace(found, policy=name)
        more = _more(table, chosen, windows, level, settings.seed)
        audit = _audited(table) if out is not None else None
    if calibrate:
        more["calibration"] = _calibrated(*judged, asked, level, settings.seed)
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


def _audited(table: LogTable) -> Audit | None:
    """The audit, where the log is long enough for one."""
    from cael import audit

    return audit(table.log, names=names_of(table)) if len(table.log) >= FEWEST_FOR_AUDIT else None


def _more(table: LogTable, policy: Policy, windows: int | None, level: float, seed: int) -> dict[str, Any]:
    """Segments and time windows, where asked for."""
    from cael import segments

    found: dict[str, Any] = {}
    if table.segments:
        found["segments"] = {
            name: segments(table.log, policy, labels, level=level, seed=seed) for name, labels in table.segments
        }
    if windows is not None:
        found["windows"] = segments(table.log, policy, windows=windows, level=level, seed=seed)
    return found


def _calibrated(
    log: LoggedData | ScannedLog, policy: Policy | str, estimators: Sequence[Any], level: float, seed: int
) -> Calibration:
    """Of the usual panel, and what was asked for."""
    from cael import calibrate
    from cael.results.evaluation import panel

    wanted = {each.name: each for each in (*panel(), *estimators)}
    return calibrate(log, policy, tuple(wanted.values()), level=level, seed=seed)


def compare(
    log: str,
    *,
    policy: Policies,
    columns: Columns_ = None,
    reading: Reading | None = None,
    large: Large | None = None,
    estimator: str | None = None,
    level: float = 0.95,
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
        The estimator that all policies are compared by; SNDR if not given, or SNIPS where only the probabilities of
        logged actions are known.
    level
        Level of the simultaneous intervals.
    gate
        Exit with 4 if one of the policies is shown to be worse than the logging policy.
    format
        Print a table, JSON or Markdown.
    out
        Write a report to this HTML file.
    """
    from cael import compare as call

    settings = reading or Reading()
    writable(out)
    chosen = None if estimator is None else estimators_of([estimator])[0]
    scanned = streamed(log, columns, settings, large or Large(), policy)
    table: LogTable | Facts
    if scanned is not None:
        found, table = streaming.compare(scanned, policy, chosen, level=level, seed=settings.seed)
    else:
        table = opened(log, columns, settings)
        found = call(table.log, policies_of(table, policy), chosen, level=level, seed=settings.seed)
    show(found, format, kind="comparison", extra={"reading": about_reading(table)}, after=lines_about(table))
    if out is not None:
        told = settings_of(table, ", ".join(policy))
        save_report(out, None, table, settings=told, seed=settings.seed, comparison=found)
    if found.verdict.level == "refuse":
        return UNTRUSTED
    return WORSE if gate and any(row.direction == "worse" for row in found) else OK
