"""Memory that every batch of a task uses again; fresh arrays of half a megabyte cost more than the sums in them."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from cael.common.types import Array


@final
class Scratch:
    """Arrays by name, as long as the longest that was asked for. What was handed out holds until the next batch."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def take(self, name: str, n: int, dtype: Any = np.float64) -> Array:
        """n entries of whatever they held before."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < n:
            self._kept[name] = kept = np.empty(n, dtype)
        return kept[:n]

    def cast(self, name: str, values: Array, dtype: Any = np.float64) -> Array:
        """The values as another type; as they are where it is theirs."""
        if values.dtype == dtype:
            return values
        cast = self.take(name, len(values), dtype)
        np.copyto(cast, values)
        return cast
