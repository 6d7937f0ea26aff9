"""The rows of trust runs that are kept beside the tables, so that a part can be run again, here or elsewhere."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import cael
from cael.common.whole import write_whole
from cael.errors import InputError
from cael.experiments import trial


@cache
def version() -> str:
    """The version of the source that makes a row: eight digits of the hash of all its files."""
    root = Path(cael.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows of a compressed file; none where there is no file."""
    try:
        text = lzma.decompress(path.read_bytes()) if path.exists() else b""
        return [json.loads(line) for line in text.splitlines()]
    except (lzma.LZMAError, ValueError) as error:
        raise InputError(
            f"{path} is not a file of kept rows ({error}). Move it away, or choose another --kept."
        ) from error


def keep(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows, in their order."""
    write_whole(path, lzma.compress("".join(trial.canonical(row) + "\n" for row in rows).encode(), preset=9))
