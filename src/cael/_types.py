"""Array types used throughout; shapes are stated in docstrings."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Array: TypeAlias = NDArray[Any]


def frozen(array: Array) -> Array:
    """A copy that nobody can write to, not even with `setflags`: its memory is a bytes object."""
    array = np.ascontiguousarray(array)
    if array.size == 0:
        empty = np.empty(array.shape, array.dtype)
        empty.setflags(write=False)
        return empty
    return np.frombuffer(array.tobytes(), dtype=array.dtype).reshape(array.shape)
