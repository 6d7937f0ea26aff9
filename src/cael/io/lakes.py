"""Tables that are more than their files: Delta and Iceberg say which files, and which of their rows, still belong to
them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cael.errors import InputError
from cael.io.extras import extra
from cael.io.files import File
from cael.io.spool import spooled, temporary

BATCH = 2**16
UP = 6
"""Folders above a file that are looked at."""


def lake_of(folder: Path) -> str | None:
    """ "delta", "iceberg" or "hudi", where the folder is such a table; else None."""
    if (folder / "_delta_log").is_dir():
        return "delta"
    if any((folder / "metadata").glob("*.metadata.json")):
        return "iceberg"
    return "hudi" if (folder / ".hoodie").is_dir() else None


def refuse_parts(files: Sequence[File], given: str) -> None:
    """Refuse files of such a table that are read as if they were a table of their own."""
    seen: set[Path] = set()
    for file in files:
        for folder in list(file.path.resolve().parents)[:UP]:
            if folder in seen:
                break
            seen.add(folder)
            kind = lake_of(folder)
            if kind is not None:
                raise InputError(
                    f"{given}: {file.path.name} belongs to the {kind.capitalize()} table {folder}, which says which "
                    "files and "
                    f"rows are deleted. Name that folder to read the table, and nothing else with it."
                )


def read_lake(folder: Path, kind: str) -> tuple[File, ...]:
    """The present rows of the table, as a temporary Parquet file."""
    if kind == "hudi":
        raise InputError(f"{folder} is a Hudi table, which cael does not read. Export its present rows to Parquet.")
    schema, batches, note = _delta(folder) if kind == "delta" else _iceberg(folder)
    held = temporary(str(folder))
    return (spooled(held, folder.name, schema, batches, source=str(folder), notes=(note,)),)


def _delta(folder: Path) -> tuple[Any, Any, str]:
    deltalake = extra(
        "deltalake", "delta", f"{folder} is a Delta table: read as plain files, its deleted rows would count"
    )
    try:
        table = deltalake.DeltaTable(str(folder))
        rows = table.to_pyarrow_dataset()
    except Exception as error:  # its errors have no common root
        reason = " ".join(str(error).split())[:300].rstrip(".")
        cure = ""
        if "deletionVectors" in reason or "reader features" in reason:
            cure = " Write its present rows to a table without them, or purge it (REORG TABLE ... APPLY (PURGE))."
        raise InputError(f"{folder} cannot be read as a Delta table: {reason}.{cure}") from None
    return rows.schema, rows.to_batches(batch_size=BATCH), f"Delta table at version {table.version()}."


def _iceberg(folder: Path) -> tuple[Any, Any, str]:
    tables = extra(
        "pyiceberg.table", "iceberg", f"{folder} is an Iceberg table: read as plain files, its deleted rows would count"
    )  # fmt: skip
    metadata = newest_metadata(folder)
    try:
        table = tables.StaticTable.from_metadata(metadata.resolve().as_uri())
        rows = table.scan().to_arrow_batch_reader()
    except Exception as error:  # its errors have no common root
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise InputError(f"{folder} cannot be read as an Iceberg table: {reason}.") from None
    return rows.schema, rows, f"Iceberg table as {metadata.name} describes it."


def newest_metadata(folder: Path) -> Path:
    """The newest description of an Iceberg table in its folder; where two are as new, only a catalog can tell."""
    numbered = {
        path: int(number[1])
        for path in (folder / "metadata").glob("*.metadata.json")
        if (number := re.match(r"v?(\d+)", path.name)) is not None
    }
    newest = sorted(path for path in numbered if numbered[path] == max(numbered.values()))
    if len(newest) != 1:
        names = ", ".join(path.name for path in newest[:3]) or "none with a number"
        raise InputError(
            f"{folder}: which description of the Iceberg table is the present one? There are: {names}. Ask its "
            "catalog, and "
            "remove the others or export the table to Parquet."
        )
    return newest[0]
