"""Which row is which: keys of rows and clusters, and the folds that follow from them, however the log is cut."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from cael.common.types import Array, Ints

FILE_BITS = 44
"""A row's place is its row number in its file, with the number of the file in the bits above."""

SALT = 0x5A3B1E5A3B1E
"""Keeps the numbers by which rows are sampled apart from those of the folds."""

GOLDEN, FIRST, SECOND = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def bijection(keys: Array) -> Array:
    """64-bit numbers that look random, one for each key: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    keys = (keys ^ (keys >> np.uint64(30))) * FIRST
    keys = (keys ^ (keys >> np.uint64(27))) * SECOND
    return keys ^ (keys >> np.uint64(31))


def mixed(keys: Array) -> Array:
    """The next number of SplitMix64 after each of these states."""
    return bijection(keys + GOLDEN)


def seeded(keys: Array, seed: int, salt: int = 0) -> Array:
    """(n,) 64 random-looking bits that depend on the row's key and a seed."""
    return mixed(keys ^ np.uint64((salt + seed * 0x9E3779B1) % 2**64))


def folds_of_keys(keys: Array, folds: int, seed: int) -> Ints:
    """The fold (n,) of each row, by a hash of its key: other rows do not matter, and a cluster stays in one fold."""
    return parts_of_keys(keys, folds, 1, seed)


def parts_of_keys(keys: Array, folds: int, halves: int, seed: int) -> Ints:
    """The part (n,) of each row: the fold times `halves`, and one of so many parts of the fold."""
    if folds * halves == 1:
        return np.zeros(len(keys), dtype=np.intp)
    bits = seeded(keys, seed)
    fold = (bits % np.uint64(folds)).astype(np.intp)
    return fold if halves == 1 else fold * halves + (bits // np.uint64(folds) % np.uint64(halves)).astype(np.intp)


def fold_of_each(held_out: Sequence[Ints], n: int) -> Ints:
    """The fold (n,) of each row, from the rows of each fold."""
    fold = np.empty(n, dtype=np.intp)
    for number, rows in enumerate(held_out):
        fold[rows] = number
    return fold


def distinct_keys(labels: list[object]) -> Array:
    """(m,) 64 bits for each distinct label, the same in every batch, file and process; a number of 64 bits is its own
    key."""
    if all(isinstance(label, int) and -(2**63) <= label < 2**64 for label in labels):
        return np.array([label % 2**64 for label in labels if isinstance(label, int)], dtype=np.uint64)
    digests = [hashlib.blake2b(str(label).encode(), digest_size=8).digest() for label in labels]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def label_array(labels: list[Any]) -> Array:
    """Labels as an array in which no two of them become one: whole numbers of 64 bits, or text."""
    low, high = (min(labels), max(labels)) if isinstance(labels[0], int) else (0, -1)
    if low <= high and low >= -(2**63) and high < 2**63:
        return np.array(labels, dtype=np.int64)
    if 0 <= low <= high < 2**64:
        return np.array(labels, dtype=np.uint64)
    return np.array(list(map(str, labels)))


def label_keys(labels: Array) -> Array:
    """(n,) 64 bits for each label of an array."""
    if labels.dtype.kind in "iu":
        return labels.astype(np.int64).view(np.uint64)
    distinct, codes = np.unique(labels, return_inverse=True)
    return distinct_keys(distinct.tolist())[codes]
