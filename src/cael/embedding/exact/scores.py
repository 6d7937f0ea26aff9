"""The choice inside CAEL: from rows in memory or from sums of rows that were streamed, by the same functions.

The scores of a path of J bandwidths are linear combinations of 2J + 2 columns of the rows, whose coefficients follow
from the means of these columns: f(x, pi); W_j; W_j times what is weighted (r - f, or r); and W_0 r. r stands for
r - r0, with a constant r0 near the rewards, wherever it is not taken less f: so no digits are lost in the sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np

from cael.common.types import Floats
from cael.embedding.exact.blend import BOUND, Blend, PathFacts, blend, taken
from cael.engine.score import Score
from cael.estimators.selection import slope
from cael.inference.diagnostics import (
    CUT_SHORT,
    NOTHING_LEARNED,
    Candidate,
    Diagnostics,
    EmbeddingFacts,
    WeightFacts,
    weighted_by,
    with_fit,
)
from cael.inference.estimate import Estimate

if TYPE_CHECKING:
    from cael.embedding.exact.path_part import KeptPath
    from cael.embedding.exact.rewards import SparseRewards

HOLES, ENOUGH = 0.01, 10.0
"""The sharp estimate leaves the model out only if less target mass than HOLES lies on actions that are never logged,
and the log is worth ENOUGH rows to it: a standard error from fewer says nothing."""
WIDTH = 1.2816
"""Half-widths of SLOPE++ in standard errors: the 90% quantile, see `SLOPE`."""
SAME = 1e-9
"""Weights whose mean has a smaller error than this are all 1."""
ROUNDING = 1e-12
"""A second moment that is so near to 1 is 1."""


def is_robust(form: str) -> bool:
    return form.endswith("doubly_robust")


def columns_of(weights: Floats, f_logged: Floats, f_target: Floats, rewards: Floats, form: str, r0: float) -> Floats:
    """(2J + 2, n) from weights (J, n), predictions (n,) of logged and of target actions, and rewards (n,)."""
    shifted = rewards - r0
    residual = rewards - f_logged if is_robust(form) else shifted
    return np.concatenate([f_target[None], weights, weights * residual, (weights[0] * shifted)[None]])


def scores_of(means: Floats, form: str, r0: float) -> list[Score]:
    """The score of each bandwidth; centred, the influence function of the form. means: (2J + 2,) of the columns."""
    return [_score(means, 1 + j, _count(means) + 1 + j, form, r0) for j in range(_count(means))]


def _count(means: Floats) -> int:
    return (len(means) - 2) // 2


def _score(means: Floats, w: int, weighted: int, form: str, r0: float) -> Score:
    """Of the weights in column w and their products in column `weighted`."""
    c, offset = np.zeros(len(means)), 0.0 if is_robust(form) else r0
    c[0] = 1.0 if is_robust(form) else 0.0
    if not form.startswith("self_normalised"):
        c[weighted], c[w] = 1.0, offset
        return Score(0.0, c)
    inverse = 1 / means[w] if means[w] > 0 else 0.0
    ratio = float(means[weighted] * inverse)
    c[weighted], c[w] = inverse, -ratio * inverse
    return Score(ratio + offset, c)


def snips_of(means: Floats, r0: float) -> Score:
    """The score of SNIPS, from W_0 and W_0 r."""
    return _score(means, 1, len(means) - 1, "self_normalised", r0)


def weight_of(means: Floats, j: int) -> Score:
    c = np.zeros(len(means))
    c[1 + j] = 1.0
    return Score(0.0, c)


@final
@dataclass(frozen=True)
class WeightNumbers:
    """Of the weights that were used: effective sample size, the largest, and the tail index (None: no tail)."""

    effective: float
    largest: float
    tail: float | None


def choose_bandwidth(name: str, rows: KeptPath, rewards: SparseRewards, form: str, selector: str | float) -> Estimate:
    """Choose a bandwidth, blend, and tell everything that was looked at."""
    scores = scores_of(rows.means, form, rows.r0)
    facts, anchor = path_facts(rows, rewards.explained, scores, form)
    chosen = _selected(facts, selector)
    j, share = chosen.index, chosen.share
    score = scores[j].blended(anchor, share) if selector == "blend" else scores[j]
    second = blended_second(rows.second, rows.cross, j, share)
    diagnostics = replace(
        _weighted(rows, rewards, j, share, second),
        bias_bound=chosen.bias_bound,
        path=_candidates(facts, chosen),
        embedding=EmbeddingFacts(
            bandwidth=float(rows.bandwidths[j]),
            unit=rows.unit,
            sharp_share=share,
            explained=rewards.explained,
            explained_of_actions=rows.explained_of_actions,
            inputs=rewards.inputs if rewards.members[0] else 0,
            network_share=rewards.share if rewards.learned else 0.0,
            penalty=rewards.penalty,
            losses=tuple(tuple(map(float, row)) for row in rewards.losses),
            roughness=float(rows.roughness[j]),
            lost_mass=float(rows.lost[j]),
            error=float(np.sqrt(chosen.error)),
            trained_rows=rewards.rows,
            candidates=rows.drawn,
        ),
    )
    blended = rows.estimate(name, score, with_fit(diagnostics, rows.fit), second)
    if selector != "blend" or share == 1:
        return blended
    hole = Diagnostics(rows.read, bias_bound=BOUND * float(np.sqrt(facts.hole)))
    return replace(
        blended, unbiased=(rows.estimate(f"the unbiased end of {name}", anchor, hole, float(rows.second[0])),)
    )


def blended_second(second: Floats, cross: Floats, j: int, share: float) -> float:
    """The second moment of (1 - share) W_j + share W_0, from E W_j^2 (J,) and E W_j W_0 (J,)."""
    mixed = 2 * share * (1 - share) * cross[j]
    return float((1 - share) ** 2 * second[j] + share**2 * second[0] + mixed)


def _weighted(rows: KeptPath, rewards: SparseRewards, j: int, share: float, second: float) -> Diagnostics:
    """What the weights (1 - share) W_j + share W_0 say; second: their second moment."""
    w = weight_of(rows.means, j).blended(weight_of(rows.means, 0), share)
    # The second moment of the weights is known, and so the error of their mean; what few matching rows show is less.
    excess = second - 1 if second - 1 > ROUNDING else 0.0
    error = max(float(np.sqrt(rows.variance(w))), float(np.sqrt(excess / rows.kish)))
    numbers, mean = rows.weights(j, share), w.mean(rows.means)
    # What a sample of actions loses is no fault of the log.
    lost_by_us = 0.0 if rows.drawn is None else (1 - share) * float(rows.lost[j]) + share * float(rows.lost[0])
    z = (mean - 1 + lost_by_us) / error if error > SAME else None
    facts = WeightFacts(rows.read, mean, z, numbers.tail, rows.unsupported, 1 - lost_by_us)
    doubts = ((rewards.explained <= 0, NOTHING_LEARNED), (rewards.short, CUT_SHORT))
    extra = tuple(words for doubted, words in doubts if doubted)
    return weighted_by(numbers.effective, numbers.largest, facts, cross_fitted=True, extra=extra)


def path_facts(rows: KeptPath, explained: float, scores: list[Score], form: str) -> tuple[PathFacts, Score]:
    """What the choice looks at, and the score of the sharp estimate.

    The sharp estimate is SNIPS where that has the smaller standard error, and the doubly robust one elsewhere.
    """
    n, robust, second = rows.n, is_robust(form), rows.second
    anchor = scores[0]
    worth = n / max(float(second[0]), 1e-300)
    seen = np.array([rows.variance(score) for score in scores])
    sharp = float(seen[0])
    if robust and rows.lost[0] <= HOLES and worth >= ENOUGH and rows.means[1] > 0:
        snips = snips_of(rows.means, rows.r0)
        variance = rows.variance(snips)
        if variance < sharp:
            anchor, sharp = snips, variance
    apart = np.array([rows.variance(score.minus(anchor)) for score in scores])
    return PathFacts(
        bandwidths=rows.bandwidths,
        values=np.array([score.mean(rows.means) for score in scores]),
        sharp=anchor.mean(rows.means),
        seen=seen,
        apart=apart,
        sharp_seen=sharp,
        second=second,
        cross=rows.cross,
        n=n,
        roughness=rows.roughness,
        shift=np.zeros(len(scores)) if robust else rows.shift,
        residual=rows.residual,
        reward=rows.reward,
        noise=rows.noise,
        kurtosis=rows.kurtosis,
        explained=explained,
        explained_of_actions=rows.explained_of_actions,
        hole=float(rows.lost[0]) ** 2 * rows.noise,
        slope=rows.slope if robust else (0.0, 0.0),
        placed=rows.placed,
        misfit=0.0 if rows.fit is None else rows.fit.off**2 * rows.noise,
    ), anchor


def _selected(facts: PathFacts, selector: str | float) -> Blend:
    best = blend(facts)
    if selector == "blend":
        return best
    if selector == "slope":
        at = slope(facts.values, WIDTH * np.sqrt(facts.variance(np.zeros(len(facts.values)))))[-1]
    else:
        at = int(np.flatnonzero(facts.bandwidths == float(selector))[0])
    alone = taken(facts, best.shares, best.errors, at, float(at == 0))
    if at == 0:
        return alone
    # Without the blend, the posterior mean of the bias is not taken away: it is a part of what is allowed for.
    share, gap = best.shares[at], float(facts.gap[at])
    spread = float(np.sqrt(best.prior[at] * gap / max(best.prior[at] + gap, 1e-300)))
    bound = float(share * abs(facts.values[at] - facts.sharp)) + BOUND * spread
    return replace(alone, bias_bound=bound, error=alone.variance + (bound / BOUND) ** 2)


def _candidates(facts: PathFacts, chosen: Blend) -> tuple[Candidate, ...]:
    """The whole path: estimate and root of the estimated mean squared error at each bandwidth."""
    blended = (1 - chosen.shares) * facts.values + chosen.shares * facts.sharp
    return tuple(
        Candidate(f"bandwidth={b:g}", float(value), float(np.sqrt(error)), True, i == chosen.index)
        for i, (b, value, error) in enumerate(zip(facts.bandwidths, blended, chosen.errors, strict=True))
    )
