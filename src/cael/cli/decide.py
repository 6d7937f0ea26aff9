"""Commands that answer a question about a log: evaluate, compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from cael.cli.options import Columns_, Policies, Reading, estimators_of, opened, policies_of
from cael.cli.output import Format, about_reading, lines_about, show

EVALUATION, COMPARISON = "cael.evaluation/1", "cael.comparison/1"
"""Names of the JSON documents; the number changes when a key changes its meaning or goes away."""


def evaluate(
    log: str,
    *,
    policy: str = "target",
    columns: Columns_ = None,
    reading: Reading | None = None,
    estimators: Annotated[Sequence[str], Parameter(consume_multiple=True, negative=())] = (),
    level: float = 0.95,
    format: Format = "table",
) -> int:
    """What would a policy have earned on this log? The whole panel, side by side.

    Parameters
    ----------
    log
        A file (Parquet, CSV, Arrow, .npz), a folder of them, or a pattern in quotes.
    policy
        The policy to evaluate, such as choice:COLUMN or table:FILE; the kinds are in the documentation.
    estimators
        Estimators to add to the panel; "all" adds every one.
    level
        Level of the intervals.
    format
        Print a table, JSON or Markdown.
    """
    from cael import evaluate as call

    table = opened(log, columns, reading or Reading())
    named = policies_of(table, [policy])
    ((name, chosen),) = named.items()
    found = call(table.log, chosen, estimators_of(estimators), level=level)
    extra = {"schema": EVALUATION, "name": name, "reading": about_reading(table)}
    show(found, format, extra=extra, after=lines_about(table))
    return 0


def compare(
    log: str,
    *,
    policy: Policies,
    columns: Columns_ = None,
    reading: Reading | None = None,
    estimator: str = "SNDR",
    level: float = 0.95,
    format: Format = "table",
) -> int:
    """Which of these policies beats the logging policy? Paired contrasts, with intervals that hold all together.

    Parameters
    ----------
    log
        A file (Parquet, CSV, Arrow, .npz), a folder of them, or a pattern in quotes.
    policy
        A policy, such as choice:COLUMN or table:FILE, with a name before it if you like: new=choice:COLUMN. Repeat it.
    estimator
        The estimator that all policies are compared by.
    level
        Level at which the intervals hold together.
    format
        Print a table, JSON or Markdown.
    """
    from cael import compare as call

    settings = reading or Reading()
    table = opened(log, columns, settings)
    (chosen,) = estimators_of([estimator])
    found = call(table.log, policies_of(table, policy), chosen, level=level, seed=settings.seed)
    show(found, format, extra={"schema": COMPARISON, "reading": about_reading(table)}, after=lines_about(table))
    return 0
