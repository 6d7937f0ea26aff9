"""Results on standard output: a table for people, JSON for machines, Markdown for a ticket. Reports into a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

from cael.errors import InputError
from cael.io.roles import Columns

if TYPE_CHECKING:
    from cael.io import LogTable

Format: TypeAlias = Literal["table", "json", "markdown"]

SCHEMA = 1
"""Version of the JSON documents; it changes when a key goes away or changes its meaning, not when one is added."""


def show(
    result: Any,
    format: Format,
    *,
    kind: str,
    more: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    after: Sequence[str] = (),
) -> None:
    """Print a result, and those that belong to it.

    kind: of the JSON document. more: further results by name, or a mapping of them. extra: more keys of the JSON.
    after: lines that follow all that is printed for people.
    """
    parts = more or {}
    if format == "json":
        told = {"schema": f"cael.{kind}/{SCHEMA}", **(extra or {}), **result.to_dict(), **_plain(parts)}
        print(json.dumps(told, indent=2, allow_nan=False))
        return
    results = [("", result), *(each for name, part in parts.items() for each in _each(name, part))]
    if format == "markdown":
        from cael.results.sheet import escaped

        for heading, each in results:
            print(f"### {escaped(heading)}\n\n" if heading else "", each.sheet().markdown(), sep="", end="\n\n")
        for line in after:
            print(f"\n{escaped(line.strip())}")
        return
    from rich.console import Console

    console = Console()
    for heading, each in results:
        if heading:
            console.print(f"\n{heading}", style="bold", markup=False, highlight=False)
        console.print(each)
    for line in after:
        console.print(line, style="yellow" if line.startswith("!") else None, markup=False, highlight=False)


def _each(name: str, part: Any) -> list[tuple[str, Any]]:
    """(heading, result) pairs."""
    return [(f"{name}: {key}", each) for key, each in part.items()] if isinstance(part, Mapping) else [(name, part)]


def _plain(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {key: each.to_dict() for key, each in part.items()} if isinstance(part, Mapping) else part.to_dict()
        for name, part in parts.items()
    }


@final
@dataclass(frozen=True)
class Facts:
    """What was read: of a log in memory or streamed."""

    source: str
    rows_read: int
    rows: int
    dropped: tuple[tuple[str, int], ...]
    n_actions: int
    context_dim: int
    columns: Columns
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    actions: tuple[Any, ...]


def facts_of(table: LogTable | Facts) -> Facts:
    if isinstance(table, Facts):
        return table
    log = table.log
    return Facts(
        table.source, table.rows_read, len(log), table.dropped, log.n_actions, log.contexts.shape[1], table.columns,
        table.notes, table.warnings, table.actions,
    )  # fmt: skip


def about_reading(table: LogTable | Facts) -> dict[str, Any]:
    """What the JSON says about the log that was read."""
    facts = facts_of(table)
    columns = {name: value for name, value in vars(facts.columns).items() if value}
    return {
        "source": facts.source,
        "rows_read": facts.rows_read,
        "rows": facts.rows,
        "dropped": [{"reason": reason, "rows": rows} for reason, rows in facts.dropped],
        "n_actions": facts.n_actions,
        "context_dim": facts.context_dim,
        "columns": {name: list(value) if isinstance(value, tuple) else value for name, value in columns.items()},
        "notes": list(facts.notes),
        "warnings": list(facts.warnings),
    }


def lines_about(table: LogTable | Facts) -> list[str]:
    """What the printed forms say about the log that was read."""
    return [*(f"! {each}" for each in table.warnings), *(f"- {each}" for each in table.notes)]


def settings_of(table: LogTable | Facts, policies: str) -> dict[str, str]:
    """What a report says about how it was made."""
    facts = facts_of(table)
    return {
        "file": facts.source,
        "given as": policies,
        "rows": f"{facts.rows:,} of {facts.rows_read:,}",
        **{f"warning {at}": each for at, each in enumerate(facts.warnings, start=1)},
        **{f"note {at}": each for at, each in enumerate(facts.notes, start=1)},
    }


def writable(out: Path | None) -> None:
    """Refuse a report that cannot be written, before the work is done."""
    if out is None:
        return
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out writes a report to a file that ends in .html; got {str(out)!r}.")
    if not out.parent.is_dir():
        raise InputError(f"--out: there is no folder {out.parent}.")
    from cael.report.html import needed

    needed()


def save_report(out: Path, evaluation: Any, table: LogTable | Facts, **parts: Any) -> None:
    """Write the report."""
    from cael.report import save

    path = save(out, evaluation, title=f"Off-policy evaluation of {table.source}", **parts)
    print(f"wrote {path}", file=sys.stderr)
