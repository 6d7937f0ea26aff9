"""Generated logs: of a news site, small enough to ship (which article stood on top, and was it clicked?), and of five
others that are made when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cael.common.whole import whole_file, write_whole
from cael.errors import InputError, positive_int

if TYPE_CHECKING:
    from cael.datasets.small_worlds import Example

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
    """Copy the files of the news site into a folder; files that are there already are not overwritten."""
    targets = _free(Path(folder), FILES)
    for name, target in zip(FILES, targets, strict=True):
        write_whole(target, path(name).read_bytes())
    return targets


def make(name: str, folder: str | Path = ".", seed: int = 0) -> list[Path]:
    """Write the files of an example into a folder: "news", "revenue", "email", "recommender", "ads" or "llm-router"."""
    if name == "news":
        return copy(folder)
    files = world(name, seed).files
    targets = _free(Path(folder), tuple(files))
    for rows, target in zip(files.values(), targets, strict=True):
        _write(rows, target)
    return targets


def truth(name: str, seed: int = 0) -> dict[str, float]:
    """The true values of the policies of an example, by their specs, which only a generated log has.

    >>> sorted(truth("revenue"))
    ['choice:new_offer', 'logging', 'uniform']
    """
    if name == "news":
        from cael.datasets.news_world import generate

        site = generate()
        return {"topk:new_articles+new_probabilities": site.value(site.new), "logging": site.value(site.logging)}
    return dict(world(name, seed).truth)


def world(name: str, seed: int = 0) -> Example:
    """The rows of an example and its truth."""
    from cael.datasets.small_worlds import WORLDS

    if name not in WORLDS:
        raise InputError(f"there is no example {name!r}; there are: news, {', '.join(WORLDS)}.")
    return WORLDS[name](positive_int("seed", seed, least=0))


def _free(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """The paths of files that are not there yet."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}.")
    for target in (folder / name for name in names):
        if target.exists():
            raise InputError(f"{target} is there already: name another folder, or remove it.")
    return [folder / name for name in names]


def _write(rows: Mapping[str, Any], target: Path) -> None:
    """The columns as Parquet, CSV or JSON lines, by the ending of the file."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    with whole_file(target) as file:
        if target.suffix == ".parquet":
            parquet.write_table(pa.table(dict(rows)), file)
        elif target.suffix == ".csv":
            csv.write_csv(pa.table(dict(rows)), file)
        else:
            lines = rows[""] if "" in rows else pa.table(dict(rows)).to_pylist()
            file.writelines(json.dumps(line, default=str).encode() + b"\n" for line in lines)
