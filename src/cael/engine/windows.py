"""Time periods of a scanned log: windows of equal numbers of rows, where the files are in the order of time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cael.common.types import Array, Ints
from cael.errors import InputError, positive_int
from cael.log.held import EngineLog
from cael.log.pieces import Piece

if TYPE_CHECKING:
    from cael.engine.partial import Partial

FEWEST_ROWS = 20
"""A segment or a window has at least so many rows."""


@final
@dataclass(frozen=True)
class Windows:
    """count: of them. rows: of the log. starts: the number of the first row of each file."""

    count: int
    rows: int
    starts: tuple[int, ...]

    def of(self, piece: Piece) -> Ints:
        """The window of each row."""
        rows = np.arange(piece.read) if piece.rows is None else piece.rows
        return (self.starts[piece.file] + piece.first + rows) * self.count // self.rows

    def first(self, number: int) -> int:
        """The number of the first row of a window."""
        return -(-number * self.rows // self.count)


def windows_of(log: EngineLog, count: int) -> Windows:
    """So many windows, if the log has its rows counted."""
    positive_int("windows", count, least=2)
    if log.rows is None:
        raise InputError(
            f"windows={count} needs the number of rows beforehand, which text files do not state. Write the log "
            "as Parquet."
        )
    if log.rows < FEWEST_ROWS * count:
        raise InputError(f"windows={count} needs at least {FEWEST_ROWS * count} rows; the log has {log.rows}.")
    return Windows(count, log.rows, log.starts)


@final
@dataclass
class Times:
    """The timestamps of a task as it is read. span: the first and the last of them. first: the least of each window."""

    span: tuple[Any, Any] | None = None
    ordered: bool = True

    def __post_init__(self) -> None:
        self.first: dict[int, Any] = {}

    def add(self, times: Array, window: Ints) -> None:
        later = self.span is None or times[0] >= self.span[1]
        self.ordered &= bool(later and (times[1:] >= times[:-1]).all())
        self.span = (times[0] if self.span is None else self.span[0], times[-1])
        for number in np.unique(window).tolist():
            least = times[window == number].min()
            self.first[number] = min(self.first.get(number, least), least)


def refuse_disorder(partial: Partial) -> None:
    """Windows are cut by the order of the rows, which must be that of time."""
    spans = [partial.spans[key] for key in sorted(partial.spans)]
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or any(a[1] > b[0] for a, b in itertools.pairwise(known)):
        raise InputError(
            "windows of a scanned log are cut by the order of its rows, and the timestamps of this log are not in "
            "order. Sort the files by time, or read the log into memory (cael.read)."
        )


def names_of(windows: Windows, partial: Partial) -> list[str]:
    """As for a log in memory: the number of the window, and its first row or time."""
    return [window_name(number, windows.first(number), partial.firsts.get(number)) for number in range(windows.count)]


def window_name(number: int, row: int, first: Any) -> str:
    """Of a window that begins with a row, and a time where there are any."""
    if first is None:
        return f"{number + 1}: from row {row:,}"
    if isinstance(first, np.datetime64):
        return f"{number + 1}: {str(first)[:16].replace('T', ' ')}"
    return f"{number + 1}: from {first:g}"
