"""How an estimator makes its weights from w = pi / mu: small strategies that a pass over any log can apply."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from cael.common.types import Floats
from cael.inference import weights as W


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
        return W.clip(w, self.most)

    @property
    def ceiling(self) -> float | None:
        return self.most


@final
@dataclass(frozen=True)
class Switch(WeightRule):
    """w where w <= tau, else 0."""

    tau: float

    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        return W.switch(w, self.tau)

    @property
    def ceiling(self) -> float | None:
        return self.tau


@final
@dataclass(frozen=True)
class Shrink(WeightRule):
    """lambda w / (w^2 + lambda), which is largest, sqrt(lambda) / 2, at w = sqrt(lambda)."""

    lambda_: float

    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        return W.shrink(w, self.lambda_)

    @property
    def ceiling(self) -> float | None:
        return math.sqrt(self.lambda_) / 2


@final
@dataclass(frozen=True)
class SubGaussian(WeightRule):
    """w / (1 - lambda + lambda w)."""

    lambda_: float

    def __call__(self, w: Floats, propensities: Floats) -> Floats:
        return W.subgaussian(w, self.lambda_)

    @property
    def ceiling(self) -> float | None:
        return 1 / self.lambda_ if self.lambda_ > 0 else None


def clipped(most: float | None) -> WeightRule:
    """Weights up to a ceiling, or as they are."""
    return Raw() if most is None else Clip(float(most))
