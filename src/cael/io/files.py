"""Files of a table: which ones a path means, and their rows, batch by batch. Nothing in a file is ever executed."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, final

from cael.errors import InputError
from cael.io.csv_files import Copy, Written, as_written, copied, labelled, open_csv, whole
from cael.io.kinds import is_text, kind_of

BATCH_ROWS = 2**16
BATCH_BYTES = 2**26
"""Bytes of a batch, unless another number is given."""
SHORT = 2**9
"""Rows that are decoded together where they can be of any length."""
CSV_BLOCK = 4 * 2**20
PARQUET_BUFFER = 2**17
"""Bytes of a column that are read at a time; more would leave the processor's cache before they are decoded."""

PACKED = ("", ".gz", ".bz2", ".zst")
FORMATS: dict[str, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".tsv", ".tsv.gz"),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
    "json": tuple(f"{name}{packed}" for name in (".jsonl", ".ndjson") for packed in PACKED),
    "dsjson": tuple(f".dsjson{packed}" for packed in PACKED),
    "duckdb": (".duckdb", ".ddb"),
}
"""The formats and the endings that mean them."""

Stamp: TypeAlias = tuple[int, int, int]
"""Size, time of modification in nanoseconds, and identity of a file (0: not compared)."""

ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)


def format_of(name: str) -> str | None:
    """The format that a file name's ending means, or None."""
    for kind, endings in FORMATS.items():
        if name.lower().endswith(endings):
            return kind
    return None


