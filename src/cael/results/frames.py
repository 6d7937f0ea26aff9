"""A sheet as a data frame of pandas, or of polars."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cael.errors import NeedsError, choose
from cael.inference.intervals import Interval

if TYPE_CHECKING:
    from cael.results.sheet import Sheet

LIBRARIES = ("pandas", "polars")


def frame_of(sheet: Sheet, library: str | None = None) -> Any:
    """The rows of a sheet; library: "pandas" or "polars", by default the first of the two that is installed."""
    return _frame(library)(columns_of(sheet))


def frame_of_facts(facts: Mapping[str, Any], library: str | None = None) -> Any:
    """One row of plain facts; an interval is two columns, its ends."""
    columns: dict[str, list[Any]] = {}
    for name, fact in facts.items():
        if name == "interval":
            columns |= {f"{name}_low": [fact["low"]], f"{name}_high": [fact["high"]]}
        elif not isinstance(fact, Mapping):
            columns[name] = [fact]
    return _frame(library)(columns)


def _frame(library: str | None) -> Any:
    """The class of data frames of a library, or of the first of the two that is installed."""
    if library is None:
        library = next((name for name in LIBRARIES if find_spec(name) is not None), None)
        if library is None:
            raise NeedsError("a data frame needs pandas or polars, and neither is installed: pip install pandas.")
    choose("library", library, LIBRARIES)
    return importlib.import_module(library).DataFrame


def columns_of(sheet: Sheet) -> dict[str, list[Any]]:
    """The cells by column; an interval is two columns, NAME_low and NAME_high, and a pair of numbers NAME and
    NAME_error."""
    columns: dict[str, list[Any]] = {}
    for column in sheet.columns:
        cells = sheet.column(column.name)
        first = next((cell for cell in cells if cell is not None), None)
        names = _names(column.name, first)
        columns |= {name: [_part(cell, at, len(names)) for cell in cells] for at, name in enumerate(names)}
    return columns


def _names(name: str, cell: Any) -> tuple[str, ...]:
    if isinstance(cell, Interval):
        return f"{name}_low", f"{name}_high"
    return (name, f"{name}_error") if isinstance(cell, tuple) else (name,)


def _part(cell: Any, at: int, parts: int) -> Any:
    """One part of a cell; all of it where it has only one."""
    return cell if parts == 1 or cell is None else tuple(cell)[at]
