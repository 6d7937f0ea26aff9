"""CAEL: the default estimator. A learned embedding with exact weights, doubly robust, that tunes itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.embedding.learned import require_torch
from cael.embedding.scores import Linear, PathMeans, PathRows, WeightNumbers, choose_bandwidth, columns_of, scores_of
from cael.embedding.settings import Growth
from cael.errors import InputError, choose, positive_int
from cael.estimators.estimator import Estimator, mean_of
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.diagnostics import Diagnostics
from cael.inference.estimate import Estimate
from cael.inference.weights import effective_sample_size, tail_index
from cael.outcomes.outcome_model import FittedOutcome
from cael.outcomes.ridge import Ridge

if TYPE_CHECKING:
    from cael.embedding.rewards import SparseRewards
    from cael.embedding.weight_paths import WeightPath

FORMS = ("plain", "self_normalised", "doubly_robust", "self_normalised_doubly_robust")
BANDWIDTHS = (0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.8, 1.3, 2.0, 4.0, 8.0)
MOST_CELLS, DRAWN = 5_000_000, 64
"""Rows times actions beyond which actions are drawn, as every cell is visited for every bandwidth; how many."""


@final
@dataclass(frozen=True)
class CAEL(Estimator):
    """Context-action embeddings with exact weights, tuned by itself; the library's first choice.

    f(x, a) is the reward that a sparse network (`Growth`), with a ridge model beside it where that adds something,
    predicts for rows it has not seen. Noise of our own turns f
    into a code whose distribution is known (`cael.codes.rounded`), so the marginal weight W(x, a) is exact and its mean
    is 1. The estimate is V = mean_i sum_a pi(a|x_i) f(x_i, a) + sum_i W_i (r_i - f_i) / sum_i W_i, from bandwidth 0
    (importance weighting) to infinity (the model corrected by its mean residual). The bandwidth is chosen, and blended
    with the unbiased end, by estimated mean squared error (`cael.embedding.blend`). Biased in general by what f misses;
    `interval()` allows for a bias up to a bound on it.

    form: "plain" (mean W r), "self_normalised", "doubly_robust", "self_normalised_doubly_robust". selector: "blend";
    "slope" takes one bandwidth by SLOPE++; a number is a bandwidth, in units of the spread of f over actions. folds:
    of the cross-fitting. growth: of the network. candidates: the actions of a row that are looked at: "all"; a number
    of draws from the logging policy, beside the logged action and those of the target, which is as exact but loses
    target mass that no draw is near to (`cael.embedding.grid`); "auto": all while rows times actions are at most five
    million, and 64 draws beyond. seed: of folds, training and draws.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> quick = cael.CAEL(growth=cael.Growth(steps=20, penalties=(1.5,)))
    >>> quick.estimate(log, policy).diagnostics.cross_fitted
    True
    """

    needs: ClassVar[tuple[str, ...]] = ("logging", "probabilities")
    form: str = "self_normalised_doubly_robust"
    selector: str | float = "blend"
    folds: int = 5
    growth: Growth = field(default_factory=Growth)
    candidates: int | str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        choose("form", self.form, FORMS)
        if isinstance(self.candidates, str):
            choose("candidates", self.candidates, ("auto", "all"))
        else:
            positive_int("candidates", self.candidates)
        if isinstance(self.selector, str):
            choose("selector", self.selector, ("blend", "slope"))
        elif not self.selector >= 0:
            raise InputError(f"selector must be 'blend', 'slope' or a bandwidth >= 0; got {self.selector!r}.")
        positive_int("folds", self.folds, least=2)

    def solve(self, problem: Problem) -> Estimate:
        return self.solve_many([problem], [self.seed])[0]

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, all their networks trained at once."""
        require_torch(type(self).__name__)
        from cael.embedding.rewards import sparse_rewards
        from cael.embedding.weight_paths import weight_path

        ridges = [partial(_ridge, problem, self.folds, seed) for problem, seed in zip(problems, seeds, strict=True)]
        logs = [problem.log for problem in problems]
        fitted = sparse_rewards(logs, self.growth, self.folds, seeds, ridges=ridges)
        found = []
        for problem, rewards, seed in zip(problems, fitted, seeds, strict=True):
            drawn = self.drawn(len(problem.log), problem.log.n_actions)
            path = weight_path(problem.log, problem.policy, rewards, self.bandwidths, drawn, seed)
            found.append(estimate_from(self.name, problem, path, rewards, self.form, self.selector))
        return found

    def drawn(self, rows: int, actions: int) -> int | None:
        """How many actions of each row are drawn; None: all are looked at."""
        if isinstance(self.candidates, int):
            return self.candidates
        return DRAWN if self.candidates == "auto" and rows * actions > MOST_CELLS else None

    @property
    def bandwidths(self) -> Floats:
        """The path: 0, the bandwidths to choose from, infinity."""
        if isinstance(self.selector, str):
            return np.array([0.0, *BANDWIDTHS, np.inf])
        return np.array([0.0, self.selector, np.inf]) if 0 < self.selector < np.inf else np.array([0.0, np.inf])


