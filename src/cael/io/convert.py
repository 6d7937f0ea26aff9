"""What a path means as files that can be read in any order: formats that cannot are written to a temporary file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cael.io.dsjson import is_dsjson, read_dsjson
from cael.io.files import File, find
from cael.io.json_lines import read_json

READERS: dict[str, Callable[[Sequence[File]], tuple[File, ...]]] = {"json": read_json, "dsjson": read_dsjson}


def tables_in(path: str | Path) -> tuple[File, ...]:
    """The files that a path means, those of other formats as Parquet."""
    files = find(path)
    kind = files[0].format
    if kind == "json" and is_dsjson(files[0].path):
        kind = "dsjson"
    return READERS[kind](files) if kind in READERS else files
