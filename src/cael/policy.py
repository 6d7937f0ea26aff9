"""Policies: contexts in, probabilities out, a batch of rows at a time.

A policy is a function, not an array: nothing here holds an n x k array that the caller did not hand in.
Two questions can be asked of a policy: the probabilities of all actions (`probabilities`), and the probability
of the logged action alone (`logged_probability`), which is all that some sources know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from cael._types import Array, Floats, Ints, frozen
from cael.errors import InputError, NeedsError, PolicyError, first_bad

if TYPE_CHECKING:
    from cael.log import Batch

SUM_ATOL = 1e-5
"""How far the probabilities of a row may sum away from one (float32 and six-digit logs pass)."""


class Policy(ABC):
    """What a new policy must do: give the (b, k) probabilities of a batch. The rest has defaults.

    n_actions: the number of actions, where the policy fixes it.
    complete: False when only the probability of the logged action is known.
    least, most: the smallest and largest probability it can ever give to any action in any context, where
        that is known beforehand; intervals with a finite-sample guarantee use them.
    positive: True where it is known that every action has positive probability on every row.
    """

    trusted: ClassVar[bool] = False
    n_actions: int | None = None
    complete: bool = True
    least: float | None = None
    most: float | None = 1.0
    positive: bool = False

    @abstractmethod
    def probabilities(self, batch: Batch) -> Floats:
        """Probabilities of all actions, shape (b, k)."""

    def logged_probability(self, batch: Batch) -> Floats:
        """Probability of each row's logged action, shape (b,)."""
        return _pick(probabilities(self, batch), batch.actions)


def probabilities(policy: Policy, batch: Batch) -> Floats:
    """The one checked gate: (b, k) probabilities of a batch, each row a distribution, or an error with row numbers."""
    if not policy.complete:
        raise NeedsError(
            f"{policy!r} knows only the probability of the logged action, and the probabilities of all actions are "
            "needed here. Give the full policy (Tabular, Softmax, TopK, FromModel, ...), or use an estimator "
            "that needs the logged action alone: IPS, SNIPS, BaselineIPS, SubGaussianIPS."
        )
    table = policy.probabilities(batch)
    if policy.trusted:
        return table
    return checked_rows(table, (len(batch), batch.n_actions), repr(policy), batch.row_numbers)


def logged_probability(policy: Policy, batch: Batch) -> Floats:
    """The checked probability of the logged action, shape (b,)."""
    p = np.asarray(policy.logged_probability(batch), dtype=np.float64)
    if policy.trusted:
        return p
    if p.shape != (len(batch),):
        raise PolicyError(f"{policy!r} gave logged probabilities of shape {p.shape}; expected ({len(batch)},).")
    bad = ~((p >= 0) & (p <= 1 + SUM_ATOL))
    if bad.any():
        raise PolicyError(f"{policy!r}: a probability must be in [0, 1]; {first_bad(bad, p, batch.row_numbers)}.")
    return p


def checked_rows(table: ArrayLike, shape: tuple[int, int], source: str, rows: Ints | None = None) -> Floats:
    """A (b, k) table of distributions, or a PolicyError that names the rows which are none."""
    p = np.asarray(table, dtype=np.float64)
    if p.shape != shape:
        raise PolicyError(f"{source}: expected probabilities of shape {shape} (rows, actions); got {p.shape}.")
    if not p.min() >= 0:
        low = p.min(axis=1)
        bad = ~(low >= 0)
        raise PolicyError(f"{source}: probabilities must be >= 0 and not NaN; {first_bad(bad, low, rows)}.")
    total = np.einsum("ij->i", p)  # faster than sum(axis=1) on short rows
    bad = ~(np.abs(total - 1) <= SUM_ATOL)
    if bad.any():
        raise PolicyError(
            f"{source}: the probabilities of a row must sum to 1 (within {SUM_ATOL:g}); "
            f"{first_bad(bad, total, rows)}. Normalise them, or say what the rest is with TopK(rest=...)."
        )
    return p


