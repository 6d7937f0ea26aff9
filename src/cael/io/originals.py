"""The columns of a log's table as they were, for models that were trained on them, and the labels of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any, final

import numpy as np

from cael.common.types import Ints
from cael.errors import NeedsError, PolicyError
from cael.io.files import format_of
from cael.io.sources import Source
from cael.policies.labelled import index_of, names_in


@final
@dataclass(frozen=True, eq=False)
class Originals:
    """The table of a log. kept: (n,) rows of it that are in the log, None for all. id_name: the column of decision ids.
    outcomes: columns that no policy may see. given: the frame that it was made from, where it is in memory. Columns of
    files are read when they are asked for."""

    source: Source | None
    kept: Ints | None = None
    id_name: str | None = None
    given: Any = None
    outcomes: tuple[str, ...] = ()
    _read: dict[tuple[str, ...], Any] = field(default_factory=dict)

    @property
    def names(self) -> Sequence[str]:
        if self.source is not None:
            return self.source.names
        return [str(name) for name in names_in(self.given)]

    @cached_property
    def index(self) -> Sequence[Any] | None:
        """The labels of the rows of a frame of pandas, where they are not 0, 1, 2, ..."""
        labels = index_of(self.given)
        if labels is None or isinstance(labels, range):
            return None if labels is None or self.kept is None else self.kept.tolist()
        return labels if self.kept is None else [labels[row] for row in self.kept]

    @cached_property
    def ids(self) -> Sequence[Any] | None:
        """The ids of the decisions."""
        if self.id_name is None or self.source is None:
            return None
        labels = [label for chunk in self.source.labels(self.id_name) for label in chunk.to_pylist()]
        return labels if self.kept is None else [labels[row] for row in self.kept]

    def frame(self, columns: Sequence[str], rows: slice | Ints) -> Any:
        """Columns of some rows of the log, as a frame of the library that made the table; of files, of pandas."""
        refuse_outcomes(columns, self.outcomes)
        at = rows if self.kept is None else self.kept[rows]
        if self.given is not None and hasattr(self.given, "iloc"):
            return self.given[list(columns)].iloc[at].reset_index(drop=True)
        if self.given is not None and type(self.given).__module__.startswith("polars"):
            return self.given.select(list(columns))[at]
        return as_frame(_some(self._table(tuple(columns)), at), self._of_text)

    @property
    def _of_text(self) -> bool:
        """Whether an empty cell is a missing one, as readers of text have it."""
        if self.source is None:
            return False
        origin = self.source.origin and format_of(self.source.origin[0])
        return origin == "csv" or any(file.format == "csv" for file in self.source.files)

    def _table(self, columns: tuple[str, ...]) -> Any:
        """An Arrow table of the columns, read once."""
        import pyarrow as pa

        if columns not in self._read:
            assert self.source is not None
            self.source.load(columns)
            chunks = [self.source.chunks(name) for name in columns]
            self._read[columns] = pa.table(
                [pa.chunked_array(parts) if parts else pa.nulls(0) for parts in chunks], list(columns)
            )
        return self._read[columns]


def refuse_outcomes(columns: Sequence[str], outcomes: Sequence[str]) -> None:
    """Refuse a model that looks at what was earned."""
    seen = [name for name in columns if name in outcomes]
    if seen:
        raise PolicyError(
            f"the model of a policy was trained on the column {seen[0]!r}, which is the reward: a policy decides "
            "before it is known. Train it on what was known before the decision."
        )


def _some(table: Any, rows: slice | Ints) -> Any:
    if isinstance(rows, slice):
        first, stop, _ = rows.indices(table.num_rows)
        return table.slice(first, max(0, stop - first))
    return table.take(np.asarray(rows))


def as_frame(table: Any, of_text: bool = False) -> Any:
    """An Arrow table as a frame of pandas, or of polars where there is no pandas."""
    if find_spec("pandas") is not None:
        frame = table.to_pandas()
        for name in frame.columns[[str(kind) in ("object", "str", "string") for kind in frame.dtypes]]:
            missing = frame[name].isna() | ((frame[name] == "") if of_text else False)
            frame[name] = frame[name].where(~missing, np.nan)
        return frame
    if find_spec("polars") is not None:
        import polars as pl

        return pl.from_arrow(table)
    raise NeedsError("a model that was trained on named columns needs a frame library: pip install pandas.")
