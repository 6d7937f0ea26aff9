"""AmongEligible: a policy that knows nothing of eligible actions, scaled up to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from cael.common.types import Floats, settle
from cael.errors import PolicyError, refuse_rows
from cael.policies.given import as_policy
from cael.policies.labelled import Inputs, Names
from cael.policies.policy import Policy, probabilities

if TYPE_CHECKING:
    from cael.log.batch import Batch


@final
@dataclass(frozen=True, eq=False)
class AmongEligible(Policy):
    """What is left of a policy's probabilities on the eligible actions of each row, divided by their sum.

    On a log in which every action is eligible it is the policy itself.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 2], [1.0, 0.0], [0.5, 0.5], eligible=[[0, 1], [1, 2]])
    >>> cael.AmongEligible(cael.Tabular([0.6, 0.2, 0.2])).probabilities(log.whole)
    array([[0.75, 0.25, 0.  ],
           [0.  , 0.5 , 0.5 ]])
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    policy: Policy

    def __post_init__(self) -> None:
        policy = as_policy(self.policy)
        if not policy.complete:
            raise PolicyError(f"{policy!r} knows only logged actions, and cannot be scaled up to the eligible ones.")
        settle(
            self,
            policy=policy,
            n_actions=policy.n_actions,
            fixed=policy.fixed,
            wanted=policy.wanted,
            learned=policy.learned,
        )

    def matched(self, names: Names) -> Policy:
        return AmongEligible(self.policy.matched(names))

    def reading(self, inputs: Inputs, offset: int) -> Policy:
        return AmongEligible(self.policy.reading(inputs, offset))

    def probabilities(self, batch: Batch) -> Floats:
        p = probabilities(self.policy, replace(batch, eligible=None))
        if batch.eligible is None:
            return p
        p = np.where(batch.eligible.mask(), p, 0.0)
        total = p.sum(axis=1)
        message = f"AmongEligible: {self.policy!r} gives no eligible action any probability"
        advice = "Mix it with another policy, such as Mixture([policy, Uniform()], [0.99, 0.01])."
        refuse_rows(total <= 0, total, message, advice, rows=batch.row_numbers)
        scaled: Floats = p / total[:, None]
        return scaled
