"""Source: a table somewhere, its columns by name. Files are read a column at a time; frames come in through Arrow."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from cael.errors import InputError
from cael.io.convert import tables_in
from cael.io.databases import Query, masked
from cael.io.files import File
from cael.io.joined import Joined
from cael.io.kinds import is_text, kind_of

if TYPE_CHECKING:
    from cael.common.types import Ints


class TooLarge(InputError):
    """The columns that were read take more memory than they may."""


UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
"""What Arrow calls the index of a frame of pandas: it labels rows, and is no column."""

REFUSED = {
    "LazyFrame": "call .collect() first",
    "Dataset": "call .to_table() first",
    "Scanner": "call .to_table() first",
}


@final
@dataclass(frozen=True, eq=False)
class Source:
    """A table with named columns.

    name: for messages. types: (column, Arrow type) pairs. files: where it is read from, or () for a table in memory.
    origin: (file name, number of its first row) and arrays: the columns, where it is one batch of a file. scratch:
    memory for casts that the next batch uses again. room: bytes of columns that may be read from files. given: the
    frame that it was made from.
    """

    name: str
    types: tuple[tuple[str, Any], ...]
    files: tuple[File, ...] = ()
    memory: Any = None
    origin: tuple[str, int] | None = None
    room: float = inf
    arrays: Mapping[str, Any] = field(default_factory=dict)
    scratch: Any = None
    given: Any = None
    _taken: list[int] = field(default_factory=lambda: [0])
    _counts: list[int] = field(default_factory=list)
    _expected: list[str] = field(default_factory=list)
    _loaded: dict[str, list[Any]] = field(default_factory=dict)
    _uses: Counter[str] = field(default_factory=Counter)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.types)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to read the files, each sentence once."""
        return tuple(dict.fromkeys(note for file in self.files for note in file.notes))

    @property
    def actions(self) -> list[Any]:
        """Actions that the files name, taken or not, where their format says so."""
        return list(dict.fromkeys(action for file in self.files for action in file.actions))

    def type_of(self, column: str) -> Any:
        return dict(self.types)[column]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of these columns, in the order of the rows."""
        for column in columns:
            self.need(column)
        if self.memory is not None:
            yield from self.memory.select(list(columns)).to_batches()
            return
        counts = []
        for file in self.files:
            rows = 0
            for batch in file.batches(columns):
                rows += batch.num_rows
                self._take(batch.nbytes)
                yield batch
            counts.append(rows)
        self._counts[:] = counts

    def _take(self, size: int) -> None:
        """Count bytes that were read, and stop before there are more than there is room for."""
        self._taken[0] += size
        if self._taken[0] > self.room:
            raise TooLarge(f"{self.name} takes more memory than there is.")

    def expect(self, columns: Sequence[str]) -> None:
        """Columns that will be asked for: they are read along with the next that are loaded."""
        self._expected.extend(columns)

    def load(self, columns: Sequence[str]) -> None:
        """Read columns of files together; each is kept until it was asked for as often as it is named."""
        if not self.files:
            return
        columns = [*columns, *self._expected]
        self._expected.clear()
        missing = [name for name in dict.fromkeys(columns) if name not in self._loaded]
        if not missing:
            return
        chunks: dict[str, list[Any]] = {name: [] for name in missing}
        for batch in self.batches(missing):
            for name, chunk in zip(missing, batch.columns, strict=True):
                chunks[name].append(chunk)
        self._loaded.update(chunks)
        self._uses.update(name for name in columns if name in chunks)

    def chunks(self, column: str) -> list[Any]:
        """One column, as Arrow arrays in the order of the rows; types may differ from file to file."""
        if column in self.arrays:
            return [self.arrays[column]]
        if column not in self._loaded:
            return [batch.column(0) for batch in self.batches([column])]
        self._uses[column] -= 1
        return list(self._loaded[column]) if self._uses[column] > 0 else self._loaded.pop(column)

    def labels(self, column: str) -> list[Any]:
        """One column of labels, as `chunks` gives it; of a CSV file as it is written, where that is no whole number."""
        chunks = self.chunks(column)
        if all(file.copy is None for file in self.files) or all(is_text(chunk.type) for chunk in chunks):
            return chunks
        return [chunk for file in self.files for chunk in file.labels(column)]

    def first(self, column: str) -> Any:
        """The first cell of a column, None where there is no row."""
        here = {**self.arrays, **{name: chunks[0] for name, chunks in self._loaded.items() if chunks}}
        chunk = here[column] if column in here else next((each.column(0) for each in self.batches([column])), [])
        return chunk[0].as_py() if len(chunk) else None

    def row_places(self, n: int) -> Ints:
        """(n,) numbers that tell the rows of all files apart: the row in its file, and above it the file."""
        import numpy as np

        from cael.log.keys import FILE_BITS

        if not self.sizes:
            return np.arange(n)
        return np.concatenate([(file << FILE_BITS) + np.arange(rows) for file, rows in enumerate(self._counts)])

    def need(self, column: str) -> None:
        if column not in self.names:
            raise InputError(f"{self.name} has no column {column!r}; it has {shown(self.names)}.")

    def listed(self, rows: Ints, most: int = 5) -> list[str]:
        """The first of the rows, each with its file where there are several."""
        return [self._place(int(row)) for row in rows[:most]]

    def places(self, rows: Ints, most: int = 5) -> str:
        """'rows 3, 17, ...'."""
        listed = ", ".join(self.listed(rows, most))
        return f"row{'s' if len(rows) > 1 else ''} {listed}{', ...' if len(rows) > most else ''}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The rows of each file, where there are several and they were read."""
        return tuple(self._counts) if len(self.files) > 1 and len(self._counts) == len(self.files) else ()

    def _place(self, row: int) -> str:
        if self.origin is not None:
            return f"{row + self.origin[1]} of {self.origin[0]}"
        if not self.sizes:
            return str(row)
        ends = list(accumulate(self._counts))
        at = bisect_right(ends, row)
        return f"{row} ({self.files[at].path.name}: {row - ends[at] + self._counts[at]})"


