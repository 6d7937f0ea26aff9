"""What is wrong with the rows of a log, counted and put into words: the same of a table in memory and of a pass."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from cael.errors import LogError
from cael.io.cell_advice import NO_REWARD, SEVERAL, advice_of
from cael.io.cells import MISSING, Flaw, sentence

SHOWN = 5
"""Rows that a message names."""
REPEATS = "repeats the id of an earlier decision"
NOTHING = "gives the logged action probability 0"
OTHERWISE = "gives the logged action another probability"
LOGGING = "logging"
"""The column of such a flaw. No row is left out for it: the logging policy is wrong, or its columns."""


@final
@dataclass(frozen=True)
class Flaws:
    """Cells of a column that are wrong, over many batches: how many, the first of them as (file, row in it)."""

    column: str
    what: str
    count: int
    places: tuple[tuple[int, int], ...]
    example: str = ""

    def merge(self, later: Flaws) -> Flaws:
        places = tuple(sorted({*self.places, *later.places})[:SHOWN])
        first = self if not later.places or self.places[:1] <= later.places[:1] else later
        return replace(self, count=self.count + later.count, places=places, example=first.example)


def counted(flaws: Iterable[Flaw], file: int, first: int) -> dict[tuple[str, str], Flaws]:
    """The flaws of rows of which the first is the given one of a file."""
    return {
        (flaw.column, flaw.what): Flaws(
            flaw.column, flaw.what, len(flaw.rows), tuple((file, first + int(row)) for row in flaw.rows[:SHOWN]),
            flaw.example,
        )
        for flaw in flaws
    }  # fmt: skip


@final
@dataclass(frozen=True)
class Numbering:
    """The rows of a log by their numbers. files: their names. sizes: their rows, none of a table in memory."""

    files: tuple[str, ...]
    sizes: tuple[int, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number in the log of each file's first row."""
        return tuple(itertools.accumulate(self.sizes[:-1], initial=0))

    def place(self, row: int) -> tuple[int, int]:
        """(file, row in it) of a row of the log."""
        file = bisect_right(self.starts, row) - 1
        return file, row - self.starts[file]

    def shown(self, place: tuple[int, int]) -> str:
        """The number of the row, with its file where there are several."""
        file, row = place
        return f"{self.starts[file] + row}" + (f" ({self.files[file]}: {row})" if len(self.files) > 1 else "")


@final
@dataclass(frozen=True)
class RowReport:
    """What is wrong with the rows of a log. read, bad: rows, and those of them that have a flaw. order: of columns.
    reward: that of the rewards."""

    name: str
    read: int
    bad: int
    flaws: tuple[Flaws, ...]
    rows: Numbering
    order: Sequence[str] = ()
    reward: str | None = None

    @property
    def sorted(self) -> list[Flaws]:
        """The flaws by column and first row, so that they are the same however the log is cut."""
        rank = {column: at for at, column in enumerate(self.order)}
        return sorted(self.flaws, key=lambda flaws: (rank.get(flaws.column, len(rank)), flaws.places[:1], flaws.what))

    @property
    def reasons(self) -> str:
        """What is wrong, in words."""
        return "; ".join(
            sentence(flaws.column, flaws.what, flaws.example, flaws.count, [*map(self.rows.shown, flaws.places)])
            for flaws in self.sorted
        )

    @property
    def advice(self) -> list[str]:
        """What to do about what is often written so, each once."""
        return [*dict.fromkeys(advice for flaws in self.sorted if (advice := self._advice(flaws)))]

    def _advice(self, flaws: Flaws) -> str:
        if flaws.what.startswith(REPEATS):
            return SEVERAL.format(flaws.column)
        if flaws.what == MISSING and flaws.column == self.reward:
            return NO_REWARD
        return advice_of(flaws.what, flaws.example)

    def settled(self, drop_invalid: bool) -> tuple[tuple[tuple[str, int], ...], list[str]]:
        """Why rows are left out, and what to say about it; an error where nobody asked for that."""
        if not self.flaws:
            return (), []
        if not drop_invalid:
            raise LogError(
                f"{self.name}: {self.bad:,} of {self.read:,} rows are invalid: {self.reasons}. Rows are counted "
                f"from 0. {''.join(f'{advice} ' for advice in self.advice)}Correct them, or leave them out knowingly "
                "with drop_invalid=True (--drop-invalid)."
            )
        twice = tuple(flaws for flaws in self.flaws if flaws.what.startswith(REPEATS))
        if twice:
            raise LogError(
                f"{self.name}: {replace(self, flaws=twice).reasons}. Only you know which of two such rows is right: "
                "remove the other one. drop_invalid (--drop-invalid) leaves out rows that are wrong by themselves."
            )
        if self.bad == self.read:
            raise LogError(f"{self.name}: every one of the {self.read:,} rows is invalid: {self.reasons}.")
        dropped = tuple((f"column {flaws.column!r} {flaws.what}", flaws.count) for flaws in self.sorted)
        why = "; ".join(f"{reason} ({count:,})" for reason, count in dropped)
        return dropped, [f"{self.bad:,} of {self.read:,} rows were left out because they are invalid: {why}."]


def contradiction(flaws: Iterable[Flaws], rows: Numbering) -> str:
    """What to say of a logging policy that the log contradicts: first of probabilities that are 0."""
    worst = min(flaws, key=lambda flaws: flaws.what != NOTHING)
    row = f"row {rows.shown(worst.places[0])}"
    if worst.what == NOTHING:
        count = f" ({worst.count:,} such rows)" if worst.count > 1 else ""
        return (
            f"the logging policy {NOTHING}; {row} has 0.0{count}. Check that the columns of logging are in the order "
            "of the actions."
        )
    return (
        f"propensities and logging disagree on {worst.count:,} row{'s' if worst.count > 1 else ''}: {row} has "
        f"{worst.example}. Check row order and the layout of the columns; where actions come and go, say which were "
        "eligible (eligible=, --eligible)."
    )
