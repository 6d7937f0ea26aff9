"""CAEL and Auto from the sums of a pass: the same choices as of a log in memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import numpy as np

from cael.common.types import Floats
from cael.embedding.auto import judged
from cael.embedding.scores import Linear, PathMeans, PathRows, WeightNumbers, choose_bandwidth
from cael.engine.demands import Demand, Key
from cael.engine.moments import Combination
from cael.engine.tally import Rule
from cael.engine.wanted import ChoiceDemand, PathDemand, SlopeDemand
from cael.errors import SupportError
from cael.estimators.selection import select
from cael.inference.diagnostics import Diagnostics
from cael.inference.estimate import Estimate

if TYPE_CHECKING:
    from cael.engine.asking import Answer


@final
class Streamed(PathRows):
    """The rows of a pass, as sums."""

    def __init__(self, answer: Answer, demand: PathDemand) -> None:
        path, sums = answer.paths[demand.path], answer.partial.paths[demand.path]
        self.answer, self.demand, self.sums = answer, demand, sums
        moments, n = answer.partial.moments, answer.n
        places = np.array([answer.index[key] for key in demand.keys])
        self.places, left = places[:-1], int(places[-1])
        self.n, self.r0, self.means = n, answer.r0, moments.mean[self.places]
        second, cross, roughness, lost, smoothed = sums.sums / n
        self.path = PathMeans(
            path.bandwidths, path.unit, path.drawn, second, cross, roughness, lost, smoothed - self.means[0]
        )
        self.residual = float(moments.comoment[left, left]) / n
        self.reward = spread(answer, ("r",)) ** 2
        self.unsupported = answer.unsupported(demand.target)

    def variance(self, score: Linear) -> float:
        return self._combination(score).stderr ** 2

    def weights(self, j: int, share: float) -> WeightNumbers:
        self.answer.need_support(self.demand.target)
        w = np.zeros(len(self.means))
        w[1 + j] += 1 - share
        w[1] += share
        mean = float(w @ self.means)
        squares = float(w @ self.answer.partial.moments.comoment[np.ix_(self.places, self.places)] @ w)
        largest, tail = self.sums.tail_index(j, share, self.n)
        return WeightNumbers(
            self.n / (1 + max(squares, 0.0) / self.n / mean / mean) if mean > 0 else 0.0, largest, tail
        )

    def estimate(self, name: str, score: Linear, diagnostics: Diagnostics) -> Estimate:
        found = self._combination(score)
        return Estimate(
            estimator=name, value=found.value, contributions=found.buckets, key=self.answer.log.key,
            diagnostics=diagnostics, sums=found,
        )  # fmt: skip

    def _combination(self, score: Linear) -> Combination:
        c: Floats = np.zeros(len(self.answer.index))
        c[self.places] = score.coefficients
        p = self.answer.partial
        return Combination(score.constant, c, p.moments, p.clusters, p.crowded)


def path_estimate(answer: Answer, demand: PathDemand) -> Estimate:
    """CAEL's estimate."""
    estimator, rewards = demand.estimator, answer.paths[demand.path].rewards
    rows = Streamed(answer, demand)
    return choose_bandwidth(estimator.name, rows, rewards, estimator.form, estimator.selector)


def choice_estimate(answer: Answer, demand: ChoiceDemand) -> Estimate:
    """Auto's estimate: the candidate with the least error."""
    from cael.engine.estimates import estimate_of

    found, left_out = [], []
    for part in demand.parts:
        if isinstance(part, str):
            left_out.append(part)
            continue
        try:
            made = estimate_of(answer, part)
        except SupportError as error:
            left_out.append(f"Auto left {part.estimator.name} out: {error}")
            continue
        unsupported = answer.unsupported(demand.target)
        found.append(judged(made, _spread(answer, part), unsupported, lambda: second_moment(answer, demand.target)))
    return demand.estimator.chosen(found, left_out)


def slope_estimate(answer: Answer, demand: SlopeDemand) -> Estimate:
    """The candidate that SLOPE takes."""
    from cael.engine.estimates import estimate_of

    return select(demand.estimator.name, [estimate_of(answer, part) for part in demand.parts], demand.delta)


def spread(answer: Answer, key: Key) -> float:
    """The standard deviation of a feature."""
    at = answer.index[key]
    return math.sqrt(max(0.0, float(answer.partial.moments.comoment[at, at])) / answer.n)


def _spread(answer: Answer, part: Demand | PathDemand) -> float:
    """Of the reward, or of what the outcome model leaves of it."""
    if isinstance(part, Demand) and part.outcome is not None:
        return spread(answer, ("d", part.target, part.outcome))
    return spread(answer, ("r",))


def second_moment(answer: Answer, target: int) -> float:
    """E w^2: exact over all actions where both policies are known, else the mean over the log."""
    if ("second", target) in answer.index:
        return float(answer.partial.moments.mean[answer.index["second", target]])
    key: Key = ("w", target, Rule())
    return spread(answer, key) ** 2 + float(answer.partial.moments.mean[answer.index[key]]) ** 2
