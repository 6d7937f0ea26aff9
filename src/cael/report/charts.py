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

from cael.common.visible import visible
from cael.inference.overlap import Overlap
from cael.results.comparison import Comparison
from cael.results.course import Point
from cael.results.evaluation import Evaluation
from cael.results.lifts import LOGGING, direction
from cael.results.pictures import axis
from cael.results.segmentation import Segment, Segments
from cael.results.sheet import level_text

INK, FAINT, GRID, MAIN, SECOND, GOOD, BAD, GREY = (
    "#010101", "#020202", "#030303", "#040404", "#050505", "#060606", "#070707", "#080808",
)  # fmt: skip
VARIABLES = {
    INK: "--ink", FAINT: "--faint", GRID: "--line", MAIN: "--main", SECOND: "--second", GOOD: "--good", BAD: "--bad",
    GREY: "--grey",
}  # fmt: skip
SIDES = {"better": GOOD, "worse": BAD, "no difference shown": SECOND}
MOST_BARS, MOST_ANSWERS = 20, 4
LIFT = "lift over the old policy, per row"


@final
@dataclass(frozen=True)
class Picture:
    """One picture in two widths, with a sentence that says what is in it."""

    wide: str
    narrow: str
    caption: str


def drawn(name: str, caption: str, draw: Callable[[Any, bool], float]) -> Picture:
    """A picture by a function that draws on a figure and gives its height in inches; it hears whether it is wide."""
    return Picture(_svg(f"{name}-wide", draw, True), _svg(f"{name}-narrow", draw, False), caption)


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


def old(baseline: str) -> str:
    """What lifts are over, as a report has it."""
    return "the old policy" if baseline == LOGGING else _clip(baseline)


def intervals(evaluation: Evaluation) -> Picture:
    """All estimators with their intervals, and the baseline's value as a line."""
    sheet = evaluation.sheet()
    shown = list(zip(*map(sheet.column, ("estimator", "value", "interval")), sheet.styles, strict=True))
    base, inside = evaluation.baseline.value, evaluation.baseline.interval(evaluation.level)
    lines = [
        Line(
            _clip(name, 34), value, interval.low, interval.high,
            GREY if "doubtful" in style else MAIN if "headline" in style else SECOND, bold="headline" in style,
        )
        for name, value, interval, style in shown
        if name != evaluation.baseline.estimator or evaluation.baseline_name != LOGGING
    ]  # fmt: skip
    caption = (
        f"Values of {len(lines)} estimators with {evaluation.level:.0%} intervals; the line is the value of "
        f"{old(evaluation.baseline_name)}. "
        "What cannot be relied on is grey."
    )
    return _forest("intervals", caption, lines, "value per row", (inside.low, inside.high), base)


def answer(result: Evaluation | Comparison) -> Picture:
    """For the first screen: the values of the baseline and of the policy, or of the first policies of a comparison."""
    headline, refused = result.answer, result.verdict.level == "refuse"
    scale, level = headline.scope.scale, result.level
    shown = [("new policy", headline.estimate, direction(headline.interval, headline.sign), refused)]
    if isinstance(result, Comparison):
        some = result.rows[:MOST_ANSWERS]
        shown = [(row.name, row.estimate, row.direction, row.verdict.level == "refuse") for row in some]
    estimates = [(old(result.baseline_name), headline.baseline, "no difference shown", False), *shown]
    lines: list[Line] = []
    for name, estimate, side, grey in estimates:
        inside = estimate.interval(level)
        colour = GREY if grey else SIDES[side]
        lines.append(
            Line(_clip(name), scale * estimate.value, scale * inside.low, scale * inside.high, colour, bold=bool(lines))
        )
    unit = f"{_clip(headline.scope.noun(headline.metric))} {headline.scope.unit}".strip()
    base = scale * headline.baseline.value
    caption = f"{unit}, with {level_text(level)} intervals."
    return _forest("answer", caption[0].upper() + caption[1:], lines, unit, (base, base), base, step=0.4)


