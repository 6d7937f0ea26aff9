"""Intervals of a sheet on Matplotlib's axes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cael.errors import NeedsError

if TYPE_CHECKING:
    from cael.inference.estimate import Estimate
    from cael.judging.audits import Audit
    from cael.results.calibration import Calibration
    from cael.results.planning import Plan
    from cael.results.scorecard import Scorecard
    from cael.results.sheet import Sheet

COLOURS = {"better": "tab:green", "worse": "tab:red", "doubtful": "0.65"}
"""By the style of a row; others are blue."""
LEVELS = (0.95, 0.8, 0.5)
"""Of the intervals of one estimate."""
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


def plot_plan(plan: Plan, axes: Any = None) -> Any:
    """Rows needed against the share of the decisions that is drawn uniformly; the rows of the log as a line."""
    axes = _new_axes(8) if axes is None else axes
    known = [(option.exploration, option.rows) for option in plan.options if option.rows is not None]
    axes.plot([share for share, _ in known], [rows for _, rows in known], "o-", color="tab:blue")
    axes.axhline(plan.n, color="black", linewidth=1, linestyle="--", label="rows of this log")
    axes.set_yscale("log")
    axes.set_xlabel("share of decisions drawn uniformly")
    axes.set_ylabel(f"rows to detect a lift of {plan.lift:.4g}")
    axes.legend(loc="best", frameon=False)
    return axes


def plot_calibration(calibration: Calibration, axes: Any = None) -> Any:
    """How often the intervals of each estimator held the planted truth, with its error, and the level as a line."""
    axes = _new_axes(len(calibration.rows)) if axes is None else axes
    for at, row in enumerate(calibration.rows):
        axes.errorbar([row.coverage], [at], xerr=[2 * row.coverage_error], fmt="o", color="tab:blue", capsize=3)
    axes.axvline(calibration.level, color="black", linewidth=1, linestyle="--", label="level")
    axes.set_yticks(range(len(calibration.rows)), [row.estimator for row in calibration.rows])
    axes.set_ylim(len(calibration.rows) - 0.5, -0.5)
    axes.set_xlabel("share of intervals that hold the truth (± 2 standard errors)")
    axes.legend(loc="best", frameon=False)
    return axes


def plot_audit(audit: Audit, axes: Any = None) -> Any:
    """Rows of each action against the rows that the propensities say, for those that are furthest off."""
    axes = _new_axes(8) if axes is None else axes
    known = [(row.expected, row.observed) for row in audit.actions if row.expected is not None]
    expected, observed = [pair[0] for pair in known], [pair[1] for pair in known]
    axes.plot(expected, observed, "o", color="tab:blue")
    most = max([*expected, *observed], default=1.0)
    axes.plot([0, most], [0, most], color="black", linewidth=1, linestyle="--", label="as the propensities say")
    axes.set_xlabel("expected rows of an action")
    axes.set_ylabel("rows in the log")
    axes.legend(loc="best", frameon=False)
    return axes


def plot_estimate(estimate: Estimate, axes: Any = None) -> Any:
    """The interval that decisions rest on at three levels, and the value as a line."""
    axes = _new_axes(len(LEVELS)) if axes is None else axes
    for at, level in enumerate(LEVELS):
        low, high = estimate.interval(level)
        axes.plot([low, high], [at, at], color="tab:blue", linewidth=2 + 2 * (len(LEVELS) - at), solid_capstyle="butt")
    axes.axvline(estimate.value, color="black", linewidth=1, linestyle="--", label=f"{estimate.estimator}: value")
    axes.set_yticks(range(len(LEVELS)), [f"{level:.0%} interval" for level in LEVELS])
    axes.set_ylim(len(LEVELS) - 0.5, -0.5)
    axes.legend(loc="best", frameon=False)
    return axes


def plot_scorecard(card: Scorecard, axes: Any = None) -> Any:
    """The relative lifts of all metrics with their simultaneous intervals; a metric whose baseline is near to 0 has
    none."""
    axes = _new_axes(len(card.rows)) if axes is None else axes
    for at, (row, interval) in enumerate(zip(card.rows, card.relative_intervals(), strict=True)):
        if interval is None or row.relative_lift is None:
            continue
        colour = COLOURS.get(row.direction, "tab:blue")
        axes.plot([100 * interval.low, 100 * interval.high], [at, at], color=colour, linewidth=2, solid_capstyle="butt")
        axes.plot([100 * row.relative_lift], [at], "o", color=colour)
    axes.axvline(0, color="black", linewidth=1, linestyle="--", label=card.baseline.removeprefix("the "))
    several = len(card.decisions) > 1
    labels = [f"{row.policy}: {row.metric.label}" if several else row.metric.label for row in card.rows]
    axes.set_yticks(range(len(card.rows)), labels)
    axes.set_ylim(len(card.rows) - 0.5, -0.5)
    axes.set_xlabel("lift in percent of the baseline")
    axes.legend(loc="best", frameon=False)
    return axes


def _new_axes(rows: int) -> Any:
    if find_spec("matplotlib") is None:
        raise NeedsError("plot() needs matplotlib, which is not installed: pip install 'cael[plots]'.")
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(7, 1 + ROOM * rows), layout="constrained")[1]
