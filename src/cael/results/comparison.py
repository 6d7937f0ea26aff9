"""compare: several policies against the logging policy, with simultaneous intervals and a verdict on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import relative_lift
from cael.judging.verdict import Verdict
from cael.results.evaluation import direction
from cael.results.sheet import Column, Note, Sheet, level_text, text_of

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
    """Several policies against the logging policy, best first, with simultaneous intervals at `level`."""

    rows: tuple[Compared, ...]
    baseline: Estimate
    level: float
    factor: float
    estimator: str

    @property
    def verdict(self) -> Verdict:
        """The verdict on the first policy, the one that looks best."""
        return self.rows[0].verdict

    @property
    def relative_lift(self) -> float | None:
        """The lift of the first policy as a share of the logging policy's value; None where that is 0."""
        return relative_lift(self.rows[0].lift, self.baseline)

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
            "estimator": self.estimator,
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

    def sheet(self) -> Sheet:
        """What the printed forms show."""
        base = text_of("value", self.baseline.value), text_of("error", self.baseline.stderr)
        columns = (
            Column("policy"), Column("value", "value"), Column("lift", "lift"),
            Column("interval", "lift interval", f"simultaneous {level_text(self.level)} interval"),
            Column("direction", head=""), Column("verdict"),
        )  # fmt: skip
        rows = tuple(
            (row.name, row.estimate.value, row.lift.value, row.interval, row.direction, row.verdict.level)
            for row in self.rows
        )
        notes = tuple(Note(doubt, "warn") for doubt in self.doubts())
        title = f"by {self.estimator}; logging policy: {' ± '.join(base)}"
        return Sheet(title, columns, rows, (), notes, tuple(map(_style, self.rows)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.sheet()

    def _repr_html_(self) -> str:
        return self.sheet().html()

    def doubts(self) -> list[str]:
        """The reasons of all verdicts, each once, with the policies that it concerns."""
        said: dict[str, list[str]] = {}
        for row in self.rows:
            for reason in row.verdict.reasons:
                said.setdefault(reason, []).append(row.name)
        return [f"{', '.join(names)}: {reason}" for reason, names in said.items()]


def _style(row: Compared) -> str:
    return "doubtful" if row.verdict.level == "refuse" else row.direction