def as_policy(source: Policy | ArrayLike | Callable[[Floats], ArrayLike]) -> Policy:
    """A policy from a policy, a (k,) or (n, k) array, a scikit-learn classifier, or a function of contexts."""
    if isinstance(source, Policy):
        return source
    if callable(source) or hasattr(source, "predict_proba"):
        return FromModel(source)
    return Tabular(source)


def _pick(table: Array, actions: Ints) -> Floats:
    return table[np.arange(len(actions)), actions].astype(np.float64, copy=False)


def need_rows(what: str, has: int, batch: Batch) -> None:
    last = batch.rows.stop - 1 if isinstance(batch.rows, slice) else int(batch.rows.max())
    if last >= has:
        raise PolicyError(
            f"{what} has {has} rows, but the log asks for row {last}: a row-aligned policy must have one row per row "
            "of the log it was made for."
        )


def need_actions(what: str, has: int, batch: Batch) -> None:
    if has != batch.n_actions:
        raise PolicyError(f"{what} has {has} actions, but the log has {batch.n_actions}.")


@final
@dataclass(frozen=True)
class Uniform(Policy):
    """Every action with the same probability.

    >>> Uniform(4)
    Uniform(n_actions=4)
    """

    trusted: ClassVar[bool] = True
    n_actions: int | None = None

    @property
    def least(self) -> float | None:  # type: ignore[override]
        return None if self.n_actions is None else 1 / self.n_actions

    @property
    def most(self) -> float | None:  # type: ignore[override]
        return 1.0 if self.n_actions is None else 1 / self.n_actions

    def _k(self, batch: Batch) -> int:
        if self.n_actions is not None:
            need_actions("Uniform", self.n_actions, batch)
        return batch.n_actions

    def probabilities(self, batch: Batch) -> Floats:
        k = self._k(batch)
        return np.broadcast_to(np.float64(1 / k), (len(batch), k))

    def logged_probability(self, batch: Batch) -> Floats:
        return np.full(len(batch), 1 / self._k(batch))


@final
@dataclass(frozen=True, init=False, eq=False)
class Tabular(Policy):
    """Probabilities as an array: (k,) for every context alike, or (n, k) aligned with the rows of the log.

    `copy=False` keeps the caller's array without copying it (the caller promises not to change it).

    >>> Tabular([0.2, 0.8])
    Tabular((2,))
    """

    trusted: ClassVar[bool] = True
    table: Array
    lowest: float

    def __init__(self, table: ArrayLike, *, copy: bool = True) -> None:
        p = np.asarray(table)
        if p.dtype.kind not in "fiub":
            raise PolicyError(f"Tabular needs probabilities that are numbers; got {p.dtype}.")
        if p.dtype != np.float32:
            p = np.asarray(p, dtype=np.float64)
        if p.ndim == 3 and p.shape[2] == 1:
            p = p[:, :, 0]  # obp's action_dist with one position
        if p.ndim not in (1, 2) or p.size == 0:
            raise PolicyError(f"Tabular needs probabilities of shape (k,) or (n, k); got {p.shape}.")
        object.__setattr__(self, "lowest", _check_in_blocks(np.atleast_2d(p), "Tabular"))
        object.__setattr__(self, "table", frozen(p, copy=copy))

    def __repr__(self) -> str:
        return f"Tabular({self.table.shape})"

    @property
    def n_actions(self) -> int:  # type: ignore[override]
        return int(self.table.shape[-1])

    @property
    def least(self) -> float | None:  # type: ignore[override]
        return float(self.table.min()) if self.table.ndim == 1 else None

    @property
    def most(self) -> float:  # type: ignore[override]
        return float(self.table.max()) if self.table.ndim == 1 else 1.0

    def probabilities(self, batch: Batch) -> Floats:
        need_actions("Tabular", self.n_actions, batch)
        if self.table.ndim == 1:
            return np.broadcast_to(self.table.astype(np.float64, copy=False), (len(batch), self.n_actions))
        need_rows("Tabular", len(self.table), batch)
        return self.table[batch.rows].astype(np.float64, copy=False)

    @property
    def positive(self) -> bool:  # type: ignore[override]
        return self.lowest > 0

    def logged_probability(self, batch: Batch) -> Floats:
        need_actions("Tabular", self.n_actions, batch)
        if self.table.ndim == 1:
            return self.table[batch.actions].astype(np.float64, copy=False)
        need_rows("Tabular", len(self.table), batch)
        return self.table[batch.row_numbers, batch.actions].astype(np.float64, copy=False)


