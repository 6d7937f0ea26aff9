"""From Arrow columns to arrays, cast once, with every cell that is wrong counted by row.

Each function takes the chunks of a column (Arrow arrays, in order) and gives an array with one entry per row and the
flaws: for each kind of trouble, a mask of rows. What a flawed row holds in the array is filler.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import LARGEST, InputError
from cael.io.kinds import is_list, is_number, is_text, is_view, without

Mask = Array
MISSING = "is missing"
FINER = r"(:\d\d\.\d{6})\d+"
"""Digits of a second beyond microseconds."""
LARGE = 2**20
"""After so many numbers, Arrow is asked to give back the memory that it no longer uses."""


@final
@dataclass(frozen=True, eq=False)
class Flaw:
    """Cells of a column that are wrong. what: "is missing", "is 0", ...; rows: (m,) row numbers."""

    column: str
    what: str
    rows: Ints
    example: str = ""


def sentence(column: str, what: str, example: str, count: int, places: list[str]) -> str:
    """'column 'reward' is missing in 2 rows (rows 3, 17)'; places: of the first of them."""
    such, s = f", such as {example}," if example else "", "s" if count > 1 else ""
    more = ", ..." if count > len(places) else ""
    return f"column {column!r} {what}{such} in {count:,} row{s} (row{s} {', '.join(places)}{more})"


def flaws(column: str, masks: dict[str, Mask], values: Any = None) -> list[Flaw]:
    """Those of the masks that hold any row."""
    held = [(what, rows) for what, mask in masks.items() if len(rows := np.flatnonzero(mask))]
    return [Flaw(column, what, rows, "" if values is None else str(values[int(rows[0])])) for what, rows in held]


def plain(chunk: Any) -> Any:
    """A dictionary-encoded or string-view chunk as plain values, a null-typed one as text."""
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_dictionary(chunk.type):
        chunk = plain(chunk.dictionary).take(chunk.indices)
    if is_view(chunk.type) or t.is_null(chunk.type) or t.is_large_string(chunk.type):
        chunk = chunk.cast(pa.string())
    return chunk


def numbers(column: str, chunks: list[Any]) -> tuple[Floats, list[Flaw]]:
    """float64, finite; text is read as numbers where all of a cell is one. The chunks are given up as they are read."""
    import pyarrow as pa

    values, at, example = np.empty(sum(map(len, chunks))), 0, ""
    unread: list[Ints] = []
    while chunks:
        part, rows, cell = _numbers(column, chunks.pop(0))
        values[at : at + len(part)] = part
        unread.append(rows + at)
        at, example = at + len(part), example or cell
    if len(values) > LARGE:
        pa.default_memory_pool().release_unused()  # or Arrow keeps what the chunks took
    if np.isfinite(values).all():
        return values, []
    missing = np.isnan(values)
    missing[np.concatenate(unread)] = False
    wrong = [Flaw(column, "is not a number", np.concatenate(unread), example)] if example else []
    infinite = flaws(column, {"is infinite": np.isinf(values)}, values)
    return values, [*flaws(column, {MISSING: missing}), *wrong, *infinite]


def measured(column: str, chunks: list[Any]) -> tuple[Floats, list[Flaw]]:
    """As `numbers`, none of which is so large that its powers overflow."""
    values, wrong = numbers(column, chunks)
    large = np.isfinite(values) & (np.abs(values) > LARGEST)
    return values, [*wrong, *flaws(column, {f"is beyond {LARGEST:g}, too large to be squared": large}, values)]


def sampling_weights(column: str, chunks: list[Any]) -> tuple[Floats, list[Flaw]]:
    """As `measured`, above 0."""
    values, wrong = measured(column, chunks)
    small = (values > 0) & (values < 1 / LARGEST)
    masks = {"is not above 0": values <= 0, f"is below {1 / LARGEST:g}": small}
    return values, [*wrong, *flaws(column, masks, values)]


def propensities(column: str, chunks: list[Any]) -> tuple[Floats, list[Flaw]]:
    """As `numbers`, in (0, 1]."""
    values, wrong = numbers(column, chunks)
    _refuse_percent(column, values)
    _refuse_logarithms(column, values)
    small = (values > 0) & (values < 1 / LARGEST)
    masks = {"is not above 0": values <= 0, "is above 1": values > 1, f"is below {1 / LARGEST:g}": small}
    return values, [*wrong, *flaws(column, masks, values)]


def _refuse_percent(column: str, values: Floats) -> None:
    """Refuse propensities that are percent: most are above 1, and none above 100."""
    above = int((values > 1).sum())
    if 2 * above > len(values) and float(np.nanmax(values)) <= 100 and float(np.nanmin(values)) >= 0:
        raise InputError(
            f"column {column!r} holds propensities in percent: expected probabilities in (0, 1]; {above:,} of "
            f"{len(values):,} are above 1 and none is above 100, such as {values[values > 1][0]:g}. Divide the column "
            "by 100."
        )


def _refuse_logarithms(column: str, values: Floats) -> None:
    """Refuse propensities that are logarithms: none is above 0, and most are below it."""
    known = values[np.isfinite(values)]
    if len(known) and float(known.max()) <= 0 and 2 * int((known < 0).sum()) > len(known):
        raise InputError(
            f"column {column!r} holds logarithms of propensities: expected probabilities in (0, 1]; none of "
            f"{len(values):,} is above 0, such as {known.min():.4g}. Write their exponentials."
        )


def _numbers(column: str, chunk: Any) -> tuple[Floats, Ints, str]:
    """values, NaN where there is none; rows that are not numbers, and an example of them."""
    import pyarrow as pa

    chunk = plain(chunk)
    if is_text(chunk.type):
        return _text_numbers(chunk)
    if not is_number(chunk.type):
        raise InputError(
            f"column {column!r} must hold numbers; it holds {chunk.type}. Name another column, or convert this one."
        )
    return chunk.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.empty(0, np.intp), ""


def _text_numbers(chunk: Any) -> tuple[Floats, Ints, str]:
    cells = chunk.to_pylist()
    values, wrong = np.full(len(cells), np.nan), []
    for at, cell in enumerate(cells):
        if cell is None or not cell.strip() or cell.strip().lower() in ("nan", "na", "null", "none"):
            continue
        try:
            values[at] = float(cell if "_" not in cell else "")  # Python reads 1_0 as 10
        except ValueError:
            wrong.append(at)
    return values, np.array(wrong, dtype=np.intp), repr(cells[wrong[0]][:40]) if wrong else ""


def is_written_number(cell: str) -> bool:
    """Whether text is a number, as `numbers` reads it."""
    try:
        float(cell if "_" not in cell else "")
    except ValueError:
        return False
    return True


def _joined(parts: list[Array], dtype: Any) -> Array:
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0)
    return joined.astype(dtype, copy=False)


def labels(column: str, chunks: list[Any]) -> tuple[Ints, list[Any], list[Flaw]]:
    """Codes (n,) into the sorted distinct labels, -1 where missing: whole numbers if all are, else text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ready = _alike([_label_chunk(column, chunk) for chunk in chunks])
    whole = pa.chunked_array(ready) if ready else pa.chunked_array([pa.array([], pa.string())])
    encoded = pc.dictionary_encode(whole).combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    distinct = _whole(encoded.dictionary)
    order = sorted(range(len(distinct)), key=lambda at: distinct[at])
    place = np.empty(len(distinct) + 1, dtype=np.int32)  # half the memory; a table of 2^31 labels does not exist
    place[order] = np.arange(len(distinct))
    place[-1] = -1
    codes = place[pc.fill_null(encoded.indices, len(distinct)).to_numpy(zero_copy_only=False)]
    return codes, [distinct[at] for at in order], flaws(column, {"is missing": codes < 0})


