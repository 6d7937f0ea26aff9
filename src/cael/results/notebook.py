"""A sheet in a notebook: a styled table with a picture of its intervals, in colours that suit light and dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cael.common.visible import visible
from cael.inference.intervals import Interval
from cael.results.pictures import axis

if TYPE_CHECKING:
    from cael.results.sheet import Note, Sheet

WIDTH, HEIGHT, EDGE = 180, 14, 6
"""Of a picture of an interval, and what stays free at its ends, in pixels."""
GREEN, RED, AMBER, GREY, BLUE = "#2e9e63", "#d1453b", "#b7800f", "#8a94a0", "#3b7ddd"
COLOURS = {
    "better": GREEN, "worse": RED, "doubtful": GREY, "ok": GREEN, "caution": AMBER, "refuse": RED, "pass": GREEN,
    "warn": AMBER, "fail": RED, "unknown": GREY, "headline": BLUE,
}  # fmt: skip
NUMBER = ' style="text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap"'
TEXT = ' style="text-align:left"'


def notebook(sheet: Sheet) -> str:
    """The sheet as HTML: sentences, the table with pictures, notes."""
    more = ""
    if sheet.more:
        more = f"<details><summary>{html.escape(sheet.counted)}</summary>{bullets(sheet.more)}</details>"
    lead = "".join(paragraph(note, bold=at == 0) for at, note in enumerate(sheet.lead))
    return f"<div>{lead}{paragraphs(sheet.summary)}{table(sheet)}{bullets(sheet.notes)}{more}</div>"


def table(sheet: Sheet) -> str:
    """The rows; numbers on the right, and beside the first column of intervals a picture of them."""
    drawn = pictured(sheet)
    sides = [TEXT if column.kind == "text" else NUMBER for column in sheet.columns]
    heads = [tag("th", html.escape(column.title), side) for column, side in zip(sheet.columns, sides, strict=True)]
    body = [
        [tag("td", html.escape(cell), side) for cell, side in zip(row, sides, strict=True)] for row in sheet.texts()
    ]
    if drawn is not None:
        at, pictures = drawn
        heads.insert(at + 1, tag("th", ""))
        body = [
            [*row[: at + 1], tag("td", picture), *row[at + 1 :]] for row, picture in zip(body, pictures, strict=True)
        ]
    top = tag("thead", tag("tr", "".join(heads))) if sheet.headed else ""
    rows = (tag("tr", "".join(row), style_of(style)) for row, style in zip(body, styles_of(sheet), strict=True))
    caption = tag("caption", html.escape(visible(sheet.title)), ' style="text-align:left;white-space:pre-line"')
    return tag("table", caption + top + tag("tbody", "".join(rows)))


def styles_of(sheet: Sheet) -> Sequence[str]:
    return sheet.styles or ("",) * len(sheet.rows)


def style_of(words: str) -> str:
    """The row of the headline is bold, a doubtful one is faint."""
    weight = "font-weight:bold;" if "headline" in words.split() else ""
    faint = "opacity:0.6;" if "doubtful" in words.split() else ""
    return f' style="{weight}{faint}"' if weight or faint else ""


def pictured(sheet: Sheet) -> tuple[int, list[str]] | None:
    """The place of the first column of intervals that have a point, and a picture of each; None without one."""
    for at, column in enumerate(sheet.columns):
        cells = [row[at] for row in sheet.rows]
        point = column.point or next((each.name for each in reversed(sheet.columns[:at]) if each.name in POINTS), None)
        if point is not None and cells and all(isinstance(cell, Interval) for cell in cells):
            return at, pictures_of(cells, sheet.column(point), styles_of(sheet))  # type: ignore[arg-type]
    return None


POINTS = ("lift", "value")
"""Columns whose value lies in the interval behind them."""


def pictures_of(intervals: Sequence[Interval], values: Sequence[float], styles: Sequence[str]) -> list[str]:
    """Intervals on a common axis, with a line at 0 where that lies on it."""
    left, right = axis([(interval.low, interval.high) for interval in intervals])
    left, right = min(left, 0.0) if left < right / 4 else left, max(right, 0.0) if right < 0 else right

    def place(x: float) -> float:
        return round(EDGE + (WIDTH - 2 * EDGE) * min(max((x - left) / (right - left), 0.0), 1.0), 1)

    zero = line(place(0.0), 0, place(0.0), HEIGHT, "currentColor", 1, 0.4) if left <= 0 <= right else ""
    drawn = []
    for interval, value, words in zip(intervals, values, styles, strict=True):
        colour = next((COLOURS[word] for word in words.split() if word in COLOURS), BLUE)
        bar = line(place(interval.low), HEIGHT / 2, place(interval.high), HEIGHT / 2, colour, 2, 1)
        dot = f'<circle cx="{place(value)}" cy="{HEIGHT / 2:g}" r="3.5" fill="{colour}"/>'
        drawn.append(f'<svg width="{WIDTH}" height="{HEIGHT}" aria-hidden="true">{zero}{bar}{dot}</svg>')
    return drawn


def line(x0: float, y0: float, x1: float, y1: float, colour: str, width: float, opacity: float) -> str:
    return (
        f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}" stroke="{colour}" stroke-width="{width:g}" '
        f'opacity="{opacity:g}"/>'
    )


def tag(name: str, inside: str, attributes: str = "") -> str:
    return f"<{name}{attributes}>{inside}</{name}>"


def paragraph(note: Note, *, bold: bool = False) -> str:
    """A sentence in the colour of its tone."""
    colour = f"color:{COLOURS[note.tone]};" if note.tone in COLOURS else ""
    weight = "font-weight:bold;font-size:110%;" if bold else ""
    style = f' style="margin:2px 0;{colour}{weight}"'
    return tag("p", html.escape(note.marked), style)


def paragraphs(notes: Iterable[Note]) -> str:
    """Sentences, one below the other."""
    return "".join(map(paragraph, notes))


def bullets(notes: Iterable[Note]) -> str:
    """Sentences as a list."""
    items = "".join(tag("li", html.escape(visible(note.sentence))) for note in notes)
    return tag("ul", items) if items else ""
