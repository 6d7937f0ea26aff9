"""What an estimator needs of a stream: which columns of sums, and how its contributions follow from their totals.

With r' = r - r0 for a constant r0 near the rewards, weights w' of a rule, and predictions q, the features are r', w',
w' r', w' (r - q(x, a)) and q(x, pi). The constant keeps the digits where rewards have a large offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from cael._types import Floats
from cael.errors import NeedsError, SupportError
from cael.estimators import (
    DM,
    DR,
    IPS,
    SNDR,
    SNIPS,
    DRos,
    Estimator,
    LoggedMean,
    SubGaussianDR,
    SubGaussianIPS,
    SwitchDR,
)
from cael.outcomes.base import OutcomeModel
from cael.streaming.moments import Combination, Moments
from cael.streaming.tally import Rule

Key: TypeAlias = tuple[str | int | Rule, ...]
"""('r',); ('w', target, rule); ('wr', target, rule); ('wd', target, rule, outcome); ('q', target, outcome)."""


@final
@dataclass(frozen=True)
class Demand:
    """An estimator on a target (its number). form: "reward", "weighted", "ratio", "model", "corrected" or
    "corrected_ratio". rule: of its weights, None without. outcome: the number of its outcome model, None without."""

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
        if o is None:
            return (("w", t, rule), ("wr", t, rule))
        return (("w", t, rule), ("wd", t, rule, o), ("q", t, o))


def outcome_of(estimator: Estimator) -> OutcomeModel | None:
    """The outcome model of an estimator that can be streamed, None where it has none."""
    return getattr(estimator, "outcome", None)


def demand_of(estimator: Estimator, target: int, number: Callable[[OutcomeModel], int]) -> Demand:
    """What an estimator with given settings needs, or an error that says why a stream cannot give it."""
    name = type(estimator).__name__
    if not isinstance(estimator, (LoggedMean, IPS, SNIPS, SubGaussianIPS, DM, DR, SNDR, SwitchDR, DRos, SubGaussianDR)):
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


def features_of(
    rows: dict[Key, Floats],
    rewards: Floats,
    predicted: dict[tuple[int, int], tuple[Floats, Floats]],
) -> None:
    """Fill the rows (n,) of the features, of which r' and w' are there, but for keys of other kinds (`paths.fill`).
    predicted: by target and outcome, the columns q(x, a) and q(x, pi)."""
    for key, row in rows.items():
        if key[0] == "wr":
            np.multiply(rows["w", *key[1:]], rows[("r",)], out=row)
        elif key[0] == "wd":
            _, target, rule, outcome = key
            np.subtract(rewards, predicted[target, outcome][0], out=row)  # type: ignore[index]
            np.multiply(row, rows["w", target, rule], out=row)
        elif key[0] == "q":
            row[:] = predicted[key[1], key[2]][1]  # type: ignore[index]
