"""Mixture: one of several policies, drawn for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints, settle
from cael.errors import PolicyError
from cael.policies import draws
from cael.policies.gate import SUM_ATOL
from cael.policies.given import as_policy
from cael.policies.labelled import Inputs, Names
from cael.policies.policy import (
    Policy,
    draw,
    logged_probability,
    probabilities,
    probability_of,
    support,
)
from cael.policies.support import Support

if TYPE_CHECKING:
    from cael.log.batch import Batch


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
        settle(
            self, policies=parts, weights=weights, n_actions=next(iter(counts), None),
            complete=all(part.complete for part in parts), keeps=all(part.keeps for part in parts),
            wanted=tuple(dict.fromkeys(name for part in parts for name in part.wanted)),
            learned=any(part.learned for part in parts),
        )  # fmt: skip
        settle(
            self, least=self._mean(lambda part: part.least or 0.0),
            most=self._mean(lambda part: 1.0 if part.most is None else part.most),
        )  # fmt: skip
        if all(part.fixed is not None for part in parts):
            settle(self, fixed=self._mean(lambda part: part.fixed))

    def matched(self, names: Names) -> Policy:
        return Mixture([part.matched(names) for part in self.policies], self.weights)

    def reading(self, inputs: Inputs, offset: int) -> Policy:
        return Mixture([part.reading(inputs, offset) for part in self.policies], self.weights)

    def _mean(self, ask: Callable[[Policy], Any]) -> Any:
        """The mean of what all policies answer, by their weights."""
        terms = (weight * ask(part) for weight, part in zip(self.weights, self.policies, strict=True))
        total = next(terms)
        for term in terms:
            total += term  # in place: each term is an array of its own
        return total

    def probabilities(self, batch: Batch) -> Floats:
        return self._mean(lambda part: probabilities(part, batch))

    def logged_probability(self, batch: Batch) -> Floats:
        return self._mean(lambda part: logged_probability(part, batch))

    def support(self, batch: Batch) -> Support | None:
        supports = [listed for part in self.policies if (listed := support(part, batch)) is not None]
        if len(supports) < len(self.policies):
            return None
        weighted = list(zip(self.weights, supports, strict=True))
        rest: Floats = sum((weight * listed.rest for weight, listed in weighted), np.zeros(len(batch)))
        above = [weight * listed.excess() for weight, listed in weighted]
        actions, _, (extra,) = draws.merged(np.hstack([listed.actions for listed in supports]), np.hstack(above))
        return Support(
            actions, np.where(actions >= 0, np.maximum(extra + rest[:, None], 0.0), 0.0), rest, batch.eligible
        )

    def probability_of(self, batch: Batch, actions: Ints) -> Floats:
        return self._mean(lambda part: probability_of(part, batch, actions))

    def draw(self, batch: Batch, u: Floats) -> Ints:
        """Part j where u lies in the j-th stretch of weights; where in the stretch decides on the action."""
        edges = np.concatenate([[0.0], np.cumsum(self.weights)])
        level = u * (edges[-1] * draws.BELOW_ONE)
        which = np.searchsorted(edges, level, side="right") - 1
        drawn = np.empty(u.shape, dtype=np.intp)
        for j, part in enumerate(self.policies):
            chosen = which == j
            if chosen.any():
                inside = (level - edges[j]) / (edges[j + 1] - edges[j])
                drawn[chosen] = draw(part, batch, np.clip(inside, 0.0, draws.BELOW_ONE))[chosen]
        return drawn
