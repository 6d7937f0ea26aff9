"""Intervals of a sheet on Matplotlib's axes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cael.errors import NeedsError

if TYPE_CHECKING:
    from cael.results.sheet import Sheet

COLOURS = {"better": "tab:green", "worse": "tab:red", "doubtful": "0.65"}
"""By the style of a row; others are blue."""
ROOM = 0.35
"""Inches of height for a row."""


def plotted(sheet: Sheet, interval: str, point: str, line: tuple[float, str], axes: Any = None) -> Any:
    """The intervals of a column with their points, one row below the other, and a dashed line with its name.

    axes: to draw on; new ones by default. The axes are returned.
    """
    axes = _new_axes(len(sheet.rows)) if axes is None else axes
    names, styles = sheet.column(sheet.columns[0].name), sheet.styles or ("",) * len(sheet.rows)
    for at, (pair, value, style) in enumerate(zip(sheet.column(interval), sheet.column(point), styles, strict=True)):
        colour = next((COLOURS[word] for word in style.split() if word in COLOURS), "tab:blue")
        axes.plot([pair.low, pair.high], [at, at], color=colour, linewidth=2, solid_capstyle="butt")
        axes.plot([value], [at], "o", color=colour)
    axes.axvline(line[0], color="black", linewidth=1, linestyle="--", label=line[1])
    axes.set_yticks(range(len(names)), [str(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(next(column.title for column in sheet.columns if column.name == interval))
    axes.legend(loc="best", frameon=False)
    return axes


def _new_axes(rows: int) -> Any:
    if find_spec("matplotlib") is None:
        raise NeedsError("plot() needs matplotlib, which is not installed: pip install 'cael[plots]'.")
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(7, 1 + ROOM * rows), layout="constrained")[1]
