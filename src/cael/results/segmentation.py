"""segments: values and lifts by a label of the rows or by time, shrunk towards each other, with joint intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

from cael.inference.intervals import Interval
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.results.evaluation import direction
from cael.results.sheet import Column, Note, Sheet, level_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@final
@dataclass(frozen=True)
class Segment:
    """One segment: rows, their worth after weighting (None: no weights), value, and lift over the logging policy.

    interval: of the lift, holding for all segments together. shrunk, shrunk_interval: the lift drawn towards the others
    as far as their differences look like noise; the best guess of it, with an interval for this segment alone.
    """

    label: str
    rows: int
    effective_rows: float | None
    value: float
    baseline: float
    lift: float
    stderr: float
    interval: Interval
    shrunk: float
    shrunk_interval: Interval

    @property
    def direction(self) -> str:
        """Whether the joint interval of the lift lies above 0 ("better"), below ("worse"), or holds it."""
        return direction(self.interval)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Segments:
    """The lift of a policy by segment; the values, weighted by their rows, add up to that of the whole log.

    rows: the segments, the largest lift first (in the order of time for windows). estimator: its name. level: of the
    intervals. factor: of the joint ones. differ: p-value that all segments have one lift (Cochran's Q). spread:
    standard deviation of the true lifts over the segments (Paule and Mandel). kind: "segment" or "window". thresholds:
    by which the sentence says whether they differ.
    """

    rows: tuple[Segment, ...]
    estimator: str
    level: float
    factor: float
    differ: float
    spread: float
    kind: str
    thresholds: Thresholds = DEFAULT

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.rows)

    def __getitem__(self, label: str) -> Segment:
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(f"no segment named {label!r}; there are: {', '.join(row.label for row in self.rows[:20])}")

    def sentence(self) -> str:
        """Whether the segments differ, in words."""
        told = f"The lifts of the {len(self.rows)} {self.kind}s"
        if self.differ < self.thresholds.segments_p_value:
            return f"{told} differ beyond chance (p = {self.differ:.2g}); their spread is {self.spread:.3g}."
        return f"{told} differ no more than chance explains (p = {self.differ:.2g})."

    def __repr__(self) -> str:
        told = "; ".join(f"{row.label}: {row.lift:+.4g} {row.interval}" for row in self.rows[:10])
        return f"Segments({self.sentence()} {told}{' ...' if len(self.rows) > 10 else ''})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        told = {name: value for name, value in asdict(self).items() if name not in ("rows", "thresholds")}
        return {
            **told,
            "sentence": self.sentence(),
            "rows": [{**asdict(r), "direction": r.direction} for r in self.rows],
        }

    def sheet(self) -> Sheet:
        """What the printed forms show."""
        columns = (
            Column(self.kind), Column("rows", "count"), Column("effective_rows", "count", "eff. n", wide=True),
            Column("value", "value", wide=True), Column("lift", "lift"),
            Column("interval", "lift interval", f"simultaneous {level_text(self.level)}"),
            Column("direction", head=""), Column("shrunk", "lift", "shrunk lift"),
            Column("shrunk_interval", "lift interval", level_text(self.level), wide=True),
        )  # fmt: skip
        rows = tuple(
            (
                row.label, row.rows, row.effective_rows, row.value, row.lift, row.interval,
                None if row.direction == "no difference shown" else row.direction, row.shrunk, row.shrunk_interval,
            )
            for row in self.rows
        )  # fmt: skip
        styles = tuple(row.direction for row in self.rows)
        return Sheet(f"{self.estimator}, by {self.kind}", columns, rows, (Note(self.sentence()),), (), styles)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.sheet()

    def _repr_html_(self) -> str:
        return self.sheet().html()
