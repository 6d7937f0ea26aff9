"""Policies as the engine asks them: rows counted within a batch, and each row asked once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints, settle
from cael.log.batch import Batch, row_numbers
from cael.policies import policy as gate
from cael.policies.policy import Policy, Tabular, Uniform, row_entries
from cael.policies.support import Support

MOST_CELLS = 2**22
"""Rows times actions of a batch up to which a policy is asked once for everything."""


def settle_like(policy: Policy, inner: Policy) -> None:
    """What is known of a policy is known of one that asks it."""
    known = ("n_actions", "complete", "least", "most", "positive", "keeps")
    settle(policy, **{name: getattr(inner, name) for name in known})


@final
@dataclass(frozen=True, eq=False)
class Aligned(Policy):
    """A policy that counts rows as its log does, for batches that count their own. numbers: of the batch's rows."""

    trusted: ClassVar[bool] = True
    inner: Policy
    numbers: slice | Ints

    def __post_init__(self) -> None:
        settle_like(self, self.inner)

    def __repr__(self) -> str:
        return repr(self.inner)

    def _there(self, batch: Batch) -> Batch:
        return replace(batch, rows=row_numbers(self.numbers, batch.rows))

    def probabilities(self, batch: Batch) -> Floats:
        return gate.probabilities(self.inner, self._there(batch))

    def logged_probability(self, batch: Batch) -> Floats:
        return gate.logged_probability(self.inner, self._there(batch))

    def support(self, batch: Batch) -> Support | None:
        return gate.support(self.inner, self._there(batch))

    def probability_of(self, batch: Batch, actions: Ints) -> Floats:
        return gate.probability_of(self.inner, self._there(batch), actions)

    def draw(self, batch: Batch, u: Floats) -> Ints:
        return gate.draw(self.inner, self._there(batch), u)


def aligned(policy: Policy, numbers: slice | Ints) -> Policy:
    """The policy for batches that count their own rows."""
    return policy if isinstance(policy, Uniform) or policy.fixed is not None else Aligned(policy, numbers)


def asked_once(policy: Policy, batch: Batch) -> Policy:
    """The policy with its probabilities on this batch as a table, where that is small and it has no shorter form."""
    small = len(batch) * batch.n_actions <= MOST_CELLS
    if (
        not small
        or not policy.complete
        or gate.fixed_on(policy, batch) is not None
        or isinstance(policy, Tabular | Uniform)
    ):
        return policy
    first = replace(batch.part(slice(0, 1)), eligible=None)  # what is wrong is said of all rows, not of the first
    if len(batch) == 0 or gate.support(policy, first) is not None:
        return policy
    return Asked(policy, np.asarray(gate.probabilities(policy, batch), dtype=np.float64))


@final
@dataclass(frozen=True, eq=False)
class Asked(Policy):
    """A policy whose probabilities (b, k) on a batch are known; only draws are asked of it again."""

    trusted: ClassVar[bool] = True
    inner: Policy
    table: Floats

    def __post_init__(self) -> None:
        settle_like(self, self.inner)
        settle(self, keeps=True)  # the table was checked

    def __repr__(self) -> str:
        return repr(self.inner)

    def probabilities(self, batch: Batch) -> Floats:
        return self.table[batch.rows]

    def logged_probability(self, batch: Batch) -> Floats:
        return self.table[batch.row_numbers, batch.actions]

    def probability_of(self, batch: Batch, actions: Ints) -> Floats:
        return row_entries(self.table, batch, actions)

    def draw(self, batch: Batch, u: Floats) -> Ints:
        return gate.draw(self.inner, batch, u)
