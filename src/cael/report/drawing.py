"""Drawing: a function that draws on axes becomes an SVG that takes its colours from the page.

Matplotlib draws with stand-in colours that are replaced by CSS variables, so one picture serves light and dark. Each
picture exists in a wide and a narrow form, since a wide one shrunk to a telephone cannot be read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from cael.common.visible import visible
from cael.report.hover import Spot, overlaid

INK, FAINT, GRID, MAIN, SECOND, GOOD, BAD, GREY = (
    "#010101", "#020202", "#030303", "#040404", "#050505", "#060606", "#070707", "#080808",
)  # fmt: skip
VARIABLES = {
    INK: "--ink", FAINT: "--faint", GRID: "--line", MAIN: "--main", SECOND: "--second", GOOD: "--good", BAD: "--bad",
    GREY: "--grey",
}  # fmt: skip
Drawn: TypeAlias = "tuple[float, Sequence[Spot]]"
"""What drawing gives: the height in inches, and what the parts of the picture say under the pointer."""


@final
@dataclass(frozen=True)
class Picture:
    """One picture in two widths, with a sentence that says what is in it."""

    wide: str
    narrow: str
    caption: str


def drawn(name: str, caption: str, draw: Callable[[Any, bool], Drawn]) -> Picture:
    """A picture by a function that draws on the axes of a figure; it hears whether the picture is wide."""
    return Picture(_svg(f"{name}-wide", draw, True), _svg(f"{name}-narrow", draw, False), caption)


def _svg(name: str, draw: Callable[[Any, bool], Drawn], wide: bool) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings = {
        "svg.hashsalt": name, "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10,
        "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": FAINT, "xtick.color": FAINT,
        "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
        "axes.unicode_minus": True, "figure.dpi": 72, "path.simplify": True,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(9.6 if wide else 4.7, 3), layout="constrained")
        canvas = FigureCanvasSVG(figure)
        axes = figure.subplots()
        height, spots = draw(axes, wide)
        figure.set_figheight(height)
        for part in (figure, axes):
            part.patch.set_alpha(0)
        out = io.StringIO()
        canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    picture = tidy(out.getvalue(), name)
    return overlaid(picture, axes, spots) if wide else picture  # a telephone has no pointer


TIDYING = (
    (r"(?s)<metadata>.*?</metadata>\s*", ""),
    (r"(?s)<!--.*?-->\s*", ""),
    (r' id="[a-zA-Z0-9._]+?_\d+"', ""),
    (r' xmlns(:\w+)?="[^"]*"', ""),
    (r"xlink:href", "href"),
    (r'(<svg[^>]*?) width="[^"]*"', r"\1"),
    (r'(<svg[^>]*?) height="[^"]*"', r"\1"),
    (r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px"),
    (r"(-?\d+\.\d{2})\d+(?=[^<>]*>)", r"\1"),  # inside tags only: labels of axes keep their digits
    (r"\s*\n\s*", "\n"),
)
"""Patterns of what goes out of Matplotlib's SVG, and what comes in its place."""


def tidy(svg: str, name: str) -> str:
    """Only the <svg> element, without ids that other pictures repeat, sized by the page, coloured by CSS variables."""
    svg = svg[svg.index("<svg") :]
    for pattern, replacement in TIDYING:
        svg = re.sub(pattern, replacement, svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg.replace("<svg", f'<svg data-name="{name}" aria-hidden="true" focusable="false"', 1)


def clip(text: str, most: int = 26) -> str:
    text = visible(text)
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def ruled(ax: Any, which: str) -> None:
    ax.grid(axis=which, color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)


def legend(ax: Any, anchor: tuple[float, float], side: str) -> None:
    ax.legend(frameon=False, loc=f"{side} left", bbox_to_anchor=anchor, ncols=2, fontsize=9, borderpad=0)
