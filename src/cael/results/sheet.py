"""Sheet: what a result shows, as typed cells. Terminal, notebook, Markdown and report are renderers of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, final

from cael.common.visible import visible
from cael.inference.intervals import Interval
from cael.results.frames import frame_of
from cael.results.notebook import notebook
from cael.results.pictures import axis, picture

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

Row = TypeVar("Row")
Cell: TypeAlias = str | float | Interval | tuple[float, float] | None
Printed: TypeAlias = tuple[str, Any, list[str]]
"""A column in a terminal: its head, its side, and its cells."""
PICTURE, SMALL_PICTURE, NAME, GAP = 25, 12, 12, 3
"""Characters of a picture where there is room and where there is little, of the name of a row that stays, and between
columns."""
MARKS = {"pass": "✓", "unknown": "·", "warn": "!", "fail": "✗"}
COLOURS = {
    "pass": "green", "unknown": "dim", "warn": "yellow", "fail": "red", "ok": "green", "caution": "yellow",
    "refuse": "red", "better": "green", "worse": "red", "doubtful": "dim",
}  # fmt: skip


def number(value: float, sign: str = "") -> str:
    """Five digits, without an exponent where a large number can do without."""
    return f"{value:{sign},.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:{sign}.5g}"


def signed(value: float) -> str:
    return number(value, "+")


FORMATS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "value": number,
    "lift": signed,
    "error": lambda value: f"{value:.2g}",
    "rough": lambda value: f"{value:.3g}",
    "rough difference": lambda value: f"{value:+.2g}",
    "weight": lambda value: f"{value:.4g}",
    "interval": lambda pair: f"[{number(pair.low)}, {number(pair.high)}]",
    "lift interval": lambda pair: f"[{signed(pair.low)}, {signed(pair.high)}]",
    "count": lambda value: f"{value:,.0f}",
    "share": lambda value: f"{value:.1%}",
    "percent": lambda value: f"{value:.0%}",
    "percent lift": lambda value: f"({value:+.1%})",
    "short": lambda value: f"{value:.4g}",
    "short lift": lambda value: f"{value:+.4g}",
    "short interval": lambda pair: f"[{pair.low:+.4g}, {pair.high:+.4g}]",
    "percent and error": lambda pair: f"{pair[0]:.0%} ± {pair[1]:.0%}",
}
"""How a kind of cell is written; everything that is printed for people goes through here."""


def level_text(level: float) -> str:
    """95% of 0.95, and 99.9% of 0.999."""
    return f"{100 * level:.4g}%"


def text_of(kind: str, value: Cell) -> str:
    """A cell in words: nothing for what is not known, and a word in place of a number as it is."""
    if isinstance(value, str):
        return " ".join(visible(value).splitlines())
    return "" if value is None else FORMATS[kind](value)


@final
@dataclass(frozen=True)
class Column:
    """A column. head: printed above it, its name if None. wide: shown only where there is room. spare: goes before a
    number is cut. point: the column whose value is marked in pictures of the intervals of this one."""

    name: str
    kind: str = "text"
    head: str | None = None
    wide: bool = False
    spare: bool = False
    point: str | None = None

    @property
    def title(self) -> str:
        return self.name if self.head is None else self.head


@final
@dataclass(frozen=True)
class Note:
    """A sentence. tone: "pass", "unknown", "warn", "fail", the level of a verdict, or "" for none."""

    sentence: str
    tone: str = ""

    @property
    def marked(self) -> str:
        sentence = visible(self.sentence)
        return f"{MARKS[self.tone]} {sentence}" if self.tone in MARKS else sentence

    def rich(self, *, first: bool = False) -> Text:
        """For a terminal. first: in bold."""
        from rich.text import Text

        return Text(self.marked, style=f"{'bold ' if first else ''}{COLOURS.get(self.tone, '')}".strip())


@final
@dataclass(frozen=True)
class Sheet:
    """A table of typed cells with its title, the sentences that sum it up, and notes.

    styles: a word for each row, such as "better" or "doubtful" (none: empty). lead: sentences above the table. more:
    notes that a terminal only counts.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    summary: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()
    styles: tuple[str, ...] = ()
    lead: tuple[Note, ...] = ()
    more: tuple[Note, ...] = ()

    @property
    def headed(self) -> bool:
        """Whether one of the columns has a head."""
        return any(column.title for column in self.columns)

    def column(self, name: str) -> list[Any]:
        """The cells of a column."""
        at = [column.name for column in self.columns].index(name)
        return [row[at] for row in self.rows]

    def texts(self) -> list[tuple[str, ...]]:
        """The rows in words."""
        kinds = [column.kind for column in self.columns]
        return [tuple(map(text_of, kinds, row)) for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        """The rows as plain types by the names of the columns, for JSON or a data frame."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in self.rows]

    def html(self) -> str:
        """For a notebook."""
        return notebook(self)

    def markdown(self) -> str:
        """For a ticket. Text from the data is escaped: no cell can break out of its table."""
        heads = [column.title for column in self.columns]
        lines = [_line(heads), f"|{'---|' * len(heads)}", *map(_line, self.texts())]
        lead, summary = ([escaped(note.sentence) for note in notes] for notes in (self.lead, self.summary))
        parts = [*lead, f"**{escaped(self.title)}**", *summary, "\n".join(lines)]
        notes = "\n".join(f"- {escaped(note.sentence)}" for note in (*self.notes, *self.more))
        return "\n\n".join([*parts, notes]).rstrip()

    @property
    def counted(self) -> str:
        """How many notes there are that a terminal leaves out."""
        return f"{len(self.more)} more note{'s' if len(self.more) > 1 else ''} on the other estimators"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from (note.rich(first=at == 0) for at, note in enumerate(self.lead))
        if self.lead:
            yield ""
        yield self._table(options.max_width)
        yield from (note.rich() for note in (*self.summary, *self.notes))
        if self.more:
            yield Note(f"{self.counted}: --format markdown, --out report.html or .doubts() show them.").rich()

    def _table(self, width: int) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        cells = self._printed(width)
        title = Text(visible(self.title), style="table.title")
        table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1), show_header=self.headed)
        least = self._least(cells)
        name = max(NAME, width - GAP - 1 - sum(size + GAP for size in least[1:]))
        for at, (head, justify, _) in enumerate(cells):
            table.add_column(
                Text(head), justify=justify, no_wrap=at == 0 or head not in self._worded, overflow="ellipsis",
                min_width=None if at == 0 else least[at], max_width=name if at == 0 else None,
            )  # fmt: skip
        for at in range(len(self.rows)):
            table.add_row(*(Text(texts[at]) for _, _, texts in cells), style=self._colour(at))
        return table

    def _colour(self, at: int) -> str | None:
        words = self.styles[at].split() if self.styles else []
        return next((COLOURS[word] for word in words if word in COLOURS), None)

    def _printed(self, width: int) -> list[Printed]:
        """(head, side, texts) of the columns that a terminal has room for, with the pictures of their intervals."""
        whole = self._columns(PICTURE, wide=True)
        if sum(map(_room, whole)) <= width:
            return whole
        # Names may be cut to make room for pictures; numbers may not, and then the pictures go. What can be spared goes
        # before a name is cut.
        spare = any(column.spare for column in self.columns)
        for size in (SMALL_PICTURE, 0):
            columns = self._columns(size)
            name = _room(columns[0]) if spare else min(NAME + GAP, _room(columns[0]))
            if name + sum(map(_room, columns[1:])) <= width:
                return columns
        bare = self._columns(0, spare=False)
        if NAME + GAP + sum(size + GAP for size in self._least(bare)[1:]) < width:
            return bare
        return [column for at, column in enumerate(bare) if at == 0 or column[0] not in self._worded]

    @property
    def _worded(self) -> set[str]:
        """Heads of columns of words."""
        return {column.title for column in self.columns if column.kind == "text"}

    def _least(self, columns: Sequence[Printed]) -> list[int]:
        """Characters that each column needs: words may go on in the next line, numbers may not."""
        parts = [
            " ".join((head, *texts)).split() if at > 0 and head in self._worded else (head, *texts)
            for at, (head, _, texts) in enumerate(columns)
        ]
        return [max(map(len, texts), default=1) for texts in parts]

    def _columns(self, size: int, *, wide: bool = False, spare: bool = True) -> list[Printed]:
        drawn: list[Printed] = []
        for at, column in enumerate(self.columns):
            if (wide or not column.wide) and (spare or not column.spare):
                side = "left" if column.kind == "text" or column.point else "right"
                drawn.append((column.title, side, [row[at] for row in self.texts()]))
            if column.point is not None and size:
                drawn.append(("", "left", self._pictures(column.name, column.point, size)))
        return drawn

    def _pictures(self, name: str, point: str, size: int) -> list[str]:
        intervals = self.column(name)
        left, right = axis([(interval.low, interval.high) for interval in intervals])
        pairs = zip(intervals, self.column(point), strict=True)
        return [picture(interval.low, value, interval.high, left, right, size) for interval, value in pairs]


def _room(column: Printed) -> int:
    """Characters that a column takes, with what is between it and the next."""
    head, _, texts = column
    return max(map(len, (head, *texts))) + GAP


class Shown(ABC):
    """A result that prints as its sheet: in a terminal, and in a notebook."""

    @abstractmethod
    def sheet(self) -> Sheet:
        """What the printed forms show."""

    def sheets(self) -> tuple[Sheet, ...]:
        """All that the printed forms show."""
        return (self.sheet(),)

    def markdown(self) -> str:
        """For a ticket."""
        return "\n\n".join(sheet.markdown() for sheet in self.sheets())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for at, sheet in enumerate(self.sheets()):
            if at:
                yield ""
            yield sheet

    def _repr_html_(self) -> str:
        return "".join(sheet.html() for sheet in self.sheets())

    def to_frame(self, library: str | None = None) -> Any:
        """The rows that are printed, in full precision, as a data frame of pandas, or of polars where that is missing.

        An interval is two columns, its ends. library: "pandas" or "polars" to choose.
        """
        return frame_of(self.sheet(), library)


def named(kind: str, rows: Mapping[str, Row], name: str, most: int | None = None) -> Row:
    """The row of this name; an error that lists at most so many of those that there are."""
    if name in rows:
        return rows[name]
    raise KeyError(f"no {kind} named {name!r}; there are: {', '.join([*rows][:most])}")


def by_sentence(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Of (name, sentence) pairs every sentence once, with the names that it concerns."""
    names: dict[str, list[str]] = {}
    for name, sentence in pairs:
        names.setdefault(sentence, []).append(name)
    return [f"{', '.join(concerned)}: {sentence}" for sentence, concerned in names.items()]


def escaped(text: str) -> str:
    """Text inside Markdown, on one line."""
    text = visible(text)
    for mark in ("\\", "|", "`", "*", "_", "[", "]", "<", ">", "#", "~", "&"):
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def _plain(cell: Cell) -> Any:
    return cell.to_dict() if isinstance(cell, Interval) else list(cell) if isinstance(cell, tuple) else cell
