"""From a record batch to the arrays of its rows, cast and checked as at the door of `cael.read`, flaws counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import LARGEST, InputError
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.eligibility import Calendar, eligible_in
from cael.io.encode import Actions, action_numbers, matrix
from cael.io.kinds import is_text
from cael.io.roles import Columns
from cael.io.sources import Source
from cael.log.eligible import Eligible
from cael.log.keys import FILE_BITS, SALT, distinct_keys, folds_of_keys, seeded
from cael.log.logged import Batch, at_rows
from cael.log.scratch import Scratch

SHOWN = 5
"""Rows that a message names."""


@final
@dataclass(frozen=True, eq=False)
class Door:
    """How the columns of a log become arrays; the same for every batch. roles: of those that are needed, the others
    None. categories: whether contexts may be text, which becomes columns of 0 and 1. calendar: of eligible actions.
    portion: (number, seed) where only rows are read whose own number with this seed is larger; None: all rows are."""

    roles: Columns
    actions: Actions
    segments: tuple[str, ...] = ()
    categories: bool = False
    calendar: Calendar | None = None
    portion: tuple[int, int] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        roles = self.roles
        names = [
            roles.action,
            roles.reward,
            roles.propensity,
            roles.cluster,
            roles.timestamp,
            roles.id,
            roles.of_eligible,
        ]
        return unique([*names, *self.segments, *(roles.contexts or ())])


def unique(columns: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in columns if name is not None))


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """What a pass reads: the columns, by their names and as what, and how many rows at a time. name: of the log.
    door: None for a log in memory. types: of the columns of CSV files. most: bytes of a batch, where rows turn out to
    be wider than the first ones."""

    name: str
    door: Door | None
    columns: tuple[str, ...]
    types: dict[str, Any]
    size: int
    n_actions: int
    most: float = math.inf

    def at_most(self, rows: int) -> Reading:
        return replace(self, size=max(1, min(self.size, rows)))


@final
@dataclass(frozen=True, eq=False)
class Piece:
    """The rows of a batch that are kept. source: the batch as a table, all rows (None: the log is in memory). rows:
    (n,) places of the kept rows in it, None for all. contexts: (n, d). clusters: (n,) 64-bit hashes. segments: (labels,
    codes (n,)) for each column. read: rows of the batch. file, first: the number of the file, and of the first row in
    it. numbers: of the rows in a log in memory. known_places: of the rows, where `first` does not tell them. ids: (n,)
    64-bit hashes of the decisions' ids. eligible: the actions that could be taken; None: all.
    """

    source: Source | None
    rows: Ints | None
    actions: Ints
    rewards: Floats
    propensities: Floats | None
    contexts: Floats
    clusters: Array | None
    times: Array | None
    segments: tuple[tuple[list[str], Ints], ...]
    flaws: tuple[Flaw, ...]
    read: int
    n_actions: int
    features: Floats | None
    file: int = 0
    first: int = 0
    numbers: slice | Ints | None = None
    known_places: Ints | None = None
    ids: Array | None = None
    eligible: Eligible | None = None

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def places(self) -> Ints:
        """(n,) numbers that tell the rows of all files apart: the row in its file, and above it the file."""
        if self.known_places is not None:
            return self.known_places
        return (self.file << FILE_BITS) + self.first + np.arange(self.read)[self.kept]

    @property
    def kept(self) -> slice | Ints:
        """Which rows of the batch are kept."""
        return slice(None) if self.rows is None else self.rows

    @property
    def keys(self) -> Array:
        """(n,) 64 bits that rows of one cluster share, or that are the row's own: its place in the files."""
        return self.places.astype(np.uint64) if self.clusters is None else self.clusters

    def folds(self, count: int, seed: int) -> Ints:
        """The fold (n,) of each row."""
        return folds_of_keys(self.keys, count, seed)

    def batch(self, part: slice | None = None) -> Batch:
        """Rows of the piece, by default all, as policies and models see them; they are counted within the piece."""
        whole = Batch(
            slice(0, len(self)), self.contexts, self.actions, self.rewards, self.propensities, self.n_actions,
            self.features, self.places, self.eligible,
        )  # fmt: skip
        return whole if part is None else whole.part(part)


def piece_of(source: Source, door: Door, file: int = 0) -> Piece:
    """The arrays of a batch and what is wrong in it; rows with a flaw are left out."""
    roles, n = door.roles, source.memory.num_rows
    flaws: list[Flaw] = []

    def read(column: Any, values_of: Callable[[Any, Source], tuple[Any, list[Flaw]]]) -> Any:
        if column is None:
            return None
        values, more = values_of(column, source)
        flaws.extend(more)
        return values

    actions = read(roles.action, lambda column, source: actions_of(column, source, door.actions))
    rewards, propensities = read(roles.reward, numbers_of), read(roles.propensity, _propensities)
    contexts = read(
        roles.contexts or (),
        lambda names, source: matrix(source, names, n, categories=door.categories, cast=cells.measured)[::2],
    )
    clusters = read(roles.cluster, hashes_of)
    times = read(roles.timestamp, lambda column, source: cells.times(column, source.chunks(column)))
    ids, segments = read(roles.id, hashes_of), tuple(_segment(name, source) for name in door.segments)
    eligible, more = eligible_in(source, roles, door.actions, actions, door.calendar)
    flaws += more
    whole = Piece(
        source, None, actions, rewards, propensities, contexts, clusters, times, segments, tuple(flaws), n,
        len(door.actions), door.actions.features, file, source.origin[1] if source.origin else 0, ids=ids,
        eligible=eligible,
    )  # fmt: skip
    piece = _without_flaws(whole) if flaws else whole
    return piece if door.portion is None else _within(piece, *door.portion)


