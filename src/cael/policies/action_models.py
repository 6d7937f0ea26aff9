"""Models of which action a logging policy takes in which context: families with a fit, and what is fitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import InputError
from cael.log.logged import LoggedData
from cael.policies.label_fit import Basis, basis_of
from cael.policies.policy import Uniform

MOST_BOOSTED, FEWEST_BOOSTED = 30, 400
"""Boosting grows a tree for each action and round: it is tried with at most so many actions, from so many rows on."""
FEWEST_OF_ACTION = 20
"""An action with fewer rows is no class of the boosting."""
BOOSTED_CELLS, CELLS = 4 * 10**5, 2 * 10**7
"""Each model is trained on at most so many rows times actions."""
MOST_INPUTS = 80
"""Products of contexts are tried where there are at most so many inputs with them, and a row for each coefficient."""


class ActionModel(Protocol):
    """log m(a|x), fitted."""

    def logs(self, contexts: Floats) -> Floats:
        """(b, d) contexts -> (b, k), up to a constant of each row."""

    def shifted(self, by: Floats) -> ActionModel:
        """The same plus (k,)."""


class ActionFamily(ABC):
    """How log m(a|x) is fitted to rows. cells: the most rows times actions that it is trained on."""

    cells: ClassVar[int] = CELLS

    @property
    @abstractmethod
    def label(self) -> str:
        """Its name in words."""

    @abstractmethod
    def fit(self, log: LoggedData, frequencies: Floats, seed: int) -> ActionModel:
        """Fitted to a log; actions without a row keep their frequencies (k,)."""


@final
@dataclass(frozen=True)
class LinearLogs:
    """Softmax of inputs @ weights + intercept. weights: (p, k). intercept: (k,)."""

    weights: Floats
    intercept: Floats
    basis: Basis | None = None

    def logs(self, contexts: Floats) -> Floats:
        inputs = contexts if self.basis is None else self.basis(contexts)
        logits = inputs @ self.weights + self.intercept
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logits

    def shifted(self, by: Floats) -> LinearLogs:
        return replace(self, intercept=self.intercept + by)


@final
@dataclass(frozen=True)
class LogisticActions(ActionFamily):
    """Multinomial logistic regression on standardised contexts, or on them and their products. C: inverse strength of
    the penalty (scikit-learn's)."""

    C: float = 1.0
    products: bool = False

    @property
    def label(self) -> str:
        return "logistic with products" if self.products else "logistic"

    def fit(self, log: LoggedData, frequencies: Floats, seed: int) -> LinearLogs:
        from cael.policies.posterior import fit_softmax

        basis = basis_of(log.contexts, "products") if self.products and log.contexts.shape[1] else None
        inputs = log.contexts if basis is None else basis(log.contexts)
        (_, d), k = inputs.shape, log.n_actions
        if d == 0 or len(np.unique(log.actions)) < 2:
            return LinearLogs(np.zeros((d, k)), np.log(frequencies), basis)
        mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
        scale[scale <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
        on_sets = log if log.eligible is None else log.with_logging(Uniform(k))  # only eligible actions have a logit
        offset = log.eligible is not None
        model = fit_softmax(on_sets, (inputs - mean) / scale, C=self.C, offset=offset, max_iter=200)
        weights, intercept, seen = np.zeros((d, k)), np.log(frequencies), np.unique(log.actions)
        fitted = np.searchsorted(model.classes, seen)
        # An unseen action has the mean logit of the seen ones, shifted by its log frequency relative to theirs.
        level = model.intercept[fitted].mean() - np.log(frequencies[seen]).mean()
        intercept += level
        weights[:, seen] = model.weights[:, fitted] / scale[:, None]
        intercept[seen] = model.intercept[fitted] - mean @ weights[:, seen]
        return LinearLogs(weights, intercept, basis)


@final
@dataclass(frozen=True)
class ClassifierLogs:
    """Logs of what a classifier predicts, at its classes, plus a shift (k,). seen: (c,) actions, its classes."""

    model: Any
    seen: Ints
    shift: Floats
    label: str

    def logs(self, contexts: Floats) -> Floats:
        shares = np.asarray(self.model.predict_proba(contexts), dtype=np.float64)
        if shares.shape != (len(contexts), len(self.seen)) or not np.isfinite(shares).all() or (shares < 0).any():
            raise InputError(
                f"{self.label}: predict_proba must give finite probabilities >= 0 of shape (n, {len(self.seen)}), a "
                f"column for each action with a row; got shape {shares.shape}."
            )
        logs = np.tile(self.shift, (len(contexts), 1))
        logs[:, self.seen] += np.log(np.maximum(shares, LEAST))
        return logs

    def shifted(self, by: Floats) -> ClassifierLogs:
        return replace(self, shift=self.shift + by)


LEAST = 1e-6
"""The smallest probability that a classifier is believed: trees give 0."""


@final
@dataclass(frozen=True)
class ClassifierActions(ActionFamily):
    """Any classifier of scikit-learn's kind: a copy is fitted to (contexts, actions), and predict_proba is used. It
    does not see which actions were eligible, so that its probabilities count over those that the actions have anyway.
    fewest: rows that an action must have to be one of its classes; the others keep their frequencies."""

    cells: ClassVar[int] = BOOSTED_CELLS
    model: Any
    fewest: int = 1
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or type(self.model).__name__

    def fit(self, log: LoggedData, frequencies: Floats, seed: int) -> ActionModel:
        counts, d = np.bincount(log.actions, minlength=log.n_actions), log.contexts.shape[1]
        seen = np.flatnonzero(counts >= self.fewest)
        if len(seen) < 2 or d == 0:
            return LinearLogs(np.zeros((d, log.n_actions)), np.log(frequencies))
        rows = np.flatnonzero(counts[log.actions] >= self.fewest)
        model = self._fitted(log.contexts[rows], log.actions[rows])
        classes = np.asarray(getattr(model, "classes_", seen))
        if not np.array_equal(classes, seen):
            raise InputError(f"{self.label}: classes_ must be the {len(seen)} actions of the rows; got {classes!r}.")
        shift, shares = np.log(frequencies), counts[seen] / len(rows)
        together = log.eligible is None
        shift[seen] = np.log(frequencies[seen].sum()) if together else shift[seen] - np.log(shares)
        return ClassifierLogs(model, seen, shift, self.label)

    def _fitted(self, contexts: Floats, actions: Ints) -> Any:
        model = copy_of(self.model)
        try:
            model.fit(contexts, actions)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            what = f"{self.label} could not be fitted to the contexts and actions of {len(actions):,} rows"
            raise InputError(f"{what}: {type(error).__name__}: {reason}") from error
        return model


def copy_of(model: Any) -> Any:
    """An unfitted copy, of a scikit-learn classifier or of anything that can be copied."""
    if not hasattr(model, "get_params"):
        return deepcopy(model)
    from sklearn.base import clone

    return clone(model)


def boosting(seed: int) -> ClassifierActions:
    """Histogram gradient boosting with small trees, which stops when held-out rows gain nothing."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return ClassifierActions(
        HistGradientBoostingClassifier(
            max_iter=150, learning_rate=0.1, max_leaf_nodes=8, l2_regularization=1.0, early_stopping=True,
            validation_fraction=0.15, n_iter_no_change=5, random_state=seed,
        ),
        FEWEST_OF_ACTION, "boosting",
    )  # fmt: skip


MODELS = ("auto", "logistic", "products", "boosting")
"""What estimate_logging(model=) can be called by name."""
OBJECT = "a classifier with fit and predict_proba"


def check_model(model: Any) -> None:
    """An error where this is no model of actions."""
    if isinstance(model, str):
        if model not in MODELS:
            raise InputError(f"model must be one of {', '.join(MODELS)}, or {OBJECT}; got {model!r}.")
    elif isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "predict_proba")):
        shown = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise InputError(f"model must be {OBJECT}, or one of {', '.join(MODELS)}; got {shown}.")


def families(model: Any, log: LoggedData, C: float, seed: int) -> tuple[ActionFamily, ...]:
    """What to try: one family, or those that suit the log."""
    check_model(model)
    if not isinstance(model, str):
        return (ClassifierActions(model),)
    named = {"logistic": LogisticActions(C), "products": LogisticActions(C, products=True), "boosting": boosting(seed)}
    return (named[model],) if model in named else _of(log, C, seed)


def _of(log: LoggedData, C: float, seed: int) -> tuple[ActionFamily, ...]:
    d = log.contexts.shape[1]
    tried: list[ActionFamily] = [LogisticActions(C)]
    inputs = 1 + d + d * (d + 1) // 2
    if d > 0 and inputs <= MOST_INPUTS and inputs * log.n_actions <= len(log):
        tried.append(LogisticActions(C, products=True))
    if d > 0 and log.n_actions <= MOST_BOOSTED and len(log) >= FEWEST_BOOSTED:
        tried.append(boosting(seed))
    return tuple(tried)
