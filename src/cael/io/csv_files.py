"""CSV, read once and in blocks: into memory where the file is small, else into a temporary Arrow file."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cael.common.whole import LEFTOVERS
from cael.errors import InputError
from cael.io.kinds import without

SMALL = 2**24
"""Files of up to so many bytes are kept in memory."""
BLOCK = 2**20
"""Bytes of text that are looked at together; a row must fit into them."""
CONVERSION = re.compile(r"^In CSV column #(\d+): .*CSV conversion error", re.DOTALL)


WHOLE = "^(0|-?[1-9][0-9]*)$"
"""A whole number as it is printed: of two different texts no two are the same number."""
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "n/a", "nan", "null",
)  # fmt: skip
"""What Arrow takes for a missing cell in a column that is not text."""


@final
@dataclass(frozen=True)
class Written:
    """The type of a column of labels that is not text: the cells as they are written, or whole numbers.

    whole: all of its first block are whole numbers as they are printed, so all others must be."""

    whole: bool


@final
@dataclass(frozen=True, eq=False)
class Copy:
    """The content of a CSV file as Arrow: a buffer, or the path of a temporary file that goes away with this object."""

    content: Any

    @property
    def schema(self) -> Any:
        with self._opened(None) as file:
            return file.schema

    def batches(self, columns: list[str] | None) -> Iterator[Any]:
        """Its batches, one by one, of these columns. The file is read and not mapped: one that is cut off while it is
        mapped ends the process."""
        with self._opened(columns) as file:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number)
                yield batch if columns is None else batch.select(columns)

    @contextmanager
    def _opened(self, columns: list[str] | None) -> Iterator[Any]:
        import pyarrow as pa

        with (
            pa.OSFile(str(self.content)) if isinstance(self.content, Path) else pa.BufferReader(self.content) as content
        ):
            file = pa.ipc.open_file(content)
            if columns is not None:
                content.seek(0)
                places = [file.schema.get_field_index(name) for name in columns]
                file = pa.ipc.open_file(content, options=pa.ipc.IpcReadOptions(included_fields=places))
            yield file


def copied(path: Path, small: int = SMALL, block: int = BLOCK) -> Copy:
    """The file as Arrow, with the types that fit all of its rows; only blocks of it are in memory at a time.

    The types of the first block are tried, and where a later one does not fit, the next wider type from the start.
    """
    import pyarrow as pa

    in_memory = path.stat().st_size <= small and path.suffix.lower() in (".csv", ".tsv")  # not compressed
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


def open_csv(
    path: Path, types: dict[str, Any], block: int = BLOCK, *, threads: bool = False, columns: list[str] | None = None
) -> Any:
    """A reader of the file, or of some columns, block by block; those without a type get that of the first block."""
    import pyarrow as pa
    from pyarrow import csv

    with path.open("rb") as content:
        first = content.read(4)
    if first[:2] in (b"\xff\xfe", b"\xfe\xff") or (len(first) > 1 and not first[0] * first[1]):
        raise InputError(f"{path} is UTF-16 text: expected UTF-8. Save the file as UTF-8.")
    return csv.open_csv(
        path,
        csv.ReadOptions(use_threads=threads, block_size=block),
        csv.ParseOptions(delimiter=delimiter_of(path), newlines_in_values=True),
        csv.ConvertOptions(
            quoted_strings_can_be_null=False, include_columns=columns,
            column_types={name: pa.string() if isinstance(kind, Written) else kind for name, kind in types.items()},
        ),
    )  # fmt: skip


def delimiter_of(path: Path) -> str:
    """A tab by the file's ending; a semicolon where the first line has some and no comma, as where commas are decimal;
    else a comma."""
    import pyarrow as pa

    if path.name.lower().endswith((".tsv", ".tsv.gz")):
        return "\t"
    with pa.input_stream(str(path)) as content:
        header = content.read(BLOCK // 16).split(b"\n", 1)[0]
    return ";" if b";" in header and b"," not in header else ","


def as_written(path: Path, column: str) -> Any:
    """The text of a column of a file, a chunked array; missing where a number would be."""
    import pyarrow as pa

    with open_csv(path, {column: pa.string()}, columns=[column]) as reader:
        return _present(reader.read_all().column(0))


def whole(cells: Any) -> Any | None:
    """Text as int64, where all cells are whole numbers as they are printed; else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return cells.cast(pa.int64()) if pc.all(pc.match_substring_regex(cells, WHOLE)).as_py() is not False else None
    except pa.ArrowInvalid:  # more than 63 bits
        return None


def labelled(blocks: Any, types: dict[str, Any]) -> Iterator[Any]:
    """Record batches with their columns of labels as `types` says, in place of text."""
    kinds = {name: kind for name, kind in types.items() if isinstance(kind, Written)}
    first = 0
    for block in blocks:
        for name in kinds.keys() & set(block.schema.names):
            at = block.schema.get_field_index(name)
            cells = _present(block.column(at))
            block = block.set_column(at, name, _all_whole(name, cells, first) if kinds[name].whole else cells)
        first += block.num_rows
        yield block


def _present(cells: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(cells, pa.ChunkedArray):  # is_in leaves out chunks without rows
        return pa.chunked_array([_present(chunk) for chunk in cells.chunks], cells.type)
    return without(cells, pc.is_in(cells, value_set=pa.array(MISSING)))


def _all_whole(column: str, cells: Any, first: int) -> Any:
    import pyarrow.compute as pc

    numbers = whole(cells)
    if numbers is not None:
        return numbers
    strange = pc.invert(pc.match_substring_regex(cells, WHOLE)).fill_null(False)
    row = max(0, pc.index(strange, True).as_py())
    raise InputError(
        f"column {column!r} holds whole numbers in its first rows, and {cells[row].as_py()!r} in row {first + row}, "
        "which is not written as one. A streamed log cannot go back: write it as Parquet with this column as text, or "
        "read it whole (cael.read)."
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
    LEFTOVERS.add(folder)
    try:
        writer = _asked(path, lambda: pa.ipc.new_file(str(folder / "log.arrow"), reader.schema))
        for batch in reader:
            _asked(path, lambda batch=batch: writer.write_batch(batch))
        _asked(path, writer.close)
    except BaseException:
        _remove(folder)
        raise
    copy = Copy(folder / "log.arrow")
    weakref.finalize(copy, _remove, folder)
    return copy


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    LEFTOVERS.discard(folder)


def _asked(path: Path, write: Any) -> Any:
    """What the file system gives, or one sentence that says what to do."""
    try:
        return write()
    except OSError as error:
        raise InputError(
            f"{path}: no temporary copy could be written to {tempfile.gettempdir()} ({error}). Set TMPDIR to a folder "
            "with as much room as the file takes uncompressed, or write the log as Parquet."
        ) from None
