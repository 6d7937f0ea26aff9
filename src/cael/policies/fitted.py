"""The logging policy of a log that holds the propensity of the logged action alone, fitted to these propensities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.log.keys import fold_of_each
from cael.policies.gate import need_actions
from cael.policies.label_fit import NEVER, Basis, Family, LabelModel, Labels, basis_of, fit_labels
from cael.policies.policy import Policy

if TYPE_CHECKING:
    from cael.log.batch import Batch
    from cael.log.logged import LoggedData

FOLDS, SEED = 5, 0
CELLS, FEWEST = 400_000, 2000
"""A model is fitted to so many rows times actions, but to no fewer rows than this where the log has them."""
MOST_ACTIONS, MOST_INPUTS, MOST_EACH = 2000, 80, 3
"""With more actions only a policy without contexts is fitted; with more inputs there are no products of contexts; and
with more coefficients than this times the rows actions have none of their own."""
EXACT = 0.005
"""A model with so small an error is good enough: no other is tried."""
WEAKER = 1e-5
"""The weaker ridge that is tried on the family that was chosen."""
CERTAIN = 1e-12


class Foldable(Protocol):
    """Rows that know their folds."""

    def folds(self, count: int, seed: int) -> Ints: ...


@final
@dataclass(frozen=True)
class LoggingFit:
    """How good a fitted logging policy is.

    family: of the model, in words. error: mean of |log(fitted / logged propensity)| on rows that the model did not see,
    about twice the total variation distance of the two policies. trained_on: rows that each model was fitted to.
    target_error: the same with the weights of the target policy (None: not known).
    """

    family: str
    error: float
    trained_on: int
    target_error: float | None = None

    @property
    def sentence(self) -> str:
        return (
            "The logging policy was fitted to the logged propensities; on held-out rows its error is "
            f"{shown(self.error)}."
        )

    @property
    def off(self) -> float:
        """By how much the weights of a target can be off: the larger of the two errors."""
        return max(self.error, self.target_error or 0.0)


def shown(error: float) -> str:
    """An error in percent."""
    return f"{error:.0%}" if error >= 0.1 else f"{error:.1%}"


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FittedLogging(Policy):
    """All probabilities of a logging policy of which the log holds the logged action's: a model of the others.

    On a row with a logged propensity, that is the probability of its action, and the model says how the rest is shared.
    Every row is predicted by a model that did not see it. fit: how good it is.
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    n_actions: int
    fit: LoggingFit
    _models: tuple[LabelModel, ...]
    _fold: Ints

    def __repr__(self) -> str:
        return f"FittedLogging({self.n_actions} actions, {self.fit.family}, error={self.fit.error:.3f})"

    @property
    def folds(self) -> int:
        """How many models there are."""
        return len(self._models)

    def on(self, rows: Foldable) -> FittedLogging:
        """The same policy on a piece of a log, whose rows are counted within it."""
        return replace(self, _fold=rows.folds(self.folds, SEED))

    def attached(self, log: LoggedData) -> LoggedData:
        """A log in memory with this as its logging policy."""
        fold = np.zeros(int(log.row_numbers.max()) + 1, dtype=np.intp)
        fold[log.row_numbers] = log.fold_numbers(self.folds, SEED)
        return log.with_logging(replace(self, _fold=fold))

    def modelled(self, batch: Batch) -> Floats:
        """(b, k) as the models have them, without a look at the logged propensities."""
        need_actions("FittedLogging", self.n_actions, batch)
        fold, p = self._fold[batch.rows], np.empty((len(batch), self.n_actions))
        mask = None if batch.eligible is None else batch.eligible.mask()
        for number, model in enumerate(self._models):
            rows = np.flatnonzero(fold == number)
            p[rows] = model.probabilities(batch.contexts[rows], None if mask is None else mask[rows])
        return p

    def probabilities(self, batch: Batch) -> Floats:
        p = self.modelled(batch)
        if batch.propensities is None:
            return p
        mask = None if batch.eligible is None else batch.eligible.mask()
        return with_logged(p, batch.actions, batch.propensities, mask)

    def errors(self, batch: Batch) -> Floats:
        """|log(modelled / logged propensity)| of the logged actions, (b,)."""
        assert batch.propensities is not None
        logs = np.log(batch.propensities)

        def off(part: Batch, rows: slice) -> Floats:
            own = self.modelled(part)[np.arange(len(part)), part.actions]
            return np.asarray(np.abs(np.log(np.maximum(own, NEVER)) - logs[rows]))

        return np.asarray(batch.in_parts(off))

    def fit_for(self, batch: Batch, weights: Floats) -> LoggingFit:
        """How good it is on some rows, and for a target with these weights (b,)."""
        errors = self.errors(batch)
        target = float(weights @ errors) / max(float(weights.sum()), CERTAIN)
        return replace(self.fit, error=float(errors.mean()), target_error=target)


