"""What an Arrow type holds, text, numbers or lists; and text without some of its cells."""

from __future__ import annotations

from typing import Any


def is_text(kind: Any) -> bool:
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    return t.is_string(kind) or t.is_large_string(kind) or is_view(kind) or t.is_null(kind)


def is_view(kind: Any) -> bool:
    return str(kind) == "string_view"


def is_number(kind: Any) -> bool:
    import pyarrow.types as t

    return t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind)


def is_list(kind: Any) -> bool:
    import pyarrow.types as t

    return t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind)


def kind_of(type_: Any) -> str:
    """What a type is good for: numbers, text, lists; others by their own name."""
    for name, holds in (("list", is_list), ("text", is_text), ("number", is_number)):
        if holds(type_):
            return name
    return str(type_)


def without(cells: Any, gone: Any) -> Any:
    """Text with null in the places where `gone` is true. `pc.if_else` gives other cells for a slice of text before
    pyarrow 25."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(cells, pa.ChunkedArray):
        pairs = zip(cells.chunks, gone.chunks, strict=True)
        return pa.chunked_array([without(*pair) for pair in pairs], cells.type)
    if not pc.any(gone).as_py():
        return cells
    return pc.replace_with_mask(cells, gone.fill_null(False), pa.scalar(None, cells.type))
