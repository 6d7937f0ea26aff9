"""Pictures of a report: pure functions of results to SVG text that takes its colours from the page.

Matplotlib draws with stand-in colours that are replaced by CSS variables, so one picture serves light and dark. Each
picture exists in a wide and a narrow form, since a wide one shrunk to a telephone cannot be read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.inference.overlap import Overlap
from cael.results.comparison import Comparison
from cael.results.evaluation import Evaluation
from cael.results.pictures import axis
from cael.results.segmentation import Segment, Segments

INK, FAINT, GRID, MAIN, SECOND, GOOD, BAD, GREY = (
    "#010101", "#020202", "#030303", "#040404", "#050505", "#060606", "#070707", "#080808",
)  # fmt: skip
VARIABLES = {
    INK: "--ink", FAINT: "--faint", GRID: "--line", MAIN: "--main", SECOND: "--second", GOOD: "--good", BAD: "--bad",
    GREY: "--grey",
}  # fmt: skip
MOST_BARS = 20


@final
@dataclass(frozen=True)
class Picture:
    """One picture in two widths, with a sentence that says what is in it."""

    wide: str
    narrow: str
    told: str


def drawn(name: str, told: str, draw: Callable[[Any, bool], float]) -> Picture:
    """A picture by a function that draws on a figure and gives its height in inches; told whether it is wide."""
    return Picture(_svg(f"{name}-wide", draw, True), _svg(f"{name}-narrow", draw, False), told)


def _svg(name: str, draw: Callable[[Any, bool], float], wide: bool) -> str:
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
        figure.set_figheight(draw(figure, wide))
        figure.patch.set_alpha(0)
        for each in figure.axes:
            each.patch.set_alpha(0)
        out = io.StringIO()
        canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return tidy(out.getvalue(), name)


def tidy(svg: str, name: str) -> str:
    """Only the <svg> element, without ids that other pictures repeat, sized by the page, coloured by CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[a-zA-Z0-9._]+?_\d+"', "", svg)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r"xlink:href", "href", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    svg = re.sub(r"(-?\d+\.\d{2})\d+", r"\1", svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg.replace("<svg", f'<svg data-name="{name}" aria-hidden="true" focusable="false"', 1)


