"""FactorisedSoftmax: scores of many actions as products of two short vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints, all_finite, frozen, settle
from cael.errors import PolicyError
from cael.policies import draws
from cael.policies.gate import need_actions
from cael.policies.policy import Policy
from cael.policies.scored import among, softmax

if TYPE_CHECKING:
    from cael.log.batch import Batch

BLOCK = 4096
"""Actions that are scored at once: arrays have a width of at most so many."""
LEAST = -1e300
"""The score of an action that is not eligible."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class FactorisedSoftmax(Policy):
    """pi(a|x) proportional to exp(u(x)'v_a / temperature), over eligible actions: two-tower models, factorisations.

    u: a (context dim, f) matrix, u(x) = x'u, or a function of contexts (b, d) -> (b, f). items: (k, f), the v_a. The
    normaliser is exact; actions are visited in blocks of 4096, so memory does not grow with their number, and time is
    O(n k f) for every question about probabilities.

    >>> FactorisedSoftmax([[1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    FactorisedSoftmax((1, 2) x (3, 2), temperature=1)
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    u: ArrayLike | Callable[[Floats], ArrayLike]
    items: Any
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature > 0):
            raise PolicyError(f"temperature must be a positive number; got {self.temperature!r}.")
        items = np.asarray(self.items, dtype=np.float64)
        if items.ndim != 2 or items.size == 0 or not all_finite(items):
            raise PolicyError(f"FactorisedSoftmax items must be finite numbers of shape (k, f); got {items.shape}.")
        settle(self, items=frozen(items), n_actions=len(items))
        if callable(self.u):
            return
        u = np.asarray(self.u, dtype=np.float64)
        if u.ndim != 2 or u.shape[1] != items.shape[1] or not all_finite(u):
            raise PolicyError(
                f"FactorisedSoftmax u must be a function or finite numbers of shape (context dim, {items.shape[1]}); "
                f"got {u.shape}."
            )
        settle(self, u=frozen(u))

    def __repr__(self) -> str:
        u = getattr(self.u, "__name__", type(self.u).__name__) if callable(self.u) else np.shape(self.u)
        return f"FactorisedSoftmax({u} x {self.items.shape}, temperature={self.temperature:g})"

    def _vectors(self, batch: Batch) -> Floats:
        """u(x) / temperature, (b, f)."""
        need_actions("FactorisedSoftmax", len(self.items), batch)
        x = batch.contexts
        if not callable(self.u):
            matrix = np.asarray(self.u)
            if x.shape[1] != len(matrix):
                raise PolicyError(f"FactorisedSoftmax: u has {len(matrix)} context columns; the log has {x.shape[1]}.")
            return (x @ matrix) / self.temperature
        vectors = np.asarray(self.u(x), dtype=np.float64)
        expected = (len(batch), self.items.shape[1])
        if vectors.shape != expected or not all_finite(vectors):
            raise PolicyError(
                f"FactorisedSoftmax: u(contexts) must be finite numbers of shape {expected}; got {vectors.shape}."
            )
        return vectors / self.temperature

    def _blocks(self, vectors: Floats, batch: Batch) -> Iterator[tuple[slice, Floats]]:
        """Scores (b, up to BLOCK) of all actions, block by block; LEAST where they are not eligible."""
        for at in range(0, len(self.items), BLOCK):
            block = slice(at, at + BLOCK)
            scores = vectors @ self.items[block].T
            yield block, scores if batch.eligible is None else np.where(batch.eligible.mask(block), scores, LEAST)

    def _normaliser(self, vectors: Floats, batch: Batch) -> tuple[Floats, Floats]:
        """The largest score (b,), and sums of exp(score - largest) over each block, (b, blocks)."""
        top = np.full(len(vectors), -np.inf)
        sums: list[Floats] = []
        for _, scores in self._blocks(vectors, batch):
            higher = np.maximum(top, scores.max(axis=1))
            down = np.exp(top - higher)
            sums = [total * down for total in sums]
            sums.append(np.exp(scores - higher[:, None]).sum(axis=1))
            top = higher
        return top, np.stack(sums, axis=1)

    def probabilities(self, batch: Batch) -> Floats:
        return softmax(among(self._vectors(batch) @ self.items.T, batch))

    def probability_of(self, batch: Batch, actions: Ints) -> Floats:
        def ask(part: Batch, rows: slice) -> Array:
            vectors, asked = self._vectors(part), actions[rows]
            top, sums = self._normaliser(vectors, part)
            scores = np.einsum("bf,bmf->bm", vectors, self.items[np.maximum(asked, 0)])
            p = np.exp(scores - top[:, None]) / sums.sum(axis=1)[:, None]
            there = asked >= 0 if part.eligible is None else part.eligible.holds(asked)
            return np.where(there, p, 0.0)

        return batch.in_parts(ask, max(min(BLOCK, len(self.items)), actions.shape[1] * self.items.shape[1]))

    def draw(self, batch: Batch, u: Floats) -> Ints:
        """By inversion, in two passes: which block, then which action of it."""

        def ask(part: Batch, rows: slice) -> Array:
            vectors = self._vectors(part)
            top, sums = self._normaliser(vectors, part)
            block_of = draws.from_table(sums, u[rows])
            before = np.cumsum(sums, axis=1) - sums
            level = u[rows] * (sums.sum(axis=1, keepdims=True) * draws.BELOW_ONE)
            inside = level - np.take_along_axis(before, block_of, axis=1)
            drawn = np.empty(level.shape, dtype=np.intp)
            for number, (block, scores) in enumerate(self._blocks(vectors, part)):
                cumulated = np.cumsum(np.exp(scores - top[:, None]), axis=1)
                for i in np.flatnonzero((block_of == number).any(axis=1)):
                    here = block_of[i] == number
                    place = np.searchsorted(cumulated[i], inside[i, here], side="right")
                    drawn[i, here] = block.start + np.minimum(place, cumulated.shape[1] - 1)
            return drawn

        return batch.in_parts(ask, min(BLOCK, len(self.items)))
