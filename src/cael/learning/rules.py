"""Rules: what a learned policy does on a row before it is mixed with the old policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.learning.plays import Play, one_hot, played
from cael.learning.scorers import Scorer
from cael.log.batch import Batch

KEEP = -1
"""In the place of an action: do as the old policy does."""


class Rule(ABC):
    """Probabilities of all actions, given those of the old policy. allowed: (k,) whether each may be played; None: all
    may."""

    allowed: Array | None

    @abstractmethod
    def advised(self, batch: Batch, old: Floats) -> Floats:
        """(b, k)."""


@final
@dataclass(frozen=True, eq=False)
class ScoredRule(Rule):
    """Scores, and how they are played. spread: of the scores within a row, which temperatures are measured in. allowed:
    (k,) whether an action may be played; None: all may."""

    scorer: Scorer
    play: Play
    spread: float = 1.0
    allowed: Array | None = None

    def advised(self, batch: Batch, old: Floats) -> Floats:
        return played(self.scorer.scores(batch), among(old, self.allowed), (self.play,), self.spread)[0]


@final
@dataclass(frozen=True, eq=False)
class TreeRule(Rule):
    """A decision tree. Node i sends rows whose context `feature[i]` is at most `threshold[i]` to node `low[i]`, others
    to `high[i]`; a leaf has feature -1, and plays `action[i]`, or as the old policy where that is KEEP, or an action
    that the old policy never plays on the row."""

    feature: Ints
    threshold: Floats
    low: Ints
    high: Ints
    action: Ints
    allowed: Array | None = None

    def advised(self, batch: Batch, old: Floats) -> Floats:
        old, chosen = among(old, self.allowed), self.actions(batch.contexts)
        rows = np.arange(len(old))
        played_there = (chosen >= 0) & (old[rows, np.maximum(chosen, 0)] > 0)
        return np.where(played_there[:, None], one_hot(np.maximum(chosen, 0), old.shape[1]), old)

    def actions(self, contexts: Floats) -> Ints:
        """(b,) the action of each row's leaf, or KEEP."""
        return np.asarray(self.action[self.leaves(contexts)])

    def leaves(self, contexts: Floats) -> Ints:
        """(b,) the node at which each row ends."""
        node = np.zeros(len(contexts), dtype=np.intp)
        for _ in range(self.depth):
            feature = self.feature[node]
            inner = feature >= 0
            x = contexts[np.flatnonzero(inner), feature[inner]]
            node[inner] = np.where(x <= self.threshold[node[inner]], self.low[node[inner]], self.high[node[inner]])
        return node

    @cached_property
    def depth(self) -> int:
        """The largest number of questions."""
        level = np.zeros(len(self.feature), dtype=np.intp)
        for node in np.flatnonzero(self.feature >= 0):  # a child stands behind its parent
            level[self.low[node]] = level[self.high[node]] = level[node] + 1
        return int(level.max())

    @property
    def count(self) -> int:
        """How many leaves there are."""
        return int((self.feature < 0).sum())


def among(old: Floats, allowed: Array | None) -> Floats:
    """The old policy on the allowed actions alone; as it is on rows where it plays none of them."""
    if allowed is None:
        return old
    p = np.where(allowed, old, 0.0)
    total = p.sum(axis=1, keepdims=True)
    return np.where(total > 0, p / np.where(total > 0, total, 1.0), old)
