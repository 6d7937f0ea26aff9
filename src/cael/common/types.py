"""Array types used throughout; shapes are stated in docstrings."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Array: TypeAlias = NDArray[Any]


def frozen(array: Array, *, copy: bool = True) -> Array:
    """A copy that nobody can write to, not even with `setflags`: its memory is a bytes object.

    With copy=False, a read-only view of the caller's own array.
    """
    if not copy:
        view = array.view()
        view.setflags(write=False)
        return view
    array = np.ascontiguousarray(array)
    if array.size == 0:
        empty = np.empty(array.shape, array.dtype)
        empty.setflags(write=False)
        return empty
    return np.frombuffer(array.tobytes(), dtype=array.dtype).reshape(array.shape)


def all_finite(array: Array, size: int = 2**19) -> bool:
    """Whether every number is finite, without a mask of the size of the array."""
    flat = array.reshape(-1)
    return all(bool(np.isfinite(flat[at : at + size]).all()) for at in range(0, len(flat), size))


def settle(made: object, **fields: Any) -> None:
    """Set fields of a frozen object while it is made."""
    for name, value in fields.items():
        object.__setattr__(made, name, value)