def intervals(evaluation: Evaluation) -> Picture:
    """All estimators with their intervals, and the logging policy's value as a line."""
    sheet = evaluation.sheet()
    shown = list(zip(*map(sheet.column, ("estimator", "value", "interval")), sheet.styles, strict=True))
    base, inside = next((value, interval) for name, value, interval, _ in shown if name == "LoggedMean")
    shown = [row for row in shown if row[0] != "LoggedMean"]
    names = [_clip(name, 34) for name, *_ in shown]
    rows = [(value, interval.low, interval.high) for _, value, interval, _ in shown]
    marked = next((at for at, row in enumerate(shown) if "headline" in row[-1]), -1)
    colours = [GREY if "doubtful" in row[-1] else MAIN if at == marked else SECOND for at, row in enumerate(shown)]
    told = (
        f"Values of {len(names)} estimators with {evaluation.level:.0%} intervals; the line is the old policy's value. "
        "What cannot be relied on is grey."
    )

    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        ax.axvspan(inside.low, inside.high, color=GRID, alpha=0.5, linewidth=0)
        ax.axvline(base, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
        limits = _forest(ax, names, rows, colours, [(inside.low, inside.high)], bold=marked)
        place = "right" if base > (limits[0] + limits[1]) / 2 else "left"
        ax.annotate(
            "old policy", (base, 1), xycoords=("data", "axes fraction"), color=FAINT, fontsize=9,
            xytext=(-4 if place == "right" else 4, 2), textcoords="offset points", ha=place, va="bottom",
        )  # fmt: skip
        ax.set_xlabel("value per row")
        return 0.9 + 0.34 * len(names)

    return drawn("intervals", told, draw)


def lifts(comparison: Comparison) -> Picture:
    """The lifts of several policies with joint intervals; green above 0, red below, grey where the verdict refuses."""
    shown = comparison.rows[:MOST_BARS]
    rows = [(row.lift.value, row.interval.low, row.interval.high) for row in shown]
    colours = [_colour(row.direction, row.verdict.level) for row in shown]
    told = f"Lifts of {len(shown)} policies over the old policy, with simultaneous intervals."
    return _lift_picture("lifts", [_clip(row.name) for row in shown], rows, colours, told)


def segment_lifts(found: Segments, shown: Sequence[Segment], name: str) -> Picture:
    """The lifts of those of the segments that are shown, with their joint intervals, and their shrunk lifts."""
    rows = [(row.lift, row.interval.low, row.interval.high) for row in shown]
    colours = [_colour(row.direction, "ok") for row in shown]
    count = str(len(shown)) if len(shown) == len(found.rows) else f"{len(shown)} of {len(found.rows)}"
    told = f"Lifts of {count} {found.kind}s with simultaneous intervals; the rings are the shrunk lifts."
    return _lift_picture(name, [_clip(row.label) for row in shown], rows, colours, told, [r.shrunk for r in shown])


def _clip(text: str, most: int = 26) -> str:
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def _colour(direction: str, level: str) -> str:
    return GREY if level == "refuse" else {"better": GOOD, "worse": BAD}.get(direction, SECOND)


def _lift_picture(
    name: str, labels: list[str], rows: list[tuple[float, float, float]], colours: list[str], told: str,
    rings: Sequence[float] = (),
) -> Picture:  # fmt: skip
    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        ax.axvline(0, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
        _forest(ax, labels, rows, colours, [(0.0, 0.0)])
        for at, value in enumerate(rings):
            ax.plot(
                value, len(labels) - 1 - at, "o", markersize=9, markerfacecolor="none", markeredgecolor=INK, mew=0.9
            )
        ax.set_xlabel("lift over the old policy, per row")
        return 0.9 + 0.34 * len(labels)

    return drawn(name, told, draw)


def _forest(
    ax: Any, names: list[str], rows: list[tuple[float, float, float]], colours: list[str],
    also: list[tuple[float, float]], bold: int = -1,
) -> tuple[float, float]:  # fmt: skip
    """Intervals under each other on an axis that shows the narrower ones whole; wider ones end in an arrow."""
    left, right = axis([*((low, high) for _, low, high in rows), *[pair for pair in also if pair[0] < pair[1]]])
    left, right = min([left, *(a for a, _ in also)]), max([right, *(b for _, b in also)])
    pad = 0.05 * (right - left)
    left, right = left - pad, right + pad
    y = np.arange(len(rows))[::-1]
    value, low, high = np.array(rows, dtype=float).T
    for colour in dict.fromkeys(colours):  # one artist for each colour and shape, which keeps the SVG small
        own = np.array([each == colour for each in colours])
        ax.hlines(y[own], np.maximum(low, left)[own], np.minimum(high, right)[own], color=colour, linewidth=2.4)
        inside = own & (value >= left) & (value <= right)
        for at, x, shape, size in (
            (inside, value, "o", 6),
            (own & (low < left), np.full(len(y), left), "<", 7),
            (own & (high > right), np.full(len(y), right), ">", 7),
        ):
            if at.any():
                ax.plot(x[at], y[at], shape, color=colour, markersize=size, linestyle="none", clip_on=False)
    ax.set_yticks(range(len(rows)), list(reversed(names)))
    if 0 <= bold < len(names):
        ax.get_yticklabels()[len(names) - 1 - bold].set_fontweight("bold")
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlim(left, right)
    ax.tick_params(axis="y", length=0, pad=9)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.locator_params(axis="x", nbins=5)
    return left, right


def weights(found: Overlap) -> Picture | None:
    """Where the rows are and where the weight is, by size of the weight."""
    if not found.counts:
        return None
    share = np.array(found.counts) / found.n
    mass = np.array(found.shares)
    centre = np.log10(found.edges[:-1]) + 0.5 * np.diff(np.log10(found.edges))
    width = float(np.diff(np.log10(found.edges))[0])
    told = "Share of the rows and share of all the weight by size of the weight."

    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        ax.bar(centre - 0.2 * width, share, 0.38 * width, color=SECOND, label="of the rows")
        ax.bar(centre + 0.2 * width, mass, 0.38 * width, color=MAIN, label="of all the weight")
        if found.zero_share > 0:
            at = float(centre[0]) - 1.6 * width
            ax.bar(at - 0.2 * width, found.zero_share, 0.38 * width, color=SECOND)
        low, high = float(centre[0]) - width, float(centre[-1]) + width
        ticks = np.arange(np.ceil(low), np.floor(high) + 1)
        ticks = ticks[:: max(1, len(ticks) // (8 if wide else 4))]
        labels = [f"{10.0**t:g}" for t in ticks]
        if found.zero_share > 0:
            ticks, labels = np.append(float(centre[0]) - 1.8 * width, ticks), ["0", *labels]
        ax.set_xticks(ticks, labels)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.set_xlabel("weight of a row: new probability / old probability")
        ax.set_ylabel("share")
        ax.grid(axis="y", color=GRID, linewidth=0.7)
        ax.set_axisbelow(True)
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 1.16), ncols=2, fontsize=9, borderpad=0)
        return 2.9

    return drawn("weights", told, draw)


def support(found: Overlap) -> Picture:
    """How often the old policy took, and the new one would take, the new one's favourite actions."""
    shown = found.actions[:12]
    told = "Share of decisions of the old and of the new policy, for the actions that the new one favours."

    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        y = np.arange(len(shown))[::-1]
        ax.barh(y + 0.2, [each.logged / found.n for each in shown], 0.36, color=SECOND, label="old policy, logged")
        ax.barh(y - 0.2, [each.target for each in shown], 0.36, color=MAIN, label="new policy")
        ax.set_yticks(y, [_clip(each.label) or f"action {each.action}" for each in shown])
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=5)
        ax.grid(axis="x", color=GRID, linewidth=0.7)
        ax.set_axisbelow(True)
        ax.set_xlabel("share of decisions")
        height = 1.1 + 0.3 * len(shown)
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=9, borderpad=0)
        return height

    return drawn("support", told, draw)


def paths(evaluation: Evaluation) -> list[tuple[str, Picture]]:
    """For each estimator that chose among candidates, what it looked at and what it took."""
    made = []
    for number, each in enumerate(evaluation):
        if len(each.diagnostics.path) > 1:
            made.append((each.estimator, _path(each.estimator, each.diagnostics.path[:MOST_BARS], number)))
    return made


def _path(name: str, path: Sequence[Any], number: int) -> Picture:
    rows = [(each.value, each.value - each.width, each.value + each.width) for each in path]
    colours = [MAIN if each.chosen else SECOND if each.accepted else GREY for each in path]
    told = f"Candidates of {name}: the dark one was chosen, the grey ones were not accepted."
    labels = [_clip(each.name[each.name.find("(") + 1 :].removesuffix(")")) for each in path]
    chosen = next((at for at, each in enumerate(path) if each.chosen), -1)

    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        values = [each.value for each in path]
        _forest(ax, labels, rows, colours, [(min(values), max(values))], bold=chosen)
        ax.set_xlabel("value per row")
        return 0.9 + 0.3 * len(path)

    return drawn(f"path-{number}", told, draw)