def _ridge(problem: Problem, folds: int, seed: int) -> list[FittedOutcome]:
    """The ridge models of the folds, which DM, DR and SNDR of the same problem use, too."""
    return [model for _, model in problem.trained(Ridge(), folds, seed).parts]


def estimate_from(
    name: str, problem: Problem, path: WeightPath, rewards: SparseRewards, form: str, selector: str | float
) -> Estimate:
    """Choose a bandwidth, blend, and tell everything that was looked at."""
    return choose_bandwidth(name, InMemory(problem, path, form), rewards, form, selector)


def contributions(path: WeightPath, rewards: Floats, form: str) -> Floats:
    """(J, n) per-row scores of each bandwidth; centred, the influence function of the form."""
    r0 = float(rewards.mean())
    columns = columns_of(path.weights, path.f_logged, path.f_target, rewards, form, r0)
    return np.stack([_rows_of(score, columns) for score in scores_of(columns.mean(axis=1), form, r0)])


def _rows_of(score: Linear, columns: Floats) -> Floats:
    """The score (n,) of every row."""
    z = np.full(columns.shape[1], score.constant)
    for at in np.flatnonzero(score.coefficients):
        z += score.coefficients[at] * columns[at]
    return z


@final
class InMemory(PathRows):
    """The rows of a log in memory, with the weights of every bandwidth."""

    def __init__(self, problem: Problem, path: WeightPath, form: str) -> None:
        log = problem.log
        self.n, self.r0 = len(log), float(log.rewards.mean())
        self.columns = columns_of(path.weights, path.f_logged, path.f_target, log.rewards, form, self.r0)
        self.means = self.columns.mean(axis=1)
        self.path = PathMeans(
            path.bandwidths, path.unit, path.drawn, path.second.mean(axis=1), path.cross.mean(axis=1),
            path.roughness.mean(axis=1), path.lost, (path.smoothed - path.f_target).mean(axis=1),
        )  # fmt: skip
        self.residual = float((log.rewards - path.f_logged).var())
        self.reward = float(log.rewards.var())
        self.problem = problem
        self.unsupported = problem.unsupported_mass

    def variance(self, score: Linear) -> float:
        return inference.stderr(inference.units(_rows_of(score, self.columns), self.problem.log.clusters)) ** 2

    def weights(self, j: int, share: float) -> WeightNumbers:
        _ = self.problem.weights  # refuses a target without any support
        w = (1 - share) * self.columns[1 + j] + share * self.columns[1]
        tail = tail_index(w)
        return WeightNumbers(effective_sample_size(w), float(w.max()), None if math.isnan(tail) else tail)

    def estimate(self, name: str, score: Linear, diagnostics: Diagnostics) -> Estimate:
        return mean_of(name, self.problem, _rows_of(score, self.columns), diagnostics)
