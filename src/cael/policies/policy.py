"""Policies: contexts in, probabilities out, a batch of rows at a time.

A policy is a function, not an array: nothing here holds an n x k array that the caller did not hand in.
The probabilities of all actions (`probabilities`) answer every question. With many actions that is too much, so a
policy can also be asked for the probability of the logged action (`logged_probability`, all that some sources know),
of some actions (`probability_of`), for its list of actions (`support`), and for draws (`draw`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints, frozen, settle
from cael.errors import NeedsError, PolicyError, refuse_rows
from cael.policies import draws
from cael.policies import gate as checks
from cael.policies.gate import need_actions, need_rows
from cael.policies.labelled import Inputs, Labels, Names, index_of, labelled, need_order
from cael.policies.support import Support

if TYPE_CHECKING:
    from cael.log.batch import Batch

MOST_LISTED = 256
"""A table for all contexts with at most so many actions that carry mass is asked as a list."""


class Policy(ABC):
    """What a new policy must do: give the (b, k) probabilities of a batch. The rest has defaults.

    n_actions: the number of actions, where the policy fixes it.
    complete: False when only the probability of the logged action is known.
    least, most: the smallest and largest probability it can ever give to any action in any context, where that is known
        beforehand and every action is eligible (fewer of them have larger ones); guaranteed intervals use them.
    positive: True where it is known that every action has positive probability on every row.
    fixed: the probabilities (k,), where they are known to be the same in every context (and every action is eligible:
        see `fixed_on`).
    keeps: True where it plays only what is eligible, on every row; the probabilities of others are checked.
    wanted: columns of the log's table that it looks at in addition to the contexts.
    learned: whether a fitted model is behind it, which may have been trained on the log.
    """

    trusted: ClassVar[bool] = False
    keeps: ClassVar[bool] = False
    n_actions: int | None = None
    complete: bool = True
    least: float | None = None
    most: float | None = 1.0
    positive: bool = False
    fixed: Floats | None = None
    wanted: tuple[str, ...] = ()
    learned: bool = False

    @abstractmethod
    def probabilities(self, batch: Batch) -> Floats:
        """Probabilities of all actions, shape (b, k)."""

    def matched(self, names: Names) -> Policy:
        """The policy with its actions and rows as a log numbers them, where it knows them by labels."""
        return self

    def reading(self, inputs: Inputs, offset: int) -> Policy:
        """The policy on rows of another table with the columns that it wants; the first row has this number."""
        return self

    def logged_probability(self, batch: Batch) -> Floats:
        """Probability of each row's logged action, shape (b,)."""
        return self.probability_of(batch, batch.actions[:, None])[:, 0]

    def support(self, batch: Batch) -> Support | None:
        """The short list of a row's actions and the one probability that all others share; None: there is none.

        Where it is there, the other questions are answered from it.
        """
        return None

    def probability_of(self, batch: Batch, actions: Ints) -> Floats:
        """Probabilities of some actions (b, m) of each row, shape (b, m); an entry of -1 is no action and has 0."""
        listed = support(self, batch)
        if listed is not None:
            return listed.probability_of(actions)
        fixed = fixed_on(self, batch)
        if fixed is not None:
            need_actions(repr(self), len(fixed), batch)
            return _entries(fixed[None, :], actions.reshape(1, -1)).reshape(actions.shape)
        return batch.in_parts(lambda part, rows: _entries(probabilities(self, part), actions[rows]))

    def draw(self, batch: Batch, u: Floats) -> Ints:
        """Actions drawn from the policy, (b, size), one for each of the numbers u (b, size) in [0, 1)."""
        listed = support(self, batch)
        if listed is not None:
            return listed.draw(batch.n_actions, u)
        fixed = fixed_on(self, batch)
        if fixed is not None:
            need_actions(repr(self), len(fixed), batch)
            return draws.from_table(fixed[None, :], u.reshape(1, -1)).reshape(u.shape)
        return batch.in_parts(lambda part, rows: draws.from_table(probabilities(self, part), u[rows]))


def probabilities(policy: Policy, batch: Batch) -> Floats:
    """The one checked gate: (b, k) probabilities of a batch, each row a distribution, or an error with row numbers."""
    _need_complete(policy)
    with checks.contained(policy):
        table = policy.probabilities(batch)
    if not policy.trusted:
        table = checks.checked_rows(table, (len(batch), batch.n_actions), repr(policy), batch.row_numbers)
    if not policy.keeps:
        checks.refuse_ineligible(table, batch, repr(policy))
    return table


def fixed_on(policy: Policy, rows: Any) -> Floats | None:
    """The probabilities (k,) that a policy has on all of some rows (a batch, say), if it has them."""
    return policy.fixed if rows.eligible is None else None


def refuse_ineligible(policy: Policy, batch: Batch) -> None:
    """Refuse a policy that plays actions that are not eligible, by whatever it is asked for least."""
    if batch.eligible is None or policy.keeps or not policy.complete or len(batch) == 0:
        return
    if support(policy, batch) is None:
        for part in batch.parts():
            probabilities(policy, part)


