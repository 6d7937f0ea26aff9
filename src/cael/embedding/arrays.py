"""What numpy and torch write differently, so that CAEL's arithmetic is written once: numpy on a CPU, torch on a GPU.

Most of it is operators, slices and methods that both have. The rest is here in numpy and in `tensors` in torch, under
the same names; `of` says which of the two an array belongs to.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.embedding.settings import require_torch

if TYPE_CHECKING:
    from cael.embedding.tensors import Torch

AnyArray: TypeAlias = Any
"""An array of numpy or a tensor of torch."""
Arrays: TypeAlias = "Numpy | Torch"
Function: TypeAlias = Callable[..., Any]


@final
class Numpy:
    """Arrays of numpy."""

    on_device = False
    int16, int64, float32, float64 = np.int16, np.int64, np.float32, np.float64
    concatenate: Function = staticmethod(np.concatenate)
    floor: Function = staticmethod(np.floor)
    searchsorted: Function = staticmethod(np.searchsorted)
    sqrt: Function = staticmethod(np.sqrt)
    where: Function = staticmethod(np.where)
    zeros_like: Function = staticmethod(np.zeros_like)

    def asarray(self, values: Any, dtype: Any = None) -> Array:
        return np.asarray(values, dtype)

    def to_numpy(self, x: Array) -> Array:
        return x

    def astype(self, x: Array, dtype: Any) -> Array:
        return x.astype(dtype)

    def arange(self, *bounds: int) -> Ints:
        return np.arange(*bounds, dtype=np.int64)

    def zeros(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        return np.zeros(shape, dtype)

    def copy(self, x: Array) -> Array:
        return x.copy()

    def take(self, table: Array, rows: Ints) -> Array:
        """Whole rows (B,) of a table (n, ...)."""
        return table.take(rows, axis=0)

    def take_along(self, table: Array, places: Ints) -> Array:
        """The entries at places (b, m) of each line of a table (b, n)."""
        return np.take_along_axis(table, places, axis=1)

    def put_along(self, table: Array, places: Ints, values: Any) -> None:
        """Set the entries at places (b, m) of each line of a table (b, n)."""
        np.put_along_axis(table, places, values, axis=1)

    def argsort(self, x: Array) -> Ints:
        """The order of each line, equal ones by their place."""
        return x.argsort(axis=1, kind="stable")

    def sort(self, x: Array) -> Array:
        return np.sort(x, axis=1)

    def lowest(self, x: Array) -> Array:
        """The least of each line, (b, 1)."""
        return x.min(axis=1, keepdims=True)

    def nonzero(self, x: Array) -> Ints:
        return np.flatnonzero(x)

    def bincount(self, x: Ints, size: int) -> Ints:
        return np.bincount(x, minlength=size)

    def sums_at(self, at: Ints, values: Floats, size: int) -> Floats:
        """(size,) the sum of the values (N,) whose `at` (N,) says so."""
        return np.bincount(at, values, size).astype(values.dtype, copy=False)

    def row_sums_at(self, at: Ints, rows: Array, size: int) -> Array:
        """(size, h) the same of rows (N, h)."""
        from scipy.sparse import csr_array

        ends = np.concatenate([[0], np.bincount(at, minlength=size).cumsum()])
        members = np.ones(len(at), rows.dtype), at.argsort(kind="stable"), ends
        return np.asarray(csr_array(members, shape=(size, len(at))) @ rows)

    def ratio(self, top: Floats, bottom: Floats, least: float) -> Floats:
        """top / bottom, and 0 where the bottom is not above the least."""
        return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > least)

    def dots(self, x: Array, y: Array) -> Array:
        """(...) of two (..., h)."""
        return np.einsum("...h,...h->...", x, y)

    def total(self, x: Array) -> Array:
        """(T, h) the sum over rows of x (T, N, h); as a product it takes a fifth of the time."""
        return (np.ones((1, 1, x.shape[1]), x.dtype) @ x)[:, 0]

    def sigmoid(self, x: Array) -> Array:
        """By tanh, which numpy computes in a third of the time of exp and division."""
        s = 0.5 * x
        np.tanh(s, out=s)
        s *= 0.5
        s += 0.5
        return s

    def erfinv(self, x: Array) -> Array:
        from scipy.special import erfinv

        return erfinv(x)

    def repeated(self, step: Callable[..., None], state: Sequence[Array]) -> Callable[..., None]:
        """A function that changes `state` in place, to be called many times on arrays of one shape."""
        return step

    def deterministic(self) -> AbstractContextManager[None]:
        """Sums are made in one order while inside."""
        return nullcontext()


NUMPY = Numpy()


def of(x: AnyArray) -> Arrays:
    """What an array is computed with."""
    if isinstance(x, np.ndarray):
        return NUMPY
    from cael.embedding.tensors import Torch

    return Torch(x.device)


def arrays_on(device: str) -> Arrays:
    """Of a setting: "cpu" is numpy, "cuda" is torch, "auto" is torch where it is installed and finds a GPU."""
    if device == "cpu":
        return NUMPY
    if device == "auto" and importlib.util.find_spec("torch") is None:
        return NUMPY
    require_torch(f"device={device!r}")
    from cael.embedding.tensors import Torch, pick_device

    picked = pick_device(device)
    return NUMPY if picked.type == "cpu" else Torch(picked)
