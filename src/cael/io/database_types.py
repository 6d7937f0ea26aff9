"""Types of databases as those that a log takes: exact decimals as numbers, anything without a place in Parquet as
text."""

from __future__ import annotations

from typing import Any

from cael.errors import InputError


def plain_schema(schema: Any, name: str) -> Any:
    """The columns with the types that they are read as; names must differ."""
    import pyarrow as pa

    twice = [column for at, column in enumerate(schema.names) if column in schema.names[:at]]
    if twice:
        raise InputError(f"{name}: the query gives two columns named {twice[0]!r}: rename one of them, as in `x as y`.")
    return pa.schema([(field.name, _plain(field.type)) for field in schema])


def _plain(kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as t

    if isinstance(kind, pa.BaseExtensionType):
        return pa.float64() if _is_numeric(kind) else _plain(kind.storage_type)
    if t.is_decimal(kind):
        return kind if kind.scale == 0 else pa.float64()
    if t.is_duration(kind) or t.is_interval(kind):
        return pa.string()
    return kind


def _is_numeric(kind: Any) -> bool:
    """Whether it is PostgreSQL's numeric, which comes as text."""
    return "numeric" in str(getattr(kind, "type_name", ""))


def plainly(batch: Any, schema: Any) -> Any:
    """The batch with these types."""
    import pyarrow as pa

    arrays = [_cast(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(column: Any, kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if column.type == kind:
        return column
    try:
        return column.cast(kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([None if cell is None else str(cell) for cell in column.to_pylist()], pa.string()).cast(kind)
