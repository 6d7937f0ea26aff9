"""Support: policies with few actions, as lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.policies import draws

if TYPE_CHECKING:
    from cael.log.eligible import Eligible


@final
@dataclass(frozen=True, eq=False)
class Support:
    """Where the mass of b rows lies: a list each, and the rest evenly.

    actions: (b, m), distinct within a row, -1 for an empty place. probabilities: (b, m), 0 in an empty place.
    rest: (b,) the probability of each action that is not listed; with eligible, of each such one that is eligible.
    """

    actions: Ints
    probabilities: Floats
    rest: Floats
    eligible: Eligible | None = None

    def probability_of(self, actions: Ints) -> Floats:
        """Probabilities (b, q) of actions (b, q)."""
        p = np.repeat(self.rest[:, None], actions.shape[1], axis=1)
        if self.eligible is not None and self.rest.any():
            p[~self.eligible.holds(actions)] = 0.0
        for j in range(self.actions.shape[1]):
            p = np.where(actions == self.actions[:, j : j + 1], self.probabilities[:, j : j + 1], p)
        p[actions < 0] = 0.0
        return p

    def table(self, n_actions: int) -> Floats:
        """Probabilities (b, k) of all actions."""
        p = np.repeat(self.rest[:, None], n_actions, axis=1)
        if self.eligible is not None:
            p *= self.eligible.mask()
        row, place = np.nonzero(self.actions >= 0)
        p[row, self.actions[row, place]] = self.probabilities[row, place]
        return p

    def others(self, n_actions: int) -> Ints:
        """(b,) how many actions are not listed."""
        return self._count(n_actions) - (self.actions >= 0).sum(axis=1)

    def excess(self) -> Floats:
        """(b, m) by how much a listed action has more than the rest; 0 in an empty place."""
        return np.where(self.actions >= 0, self.probabilities - self.rest[:, None], 0.0)

    def rest_sums(self, values: Floats) -> Floats:
        """(b, ...) the rest times the sum of values (k, ...) over all actions, listed or not."""
        rest = self.rest.reshape(-1, *[1] * (values.ndim - 1))
        return rest * (values.sum(axis=0) if self.eligible is None else self.eligible.sums(values))

    def unlisted(self, n_actions: int, u: Floats) -> Ints:
        """Actions (b, size) that are not listed, uniformly by the numbers u (b, size); -1 where all are."""
        others = self.others(n_actions)
        rank = np.minimum((u * others[:, None]).astype(np.intp), np.maximum(others - 1, 0)[:, None])
        drawn = self._at(draws.unlisted(self._places, rank))
        return np.where((others > 0)[:, None], drawn, -1)

    def draw(self, n_actions: int, u: Floats) -> Ints:
        """Actions (b, size) drawn with the numbers u (b, size)."""
        return self._at(draws.from_list(self._places, self.probabilities, self.rest, self._count(n_actions), u))

    def _count(self, n_actions: int) -> int | Ints:
        """How many actions there are to play, of each row where it differs."""
        return n_actions if self.eligible is None else self.eligible.sizes

    @property
    def _places(self) -> Ints:
        """(b, m) the listed actions, numbered among those that are eligible."""
        return self.actions if self.eligible is None else self.eligible.places(self.actions)

    def _at(self, places: Ints) -> Ints:
        """The actions with these numbers."""
        return places if self.eligible is None else self.eligible.at(places)
