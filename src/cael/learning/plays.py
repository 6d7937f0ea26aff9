"""How scores of the actions become probabilities: on the actions of the old policy that score best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.errors import InputError, choose

KINDS = ("greedy", "top", "tilt")
NONE = -np.inf


@final
@dataclass(frozen=True)
class Play:
    """kind: "greedy", the best-scored action that the old policy plays at all; "top", the old policy on the best-scored
    `size` of its probability, so that no importance weight exceeds 1 / size; "tilt", the old policy times
    exp(score / size), size in standard deviations of the scores.

    >>> Play("top", 0.1)
    Play(kind='top', size=0.1)
    """

    kind: str = "greedy"
    size: float = 0.0

    def __post_init__(self) -> None:
        choose("kind", self.kind, KINDS)
        if self.kind != "greedy" and not 0 < self.size <= 100:
            raise InputError(f"size of a Play must be a positive number, at most 1 for 'top'; got {self.size!r}.")

    @property
    def words(self) -> str:
        """In words."""
        if self.kind == "greedy":
            return "best action"
        return f"best {self.size:.3g} of the old policy" if self.kind == "top" else f"tilted, temperature {self.size:g}"


def played(scores: Floats, old: Floats, plays: tuple[Play, ...], spread: float) -> list[Floats]:
    """Probabilities (b, k) of each play. scores: (b, k). old: (b, k) the old policy; what it never plays has 0, here
    too. spread: the standard deviation of the scores within a row.

    >>> played(np.array([[1.0, 2.0, 3.0]]), np.array([[0.5, 0.3, 0.2]]), (Play("top", 0.4),), 1.0)[0].round(6)
    array([[0. , 0.5, 0.5]])
    """
    among = np.where(old > 0, scores, NONE)
    order = None
    tables = []
    for play in plays:
        if play.kind == "greedy":
            tables.append(one_hot(among.argmax(axis=1), old.shape[1]))
        elif play.kind == "tilt":
            tables.append(tilted(among, old, play.size * spread))
        else:
            order = np.argsort(-among, axis=1, kind="stable") if order is None else order
            tables.append(top_share(order, old, play.size))
    return tables


def one_hot(actions: np.ndarray, k: int) -> Floats:
    """(b, k) with a 1 at the action of each row."""
    p = np.zeros((len(actions), k))
    p[np.arange(len(actions)), actions] = 1.0
    return p


def tilted(among: Floats, old: Floats, temperature: float) -> Floats:
    """old times exp(scores / temperature), a distribution in each row."""
    best = among.max(axis=1, keepdims=True)
    p = old * np.exp(np.maximum((among - best) / max(temperature, 1e-12), -700.0))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def top_share(order: np.ndarray, old: Floats, share: float) -> Floats:
    """The old policy on its first `share` in this order (b, k) of the actions; the last one counts in part."""
    mass = np.take_along_axis(old, order, axis=1)
    before = np.cumsum(mass, axis=1) - mass
    taken = np.clip(share - before, 0.0, mass)
    p = np.zeros_like(old)
    np.put_along_axis(p, order, taken / taken.sum(axis=1, keepdims=True), axis=1)
    return p
