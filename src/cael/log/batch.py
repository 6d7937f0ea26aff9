"""Batch: a run of rows of a log, as policies and models see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.log.eligible import Eligible

BATCH_BYTES = 4 * 2**20
"""Size of one (rows x width) block of float64: small enough to stay in cache, large enough to be fast."""

FEW = 64
"""Width of the batches for questions about few actions of a row; a policy that needs all cuts them further."""


def chunks(n: int, width: int, bytes_each: int = BATCH_BYTES) -> list[slice]:
    """Runs of rows such that (rows x width) float64 fit into `bytes_each`."""
    size = max(1, bytes_each // (8 * max(1, width)))
    return [slice(at, min(at + size, n)) for at in range(0, n, size)]


def row_numbers(numbers: slice | Ints, rows: slice | Ints) -> slice | Ints:
    """The numbers of some rows, counted within those that have these numbers."""
    if not isinstance(numbers, slice):
        return numbers[rows]
    if isinstance(rows, slice):
        return slice(numbers.start + rows.start, min(numbers.start + rows.stop, numbers.stop))
    return numbers.start + rows


def at_rows(values: Array | None, rows: slice | Ints) -> Any:
    """The entries of some rows; None of None."""
    return None if values is None else values[rows]


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """A run of rows of a log, as policies and models see them.

    rows: their numbers in the log that row-aligned policies were made for (a slice or an index array).
    contexts: (b, d). actions: (b,). rewards: (b,). propensities: (b,) or None. places: (b,) numbers that tell the rows
    of a stream apart, whatever the batch; None where `rows` do. eligible: the actions that could be taken; None: all.
    n_actions, action_features: of the log.
    """

    rows: slice | Ints
    contexts: Floats
    actions: Ints
    rewards: Floats
    propensities: Floats | None
    n_actions: int
    action_features: Floats | None
    places: Ints | None = None
    eligible: Eligible | None = None

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def draw_numbers(self) -> Ints:
        """Numbers that fix what is drawn for each row."""
        return self.row_numbers if self.places is None else self.places

    @property
    def row_numbers(self) -> Ints:
        """The row numbers, written out."""
        if isinstance(self.rows, slice):
            return np.arange(self.rows.start, self.rows.stop)
        return self.rows

    def part(self, rows: slice | Ints) -> Batch:
        """Some of the rows, counted within the batch."""
        return Batch(
            row_numbers(self.rows, rows), self.contexts[rows], self.actions[rows], self.rewards[rows],
            at_rows(self.propensities, rows), self.n_actions, self.action_features, at_rows(self.places, rows),
            None if self.eligible is None else self.eligible.part(rows),
        )  # fmt: skip

    some = part

    def parts(self, width: int | None = None, bytes_each: int = BATCH_BYTES) -> Iterator[Batch]:
        """Parts of the rows, with at most `bytes_each` for `width` numbers per row, by default one for each action."""
        return (self.part(rows) for rows in chunks(len(self), width or self.n_actions, bytes_each))

    def in_parts(self, ask: Callable[[Batch, slice], Array], width: int | None = None) -> Array:
        """ask(part, rows) of `parts`, joined: whoever makes an array of all actions asks like this."""
        cuts = chunks(len(self), width or self.n_actions)
        if len(cuts) <= 1:
            return ask(self, slice(0, len(self)))
        return np.concatenate([ask(self.part(rows), rows) for rows in cuts])
