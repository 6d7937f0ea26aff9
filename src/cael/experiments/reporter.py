"""Progress of an experiment on stderr: how many trials are done, and how long the rest will take."""

from __future__ import annotations

import sys
import time
from typing import final

EVERY = 30.0
"""Seconds between lines where stderr is not a terminal."""


@final
class Reporter:
    """One line that is written over on a terminal, else a line now and then."""

    def __init__(self, name: str, total: int, before: int, *, quiet: bool = False) -> None:
        self._name, self._total, self._before, self._quiet = name, total, before, quiet
        self._now = before
        self._start = self._last = time.monotonic()
        if before and not quiet:
            print(f"{name}: {before} of {total} trials are there already", file=sys.stderr, flush=True)

    def done(self, count: int) -> None:
        self._now += count
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if self._quiet or now - self._last < (0.2 if terminal else EVERY):
            return
        self._last = now
        left = (now - self._start) / (self._now - self._before) * (self._total - self._now)
        text = f"{self._name}: {self._now} of {self._total} trials, {duration(left)} left"
        print(f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        if not self._quiet:
            start = "\r\033[K" if sys.stderr.isatty() else ""
            spent = duration(time.monotonic() - self._start)
            print(f"{start}{self._name}: {self._total} trials, {spent}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """In the largest unit that fits.

    >>> duration(75), duration(7300), duration(12)
    ('1.2 min', '2.0 h', '12 s')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
