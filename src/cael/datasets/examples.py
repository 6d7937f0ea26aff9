"""A generated log of a news site, small enough to ship: which article stood on top, and was it clicked?"""

from __future__ import annotations

from pathlib import Path

from cael.common.whole import write_whole
from cael.errors import InputError

FILES = ("news.parquet", "articles.csv")


def path(name: str = "news.parquet") -> Path:
    """Where a file of the example is: "news.parquet", the log, or "articles.csv", the table of actions.

    >>> path().name
    'news.parquet'
    """
    if name not in FILES:
        raise InputError(f"the example has no file {name!r}; there are: {', '.join(FILES)}.")
    return Path(__file__).with_name(name)


def copy(folder: str | Path = ".") -> list[Path]:
    """Copy the files of the example into a folder; files that are there already are not overwritten."""
    into = Path(folder)
    if not into.is_dir():
        raise InputError(f"there is no folder {into}.")
    copies = []
    for name in FILES:
        target = into / name
        if target.exists():
            raise InputError(f"{target} is there already: name another folder, or remove it.")
        write_whole(target, path(name).read_bytes())
        copies.append(target)
    return copies
