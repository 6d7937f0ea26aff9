"""The paper's three figures, each as one picture of its experiments, with what the paper states drawn in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cael.experiments import figures
from cael.experiments.claim_rules import STATED_RUNS, wilson
from cael.experiments.spec import FIGURES
from cael.experiments.summary import Table

PANELS = (
    ("samples", "mse"), ("samples", "bias"), ("samples", "variance"),
    ("actions", "mse"), ("actions", "bias"), ("actions", "variance"),
    ("logging", "mse"), ("epsilon", "mse"), ("noise", "mse"),
)  # fmt: skip
"""Figure 3, (a) to (i)."""
STATED = (("CAELMIPS", 1.0, 0.75, ">"), ("CAELMIPS", 0.1, 0.4, ""), ("CAELMIPS", 0.01, 0.2, ""),
          ("AELMIPS", 0.1, 0.0, ""), ("NetworkDM", 0.01, 0.0, ""))  # fmt: skip
"""What the text says about figure 2: estimator, relative error, share of 30 runs below it, ">": more than that."""
RATES = {"bias": ("printed rate, √(1 − 1/k)", lambda k: np.sqrt(1 - 1 / k)), "variance": ("linear in k", lambda k: k)}
"""How bias and variance grow with the number of actions by the paper, drawn from the first cell of CAEL-MIPS."""


def compose(names: Sequence[str], tables: Mapping[str, Table], out: Path) -> list[Path]:
    """The files of these figures, of those whose experiments are there and have rows of all their estimators."""
    paths = []
    for name in names if figures.available() else ():
        there = {each: tables[each] for each in FIGURES[name] if each in tables}
        if len(there) == len(FIGURES[name]):
            with figures.new_figure() as figure:
                DRAWN[name](figure, there)
                paths += figures.saved(figure, out / name)
    return paths


def drawn_of(tables: Mapping[str, Table]) -> list[str]:
    """The paper's estimators that all of these tables have."""
    order = next(iter(tables.values())).spec.panels.get("paper", ())
    return [name for name in order if all(name in table.spec.estimators for table in tables.values())]


def figure_1(figure: Any, tables: Mapping[str, Table]) -> None:
    figures.bars(figure, tables["bias-variance-mse"], drawn_of(tables))


def figure_2(figure: Any, tables: Mapping[str, Table]) -> None:
    """Both targets; the stated shares as open circles, with the 95% interval of a share of 30 runs."""
    figure.set_size_inches(9.6, 4.2)
    axes = figure.subplots(1, 2, sharey=True)
    names = drawn_of(tables)
    for axis, (name, table) in zip(axes, tables.items(), strict=True):
        figures.ecdf_panel(axis, table, names)
        for estimator, at, share, more in STATED:
            _stated(axis, figures.style_of(table, estimator)["color"], at, share, more)
        axis.set_title("target as published" if name == "open-bandit-published" else "corrected target", fontsize=9)
    axes[1].set_ylabel("")
    figures.legend(figure, axes[0])
    figure.supxlabel(
        "Circles: what the text states, with the 95% interval of a share of 30 runs", fontsize=8.5, color="#555555"
    )


def _stated(axis: Any, colour: str, at: float, share: float, more: str) -> None:
    low, high = wilson(share * STATED_RUNS, STATED_RUNS)
    axis.plot([at, at], [max(low, 0), high], color=colour, lw=1, alpha=0.8)
    axis.plot(at, share, "o", ms=8, mfc="white", mec=colour, mew=1.6, zorder=5, clip_on=False)
    if more:
        axis.annotate("more than", (at, share), xytext=(8, 4), textcoords="offset points", fontsize=7.5, color=colour)


def figure_3(figure: Any, tables: Mapping[str, Table]) -> None:
    """Nine panels, three in a row."""
    figure.set_size_inches(10.2, 9.6)
    axes, names = figure.subplots(3, 3), drawn_of(tables)
    for axis, (name, statistic), letter in zip(axes.ravel(), PANELS, "abcdefghi", strict=True):
        table = tables[name]
        figures.line_panel(axis, table, names, statistic)
        if name == "actions" and statistic in RATES and "CAELMIPS" in names:
            label, rate = RATES[statistic]
            k = np.array(table.places, dtype=np.float64)
            start = table.point(table.places[0], "CAELMIPS", statistic)
            axis.plot(k, start * rate(k) / rate(k[0]), color="#555555", ls=(0, (1, 1)), lw=1.2)
            axis.annotate(label, (k[-1], start * rate(k[-1]) / rate(k[0])), xytext=(-4, 4), textcoords="offset points",
                          ha="right", fontsize=7.5, color="#555555")  # fmt: skip
        axis.set_title(f"({letter})", loc="left", fontsize=9)
    figures.legend(figure, axes[0, 0])


DRAWN = {"figure-1": figure_1, "figure-2": figure_2, "figure-3": figure_3}
