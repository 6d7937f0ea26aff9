"""The paper's figures from a table of trials: log axes, 95% bands, colours that colour-blind readers can tell apart."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cael.common.whole import write_whole
from cael.experiments.claim_rules import relative_errors
from cael.experiments.summary import Table

# Okabe and Ito's colours; the first four are the paper's estimators. Markers and dashes tell them apart without colour.
COLOURS = (
    "#0072B2", "#D55E00", "#000000", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F", "#5E3C99",
    "#B2182B", "#66A61E", "#4E79A7", "#F28E2B", "#1B7F8C", "#A0507F", "#9C755F",
)  # fmt: skip
MARKERS = "osD^vPX*<>hpd"
FIXED = (
    "CAELMIPS", "AELMIPS", "IPS", "NetworkDM", "LoggedMean", "SNIPS", "DM", "DR", "SNDR", "MIPS", "CAEL", "Auto",
    "CAELMIPS(offset)", "CAELMIPS(through-posterior)", "AELMIPS(offset)", "CAELMIPS(literal)",
)  # fmt: skip
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
SHOWN = {"CAELMIPS": "CAEL-MIPS", "AELMIPS": "AEL-MIPS", "NetworkDM": "DM (network)", "DM": "DM (ridge)"}
WORDS = {"bias": "|bias|", "variance": "variance", "mse": "MSE"}
STYLE = {
    "svg.hashsalt": "cael", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.5,
    "axes.axisbelow": True, "legend.frameon": False, "font.family": "DejaVu Sans", "pdf.fonttype": 42,
}  # fmt: skip


def available() -> bool:
    """Whether figures can be drawn at all."""
    return importlib.util.find_spec("matplotlib") is not None


FILES: tuple[tuple[str, dict[str, None]], ...] = (
    ("svg", {"Date": None, "Creator": None}), ("png", {"Software": None}),
    ("pdf", {"CreationDate": None, "Creator": None}),
)  # fmt: skip
"""Formats of a figure, without what would make two files of the same rows differ."""


def draw(table: Table, out: Path) -> list[Path]:
    """One figure per panel of the spec, as SVG, PNG and PDF; byte-identical for the same rows."""
    kinds = {"bars": bars, "lines": lines, "ecdf": ecdf, "dots": dots}
    paths = []
    for panel, names in table.spec.panels.items():
        with new_figure() as figure:
            kinds[table.spec.figure.kind](figure, table, names)
            paths += saved(figure, out / stem(panel))
    return paths


@contextmanager
def new_figure() -> Iterator[Any]:
    """A figure in the house style, whatever the user's settings."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE}):
        yield Figure(layout="constrained")


def saved(figure: Any, base: Path) -> list[Path]:
    """The files of a figure; base: their path without a suffix."""
    paths = []
    for suffix, metadata in FILES:
        picture = io.BytesIO()
        figure.savefig(picture, format=suffix, dpi=150, metadata=metadata)
        paths.append(base.with_name(f"{base.name}.{suffix}"))
        write_whole(paths[-1], picture.getvalue())
    return paths


def stem(panel: str) -> str:
    """The name of the files of a panel's figure."""
    return "figure" if panel == "paper" else f"figure-{panel}"


def shown(name: str) -> str:
    """The name of an estimator in figures and tables, with its reading."""
    base, reading, rest = re.match(r"(\w*)(\([\w-]+\))?(.*)", name, re.DOTALL).groups("")  # type: ignore[union-attr]
    return f"{SHOWN.get(base, base)}{' ' if reading and base in SHOWN else ''}{reading}{rest}"


def style_of(table: Table, name: str) -> dict[str, Any]:
    """Colour and marker of an estimator: the same in every figure, or, for names of a spec's own, in all of its own."""
    others = [other for other in table.spec.estimators if other not in FIXED]
    free = [i for i, fixed in enumerate(FIXED) if fixed not in table.spec.estimators]
    free += range(len(FIXED), len(FIXED) + len(others))
    at = FIXED.index(name) if name in FIXED else free[others.index(name)]
    return {"color": COLOURS[at % len(COLOURS)], "marker": MARKERS[at % len(MARKERS)]}


