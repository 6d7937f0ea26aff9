"""What scores the actions of a row: reward models, linear scores, the same scores everywhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.embedding.exact.rewards import SparseRewards
from cael.log.batch import Batch
from cael.outcomes.linear import AdditiveOutcome, InteractingOutcome


class Scorer(ABC):
    """Scores of all actions, in units of the reward."""

    @abstractmethod
    def scores(self, batch: Batch) -> Floats:
        """(b, k)."""

    def on(self, batch: Batch, predicted: Floats) -> Floats:
        """The same, where it is known what the reward model in it predicts, (b, k)."""
        return self.scores(batch)


@final
@dataclass(frozen=True, eq=False)
class SameScores(Scorer):
    """The same in every context. values: (k,)."""

    values: Floats

    def scores(self, batch: Batch) -> Floats:
        return np.broadcast_to(self.values, (len(batch), len(self.values)))


@final
@dataclass(frozen=True, eq=False)
class LinearScores(Scorer):
    """constant[a] + x'slope[a]. slope: (k, d). constant: (k,)."""

    slope: Floats
    constant: Floats

    def scores(self, batch: Batch) -> Floats:
        return batch.contexts @ self.slope.T + self.constant


@final
@dataclass(frozen=True, eq=False)
class RidgeScores(Scorer):
    """Ridge models of the reward, their mean."""

    models: tuple[AdditiveOutcome | InteractingOutcome, ...]

    def scores(self, batch: Batch) -> Floats:
        total = self.models[0].predict(batch)
        for model in self.models[1:]:
            total = total + model.predict(batch)
        return np.asarray(total / len(self.models))


@final
@dataclass(frozen=True, eq=False)
class NetworkScores(Scorer):
    """The reward model that CAEL trains, mean over these of its folds."""

    model: SparseRewards
    folds: tuple[int, ...]

    def scores(self, batch: Batch) -> Floats:
        total = self.model.predict(self.folds[0], batch)
        for fold in self.folds[1:]:
            total = total + self.model.predict(fold, batch)
        return np.asarray(total / len(self.folds))

    def on(self, batch: Batch, predicted: Floats) -> Floats:
        return predicted


@final
@dataclass(frozen=True, eq=False)
class ClusterScores(Scorer):
    """A reward model, and for each cluster of actions a linear function of the context that it misses (POTEC's first
    stage: which cluster; the second: the model within it). cluster: (k,). slope: (c, d). constant: (c,)."""

    model: Scorer
    cluster: Ints
    slope: Floats
    constant: Floats

    def scores(self, batch: Batch) -> Floats:
        return self.model.scores(batch) + self._missed(batch)

    def on(self, batch: Batch, predicted: Floats) -> Floats:
        return self.model.on(batch, predicted) + self._missed(batch)

    def _missed(self, batch: Batch) -> Floats:
        return np.asarray((batch.contexts @ self.slope.T + self.constant)[:, self.cluster])
