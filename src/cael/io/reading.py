"""Files of a scanned log in bounded pieces: which tasks there are, and the record batches of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cael.errors import InputError
from cael.io import kinds
from cael.io.files import File, find, readable
from cael.io.sources import Source

TASK_ROWS = 4_000_000
CSV_BLOCK = 4 * 2**20
PARQUET_BUFFER = 2**17
"""Bytes of a column that are read at a time; more would leave the processor's cache before they are decoded."""
ENDS = 2**16


@final
@dataclass(frozen=True)
class Task:
    """A part of a log that one worker reads: a file (its number among the files), or some row groups of one.

    first: number of its first row in the file. rows: how many it has, where that is known beforehand.
    """

    number: int
    file: File
    size: int
    first: int = 0
    groups: tuple[int, ...] | None = None
    rows: int | None = None


def found_files(source: Any) -> tuple[tuple[File, ...], str]:
    """The files that a path, or several, mean, and a name for all of them."""
    if isinstance(source, str | Path):
        paths: list[Any] = [source]
    elif isinstance(source, list | tuple) and source and all(isinstance(each, str | Path) for each in source):
        paths = list(source)
    else:
        raise InputError(
            f"scan reads files: expected a path, a pattern or several paths; got a {type(source).__name__}. A table "
            "in memory goes to cael.read."
        )
    if str(paths[0]).endswith(".npz"):
        raise InputError(f"{paths[0]}: an .npz log is read whole. Write it as Parquet to stream it, or use cael.read.")
    name = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    return tuple(file for each in paths for file in find(each)), name


def schema_of(file: File) -> Any:
    """Names and types of the columns; of a CSV file as its first block shows them."""
    if file.format != "csv":
        return file.schema()
    import pyarrow as pa

    with readable(file.path), _csv(file.path, None) as reader:
        schema = reader.schema
        _ = schema.names
    for name, _ in file.parts:
        schema = schema.append(pa.field(name, pa.string()))
    return schema


def _csv(path: Path, types: dict[str, Any] | None) -> Any:
    from pyarrow import csv

    tab = path.name.lower().endswith((".tsv", ".tsv.gz"))
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=CSV_BLOCK, use_threads=False),
        parse_options=csv.ParseOptions(delimiter="\t" if tab else ",", newlines_in_values=True),
        convert_options=csv.ConvertOptions(quoted_strings_can_be_null=False, column_types=types or {}),
    )


def kind_of(type_: Any) -> str:
    """What a type is good for: numbers, text, lists; others by their own name."""
    for name, holds in (("list", kinds.is_list), ("text", kinds.is_text), ("number", kinds.is_number)):
        if holds(type_):
            return name
    return str(type_)


def opened(files: tuple[File, ...], name: str) -> Source:
    """The table that the files make together; all have the same columns, of the same kinds."""
    first = schema_of(files[0])
    kinds = {column: kind_of(type_) for column, type_ in zip(first.names, first.types, strict=True)}
    if len(kinds) < len(first.names):
        raise InputError(f"{files[0].path} has two columns of one name: rename one of them.")
    for file in files[1:]:
        same_columns(file, schema_of(file), kinds, files[0].path, name)
    return Source(name, tuple(zip(first.names, first.types, strict=True)), files)


def same_columns(file: File, schema: Any, kinds: dict[str, str], other: Path, name: str) -> None:
    """Refuse a file whose columns are not those of the others, by name or by kind."""
    own = {column: kind_of(type_) for column, type_ in zip(schema.names, schema.types, strict=True)}
    missing, extra = [each for each in kinds if each not in own], [each for each in own if each not in kinds]
    apart = [each for each in kinds if each in own and own[each] != kinds[each] and file.format != "csv"]
    if missing:
        told = f"has no column {missing[0]!r}"
    elif extra:
        told = f"has the column {extra[0]!r} besides"
    elif apart:
        told = f"has {own[apart[0]]} and not {kinds[apart[0]]} in column {apart[0]!r}"
    else:
        return
    raise InputError(f"the files of {name} differ: {file.path} {told}, compared with {other}.")


