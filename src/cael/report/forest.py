"""Forest plots: intervals under each other on a common axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.report.drawing import FAINT, GRID, INK, Drawn, Picture, drawn, ruled
from cael.report.hover import Spot, interval_text
from cael.results.pictures import axis


@final
@dataclass(frozen=True)
class Line:
    """A line of a picture of intervals. ring: a second value, marked by a ring."""

    label: str
    value: float
    low: float
    high: float
    colour: str
    ring: float | None = None
    bold: bool = False


@final
@dataclass(frozen=True)
class Base:
    """What the lines are compared with: a dashed line, and where it has an interval a band with its name above."""

    name: str
    value: float
    low: float
    high: float


def forest(
    name: str, caption: str, lines: Sequence[Line], unit: str, base: Base | None = None, step: float = 0.34
) -> Picture:
    """Intervals under each other. step: inches for each."""

    def draw(ax: Any, wide: bool) -> Drawn:
        if base is None:
            values = [line.value for line in lines]
            _draw_intervals(ax, lines, (min(values), max(values)))
        else:
            _draw_base(ax, base, _draw_intervals(ax, lines, (base.low, base.high)))
        rings = [(line.ring, len(lines) - 1 - at) for at, line in enumerate(lines) if line.ring is not None]
        if rings:
            ax.plot(*zip(*rings, strict=True), "o", markersize=9, markerfacecolor="none", markeredgecolor=INK, mew=0.9)
        ax.set_xlabel(unit)
        return 0.9 + step * len(lines), [
            Spot(interval_text(line.label, line.value, line.low, line.high), y=(at - 0.5, at + 0.5))
            for at, line in enumerate(reversed(lines))
        ]

    return drawn(name, caption, draw)


def _draw_base(ax: Any, base: Base, ends: tuple[float, float]) -> None:
    ax.axvline(base.value, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
    if base.low < base.high:
        ax.axvspan(base.low, base.high, color=GRID, alpha=0.5, linewidth=0, zorder=0)
        side, shift = ("right", -4) if base.value > sum(ends) / 2 else ("left", 4)
        ax.annotate(
            base.name, (base.value, 1), xycoords=("data", "axes fraction"), color=FAINT, fontsize=9,
            xytext=(shift, 2), textcoords="offset points", ha=side, va="bottom",
        )  # fmt: skip


def _draw_intervals(ax: Any, lines: Sequence[Line], shown: tuple[float, float]) -> tuple[float, float]:
    """On an axis that shows the narrower ones whole; wider ones end in an arrow. The ends of the axis."""
    left, right = axis([*((line.low, line.high) for line in lines), *([shown] if shown[0] < shown[1] else [])])
    left, right = min(left, shown[0]), max(right, shown[1])
    pad = 0.05 * (right - left)
    left, right = left - pad, right + pad
    y = np.arange(len(lines))[::-1]
    value, low, high = np.array([(line.value, line.low, line.high) for line in lines], dtype=float).T
    for colour in dict.fromkeys(line.colour for line in lines):  # one artist for each colour keeps the SVG small
        here = np.array([line.colour == colour for line in lines])
        ax.hlines(y[here], np.maximum(low, left)[here], np.minimum(high, right)[here], color=colour, linewidth=2.4)
        for at, x, shape, size in (
            (here & (value >= left) & (value <= right), value, "o", 6),
            (here & (low < left), np.full(len(y), left), "<", 7),
            (here & (high > right), np.full(len(y), right), ">", 7),
        ):
            if at.any():
                ax.plot(x[at], y[at], shape, color=colour, markersize=size, linestyle="none", clip_on=False)
    ax.set_yticks(range(len(lines)), [line.label for line in reversed(lines)])
    for at, line in enumerate(reversed(lines)):
        if line.bold:
            ax.get_yticklabels()[at].set_fontweight("bold")
    ax.set_ylim(-0.6, len(lines) - 0.4)
    ax.set_xlim(left, right)
    ax.tick_params(axis="y", length=0, pad=9)
    ax.spines["left"].set_visible(False)
    ruled(ax, "x")
    ax.locator_params(axis="x", nbins=5)
    return left, right
