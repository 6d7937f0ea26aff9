"""What follows from a lift: its interval as a share of the baseline, and the chance that it is positive."""

from __future__ import annotations

import math
from collections.abc import Callable

from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import moved
from cael.inference.ratio import CLEAR

FURTHEST = 8.0
"""Standard errors beyond which a chance is 1 to every digit that is printed."""
LEAST = 1e-3
"""The smallest factor at which an interval is looked at."""
STEPS = 100
"""Steps to a root: ten or so are usual."""
DOUBLINGS = 60


def relative_interval(lift: Estimate, baseline: Estimate, factor: float, level: float) -> Interval | None:
    """The interval of lift / |baseline| by Fieller's theorem: all s for which that of lift - s |baseline| holds 0.

    It excludes 0 exactly where the interval of the lift does, and it is what a relative margin is judged by.

    factor: standard errors of the interval that decisions rest on. None: the baseline is too near to 0, or the estimate
    keeps no sums. Reference: Fieller (1954), J. R. Stat. Soc. B 16, 175-185.
    """
    size = abs(baseline.value)
    if lift.sums is None or baseline.sums is None or size <= CLEAR * baseline.error:
        return None
    sign = math.copysign(1.0, baseline.value)

    def end(share: float, side: int) -> float:
        rest = moved(lift, -share * sign, baseline)
        return rest.value + side * rest.reach(factor)[side > 0]

    centre, step = lift.value / size, max(sum(lift.reach(factor)) / size, 1e-12)
    low = root(lambda share: end(share, -1), centre, -step)
    high = root(lambda share: end(share, 1), centre, step)
    return None if low is None or high is None else Interval(low, high, level, "Fieller")


def root(f: Callable[[float], float], start: float, step: float) -> float | None:
    """Where a function that falls changes its sign, from a start in the direction of the step; None: nowhere."""
    first = f(start)
    if first == 0:
        return start
    for _ in range(DOUBLINGS):
        second = f(start + step)
        if (first > 0) != (second > 0):
            return between(f, (start, first), (start + step, second), 1e-9 * abs(step))
        step *= 2
    return None


def between(f: Callable[[float], float], a: tuple[float, float], b: tuple[float, float], width: float) -> float:
    """The root between two points (x, f(x)) on both sides of it, by false position; an end that stays counts half
    (Illinois). scipy.optimize would take 10 MB of memory for this."""
    (left, above), (right, below), last = a, b, b[0]
    for _ in range(STEPS):
        point = right - below * (right - left) / (below - above)
        value = f(point)
        if value == 0 or abs(point - last) <= width:
            return point
        last = point
        if (value > 0) != (below > 0):
            left, above = right, below
        else:
            above /= 2
        right, below = point, value
    return last


def chance_positive(lift: Estimate) -> float:
    """The chance that a lift is above 0.

    Of all its intervals the largest that excludes 0 has level c: the chance is (1 + c) / 2 where it lies above 0, and
    (1 - c) / 2 where it lies below.

    That is one minus the one-sided p-value: a probability for who had no opinion before and takes the error for normal.
    Where the interval allows for a bias, the bias is taken at its bound against the direction of the lift.
    """
    from scipy.special import ndtr

    side = int(lift.value < 0)  # 0: the end below counts
    size = abs(lift.value)
    if size == 0 or lift.reach(LEAST)[side] >= size:
        return 0.5
    low, high = LEAST, FURTHEST
    if lift.reach(high)[side] < size:
        return 1.0 - side
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if lift.reach(middle)[side] < size else (low, middle)
    chance = float(ndtr(low))
    return 1 - chance if side else chance