def _need_complete(policy: Policy) -> None:
    if not policy.complete:
        raise NeedsError(
            f"{policy!r} knows only the probability of the logged action, and the probabilities of all actions are "
            "needed here. Give the full policy (Tabular, Softmax, TopK, FromModel, ...), or use an estimator "
            "that needs the logged action alone: IPS, SNIPS, BaselineIPS, SubGaussianIPS."
        )


def logged_probability(policy: Policy, batch: Batch) -> Floats:
    """The checked probability of the logged action, shape (b,)."""
    with checks.contained(policy):
        p = np.asarray(policy.logged_probability(batch), dtype=np.float64)
    return p if policy.trusted else checks.checked_entries(p, (len(batch),), repr(policy), batch.row_numbers)


def support(policy: Policy, batch: Batch) -> Support | None:
    """The checked lists of a batch, or None where the policy has no short ones."""
    with checks.contained(policy):
        listed = policy.support(batch)
    if listed is None:
        return None
    listed = listed if policy.keeps else checks.eligible_support(listed, batch, repr(policy))
    return listed if policy.trusted else checks.checked_support(listed, batch, repr(policy))


def probability_of(policy: Policy, batch: Batch, actions: Ints) -> Floats:
    """The checked probabilities (b, m) of some actions (b, m); an entry of -1 has 0."""
    _need_complete(policy)
    with checks.contained(policy):
        p = np.asarray(policy.probability_of(batch, actions), dtype=np.float64)
    return p if policy.trusted else checks.checked_entries(p, actions.shape, repr(policy), batch.row_numbers)


def draw(policy: Policy, batch: Batch, u: Floats) -> Ints:
    """The checked actions (b, size) that the policy draws with the numbers u (b, size) in [0, 1)."""
    _need_complete(policy)
    with checks.contained(policy):
        drawn = np.asarray(policy.draw(batch, u))
    return drawn if policy.trusted else checks.checked_draws(drawn, u.shape, batch, repr(policy))


def _entries(table: Floats, actions: Ints) -> Floats:
    """(b, m) entries of a table (b, k); 0 where the action is -1."""
    entries = np.take_along_axis(table, np.maximum(actions, 0), axis=1)
    return np.where(actions >= 0, entries, 0.0).astype(np.float64, copy=False)


def row_entries(table: Floats, batch: Batch, actions: Ints) -> Floats:
    """(b, m) entries of the batch's rows in a row-aligned table (n, k); 0 where the action is -1."""
    entries = table[batch.row_numbers[:, None], np.maximum(actions, 0)]
    return np.where(actions >= 0, entries, 0.0).astype(np.float64, copy=False)


