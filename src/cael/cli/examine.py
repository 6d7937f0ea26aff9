"""Commands about the log itself: audit, plan."""

from __future__ import annotations

from dataclasses import replace

from cael.cli.decide import exit_code, measuring
from cael.cli.large import opened
from cael.cli.options import (
    Baseline,
    Columns_,
    Judging,
    Log,
    MaybeNumber,
    MaybeWhole,
    Number,
    Numbers,
    Printed,
    Reading,
    Whole,
)
from cael.cli.output import facts_in_memory, show


def audit(
    log: Log,
    *,
    columns: Columns_ = None,
    reading: Reading | None = None,
    judging: Judging | None = None,
    p_value: MaybeNumber = None,
    blocks: Whole = 10,
    format: Printed = "table",
) -> int:
    """Is this log what it says it is? Propensities against frequencies, drift, duplicates, support; no policy needed.

    Parameters
    ----------
    p_value
        Below it a deviation counts as beyond chance; by default the threshold p_value, 0.001.
    blocks
        Stretches of time that are compared.
    """
    from cael import audit as audited

    limits = (judging or Judging()).limits()
    table = opened(log, measuring(columns, None)[0], reading or Reading())
    facts = facts_in_memory(table)
    result = audited(table.log, p_value=p_value, blocks=blocks, names=facts.names, thresholds=limits)
    show(result, format, kind="audit", facts=facts)
    return exit_code(refused=result.status == "fail")


def plan(
    log: Log,
    *,
    policy: str = "target",
    lift: str = "1%",
    columns: Columns_ = None,
    reading: Reading | None = None,
    judging: Judging | None = None,
    baseline: Baseline = None,
    level: Number = 0.95,
    power: Number = 0.8,
    rows: MaybeWhole = None,
    exploration: Numbers = None,
    format: Printed = "table",
) -> int:
    """How many more rows, or how much exploration, does it take to detect this lift?

    Parameters
    ----------
    policy
        The policy in question, such as choice:COLUMN or table:FILE; the kinds are listed below.
    lift
        The lift over the baseline: 1% of the mean logged reward, or a number in units of the reward.
    level
        Level of the two-sided interval.
    power
        Probability of seeing the lift where it is there.
    rows
        Rows of the new log, for which the least exploration is looked for; as many as there are, if not given.
    exploration
        Shares of decisions that would be drawn uniformly.
    """
    from cael import plan as planned
    from cael.io.specs import named
    from cael.results.planning import EXPLORATION

    settings, limits = reading or Reading(), (judging or Judging()).limits()
    size, relative = lift_of(lift)
    table = opened(log, measuring(columns, None)[0], settings, [policy, *([baseline] if baseline else [])])
    name, spec = named(policy)
    over = None if baseline is None else (named(baseline)[0], table.policy(named(baseline)[1]))
    result = planned(
        table.log, table.policy(spec), baseline=over, lift=size, relative=relative, level=level, power=power, rows=rows,
        exploration=EXPLORATION if exploration is None else exploration, seed=settings.seed, thresholds=limits,
    )  # fmt: skip
    show(replace(result, policy=name), format, kind="plan", facts=facts_in_memory(table))
    return exit_code(refused=result.status == "fail")


def lift_of(text: str) -> tuple[float, bool]:
    """(0.01, True) of '1%', (0.5, False) of '0.5'."""
    from cael.cli.options import number
    from cael.errors import InputError

    try:
        size = float(number(text.removesuffix("%").strip()))
    except ValueError:
        raise InputError(
            f"lift must be a percentage such as 1%, or a number in units of the reward; got {text!r}."
        ) from None
    return (size / 100, True) if text.strip().endswith("%") else (size, False)
