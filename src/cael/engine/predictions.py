"""Predictions of the reward in a stream: columns of the log, functions of contexts, or Ridge by a pass of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError
from cael.io.encode import Actions, columns_of, matrix, told
from cael.io.reading import Task
from cael.io.sources import Source
from cael.log.keys import folds_of, places_of
from cael.log.logged import FEW, Batch, LoggedData
from cael.log.pieces import Door, Piece, numbers_of
from cael.log.targets import chunks
from cael.outcomes.outcome_model import FittedOutcome, FixedOutcome
from cael.outcomes.ridge import FOLDS, AdditiveOutcome, Ridge, Sums
from cael.policies.policy import Policy, probabilities, support


class Predictions(ABC):
    """Where q(x, a) comes from. columns: of the log. contexts: whether it needs them. cross_fitted: None: nothing was
    trained. whole: whether it needs the target's probabilities of all actions."""

    columns: tuple[str, ...] = ()
    contexts: ClassVar[bool] = False
    cross_fitted: bool | None = None
    whole: ClassVar[bool] = True

    @abstractmethod
    def terms(self, piece: Piece, policy: Policy, actions: Actions, file: int) -> tuple[Floats, Floats]:
        """(q(x_i, a_i), sum over a of pi(a|x_i) q(x_i, a)), each (n,)."""


@final
@dataclass(frozen=True, eq=False)
class Pair(Predictions):
    """Two columns: the prediction for the logged action, and that for the target's actions, averaged over them."""

    logged: str
    target: str
    whole: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.logged, self.target)

    def terms(self, piece: Piece, policy: Policy, actions: Actions, file: int) -> tuple[Floats, Floats]:
        return _column(self.logged, piece), _column(self.target, piece)


@final
@dataclass(frozen=True, eq=False)
class All(Predictions):
    """The predictions for all actions: a column of lists, or one column each."""

    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.names

    def terms(self, piece: Piece, policy: Policy, actions: Actions, file: int) -> tuple[Floats, Floats]:
        table, _, found = matrix(piece.source, self.names, piece.read, categories=False)
        _refuse(found, piece)
        if table.shape[1] != len(actions):
            raise InputError(
                f"predictions: {', '.join(self.names[:3])} give {table.shape[1]} numbers a row, but there are "
                f"{len(actions)} actions."
            )
        q = table if piece.rows is None else table[piece.rows]
        value, k = np.empty(len(piece)), len(actions)
        for part in chunks(len(piece), k):
            value[part] = np.einsum("ij,ij->i", probabilities(policy, piece.batch(part, k, actions.features)), q[part])
        return q[np.arange(len(piece)), piece.actions], value


@final
@dataclass(frozen=True, eq=False)
class Fixed(Predictions):
    """A `FixedOutcome` that is a function of contexts, or the same for all rows."""

    model: FixedOutcome
    contexts: ClassVar[bool] = True

    def terms(self, piece: Piece, policy: Policy, actions: Actions, file: int) -> tuple[Floats, Floats]:
        logged, value, k = np.empty(len(piece)), np.empty(len(piece)), len(actions)
        for part in chunks(len(piece), k):
            batch = piece.batch(part, k, actions.features)
            logged[part] = self.model.logged(batch)
            value[part] = self.model.value(batch, probabilities(policy, batch))
        return logged, value


@final
@dataclass(frozen=True, eq=False)
class Folded(Predictions):
    """Ridge models, one for each fold, trained on the other folds; one model alone was trained on all rows. parts: the
    parts that the rows were summed in, one or several for each fold."""

    models: tuple[AdditiveOutcome, ...]
    seed: int
    parts: int
    contexts: ClassVar[bool] = True

    @property
    def cross_fitted(self) -> bool:  # type: ignore[override]
        return len(self.models) > 1

    def terms(self, piece: Piece, policy: Policy, actions: Actions, file: int) -> tuple[Floats, Floats]:
        fold = folds_of(piece, file, self.parts, self.seed) // (self.parts // len(self.models))
        rows = np.arange(len(piece))
        effects = np.stack([each.effect for each in self.models], axis=1)
        slopes = np.stack([each.slope for each in self.models], axis=1)
        start = np.array([each.constant for each in self.models])[fold]
        if slopes.size:
            start = start + np.einsum("ij,ij->i", piece.contexts, slopes.T[fold])
        mean = expected(policy, piece, effects, actions)[rows, fold]
        return start + effects[piece.actions, fold], start + mean


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

    def terms(self, piece: Piece, policy: Policy, actions: Actions, file: int) -> tuple[Floats, Floats]:
        logged, value = np.empty(len(piece)), np.empty(len(piece))
        whole = placed(piece, actions, file)
        fold = folds_of(piece, file, len(self.models), self.seed)
        for number, model in enumerate(self.models):
            rows = np.flatnonzero(fold == number)
            for part in chunks(len(rows), FEW):
                batch = rows_of(whole, rows[part])
                logged[rows[part]], value[rows[part]] = model.logged(batch), model.expected(batch, policy)
        return logged, value


def placed(piece: Piece, actions: Actions, file: int) -> Batch:
    """All rows, each with a number that is its own in all files."""
    batch = piece.batch(slice(0, len(piece)), len(actions), actions.features)
    return replace(batch, places=(file << 44) + places_of(piece))


