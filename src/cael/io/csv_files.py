"""CSV, read once and in blocks: into memory where the file is small, else into a temporary Arrow file."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cael.errors import InputError

SMALL = 2**24
"""Files of up to so many bytes are kept in memory."""
BLOCK = 2**20
"""Bytes of text that are looked at together; a row must fit into them."""
CONVERSION = re.compile(r"^In CSV column #(\d+): .*CSV conversion error", re.DOTALL)


@final
@dataclass(frozen=True, eq=False)
class Copy:
    """The content of a CSV file as Arrow: a buffer, or the path of a temporary file that goes away with this object."""

    content: Any

    def reader(self) -> Any:
        """Its batches can be read one by one, and only the columns that are looked at take memory."""
        import pyarrow as pa

        return pa.ipc.open_file(pa.memory_map(str(self.content)) if isinstance(self.content, Path) else self.content)

    @property
    def schema(self) -> Any:
        return self.reader().schema

    def batches(self) -> Iterator[Any]:
        file = self.reader()
        yield from map(file.get_batch, range(file.num_record_batches))


def copied(path: Path, small: int = SMALL, block: int = BLOCK) -> Copy:
    """The file as Arrow, with the types that fit all of its rows; only blocks of it are in memory at a time.

    The types of the first block are tried, and where a later one does not fit, the next wider type from the start.
    """
    import pyarrow as pa

    in_memory = path.stat().st_size <= small
    types: dict[str, Any] = {}
    threads = True
    while True:
        try:
            reader = open_csv(path, types, block, threads=threads)
            types = types or dict(zip(reader.schema.names, reader.schema.types, strict=True))
            return _written(reader, path, in_memory)
        except pa.ArrowInvalid as error:
            misfit = CONVERSION.match(str(error))
            if misfit is not None:
                _widen(types, int(misfit[1]))
            elif threads:
                threads = False  # once more on one thread, which can say in which row
            else:
                raise


def open_csv(path: Path, types: dict[str, Any], block: int = BLOCK, *, threads: bool = False) -> Any:
    """A reader of the file, block by block; columns without a type get that of the first block."""
    from pyarrow import csv

    tab = path.name.lower().endswith((".tsv", ".tsv.gz"))
    return csv.open_csv(
        path,
        csv.ReadOptions(use_threads=threads, block_size=block),
        csv.ParseOptions(delimiter="\t" if tab else ",", newlines_in_values=True),
        csv.ConvertOptions(quoted_strings_can_be_null=False, column_types=types),
    )


def _widen(types: dict[str, Any], column: int) -> None:
    """Give a column the next type of the order in which Arrow guesses them."""
    import pyarrow as pa

    order = [
        pa.null(), pa.int64(), pa.bool_(), pa.date32(), pa.time32("s"), pa.timestamp("s"), pa.timestamp("ns"),
        pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC"), pa.float64(), pa.string(), pa.binary(),
    ]  # fmt: skip
    name = list(types)[column]
    types[name] = order[order.index(types[name]) + 1]


def _written(reader: Any, path: Path, in_memory: bool) -> Copy:
    import pyarrow as pa

    if in_memory:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
        return Copy(sink.getvalue())
    folder = _asked(path, lambda: Path(tempfile.mkdtemp(prefix="cael-")))
    try:
        writer = _asked(path, lambda: pa.ipc.new_file(str(folder / "log.arrow"), reader.schema))
        for batch in reader:
            _asked(path, lambda batch=batch: writer.write_batch(batch))
        _asked(path, writer.close)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    copy = Copy(folder / "log.arrow")
    weakref.finalize(copy, shutil.rmtree, folder, True)
    return copy


def _asked(path: Path, write: Any) -> Any:
    """What the file system gives, or one sentence that says what to do."""
    try:
        return write()
    except OSError as error:
        raise InputError(
            f"{path}: no temporary copy could be written to {tempfile.gettempdir()} ({error}). Set TMPDIR to a folder "
            "with as much room as the file takes uncompressed, or write the log as Parquet."
        ) from None
