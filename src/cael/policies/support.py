"""Support: policies with few actions, as lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.policies import draws


@final
@dataclass(frozen=True, eq=False)
class Support:
    """Where the mass of b rows lies: a list each, and the rest evenly.

    actions: (b, m), distinct within a row, -1 for an empty place. probabilities: (b, m), 0 in an empty place.
    rest: (b,) the probability of each action that is not listed.
    """

    actions: Ints
    probabilities: Floats
    rest: Floats

    def probability_of(self, actions: Ints) -> Floats:
        """Probabilities (b, q) of actions (b, q)."""
        p = np.repeat(self.rest[:, None], actions.shape[1], axis=1)
        for j in range(self.actions.shape[1]):
            p = np.where(actions == self.actions[:, j : j + 1], self.probabilities[:, j : j + 1], p)
        p[actions < 0] = 0.0
        return p

    def table(self, n_actions: int) -> Floats:
        """Probabilities (b, k) of all actions."""
        p = np.repeat(self.rest[:, None], n_actions, axis=1)
        row, place = np.nonzero(self.actions >= 0)
        p[row, self.actions[row, place]] = self.probabilities[row, place]
        return p

    def others(self, n_actions: int) -> Ints:
        """(b,) how many actions are not listed."""
        return n_actions - (self.actions >= 0).sum(axis=1)

    def excess(self) -> Floats:
        """(b, m) by how much a listed action has more than the rest; 0 in an empty place."""
        return np.where(self.actions >= 0, self.probabilities - self.rest[:, None], 0.0)

    def draw(self, n_actions: int, u: Floats) -> Ints:
        """Actions (b, size) drawn with the numbers u (b, size)."""
        return draws.from_list(self.actions, self.probabilities, self.rest, n_actions, u)
