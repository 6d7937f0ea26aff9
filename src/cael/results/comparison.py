"""compare: several policies against the logging policy, with intervals that hold together and a verdict on each."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.judging.verdict import Verdict
from cael.results.evaluation import direction, html_rows

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@final
@dataclass(frozen=True)
class Compared:
    """One policy of a comparison: its value, its lift over the logging policy with a simultaneous interval, and the
    verdict on whether its estimate can be trusted."""

    name: str
    estimate: Estimate
    lift: Estimate
    interval: Interval
    verdict: Verdict

    @property
    def direction(self) -> str:
        """Whether the interval of the lift lies above 0 ("better"), below ("worse"), or holds it."""
        return direction(self.interval)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Several policies against the logging policy, best first; the intervals hold all together at `level`."""

    rows: tuple[Compared, ...]
    baseline: Estimate
    level: float
    factor: float
    estimator: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the first policy, the one that looks best."""
        return self.rows[0].verdict

    def __iter__(self) -> Iterator[Compared]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Compared:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no policy named {name!r}; there are: {', '.join(row.name for row in self.rows)}")

    def __repr__(self) -> str:
        told = "; ".join(
            f"{row.name}: {row.lift.value:+.5g} {row.interval} {row.direction} ({row.verdict.level})"
            for row in self.rows
        )
        return f"Comparison(baseline {self.baseline.value:.5g}; {told})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "baseline": self.baseline.to_dict(self.level),
            "level": self.level,
            "simultaneous_factor": self.factor,
            "policies": [
                {
                    "name": row.name,
                    "estimate": row.estimate.to_dict(self.level),
                    "lift": row.lift.value,
                    "lift_stderr": row.lift.stderr,
                    "interval": row.interval.to_dict(),
                    "direction": row.direction,
                    "verdict": row.verdict.to_dict(),
                }
                for row in self.rows
            ],
        }

    def table(self) -> list[tuple[str, ...]]:
        """What the printed forms show: name, value, lift, interval of the lift, direction, verdict."""
        return [
            (
                row.name,
                f"{row.estimate.value:.5g}",
                f"{row.lift.value:+.5g}",
                f"[{row.interval.low:+.5g}, {row.interval.high:+.5g}]",
                row.direction,
                row.verdict.level,
            )
            for row in self.rows
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        title = f"logging policy: {self.baseline.value:.5g} ± {self.baseline.stderr:.2g}"
        table = Table(title=title, caption=f"intervals of the lift hold together at {self.level:.0%}")
        for name in ("policy", "value", "lift", "interval of the lift", "", "verdict"):
            table.add_column(name, no_wrap=True)
        for row, shown in zip(self.rows, self.table(), strict=True):
            table.add_row(*map(escape, shown), style=_style(row))
        yield table
        for doubt in self.doubts():
            yield Text(f"! {doubt}", style="yellow")

    def _repr_html_(self) -> str:
        head = ("policy", "value", "lift", f"interval, simultaneous {self.level:.0%}", "", "verdict")
        notes = "".join(f"<li>{html.escape(doubt)}</li>" for doubt in self.doubts())
        return f"<table>{html_rows(head, self.table())}</table><ul>{notes}</ul>"

    def doubts(self) -> list[str]:
        """The reasons of all verdicts, each once, with the policies that it concerns."""
        said: dict[str, list[str]] = {}
        for row in self.rows:
            for reason in row.verdict.reasons:
                said.setdefault(reason, []).append(row.name)
        return [f"{', '.join(names)}: {reason}" for reason, names in said.items()]


def _style(row: Compared) -> str | None:
    if row.verdict.level == "refuse":
        return "dim"
    return {"better": "green", "worse": "red"}.get(row.direction)
