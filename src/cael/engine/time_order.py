"""Stretches of a log in memory in the order of its timestamps."""

from __future__ import annotations

import numpy as np

from cael.common.types import Array, Floats
from cael.engine.moments import about_mean
from cael.engine.partial import Stretch
from cael.engine.work import STRETCHES


def stretches_by_time(timestamps: Array, block: Floats) -> tuple[Stretch, ...]:
    """Stretches of equal numbers of rows of columns (p, n), by time."""
    order = np.argsort(timestamps, kind="stable")
    numbers = np.arange(len(order)) * STRETCHES // len(order)
    bounds = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(order)]
    stretches, start = [], 0
    for stop in bounds:
        rows = order[start:stop]
        part = block[:, rows]
        moments = about_mean(part, part.mean(axis=1))
        stretches.append(Stretch(int(numbers[start]), (0, start), moments, timestamps[rows[0]], timestamps[rows[-1]]))
        start = stop
    return tuple(stretches)
