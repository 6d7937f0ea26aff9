"""What a world is, and how it draws actions."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from cael._types import Floats, Ints
from cael.log import LoggedData
from cael.policy import Policy


@runtime_checkable
class World(Protocol):
    """A problem with known truth."""

    @property
    def target(self) -> Policy:
        """The policy whose value is asked for."""

    def sample(self, n: int, seed: int) -> LoggedData:
        """n rows of the logging policy."""

    def value(self, policy: Policy) -> float:
        """The true value of a policy."""


def draw_actions(p: Floats, rng: np.random.Generator) -> Ints:
    """One action per row of the probabilities p (b, k), by inversion."""
    edges = np.cumsum(p, axis=1)
    u = rng.random(len(p))[:, None] * edges[:, -1:]
    return (edges <= u).sum(axis=1)
