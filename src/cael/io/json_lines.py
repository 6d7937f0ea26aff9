"""JSON lines: one object a line, read in blocks, with types that fit every line of every file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from math import isinf
from pathlib import Path
from typing import Any

from cael.errors import InputError
from cael.io.files import File, readable
from cael.io.spool import spooled, temporary

BLOCK = 4 * 2**20
"""Bytes of text that are parsed together."""
LONGEST = 2**26
"""Bytes that a line may have."""
DEPTH = 64
"""How deep lists and objects may lie in each other: Arrow's reader has no limit of its own, and ends the process."""
KINDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number of its first line; lines are counted from 1."""
    import pyarrow as pa

    number, rest = 1, b""
    with readable(path), pa.input_stream(str(path), compression="detect") as stream:
        while True:
            more = stream.read(BLOCK)
            block, cut, tail = (rest + more).rpartition(b"\n") if more else (rest, b"", b"")
            if len(tail) > LONGEST:
                at = number + block.count(b"\n") + len(cut)
                raise InputError(
                    f"{path}: line {at} has more than {LONGEST:,} bytes. JSON lines hold one object a line."
                )
            rest = tail
            if block.strip():
                yield number, block
            number += block.count(b"\n") + len(cut)
            if not more:
                return


def read_json(files: Sequence[File]) -> tuple[File, ...]:
    """JSON lines as Parquet: a first pass over all files fixes the types, a second one writes."""
    types: dict[str, Any] = {}
    for file in files:
        with file.watched():
            for number, block in _checked(file.path):
                types = _widened(types, file.path, number, block)
    types, notes = _without_records(types)
    folder = temporary(str(files[0].path))
    return tuple(_written(file, types, folder, notes) for file in files)


def _written(file: File, types: dict[str, Any], folder: Any, notes: tuple[str, ...]) -> File:
    import pyarrow as pa

    flat = flattened(pa.table({name: pa.array([], kind) for name, kind in types.items()}), file.path)
    parts = [(name, pa.string()) for name, _ in file.parts]
    schema = pa.schema([*flat.schema, *parts])
    source = str(file.path)
    with file.watched():
        return spooled(folder, file.path.name, schema, _rows(file, types, schema), source=source, notes=notes)


def _rows(file: File, types: dict[str, Any], schema: Any) -> Iterator[Any]:
    import pyarrow as pa

    for _, block in lines_of(file.path):
        table = flattened(_parsed(block, types, "ignore"), file.path)
        for name, value in file.parts:
            table = table.append_column(name, pa.repeat(pa.scalar(value), len(table)))
        yield from table.select(schema.names).cast(schema).to_batches()


def _checked(path: Path) -> Iterator[tuple[int, bytes]]:
    """The blocks, which are UTF-8 and not nested too deep."""
    for number, block in lines_of(path):
        try:
            block.decode("utf-8")
        except UnicodeDecodeError as error:
            line = number + block.count(b"\n", 0, error.start)
            raise InputError(f"{path} is not valid UTF-8 text: line {line}. Save the file as UTF-8.") from None
        if _may_be_deep(block):
            _refuse_deep(path, number, block)
        yield number, block


def _may_be_deep(block: bytes) -> bool:
    """Whether brackets that close are still there after so many pairs were taken away; those in text count, too."""
    brackets = block.translate(None, bytes(set(range(256)) - set(b"[]{}")))
    for _ in range(DEPTH // 2):
        shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    return bool(brackets)


def _refuse_deep(path: Path, first: int, block: bytes) -> None:
    for number, line in enumerate(block.split(b"\n"), first):
        if _may_be_deep(line) and _depth(loaded(path, number, line)) > DEPTH:
            raise _too_deep(path, number)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((_depth(each) for each in inner), default=0)


def _too_deep(path: Path, number: int) -> InputError:
    return InputError(f"{path}: line {number} nests lists and objects more than {DEPTH} deep.")


def loaded(path: Path, number: int, line: bytes) -> Any:
    """The value of one line, or an error that names it."""
    try:
        return json.loads(line, object_pairs_hook=_once) if line.strip() else {}
    except KeyError as error:
        raise InputError(f"{path}: line {number} has the name {error.args[0]!r} twice in one object.") from None
    except ValueError as error:
        reason = getattr(error, "msg", str(error))
        at = f", character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{path}: line {number} is not JSON ({reason}{at}): {_start(line)}.") from None
    except RecursionError:
        raise _too_deep(path, number) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, whose names must differ."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise KeyError(next(name for at, name in enumerate(names) if name in names[:at]))
    return value


def _start(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text[:60]) + ("..." if len(text) > 60 else "")


def _parsed(block: bytes, types: dict[str, Any], unexpected: str) -> Any:
    import pyarrow as pa
    from pyarrow import json as arrow

    return arrow.read_json(
        io.BytesIO(block + b"\n"),
        arrow.ReadOptions(use_threads=False, block_size=len(block) + 2),
        arrow.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior=unexpected),
    )


def _widened(types: dict[str, Any], path: Path, number: int, block: bytes) -> dict[str, Any]:
    """Types that fit the block, too."""
    import pyarrow as pa

    try:
        schema = _parsed(block, {}, "infer").schema
        kinds = {field.name: _whole_or(field, block) for field in schema}
        return {**types, **{name: wider(types.get(name), kind) for name, kind in kinds.items()}}
    except (pa.ArrowInvalid, TypeError) as error:
        _refuse_lines(types, path, number, block)
        last = number + block.count(b"\n")
        raise InputError(f"{path}: lines {number} to {last} cannot be read: {error}.") from None


def _whole_or(field: Any, block: bytes) -> Any:
    """The type of a field; whole numbers of more than 63 bits, which Arrow takes for fractions, are decimals."""
    import pyarrow as pa

    if field.type != pa.float64():
        return field.type
    try:
        _parsed(block, {field.name: _wide()}, "ignore")
    except pa.ArrowInvalid:
        return field.type
    return _wide()


def _wide() -> Any:
    import pyarrow as pa

    return pa.decimal128(38, 0)


def wider(known: Any, new: Any) -> Any:
    """The type that holds what both hold; TypeError where there is none. Times stay text, as they are written."""
    import pyarrow as pa
    import pyarrow.types as t

    new = pa.string() if t.is_timestamp(new) else new
    if t.is_struct(new):
        return _wider_struct(known if known is not None and t.is_struct(known) else pa.struct([]), new, known)
    if t.is_list(new):
        inner = known.value_type if known is not None and t.is_list(known) else None
        if known is None or t.is_null(known) or t.is_list(known):
            return pa.list_(wider(inner, new.value_type))
    if known is None or t.is_null(known) or known == new:
        return new
    if t.is_null(new):
        return known
    if {known, new} <= {pa.int64(), pa.float64(), _wide()}:
        return pa.float64() if pa.float64() in (known, new) else _wide()
    raise TypeError(f"{known} and {new}")


def _wider_struct(known: Any, new: Any, given: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as t

    if not (given is None or t.is_null(given) or t.is_struct(given)):
        raise TypeError(f"{given} and {new}")
    fields = {field.name: field.type for field in known}
    return pa.struct([*{**fields, **{f.name: wider(fields.get(f.name), f.type) for f in new}}.items()])


def _refuse_lines(types: dict[str, Any], path: Path, first: int, block: bytes) -> None:
    """Say which line is the first that is not JSON, not an object, or has another kind of value than the lines
    before."""
    kinds: dict[tuple[str, ...], str] = {}
    for name, kind in types.items():
        _kinds_of_type((name,), kind, kinds)
    for number, line in enumerate(block.split(b"\n"), first):
        value = loaded(path, number, line)
        if not isinstance(value, dict):
            raise InputError(
                f"{path}: line {number} is {KINDS.get(type(value), 'null')}: expected JSON lines, one object a line, "
                "such as "
                '{"action": 1, "reward": 0.5}. Write each row of an array on a line of its own.'
            )
        _note_kinds(path, number, (), value, kinds)


def _kinds_of_type(place: tuple[str, ...], kind: Any, kinds: dict[tuple[str, ...], str]) -> None:
    import pyarrow.types as t

    if t.is_struct(kind):
        kinds[place] = KINDS[dict]
        for field in kind:
            _kinds_of_type((*place, field.name), field.type, kinds)
    elif t.is_list(kind):
        kinds[place] = KINDS[list]
        _kinds_of_type((*place, "[]"), kind.value_type, kinds)
    elif not t.is_null(kind):
        kinds[place] = KINDS[str if t.is_string(kind) else bool if t.is_boolean(kind) else float]


def _note_kinds(
    path: Path, number: int, place: tuple[str, ...], value: Any, kinds: dict[tuple[str, ...], str]
) -> None:  # fmt: skip
    if value is None:
        return
    kind = KINDS[type(value)]
    if isinstance(value, float) and isinf(value):
        raise InputError(f"{path}: line {number}: {place[-1]!r} is a number too large to be stored.")
    if place and kinds.setdefault(place, kind) != kind:
        name = "_".join(part for part in place if part != "[]")
        raise InputError(
            f"{path}: line {number}: {name!r} is {kind}, and {kinds[place]} in the lines before. Write all of them "
            "alike; "
            "labels that are not all numbers as text."
        )
    if isinstance(value, dict):
        for key, inner in value.items():
            _note_kinds(path, number, (*place, key), inner, kinds)
    elif isinstance(value, list):
        for inner in value:
            _note_kinds(path, number, (*place, "[]"), inner, kinds)


def _without_records(types: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Without the columns that hold lists of objects, which no role of a log takes."""
    out = [name for name, kind in types.items() if _has_records(kind)]
    note = f"Lists of objects cannot be columns of a log and were left out: {', '.join(map(repr, out))}."
    return {name: kind for name, kind in types.items() if name not in out}, (note,) if out else ()


def _has_records(kind: Any) -> bool:
    import pyarrow.types as t

    if t.is_list(kind):
        return t.is_struct(kind.value_type) or _has_records(kind.value_type)
    return t.is_struct(kind) and any(_has_records(field.type) for field in kind)


def flattened(table: Any, path: Path) -> Any:
    """Objects as columns of their own: {"context": {"age": 3}} is the column context_age."""
    import pyarrow.types as t

    while any(t.is_struct(kind) for kind in table.schema.types):
        names = [
            name
            for field in table.schema
            for name in (
                [f"{field.name}_{inner.name}" for inner in field.type] if t.is_struct(field.type) else [field.name]
            )
        ]
        table = table.flatten().rename_columns(names)
    names = table.column_names
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise InputError(f"{path} has two columns named {twice[0]!r}, one of them from an object: rename one of them.")
    return table
