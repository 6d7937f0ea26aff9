"""Which row is which: its place in the files, its key, and its fold, all the same however the log is cut."""

from __future__ import annotations

import numpy as np

from cael.common.types import Array, Ints
from cael.log.pieces import Piece, mixed


def places_of(piece: Piece) -> Ints:
    """The number of each kept row in its file."""
    first = piece.source.origin[1] if piece.source.origin else 0
    return first + (np.arange(piece.read) if piece.rows is None else piece.rows)


def keys_of(piece: Piece, file: int) -> Array:
    """(n,) 64 bits that rows of one cluster share, or that are the row's own: its place in the files."""
    if piece.clusters is not None:
        return piece.clusters
    return (np.uint64(file) << np.uint64(44)) + places_of(piece).astype(np.uint64)


def folds_of(piece: Piece, file: int, folds: int, seed: int) -> Ints:
    """The fold of each row: by a hash of its cluster, or of its place in the files. A cluster stays in one fold."""
    if folds == 1:
        return np.zeros(len(piece), dtype=np.intp)
    return folds_of_keys(keys_of(piece, file), folds, seed)


def folds_of_keys(keys: Array, folds: int, seed: int) -> Ints:
    return (mixed(keys ^ np.uint64(seed * 0x9E3779B1)) % np.uint64(folds)).astype(np.intp)