def with_logged(p: Floats, actions: Ints, logged: Floats, eligible: Array | None = None) -> Floats:
    """Rows p (b, k) with the logged probabilities (b,) of the logged actions (b,); the others share the rest as before,
    and evenly where they had none. eligible: (b, k) whether an action is one of them; None: all are.

    >>> with_logged(np.array([[0.5, 0.25, 0.25]]), np.array([0]), np.array([0.2]))
    array([[0.2, 0.4, 0.4]])
    """
    rows, others = np.arange(len(p)), np.ones(p.shape, dtype=bool) if eligible is None else eligible.copy()
    others[rows, actions] = False
    left = 1 - p[rows, actions]
    known = left > CERTAIN
    factor = np.divide(1 - logged, left, out=np.zeros(len(p)), where=known)
    evenly = others * ((1 - logged) / np.maximum(others.sum(axis=1), 1))[:, None]
    table = np.where(known[:, None], p * factor[:, None], evenly)
    table[rows, actions] = logged
    return table


def rows_for(k: int, most: int) -> int:
    """To how many rows a model of k actions is fitted, of at most so many."""
    return min(most, max(FEWEST, CELLS // k))


def fitted_logging(labels: Labels, held_out: Sequence[Ints]) -> FittedLogging:
    """The best family of models by its error on the first fold, fitted without each of the folds."""
    n, k = len(labels.actions), len(labels.features)
    fold = fold_of_each(held_out, n)
    best = _chosen(labels, fold)
    parts = [labels.part(np.flatnonzero(fold != number)) for number in range(1, len(held_out))]
    models = [best.model, *(fit_labels(part, best.family, best.basis, best.parameters)[0] for part in parts)]
    errors = np.concatenate([labels.part(rows).errors(model) for rows, model in zip(held_out, models, strict=True)])
    fit = LoggingFit(best.family.name, float(np.abs(errors).mean()), n - len(held_out[-1]))
    return FittedLogging(n_actions=k, fit=fit, _models=tuple(models), _fold=fold)


def plain_families(labels: Labels) -> list[Family]:
    """The same in every context, and softmax."""
    d = labels.contexts.shape[1]
    if len(labels.features) > MOST_ACTIONS or d == 0:
        return [Family("none")]
    few = (1 + d) * len(labels.features) <= MOST_EACH * len(labels.actions)
    owns = [*([False] if labels.features.shape[1] else []), *([True] if few else [])]
    return [Family("none"), *(Family("linear", own) for own in owns)]


def with_floor(family: Family, labels: Labels) -> Family:
    return replace(family, floor=family.inputs != "none")


def with_products(family: Family, labels: Labels) -> Family:
    """Products of contexts, where there are not too many."""
    d, k = labels.contexts.shape[1], len(labels.features)
    size = 1 + d + d * (d + 1) // 2
    few = not family.own or size * k <= MOST_EACH * len(labels.actions)
    return replace(family, inputs="products") if family.inputs == "linear" and few and size <= MOST_INPUTS else family


def with_less_ridge(family: Family, labels: Labels) -> Family:
    return family if family.inputs == "none" else replace(family, ridge=WEAKER)


@final
@dataclass(frozen=True, eq=False)
class _Tried:
    """A family with what was fitted of it. error: mean absolute error of logs on held-out rows."""

    family: Family
    basis: Basis
    model: LabelModel
    parameters: Floats | None
    error: float


def _chosen(labels: Labels, fold: Ints) -> _Tried:
    """The family with the least error on the first fold, or the first that is good enough."""
    others, held = labels.part(np.flatnonzero(fold != 0)), labels.part(np.flatnonzero(fold == 0))
    tried: list[_Tried] = []
    for family in plain_families(labels):
        tried.append(_try(family, labels, others, held))
        if tried[-1].error < EXACT:
            return tried[-1]
    best = min(tried, key=lambda one: one.error)
    for richer in (with_floor, with_products, with_less_ridge):
        family = richer(best.family, labels)
        if family != best.family and best.error >= EXACT:
            best = min(best, _try(family, labels, others, held), key=lambda one: one.error)
    return best


def _try(family: Family, labels: Labels, others: Labels, held: Labels) -> _Tried:
    basis = basis_of(labels.contexts, family.inputs)
    model, parameters = fit_labels(others, family, basis)
    return _Tried(family, basis, model, parameters, float(np.abs(held.errors(model)).mean()))


def labels_of(log: LoggedData, logged: Floats) -> Labels:
    """Rows with their propensities, and the features of all actions."""
    features, k = log.action_features, log.n_actions
    phi = np.empty((k, 0)) if features is None else np.asarray(features, dtype=np.float64)
    spread = phi.std(axis=0)
    moving = spread > 1e-12 * (1 + np.abs(phi).max(axis=0, initial=0.0))
    features = (phi[:, moving] - phi[:, moving].mean(axis=0)) / spread[moving]
    return Labels(log.contexts, log.actions, logged, features, log.eligible)