@final
@dataclass(frozen=True)
class Uniform(Policy):
    """Every action with the same probability; on a log with eligible actions, every eligible one.

    >>> Uniform(4)
    Uniform(n_actions=4)
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    n_actions: int | None = None

    def __post_init__(self) -> None:
        if self.n_actions is not None:
            settle(self, least=1 / self.n_actions, most=1 / self.n_actions)

    def _k(self, batch: Batch) -> int:
        if self.n_actions is not None:
            need_actions("Uniform", self.n_actions, batch)
        return batch.n_actions

    def probabilities(self, batch: Batch) -> Floats:
        k = self._k(batch)
        if batch.eligible is not None:
            return batch.eligible.mask() / batch.eligible.sizes[:, None]
        return np.broadcast_to(np.float64(1 / k), (len(batch), k))

    def logged_probability(self, batch: Batch) -> Floats:
        k = self._k(batch)
        return np.full(len(batch), 1 / k) if batch.eligible is None else 1 / batch.eligible.sizes

    @property
    def fixed(self) -> Floats | None:  # type: ignore[override]
        """Its probabilities, which no context changes."""
        return None if self.n_actions is None else np.full(self.n_actions, 1 / self.n_actions)

    def support(self, batch: Batch) -> Support:
        nothing = np.empty((len(batch), 0))
        return Support(nothing.astype(np.intp), nothing, self.logged_probability(batch), batch.eligible)


@final
@dataclass(frozen=True, init=False, eq=False)
class Tabular(Policy):
    """Probabilities as an array: (k,) for every context alike, or (n, k) aligned with the rows of the log.

    A frame of pandas, polars or Arrow has a column for each action, named by it, and a mapping {action: probability}
    has an entry; actions= names the columns of an array. The log's own labels then say which action each is. Rows of a
    frame with labels of their own (an index, a column of decision ids) are matched by them.
    `copy=False` keeps the caller's array without copying it (the caller promises not to change it).

    >>> Tabular([0.2, 0.8])
    Tabular((2,))
    """

    trusted: ClassVar[bool] = True
    table: Array
    n_actions: int
    labels: Labels | None

    def __init__(
        self, table: ArrayLike | Mapping[Any, Any], *, actions: Sequence[Any] | None = None, copy: bool = True
    ) -> None:
        p, labels = labelled(table, actions)
        if p.dtype.kind not in "fiub":
            raise PolicyError(f"Tabular needs probabilities that are numbers; got {p.dtype}.")
        if p.dtype != np.float32:
            p = np.asarray(p, dtype=np.float64)
        if p.ndim == 3 and p.shape[2] == 1:
            p = p[:, :, 0]  # obp's action_dist with one position
        if p.ndim not in (1, 2) or p.size == 0:
            raise PolicyError(f"Tabular needs probabilities of shape (k,) or (n, k); got {p.shape}.")
        lowest = checks.checked_in_blocks(np.atleast_2d(p), "Tabular")
        settle(self, table=frozen(p, copy=copy), n_actions=p.shape[-1], positive=lowest > 0, labels=labels)
        if p.ndim == 1 and (labels is None or labels.in_order):
            settle(self, fixed=self.table.astype(np.float64, copy=False), least=lowest, most=float(p.max()))

    def __repr__(self) -> str:
        return f"Tabular({self.table.shape})"

    def matched(self, names: Names) -> Policy:
        if self.labels is None:
            return self
        return Tabular(names.arranged(self.table, self.labels, repr(self)), copy=False)

    def _check(self, batch: Batch) -> None:
        need_order(self.labels, "Tabular")
        need_actions("Tabular", self.n_actions, batch)
        if self.fixed is None:
            need_rows("Tabular", len(self.table), batch)

    def probabilities(self, batch: Batch) -> Floats:
        self._check(batch)
        if self.fixed is not None:
            return np.broadcast_to(self.fixed, (len(batch), self.n_actions))
        table = self.table[batch.rows]
        return table if self._totals is None else table / self._totals[batch.rows, None]

    @cached_property
    def _totals(self) -> Floats | None:
        """(n,) the sums of rows that are kept as float32, which are one but for the seventh digit: divided by them, a
        row is a distribution."""
        narrow = self.fixed is None and self.table.dtype != np.float64
        return np.einsum("ij->i", self.table, dtype=np.float64) if narrow else None

    def logged_probability(self, batch: Batch) -> Floats:
        self._check(batch)
        if self.fixed is not None:
            return self.fixed[batch.actions]
        p = self.table[batch.row_numbers, batch.actions]
        return p if self._totals is None else p / self._totals[batch.row_numbers]

    @cached_property
    def _listed(self) -> Ints:
        """The actions with mass, where all contexts are alike and there are few; else none."""
        actions = np.empty(0, np.intp) if self.fixed is None else np.flatnonzero(self.fixed)
        return actions if len(actions) <= MOST_LISTED else actions[:0]

    def support(self, batch: Batch) -> Support | None:
        self._check(batch)
        a = self._listed
        if self.fixed is None or len(a) == 0:
            return None
        shape = (len(batch), len(a))
        return Support(np.broadcast_to(a, shape), np.broadcast_to(self.fixed[a], shape), np.zeros(len(batch)))

    def probability_of(self, batch: Batch, actions: Ints) -> Floats:
        self._check(batch)
        if self.fixed is not None:
            return _entries(self.fixed[None, :], actions.reshape(1, -1)).reshape(actions.shape)
        p = row_entries(self.table, batch, actions)
        return p if self._totals is None else p / self._totals[batch.row_numbers, None]


@final
@dataclass(frozen=True, eq=False)
class LoggedOnly(Policy):
    """A policy of which only the probability of the logged action is known, one number per row of the log.

    >>> LoggedOnly([0.5, 0.1, 0.9])
    LoggedOnly(3 rows)
    """

    trusted: ClassVar[bool] = True
    complete: ClassVar[bool] = False  # type: ignore[misc]
    rows: ClassVar[Sequence[Any] | None] = None
    logged: ArrayLike

    def __post_init__(self) -> None:
        settle(self, rows=index_of(self.logged))
        p = np.asarray(self.logged, dtype=np.float64)
        if p.ndim != 1:
            raise PolicyError(f"LoggedOnly needs one probability per row; got shape {p.shape}.")
        refuse_rows(~((p >= 0) & (p <= 1)), p, "LoggedOnly: a probability must be in [0, 1]")
        settle(self, logged=frozen(p))

    @staticmethod
    def trusting(logged: Floats) -> LoggedOnly:
        """From probabilities that are known to be in [0, 1], without a copy."""
        policy = object.__new__(LoggedOnly)
        settle(policy, logged=logged)
        return policy

    def __repr__(self) -> str:
        return f"LoggedOnly({len(np.asarray(self.logged))} rows)"

    def matched(self, names: Names) -> Policy:
        p, rows = np.asarray(self.logged), self.rows
        places = None if rows is None else names.places(Labels(None, rows), len(p), repr(self))
        return self if places is None else LoggedOnly(p[places])

    def probabilities(self, batch: Batch) -> Floats:
        raise NeedsError(f"{self!r} knows only the probability of the logged action.")

    def logged_probability(self, batch: Batch) -> Floats:
        p = np.asarray(self.logged)
        need_rows("LoggedOnly", len(p), batch)
        return p[batch.rows]