def course(points: Sequence[Point], metric: str) -> Picture | None:
    """What the lift adds up to as rows come in, with its interval."""
    if len(points) < 2:
        return None
    rows, totals, low, high = np.array([(p.rows, p.total, p.low, p.high) for p in points], dtype=float).T
    caption = "Sum of the lift over the rows so far, with its interval; the last point is the total."

    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        ax.axhline(0, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        ax.fill_between(rows, low, high, color=MAIN, alpha=0.18, linewidth=0)
        ax.plot(rows, totals, color=MAIN, linewidth=2)
        if all(point.day for point in points):
            at = np.unique(np.linspace(0, len(points) - 1, 6 if wide else 3).round().astype(int))
            ax.set_xticks(rows[at], [str(points[each].day) for each in at])
        else:
            ax.set_xlabel("rows")
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            ax.locator_params(axis="x", nbins=6 if wide else 4)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        ax.set_ylabel(f"{_clip(metric)}, sum of the lift")
        _ruled(ax, "y")
        return 2.6

    return drawn("course", caption, draw)


def lifts(comparison: Comparison) -> Picture:
    """The lifts of several policies with joint intervals: green better, red worse, grey where the verdict refuses."""
    lines = [
        Line(_clip(row.name), row.lift.value, row.interval.low, row.interval.high,
             GREY if row.verdict.level == "refuse" else SIDES[row.direction])
        for row in comparison.rows[:MOST_BARS]
    ]  # fmt: skip
    caption = f"Lifts of {len(lines)} policies over {old(comparison.baseline_name)}, with simultaneous intervals."
    return _forest("lifts", caption, lines, LIFT, (0.0, 0.0), 0)


def segment_lifts(segments: Segments, shown: Sequence[Segment], name: str) -> Picture:
    """The lifts of those of the segments that are shown, with their joint intervals, and their shrunk lifts."""
    lines = [
        Line(_clip(row.label), row.lift, row.interval.low, row.interval.high, SIDES[row.direction], ring=row.shrunk)
        for row in shown
    ]
    count = str(len(shown)) if len(shown) == len(segments.rows) else f"{len(shown)} of {len(segments.rows)}"
    caption = f"Lifts of {count} {segments.kind}s with simultaneous intervals; the rings are the shrunk lifts."
    return _forest(name, caption, lines, LIFT, (0.0, 0.0), 0)


def paths(evaluation: Evaluation) -> list[tuple[str, Picture]]:
    """For each estimator that chose among candidates, what it looked at and what it took."""
    return [
        (estimate.estimator, _path(estimate.estimator, estimate.diagnostics.path[:MOST_BARS], number))
        for number, estimate in enumerate(evaluation)
        if len(estimate.diagnostics.path) > 1
    ]


def _path(name: str, path: Sequence[Any], number: int) -> Picture:
    caption = f"Candidates of {name}: the one in bold was chosen, the grey ones were not accepted."
    lines = [
        Line(
            _clip(each.name[each.name.find("(") + 1 :].removesuffix(")")), each.value, each.value - each.width,
            each.value + each.width, MAIN if each.chosen else SECOND if each.accepted else GREY, bold=each.chosen,
        )
        for each in path
    ]  # fmt: skip
    values = [line.value for line in lines]
    return _forest(f"path-{number}", caption, lines, "value per row", (min(values), max(values)), step=0.3)


def _clip(text: str, most: int = 26) -> str:
    text = visible(text)
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


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


def _forest(
    name: str, caption: str, lines: Sequence[Line], unit: str, visible: tuple[float, float], base: float | None = None,
    step: float = 0.34,
) -> Picture:  # fmt: skip
    """Intervals under each other. visible: what the axis must hold. base: where the old policy is; `visible` is shaded
    where it is wider than a point."""

    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        if visible[0] < visible[1] and base is not None:
            ax.axvspan(*visible, color=GRID, alpha=0.5, linewidth=0)
        if base is not None:
            ax.axvline(base, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
        left, right = _draw_intervals(ax, lines, visible)
        if visible[0] < visible[1] and base is not None:
            side, shift = ("right", -4) if base > (left + right) / 2 else ("left", 4)
            ax.annotate(
                "old policy", (base, 1), xycoords=("data", "axes fraction"), color=FAINT, fontsize=9,
                xytext=(shift, 2), textcoords="offset points", ha=side, va="bottom",
            )  # fmt: skip
        for at, line in enumerate(lines):
            if line.ring is not None:
                ax.plot(
                    line.ring,
                    len(lines) - 1 - at,
                    "o",
                    markersize=9,
                    markerfacecolor="none",
                    markeredgecolor=INK,
                    mew=0.9,
                )
        ax.set_xlabel(unit)
        return 0.9 + step * len(lines)

    return drawn(name, caption, draw)


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
    _ruled(ax, "x")
    ax.locator_params(axis="x", nbins=5)
    return left, right


def _ruled(ax: Any, which: str) -> None:
    ax.grid(axis=which, color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)


def _legend(ax: Any, anchor: tuple[float, float], side: str) -> None:
    ax.legend(frameon=False, loc=f"{side} left", bbox_to_anchor=anchor, ncols=2, fontsize=9, borderpad=0)


def weights(overlap: Overlap) -> Picture | None:
    """Where the rows are and where the weight is, by size of the weight."""
    if not overlap.counts:
        return None
    share = np.array(overlap.counts) / overlap.n
    mass = np.array(overlap.shares)
    centre = np.log10(overlap.edges[:-1]) + 0.5 * np.diff(np.log10(overlap.edges))
    width = float(np.diff(np.log10(overlap.edges))[0])
    caption = "Share of the rows and share of all the weight by size of the weight."

    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        ax.bar(centre - 0.2 * width, share, 0.38 * width, color=SECOND, label="of the rows")
        ax.bar(centre + 0.2 * width, mass, 0.38 * width, color=MAIN, label="of all the weight")
        if overlap.zero_share > 0:
            at = float(centre[0]) - 1.6 * width
            ax.bar(at - 0.2 * width, overlap.zero_share, 0.38 * width, color=SECOND)
        low, high = float(centre[0]) - width, float(centre[-1]) + width
        ticks = np.arange(np.ceil(low), np.floor(high) + 1)
        ticks = ticks[:: max(1, len(ticks) // (8 if wide else 4))]
        labels = [f"{10.0**t:g}" for t in ticks]
        if overlap.zero_share > 0:
            ticks, labels = np.append(float(centre[0]) - 1.8 * width, ticks), ["0", *labels]
        ax.set_xticks(ticks, labels)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.set_xlabel("weight of a row: new probability / old probability")
        ax.set_ylabel("share")
        _ruled(ax, "y")
        _legend(ax, (0, 1.16), "upper")
        return 2.9

    return drawn("weights", caption, draw)


def support(overlap: Overlap) -> Picture:
    """How often the old policy took, and the new one would take, the new one's favourite actions."""
    shown = overlap.actions[:12]
    caption = "Share of decisions of the old and of the new policy, for the actions that the new one favours."

    def draw(figure: Any, wide: bool) -> float:
        ax = figure.subplots()
        y = np.arange(len(shown))[::-1]
        ax.barh(y + 0.2, [each.logged / overlap.n for each in shown], 0.36, color=SECOND, label="old policy, logged")
        ax.barh(y - 0.2, [each.target for each in shown], 0.36, color=MAIN, label="new policy")
        ax.set_yticks(y, [_clip(each.label) or f"action {each.action}" for each in shown])
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=5)
        _ruled(ax, "x")
        ax.set_xlabel("share of decisions")
        _legend(ax, (0, 1), "lower")
        return 1.1 + 0.3 * len(shown)

    return drawn("support", caption, draw)
