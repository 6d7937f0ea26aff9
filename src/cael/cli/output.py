"""Results on standard output: a table for people, JSON for machines, Markdown for a ticket."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from cael.io import LogTable

Format: TypeAlias = Literal["table", "json", "markdown"]


def show(result: Any, format: Format, *, extra: Mapping[str, Any] | None = None, after: Sequence[str] = ()) -> None:
    """Print a result. extra: more keys of the JSON. after: lines that follow the table."""
    if format == "json":
        print(json.dumps({**(extra or {}), **result.to_dict()}, indent=2, allow_nan=False))
        return
    if format == "markdown":
        from cael.cli.markdown import markdown

        print(markdown(result))
        for line in after:
            print(f"\n{line.strip()}")
        return
    from rich.console import Console

    console = Console()
    console.print(result)
    for line in after:
        console.print(line, style="yellow" if line.startswith("!") else None, markup=False, highlight=False)


def about_reading(table: LogTable) -> dict[str, Any]:
    """What the JSON says about the log that was read."""
    columns = {name: value for name, value in vars(table.columns).items() if value}
    return {
        "source": table.source,
        "rows_read": table.rows_read,
        "rows": len(table.log),
        "dropped": [{"reason": reason, "rows": rows} for reason, rows in table.dropped],
        "n_actions": table.log.n_actions,
        "context_dim": table.log.contexts.shape[1],
        "columns": {name: list(value) if isinstance(value, tuple) else value for name, value in columns.items()},
        "notes": list(table.notes),
        "warnings": list(table.warnings),
    }


def lines_about(table: LogTable) -> list[str]:
    """What the printed forms say about the log that was read."""
    return [*(f"! {each}" for each in table.warnings), *(f"- {each}" for each in table.notes)]
