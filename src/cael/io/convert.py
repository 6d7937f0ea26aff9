"""What a path means as files that can be read in any order: formats that cannot are written to a temporary file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cael.errors import InputError
from cael.io.databases import Query, is_url, kind_of, masked, read_query
from cael.io.dsjson import is_dsjson, read_dsjson
from cael.io.files import File, find
from cael.io.joined import Joined, read_joined
from cael.io.json_lines import read_json
from cael.io.lakes import lake_of, read_lake, refuse_parts

READERS: dict[str, Callable[[Sequence[File]], tuple[File, ...]]] = {"json": read_json, "dsjson": read_dsjson}


def tables_in(path: str | Path | Query | Joined) -> tuple[File, ...]:
    """The files that a path means, those of other formats as Parquet; the rows of a query or a join likewise."""
    if isinstance(path, Joined):
        return read_joined(path, tables_in)
    if isinstance(path, Query):
        return read_query(path)
    if is_url(str(path)) or kind_of(str(path)) == "duckdb":
        raise InputError(
            f'{masked(str(path))} is a database or an address: say which rows, with --query "select ..." or --table '
            "NAME; in "
            'Python cael.io.Query(url, "select ...").'
        )
    lake = lake_of(Path(path)) if Path(path).is_dir() else None
    if lake is not None:
        return read_lake(Path(path), lake)
    files = find(path)
    if not Path(path).is_file():
        refuse_parts(files, str(path))
    kind = files[0].format
    if kind == "json" and is_dsjson(files[0].path):
        kind = "dsjson"
    return READERS[kind](files) if kind in READERS else files
