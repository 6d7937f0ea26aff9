"""Mixture: one of several policies, drawn for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import PolicyError
from cael.policies import draws
from cael.policies.gate import SUM_ATOL
from cael.policies.policy import (
    Policy,
    as_policy,
    draw,
    logged_probability,
    probabilities,
    probability_of,
    support,
)
from cael.policies.support import Support

if TYPE_CHECKING:
    from cael.log.logged import Batch


@final
@dataclass(frozen=True, eq=False)
class Mixture(Policy):
    """With probability weights[j], act as policies[j].

    >>> import cael
    >>> Mixture([cael.Uniform(2), cael.Tabular([1.0, 0.0])], [0.1, 0.9])
    Mixture(policies=(Uniform(n_actions=2), Tabular((2,))), weights=(0.1, 0.9))
    """

    trusted: ClassVar[bool] = True
    policies: Sequence[Policy]
    weights: Sequence[float]

    def __post_init__(self) -> None:
        parts = tuple(as_policy(policy) for policy in self.policies)
        weights = tuple(float(weight) for weight in self.weights)
        if not parts or len(parts) != len(weights):
            raise PolicyError(f"Mixture needs one weight per policy; got {len(parts)} and {len(weights)}.")
        if any(not weight >= 0 for weight in weights) or abs(sum(weights) - 1) > SUM_ATOL:
            raise PolicyError(f"Mixture weights must be >= 0 and sum to 1; got {weights}.")
        counts = {part.n_actions for part in parts if part.n_actions is not None}
        if len(counts) > 1:
            raise PolicyError(f"the policies of a Mixture differ in their number of actions: {sorted(counts)}.")
        object.__setattr__(self, "policies", parts)
        object.__setattr__(self, "weights", weights)

    @property
    def n_actions(self) -> int | None:  # type: ignore[override]
        return next((part.n_actions for part in self.policies if part.n_actions is not None), None)

    @property
    def complete(self) -> bool:  # type: ignore[override]
        return all(part.complete for part in self.policies)

    @property
    def least(self) -> float | None:  # type: ignore[override]
        return sum(w * (part.least or 0.0) for w, part in zip(self.weights, self.policies, strict=True))

    @property
    def most(self) -> float | None:  # type: ignore[override]
        return sum(
            w * (1.0 if part.most is None else part.most) for w, part in zip(self.weights, self.policies, strict=True)
        )

    def probabilities(self, batch: Batch) -> Floats:
        total = np.zeros((len(batch), batch.n_actions))
        for weight, part in zip(self.weights, self.policies, strict=True):
            total += weight * probabilities(part, batch)
        return total

    def logged_probability(self, batch: Batch) -> Floats:
        total = np.zeros(len(batch))
        for weight, part in zip(self.weights, self.policies, strict=True):
            total += weight * logged_probability(part, batch)
        return total

    @property
    def fixed(self) -> Floats | None:
        parts = [part.fixed for part in self.policies]
        if any(part is None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        total: Floats = np.zeros_like(known[0])
        for weight, part in zip(self.weights, known, strict=True):
            total = total + weight * part
        return total

    def support(self, batch: Batch) -> Support | None:
        parts = [support(part, batch) for part in self.policies]
        if any(part is None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        rest: Floats = np.zeros(len(batch))
        for weight, part in zip(self.weights, known, strict=True):
            rest = rest + weight * part.rest
        above = [weight * part.excess() for weight, part in zip(self.weights, known, strict=True)]
        actions, _, (extra,) = draws.merged(np.hstack([part.actions for part in known]), np.hstack(above))
        return Support(actions, np.where(actions >= 0, np.maximum(extra + rest[:, None], 0.0), 0.0), rest)

    def probability_of(self, batch: Batch, actions: Ints) -> Floats:
        total = np.zeros(actions.shape)
        for weight, part in zip(self.weights, self.policies, strict=True):
            total += weight * probability_of(part, batch, actions)
        return total

    def draw(self, batch: Batch, u: Floats) -> Ints:
        """Part j where u lies in the j-th stretch of weights; where in the stretch decides on the action."""
        edges = np.concatenate([[0.0], np.cumsum(self.weights)])
        level = u * (edges[-1] * draws.BELOW_ONE)
        which = np.searchsorted(edges, level, side="right") - 1
        drawn = np.empty(u.shape, dtype=np.intp)
        for j, part in enumerate(self.policies):
            mine = which == j
            if mine.any():
                inside = (level - edges[j]) / (edges[j + 1] - edges[j])
                theirs = draw(part, batch, np.clip(inside, 0.0, draws.BELOW_ONE))
                drawn[mine] = theirs[mine]
        return drawn
