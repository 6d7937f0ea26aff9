"""Pictures of a report: pure functions of results to SVG text that takes its colours from the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cael.inference.overlap import Overlap
from cael.report.drawing import (
    BAD,
    FAINT,
    GOOD,
    GREY,
    MAIN,
    SECOND,
    Drawn,
    Picture,
    clip,
    drawn,
    legend,
    ruled,
)  # fmt: skip
from cael.report.forest import Base, Line, forest
from cael.report.hover import Spot, interval_text
from cael.results.comparison import Comparison
from cael.results.course import Point
from cael.results.evaluation import Evaluation
from cael.results.lifts import LOGGING, direction
from cael.results.segmentation import Segment, Segments
from cael.results.sheet import level_text

SIDES = {"better": GOOD, "worse": BAD, "no difference shown": SECOND}
MOST_BARS, MOST_ANSWERS = 20, 4
NONE = Base("", 0.0, 0.0, 0.0)
"""No lift."""


def lift_over(baseline: str) -> str:
    """The name of an axis."""
    return f"lift over {clip(baseline)}, per decision"


def intervals(evaluation: Evaluation) -> Picture:
    """All estimators with their intervals, and the baseline's value as a line."""
    sheet, level = evaluation.sheet(), evaluation.level
    shown = list(zip(*map(sheet.column, ("estimator", "value", "interval")), sheet.styles, strict=True))
    name, value, inside = evaluation.baseline_name, evaluation.baseline.value, evaluation.baseline.interval(level)
    lines = [
        Line(
            clip(estimator, 34), value, interval.low, interval.high,
            GREY if "doubtful" in style else MAIN if "headline" in style else SECOND, bold="headline" in style,
        )
        for estimator, value, interval, style in shown
        if estimator != evaluation.baseline.estimator or name != LOGGING
    ]  # fmt: skip
    caption = (
        f"Values of {len(lines)} estimators with {level_text(level)} intervals; the line is the value of {clip(name)}. "
        "What cannot be relied on is grey."
    )
    base = Base(clip(name).removeprefix("the "), value, inside.low, inside.high)
    return forest("intervals", caption, lines, "value per decision", base)


def answer(result: Evaluation | Comparison) -> Picture:
    """For the first screen: the values of the baseline and of the policy, or of the first policies of a comparison."""
    headline, refused = result.answer, result.verdict.level == "refuse"
    scale, level = headline.scope.scale, result.level
    shown = [("new policy", headline.estimate, direction(headline.interval, headline.sign), refused)]
    if isinstance(result, Comparison):
        first = result.rows[:MOST_ANSWERS]
        shown = [(row.name, row.estimate, row.direction, row.verdict.level == "refuse") for row in first]
    estimates = [(clip(result.baseline_name), headline.baseline, "no difference shown", False), *shown]
    lines: list[Line] = []
    for name, estimate, side, grey in estimates:
        inside = estimate.interval(level)
        colour = GREY if grey else SIDES[side]
        lines.append(
            Line(clip(name), scale * estimate.value, scale * inside.low, scale * inside.high, colour, bold=bool(lines))
        )
    unit = f"{clip(headline.scope.noun(headline.metric))} {headline.scope.unit}".strip()
    base = scale * headline.baseline.value
    caption = f"{unit}, with {level_text(level)} intervals."
    return forest("answer", caption[0].upper() + caption[1:], lines, unit, Base("", base, base, base), step=0.4)


