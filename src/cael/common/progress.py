"""Progress on stderr for long work; silent when stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_BELOW = 200
"""Work of fewer steps shows no bar."""


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function that tells how many steps were done; a bar with the time left, if anyone can see it."""
    if total < QUIET_BELOW or not sys.stderr.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)
