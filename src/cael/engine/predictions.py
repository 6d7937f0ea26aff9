"""Predictions of the reward in a stream: columns of the log, functions of contexts, or Ridge by a pass of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError
from cael.io import cells
from cael.io.encode import Actions, by_suffix, columns_of, matrix, said_order, told
from cael.io.sources import Source
from cael.log.batch import FEW, chunks, row_numbers
from cael.log.pieces import Piece, numbers_of
from cael.outcomes.linear import AdditiveOutcome, InteractingOutcome
from cael.outcomes.outcome_model import FittedOutcome, FixedOutcome
from cael.policies.policy import Policy, fixed_on, probabilities, support


class Predictions(ABC):
    """Where q(x, a) comes from. columns: of the log. contexts: whether it needs them. cross_fitted: None: nothing was
    trained."""

    columns: tuple[str, ...] = ()
    contexts: ClassVar[bool] = False
    cross_fitted: bool | None = None

    @abstractmethod
    def terms(self, piece: Piece, policy: Policy) -> tuple[Floats, Floats]:
        """(q(x_i, a_i), sum over a of pi(a|x_i) q(x_i, a)), each (n,)."""

    def balance(self, piece: Piece, target: int) -> Floats:
        """(n,) by which a row's residual counts in the mean prediction under a target, where that is known."""
        raise NotImplementedError


@final
@dataclass(frozen=True, eq=False)
class Pair(Predictions):
    """Two columns: the prediction for the logged action, and that for the target's actions, averaged over them."""

    logged: str
    target: str

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.logged, self.target)

    def terms(self, piece: Piece, policy: Policy) -> tuple[Floats, Floats]:
        return _column(self.logged, piece), _column(self.target, piece)


@final
@dataclass(frozen=True, eq=False)
class All(Predictions):
    """The predictions for all actions: a column of lists, or one column each."""

    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.names

    def terms(self, piece: Piece, policy: Policy) -> tuple[Floats, Floats]:
        assert piece.source is not None
        table, _, flaws = matrix(piece.source, self.names, piece.read, categories=False, cast=cells.measured)
        _refuse(flaws, piece)
        if table.shape[1] != piece.n_actions:
            raise InputError(
                f"predictions: {', '.join(self.names[:3])} give {table.shape[1]} numbers per row, but there are "
                f"{piece.n_actions} actions."
            )
        q = table if piece.rows is None else table[piece.rows]
        value = np.empty(len(piece))
        for part in chunks(len(piece), piece.n_actions):
            value[part] = np.einsum("ij,ij->i", probabilities(policy, piece.batch(part)), q[part])
        return q[np.arange(len(piece)), piece.actions], value


@final
@dataclass(frozen=True, eq=False)
class Fixed(Predictions):
    """A `FixedOutcome` that is a function of contexts, or the same for all rows."""

    model: FixedOutcome
    contexts: ClassVar[bool] = True

    def terms(self, piece: Piece, policy: Policy) -> tuple[Floats, Floats]:
        logged, value = np.empty(len(piece)), np.empty(len(piece))
        for part in chunks(len(piece), piece.n_actions):
            batch = piece.batch(part)
            rows = batch if piece.numbers is None else replace(batch, rows=row_numbers(piece.numbers, part))
            q = self.model.predict(rows)
            logged[part] = q[np.arange(len(q)), rows.actions]
            value[part] = np.einsum("ij,ij->i", probabilities(policy, batch), q)
        return logged, value


@final
@dataclass(frozen=True, eq=False)
class Folded(Predictions):
    """Ridge models, one for each fold, trained on the other folds; one model alone was trained on all rows.

    balancing: by the number of a target, what makes a residual the influence of a training row (`Choice.balancing`).
    """

    models: tuple[AdditiveOutcome | InteractingOutcome, ...]
    seed: int
    balancing: Mapping[int, FittedOutcome] = field(default_factory=dict)
    contexts: ClassVar[bool] = True

    @property
    def cross_fitted(self) -> bool:  # type: ignore[override]
        return len(self.models) > 1

    @property
    def interacting(self) -> bool:
        """Whether slopes differ between actions."""
        return any(isinstance(model, InteractingOutcome) for model in self.models)

    def balance(self, piece: Piece, target: int) -> Floats:
        """(n,) by which a row's residual counts in the mean prediction under a target."""
        return self.balancing[target].logged(piece.batch())

    def terms(self, piece: Piece, policy: Policy) -> tuple[Floats, Floats]:
        if self.interacting:
            return by_fold(self.models, piece.folds(len(self.models), self.seed), piece, policy)
        return terms_of_all([self], piece, policy, starts_of([self], piece))[0]

    def like(self, other: Predictions) -> bool:
        """Whether both are additive models of the same folds, whose terms can be computed together."""
        same = isinstance(other, Folded) and (len(other.models), other.seed) == (len(self.models), self.seed)
        return same and isinstance(other, Folded) and not self.interacting and not other.interacting


@final
@dataclass(frozen=True, eq=False)
class Modelled(Predictions):
    """Models of any kind, one for each fold, trained on rows of a sample that are in the other folds; or one alone."""

    models: tuple[FittedOutcome, ...]
    seed: int
    trained: bool
    contexts: ClassVar[bool] = True

    @property
    def cross_fitted(self) -> bool | None:  # type: ignore[override]
        return len(self.models) > 1 if self.trained else None

    def terms(self, piece: Piece, policy: Policy) -> tuple[Floats, Floats]:
        return by_fold(self.models, piece.folds(len(self.models), self.seed), piece, policy)


