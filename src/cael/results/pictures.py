"""Intervals as text, on a common axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def axis(intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A common axis that shows the narrower half of the intervals whole; wider ones run off it."""
    widths = [high - low for low, high in intervals]
    limit = 4 * float(np.median(widths))
    kept = [pair for pair, width in zip(intervals, widths, strict=True) if width <= limit] or list(intervals)
    low, high = min(pair[0] for pair in kept), max(pair[1] for pair in kept)
    return (low, high) if high > low else (low - 1, high + 1)


def picture(low: float, value: float, high: float, left: float, right: float, width: int) -> str:
    """An interval as text on the axis [left, right]: ├───●───┤, with arrows where it runs off."""

    def place(x: float) -> int:
        return round((x - left) / (right - left) * (width - 1))

    cells = [" "] * width
    for at in range(max(0, place(low)), min(width - 1, place(high)) + 1):
        cells[at] = "─"
    for x, mark in ((low, "├"), (high, "┤"), (value, "●")):
        if 0 <= place(x) < width:
            cells[place(x)] = mark
    if place(low) < 0:
        cells[0] = "◀"
    if place(high) >= width:
        cells[-1] = "▶"
    return "".join(cells)
