"""The commands about a better policy: learn, watch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cael.cli.decide import measuring
from cael.cli.large import Large, Opened, open_large
from cael.cli.large import opened as read_log
from cael.cli.options import (
    Columns_,
    Flag,
    Guardrails,
    Judging,
    Log,
    MaybeNumber,
    MaybeWhole,
    Number,
    Out,
    Printed,
    Reading,
    Whole,
)
from cael.cli.output import Facts, facts_in_memory, save_report, show, writable
from cael.errors import InputError, NeedsError

if TYPE_CHECKING:
    from cael.learning.advice import Learned
    from cael.results.metric import Metric

OK, KEPT = 0, 4
"""Exit codes: KEPT with --gate, where the decision is to keep the old policy."""


@Parameter(name="*", group="Limits")
@dataclass(frozen=True)
class Constraints:
    """What the policy must keep to."""

    min_lift: Number = 0.0
    "The lower bound of the lift must exceed this, in units of the reward."
    max_changed: Number = 1.0
    "At most this share of the decisions may differ from those of the old policy."
    explore: Number = 0.0
    "This share of the decisions is drawn uniformly, so that the next log can be evaluated, too."
    max_actions: MaybeWhole = None
    "At most so many actions are advised."
    single: Flag = False
    "Only policies that name one action for a context, which --code can write."


@Parameter(name="*", group="Files")
@dataclass(frozen=True)
class Files:
    """Where the policy goes."""

    save: Path | None = None
    "Write the policy to this JSON file, which --policy learned:FILE reads."
    decisions: Path | None = None
    "Write a table of its decisions on this log to a CSV or Parquet file."
    watch: Path | None = None
    "Write a JSON file with which cael watch asks again as new rows come."
    code: Path | None = None
    "Write a tree or linear scores as code to a .py or .sql file."


def learn(
    log: Log,
    *,
    columns: Columns_ = None,
    reading: Reading | None = None,
    large: Large | None = None,
    judging: Judging | None = None,
    candidates: Annotated[Sequence[str], Parameter(consume_multiple=True, negative=())] = (),
    depth: Whole = 2,
    limits: Constraints | None = None,
    guardrail: Guardrails = None,
    level: Number = 0.95,
    certify: Number = 0.4,
    budget: MaybeNumber = None,
    files: Files | None = None,
    gate: Flag = False,
    format: Printed = "table",
    out: Out = None,
) -> int:
    """Learn a better policy from this log: ship it, or keep the old one.

    A part of the rows learns and chooses; the others certify the choice. "Ship it" is said where the lower bound of the
    lift on these is above 0.

    Parameters
    ----------
    candidates
        Kinds of policies to try: best_arm, linear, ridge, cael, clusters, likelihood, tree; all of them if not given.
    depth
        Questions of a tree, one below the other.
    level
        Confidence of the lower bound.
    certify
        Share of the rows that is kept for the certificate.
    budget
        Seconds of training at most.
    gate
        Exit with 4 if no policy is shipped.
    """
    from cael.learning.learner import DEFAULT
    from cael.learning.learner import learn as learned_from

    columns, metrics = measuring(columns, guardrail)
    settings, must, where = reading or Reading(), limits or Constraints(), files or Files()
    writable(out)
    check_files(where, log)
    opened = open_large(log, columns, settings, large or Large(), [])
    if where.decisions is not None and opened.table is None:
        raise NeedsError("--decisions needs a log that fits into memory. Use --save, or --code, for larger ones.")
    learned = learned_from(
        opened.rows, candidates=tuple(candidates) or DEFAULT, depth=depth, min_lift=must.min_lift,
        max_changed=must.max_changed, explore=must.explore, max_actions=must.max_actions, single=must.single,
        guardrails=bounds_of(metrics), level=level, certify=certify, budget=budget, seed=settings.seed,
        thresholds=(judging or Judging()).limits(),
    )  # fmt: skip
    facts, code = facts_of(opened), code_of(where, learned)
    show(learned, format, kind="learned", facts=facts, after=learned.explain().splitlines())
    write_files(where, learned, opened, code)
    if out is not None and facts is not None:
        save_report(
            out, facts, learned.policy.kind, evaluation=learned.evaluation, seed=settings.seed, learned=learned,
            plan=learned.plan,
        )  # fmt: skip
    return KEPT if gate and not learned.ships else OK


def watch(
    log: Log,
    state: Path,
    *,
    columns: Columns_ = None,
    reading: Reading | None = None,
    gate: Flag = False,
    format: Printed = "table",
) -> int:
    """Ask again whether a learned policy is better, with rows that came since the last look.

    The bound holds for all looks together, so that one may look as often as one likes, and ship as soon as it is above
    what was asked for.

    Parameters
    ----------
    state
        The JSON file that cael learn --watch wrote; the rows are added to it.
    gate
        Exit with 4 if the policy is not to be shipped yet.
    """
    from cael.common.whole import only_writer
    from cael.learning.watching import read_watch

    table = read_log(log, columns, reading or Reading())
    if not state.is_file():
        raise InputError(f"there is no file {state} with a watch: cael learn --watch writes one.")
    with only_writer(state.parent):  # or the rows of one of two commands would be lost
        grown = read_watch(state, table.log).more(table.log)
        grown.save(state)
    show(grown, format, kind="watch", facts=facts_in_memory(table))
    return KEPT if gate and not grown.ships else OK


def bounds_of(metrics: Sequence[Metric]) -> list[Metric]:
    """The guardrails among the metrics; what is learned by is the reward alone."""
    goals = [metric for metric in metrics if not metric.guardrail]
    if len(goals) > 1 or any(metric != type(metric)(metric.column) for metric in goals):
        raise InputError(
            "learn maximises one reward, a column of the log: name it with --reward, and bounds on other metrics with "
            f"--guardrail. Got the metrics {', '.join(metric.label for metric in goals)}."
        )
    return [metric for metric in metrics if metric.guardrail]


def facts_of(opened: Opened) -> Facts:
    """What was read, of a log in memory or in files."""
    if opened.table is not None:
        return facts_in_memory(opened.table)
    log: Any = opened.log
    rows = log.rows or 0
    return Facts(
        log.source.name, rows, rows, (), log.n_actions, len(log.columns.contexts or ()), log.columns, log.notes, (),
        log.actions.labels,
    )  # fmt: skip


def check_files(files: Files, log: str) -> None:
    """Refuse files that cannot be written, and the log itself, before the work is done."""
    kinds = {"save": (".json",), "watch": (".json",), "decisions": (".csv", ".parquet"), "code": (".py", ".sql")}
    for name, endings in kinds.items():
        path = getattr(files, name)
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            raise InputError(f"--{name} writes to a file that ends in {' or '.join(endings)}; got {str(path)!r}.")
        if not path.parent.is_dir():
            raise InputError(f"--{name}: there is no folder {path.parent}.")
        if path.is_dir():
            raise InputError(f"--{name}: {path} is a folder; name a file.")
        if is_of_log(path, Path(log)):
            raise InputError(f"--{name}: {path} is, or would be, a file of the log. Name one elsewhere.")


def is_of_log(path: Path, log: Path) -> bool:
    """Whether this is the log's file, or a table in its folder."""
    same = path.exists() and log.exists() and path.samefile(log)
    return same or (path.suffix.lower() in (".csv", ".parquet") and log.resolve() in path.resolve().parents)


def code_of(files: Files, learned: Learned) -> str:
    """The policy as code, where that is asked for."""
    if files.code is None:
        return ""
    return learned.to_sql() if files.code.suffix.lower() == ".sql" else learned.to_python()


def write_files(files: Files, learned: Learned, opened: Opened, code: str) -> None:
    """Write what was asked for, and say so."""
    from cael.common.visible import visible
    from cael.common.whole import write_whole
    from cael.learning.decisions import write_decisions

    if files.save is not None:
        learned.save(files.save)
    if files.watch is not None:
        learned.watch().save(files.watch)
    if files.code is not None:
        write_whole(files.code, code)
    if files.decisions is not None and opened.table is not None:
        write_decisions(learned.policy, opened.table.log, files.decisions)
    for path in filter(None, (files.save, files.watch, files.code, files.decisions)):
        print(f"wrote {visible(str(path))}", file=sys.stderr)
