"""CAEL: the default estimator. A learned embedding with exact weights, doubly robust, that tunes itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from cael import inference
from cael._types import Floats
from cael.diagnostics import NOTHING_LEARNED, Candidate, EmbeddingFacts, weight_facts, weighted
from cael.embedding.blend import BOUND, Blend, PathFacts, blend
from cael.embedding.estimators import require_torch
from cael.embedding.settings import Growth
from cael.errors import InputError, choose, positive_int
from cael.estimate import Estimate
from cael.estimators.base import Estimator, mean_of
from cael.estimators.selection import slope
from cael.problem import Problem

if TYPE_CHECKING:
    from cael.embedding.paths import WeightPath
    from cael.embedding.rewards import SparseRewards

FORMS = ("plain", "self_normalised", "doubly_robust", "self_normalised_doubly_robust")
BANDWIDTHS = (0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.8, 1.3, 2.0, 4.0, 8.0)
HOLES, ENOUGH = 0.01, 10.0
"""The sharp estimate leaves the model out only if less target mass than HOLES lies on actions that are never logged,
and the log is worth ENOUGH rows to it: a standard error from fewer says nothing."""

MOST_CELLS, DRAWN = 5_000_000, 64
"""Rows times actions beyond which actions are drawn, as every cell is visited for every bandwidth; how many."""
WIDTH = 1.2816
"""Half-widths of SLOPE++ in standard errors: the 90% quantile, as of `SLOPE`."""
SAME = 1e-9
"""Weights whose mean has a smaller error than this are all 1."""


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
    `interval(method="bias_aware")` covers the value, with a bound on that bias.

    form: "plain" (mean W r), "self_normalised", "doubly_robust", "self_normalised_doubly_robust". selector: "blend";
    "slope" takes one bandwidth by SLOPE++; a number is a bandwidth, in units of the spread of f over actions. folds:
    of the cross-fitting. growth: of the network. candidates: the actions of a row that are looked at: "all"; a number
    of draws from the logging policy, beside the logged action and those of the target, which is as exact but loses
    target mass that no draw is near to (`cael.embedding.cells`); "auto": all while rows times actions are at most five
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
        from cael.embedding.paths import weight_path
        from cael.embedding.rewards import sparse_rewards

        fitted = sparse_rewards([problem.log for problem in problems], self.growth, self.folds, seeds)
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


def estimate_from(
    name: str, problem: Problem, path: WeightPath, rewards: SparseRewards, form: str, selector: str | float
) -> Estimate:
    """Choose a bandwidth, blend, and tell everything that was looked at."""
    log = problem.log
    scores = contributions(path, log.rewards, form)
    facts, anchor = path_facts(problem, path, rewards, scores, form)
    chosen = _selected(facts, path, selector)
    j, share = chosen.index, chosen.share
    z = (1 - share) * scores[j] + share * anchor if selector == "blend" else scores[j]
    w = (1 - share) * path.weights[j] + share * path.weights[0]
    second = (1 - share) ** 2 * path.second[j] + share**2 * path.second[0] + 2 * share * (1 - share) * path.cross[j]
    # The second moment of the weights is known, and so the error of their mean; what few matching rows show is less.
    known = float(np.sqrt(max(second.mean() - 1, 0.0) / len(log)))
    error = max(inference.stderr(inference.units(w, log.clusters)), known)
    error = error if error > SAME else 0.0
    extra = () if rewards.explained > 0 else (NOTHING_LEARNED,)
    # What a sample of actions loses is no fault of the log.
    own_loss = 0.0 if path.drawn is None else (1 - share) * float(path.lost[j]) + share * float(path.lost[0])
    found = weight_facts(w, error, problem.unsupported_mass, expected=1 - own_loss)
    told = weighted(w, problem.weights, found, cross_fitted=True, extra=extra)
    floor = float(np.sqrt(_noise(facts, form) * second.mean() / len(log)))
    told = replace(
        told,
        clipped_share=None,
        bias_bound=chosen.bias_bound,
        stderr_floor=floor,
        path=_candidates(facts, path, chosen),
        embedding=EmbeddingFacts(
            bandwidth=float(path.bandwidths[j]),
            unit=path.unit,
            sharp_share=share,
            explained=rewards.explained,
            inputs=rewards.inputs if rewards.members[0] else 0,
            network_share=rewards.share if rewards.learned else 0.0,
            penalty=rewards.penalty,
            losses=tuple(tuple(map(float, row)) for row in rewards.losses),
            roughness=float(path.roughness[j].mean()),
            lost_mass=float(path.lost[j]),
            error=float(np.sqrt(_squared_error(facts, chosen, selector))),
            trained_rows=rewards.rows,
            candidates=path.drawn,
        ),
    )
    return mean_of(name, problem, z, told)


def contributions(path: WeightPath, rewards: Floats, form: str) -> Floats:
    """(J, n) per-row scores of each bandwidth; centred, the influence function of the form."""
    w, f, target = path.weights, path.f_logged, path.f_target
    robust = form.endswith("doubly_robust")
    residual = rewards - f if robust else rewards
    start = target if robust else np.zeros_like(target)
    if not form.startswith("self_normalised"):
        return start + w * residual
    mean = np.maximum(w.mean(axis=1, keepdims=True), 1e-300)
    ratio = (w @ residual)[:, None] / len(residual) / mean
    return start + ratio + w * (residual - ratio) / mean


def path_facts(
    problem: Problem, path: WeightPath, rewards: SparseRewards, scores: Floats, form: str
) -> tuple[PathFacts, Floats]:
    """What the choice looks at, and the contributions (n,) of the sharp estimate.

    The sharp estimate is SNIPS where that has the smaller standard error, and the doubly robust one elsewhere.
    Variances are the larger of what the contributions show and of what the known second moments of the weights imply:
    with few matching rows the first is far too small.
    """
    log, n = problem.log, len(problem.log)
    anchor = scores[0]
    second = path.second.mean(axis=1)
    rows = n / max(float(second[0]), 1e-300)
    if form.endswith("doubly_robust") and path.lost[0] <= HOLES and rows >= ENOUGH and path.weights[0].any():
        snips = contributions(path_of_first(path), log.rewards, "self_normalised")[0]
        if _variance(snips, problem) < _variance(anchor, problem):
            anchor = snips
    residual = float((log.rewards - path.f_logged).var())
    reward = float(log.rewards.var())
    noise = residual if form.endswith("doubly_robust") else reward
    seen = np.array([_variance(score, problem) for score in scores])
    gap = np.array([_variance(score - anchor, problem) for score in scores])
    robust = form.endswith("doubly_robust")
    return PathFacts(
        bandwidths=path.bandwidths,
        values=scores.mean(axis=1),
        sharp=float(anchor.mean()),
        variance=np.maximum(np.append(_variance(anchor, problem), seen[1:]), noise * second / n),
        gap=np.maximum(gap, noise * np.maximum(second[0] - 2 * path.cross.mean(axis=1) + second, 0) / n),
        roughness=path.roughness.mean(axis=1),
        shift=np.zeros(len(scores)) if robust else (path.smoothed - path.f_target).mean(axis=1),
        rows=rows,
        residual=residual,
        reward=reward,
        explained=rewards.explained,
        hole=float(path.lost[0]) ** 2 * noise,
    ), anchor


def path_of_first(path: WeightPath) -> WeightPath:
    return replace(path, weights=path.weights[:1])


def _variance(scores: Floats, problem: Problem) -> float:
    return inference.stderr(inference.units(scores, problem.log.clusters)) ** 2


def _noise(facts: PathFacts, form: str) -> float:
    return facts.residual if form.endswith("doubly_robust") else facts.reward


def _selected(facts: PathFacts, path: WeightPath, selector: str | float) -> Blend:
    found = blend(facts)
    if selector == "blend":
        return found
    if selector == "slope":
        at = slope(facts.values, WIDTH * np.sqrt(facts.variance))[-1]
    else:
        at = int(np.flatnonzero(path.bandwidths == float(selector))[0])
    if at == 0:
        bound = BOUND * float(np.sqrt(facts.hole))
    else:
        # Without the blend, the posterior mean of the bias is not taken away: it is a part of the bound.
        mean = found.shares[at] * abs(facts.values[at] - facts.sharp)
        bound = float(mean + BOUND * np.sqrt(max(found.errors[at] - facts.variance[at], 0.0)))
    return replace(found, index=at, share=float(at == 0), bias_bound=bound)


def _squared_error(facts: PathFacts, chosen: Blend, selector: str | float) -> float:
    """The estimated mean squared error of what was taken; the blend knows its own."""
    if selector == "blend":
        return float(chosen.errors[chosen.index])
    return float(facts.variance[chosen.index]) + (chosen.bias_bound / BOUND) ** 2


def _candidates(facts: PathFacts, path: WeightPath, chosen: Blend) -> tuple[Candidate, ...]:
    """The whole path: estimate and root of the estimated mean squared error at each bandwidth."""
    blended = (1 - chosen.shares) * facts.values + chosen.shares * facts.sharp
    return tuple(
        Candidate(f"bandwidth={b:g}", float(value), float(np.sqrt(error)), True, i == chosen.index)
        for i, (b, value, error) in enumerate(zip(path.bandwidths, blended, chosen.errors, strict=True))
    )