def rows_of(batch: Batch, rows: Ints) -> Batch:
    """Some rows of a batch that counts from 0."""
    return replace(
        batch, rows=rows, contexts=batch.contexts[rows], actions=batch.actions[rows], rewards=batch.rewards[rows],
        propensities=None if batch.propensities is None else batch.propensities[rows],
        places=None if batch.places is None else batch.places[rows],
    )  # fmt: skip


def expected(policy: Policy, piece: Piece, effects: Floats, actions: Actions) -> Floats:
    """sum over a of pi(a|x_i) effects[a] for effects (k, f), shape (n, f), from the actions that carry mass."""
    k, count = len(actions), effects.shape[1]
    if policy.fixed is not None:
        return np.broadcast_to(policy.fixed @ effects, (len(piece), count))
    batch = piece.batch(slice(0, len(piece)), k, actions.features)
    listed = support(policy, batch)
    found = np.empty((len(piece), count))
    if listed is None:
        for part in chunks(len(piece), k):
            found[part] = np.einsum("ij,jf->if", probabilities(policy, piece.batch(part, k, actions.features)), effects)
        return found
    excess, named = listed.excess(), np.maximum(listed.actions, 0)
    for part in chunks(len(piece), max(1, named.shape[1]) * count):
        found[part] = np.einsum("ij,ijf->if", excess[part], effects[named[part]])
    return found + listed.rest[:, None] * effects.sum(axis=0)


def _column(name: str, piece: Piece) -> Floats:
    values, found = numbers_of(name, piece.source)
    _refuse(found, piece)
    return values if piece.rows is None else values[piece.rows]


def _refuse(found: list[Any], piece: Piece) -> None:
    for flaw in found:
        raise InputError(f"predictions on {piece.source.name}: {told(flaw, piece.source)}. Correct them.")


def predictions_of(given: str, source: Source) -> Predictions:
    """'LOGGED+TARGET' is a pair of columns of numbers; anything else the predictions for all actions."""
    names = columns_of(source, given, "predictions")
    if "*" not in given and len(names) == 2:
        return Pair(*names)
    return All(tuple(names))


def predictable(model: FixedOutcome) -> Fixed:
    """Refuses predictions that are aligned with the rows of a log in memory."""
    if not callable(model.q) and np.asarray(model.q).ndim == 2:
        raise InputError(
            f"{model!r} is aligned with the rows of a log in memory. For a scanned log, write the predictions into "
            "columns and name them: scan(..., predictions='Q_LOGGED+Q_TARGET')."
        )
    return Fixed(model)


@final
@dataclass(frozen=True, eq=False)
class RidgeWork:
    """The pass that trains Ridge: sums by fold and action, around the shifts."""

    name: str
    door: Door
    columns: tuple[str, ...]
    types: dict[str, Any]
    size: int
    parts: int
    seed: int
    x_shift: Floats
    r_shift: float


@final
@dataclass(frozen=True, eq=False)
class RidgeSums:
    """The sums of each fold."""

    parts: tuple[Sums, ...]

    def merge(self, other: RidgeSums) -> RidgeSums:
        return RidgeSums(tuple(a.plus(b) for a, b in zip(self.parts, other.parts, strict=True)))


def ridge_run(work: RidgeWork, task: Task) -> RidgeSums:
    """The sums of one task."""
    from cael.engine.work import pieces

    k, d, f = len(work.door.actions), len(work.x_shift), work.parts
    counts, r_sum, x_sum = np.zeros(f * k), np.zeros(f * k), np.zeros((f * k, d))
    xx, xr, rr = np.zeros((f, d, d)), np.zeros((f, d)), np.zeros(f)
    for _, piece in pieces(work.name, task, work.door, work.columns, work.size, work.types):
        fold = folds_of(piece, task.number, f, work.seed)
        x, r = piece.contexts - work.x_shift, piece.rewards - work.r_shift
        cell = fold * k + piece.actions
        counts += np.bincount(cell, minlength=f * k)
        r_sum += np.bincount(cell, weights=r, minlength=f * k)
        rr += np.bincount(fold, weights=r * r, minlength=f)
        for column in range(d):
            x_sum[:, column] += np.bincount(cell, weights=x[:, column], minlength=f * k)
        for number in range(f):
            mine = slice(None) if f == 1 else fold == number
            xx[number] += x[mine].T @ x[mine]
            xr[number] += x[mine].T @ r[mine]
    return RidgeSums(
        tuple(
            Sums(counts[s], x_sum[s], r_sum[s], xx[at], xr[at], float(rr[at]), work.x_shift, work.r_shift)
            for at in range(f)
            for s in [slice(at * k, (at + 1) * k)]
        )
    )


def parts_of(model: Ridge, folds: int) -> int:
    """In how many parts the rows are summed: the folds, and more where penalties are chosen on what is left of them."""
    if not isinstance(model.alpha, str):
        return max(1, folds)
    return FOLDS if folds < 2 else 4 if folds == 2 else folds


def solved(model: Ridge, sums: RidgeSums, folds: int, log: LoggedData, seed: int) -> Folded:
    """The models of all folds. log: any log with the actions and the contexts' width of this one."""
    parts = list(sums.parts)
    each = len(parts) // max(1, folds) if folds >= 2 else 0
    without = [frozenset(range(at * each, (at + 1) * each)) for at in range(folds)] if each else [frozenset()]
    return Folded(tuple(model.solve_from(log, parts, without)), seed, len(parts))


def used(outcomes: Sequence[Predictions]) -> set[str]:
    """The columns that these predictions read."""
    return {column for each in outcomes for column in each.columns}