def by_fold(models: Sequence[FittedOutcome], fold: Ints, piece: Piece, policy: Policy) -> tuple[Floats, Floats]:
    """The two terms (n,), each row's by the model of its fold (n,)."""
    logged, value, whole = np.empty(len(piece)), np.empty(len(piece)), piece.batch()
    for number, model in enumerate(models):
        rows = np.flatnonzero(fold == number)
        for part in chunks(len(rows), FEW):
            batch = whole.some(rows[part])
            logged[rows[part]], value[rows[part]] = model.logged(batch), model.expected(batch, policy)
    return logged, value


@final
@dataclass(frozen=True, eq=False)
class Starts:
    """Of additive models of m metrics in f folds, each row's by the model of its fold: start (m, n), what they predict
    but for the effect of an action; logged (m, n), with that of the logged one. effects: (k, m f). own: (m, n) columns
    of the effects."""

    start: Floats
    logged: Floats
    effects: Floats
    own: Ints


def starts_of(several: Sequence[Predictions], piece: Piece) -> Starts | None:
    """What the terms of several metrics share whatever the policy; None where they are not computed together."""
    first = several[0]
    if not isinstance(first, Folded) or not all(first.like(other) for other in several):
        return None
    models = [model for each in several if isinstance(each, Folded) for model in each.models]
    additive = [model for model in models if isinstance(model, AdditiveOutcome)]
    effects = np.stack([model.effect for model in additive], axis=1)
    slopes = np.stack([model.slope for model in additive], axis=1)
    folds = len(first.models)
    own = piece.folds(folds, first.seed) + np.arange(len(several))[:, None] * folds
    start = np.array([model.constant for model in additive])[own]
    for part in chunks(len(piece), 3 * len(additive)) if slopes.size else ():
        start[:, part] += (piece.contexts[part] @ slopes)[np.arange(part.stop - part.start), own[:, part]]
    return Starts(start, start + effects[piece.actions, own], effects, own)


def terms_of_all(
    several: Sequence[Predictions], piece: Piece, policy: Policy, starts: Starts | None
) -> list[tuple[Floats, Floats]]:
    """The terms of the predictions of several metrics. starts: theirs."""
    if starts is None:
        return [each.terms(piece, policy) for each in several]
    mean = starts.start + expected(policy, piece, starts.effects, starts.own)
    return list(zip(starts.logged, mean, strict=True))


def expected(policy: Policy, piece: Piece, effects: Floats, own: Ints) -> Floats:
    """(m, n) sums over a of pi(a|x_i) effects[a, own_mi], for effects (k, f), from the actions that carry mass."""
    fixed, n = fixed_on(policy, piece), len(piece)
    if fixed is not None:
        return np.asarray((fixed @ effects)[own])
    listed = support(policy, piece.batch())
    sums, rows = np.empty(own.shape), np.arange(n)
    if listed is None:
        for part in chunks(n, max(piece.n_actions, effects.shape[1])):
            of_all = probabilities(policy, piece.batch(part)) @ effects
            sums[:, part] = of_all[np.arange(len(of_all)), own[:, part]]
        return sums
    excess, named = listed.excess(), np.maximum(listed.actions, 0)
    for part in chunks(n, max(1, named.shape[1]) * len(own)):
        sums[:, part] = np.einsum("ij,mij->mi", excess[part], effects[named[part], own[:, part, None]])
    if not listed.rest.any():
        return sums
    if listed.eligible is None:
        return np.asarray(sums + listed.rest * effects.sum(axis=0)[own])
    return np.asarray(sums + listed.rest_sums(effects)[rows, own])


def _column(name: str, piece: Piece) -> Floats:
    assert piece.source is not None
    values, flaws = numbers_of(name, piece.source)
    _refuse(flaws, piece)
    return values if piece.rows is None else values[piece.rows]


def _refuse(flaws: list[Any], piece: Piece) -> None:
    assert piece.source is not None
    if flaws:
        raise InputError(f"predictions on {piece.source.name}: {told(flaws[0], piece.source)}. Correct them.")


def predictions_of(text: str, source: Source, actions: Actions) -> Predictions:
    """'LOGGED+TARGET' is a pair of columns of numbers; anything else the predictions for all actions."""
    names = columns_of(source, text, "predictions")
    if "*" not in text and len(names) == 2:
        return Pair(*names)
    if "*" in text and "+" not in text:
        return All(tuple(by_suffix(text, names, actions, f"predictions {text!r}")))
    said_order(f"predictions {text!r}", actions, ())
    return All(tuple(names))


def predictable(model: FixedOutcome, *, in_memory: bool) -> Fixed:
    """Predictions that are given; those that are aligned with the rows of a log need one in memory."""
    if not in_memory and not callable(model.q) and np.asarray(model.q).ndim == 2:
        raise InputError(
            f"{model!r} is aligned with the rows of a log in memory. For a scanned log, write the predictions into "
            "columns and name them: scan(..., predictions='Q_LOGGED+Q_TARGET')."
        )
    return Fixed(model)
