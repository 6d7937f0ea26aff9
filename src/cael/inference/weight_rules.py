"""How an estimator makes its weights from w = pi / mu: small strategies that a pass over any log can apply."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats


class WeightRule(ABC):
    """A frozen function of weights w (n,) and propensities (n,). ceiling: the largest weight it can give, if known."""

    @abstractmethod
    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        """The weights (n,) that are used."""

    @property
    def ceiling(self) -> float | None:
        return None


@final
@dataclass(frozen=True)
class Raw(WeightRule):
    """w as it is."""

    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        return w


@final
@dataclass(frozen=True)
class Clip(WeightRule):
    """min(w, most)."""

    most: float

    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        return np.minimum(w, self.most)

    @property
    def ceiling(self) -> float | None:
        return self.most


@final
@dataclass(frozen=True)
class Switch(WeightRule):
    """w where w <= tau, else 0 (Wang et al. 2017)."""

    tau: float

    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        return np.where(w <= self.tau, w, 0.0)

    @property
    def ceiling(self) -> float | None:
        return self.tau


@final
@dataclass(frozen=True)
class Shrink(WeightRule):
    """lambda w / (w^2 + lambda) (Su et al. 2020), which is largest, sqrt(lambda) / 2, at w = sqrt(lambda)."""

    lambda_: float

    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        if math.isinf(self.lambda_):
            return w
        return self.lambda_ * w / (w**2 + self.lambda_) if self.lambda_ > 0 else np.zeros_like(w)

    @property
    def ceiling(self) -> float | None:
        return math.sqrt(self.lambda_) / 2


@final
@dataclass(frozen=True)
class SubGaussian(WeightRule):
    """w / (1 - lambda + lambda w), from w at lambda = 0 to 1 at lambda = 1 (Metelli et al. 2021)."""

    lambda_: float

    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        below = 1 - self.lambda_ + self.lambda_ * w
        return np.divide(w, below, out=np.zeros_like(w), where=below > 0)

    @property
    def ceiling(self) -> float | None:
        return 1 / self.lambda_ if self.lambda_ > 0 else None


def clipped(most: float | None) -> WeightRule:
    """Weights up to a ceiling, or as they are."""
    return Raw() if most is None else Clip(float(most))
