"""A uniform sample of the rows of a scanned log, drawn in a pass, to train models on.

Every row, or every cluster, has a number that is a hash of its place (or label) and of the seed. The sample is the rows
with the smallest numbers, so that it does not depend on how the log is cut, and samples of parts of it merge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.common.types import Array, Ints
from cael.engine.passes import reduced
from cael.errors import InputError
from cael.io.reading import Task
from cael.io.sources import Source
from cael.log.keys import folds_of_keys, keys_of, places_of
from cael.log.logged import LoggedData
from cael.log.pieces import Door, Flaws, Piece, flaws_of, mixed, piece_of
from cael.log.scanned import ScannedLog
from cael.log.targets import Target
from cael.policies.policy import Policy

SALT = 0x5A3B1E5A3B1E
"""Keeps the numbers of the sample apart from those of the folds."""
CLUSTERED = 4
"""Of clusters, whose number and sizes are not known, so many times as many are looked at."""
SLACK = 2
"""Rows are thrown out when there are so many times too many: not for each batch."""
EVERY = int(np.iinfo(np.uint64).max)


@final
@dataclass(frozen=True, eq=False)
class DrawWork:
    """The pass that draws: at most `most` rows, of those whose number is at most `limit`."""

    name: str
    door: Door
    columns: tuple[str, ...]
    types: dict[str, Any]
    size: int
    seed: int
    most: int
    limit: int


@final
@dataclass(frozen=True, eq=False)
class Drawn:
    """Some rows of a log as a table, and what is needed to draw on. read: rows that were read, by file. rows: of them
    without a flaw. most: rows to keep. limit: the largest number that may still be among them. numbers: (m,) of the
    kept rows. files, places: (m,) where they stand. counts: (k,) how often each action occurs among all rows.
    """

    read: dict[int, int]
    rows: int
    flaws: dict[tuple[str, str], Flaws]
    most: int
    limit: int
    table: Any
    numbers: Array
    files: Ints
    places: Ints
    counts: Ints
    crowded: bool = False

    def merge(self, other: Drawn) -> Drawn:
        import pyarrow as pa

        flaws = {
            key: self.flaws[key].merge(other.flaws[key])
            if key in self.flaws and key in other.flaws
            else self.flaws.get(key, other.flaws.get(key))
            for key in {**self.flaws, **other.flaws}
        }
        tables = [each.table for each in (self, other) if each.table is not None]
        joined = Drawn(
            {key: self.read.get(key, 0) + other.read.get(key, 0) for key in {**self.read, **other.read}},
            self.rows + other.rows, flaws, self.most, min(self.limit, other.limit),  # type: ignore[arg-type]
            pa.concat_tables(tables, promote_options="permissive") if tables else None,
            np.concatenate([self.numbers, other.numbers]), np.concatenate([self.files, other.files]),
            np.concatenate([self.places, other.places]), self.counts + other.counts,
        )  # fmt: skip
        return joined.cut(SLACK)

    def cut(self, times: int = 1) -> Drawn:
        """At most `most` rows, where there are more than so many times as many: those below the number of the first
        that is too many, so that clusters stay whole."""
        kept = self.numbers <= np.uint64(self.limit)
        limit, left = self.limit, self.numbers[kept]
        if len(left) > times * self.most:
            limit = int(np.partition(left, self.most)[self.most]) - 1
            kept = self.numbers <= np.uint64(max(limit, 0))
        return self if kept.all() else replace(self, limit=max(limit, 0)).only(np.flatnonzero(kept))

    def only(self, rows: Ints) -> Drawn:
        return replace(
            self, table=None if self.table is None else self.table.take(rows), numbers=self.numbers[rows],
            files=self.files[rows], places=self.places[rows],
        )  # fmt: skip

    def in_order(self) -> Drawn:
        """The rows in the order of the log."""
        return self.only(np.lexsort((self.places, self.files)))


def draw_run(work: DrawWork, task: Task) -> Drawn:
    """The sample of one task."""
    import pyarrow as pa

    from cael.engine.work import pieces

    none = np.empty(0, np.uint64), np.empty(0, np.intp), np.empty(0, np.intp)
    k = len(work.door.actions)
    found = Drawn({task.number: 0}, 0, {}, work.most, work.limit, None, *none, np.zeros(k, np.intp))
    for at, piece in pieces(work.name, task, work.door, work.columns, work.size, work.types):
        numbers = mixed(keys_of(piece, task.number) ^ np.uint64((SALT + work.seed * 0x9E3779B1) % 2**64))
        kept = np.flatnonzero(numbers <= np.uint64(work.limit))
        inside = kept if piece.rows is None else piece.rows[kept]
        table = pa.Table.from_batches([piece.source.memory]).take(inside) if len(inside) else None
        own = Drawn(
            {task.number: piece.read}, len(piece), flaws_of(piece, task.number, at), work.most, work.limit, table,
            numbers[kept], np.full(len(kept), task.number, np.intp), places_of(piece)[kept],
            np.bincount(piece.actions, minlength=k),
        )  # fmt: skip
        found = found.merge(own)
    return found.cut()


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """The drawn rows as a log in memory, without its policies. piece: the rows, as they were read.
    keys: (m,) what folds are drawn by. places: (m,) numbers that tell the rows of all files apart."""

    log: LoggedData
    piece: Piece
    keys: Array
    places: Ints

    def folds(self, count: int, seed: int) -> list[Ints]:
        """The rows of each fold: the same folds as of all rows of the stream."""
        fold = folds_of_keys(self.keys, count, seed)
        return [np.flatnonzero(fold == each) for each in range(count)]

    def first(self, count: int, seed: int, each: int) -> Ints:
        """The first rows of every fold, in their order."""
        return np.sort(np.concatenate([rows[:each] for rows in self.folds(count, seed)]))

    def policy(self, target: Target, log: ScannedLog) -> Policy:
        """The policy on these rows; where it is made of columns, they must have been read."""
        return target.on(self.piece, log.actions, lambda: self.keys)


def draw(log: ScannedLog, columns: tuple[str, ...], size: int, most: int, seed: int) -> tuple[Drawn, Sample | None]:
    """What a pass found, and the sample of at most `most` rows; None with fewer than two. size: of a batch."""
    # Of a log whose length is known, rows that will hardly be among the smallest are not kept at all.
    share = 1.0 if not log.rows else (most + 6 * np.sqrt(most)) / log.rows
    share *= 1 if log.columns.cluster is None else CLUSTERED
    limit = EVERY if share >= 1 else int(share * EVERY)
    door = log.door(contexts=True, times=False)
    work = DrawWork(log.source.name, door, columns, log.csv_types, size, seed, most, limit)
    found = reduced(draw_run, work, log.tasks, log.workers, log.client).cut().in_order()
    places = (found.files << 44) + found.places
    return found, None if len(found.numbers) < 2 else _sample(log, found.table, places)


def read_again(log: ScannedLog, sample: Sample, rows: Ints, columns: tuple[str, ...], size: int) -> Sample:
    """Some rows of the sample, in their order, with more columns. They are early ones: reading stops at the last."""
    import pyarrow as pa

    from cael.engine.work import pieces

    wanted, found, left = sample.places[rows], [], len(rows)
    door = log.door(contexts=True, times=False)
    for task in log.tasks:
        for _, piece in pieces(log.source.name, task, door, columns, size, log.csv_types) if left else ():
            own = np.flatnonzero(np.isin((task.number << 44) + places_of(piece), wanted))
            if len(own):
                inside = own if piece.rows is None else piece.rows[own]
                found.append(pa.Table.from_batches([piece.source.memory]).take(inside))
                left -= len(own)
            if not left:
                break
    if left:
        raise InputError(f"{log.source.name} changed while the log was read. Nothing may write to its files.")
    return _sample(log, pa.concat_tables(found, promote_options="permissive"), wanted)


def _sample(log: ScannedLog, table: Any, places: Ints) -> Sample:
    kinds = tuple(zip(table.column_names, table.schema.types, strict=True))
    piece = piece_of(Source(log.source.name, kinds, memory=table), log.door(contexts=True, times=False))
    if len(piece) != len(places):
        raise InputError(f"{log.source.name} changed while the log was read. Nothing may write to its files.")
    clusters = None if piece.clusters is None else np.unique(piece.clusters, return_inverse=True)[1]
    made = LoggedData(
        piece.contexts, piece.actions, piece.rewards, n_actions=log.n_actions, action_features=log.action_features,
        clusters=clusters, copy=False,
    )  # fmt: skip
    return Sample(made, piece, places.astype(np.uint64) if piece.clusters is None else piece.clusters, places)
