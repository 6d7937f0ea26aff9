"""Stretches of time of a scanned log: windows of equal numbers of rows, where the files are in the order of time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cael.common.types import Array, Ints
from cael.errors import InputError, positive_int
from cael.log.keys import places_of
from cael.log.pieces import Piece
from cael.log.scanned import ScannedLog
from cael.results.segmentation import FEWEST_ROWS, window_name

if TYPE_CHECKING:
    from cael.engine.partial import Partial


@final
@dataclass(frozen=True)
class Windows:
    """count: of them. rows: of the log. starts: the number of the first row of each file."""

    count: int
    rows: int
    starts: tuple[int, ...]

    def of(self, piece: Piece, file: int) -> Ints:
        """The window of each row."""
        return (self.starts[file] + places_of(piece)) * self.count // self.rows

    def first(self, number: int) -> int:
        """The number of the first row of a window."""
        return -(-number * self.rows // self.count)


def windows_of(log: ScannedLog, count: int) -> Windows:
    """So many windows, if the log has its rows counted."""
    positive_int("windows", count, least=2)
    if log.rows is None:
        raise InputError(
            f"windows={count} need to know the number of rows beforehand, which {log.source.files[0].format} files do "
            "not tell. Write the log as Parquet."
        )
    if log.rows < FEWEST_ROWS * count:
        raise InputError(f"windows={count} needs at least {FEWEST_ROWS * count} rows; the log has {log.rows}.")
    sizes = np.zeros(len(log.source.files), dtype=np.int64)
    for task in log.tasks:
        sizes[task.number] += task.rows or 0
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return Windows(count, log.rows, tuple(int(each) for each in starts))


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
            own = times[window == number].min()
            self.first[number] = min(self.first.get(number, own), own)


def refuse_disorder(partial: Partial) -> None:
    """Windows are cut by the order of the rows, which must be that of time."""
    spans = [partial.spans[key] for key in sorted(partial.spans)]
    known = [each for each in spans if each is not None]
    if len(known) < len(spans) or any(a[1] > b[0] for a, b in itertools.pairwise(known)):
        raise InputError(
            "windows of a scanned log are cut by the order of its rows, and the timestamps of this log are not in "
            "order. Sort the files by time, or read the log into memory (cael.read)."
        )


def names_of(windows: Windows, partial: Partial) -> list[str]:
    """As of a log in memory: the number of the window, and its first row or time."""
    return [window_name(number, windows.first(number), partial.firsts.get(number)) for number in range(windows.count)]
