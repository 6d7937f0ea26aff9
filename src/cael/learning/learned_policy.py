"""LearnedPolicy: a rule, mixed with the old policy and with the uniform one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.errors import PolicyError
from cael.learning.rules import Rule
from cael.log.batch import Batch
from cael.policies.gate import need_actions
from cael.policies.policy import Policy, Uniform, probabilities


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedPolicy(Policy):
    """(1 - explore) ((1 - share) old + share rule) + explore uniform, on eligible actions.

    rule: what was learned. old: the policy that it leans on. kind: of the rule, in words. labels: of the actions, and
    contexts: names of the contexts, where they have some.
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    n_actions: int
    context_dim: int
    rule: Rule
    old: Policy
    kind: str
    share: float = 1.0
    explore: float = 0.0
    labels: tuple[Any, ...] | None = None
    contexts: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        more = (f", share={self.share:.3g}" if self.share < 1 else "") + (
            f", explore={self.explore:g}" if self.explore else ""
        )
        return f"LearnedPolicy({self.kind}{more})"

    def probabilities(self, batch: Batch) -> Floats:
        self.check(batch)
        old = probabilities(self.old, batch)
        return self.mixed(self.rule.advised(batch, old), old, batch)

    def check(self, batch: Batch) -> None:
        """Refuse rows of another problem."""
        need_actions("LearnedPolicy", self.n_actions, batch)
        if batch.contexts.shape[1] != self.context_dim:
            raise PolicyError(
                f"{self!r} was learned from {self.context_dim} contexts; this log has {batch.contexts.shape[1]}. Name "
                "the same columns (contexts=, --contexts) in the same order."
            )

    def mixed(self, advised: Floats, old: Floats, batch: Batch) -> Floats:
        """The policy, from what the rule advises and the old policy plays, both (b, k)."""
        p = advised if self.share == 1 else (1 - self.share) * old + self.share * advised
        if not self.explore:
            return p
        return (1 - self.explore) * p + self.explore * probabilities(Uniform(self.n_actions), batch)

    def decisions(self, batch: Batch) -> np.ndarray:
        """(b,) the most probable action of each row; the first of equal ones."""
        return np.asarray(batch.in_parts(lambda part, _: self.probabilities(part).argmax(axis=1)))