def course(points: Sequence[Point], metric: str) -> Picture | None:
    """What the lift adds up to as rows come in, with its interval."""
    if len(points) < 2:
        return None
    rows, totals, low, high = np.array([(p.rows, p.total, p.low, p.high) for p in points], dtype=float).T
    caption = "Sum of the lift over the rows so far, with its interval; the last point is the total."

    def draw(ax: Any, wide: bool) -> Drawn:
        ax.axhline(0, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        ax.fill_between(rows, low, high, color=MAIN, alpha=0.18, linewidth=0)
        ax.plot(rows, totals, color=MAIN, linewidth=2)
        if all(point.day for point in points):
            at = np.unique(np.linspace(0, len(points) - 1, 6 if wide else 3).round().astype(int))
            ax.set_xticks(rows[at], [str(points[place].day) for place in at])
        else:
            ax.set_xlabel("rows")
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            ax.locator_params(axis="x", nbins=6 if wide else 4)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        ax.set_ylabel(f"{clip(metric)}, sum of the lift")
        ruled(ax, "y")
        edges = [rows[0], *(rows[1:] + rows[:-1]) / 2, rows[-1]]
        texts = [interval_text(p.day or f"{p.rows:,} rows", p.total, p.low, p.high, "lift interval") for p in points]
        return 2.6, [Spot(text, (edges[at], edges[at + 1])) for at, text in enumerate(texts)]

    return drawn("course", caption, draw)


def lifts(comparison: Comparison) -> Picture:
    """The lifts of several policies with joint intervals: green better, red worse, grey where the verdict refuses."""
    lines = [
        Line(clip(row.name), row.lift.value, row.interval.low, row.interval.high,
             GREY if row.verdict.level == "refuse" else SIDES[row.direction])
        for row in comparison.rows[:MOST_BARS]
    ]  # fmt: skip
    caption = f"Lifts of {len(lines)} policies over {clip(comparison.baseline_name)}, with simultaneous intervals."
    return forest("lifts", caption, lines, lift_over(comparison.baseline_name), NONE)


def segment_lifts(segments: Segments, shown: Sequence[Segment], name: str) -> Picture:
    """The lifts of those of the segments that are shown, with their joint intervals, and their shrunk lifts."""
    lines = [
        Line(clip(row.label), row.lift, row.interval.low, row.interval.high, SIDES[row.direction], ring=row.shrunk)
        for row in shown
    ]
    count = str(len(shown)) if len(shown) == len(segments.rows) else f"{len(shown)} of {len(segments.rows)}"
    caption = f"Lifts of {count} {segments.noun}s with simultaneous intervals; the rings are the shrunk lifts."
    return forest(name, caption, lines, lift_over(segments.baseline), NONE)


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
            clip(tried.name[tried.name.find("(") + 1 :].removesuffix(")")), tried.value, tried.value - tried.width,
            tried.value + tried.width, MAIN if tried.chosen else SECOND if tried.accepted else GREY, bold=tried.chosen,
        )
        for tried in path
    ]  # fmt: skip
    return forest(f"path-{number}", caption, lines, "value per decision", step=0.3)


def weights(overlap: Overlap) -> Picture | None:
    """Where the rows are and where the weight is, by size of the weight."""
    if not overlap.counts:
        return None
    share = np.array(overlap.counts) / overlap.n
    mass = np.array(overlap.shares)
    centre = np.log10(overlap.edges[:-1]) + 0.5 * np.diff(np.log10(overlap.edges))
    width = float(np.diff(np.log10(overlap.edges))[0])
    caption = (
        "Share of the rows and of all the weight by importance weight, which is the probability of the logged action "
        "under the new policy over that under the logging policy."
    )

    def draw(ax: Any, wide: bool) -> Drawn:
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
        ax.set_xlabel("importance weight of a row")
        ax.set_ylabel("share")
        ruled(ax, "y")
        legend(ax, (0, 1.16), "upper")
        return 2.9, [
            Spot(f"{rows:.1%} of the rows, {weight:.1%} of all the weight", (x - width / 2, x + width / 2))
            for x, rows, weight in zip(centre, share, mass, strict=True)
        ]

    return drawn("weights", caption, draw)


def support(overlap: Overlap) -> Picture:
    """How often the logging policy took, and the new one would take, the new one's favourite actions."""
    shown = overlap.actions[:12]
    labels = [clip(action.label) or f"action {action.action}" for action in shown]
    caption = "Share of decisions of the logging policy and of the new one, for the actions that the new one favours."

    def draw(ax: Any, wide: bool) -> Drawn:
        y = np.arange(len(shown))[::-1]
        ax.barh(y + 0.2, [action.logged / overlap.n for action in shown], 0.36, color=SECOND, label="logging policy")
        ax.barh(y - 0.2, [action.target for action in shown], 0.36, color=MAIN, label="new policy")
        ax.set_yticks(y, labels)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.tick_params(axis="y", length=0)
        ax.locator_params(axis="x", nbins=5)
        ruled(ax, "x")
        ax.set_xlabel("share of decisions")
        legend(ax, (0, 1), "lower")
        return 1.1 + 0.3 * len(shown), [
            Spot(f"{label}: {action.logged / overlap.n:.1%} logged, {action.target:.1%} new", y=(at - 0.5, at + 0.5))
            for at, label, action in zip(y, labels, shown, strict=True)
        ]

    return drawn("support", caption, draw)
