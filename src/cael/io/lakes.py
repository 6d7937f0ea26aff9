"""Tables that are more than their files: Delta and Iceberg say which files, and which of their rows, still belong to
them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
        cure = ""
        if "deletionVectors" in str(error) or "reader features" in str(error):
            cure = " Write its present rows to a table without them, or purge it (REORG TABLE ... APPLY (PURGE))."
        raise _unreadable(folder, "a Delta", error, cure) from None
    batches = _named(rows.to_batches(batch_size=BATCH), folder, "a Delta")
    return rows.schema, batches, f"Delta table at version {table.version()}."


def _iceberg(folder: Path) -> tuple[Any, Any, str]:
    tables = extra(
        "pyiceberg.table", "iceberg", f"{folder} is an Iceberg table: read as plain files, its deleted rows would count"
    )  # fmt: skip
    metadata = newest_metadata(folder)
    try:
        refuse_code(metadata)
        table = tables.StaticTable.from_metadata(metadata.resolve().as_uri())
        refuse_elsewhere(table)
        rows = table.scan().to_arrow_batch_reader()
    except InputError:
        raise
    except Exception as error:  # its errors have no common root
        raise _unreadable(folder, "an Iceberg", error) from None
    return rows.schema, _named(rows, folder, "an Iceberg"), f"Iceberg table as {metadata.name} describes it."


def refuse_code(metadata: Path) -> None:
    """Refuse a description that names classes of Python to read it with: pyiceberg would import them."""
    content = metadata.read_bytes()
    table = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    named = [name for name in table.get("properties") or {} if name.startswith("py-")]
    if named:
        raise InputError(f"{metadata} names code to read the table with ({named[0]}), which cael does not run.")
    for snapshot in table.get("snapshots") or ():
        _refuse_remote(str(snapshot.get("manifest-list", "")))


def refuse_elsewhere(table: Any) -> None:
    """Refuse a table with files on other machines, before one of them is asked for."""
    snapshot = table.current_snapshot()
    for manifest in () if snapshot is None else snapshot.manifests(table.io):
        _refuse_remote(manifest.manifest_path)
    for task in table.scan().plan_files():
        for file in (task.file, *task.delete_files):
            _refuse_remote(file.file_path)


def _refuse_remote(place: str) -> None:
    if urlsplit(place).scheme not in ("", "file"):
        raise InputError(f"the Iceberg table has files elsewhere, such as {place}: cael reads those of this machine.")


def _unreadable(folder: Path, kind: str, error: Exception, cure: str = "") -> InputError:
    reason = " ".join(str(error).split())[:300].rstrip(".")
    return InputError(f"{folder} cannot be read as {kind} table: {reason}.{cure}")


def _named(batches: Any, folder: Path, kind: str) -> Iterator[Any]:
    """The batches, and an error that names the table where one cannot be read."""
    try:
        yield from batches
    except Exception as error:  # its errors have no common root
        raise _unreadable(folder, kind, error) from None


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
