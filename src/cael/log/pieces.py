"""From a record batch to the arrays of its rows, cast and checked as at the door of `cael.read`, flaws counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import LARGEST, InputError
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.eligibility import Calendar, eligible_in
from cael.io.encode import Actions, action_numbers, matrix
from cael.io.kinds import is_text
from cael.io.missing import Filling
from cael.io.roles import Columns
from cael.io.sources import Source
from cael.log.batch import Batch, at_rows
from cael.log.eligible import Eligible
from cael.log.flaws import Flaws, counted
from cael.log.keys import FILE_BITS, SALT, distinct_keys, folds_of_keys, seeded
from cael.log.measure import Measure
from cael.log.scratch import Scratch


@final
@dataclass(frozen=True, eq=False)
class Door:
    """How the columns of a log become arrays; the same for every batch. roles: of those that are needed, the others
    None. categories: whether contexts may be text, which becomes columns of 0 and 1. calendar: of eligible actions.
    fillings: of contexts with missing numbers; look: they are found in the rows at hand. measures: the metrics that are
    summed, the first of which is the reward; none: the reward alone. portion: (number, seed) where only rows are read
    whose own number with this seed is larger; None: all rows are."""

    roles: Columns
    actions: Actions
    segments: tuple[str, ...] = ()
    categories: bool = False
    calendar: Calendar | None = None
    measures: tuple[Measure, ...] = ()
    fillings: Mapping[str, Filling] | None = None
    look: bool = False
    portion: tuple[int, int] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        roles = self.roles
        names = [
            roles.action,
            roles.reward,
            roles.propensity,
            roles.sampling_weight,
            roles.cluster,
            roles.timestamp,
            roles.id,
            roles.of_eligible,
            *(roles.metric or ()),
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
    64-bit hashes of the decisions' ids. eligible: the actions that could be taken; None: all. metrics: (n,)
    each, further rewards, and cut: how many of the reward and of them lie above their caps. sampling: (n,) weights.
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
    metrics: tuple[Floats, ...] = ()
    cut: tuple[int, ...] = ()
    sampling: Floats | None = None

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

    @property
    def counted(self) -> Floats:
        """(n,) how often each row counts: its sampling weight, or 1."""
        return np.ones(len(self)) if self.sampling is None else self.sampling

    def folds(self, count: int, seed: int) -> Ints:
        """The fold (n,) of each row."""
        return folds_of_keys(self.keys, count, seed)

    def only(self, rows: Ints) -> Piece:
        """The piece without all other rows of its batch, of which none was left out before."""
        per_row = ("actions", "rewards", "propensities", "contexts", "clusters", "times", "ids", "sampling")
        return replace(
            self, rows=rows, eligible=None if self.eligible is None else self.eligible.part(rows),
            segments=tuple((labels, codes[rows]) for labels, codes in self.segments),
            metrics=tuple(column[rows] for column in self.metrics),
            **{name: at_rows(getattr(self, name), rows) for name in per_row},
        )  # fmt: skip

    def batch(self, part: slice | None = None) -> Batch:
        """Rows of the piece, by default all, as policies and models see them; they are counted within the piece."""
        whole = Batch(
            slice(0, len(self)), self.contexts, self.actions, self.rewards, self.propensities, self.n_actions,
            self.features, self.places, self.eligible,
        )  # fmt: skip
        return whole if part is None else whole.part(part)


Values: TypeAlias = Callable[[str, Source], tuple[Any, list[Flaw]]]


@final
@dataclass(frozen=True, eq=False)
class RowArrays:
    """The columns of a table or a batch as arrays, all rows. arrays: by their names in a `Piece` (None: there is none).
    flaws: of all rows. notes: what was done on the way. metrics: further rewards, by column."""

    arrays: dict[str, Any]
    segments: tuple[tuple[list[str], Ints], ...]
    eligible: Eligible | None
    flaws: tuple[Flaw, ...]
    notes: list[str]
    metrics: dict[str, Floats]

    @property
    def sound(self) -> Ints:
        """The rows without a flaw."""
        bad = np.zeros(len(self.arrays["actions"]), dtype=bool)
        for flaw in self.flaws:
            bad[flaw.rows] = True
        return np.flatnonzero(~bad)


def row_arrays(
    source: Source, door: Door, actions: tuple[Ints, list[Flaw]], clusters: Values, ids: Values
) -> RowArrays:
    """Every column of a table read, cast and checked, in memory and in a pass alike. actions: their numbers, and what
    is wrong with them. clusters, ids: what labels of these become."""
    roles, flaws = door.roles, list(actions[1])

    def read(column: Any, values_of: Values) -> Any:
        values, more = (None, []) if column is None else values_of(column, source)
        flaws.extend(more)
        return values

    rewards, propensities = read(roles.reward, numbers_of), read(roles.propensity, _propensities)
    contexts, notes, more = matrix(
        source,
        roles.contexts or (),
        len(actions[0]),
        categories=door.categories,
        cast=cells.measured,
        fillings=door.fillings,
        fill=door.look,
    )
    flaws += more
    arrays = {
        "actions": actions[0], "rewards": rewards, "propensities": propensities, "contexts": contexts,
        "clusters": read(roles.cluster, clusters), "times": read(roles.timestamp, _times), "ids": read(roles.id, ids),
        "sampling": read(roles.sampling_weight, _sampling),
    }  # fmt: skip
    metrics = {column: read(column, numbers_of) for column in roles.metric or ()}
    segments = tuple(segment_of(name, source) for name in door.segments)
    eligible, more = eligible_in(source, roles, door.actions, actions[0], door.calendar)
    return RowArrays(arrays, segments, eligible, (*flaws, *more), notes, metrics)


def piece_of(source: Source, door: Door, file: int = 0) -> Piece:
    """The arrays of a batch and what is wrong in it; rows with a flaw are left out."""
    actions = actions_of(str(door.roles.action), source, door.actions)
    rows = row_arrays(source, door, actions, hashes_of, hashes_of)
    whole = Piece(
        source, None, **rows.arrays, segments=rows.segments, flaws=rows.flaws, read=source.memory.num_rows,
        n_actions=len(door.actions), features=door.actions.features, file=file,
        first=source.origin[1] if source.origin else 0, eligible=rows.eligible,
        metrics=tuple(rows.metrics.values()),
    )  # fmt: skip
    piece = measured(whole.only(rows.sound) if rows.flaws else whole, door)
    return piece if door.portion is None else _within(piece, *door.portion)


def _within(piece: Piece, above: int, seed: int) -> Piece:
    """The rows whose number is above the given one."""
    rows = np.flatnonzero(seeded(piece.keys, seed, SALT) > np.uint64(above))
    return replace(piece.only(rows), rows=rows if piece.rows is None else piece.rows[rows])


def measured(piece: Piece, door: Door) -> Piece:
    """The piece with the rewards that its door measures, from all the metrics that were read and checked."""
    columns = dict(zip((door.roles.reward, *(door.roles.metric or ())), (piece.rewards, *piece.metrics), strict=True))
    values = [columns[measure.column] for measure in door.measures]
    if not values:
        return replace(piece, metrics=()) if piece.metrics else piece
    rewards, *metrics = (measure.of(column) for measure, column in zip(door.measures, values, strict=True))
    cut = tuple(measure.changed(column) for measure, column in zip(door.measures, values, strict=True))
    return replace(piece, rewards=rewards, metrics=tuple(metrics), cut=cut)


def _times(column: str, source: Source) -> tuple[Array, list[Flaw]]:
    return cells.times(column, source.chunks(column))


def _propensities(column: str, source: Source) -> tuple[Floats, list[Flaw]]:
    chunks = source.chunks(column)
    propensities = numbers_of_chunks(column, source, chunks, 1 / LARGEST, 1.0)
    return cells.propensities(column, chunks) if propensities is None else (propensities, [])


def _sampling(column: str, source: Source) -> tuple[Floats, list[Flaw]]:
    chunks = source.chunks(column)
    weights = numbers_of_chunks(column, source, chunks, 1 / LARGEST, LARGEST)
    return cells.sampling_weights(column, chunks) if weights is None else (weights, [])


def numbers_of(column: str, source: Source) -> tuple[Floats, list[Flaw]]:
    """As `cells.measured`; a column of numbers without a flaw is looked at once."""
    chunks = source.chunks(column)  # of files, each time reads them
    values = numbers_of_chunks(column, source, chunks, -LARGEST, LARGEST)
    return cells.measured(column, chunks) if values is None else (values, [])


def numbers_within(column: str, source: Source, low: float, high: float) -> Floats | None:
    """A column of numbers of which all are there and in [low, high]; None where it is not so."""
    return numbers_of_chunks(column, source, source.chunks(column), low, high)


def numbers_of_chunks(column: str, source: Source, chunks: Sequence[Any], low: float, high: float) -> Floats | None:
    """The same of its chunks."""
    import pyarrow.types as t

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
    return action_numbers(column, chunks, actions, actions.beyond)


def hashes_of(column: str, source: Source) -> tuple[Array, list[Flaw]]:
    """64 bits for each label that are the same in every batch, file and process."""
    codes, distinct, flaws = cells.labels(column, source.labels(column))
    return np.append(distinct_keys(list(distinct)), np.uint64(0))[codes], flaws


UNLABELLED = "(missing)"
"""What rows without a label of a segment are called."""


def segment_of(column: str, source: Source) -> tuple[list[str], Ints]:
    """The labels of a column, and the number (n,) of each row's."""
    codes, distinct, _ = cells.labels(column, source.labels(column))
    if UNLABELLED in distinct:
        raise InputError(
            f"column {column!r} has the label {UNLABELLED!r}, which rows without a label are called. Rename it, or "
            "leave the cells empty."
        )
    labels = [*map(str, distinct), UNLABELLED]
    return labels, np.where(codes < 0, len(distinct), codes)


def flaws_of(piece: Piece, file: int, first: int) -> dict[tuple[str, str], Flaws]:
    """The flaws of a batch whose first row is the given one of a file."""
    return counted(piece.flaws, file, first)


def refuse_text_contexts(source: Source, roles: Columns) -> None:
    """Contexts of a stream are numbers: categories would have to be known before the first batch."""
    text = [name for name in roles.contexts or () if is_text(source.type_of(name))]
    if text:
        raise InputError(
            f"column {text[0]!r} holds text, and the contexts of a streamed log must be numbers. Name the contexts "
            "(contexts=, --contexts), or encode it."
        )