def _alike(chunks: list[Any]) -> list[Any]:
    """Chunks of one type: whole numbers of any size, or text where one of them is."""
    import pyarrow as pa

    kinds = {chunk.type for chunk in chunks}
    if len(kinds) < 2:
        return chunks
    if pa.string() not in kinds:
        return [chunk.cast(pa.decimal256(76, 0)) for chunk in chunks]
    texts = [[None if cell is None else str(cell) for cell in _whole(chunk)] for chunk in chunks]
    return [pa.array(text, pa.string()) for text in texts]


def _whole(chunk: Any) -> list[Any]:
    """Text, or Python's whole numbers."""
    import pyarrow.types as t

    cells = chunk.to_pylist()
    return [None if cell is None else int(cell) for cell in cells] if t.is_decimal(chunk.type) else cells


def _label_chunk(column: str, chunk: Any) -> Any:
    """int64, wider whole numbers as decimals, or text, with null for an empty text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as t

    chunk = plain(chunk)
    if t.is_binary(chunk.type) or t.is_large_binary(chunk.type):
        raise InputError(
            f"column {column!r} holds {chunk.type}: bytes, or text that is not valid UTF-8. Write it as UTF-8 text."
        )
    if is_text(chunk.type):
        _refuse_nul(column, chunk)
        return without(chunk, pc.equal(chunk, ""))
    if t.is_floating(chunk.type):
        return _whole_floats(column, chunk)
    if t.is_decimal(chunk.type):
        return _whole_decimals(column, chunk)
    if t.is_uint64(chunk.type) and (pc.max(chunk).as_py() or 0) >= 2**63:
        return chunk.cast(pa.decimal128(20, 0))
    if t.is_integer(chunk.type) or t.is_boolean(chunk.type):
        return chunk.cast(pa.int64())
    if t.is_temporal(chunk.type):
        return chunk.cast(pa.string())
    raise InputError(f"column {column!r} must hold whole numbers or text; it holds {chunk.type}.")


def _refuse_nul(column: str, chunk: Any) -> None:
    """Refuse labels that end in NUL: numpy drops it, and two of them could become one."""
    import pyarrow.compute as pc

    ends = pc.ends_with(chunk, "\x00").fill_null(False)
    if pc.any(ends).as_py():
        raise InputError(
            f"column {column!r} has a label that ends in the character NUL, such as {chunk.filter(ends)[0].as_py()!r}. "
            "Take it away; it may be the filling of a field of fixed width."
        )


def _whole_floats(column: str, chunk: Any) -> Any:
    """Floating point numbers as int64; infinite ones and NaN are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    exact = {16: 2**11, 32: 2**24}.get(chunk.type.bit_width, 2**53)
    values = chunk.cast(pa.float64())
    broken = pc.and_(pc.is_finite(values), pc.not_equal(pc.floor(values), values)).fill_null(False)
    if pc.any(broken).as_py():
        raise _no_label(column, chunk.type, values.filter(broken)[0].as_py())
    values = pc.if_else(pc.is_finite(values), values, None)
    large = pc.greater(pc.abs(values), exact).fill_null(False)
    if pc.any(large).as_py():
        raise InputError(
            f"column {column!r} holds labels as {chunk.type}, which cannot tell whole numbers above {exact:,} apart, "
            f"for example {values.filter(large)[0].as_py():.0f}. Write it as whole numbers or as text."
        )
    return values.cast(pa.int64())


