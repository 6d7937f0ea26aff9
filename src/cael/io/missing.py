"""Missing numbers in contexts: the median of the first rows stands in, and a context of its own says where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.common.types import Floats
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.kinds import is_list, is_text
from cael.io.sources import Source

LOOK = 4096
"""Rows at the start of a log that the medians are taken from: the same in memory and in a stream."""
MISSING = "is missing"


@final
@dataclass(frozen=True)
class Filling:
    """What stands in for the missing numbers of a context. median: of the first rows. marked: whether a context of its
    own says where, which is so if some of the first rows are missing. note: what to tell the user, or ""."""

    median: float
    marked: bool
    note: str = ""


def filling_of(name: str, values: Floats, flaws: Sequence[Flaw]) -> Filling | None:
    """From a column, of which the first rows are looked at; None where none of these has a number."""
    head = values[:LOOK]
    missing = np.zeros(len(values), dtype=bool)
    for flaw in flaws:
        if flaw.what == MISSING:
            missing[flaw.rows] = True
    here = np.isfinite(head)
    if not here.any():
        return None
    median, early = float(np.median(head[here])), int(missing[:LOOK].sum())
    if not missing.any():
        return Filling(median, False)
    where = f"{early:,} of the first {len(head):,} rows" if early else f"{int(missing.sum()):,} rows"
    more = ", and a further context says where it is missing" if early else ""
    note = f"Column {name!r} is missing in {where}: the median of the first rows, {median:g}, stands in for it{more}."
    return Filling(median, early > 0, note)


def filled(values: Floats, flaws: list[Flaw], filling: Filling | None) -> tuple[Floats, list[Flaw]]:
    """(n, 1) numbers without a gap, or (n, 2) with the mark beside them; and the flaws that are left."""
    if filling is None:
        return values[:, None], flaws
    gaps = [flaw for flaw in flaws if flaw.what == MISSING]
    mark = np.zeros(len(values))
    if gaps:
        mark[gaps[0].rows] = 1.0
        values = np.where(mark > 0, filling.median, values)
    block = np.column_stack([values, mark]) if filling.marked else values[:, None]
    return block, [flaw for flaw in flaws if flaw.what != MISSING]


def fillings_of(source: Source, columns: Sequence[str]) -> dict[str, Filling]:
    """For the columns of numbers among some contexts, from the first rows of a log."""
    fillings = {}
    for name in columns:
        kind: Any = source.type_of(name)
        if is_list(kind) or (is_text(kind) and looks_like_lists(source.chunks(name))):
            continue
        filling = filling_of(name, *cells.measured(name, source.chunks(name)))
        if filling is not None:
            fillings[name] = filling
    return fillings


def looks_like_lists(chunks: list[Any]) -> bool:
    """Whether the first cell of a column of text is a JSON list."""
    cell = next((cell for chunk in chunks for cell in cells.plain(chunk)[:1].to_pylist() if cell), "")
    return str(cell).strip().startswith("[")