@final
@dataclass(frozen=True)
class File:
    """One file. parts: columns that its folder names give it, as in `day=2026-01-31/part.parquet`.

    copy: its content as Arrow, where it had to be read whole to know the types of the columns (CSV). stamp: its size,
    time of modification and identity when it was found; what is read later must have the same. held: what a temporary
    file needs to stay. notes: what was done to read it. actions: that it names, taken or not.
    """

    path: Path
    format: str
    parts: tuple[tuple[str, str], ...] = ()
    copy: Copy | None = None
    stamp: Stamp | None = None
    held: Any = field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = ()
    actions: tuple[Any, ...] = ()

    def opened(self) -> File:
        """The file, with a copy of its content where it must be read whole."""
        if self.format != "csv" or self.copy is not None:
            return self
        with self.watched():
            return replace(self, copy=copied(self.path))

    def anywhere(self) -> File:
        """The file as another machine sees it, whose file system may number it otherwise."""
        return self if self.stamp is None else replace(self, stamp=(*self.stamp[:2], 0))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Reading, from start to end, of the content that the file had when it was found; or an error."""
        try:
            self._refuse_change()
            with readable(self.path):
                yield
        except InputError:
            self._refuse_change()
            raise
        self._refuse_change()

    def _refuse_change(self) -> None:
        if self.stamp is not None and stamp_of(self.path, self.stamp[2] != 0) != self.stamp:
            raise self.changed()

    @cached_property
    def footer(self) -> Any:
        """What the end of a Parquet file says of its columns and row groups."""
        import pyarrow.parquet as pq

        with self.watched():
            return pq.read_metadata(self.path)

    def schema(self) -> Any:
        """Names and types of the columns; of a CSV file without a copy as its first block shows them."""
        import pyarrow as pa

        with self.watched():
            if self.format == "parquet":
                schema = self.footer.schema.to_arrow_schema()
            else:
                with self._blocks({}) as (schema, _):
                    pass
            _ = schema.names  # decodes them, which fails where they are not UTF-8
        for name, _ in self.parts:
            schema = schema.append(pa.field(name, pa.string()))
        return schema

    def batches(
        self, columns: Sequence[str], size: int = BATCH_ROWS, groups: Sequence[int] | None = None,
        types: dict[str, Any] | None = None, *, threads: bool = True, most: float = BATCH_BYTES,
    ) -> Iterator[Any]:  # fmt: skip
        """Record batches of these columns, in order, of at most `size` rows and, as soon as that is seen, about `most`
        bytes. groups: of a Parquet file, all if None. types: of the columns of a CSV file without a copy."""
        parts = dict(self.parts)
        stored = [name for name in columns if name not in parts] or None
        trusted: bool | None = None
        with readable(self.path) if self.copy is not None else self.watched():
            for batch in self._stored(stored, size, groups, types or {}, threads, most):
                if trusted is None:
                    trusted = self.format != "arrow" and all(kind_of(each) == "number" for each in batch.schema.types)
                if not trusted:
                    batch.validate(full=True)  # text must be UTF-8; wrong offsets would end the process
                yield from short_enough(_with_parts(batch, columns, parts), most)

    def labels(self, column: str) -> list[Any]:
        """A column of labels. In a CSV file that was copied, one whose type is not text is read again as it is written,
        and is whole numbers only where all of its cells are written as such."""
        if self.copy is None or column in dict(self.parts) or is_text(self.copy.schema.field(column).type):
            return [batch.column(0) for batch in self.batches([column])]
        with self.watched():
            text = as_written(self.path, column)
        numbers = whole(text)
        return list((text if numbers is None else numbers).chunks)

    def exact(self, columns: Sequence[str]) -> set[str]:
        """Those of the columns of a CSV file whose cells, in its first block, are all written as whole numbers."""
        types = dict.fromkeys(columns, Written(False))
        block = next(self.batches(columns, types=types), None) if columns else None
        return set() if block is None else {name for name in columns if whole(block.column(name)) is not None}

    def _stored(
        self, columns: list[str] | None, size: int, groups: Sequence[int] | None, types: dict[str, Any],
        threads: bool, most: float,
    ) -> Iterator[Any]:  # fmt: skip
        if self.format == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(
                self.path, buffer_size=PARQUET_BUFFER, pre_buffer=False, page_checksum_verification=True
            ) as file:
                if groups and groups[-1] >= file.num_row_groups:
                    raise self.changed()
                if lacking := [name for name in columns or () if name not in file.schema_arrow.names]:
                    raise InputError(f"{self.path} has no column {lacking[0]!r}: it is damaged, or it was exchanged.")
                yield from _in_runs(file, size, groups, columns, threads, most)
            return
        with self._blocks(types, columns) as (_, blocks):
            for block in blocks:
                block = block if columns is None else block.select(columns)
                yield from (block.slice(at, size) for at in range(0, block.num_rows, size))

    @contextmanager
    def _blocks(self, types: dict[str, Any], columns: list[str] | None = None) -> Iterator[tuple[Any, Iterable[Any]]]:
        """The schema and the record batches of a CSV or Arrow file; it is read and not mapped."""
        import pyarrow as pa

        if self.copy is not None:
            yield self.copy.schema, self.copy.batches(columns)
        elif self.format == "csv":
            with open_csv(self.path, types, CSV_BLOCK) as reader:
                yield reader.schema, labelled(reader, types)
        else:
            with pa.OSFile(str(self.path)) as content:
                try:
                    file = pa.ipc.open_file(content)
                    blocks: Iterable[Any] = map(file.get_batch, range(file.num_record_batches))
                except pa.ArrowInvalid:
                    content.seek(0)
                    file = blocks = pa.ipc.open_stream(content)
                yield file.schema, blocks

    def changed(self) -> InputError:
        return InputError(f"{self.path} changed while the log was read. Nothing may write to its files.")


def _in_runs(
    file: Any, size: int, groups: Sequence[int] | None, columns: list[str] | None, threads: bool, most: float
) -> Iterator[Any]:
    """Batches of a Parquet file. A row of lists or text can be of any length, whatever the rows before it were, so with
    such columns few rows are decoded at a time, and put together as far as they fit."""
    schema = file.schema_arrow
    if all(kind_of(schema.field(name).type) == "number" for name in columns or schema.names):
        yield from file.iter_batches(size, row_groups=groups, columns=columns, use_threads=threads)
        return
    rows, every = min(size, SHORT), list(range(file.num_row_groups) if groups is None else groups)
    for group in every:
        short = _fitting(file, rows, group, columns, threads, most)
        yield from _together(short, size, most)


def _fitting(file: Any, rows: int, group: int, columns: list[str] | None, threads: bool, most: float) -> Iterator[Any]:
    """Batches of a row group; where rows turn out to be wide, the rest is read in shorter ones."""
    done = 0
    while True:
        at = 0
        for batch in file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=threads):
            end = at + batch.num_rows
            if end > done:
                yield batch.slice(max(0, done - at))
                done, fit = end, max(1, int(most * batch.num_rows / max(1, batch.nbytes)))
                if fit < rows // 4:
                    rows = fit
                    break
            at = end
        else:
            return


def _together(batches: Iterable[Any], size: int, most: float) -> Iterator[Any]:
    """Batches of up to so many rows and bytes from shorter ones."""
    waiting: list[Any] = []
    rows, held = 0, 0  # of those that wait: asking each of them again would take longer than decoding
    for batch in batches:
        wide = batch.nbytes
        if waiting and (rows + batch.num_rows > size or held + wide > most):
            yield _one(waiting)
            waiting, rows, held = [], 0, 0
        waiting.append(batch)
        rows, held = rows + batch.num_rows, held + wide
    if waiting:
        yield _one(waiting)


def _one(batches: list[Any]) -> Any:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def short_enough(batch: Any, most: float) -> Iterator[Any]:
    """A batch, or slices of it of about so many bytes."""
    rows = max(1, int(most * batch.num_rows / max(1, batch.nbytes)))
    yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows)) if rows < batch.num_rows else (batch,)


def _with_parts(batch: Any, columns: Sequence[str], parts: dict[str, str]) -> Any:
    import pyarrow as pa

    if not parts:
        return batch
    arrays = [pa.repeat(pa.scalar(parts[n]), batch.num_rows) if n in parts else batch.column(n) for n in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def stamp_of(path: Path, identity: bool = True) -> Stamp:
    """Size, time of modification and, where it is asked for, identity of a file."""
    with readable(path):
        status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino if identity else 0


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns what the file library raises into one sentence that names the file."""
    import pyarrow as pa

    try:
        yield
    except PermissionError as error:
        raise InputError(f"{path} may not be read: {error.strerror or error}.") from None
    except FileNotFoundError:
        raise InputError(f"{path} is gone: it was there when the log was opened.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: the names of the columns are not valid UTF-8. Save the file as UTF-8.") from None
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        if "invalid UTF8" in reason:
            raise InputError(f"{path} is not valid UTF-8 text: {reason}. Save the file as UTF-8.") from None
        raise InputError(
            f"{path} cannot be read: {reason}. The file is broken or incomplete, or its ending does not say what it "
            "is; write it again."
        ) from None