def _check_in_blocks(table: Array, source: str, size: int = 2**19) -> float:
    """Check all rows, a block at a time; the smallest probability in the table."""
    rows, lowest = max(1, size // table.shape[1]), np.inf
    for start in range(0, len(table), rows):
        part = table[start : start + rows]
        checked_rows(part, part.shape, source, np.arange(start, start + len(part)))
        lowest = min(lowest, float(part.min()))
    return lowest


@final
@dataclass(frozen=True, eq=False)
class LoggedOnly(Policy):
    """A policy of which only the probability of the logged action is known, one number per row of the log.

    >>> LoggedOnly([0.5, 0.1, 0.9])
    LoggedOnly(3 rows)
    """

    trusted: ClassVar[bool] = True
    complete: ClassVar[bool] = False  # type: ignore[misc]
    logged: ArrayLike

    def __post_init__(self) -> None:
        p = np.asarray(self.logged, dtype=np.float64)
        if p.ndim != 1:
            raise PolicyError(f"LoggedOnly needs one probability per row; got shape {p.shape}.")
        bad = ~((p >= 0) & (p <= 1))
        if bad.any():
            raise PolicyError(f"LoggedOnly: a probability must be in [0, 1]; {first_bad(bad, p)}.")
        object.__setattr__(self, "logged", frozen(p))

    def __repr__(self) -> str:
        return f"LoggedOnly({len(np.asarray(self.logged))} rows)"

    def probabilities(self, batch: Batch) -> Floats:
        raise NeedsError(f"{self!r} knows only the probability of the logged action.")

    def logged_probability(self, batch: Batch) -> Floats:
        p = np.asarray(self.logged)
        need_rows("LoggedOnly", len(p), batch)
        return p[batch.rows]


@final
@dataclass(frozen=True, eq=False)
class Mixture(Policy):
    """With probability weights[j], act as policies[j].

    >>> Mixture([Uniform(2), Tabular([1.0, 0.0])], [0.1, 0.9])
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


@final
@dataclass(frozen=True, eq=False)
class FromModel(Policy):
    """A policy from a scikit-learn classifier of actions, or from any function of contexts (b, d) -> (b, k).

    A classifier's `classes_` must be action numbers; actions it never saw get probability 0.

    >>> FromModel(lambda contexts: np.full((len(contexts), 2), 0.5)).complete
    True
    """

    model: Any

    def __post_init__(self) -> None:
        if not callable(self.model) and not hasattr(self.model, "predict_proba"):
            raise InputError(
                f"FromModel needs a function of contexts or an object with predict_proba; got {type(self.model)}."
            )

    def probabilities(self, batch: Batch) -> Floats:
        if not hasattr(self.model, "predict_proba"):
            return np.asarray(self.model(batch.contexts), dtype=np.float64)
        p = np.asarray(self.model.predict_proba(batch.contexts), dtype=np.float64)
        classes = np.asarray(self.model.classes_)
        if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= batch.n_actions:
            raise PolicyError(
                f"FromModel: the classes of the model must be action numbers 0..{batch.n_actions - 1}; got {classes}."
            )
        table = np.zeros((len(batch), batch.n_actions))
        table[:, classes] = p
        return table