def tasks_of(files: tuple[File, ...]) -> tuple[Task, ...]:
    """Files, and large Parquet files in runs of row groups."""
    found = []
    for number, file in enumerate(files):
        with readable(file.path):
            size = file.path.stat().st_size
        found += list(_runs(number, file, size)) if file.format == "parquet" else [Task(number, file, size)]
    return tuple(found)


def _runs(number: int, file: File, size: int) -> Iterator[Task]:
    import pyarrow.parquet as pq

    with readable(file.path), pq.ParquetFile(file.path) as opened_file:
        counts = [opened_file.metadata.row_group(at).num_rows for at in range(opened_file.num_row_groups)]
    first, groups, rows = 0, [], 0
    enough = sum(counts) / max(1, -(-sum(counts) // TASK_ROWS))  # runs of about the same length
    for at, count in enumerate(counts):
        groups.append(at)
        rows += count
        if rows >= enough or at == len(counts) - 1:
            yield Task(number, file, size, first, tuple(groups), rows)
            first, groups, rows = first + rows, [], 0


def batches(task: Task, columns: Sequence[str], size: int, types: dict[str, Any]) -> Iterator[Any]:
    """Record batches of at most `size` rows, in order. types: of CSV columns, the same for all files."""
    own = dict(task.file.parts)
    stored = [name for name in columns if name not in own] or None
    with readable(task.file.path):
        if task.file.path.stat().st_size != task.size:
            raise InputError(f"{task.file.path} changed while the log was read. Nothing may write to its files.")
        simple: bool | None = None
        for batch in _stored(task, stored, size, types):
            if simple is None:
                simple = task.file.format != "arrow" and all(kind_of(each) == "number" for each in batch.schema.types)
            if not simple:
                batch.validate(full=True)  # text must be UTF-8; wrong offsets would end the process
            yield _named(batch, columns, own)


def _stored(task: Task, columns: list[str] | None, size: int, types: dict[str, Any]) -> Iterator[Any]:
    path = task.file.path
    if task.file.format == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path, buffer_size=PARQUET_BUFFER, pre_buffer=False) as file:
            if task.groups and task.groups[-1] >= file.num_row_groups:
                raise InputError(f"{path} changed while the log was read. Nothing may write to its files.")
            yield from file.iter_batches(size, row_groups=task.groups, columns=columns, use_threads=False)
        return
    source = _csv(path, types) if task.file.format == "csv" else _arrow(path)
    for batch in source:
        batch = batch if columns is None else batch.select(columns)
        for at in range(0, batch.num_rows, size):
            yield batch.slice(at, size)


def _arrow(path: Path) -> Iterator[Any]:
    """Batches of an Arrow file or stream, read and not mapped, so that they go away again."""
    import pyarrow as pa

    with pa.OSFile(str(path)) as source:
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)
            return
        yield from (file.get_batch(at) for at in range(file.num_record_batches))


def _named(batch: Any, columns: Sequence[str], own: dict[str, str]) -> Any:
    import pyarrow as pa

    if not own:
        return batch
    arrays = [pa.repeat(pa.scalar(own[n]), batch.num_rows) if n in own else batch.column(n) for n in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def fingerprint_of(files: tuple[File, ...], told: str) -> str:
    """SHA-256 of the sizes, the first and the last 64 KiB of all files, and of how the log is read.

    The last bytes of a Parquet file hold the size, the place and the range of every column of every row group.
    """
    digest = hashlib.sha256(told.encode())
    for file in files:
        with readable(file.path), file.path.open("rb") as opened_file:
            size = file.path.stat().st_size
            digest.update(f"{size}{file.parts}".encode())
            digest.update(opened_file.read(ENDS))
            opened_file.seek(max(0, size - ENDS))
            digest.update(opened_file.read(ENDS))
    return digest.hexdigest()