def _pen(number: int, name: str) -> dict[str, Any]:
    """Line and marker size. Auto is fine and small: it often lies on the estimator that it took."""
    if name == "Auto":
        return {"lw": 1.0, "ms": 2.5, "ls": "-"}
    return {"lw": 1.7, "ms": 4.5, "ls": DASHES[number // 4 % len(DASHES)]}


def bars(figure: Any, table: Table, names: Sequence[str]) -> None:
    """One panel per statistic, one horizontal bar per estimator with its 95% interval (figure 1 of the paper)."""
    statistics, at = table.spec.figure.statistics, table.places[0]
    figure.set_size_inches(3.1 * len(statistics) + 0.8, 0.9 + 0.3 * len(names))
    axes = figure.subplots(1, len(statistics), sharey=True, squeeze=False)[0]
    for axis, statistic in zip(axes, statistics, strict=True):
        points = [table.point(at, name, statistic) for name in names]
        bands = np.array([table.band(at, name, statistic) for name in names])
        left = _floor(points, bands[:, 0])
        for y, name in enumerate(names):
            axis.barh(y, points[y], left=0, color=style_of(table, name)["color"], alpha=0.6, height=0.65)
            axis.plot(np.maximum(bands[y], left), [y, y], color="black", lw=1.2, marker="|", ms=6)
        axis.set(xscale="log", xlabel=WORDS[statistic])
        axis.set_xlim(left=left)
        axis.grid(axis="y", visible=False)
    _rows(axes[0], [shown(name) for name in names])


def _rows(axis: Any, names: Sequence[str]) -> None:
    """Name the rows of a figure, the first on top."""
    axis.set_yticks(range(len(names)), names)
    axis.grid(axis="y", visible=False)
    axis.invert_yaxis()


def _floor(points: Any, lows: Any) -> float:
    """Where a log axis of bars begins: a power of ten below all bars and, within a factor of ten, their intervals."""
    positive = [point for point in points if np.isfinite(point) and point > 0]
    if not positive:
        return 1e-3
    least = min(positive)
    low = min([max(low, least / 10) for low in lows if np.isfinite(low)], default=least)
    return float(10 ** np.floor(np.log10(0.999 * low)))


def lines(figure: Any, table: Table, names: Sequence[str]) -> None:
    """One panel per statistic over the axis of the spec, with shaded 95% bands (figure 3 of the paper)."""
    statistics, few = table.spec.figure.statistics, len(names) <= 4
    figure.set_size_inches(max(4.6 if few else 6.4, 3.4 * len(statistics)), 3.4 if few else 3.8)
    axes = figure.subplots(1, len(statistics), squeeze=False)[0]
    for axis, statistic in zip(axes, statistics, strict=True):
        line_panel(axis, table, names, statistic)
    legend(figure, axes[0])


def line_panel(axis: Any, table: Table, names: Sequence[str], statistic: str) -> None:
    """A statistic over the axis of the spec, a line for each estimator."""
    drawn, x = table.spec.figure, np.array(table.places, dtype=np.float64)
    points = np.array([[table.point(at, name, statistic) for at in table.places] for name in names])
    for number, name in enumerate(names):
        style = style_of(table, name)
        band = np.array([table.band(at, name, statistic) for at in table.places])
        axis.plot(x, points[number], label=shown(name), **_pen(number, name), **style)
        axis.fill_between(x, band[:, 0], band[:, 1], color=style["color"], alpha=0.16, lw=0)
    axis.set(yscale="log", xlabel=drawn.label, ylabel=WORDS[statistic])
    axis.set_ylim(bottom=_floor(points.ravel(), points.ravel()) / 2)
    if drawn.log_x:
        axis.set_xscale("log")
        axis.minorticks_off()
    axis.set_xticks(x, [f"{value:g}" for value in x], rotation=45 if len(x) >= 4 and x.max() >= 1000 else 0)


def dots(figure: Any, table: Table, names: Sequence[str]) -> None:
    """MSE of each estimator in each world relative to the best one there, on a log axis."""
    figure.set_size_inches(7.5, 1.4 + 0.42 * len(table.places))
    axis = figure.subplots()
    for y, at in enumerate(table.places):
        points = {name: table.point(at, name, "mse") for name in names}
        best = min(point for point in points.values() if np.isfinite(point))
        for name, offset in zip(names, np.linspace(-0.28, 0.28, len(names)), strict=True):
            style = style_of(table, name)
            axis.plot(table.band(at, name, "mse") / best, [y + offset] * 2, color=style["color"], lw=1)
            axis.plot(points[name] / best, y + offset, ls="", ms=5, label=shown(name) if y == 0 else None, **style)
        if y:
            axis.axhline(y - 0.5, color="#bbbbbb", lw=0.6)
    axis.axvline(1, color="#888888", lw=0.8)
    axis.set(xscale="log", xlabel="MSE relative to the best estimator of each world")
    _rows(axis, [str(at) for at in table.places])
    legend(figure, axis)


def ecdf(figure: Any, table: Table, names: Sequence[str]) -> None:
    """The share of runs whose squared error relative to that of IPS is at most x (figure 2 of the paper)."""
    figure.set_size_inches(5.6, 4.0)
    axis = figure.subplots()
    ecdf_panel(axis, table, names)
    legend(figure, axis)


FLOOR = 1e-4
"""Where the axis of relative errors begins."""


def ecdf_panel(axis: Any, table: Table, names: Sequence[str]) -> None:
    """A step line for each estimator."""
    for number, name in enumerate(name for name in names if name != "IPS"):
        ratios = np.sort(relative_errors(table, table.places[0], name))
        ratios = ratios[np.isfinite(ratios)]
        heights = np.arange(1, len(ratios) + 1) / table.spec.runs_of(name)
        x = np.concatenate([[FLOOR], np.maximum(ratios, FLOOR), [max(1e3, *ratios)]])
        y = np.concatenate([[0.0], heights, heights[-1:]])
        style, pen = style_of(table, name), _pen(number, name)
        axis.step(x, y, where="post", lw=pen["lw"], color=style["color"], ls=pen["ls"])
        marked = slice(1, -1, max(1, len(ratios) // 8))
        axis.plot(x[marked], y[marked], ls="", ms=pen["ms"], **style)
        axis.plot([], [], label=shown(name), **pen, **style)
    axis.axvline(1, color="#888888", lw=0.8)
    axis.annotate("as good as IPS", (1, 0.02), xytext=(4, 0), textcoords="offset points", color="#555555", fontsize=8)
    axis.set(xscale="log", xlabel=table.spec.figure.label, ylabel="share of runs", xlim=(FLOOR, 1e3), ylim=(0, 1.02))
    if table.spec.name != "open-bandit-known":
        axis.set_title("The truth itself is uncertain: small ratios are luck", fontsize=8.5, color="#555555")


def legend(figure: Any, axis: Any) -> None:
    """Above the panels, each estimator once, in as many columns as the figure has room for."""
    handles, labels = axis.get_legend_handles_labels()
    widest = max(map(len, labels))
    columns = int(figure.get_figwidth() / (0.6 + 0.078 * widest))
    figure.legend(handles, labels, loc="outside upper center", ncols=min(max(columns, 1), len(labels)), fontsize=8.5)
