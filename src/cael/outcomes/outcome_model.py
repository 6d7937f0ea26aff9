"""The protocol of outcome models, injected predictions, and cross-fitting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints, all_finite, frozen, settle
from cael.errors import InputError, NeedsError
from cael.log.batch import FEW, Batch, chunks
from cael.log.logged import LoggedData
from cael.policies.gate import last_row
from cael.policies.labelled import labelled, shown
from cael.policies.policy import Policy, probabilities, support

ACTION_INPUTS = ("auto", "onehot", "features", "both")


class FittedOutcome(ABC):
    """A trained model. Only `predict` must be there; a model that can answer the others for less says how.

    `average` is worth overriding where it takes no visit to every action; then set `averages = True`. It is over the
    eligible actions (`batch.eligible`).
    """

    averages: ClassVar[bool] = False

    @abstractmethod
    def predict(self, batch: Batch) -> Floats:
        """q(x_i, a) for all actions, shape (b, k)."""

    def logged(self, batch: Batch) -> Floats:
        """q(x_i, a_i), shape (b,)."""
        return self.at(batch, batch.actions[:, None])[:, 0]

    def at(self, batch: Batch, actions: Ints) -> Floats:
        """q(x_i, a) of some actions (b, m), shape (b, m); the prediction at an entry of -1 is not used."""
        return batch.in_parts(
            lambda part, rows: np.take_along_axis(self.predict(part), np.maximum(actions[rows], 0), axis=1)
        )

    def average(self, batch: Batch) -> Floats:
        """The mean of q(x_i, a) over all eligible actions, shape (b,)."""
        return batch.in_parts(lambda part, rows: _mean(self.predict(part), part))

    def value(self, batch: Batch, p: Floats) -> Floats:
        """sum over a of p(a|x_i) q(x_i, a) for probabilities p (b, k), shape (b,)."""
        return np.einsum("ij,ij->i", p, self.predict(batch))

    def expected(self, batch: Batch, policy: Policy) -> Floats:
        """q(x_i, pi) = sum over a of pi(a|x_i) q(x_i, a), shape (b,), from the actions that carry mass."""
        listed = support(policy, batch)
        if listed is None or (listed.rest.any() and not self.averages):
            return batch.in_parts(lambda part, rows: self.value(part, probabilities(policy, part)))
        value = np.einsum("ij,ij->i", listed.excess(), self.at(batch, listed.actions))
        if listed.rest.any():
            count = batch.n_actions if batch.eligible is None else batch.eligible.sizes
            value += listed.rest * count * self.average(batch)
        return value


def _mean(q: Floats, batch: Batch) -> Floats:
    """The mean (b,) of q (b, k) over the eligible actions."""
    if batch.eligible is None:
        return q.mean(axis=1)
    return np.where(batch.eligible.mask(), q, 0.0).sum(axis=1) / batch.eligible.sizes


class OutcomeModel(ABC):
    """Settings of a model; `fit` trains one and leaves the settings as they were. trains: whether it learns from the
    log. weighs: whether it then counts each row by its sampling weight (`log.sampling_weights`)."""

    trains: ClassVar[bool] = True
    weighs: ClassVar[bool] = False

    @abstractmethod
    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        """Train on all rows of the log."""

    def fit_without(self, log: LoggedData, held_out: list[Array], seed: int) -> list[FittedOutcome]:
        """One model for each array of row numbers, trained on all the other rows."""
        fitted = []
        for rows in held_out:
            keep = np.ones(len(log), dtype=bool)
            keep[rows] = False
            fitted.append(self.fit(log.take(keep), seed))
        return fitted


@final
@dataclass(frozen=True, eq=False, repr=False)
class FixedOutcome(OutcomeModel, FittedOutcome):
    """Predictions made elsewhere: (k,), row-aligned (n, k), or a function of contexts (b, d) -> (b, k).

    They count as not trained on this log. If they were, the interval is too narrow, and nothing here can see it.

    q: the predictions.

    >>> FixedOutcome([0.1, 0.7])
    FixedOutcome((2,))
    """

    trains: ClassVar[bool] = False
    q: ArrayLike | Callable[[Floats], ArrayLike]

    def __post_init__(self) -> None:
        if callable(self.q):
            return
        array, labels = labelled(self.q)
        if labels is not None and not labels.in_order:
            raise InputError(
                f"FixedOutcome: a frame of predictions has the columns 0 .. {array.shape[-1] - 1} and rows labelled 0, "
                f"1, 2, ...; got the columns {shown(labels.actions or ())}. Put them into the order of the log: "
                "frame.loc[index of the log, list(log.action_labels)].to_numpy()."
            )
        q = np.asarray(array, dtype=np.float64)
        if q.ndim == 3 and q.shape[2] == 1:
            q = q[:, :, 0]
        if q.ndim not in (1, 2) or q.size == 0 or not all_finite(q):
            raise InputError(f"FixedOutcome needs finite predictions of shape (k,) or (n, k); got {q.shape}.")
        settle(self, q=frozen(q, copy=q.ndim == 1))

    def __repr__(self) -> str:
        return f"FixedOutcome({getattr(self.q, 'shape', None) or getattr(self.q, '__name__', 'function')})"

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        return self

    def predict(self, batch: Batch) -> Floats:
        expected = (len(batch), batch.n_actions)
        if callable(self.q):
            q = np.asarray(self.q(batch.contexts), dtype=np.float64)
            if q.shape != expected:
                raise InputError(f"FixedOutcome: expected predictions of shape {expected}; got {q.shape}.")
            return q
        q = np.asarray(self.q)
        if q.shape[-1] != batch.n_actions:
            raise InputError(f"FixedOutcome has {q.shape[-1]} actions, but the log has {batch.n_actions}.")
        if q.ndim == 1:
            return np.broadcast_to(q, expected)
        if last_row(batch) >= len(q):
            raise InputError(f"FixedOutcome has {len(q)} rows, fewer than the log it is used with.")
        return q[batch.rows]


@final
@dataclass(frozen=True)
class OutcomeTerms:
    """q_logged: (n,) q(x_i, a_i). q_target: (n,) sum_a pi(a|x_i) q(x_i, a). cross_fitted: None: nothing trained."""

    q_logged: Floats
    q_target: Floats
    cross_fitted: bool | None


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """An outcome model trained on a log, and its predictions for the log's own rows.

    parts: (rows, model) pairs, each model for rows that it was not trained on, or one pair for all rows (None).
    cross_fitted: see `OutcomeTerms`.
    """

    log: LoggedData
    parts: tuple[tuple[Array | None, FittedOutcome], ...]
    cross_fitted: bool | None

    def columns(self, *policies: Policy) -> list[Floats]:
        """q(x_i, a_i), and for each policy sum over a of policy(a|x_i) q(x_i, a), each (n,), in one pass."""
        columns = [np.empty(len(self.log)) for _ in range(1 + len(policies))]
        for rows, fitted in self.parts:
            for part in chunks(len(self.log if rows is None else rows), FEW):
                where = part if rows is None else rows[part]
                batch = self.log.whole.part(where)
                columns[0][where] = fitted.logged(batch)
                for column, policy in zip(columns[1:], policies, strict=True):
                    column[where] = fitted.expected(batch, policy)
        return columns


def train(log: LoggedData, model: OutcomeModel, folds: int, seed: int) -> Trained:
    """Train a model on the log, cross-fitted where something is trained and folds >= 2."""
    refuse_unweighing(model, log)
    if not model.trains or folds < 2:
        return Trained(log, ((None, model.fit(log, seed)),), cross_fitted=False if model.trains else None)
    held_out = list(log.folds(folds, seed))
    parts = tuple(zip(held_out, model.fit_without(log, held_out, seed), strict=True))
    return Trained(log, parts, cross_fitted=True)


def refuse_unweighing(model: OutcomeModel, log: LoggedData) -> None:
    """An error where a model would count rows alike that do not count alike."""
    if log.sampling_weights is not None and model.trains and not model.weighs:
        raise NeedsError(
            f"it needs rows that count alike to train {model!r}, and this log has sampling weights. Use Ridge, or a "
            "scikit-learn model whose fit takes sample_weight."
        )


def outcome_terms(log: LoggedData, policy: Policy, model: OutcomeModel, folds: int, seed: int) -> OutcomeTerms:
    """The two columns that every estimator with an outcome model needs, cross-fitted where something is trained."""
    return terms_of(train(log, model, folds, seed), policy)


def terms_of(trained: Trained, policy: Policy) -> OutcomeTerms:
    """The two columns, by a model that is trained already."""
    logged, target = trained.columns(policy)
    return OutcomeTerms(logged, target, trained.cross_fitted)


def action_inputs(setting: str, log: LoggedData, model: Any) -> tuple[bool, bool]:
    """(one-hot, features): what the model is told about the action; "auto" is one-hot, and features where known."""
    known = log.action_features is not None
    if setting in ("features", "both") and not known:
        raise InputError(f"{model!r}: actions={setting!r} needs action_features in the log, and it has none.")
    return setting in ("onehot", "both", "auto"), setting in ("features", "both") or (setting == "auto" and known)
