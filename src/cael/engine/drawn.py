"""A uniform sample of the rows of a scanned log, drawn in a pass, to train models on.

Every row, or every cluster, has a number that is a hash of its place (or label) and of the seed. The sample is the rows
with the smallest numbers, so that it does not depend on how the log is cut, and samples of parts of it merge.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.common.types import Array, Ints
from cael.engine.partial import merged, united
from cael.engine.passes import pieces, reduced
from cael.engine.row_pass import refuse_rows_of
from cael.errors import InputError
from cael.io.reading import Task
from cael.io.sources import Source
from cael.log.budget import LEARNING
from cael.log.flaws import Flaws
from cael.log.held import Held, Run
from cael.log.keys import SALT, seeded
from cael.log.logged import LoggedData
from cael.log.pieces import Piece, Reading, flaws_of, piece_of
from cael.log.row_checks import Contradicted
from cael.log.targets import Target
from cael.policies.policy import Policy

CLUSTERED = 4
"""Of clusters, whose number and sizes are not known, so many times as many are looked at."""
SLACK = 2
"""Rows are thrown out when there are so many times too many: not for each batch."""
EVERY = int(np.iinfo(np.uint64).max)
NO_ROWS = "there are no rows to train models on: no whole cluster fits into the sample."


@final
@dataclass(frozen=True, eq=False)
class DrawWork:
    """The pass that draws: at most `most` rows, of those whose number is at most `limit`."""

    reading: Reading
    seed: int
    most: int
    limit: int


@final
@dataclass(frozen=True, eq=False)
class Drawn:
    """Some rows of a log as a table, and what is needed to draw on. read: rows that were read, by file. rows: of them
    without a flaw. most: rows to keep. limit: the largest number that may still be among them. numbers: (m,) of the
    kept rows. places: (m,) where they stand. counts: (k,) how often each action occurs among all rows.
    """

    read: dict[int, int]
    rows: int
    flaws: dict[tuple[str, str], Flaws]
    most: int
    limit: int
    table: Any
    numbers: Array
    places: Ints
    counts: Ints
    crowded: bool = False

    def merge(self, other: Drawn) -> Drawn:
        import pyarrow as pa

        tables = [drawn.table for drawn in (self, other) if drawn.table is not None]
        joined = Drawn(
            united(self.read, other.read, operator.add), self.rows + other.rows, merged(self.flaws, other.flaws),
            self.most, min(self.limit, other.limit),
            pa.concat_tables(tables, promote_options="permissive") if tables else None,
            np.concatenate([self.numbers, other.numbers]), np.concatenate([self.places, other.places]),
            self.counts + other.counts,
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
            places=self.places[rows],
        )  # fmt: skip


def draw_run(work: DrawWork, task: Task) -> Drawn:
    """The sample of one task."""
    import pyarrow as pa

    k = work.reading.n_actions
    drawn = Drawn(
        {task.number: 0}, 0, {}, work.most, work.limit, None, np.empty(0, np.uint64), np.empty(0, np.intp),
        np.zeros(k, np.intp),
    )  # fmt: skip
    for at, piece in pieces(work.reading, task):
        numbers = seeded(piece.keys, work.seed, SALT)
        kept = np.flatnonzero(numbers <= np.uint64(work.limit))
        inside = kept if piece.rows is None else piece.rows[kept]
        assert piece.source is not None
        table = pa.Table.from_batches([piece.source.memory]).take(inside) if len(inside) else None
        batch = Drawn(
            {task.number: piece.read}, len(piece), flaws_of(piece, task.number, at), work.most, work.limit, table,
            numbers[kept], piece.places[kept], np.bincount(piece.actions, minlength=k),
        )  # fmt: skip
        drawn = drawn.merge(batch)
    return drawn.cut()


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """The drawn rows as a log in memory. policies: of targets on these rows, where it has none of its own. of: rows
    of the log that they were drawn from. counts: (k,) of the actions among all of them."""

    log: LoggedData
    piece: Piece
    of: int
    counts: Ints

    def folds(self, count: int, seed: int) -> list[Ints]:
        """The rows of each fold: those of the whole log."""
        return list(self.log.folds(count, seed))

    def policy(self, target: Target) -> Policy:
        """The policy on these rows; where it is made of columns, they must have been read."""
        return target.on(self.piece)


def sample_in_memory(log: LoggedData, most: int, seed: int) -> Sample:
    """At most so many rows of a log in memory, drawn at random in whole clusters: like those of a log in files."""
    counts = np.bincount(log.actions, minlength=log.n_actions)
    part = log
    if len(log) > most:
        numbers = seeded(log.keys, seed, SALT)
        rows = np.flatnonzero(numbers < np.partition(numbers, most)[most])
        if len(rows) < 2:
            raise InputError(NO_ROWS)
        part = log.take(rows)
    return Sample(part, Run(part, 0, len(part)).piece(slice(0, len(part))), len(log), counts)


def sample_of(log: Any, rows: int, seed: int, training: int = LEARNING, more: tuple[str, ...] = ()) -> Sample:
    """At most so many rows of a log, and no more than the memory budget holds, drawn at random in whole clusters.

    training: bytes that training on them will take. more: further columns that are read, for policies.
    """
    if isinstance(log, Held):
        return sample_in_memory(log.log, rows, seed)
    columns = log.reading(contexts=True, columns=more)
    width = log.row_bytes(columns.columns) + 8 * (len(log.columns.contexts or ()) + 4)
    drawn = draw(log, columns, min(rows, log.budget.sample_rows(width, training)), seed)
    log.checked(drawn)
    if len(drawn.numbers) < 2:
        raise InputError(NO_ROWS)
    return _sample(log, drawn)


def draw(log: Any, reading: Reading, most: int, seed: int) -> Drawn:
    """What a pass found that drew at most so many rows."""
    # Of a log whose length is known, rows that will hardly be among the smallest are not kept at all.
    share = 1.0 if not log.rows else (most + 6 * np.sqrt(most)) / log.rows
    share *= CLUSTERED if log.clustered else 1
    limit = EVERY if share >= 1 else int(share * EVERY)
    drawn = reduced(draw_run, DrawWork(reading, seed, most, limit), log).cut()
    return drawn.only(np.argsort(drawn.places, kind="stable"))


def _sample(log: Any, drawn: Drawn) -> Sample:
    table = drawn.table
    kinds = tuple(zip(table.column_names, table.schema.types, strict=True))
    piece = piece_of(Source(log.source.name, kinds, memory=table), log.door(contexts=True))
    if len(piece) != len(drawn.places):
        raise InputError(f"{log.source.name} changed while the log was read. Nothing may write to its files.")
    piece = replace(piece, known_places=drawn.places)
    rows = LoggedData(
        piece.contexts, piece.actions, piece.rewards, n_actions=log.n_actions, action_features=log.action_features,
        clusters=piece.clusters, eligible=piece.eligible, sampling_weights=piece.sampling, copy=False,
    ).placed(drawn.places).keyed(piece.clusters)  # fmt: skip
    return Sample(rows, piece, drawn.rows, drawn.counts)


def with_logging(log: Any, sample: Sample) -> LoggedData:
    """The rows of a sample with what is known of the logging policy, for which its columns must have been read."""
    rows = sample.log
    if isinstance(log, Held):
        return rows
    logging = None if log.logging is None else sample.policy(log.logging)
    try:
        known = LoggedData(
            rows.contexts, rows.actions, rows.rewards, propensities=sample.piece.propensities, logging=logging,
            n_actions=rows.n_actions, action_features=rows.action_features, clusters=rows.clusters,
            timestamps=sample.piece.times, eligible=rows.eligible, sampling_weights=rows.sampling_weights, copy=False,
            metrics=dict(zip([measure.column for measure in log.measures[1:]], sample.piece.metrics, strict=True)),
        )  # fmt: skip
    except Contradicted:
        refuse_rows_of(log)
    return known.placed(sample.piece.places).keyed(rows.cluster_keys)
