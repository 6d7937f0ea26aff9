"""Rows that can be read only once, or only as a whole, written once to a temporary Parquet file, within a disk
budget."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from cael.common.whole import LEFTOVERS
from cael.errors import InputError
from cael.io.files import File, stamp_of

GROUP_ROWS = 2**17
"""Rows of a row group: a group is what one worker reads at least."""
GROUP_BYTES = 2**26
"""Bytes that wait before they are written."""
DISK = "CAEL_SPOOL"
"""The environment variable with the disk budget, such as 20GiB; without it, half of what is free."""


@final
class Folder:
    """A temporary folder that goes with this object, and when the process is ended. On another machine it is not there,
    so what is sent to one holds nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        LEFTOVERS.add(path)
        weakref.finalize(self, _remove, path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(None), ())


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    LEFTOVERS.discard(path)


def temporary(name: str) -> Folder:
    """A new folder for what is read from `name`."""
    with writing(name):
        return Folder(Path(tempfile.mkdtemp(prefix="cael-")))


def spooled(
    folder: Folder, name: str, schema: Any, batches: Iterable[Any], *, source: str, notes: tuple[str, ...] = (),
    actions: tuple[Any, ...] = (),
) -> File:  # fmt: skip
    """Record batches as a file of that name in the folder. source: where they come from, for messages."""
    import pyarrow.parquet as pq

    path = folder.path / _file_name(name, folder.path)
    room = disk_budget(folder.path)
    with writing(source):
        writer = pq.ParquetWriter(path, schema, compression="lz4")
    try:
        for table in _groups(batches, schema):
            with writing(source):
                writer.write_table(table, row_group_size=GROUP_ROWS)
            _within(room, path, source)
    finally:
        with writing(source):
            writer.close()
    return File(path, "parquet", stamp=stamp_of(path), held=folder, notes=notes, actions=actions)


def _file_name(name: str, folder: Path) -> str:
    """A name that the file system takes and that is not there yet."""
    plain = re.sub(r"[^\w.-]+", "_", name)[-80:].strip(".") or "log"
    number = sum(1 for _ in folder.iterdir())
    return f"{number}-{plain}" if (folder / plain).exists() else plain


def _groups(batches: Iterable[Any], schema: Any) -> Iterator[Any]:
    """Batches put together to tables that are worth a row group."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def disk_budget(folder: Path) -> int:
    """Bytes that a temporary copy may take."""
    from cael.log.budget import size_of

    given = os.environ.get(DISK)
    return shutil.disk_usage(folder).free // 2 if given is None else size_of(DISK, given)


def _within(room: int, path: Path, source: str) -> None:
    size = path.stat().st_size
    if size > room:
        raise InputError(
            f"{source}: its temporary copy takes more than {room:,} bytes of {tempfile.gettempdir()}, which is half of "
            f"what was free there or what {DISK} says. Set TMPDIR to a larger disk, {DISK} to a size such as 20GiB, or "
            "select fewer columns or rows."
        )


@contextmanager
def writing(source: str) -> Iterator[None]:
    """One sentence that says what to do, where a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{source}: no temporary copy could be written to {tempfile.gettempdir()} ({error}). Set TMPDIR to a "
            "folder "
            "with enough room."
        ) from None
