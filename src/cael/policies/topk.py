"""TopK: policies as short lists of actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, frozen, settle
from cael.errors import PolicyError, choose, refuse_rows
from cael.policies.gate import SUM_ATOL, check_listed, need_actions, need_rows
from cael.policies.policy import Policy
from cael.policies.support import Support

if TYPE_CHECKING:
    from cael.log.batch import Batch


@final
@dataclass(frozen=True, eq=False, repr=False)
class TopK(Policy):
    """Sparse lists, aligned with the rows of the log: the m listed actions of a row and their probabilities.

    actions: (n, m) action numbers, -1 for an empty place. listed: (n, m), their probabilities.
    rest: what happens with the mass that a row's list leaves over: "error" refuses it (the default), "uniform"
        spreads it over the (eligible) actions that are not listed, "renormalise" scales the list up to one.

    rest_each: (n,) probability of each action that is not listed, where `rest` gives one.

    >>> TopK([[2, 0]], [[0.7, 0.3]], n_actions=3)
    TopK(1 rows, 2 listed of 3, rest='error')
    """

    trusted: ClassVar[bool] = True
    actions: Any
    listed: Any
    n_actions: int
    rest: str = "error"
    rest_each: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        choose("rest", self.rest, ("error", "uniform", "renormalise"))
        a, p = np.asarray(self.actions), np.array(self.listed, dtype=np.float64)
        if a.ndim != 2 or a.shape != p.shape or a.dtype.kind not in "iu":
            raise PolicyError(
                f"TopK needs whole-number actions and probabilities of one shape (n, m); got {a.shape}, {p.shape}."
            )
        check_listed(a, self.n_actions, "TopK")
        bad = ((a >= 0) & ~((p >= 0) & (p <= 1 + SUM_ATOL))).any(axis=1)
        refuse_rows(bad, p, "TopK probabilities must be in [0, 1]")
        p[a < 0] = 0.0
        p, rest_each = _settle_rest(a, p, self.n_actions, self.rest)
        settle(self, actions=frozen(a.astype(np.intp)), listed=frozen(p), rest_each=frozen(rest_each))

    def __repr__(self) -> str:
        n, m = self.actions.shape
        return f"TopK({n} rows, {m} listed of {self.n_actions}, rest={self.rest!r})"

    def probabilities(self, batch: Batch) -> Floats:
        return self.support(batch).table(self.n_actions)

    def logged_probability(self, batch: Batch) -> Floats:
        self._check(batch)
        hit = self.actions[batch.rows] == batch.actions[:, None]
        listed = np.where(hit, self.listed[batch.rows], 0.0).sum(axis=1)
        return np.where(hit.any(axis=1), listed, self._rest(batch))

    def support(self, batch: Batch) -> Support:
        self._check(batch)
        return Support(self.actions[batch.rows], self.listed[batch.rows], self._rest(batch), batch.eligible)

    def _rest(self, batch: Batch) -> Floats:
        """(b,) the probability of each action that is not listed."""
        each: Floats = self.rest_each[batch.rows]
        if batch.eligible is None or not each.any():
            return each
        actions = self.actions[batch.rows]
        left = each * (self.n_actions - (actions >= 0).sum(axis=1))
        unlisted = batch.eligible.sizes - batch.eligible.holds(actions).sum(axis=1)
        none = (left > SUM_ATOL) & (unlisted == 0)
        refuse_rows(none, left, "TopK: no eligible action can take the rest", rows=batch.row_numbers)
        return left / np.maximum(unlisted, 1)

    def _check(self, batch: Batch) -> None:
        need_actions("TopK", self.n_actions, batch)
        need_rows("TopK", len(self.actions), batch)


def _settle_rest(a: Array, p: Floats, k: int, rest: str) -> tuple[Floats, Floats]:
    """The listed probabilities and the probability of each unlisted action, by the rest rule."""
    total = p.sum(axis=1)
    refuse_rows(total > 1 + SUM_ATOL, total, "TopK: the listed probabilities sum to more than 1")
    left: Floats = np.clip(1 - total, 0.0, None)
    short = left > SUM_ATOL
    if rest == "error":
        advice = (
            "Say what happens with the rest: rest='uniform' spreads it over the unlisted actions, rest='renormalise' "
            "scales the list."
        )
        refuse_rows(short, total, "TopK: the listed probabilities must sum to 1", advice)
    if rest == "renormalise":
        refuse_rows(total <= 0, total, "TopK: cannot renormalise an empty list")
        return p / total[:, None], np.zeros(len(a))
    if rest == "uniform":
        unlisted = k - (a >= 0).sum(axis=1)
        refuse_rows(short & (unlisted == 0), total, "TopK: no unlisted action can take the rest")
        return p, np.where(unlisted > 0, left / np.maximum(unlisted, 1), 0.0)
    return p, np.zeros(len(a))
