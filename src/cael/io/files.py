"""Files of a table: which ones a path means, and their rows, batch by batch. Nothing in a file is ever executed."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from cael.errors import InputError
from cael.io.csv_files import Copy, copied

BATCH_ROWS = 2**16

FORMATS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".tsv", ".tsv.gz"),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
}
"""The formats and the endings that mean them."""

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

    copy: its content as Arrow, where it had to be read whole to know the types of the columns (CSV).
    """

    path: Path
    format: str
    parts: tuple[tuple[str, str], ...] = ()
    copy: Copy | None = None

    def opened(self) -> File:
        """The file, with a copy of its content where it must be read whole."""
        if self.format != "csv" or self.copy is not None:
            return self
        with readable(self.path):
            return replace(self, copy=copied(self.path))

    def schema(self) -> Any:
        """Names and types of the columns."""
        import pyarrow as pa

        with readable(self.path):
            if self.format == "parquet":
                import pyarrow.parquet as pq

                found = pq.read_schema(self.path)
            elif self.format == "arrow":
                found = _open_arrow(self.path).schema
            else:
                assert self.copy is not None
                found = self.copy.schema
            _ = found.names  # decodes them, which fails where they are not UTF-8
        for name, _ in self.parts:
            found = found.append(pa.field(name, pa.string()))
        return found

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of these columns, in order."""
        own = dict(self.parts)
        stored = [name for name in columns if name not in own]
        with readable(self.path):
            for batch in self._stored(stored):
                # Arrow files are mapped memory: wrong offsets in them would end the process. Text must be UTF-8.
                batch.validate(full=True)
                yield _with_parts(batch, columns, own)

    def _stored(self, columns: list[str]) -> Iterator[Any]:
        if self.format == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(self.path, memory_map=True) as file:
                yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=True)
        elif self.format == "arrow":
            for batch in _open_arrow(self.path):
                yield batch.select(columns)
        else:
            assert self.copy is not None
            yield from self.copy.batches(columns)


def _with_parts(batch: Any, columns: Sequence[str], own: dict[str, str]) -> Any:
    import pyarrow as pa

    if not own:
        return batch
    arrays = [pa.repeat(pa.scalar(own[n]), batch.num_rows) if n in own else batch.column(n) for n in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _open_arrow(path: Path) -> Any:
    """A reader of an Arrow file or stream, which iterates over batches."""
    import pyarrow as pa

    mapped = pa.memory_map(str(path))
    try:
        file = pa.ipc.open_file(mapped)
    except pa.ArrowInvalid:
        mapped.seek(0)
        return pa.ipc.open_stream(mapped)
    return pa.RecordBatchReader.from_batches(file.schema, map(file.get_batch, range(file.num_record_batches)))


class readable:
    """Turns what the file library raises into one sentence that names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import pyarrow as pa

        if error is None or isinstance(error, GeneratorExit):
            return
        if isinstance(error, PermissionError):
            raise InputError(f"{self.path} may not be read: {error.strerror or error}.") from None
        if isinstance(error, FileNotFoundError):
            raise InputError(f"{self.path} is gone: it was there when the log was opened.") from None
        if isinstance(error, UnicodeDecodeError):
            raise InputError(
                f"{self.path}: the names of the columns are no UTF-8 text. Save the file as UTF-8."
            ) from None
        if isinstance(error, pa.ArrowException | OSError):
            said = " ".join(str(error).split())[:300].rstrip(".")
            raise InputError(
                f"{self.path} cannot be read: {said}. The file is broken or incomplete, or its ending does not say "
                "what it is; write it again."
            ) from None


def find(path: str | Path) -> tuple[File, ...]:
    """The files that a path means: a file, a folder (with all below it), or a glob pattern. In the order of names."""
    text = str(path)
    given = Path(text)
    if given.is_file():
        return (_file(given, given.parent),)
    if given.is_dir():
        paths = [each for each in sorted(given.rglob("*")) if each.is_file() and not _hidden(each.relative_to(given))]
        tables = [each for each in paths if format_of(each.name)]
        if not tables:
            raise InputError(
                f"the folder {text} has no file that ends in {_endings()}; it has {_listed(paths, given)}."
            )
        return _alike([_file(each, given) for each in tables], text)
    if glob.has_magic(text):
        paths = [Path(each) for each in sorted(glob.glob(text, recursive=True)) if Path(each).is_file()]  # noqa: PTH207
        if not paths:
            raise InputError(f"no file matches the pattern {text}.")
        return _alike([_file(each, each.parent) for each in paths], text)
    raise InputError(f"there is no file {text}.")


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _file(path: Path, root: Path) -> File:
    kind = format_of(path.name)
    if kind is None:
        raise InputError(f"{path}: the ending of the file name must be one of {_endings()}, or .npz.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (0 bytes): expected a table with at least 2 rows.")
    pairs = [part.split("=", 1) for part in path.relative_to(root).parts[:-1] if "=" in part]
    return File(path, kind, tuple((name, value) for name, value in pairs))


def _alike(files: list[File], text: str) -> tuple[File, ...]:
    kinds = sorted({file.format for file in files})
    if len(kinds) > 1:
        raise InputError(f"{text} has files of several formats ({', '.join(kinds)}): name those to read by a pattern.")
    return tuple(files)


def _endings() -> str:
    return ", ".join(ENDINGS)


def _listed(paths: list[Path], root: Path) -> str:
    names = [str(path.relative_to(root)) for path in paths[:5]]
    return ", ".join(names) + (", ..." if len(paths) > 5 else "") if names else "no files"
