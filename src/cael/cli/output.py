"""Results on standard output: a table for people, JSON for machines, Markdown for a ticket. Reports into a file."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from cael.cli.options import Format
from cael.common.visible import visible
from cael.errors import InputError
from cael.io.roles import Columns

if TYPE_CHECKING:
    from cael.engine.answer import Answer
    from cael.io import LogTable

SCHEMA = 1
"""Version of the JSON documents; it changes when a key goes away or changes its meaning, not when one is added."""


@final
@dataclass(frozen=True)
class Facts:
    """What was read."""

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

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The labels of the actions, where these are not just their numbers."""
        return None if self.actions == tuple(range(len(self.actions))) else self.actions

    def to_dict(self) -> dict[str, Any]:
        """What the JSON says about the log that was read."""
        columns = {name: value for name, value in vars(self.columns).items() if value}
        return {
            "source": self.source,
            "rows_read": self.rows_read,
            "rows": self.rows,
            "dropped": [{"reason": reason, "rows": rows} for reason, rows in self.dropped],
            "n_actions": self.n_actions,
            "context_dim": self.context_dim,
            "columns": {name: list(value) if isinstance(value, tuple) else value for name, value in columns.items()},
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    def lines(self) -> list[str]:
        """What the printed forms say about it."""
        return [*(f"! {warning}" for warning in self.warnings), *(f"- {note}" for note in self.notes)]

    def settings(self, policies: str) -> dict[str, str]:
        """What a report says about how it was made."""
        return {
            "file": self.source,
            "given as": policies,
            "rows": f"{self.rows:,} of {self.rows_read:,}",
            **{f"warning {at}": warning for at, warning in enumerate(self.warnings, start=1)},
            **{f"note {at}": note for at, note in enumerate(self.notes, start=1)},
        }


def facts_in_memory(table: LogTable) -> Facts:
    log = table.log
    return Facts(
        table.source, table.rows_read, len(log), table.dropped, log.n_actions, log.contexts.shape[1], table.columns,
        table.notes, table.warnings, table.actions,
    )  # fmt: skip


def facts_streamed(answer: Answer) -> Facts:
    log: Any = answer.log
    return Facts(
        log.source.name, answer.read, answer.n, answer.dropped, log.n_actions, len(log.columns.contexts or ()),
        log.columns, log.notes, answer.warnings, log.actions.labels,
    )  # fmt: skip


def show(
    result: Any,
    format: Format,
    *,
    kind: str,
    facts: Facts | None = None,
    parts: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    after: Sequence[str] = (),
) -> None:
    """Print a result, and those that belong to it.

    kind: of the JSON document. facts: about the log. parts: further results by name, or a mapping of them. extra: more
    keys of the JSON. after: lines that follow all that is printed for people.
    """
    parts = parts or {}
    if format == "json":
        reading = {} if facts is None else {"reading": facts.to_dict()}
        document = {"schema": f"cael.{kind}/{SCHEMA}", **reading, **(extra or {}), **result.to_dict(), **_plain(parts)}
        try:
            text = json.dumps(document, indent=2, allow_nan=False)
        except ValueError as error:
            raise InputError(f"a number of the result overflowed, so there is no JSON of it: {error}.") from None
        printed(lambda: print(text))
        return
    headed = {f"{name}: {key}": each for name, part in parts.items() for key, each in _named(part).items()}
    results = {"": result, **{heading.removesuffix(": "): each for heading, each in headed.items()}}
    lines = [*after, *(() if facts is None else facts.lines())]
    write = _print_markdown if format == "markdown" else _print_tables
    printed(lambda: write(results, lines))


def printed(write: Callable[[], None]) -> None:
    """Write to standard output; where nobody reads it any more, the command goes on to its report and its exit code."""
    if sys.stdout is None:  # it was closed before the command began
        sys.stdout = io.StringIO()
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = io.StringIO()  # what is still buffered has nowhere to go
    except OSError as error:
        sys.stdout = io.StringIO()
        raise InputError(f"standard output could not be written: {error.strerror or error}.") from None


def _named(part: Any) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else {"": part}


def _plain(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {key: each.to_dict() for key, each in part.items()} if isinstance(part, Mapping) else part.to_dict()
        for name, part in parts.items()
    }


def _print_markdown(results: Mapping[str, Any], lines: Sequence[str]) -> None:
    from cael.results.sheet import escaped

    for heading, result in results.items():
        print(f"### {escaped(heading)}\n\n" if heading else "", result.markdown(), sep="", end="\n\n")
    for line in lines:
        print(f"\n{escaped(line.strip())}")


def _print_tables(results: Mapping[str, Any], lines: Sequence[str]) -> None:
    screen = console()
    for heading, result in results.items():
        if heading:
            screen.print(f"\n{visible(heading)}", style="bold", markup=False, highlight=False)
        screen.print(result)
    for line in lines:
        screen.print(visible(line), style="yellow" if line.startswith("!") else None, markup=False, highlight=False)


def console() -> Any:
    from rich.console import Console

    class Piped(Console):
        """A console that says when nobody reads it any more, in place of ending the process with its own code."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped()


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


def command() -> dict[str, str]:
    """The line of the shell that makes the report again, without passwords; nothing where there was none."""
    if Path(sys.argv[0]).name not in ("cael", "-c", "__main__.py"):
        return {}
    return {"command": re.sub(r"(://[^:/@\s]+):[^@\s]+@", r"\1:***@", shlex.join(["cael", *sys.argv[1:]]))}


def save_report(out: Path, facts: Facts, policies: str, **parts: Any) -> None:
    """Write the report."""
    from cael.report import save

    title = f"Off-policy evaluation of {facts.source}"
    path = save(out, title=title, settings={**command(), **facts.settings(policies)}, **parts)
    print(f"wrote {visible(str(path))}", file=sys.stderr)
