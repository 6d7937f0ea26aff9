"""What an estimator needs of a stream: which columns of sums, and how its contributions follow from their totals.

With r' = r - r0 for a constant r0 near the rewards, weights w' of a rule, and predictions q, the features are r', w',
w' r', w' (r - q(x, a)) and q(x, pi); and 1, w and w r' in each of some folds. The constant keeps the digits where
rewards have a large offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.engine.moments import Combination, Moments
from cael.engine.tally import Rule
from cael.errors import NeedsError, SupportError
from cael.estimators import (
    DM,
    DR,
    IPS,
    SNDR,
    SNIPS,
    BaselineIPS,
    DRos,
    Estimator,
    LoggedMean,
    SubGaussianDR,
    SubGaussianIPS,
    SwitchDR,
)
from cael.outcomes.outcome_model import OutcomeModel

Key: TypeAlias = tuple[str | int | Rule, ...]
"""('r',); ('w', target, rule); ('wr', target, rule); ('wd', target, rule, outcome); ('q', target, outcome); of a fold:
('in', folds, seed, fold), ('in w', folds, seed, fold, target), ('in wr', folds, seed, fold, target)."""


@final
@dataclass(frozen=True)
class Demand:
    """An estimator on a target (its number). form: "reward", "weighted", "ratio", "model", "corrected",
    "corrected_ratio" or "baseline". rule: of its weights, None without. outcome: the number of its outcome model, None
    without."""

    estimator: Estimator
    target: int
    form: str
    rule: Rule | None = None
    outcome: int | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """The features that it needs."""
        t, rule, o = self.target, self.rule, self.outcome
        if self.form == "reward":
            return (("r",),)
        if rule is None:
            return (("q", t, o),)  # type: ignore[return-value]
        if isinstance(self.estimator, BaselineIPS):
            found: list[Key] = [("w", t, rule)]
            for fold in range(self.estimator.folds):
                part = (self.estimator.folds, self.estimator.seed, fold)
                found += [("in", *part), ("in w", *part, t), ("in wr", *part, t)]
            return tuple(found)
        if o is None:
            return (("w", t, rule), ("wr", t, rule))
        return (("w", t, rule), ("wd", t, rule, o), ("q", t, o))


STREAMED = (LoggedMean, IPS, SNIPS, BaselineIPS, SubGaussianIPS, DM, DR, SNDR, SwitchDR, DRos, SubGaussianDR)


def outcome_of(estimator: Estimator) -> OutcomeModel | None:
    """The outcome model of an estimator that can be streamed, None where it has none."""
    return getattr(estimator, "outcome", None)


def demand_of(estimator: Estimator, target: int, number: Callable[[OutcomeModel], int]) -> Demand:
    """What an estimator with given settings needs, or an error that says why a stream cannot give it."""
    name = type(estimator).__name__
    if not isinstance(estimator, STREAMED):
        raise NeedsError(f"{name} needs the whole log in memory, and this one is streamed.")
    if isinstance(estimator, LoggedMean):
        return Demand(estimator, target, "reward")
    outcome = outcome_of(estimator)
    o = None
    if outcome is not None:
        o = number(outcome)
    if isinstance(estimator, DM):
        return Demand(estimator, target, "model", None, o)
    rule = _rule(estimator)
    if isinstance(estimator, BaselineIPS):
        return Demand(estimator, target, "baseline", rule)
    if isinstance(estimator, SNIPS | SNDR):
        return Demand(estimator, target, "ratio" if o is None else "corrected_ratio", rule, o)
    return Demand(estimator, target, "weighted" if o is None else "corrected", rule, o)


def _rule(estimator: Estimator) -> Rule:
    kind, setting = "clip", getattr(estimator, "clip", None)
    if isinstance(estimator, SwitchDR):
        kind, setting = "switch", estimator.tau
    elif isinstance(estimator, DRos):
        kind, setting = "shrink", estimator.lambda_
    elif isinstance(estimator, SubGaussianIPS | SubGaussianDR):
        kind, setting = "subgaussian", estimator.lambda_
    return Rule() if setting is None else Rule(kind, float(setting))


def combine(demand: Demand, index: dict[Key, int], moments: Moments, r0: float) -> Combination:
    """The contributions of an estimator, from the totals of all rows."""
    c, constant = np.zeros(len(index)), 0.0

    def at(key: Key) -> int:
        return index[key]

    def mean(key: Key) -> float:
        return float(moments.mean[at(key)])

    if demand.form == "reward":
        c[at(("r",))], constant = 1.0, r0
        return Combination(constant, c, moments)
    keys = demand.keys
    if demand.form == "model":
        c[at(keys[0])] = 1.0
        return Combination(0.0, c, moments)
    if demand.form == "baseline":
        places = [[at(key) for key in keys[i : i + 3]] for i in range(1, len(keys), 3)]
        for (one, w_in, wr_in), b in zip(places, baselines(places, moments), strict=True):
            c[one], c[w_in], c[wr_in] = r0 + b, -b, 1.0  # r0 + b + w (r' - b)
        return Combination(0.0, c, moments)
    w, second = keys[0], keys[1]
    if demand.form == "weighted":  # w r = w r' + r0 w
        c[at(second)], c[at(w)] = 1.0, r0
    elif demand.form == "corrected":
        c[at(second)], c[at(keys[2])] = 1.0, 1.0
    else:
        if mean(w) == 0:
            raise SupportError(
                f"{demand.estimator.name} is undefined: every weight is 0, no logged action has positive target "
                "probability. Collect more rows, or use DM."
            )
        ratio = mean(second) / mean(w)
        # z = start + T + w (d - T) / mean(w): centred, the influence function of the ratio
        c[at(second)] += 1 / mean(w)
        c[at(w)] += -ratio / mean(w)
        constant = ratio + (r0 if demand.form == "ratio" else 0.0)
        if demand.form == "corrected_ratio":
            c[at(keys[2])] += 1.0
    return Combination(constant, c, moments)


def baselines(places: Sequence[Sequence[int]], moments: Moments) -> Floats:
    """For each fold Cov(w r', w) / Var(w) of the rows of the others; 0 where w does not vary (`best_baseline`).

    places: those of 1, w and w r' of each fold.
    """
    mean, one, w, wr = moments.mean, *np.array(places).T
    products = moments.comoment / moments.n + np.outer(mean, mean)
    sums = np.stack([mean[one], mean[w], mean[wr], products[w, w], products[w, wr]])
    share, w_, wr_, square, cross = sums.sum(axis=1, keepdims=True) - sums
    spread = share * square - w_ * w_
    varies = spread > 1e-12 * share * square
    return np.divide(share * cross - w_ * wr_, spread, out=np.zeros(len(places)), where=varies)


def features_of(
    rows: dict[Key, Floats],
    rewards: Floats,
    predicted: dict[tuple[int, int], tuple[Floats, Floats]],
    fold: Callable[[int, int], Ints],
) -> None:
    """Fill the rows (n,) of the features, of which r' and w' are there, but for keys of other kinds (`paths.fill`).
    predicted: by target and outcome, the columns q(x, a) and q(x, pi). fold: of each row, by their number and seed."""
    for key, row in rows.items():
        if key[0] == "wr":
            np.multiply(rows["w", *key[1:]], rows[("r",)], out=row)
        elif key[0] == "wd":
            _, target, rule, outcome = key
            np.subtract(rewards, predicted[target, outcome][0], out=row)  # type: ignore[index]
            np.multiply(row, rows["w", target, rule], out=row)
        elif key[0] == "q":
            row[:] = predicted[key[1], key[2]][1]  # type: ignore[index]
        elif key[0] == "in":
            np.equal(fold(*key[1:3]), key[3], out=row)  # type: ignore[arg-type]
        elif key[0] == "in w":
            np.multiply(rows["in", *key[1:4]], rows["w", key[4], Rule()], out=row)
        elif key[0] == "in wr":
            np.multiply(rows["in w", *key[1:]], rows[("r",)], out=row)