def _within(piece: Piece, above: int, seed: int) -> Piece:
    """The rows whose number is above the given one."""
    rows = np.flatnonzero(seeded(piece.keys, seed, SALT) > np.uint64(above))
    return _only(piece, rows, rows if piece.rows is None else piece.rows[rows])


def _propensities(column: str, source: Source) -> tuple[Floats, list[Flaw]]:
    propensities = numbers_within(column, source, 1 / LARGEST, 1.0)
    return cells.propensities(column, source.chunks(column)) if propensities is None else (propensities, [])


def _without_flaws(piece: Piece) -> Piece:
    bad = np.zeros(piece.read, dtype=bool)
    for flaw in piece.flaws:
        bad[flaw.rows] = True
    rows = np.flatnonzero(~bad)
    return _only(piece, rows, rows)


def _only(piece: Piece, rows: Ints, places: Ints) -> Piece:
    """Some rows of a piece; places: where they stand in its table."""
    eligible = None if piece.eligible is None else piece.eligible.part(rows)
    per_row = ("actions", "rewards", "propensities", "contexts", "clusters", "times", "ids")
    return replace(
        piece, rows=places, eligible=eligible,
        segments=tuple((labels, codes[rows]) for labels, codes in piece.segments),
        **{name: at_rows(getattr(piece, name), rows) for name in per_row},
    )  # fmt: skip


def numbers_of(column: str, source: Source) -> tuple[Floats, list[Flaw]]:
    """As `cells.measured`; a column of numbers without a flaw is looked at once."""
    values = numbers_within(column, source, -LARGEST, LARGEST)
    return cells.measured(column, source.chunks(column)) if values is None else (values, [])


def numbers_within(column: str, source: Source, low: float, high: float) -> Floats | None:
    """A column of numbers of which all are there and in [low, high]; None where it is not so."""
    import pyarrow.types as t

    chunks = source.chunks(column)
    kind = chunks[0].type if len(chunks) == 1 else None
    if kind is None or chunks[0].null_count or not (t.is_integer(kind) or t.is_floating(kind)):
        return None
    values = chunks[0].to_numpy(zero_copy_only=False)
    if len(values) and not low <= float(values.min()) <= float(values.max()) <= high:  # nor is NaN in between
        return None
    return (source.scratch or Scratch()).cast(column, values)


def actions_of(column: str, source: Source, actions: Actions) -> tuple[Ints, list[Flaw]]:
    """Action numbers; whole numbers that are the numbers of the actions themselves are taken as they are."""
    import pyarrow.types as t

    chunks = source.chunks(column)
    if len(chunks) == 1 and chunks[0].null_count == 0 and t.is_integer(chunks[0].type) and actions.plain:
        values = chunks[0].to_numpy(zero_copy_only=False)
        if values.min(initial=0) >= 0 and values.max(initial=0) < len(actions):
            return (source.scratch or Scratch()).cast("action numbers", values, np.intp), []
    return action_numbers(column, chunks, actions)


def hashes_of(column: str, source: Source) -> tuple[Array, list[Flaw]]:
    """64 bits for each label that are the same in every batch, file and process."""
    codes, distinct, flaws = cells.labels(column, source.labels(column))
    return np.append(distinct_keys(list(distinct)), np.uint64(0))[codes], flaws


def _segment(column: str, source: Source) -> tuple[list[str], Ints]:
    codes, distinct, _ = cells.labels(column, source.labels(column))
    labels = [*map(str, distinct), "(missing)"]
    return labels, np.where(codes < 0, len(distinct), codes)


@final
@dataclass(frozen=True)
class Flaws:
    """Cells of a column that are wrong, over many batches: how many, the first of them as (file, row in it)."""

    column: str
    what: str
    count: int
    places: tuple[tuple[int, int], ...]
    example: str

    def merge(self, other: Flaws) -> Flaws:
        places = tuple(sorted({*self.places, *other.places})[:SHOWN])
        first = self if not other.places or self.places[:1] <= other.places[:1] else other
        return replace(self, count=self.count + other.count, places=places, example=first.example)


def flaws_of(piece: Piece, file: int, first: int) -> dict[tuple[str, str], Flaws]:
    """The flaws of a batch whose first row is the given one of a file."""
    flaws = {}
    for flaw in piece.flaws:
        places = tuple((file, first + int(row)) for row in flaw.rows[:SHOWN])
        flaws[flaw.column, flaw.what] = Flaws(flaw.column, flaw.what, len(flaw.rows), places, flaw.example)
    return flaws


def told_flaws(all_flaws: list[Flaws], names: Sequence[str], starts: Sequence[int]) -> str:
    """All of them in words. names: of the files. starts: number in the log of each file's first row."""
    sentences = []
    for flaws in all_flaws:
        example = f", such as {flaws.example}," if flaws.example else ""
        places = [
            f"{starts[file] + row}" + (f" ({names[file]}: {row})" if len(names) > 1 else "")
            for file, row in flaws.places
        ]
        more = ", ..." if flaws.count > len(places) else ""
        plural = "s" if flaws.count > 1 else ""
        sentences.append(
            f"column {flaws.column!r} {flaws.what}{example} in {flaws.count:,} row{plural} "
            f"(row{plural} {', '.join(places)}{more})"
        )
    return "; ".join(sentences)


def refuse_text_contexts(source: Source, roles: Columns) -> None:
    """Contexts of a stream are numbers: categories would have to be known before the first batch."""
    text = [name for name in roles.contexts or () if is_text(source.type_of(name))]
    if text:
        raise InputError(
            f"column {text[0]!r} holds text, and the contexts of a streamed log must be numbers. Name the contexts "
            "(contexts=, --contexts), or encode it."
        )
