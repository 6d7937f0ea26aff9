"""Frames of probabilities or scores: columns are matched by their names, never by an order that the user cannot see."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cael.common.types import Array, Ints
from cael.errors import PolicyError


def in_order(source: Any) -> Array:
    """An array as it is; of a frame the numbers (n, k), of a series (k,), with the actions in order.

    A frame of pandas or polars names its columns by action: 0 to k - 1, or names that end in these numbers, in any
    order. The rows, or the entries of a series, must be labelled 0, 1, 2 ... in this order.
    """
    if not hasattr(source, "to_numpy"):
        return np.asarray(source)
    table = np.asarray(source.to_numpy())
    index = getattr(source, "index", None)
    if index is not None:
        _check_index(np.asarray(index), "rows" if table.ndim == 2 else "entries")
    if table.ndim == 1:
        return table
    order = _order([str(name) for name in source.columns])
    return table if (order[1:] > order[:-1]).all() else table[:, order]


def _order(names: Sequence[str]) -> Ints:
    """The place (k,) of each action among the columns."""
    matches = [match for name in names if (match := re.fullmatch(r"(.*?)(\d+)", name, re.DOTALL))]
    numbers = [int(match[2]) for match in matches]
    if sorted(numbers) == list(range(len(names))) and len({match[1] for match in matches}) == 1:
        return np.argsort(numbers)
    shown = ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "")
    raise PolicyError(
        f"a frame must name its columns by action, 0 to {len(names) - 1} in any order (or 'p_0', "
        f"'p_1', ...); got {shown}. Rename them, or pass frame.to_numpy() if they are in the order of the actions."
    )


def _check_index(labels: Array, what: str) -> None:
    if len(labels) and not np.array_equal(labels, np.arange(len(labels))):
        at = next(i for i, label in enumerate(labels.tolist()) if label != i)
        raise PolicyError(
            f"the {what} of a frame must be labelled 0, 1, 2, ... in this order, as those of the log "
            f"are; number {at} is labelled {labels.tolist()[at]!r}. If they are in the order of the log, pass "
            "frame.reset_index(drop=True); if the labels are the row numbers of the log, frame.sort_index()."
        )
