"""Progress on stderr for long work: a bar in a terminal, now and then a line in Jupyter, nothing elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

QUIET_BELOW = 200
"""Work of fewer steps shows no bar."""
PAUSE = 5.0
"""Seconds between two lines in Jupyter; shorter work says nothing."""


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function that tells how many steps were done; a bar with the time left, if anyone can see it.

    The environment variable CAEL_QUIET=1 turns it off.
    """
    if total < QUIET_BELOW or os.environ.get("CAEL_QUIET") == "1":
        yield lambda steps: None
    elif in_jupyter():
        yield lines_of(label, total)
    elif sys.stderr.isatty():
        with bar_of(label, total) as advance:
            yield advance
    else:
        yield lambda steps: None


@contextmanager
def bar_of(label: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)


def lines_of(label: str, total: int) -> Callable[[int], None]:
    """A function that prints the share that is done, at most every few seconds."""
    done, last = 0, monotonic()

    def advance(steps: int) -> None:
        nonlocal done, last
        done += steps
        if monotonic() - last > PAUSE:
            last = monotonic()
            print(f"{label}: {min(done / total, 1.0):.0%}", file=sys.stderr, flush=True)

    return advance


def in_jupyter() -> bool:
    """Whether this is the kernel of a notebook."""
    return "ipykernel" in sys.modules and hasattr(sys.stderr, "parent_header")