def find(path: str | Path) -> tuple[File, ...]:
    """The files that a path means: a file, a folder (with all below it), or a glob pattern. In the order of names."""
    text = str(path)
    root = Path(text)
    if root.is_file():
        return (_file(root, root.parent),)
    if root.is_dir():
        paths = [each for each in sorted(root.rglob("*")) if each.is_file() and not _hidden(each.relative_to(root))]
        tables = [each for each in paths if format_of(each.name)]
        if not tables:
            names = ", ".join(str(each.relative_to(root)) for each in paths[:5]) or "no files"
            more = ", ..." if len(paths) > 5 else ""
            raise InputError(f"the folder {text} has no file that ends in {', '.join(ENDINGS)}; it has {names}{more}.")
        return _alike([_file(each, root) for each in tables], text)
    if glob.has_magic(text):
        paths = [Path(each) for each in sorted(glob.glob(text, recursive=True)) if Path(each).is_file()]  # noqa: PTH207
        if not paths:
            raise InputError(f"no file matches the pattern {text}.")
        return _alike([_file(each, each.parent) for each in paths], text)
    raise InputError(f"there is no file {text}.")


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _file(path: Path, root: Path) -> File:
    kind = format_of(path.name) or ("json" if path.name.lower().endswith((".json", ".json.gz")) else None)
    if kind is None:
        raise InputError(f"{path}: the ending of the file name must be one of {', '.join(ENDINGS)}, or .npz.")
    stamp = stamp_of(path)
    if stamp[0] == 0:
        raise InputError(f"{path} is empty (0 bytes): expected a table with at least 2 rows.")
    pairs = [part.split("=", 1) for part in path.relative_to(root).parts[:-1] if "=" in part]
    return File(path, kind, tuple((name, value) for name, value in pairs), stamp=stamp)


def _alike(files: list[File], text: str) -> tuple[File, ...]:
    kinds = sorted({file.format for file in files})
    if len(kinds) > 1:
        raise InputError(f"{text} has files of several formats ({', '.join(kinds)}): name those to read by a pattern.")
    return tuple(files)
