"""Course: what a lift adds up to as time goes on, for a picture."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.engine.answer import Answer
from cael.engine.moments import Combination, Moments
from cael.inference.intervals import Interval
from cael.results.lifts import Lifted
from cael.results.scope import date_of
from cael.results.segment_noise import value_of

MOST_POINTS = 24


@final
@dataclass(frozen=True)
class Point:
    """The lift over the first rows: their number, the day of the last (None without dates), the sum of the lift over
    them, and its interval."""

    rows: int
    day: str | None
    total: float
    low: float
    high: float


def course_of(answer: Answer, lifted: Lifted, interval: Interval, factor: float) -> tuple[Point, ...]:
    """Sums of the lift over the first rows; of the last point they are those of the interval of the lift. factor: of
    that interval.

    The noise of a sum grows with the root of the sums of squares so far, the allowance for a bias with the rows. Empty
    where the estimate keeps no sums, or the rows are not in the order of time.
    """
    sums, parts = lifted.lift.sums, answer.partial.stretches
    if sums is None or len(parts) < 2 or (answer.log.timed and not ordered(answer)):
        return ()
    rows = np.cumsum([part.moments.total for part in parts])
    totals = np.cumsum([part.moments.total * value_of(sums, part.moments) for part in parts])
    squares = np.cumsum([_squares(sums, part.moments) for part in parts])
    if not squares[-1] > 0:
        return ()
    noise = lifted.lift.reach(factor, biased=False)
    shares, n = np.sqrt(squares / squares[-1]), rows[-1]
    ends = []
    for reach, end, side in zip(noise, (interval.low, interval.high), (-1, 1), strict=True):
        bias = max(side * (end - lifted.lift.value) - reach, 0.0)
        ends.append(totals + side * (n * reach * shares + bias * rows))
    kept = np.unique(np.linspace(0, len(parts) - 1, MOST_POINTS).round().astype(int))
    return tuple(
        Point(
            int(rows[at]), None if parts[at].high is None else day_of(parts[at].high), float(totals[at]),
            float(ends[0][at]), float(ends[1][at]),
        )
        for at in kept.tolist()
    )  # fmt: skip


def _squares(sums: Combination, part: Moments) -> float:
    """The sum over rows of the squares of their influences, as far as sampling weights go."""
    return float(sums.coefficients @ part.noise @ sums.coefficients) / part.scale**2


def day_of(time: object) -> str | None:
    """The day of a time that is a date."""
    return date_of(time) if isinstance(time, np.datetime64) else None


def ordered(answer: Answer) -> bool:
    """Whether the stretches of rows follow each other in time."""
    parts = [part for part in answer.partial.stretches if part.low is not None]
    return all(a.high <= b.low for a, b in itertools.pairwise(parts))
