"""A sample of a scanned log in memory: runs of rows from all over its files, for checks that look at single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cael.errors import InputError
from cael.io.reading import Task, batches
from cael.io.sources import Source
from cael.judging.survey import MOST_ROWS, evenly
from cael.log.budget import COPIES, PROGRAM
from cael.log.logged import LoggedData
from cael.log.measure import Measure
from cael.log.pieces import Piece, piece_of

if TYPE_CHECKING:
    from cael.log.scanned import ScannedLog

MOST_RUNS = 64


def sampled(log: ScannedLog) -> LoggedData | None:
    """At most 200,000 rows (fewer where the budget is small), all of a short log; None where hardly any are valid. All
    of its metrics are metrics of these rows, the reward among them."""
    names = (log.reward_name, *(log.columns.metric or ()))
    piece = _sampled(log.measuring(tuple(map(Measure, names))))
    if piece is None:
        return None
    return LoggedData(
        piece.contexts, piece.actions, piece.rewards, piece.propensities, n_actions=log.n_actions,
        eligible=piece.eligible, sampling_weights=piece.sampling, copy=False,
        metrics=dict(zip(names, (piece.rewards, *piece.metrics), strict=False)),
    )  # fmt: skip


def _sampled(log: ScannedLog) -> Piece | None:
    door = log.door(contexts=True, times=False, categories=True, clusters=False)
    columns = list(door.columns)
    table = rows_of(log.tasks, columns, log.csv_types, room(log, columns))
    if table is None:
        return None
    source = Source(log.source.name, tuple(zip(table.column_names, table.schema.types, strict=True)), memory=table)
    try:
        piece = piece_of(source, door)
    except InputError:  # contexts that cannot be made into numbers: the checks do without them
        piece = piece_of(source, log.door(times=False, clusters=False))
    return piece if len(piece) > 1 else None


def room(log: Any, columns: Sequence[str]) -> int:
    """Rows that a quarter of the budget holds."""
    width = log.row_bytes(columns)
    return int(np.clip((log.budget.memory - PROGRAM) / 4 / (COPIES * width), 1000, MOST_ROWS))


def rows_of(tasks: Sequence[Task], columns: Sequence[str], types: dict[str, Any], most: int) -> Any:
    """A table of the first rows of evenly spaced tasks, `most` in all; of all rows where there are no more."""
    import pyarrow as pa

    chosen = [tasks[at] for at in evenly(len(tasks), MOST_RUNS)]
    known = [task.rows for task in tasks]
    short = len(chosen) == len(tasks) and all(rows is not None for rows in known) and sum(filter(None, known)) <= most
    quota = most if short else max(1, most // len(chosen))
    parts = []
    for task in chosen:
        left = quota
        for batch in batches(task, columns, min(left, 2**16), types):
            parts.append(pa.Table.from_batches([batch.slice(0, left)]))
            left -= batch.num_rows
            if left <= 0:
                break
    return pa.concat_tables(parts, promote_options="permissive") if parts else None
