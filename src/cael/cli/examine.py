"""Commands about the log itself: audit, plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from cael.cli.decide import OK, UNTRUSTED
from cael.cli.options import Columns_, Judging, Reading, names_of, opened, policies_of
from cael.cli.output import Format, about_reading, lines_about, show


def audit(
    log: str,
    *,
    columns: Columns_ = None,
    reading: Reading | None = None,
    judging: Judging | None = None,
    p_value: float | None = None,
    blocks: int = 10,
    format: Format = "table",
) -> int:
    """Is this log what it says it is? Propensities against frequencies, drift, duplicates, support; no policy needed.

    Parameters
    ----------
    log
        A file (Parquet, CSV, Arrow, .npz), a folder of them, or a pattern in quotes.
    p_value
        Below it a deviation counts as beyond chance; by default the threshold p_value, 0.001.
    blocks
        Stretches of time that are compared.
    format
        Print a table, JSON or Markdown.
    """
    from cael import audit as call

    limits = (judging or Judging()).limits()
    table = opened(log, columns, reading or Reading())
    found = call(table.log, p_value=p_value, blocks=blocks, names=names_of(table), thresholds=limits)
    show(found, format, kind="audit", extra={"reading": about_reading(table)}, after=lines_about(table))
    return UNTRUSTED if found.status == "fail" else OK


def plan(
    log: str,
    *,
    policy: str = "target",
    lift: str = "1%",
    columns: Columns_ = None,
    reading: Reading | None = None,
    judging: Judging | None = None,
    level: float = 0.95,
    power: float = 0.8,
    rows: int | None = None,
    exploration: Annotated[list[float] | None, Parameter(consume_multiple=True, negative=())] = None,
    format: Format = "table",
) -> int:
    """How many more rows, or how much exploration, does it take to tell this lift apart?

    Parameters
    ----------
    log
        A file (Parquet, CSV, Arrow, .npz), a folder of them, or a pattern in quotes.
    policy
        The policy in question, such as choice:COLUMN or table:FILE; the kinds are listed below.
    lift
        The lift over the logging policy: 1% of its value, or a number in units of the reward.
    level
        Level of the two-sided interval.
    power
        Probability of seeing the lift where it is there.
    rows
        Rows of the new log, for which the least exploration is looked for; as many as there are, if not given.
    exploration
        Shares of decisions that would be drawn uniformly.
    format
        Print a table, JSON or Markdown.
    """
    from cael import plan as call
    from cael.results.planning import EXPLORATION

    settings, limits = reading or Reading(), (judging or Judging()).limits()
    size, relative = lift_of(lift)
    table = opened(log, columns, settings)
    ((name, chosen),) = policies_of(table, [policy]).items()
    found = call(
        table.log, chosen, lift=size, relative=relative, level=level, power=power, rows=rows,
        exploration=EXPLORATION if exploration is None else exploration, seed=settings.seed,
        thresholds=limits,
    )  # fmt: skip
    found = replace(found, policy=name)
    show(found, format, kind="plan", extra={"reading": about_reading(table)}, after=lines_about(table))
    return UNTRUSTED if found.status == "fail" else OK


def lift_of(text: str) -> tuple[float, bool]:
    """(0.01, True) of '1%', (0.5, False) of '0.5'."""
    from cael.errors import InputError

    try:
        size = float(text.strip().removesuffix("%"))
    except ValueError:
        raise InputError(
            f"lift must be a percentage such as 1%, or a number in units of the reward; got {text!r}."
        ) from None
    return (size / 100, True) if text.strip().endswith("%") else (size, False)