def _whole_decimals(column: str, chunk: Any) -> Any:
    """Decimals without a fraction, as int64 where they fit."""
    import pyarrow as pa

    cells = chunk.to_pylist()
    broken = [cell for cell in cells if cell is not None and cell != cell.to_integral_value()]
    if broken:
        raise _no_label(column, chunk.type, broken[0])
    numbers = [None if cell is None else int(cell) for cell in cells]
    small = all(number is None or -(2**63) <= number < 2**63 for number in numbers)
    return pa.array(numbers, pa.int64()) if small else pa.array(numbers, pa.decimal256(76, 0))


def _no_label(column: str, kind: Any, example: Any) -> InputError:
    return InputError(
        f"column {column!r} must hold whole numbers or text; it holds {kind}, for example {example}. Name another "
        "column, or convert this one."
    )


def times(column: str, chunks: list[Any]) -> tuple[Array, list[Flaw]]:
    """Numbers, or datetime64[us] in UTC from timestamps, dates and ISO 8601 text."""
    import pyarrow as pa
    import pyarrow.types as t

    if all(is_number(chunk.type) for chunk in chunks):
        return numbers(column, chunks)
    parts = []
    for chunk in map(plain, chunks):
        try:
            moment = chunk.cast(pa.timestamp("us", "UTC" if getattr(chunk.type, "tz", None) else None), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            moment = None
        if moment is None and t.is_string(chunk.type):
            moment = _zoned(chunk)
        if moment is None:
            raise InputError(
                f"column {column!r} must hold times (timestamps, dates, numbers, ISO 8601 text); it holds {chunk.type}"
                + (f", for example {chunk[0].as_py()!r}." if len(chunk) else ".")
                + " Write them as 2026-01-31T10:00:00, with Z or +01:00 behind for a time zone."
            )
        parts.append(moment.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy())
    values = _joined(parts, np.int64).view("datetime64[us]")
    return values, flaws(column, {"is missing": np.isnat(values)})


def _zoned(chunk: Any) -> Any:
    """Text with a time zone, '2026-01-31T10:00:00Z', or with more digits than microseconds have; or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    chunk = pc.replace_substring_regex(chunk, FINER, r"\1")
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            return chunk.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


def lists(column: str, chunks: list[Any], cast: Callable[[str, list[Any]], Any]) -> tuple[Ints, Any, list[Flaw]]:
    """Lengths (n,), the joined entries as `cast` gives them, and the flaws; -1 is the length of a missing list.

    A column of text holds JSON lists, as CSV files do: [0.1, 0.9]. The chunks are given up as they are read.
    """
    lengths, entries = [], []
    while chunks:
        chunk = chunks.pop(0)
        chunk = _json_lists(column, chunk) if is_text(chunk.type) else chunk
        if not is_list(chunk.type):
            raise InputError(f"column {column!r} must hold lists; it holds {chunk.type}.")
        lengths.append(_lengths(chunk))
        entries.append(chunk.flatten())
    if not lengths:
        return np.empty(0, np.intp), cast(column, []), []
    del chunk
    n = np.concatenate(lengths)
    values = cast(column, entries)
    ends = np.cumsum(np.maximum(n, 0)) if values[-1] else n
    wrong = [
        Flaw(column, f"has an entry that {flaw.what}", np.unique(ends.searchsorted(flaw.rows, "right")), flaw.example)
        for flaw in values[-1]
    ]
    return n, values[:-1], [*flaws(column, {"is missing": n < 0}), *wrong]


def _lengths(chunk: Any) -> Ints:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.list_value_length(chunk), -1).to_numpy(zero_copy_only=False), dtype=np.intp)


def _json_lists(column: str, chunk: Any) -> Any:
    """Text as lists, each cell by itself: damage in one never moves another."""
    import pyarrow as pa

    cells = plain(chunk).to_pylist()
    try:
        parsed = pa.array([json.loads(cell) if cell and cell.strip() else None for cell in cells])
    except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException):
        parsed = None
    if parsed is not None and parsed.null_count == len(parsed):
        return pa.nulls(len(parsed), pa.list_(pa.float64()))
    if parsed is None or not is_list(parsed.type):
        raise InputError(
            f'column {column!r} must hold lists; in a text file these are written [0.1, 0.9] or ["a", "b"]; '
            f"got {_first_not_list(cells)}."
        )
    return parsed


def _first_not_list(cells: list[str | None]) -> str:
    for row, cell in enumerate(cells):
        if not cell or not cell.strip():
            continue
        try:
            value = json.loads(cell)
        except (ValueError, RecursionError):
            return f"{cell[:40]!r} (row {row})"
        if value is not None and not isinstance(value, list):
            return f"{cell[:40]!r} (row {row})"
    return "lists of mixed types"
