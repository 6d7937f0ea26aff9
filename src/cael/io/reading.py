"""Files of a scanned log in bounded pieces: which tasks there are, and the record batches of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from cael.errors import InputError
from cael.io.files import BATCH_BYTES, File
from cael.io.sources import Source, files_of, paths_of, table_of

TASK_ROWS = 4_000_000
ENDS = 2**16


@final
@dataclass(frozen=True)
class Task:
    """A part of a log that one worker reads: a file (its number among the files), or some row groups of one.

    first: number of its first row in the file. rows: how many it has, where that is known beforehand.
    """

    number: int
    file: File
    first: int = 0
    groups: tuple[int, ...] | None = None
    rows: int | None = None


def found_files(source: Any) -> tuple[tuple[File, ...], str]:
    """The files that a path, or several, mean, and a name for all of them."""
    if isinstance(source, Source) and source.files:
        return source.files, source.name
    paths = paths_of(source)
    if not paths:
        raise InputError(
            f"scan reads files: expected a path, a pattern or several paths; got a {type(source).__name__}. A table "
            "in memory goes to cael.read."
        )
    if str(paths[0]).endswith(".npz"):
        raise InputError(f"{paths[0]}: an .npz log is read whole. Write it as Parquet to stream it, or use cael.read.")
    return files_of(paths)


def opened(files: tuple[File, ...], name: str) -> Source:
    """The table that the files make together; all have the same columns, of the same kinds."""
    return table_of(files, name, same_kinds=True)


def tasks_of(files: tuple[File, ...]) -> tuple[Task, ...]:
    """Files, and large Parquet files in runs of row groups."""
    tasks: list[Task] = []
    for number, file in enumerate(files):
        tasks += _runs(number, file) if file.format == "parquet" else [Task(number, file)]
    return tuple(tasks)


def _runs(number: int, file: File) -> Iterator[Task]:
    counts = [file.footer.row_group(at).num_rows for at in range(file.footer.num_row_groups)]
    file = replace(file)  # without its footer, which need not travel to the workers
    first, groups, rows = 0, [], 0
    enough = sum(counts) / max(1, -(-sum(counts) // TASK_ROWS))  # runs of about the same length
    for at, count in enumerate(counts):
        groups.append(at)
        rows += count
        if rows >= enough or at == len(counts) - 1:
            yield Task(number, file, first, tuple(groups), rows)
            first, groups, rows = first + rows, [], 0


def batches(
    task: Task, columns: Sequence[str], size: int, types: dict[str, Any], most: float = BATCH_BYTES
) -> Iterator[Any]:
    """Record batches of at most `size` rows and about `most` bytes, in order."""
    yield from task.file.batches(columns, size, task.groups, types, threads=False, most=most)


def fingerprint_of(files: tuple[File, ...], how: str) -> str:
    """SHA-256 of the sizes, the first and the last 64 KiB of all files, and of how the log is read.

    The last bytes of a Parquet file hold the size, the place and the range of every column of every row group.
    """
    digest = hashlib.sha256(how.encode())
    for file in files:
        with file.watched(), file.path.open("rb") as content:
            size = file.path.stat().st_size
            digest.update(f"{size}{file.parts}".encode())
            digest.update(content.read(ENDS))
            content.seek(max(0, size - ENDS))
            digest.update(content.read(ENDS))
    return digest.hexdigest()
