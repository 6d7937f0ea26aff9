"""Counts, means and errors of some logs of a trust run, each with what Monte Carlo leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from cael.common.types import Floats
from cael.experiments.broken import BREAKS

Row: TypeAlias = dict[str, Any]
Count: TypeAlias = list[int]
"""[how many, of how many]."""

POPULATION = "population"
"""The first word of the names of worlds that were drawn at random."""
SOUND, PROPENSITIES = tuple(BREAKS)[:2]
SHUFFLED = tuple(name for name in BREAKS if name.startswith("actions shuffled"))
HEADLINES = {"plain": "SNDR", "learned": "Auto"}
LOW = 20.0
"""Below this n / E w^2 an "ok" must be right."""
EVERY = (0.0, math.inf)
CLASSES = ((0.0, 10.0), (10.0, 100.0), (100.0, math.inf))
EFFECTLESS = ("actions do not matter", "rare clicks, equal arms")
"""Worlds in which no action is better than another."""
BEYOND_THE_LOG = ("deficient",)
"""Worlds whose weights do not average 1, as the logging policy leaves actions out."""
LEARNS = ("learning policy",)
"""Worlds whose logged rewards drift, as the logging policy changes."""
NOT_RIVALS = ("LoggedMean",)
UNLIKELY = 0.01
"""A count that is less likely than this under its target is beyond Monte Carlo error."""


def both_of(rows: Iterable[Row]) -> list[Row]:
    """Sound logs with both evaluations."""
    return [
        row
        for row in rows
        if row["condition"] == SOUND and row["learned"] and "best" in row["learned"] and "best" in row["plain"]
    ]


def within(rows: Iterable[Row], bounds: Sequence[float]) -> list[Row]:
    """Those of a class of overlap; logs whose target plays what the logging policy never does are in none."""
    return [row for row in rows if row["overlap"] > 0 and bounds[0] <= row["overlap"] < bounds[1]]


def by_world(rows: Iterable[Row], *, merged: bool = False) -> dict[str, list[Row]]:
    """The logs of each world. merged: the population is one world."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(POPULATION if merged and is_drawn(row) else row["world"], []).append(row)
    return groups


def is_drawn(row: Row) -> bool:
    """Whether a log is of the population."""
    return bool(row["world"].startswith(f"{POPULATION} "))


def holds_truth(triple: Sequence[float], truth: float) -> bool:
    """Whether an interval, after its value, holds the truth, to the seven digits that are kept."""
    slack = 1e-6 * max(abs(truth), abs(triple[2] - triple[1]))
    return triple[1] - slack <= truth <= triple[2] + slack


def count(values: Iterable[bool]) -> Count:
    listed = list(values)
    return [sum(map(bool, listed)), len(listed)]


def mean_and_error(values: Floats) -> list[float]:
    """The mean and its Monte Carlo standard error; of one value, its size."""
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else abs(values[0])
    return [float(values.mean()), float(error)]


def ratio_of(top: Floats, bottom: Floats) -> list[float]:
    """The ratio of two paired means, and its Monte Carlo standard error by the delta method; 1 ± 1 over 0."""
    if bottom.mean() == 0:
        return [1.0, 1.0]
    ratio = top.mean() / bottom.mean()
    return [float(ratio), mean_and_error(top - ratio * bottom)[1] / float(bottom.mean())]


def geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if len(values) else math.nan


def unlikely(counted: Sequence[int], share: float, *, more: bool) -> bool:
    """Whether so many (more), or so few, of so many are beyond Monte Carlo error. share: the target."""
    from scipy.special import bdtr, bdtrc

    hits, trials = counted
    if trials == 0:
        return False
    tail = (bdtrc(hits - 1, trials, share) if hits else 1.0) if more else bdtr(hits, trials, share)
    return bool(tail < UNLIKELY)


def width(triple: Sequence[float]) -> float:
    return triple[2] - triple[1]


def excludes_0(triple: Sequence[float]) -> bool:
    return triple[1] > 0 or triple[2] < 0


def widths(rows: Sequence[Row], kind: str) -> Floats:
    return np.array([width(row[kind]["best"]) for row in rows])


def errors(rows: Sequence[Row], kind: str) -> Floats:
    return np.array([row[kind]["best"][0] - row["truth"] for row in rows])


def stretch(rows: Sequence[Row], kind: str, scale: Floats | float = 1.0) -> float:
    """Mean width over 3.92 times the root mean squared error. scale: what both are divided by first, row by row."""
    rmse = float(np.sqrt(np.mean((errors(rows, kind) / scale) ** 2)))
    return float((widths(rows, kind) / scale).mean() / (3.92 * rmse)) if rmse else math.nan


def decisions(rows: Sequence[Row]) -> dict[str, Any]:
    """Coverage, power and the direction of lifts, for both headlines; paired: the two losses of power."""
    facts: dict[str, Any] = {}
    for kind, name in HEADLINES.items():
        facts[name] = {
            "covers": count(holds_truth(row[kind]["best"], row["truth"]) for row in rows),
            "lift_covers": count(holds_truth(row[kind]["lift"], row["true_lift"]) for row in rows),
            "power": count(excludes_0(row[kind]["lift"]) for row in rows),
        }
    shown = [[excludes_0(row[kind]["lift"]) for kind in HEADLINES] for row in rows]
    facts["lost"] = sum(plain and not learned for plain, learned in shown)
    facts["won"] = sum(learned and not plain for plain, learned in shown)
    return facts
