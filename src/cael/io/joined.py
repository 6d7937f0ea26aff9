"""Decisions in one table and their rewards in another, joined by a column that both have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from cael.errors import InputError
from cael.io.csv_files import whole
from cael.io.files import File
from cael.io.kinds import is_number, kind_of
from cael.io.spool import spooled, temporary

Opener: TypeAlias = Callable[[Any], tuple[File, ...]]


@final
@dataclass(frozen=True)
class Joined:
    """Decisions and rewards: `Joined("assignments.jsonl", "metrics.parquet", on="subject")`, in place of a path.

    log : where the decisions are, a path or a query. rewards : a table with a row for each value of the column `on`;
    its other columns are added to those of the log. Values without a row have no reward, which is an error unless
    `no_reward` says what they earned, such as 0 where only conversions are written down.
    """

    log: Any
    rewards: Any
    on: str
    no_reward: float | None = None

    def __str__(self) -> str:
        return f"{self.log} with {self.rewards}"


def read_joined(joined: Joined, opened: Opener) -> tuple[File, ...]:
    """The decisions with their rewards, as a temporary Parquet file. opened: what finds the files of a path."""
    import pyarrow as pa

    log = [file.opened() for file in opened(joined.log)]
    rewards, keys = _rewards(joined, opened)
    schema = log[0].schema()
    if joined.on not in schema.names:
        raise InputError(
            f"{joined.log} has no column {joined.on!r} to join rewards by; it has {', '.join(schema.names)}."
        )
    both = [name for name in rewards.column_names if name in schema.names]
    if both:
        raise InputError(f"{joined.log} and {joined.rewards} both have a column {both[0]!r}: rename one of them.")
    schema = pa.schema([*schema, *rewards.schema])
    used: list[Any] = []
    folder = temporary(str(joined.log))
    file = spooled(
        folder, log[0].path.name, schema, _rows(joined, log, rewards, keys, schema, used), source=str(joined)
    )
    seen = pa.chunked_array(used)
    _refuse_repeats(
        joined, "the log", seen, "its reward would count for each of them: keep one row, or join by a decision's id"
    )
    notes = (*log[0].notes, _matched(joined, seen, keys))
    return (File(file.path, file.format, stamp=file.stamp, held=file.held, notes=notes, actions=log[0].actions),)


def _rewards(joined: Joined, opened: Opener) -> tuple[Any, Any]:
    """The rewards without their key, and the keys."""
    import pyarrow as pa

    files = [file.opened() for file in opened(joined.rewards)]
    table = pa.concat_tables(
        [pa.Table.from_batches(file.batches(file.schema().names), file.schema()) for file in files],
        promote_options="permissive",
    )
    if joined.on not in table.column_names:
        raise InputError(
            f"{joined.rewards} has no column {joined.on!r} to join by; it has {', '.join(table.column_names)}."
        )
    keys = table.column(joined.on)
    _refuse_repeats(joined, str(joined.rewards), keys, "add its rewards up first, as over the days after the decision")
    return table.drop_columns([joined.on]), keys.combine_chunks()


def _refuse_repeats(joined: Joined, where: str, keys: Any, cure: str) -> None:
    import pyarrow.compute as pc

    counts = pc.value_counts(keys.drop_null())
    often = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(often):
        value, rows = often.field("values")[0].as_py(), often.field("counts")[0].as_py()
        raise InputError(
            f"{joined}: {joined.on!r} {value!r} is in {rows:,} rows of {where} ({len(often):,} such values); {cure}."
        )


def _rows(joined: Joined, log: list[File], rewards: Any, keys: Any, schema: Any, used: list[Any]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = log[0].schema().names
    for file in log:
        for batch in file.batches(names):
            own = _as(batch.column(names.index(joined.on)), keys.type, joined)
            used.append(own)
            rows = rewards.take(pc.index_in(own, value_set=keys))
            more = [_filled(column.combine_chunks(), joined.no_reward) for column in rows.columns]
            yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema)


def _as(own: Any, kind: Any, joined: Joined) -> Any:
    """Keys of the log as the type of those of the rewards; numbers and text are never taken for each other."""
    if kind_of(own.type) != kind_of(kind):
        number = whole(own) if is_number(kind) and kind_of(own.type) == "text" else None
        if number is None:
            raise InputError(
                f"{joined}: {joined.on!r} holds {own.type} in the log and {kind} in the rewards: write both alike."
            )
        own = number
    return own.cast(kind)


def _filled(column: Any, value: float | None) -> Any:
    import pyarrow.compute as pc

    return column if value is None or not is_number(column.type) else pc.fill_null(column, _scalar(value, column.type))


def _scalar(value: float, kind: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.scalar(value).cast(kind)
    except pa.ArrowInvalid:
        raise InputError(
            f"no_reward is {value!r}, and the rewards are {kind}: write them as floating point numbers."
        ) from None


def _matched(joined: Joined, seen: Any, keys: Any) -> str:
    import pyarrow.compute as pc

    rows = pc.sum(pc.is_in(seen, value_set=keys)).as_py() or 0
    alone = len(keys) - rows
    rest = "no reward" if joined.no_reward is None else f"the reward {joined.no_reward:g}"
    return (
        f"{rows:,} of {len(seen):,} decisions have a row in {joined.rewards}, by {joined.on!r}; the others have "
        f"{rest}. "
        f"{alone:,} of its {len(keys):,} rows belong to no decision."
    )