def shown(names: Sequence[str], most: int = 30) -> str:
    """Names for a message, not all of a thousand."""
    listed = ", ".join(repr(name) for name in names[:most])
    return (listed or "no columns") + (f", ... ({len(names)} in all)" if len(names) > most else "")


def open_source(source: Any) -> Source:
    """A source from a path (file, folder, glob), several paths, or anything that exports an Arrow stream."""
    if isinstance(source, Source):
        return source
    paths = paths_of(source)
    return table_of(*files_of(paths)) if paths else _from_memory(source)


def paths_of(source: Any) -> list[str | Path | Query | Joined]:
    """The paths and queries that one, or a list of them, means; none where it is a table."""
    paths = [source] if isinstance(source, str | Path | Query | Joined) else source
    known = isinstance(paths, list | tuple) and all(isinstance(path, str | Path | Query | Joined) for path in paths)
    return list(paths) if known else []


def files_of(paths: Sequence[str | Path | Query | Joined]) -> tuple[tuple[File, ...], str]:
    """The files that paths mean, and a name for all of them."""
    first = masked(str(paths[0]))
    name = first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"
    return tuple(file for path in paths for file in tables_in(path)), name


def table_of(files: tuple[File, ...], name: str, *, same_kinds: bool = False) -> Source:
    """The table that files make together; all have the same columns, and on demand columns of the same kinds.

    Otherwise it is read whole, and CSV files are copied for that.
    """
    files = files if same_kinds else tuple(file.opened() for file in files)
    schema = files[0].schema()
    _no_repeats(schema.names, name)
    kinds = _kinds(schema)
    for file in files[1:]:
        _refuse_other_columns(file, kinds, files[0], name, same_kinds=same_kinds and file.format != "csv")
    return Source(name, tuple(zip(schema.names, schema.types, strict=True)), files)


def _kinds(schema: Any) -> dict[str, str]:
    return {column: kind_of(type_) for column, type_ in zip(schema.names, schema.types, strict=True)}


def _refuse_other_columns(file: File, kinds: dict[str, str], first: File, name: str, *, same_kinds: bool) -> None:
    """Refuse a file whose columns are not those of the first, by name or by kind."""
    others = _kinds(file.schema())
    missing, extra = [each for each in kinds if each not in others], [each for each in others if each not in kinds]
    if missing:
        difference = f"has no column {missing[0]!r}"
    elif extra:
        difference = f"has an extra column {extra[0]!r}"
    else:
        apart = [each for each in kinds if others[each] != kinds[each]]
        if not apart or not same_kinds:
            return
        difference = f"has {others[apart[0]]} and not {kinds[apart[0]]} in column {apart[0]!r}"
    raise InputError(f"the files of {name} differ: {file.path} {difference}, compared with {first.path}.")


def _from_memory(source: Any) -> Source:
    import pyarrow as pa

    kind = type(source)
    if not hasattr(source, "__arrow_c_stream__"):
        raise InputError(
            f"cannot read a {kind.__module__.partition('.')[0]} {kind.__name__}: "
            f"{REFUSED.get(kind.__name__, 'expected a path, or a table that exports an Arrow stream')}. Tables of "
            "pandas, polars, DuckDB and pyarrow do; of a lazy or distributed frame, collect it first, or write it to "
            "Parquet."
        )
    try:
        table = pa.RecordBatchReader.from_stream(source).read_all()
    except pa.ArrowException as error:
        raise InputError(f"the {kind.__name__} cannot be read as a table: {error}") from None
    _no_repeats(table.column_names, f"the {kind.__name__}")
    table = table.select([name for name in table.column_names if not UNNAMED_INDEX.fullmatch(name)])
    types = tuple(zip(table.column_names, table.schema.types, strict=True))
    return Source(f"the {kind.__name__}", types, memory=table, given=source)


def _no_repeats(names: Sequence[str], where: str) -> None:
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise InputError(f"{where} has two columns named {twice[0]!r}: rename one of them.")
