"""CAEL from what a pass kept: the choice of a bandwidth, on any kind of log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from cael.embedding.exact.path_group import Path
from cael.embedding.exact.scores import WeightNumbers, choose_bandwidth, is_robust
from cael.engine.answer import Answer
from cael.engine.columns import Column, Reward, squared
from cael.engine.parts import Part
from cael.engine.score import Score
from cael.engine.steadying import steadied
from cael.inference.diagnostics import Diagnostics, with_moved
from cael.inference.estimate import Estimate
from cael.inference.reach import Pooled

SAME = 1e-12
"""Places whose relative variance is smaller than this are all the same."""


@final
@dataclass(frozen=True, eq=False)
class PathPart(Part):
    """CAEL on a target. selector: how the bandwidth is chosen."""

    name: str
    target: int
    path: Path
    selector: str | float

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return (*self.path.columns, squared(noise_of(self.path)))

    def estimate(self, answer: Answer) -> Estimate:
        rows = KeptPath(answer, self.path)
        estimate = choose_bandwidth(self.name, rows, self.path.rewards, self.path.form, self.selector)
        return with_propensity_error(estimate, float(rows.means[0])) if answer.log.estimates_logging else estimate


def with_propensity_error(estimate: Estimate, predicted: float) -> Estimate:
    """The estimate where propensities are estimated; whose sharp end is not unbiased. predicted: by the model."""
    diagnostics = with_moved(estimate.diagnostics, estimate.value - predicted)
    return replace(estimate, diagnostics=diagnostics, unbiased=())


def noise_of(path: Path) -> Column:
    """What the weights of a path are multiplied with: r - f, or r."""
    return path.residual if is_robust(path.form) else Reward()


@final
class KeptPath:
    """What the choice asks of the rows, from an answer.

    n: how many, or as many as they are worth; read, kish: see `Answer`. r0: taken off the rewards. means: (2J + 2,) of
    the columns. bandwidths, unit, drawn: of the path. second, cross, roughness, lost: (J,) means over rows of the
    numbers of `weights_of`; shift: of `smoothed` less f_target. residual, reward: variances of r - f and of r.
    explained_of_actions: E Var_mu f as a share of itself and the residual variance. noise, kurtosis: of what is
    weighted. unsupported: target mass on actions that the logging policy never plays. fit: of a fitted logging policy.
    """

    def __init__(self, answer: Answer, path: Path) -> None:
        *columns, left, control, place, product = path.columns
        self.answer, self.columns, self.target = answer, tuple(columns), path.target
        self.sums = answer.partial.groups[answer.work.sums_of(path)]
        self.n, self.r0, self.means = answer.worth, answer.r0, answer.means(self.columns)
        self.read, self.kish = answer.n, answer.kish
        self.bandwidths, self.unit, self.drawn = path.bandwidths, path.unit, path.drawn
        self.second, self.cross, self.roughness, self.lost, smoothed, placed = (
            self.sums.sums / answer.partial.moments.total
        )
        self.shift, self.placed = smoothed - self.means[0], placed - placed[0]
        self.slope = slope_of(answer, left, place, product)
        self.residual, self.reward = answer.variance(left), answer.variance(Reward())
        self.explained_of_actions = _share(answer.variance(control), self.residual)
        self.noise, self.kurtosis = answer.tails(noise_of(path))
        self.unsupported = answer.unsupported(path.target)
        self.fit = None if path.known else answer.logging_fit(path.target)

    def variance(self, score: Score) -> float:
        """The squared standard error of the mean of a score."""
        return self.answer.combination(self.columns, score).stderr ** 2

    def weights(self, j: int, share: float) -> WeightNumbers:
        """Of (1 - share) W_j + share W_0."""
        self.answer.need_support(self.target)
        w = np.zeros(len(self.means))
        w[1 + j] += 1 - share
        w[1] += share
        mean, answer = float(w @ self.means), self.answer
        variance = answer.combination(self.columns, Score(0.0, w)).variance
        largest, tail = self.sums.tail_index(j, share, answer.n)
        effective = answer.n / (1 + max(variance, 0.0) / mean / mean) if mean > 0 else 0.0
        return WeightNumbers(effective, largest * answer.scale, tail)

    def estimate(self, name: str, score: Score, diagnostics: Diagnostics, second: float) -> Estimate:
        """The estimate whose contributions are the score, of weights with this second moment."""
        estimate = self.answer.estimate(name, self.columns, score, diagnostics)
        return steadied(self.answer, estimate, Pooled(second, self.noise, self.kurtosis))


def slope_of(answer: Answer, left: Column, place: Column, product: Column) -> tuple[float, float]:
    """The slope of r - f on the place of the logged action, and its standard error; product: of the two columns."""
    columns, spread = (left, place, product), answer.variance(place)
    mean_left, mean_place, mean_product = answer.means(columns)
    if spread <= SAME * mean_place**2:
        return 0.0, 0.0
    score = Score(0.0, np.array([-mean_place, -mean_left, 1.0]))
    error = answer.combination(columns, score).stderr
    return float(mean_product - mean_left * mean_place) / spread, error / spread


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part > 0 else 0.0
