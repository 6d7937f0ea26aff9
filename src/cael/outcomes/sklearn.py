"""Outcome models from scikit-learn: logistic regression, gradient boosting, and any regressor or classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError, LogError, choose, refuse_rows
from cael.log.batch import Batch, chunks
from cael.log.logged import LoggedData
from cael.outcomes.linear import AdditiveOutcome
from cael.outcomes.normal_equations import spread
from cael.outcomes.outcome_model import ACTION_INPUTS, FittedOutcome, OutcomeModel, action_inputs

PAIR_BYTES = 32 * 2**20
"""Pairs (row, action) are predicted in blocks of this size."""


@final
@dataclass(frozen=True)
class Logistic(OutcomeModel):
    """P(r = 1 | x, a) = sigmoid(c + beta'x + gamma'phi(a) + delta_a), for rewards that are 0 or 1.

    C: inverse strength of the penalty (scikit-learn's). actions: see `Ridge`.

    >>> Logistic(C=0.5)
    Logistic(C=0.5, actions='auto')
    """

    weighs: ClassVar[bool] = True
    C: float = 1.0
    actions: str = "auto"

    def __post_init__(self) -> None:
        choose("actions", self.actions, ACTION_INPUTS)
        if not (np.isfinite(self.C) and self.C > 0):
            raise InputError(f"C must be a positive number; got {self.C!r}.")

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        from scipy import sparse
        from sklearn.linear_model import LogisticRegression

        onehot, features = action_inputs(self.actions, log, self)
        reward = _binary(log, "Logistic")
        mean, scale = log.contexts.mean(axis=0), _scale(log.contexts)
        table = _action_table(log, onehot, features)
        x = sparse.csr_matrix((log.contexts - mean) / scale)
        design = sparse.hstack([x, table[log.actions]], format="csr")
        if reward.min() == reward.max():
            nothing = AdditiveOutcome(_logit_of_constant(reward), np.zeros(len(mean)), np.zeros(log.n_actions))
            return LogitOutcome(nothing)
        model = LogisticRegression(C=self.C, max_iter=2000).fit(design, reward, log.counted)
        weights, d = model.coef_[0], len(mean)
        slope = weights[:d] / scale
        effect = np.asarray(table @ weights[d:]).ravel()
        return LogitOutcome(AdditiveOutcome(float(model.intercept_[0] - mean @ slope), slope, effect))


def _logit_of_constant(reward: Floats) -> float:
    """A log with no variation: the smoothed rate (successes + 1/2) / (n + 1)."""
    rate = (reward.sum() + 0.5) / (len(reward) + 1)
    return float(np.log(rate / (1 - rate)))


@final
@dataclass(frozen=True)
class LogitOutcome(FittedOutcome):
    """q(x, a) = sigmoid of an additive function."""

    logit: AdditiveOutcome

    def predict(self, batch: Batch) -> Floats:
        return _sigmoid(self.logit.predict(batch))

    def at(self, batch: Batch, actions: Ints) -> Floats:
        return _sigmoid(self.logit.at(batch, actions))


def _sigmoid(logits: Floats) -> Floats:
    from scipy.special import expit

    return expit(logits)


@final
@dataclass(frozen=True)
class Boosting(OutcomeModel):
    """Histogram gradient boosting on (x, a): regression, or classification where the rewards are 0 and 1.

    The action enters as its features, where the log has them, and as one category, where there are at most 255
    actions; with more actions and no features there is nothing to split on, and that is an error.

    max_iter, learning_rate, max_leaf_nodes, min_samples_leaf: of scikit-learn's models.

    >>> Boosting(max_iter=50).max_iter
    50
    """

    max_iter: int = 100
    learning_rate: float = 0.1
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 20
    weighs: ClassVar[bool] = True

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        category = log.n_actions <= 255
        if not category and log.action_features is None:
            raise InputError(
                f"Boosting: {log.n_actions} actions are too many for one category (255), and the log has no "
                "action_features. Give features, or use Ridge."
            )
        inputs = PairInputs("category" if category else "none", log.action_features is not None)
        binary = set(np.unique(log.rewards)) == {0.0, 1.0}
        kind: Any = HistGradientBoostingClassifier if binary else HistGradientBoostingRegressor
        model = kind(
            max_iter=self.max_iter, learning_rate=self.learning_rate, max_leaf_nodes=self.max_leaf_nodes,
            min_samples_leaf=self.min_samples_leaf, random_state=seed, early_stopping=False,
            categorical_features=[log.contexts.shape[1]] if category else None,
        )  # fmt: skip
        return PairOutcome(_train(model, inputs, log), inputs)


@final
@dataclass(frozen=True, eq=False)
class SklearnOutcome(OutcomeModel):
    """Any scikit-learn regressor, or classifier of rewards 0 and 1, on context plus one-hot and/or action features.

    The model is cloned before it is trained. actions: see `Ridge`.

    >>> from sklearn.tree import DecisionTreeRegressor
    >>> SklearnOutcome(DecisionTreeRegressor(max_depth=3)).actions
    'auto'
    """

    model: Any
    actions: str = "auto"

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        from sklearn.utils.validation import has_fit_parameter

        return bool(has_fit_parameter(self.model, "sample_weight"))

    def __post_init__(self) -> None:
        choose("actions", self.actions, ACTION_INPUTS)
        if not (hasattr(self.model, "fit") and hasattr(self.model, "predict")):
            raise InputError(f"SklearnOutcome needs a model with fit and predict; got {type(self.model)}.")

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        from sklearn.base import clone

        onehot, features = action_inputs(self.actions, log, self)
        inputs = PairInputs("onehot" if onehot else "none", features)
        model = clone(self.model)
        if "random_state" in model.get_params(deep=False) and model.get_params()["random_state"] is None:
            model.set_params(random_state=seed)
        return PairOutcome(_train(model, inputs, log), inputs)


@final
@dataclass(frozen=True)
class PairInputs:
    """How a pair (x, a) becomes a row of inputs. identity: "category", "onehot" or "none"."""

    identity: str
    features: bool

    def rows(self, contexts: Floats, actions: Ints, n_actions: int, action_features: Floats | None) -> Floats:
        parts: list[Array] = [contexts]
        if self.identity == "category":
            parts.append(actions[:, None].astype(np.float64))
        if self.identity == "onehot":
            table = np.zeros((len(actions), n_actions))
            table[np.arange(len(actions)), actions] = 1.0
            parts.append(table)
        if self.features and action_features is not None:
            parts.append(action_features[actions])
        return np.hstack(parts)


@final
@dataclass(frozen=True)
class PairOutcome(FittedOutcome):
    """A model that predicts one (row, action) pair at a time; only pairs that carry mass are asked for."""

    model: Any
    inputs: PairInputs

    def _pairs(self, batch: Batch, row: Ints, action: Ints) -> Floats:
        def inputs(block: slice) -> Floats:
            contexts = batch.contexts[row[block]]
            return self.inputs.rows(contexts, action[block], batch.n_actions, batch.action_features)

        blocks = chunks(len(row), inputs(slice(0, 1)).shape[1], PAIR_BYTES)
        return np.concatenate([np.empty(0), *(_expected(self.model, inputs(block)) for block in blocks)])

    def predict(self, batch: Batch) -> Floats:
        row, action = np.divmod(np.arange(len(batch) * batch.n_actions), batch.n_actions)
        return self._pairs(batch, row, action).reshape(len(batch), batch.n_actions)

    def at(self, batch: Batch, actions: Ints) -> Floats:
        row = np.repeat(np.arange(len(batch)), actions.shape[1])
        return self._pairs(batch, row, np.maximum(actions, 0).ravel()).reshape(actions.shape)

    def value(self, batch: Batch, p: Floats) -> Floats:
        row, action = np.nonzero(p)
        weighted = p[row, action] * self._pairs(batch, row, action)
        return np.bincount(row, weights=weighted, minlength=len(batch)).astype(np.float64)


def _expected(model: Any, x: Floats) -> Floats:
    """The expected reward of each row of inputs; a classifier's is its probability of class 1."""
    if hasattr(model, "predict_proba"):
        classes = np.asarray(model.classes_, dtype=np.float64)
        return np.asarray(model.predict_proba(x)) @ classes
    return np.asarray(model.predict(x), dtype=np.float64)


def _train(model: Any, inputs: PairInputs, log: LoggedData) -> Any:
    x = inputs.rows(log.contexts, log.actions, log.n_actions, log.action_features)
    classifier = hasattr(model, "predict_proba")
    reward: Array = _binary(log, type(model).__name__) if classifier else log.rewards
    if classifier and reward.min() == reward.max():
        raise LogError(
            f"{type(model).__name__}: all rewards of a training fold are {reward[0]:g}; use Ridge or fewer folds."
        )
    return model.fit(x, reward) if log.counted is None else model.fit(x, reward, sample_weight=log.counted)


def _binary(log: LoggedData, name: str) -> Floats:
    bad = ~np.isin(log.rewards, (0.0, 1.0))
    refuse_rows(bad, log.rewards, f"{name} needs rewards that are 0 or 1", "Use Ridge or Boosting.", error=LogError)
    return log.rewards


def _scale(x: Floats) -> Floats:
    return spread(x.var(axis=0), x.mean(axis=0))


def _action_table(log: LoggedData, onehot: bool, features: bool) -> Any:
    """The (k, .) inputs of the actions as a sparse matrix: identity and/or standardised features."""
    from scipy import sparse

    parts = []
    if onehot:
        parts.append(sparse.identity(log.n_actions, format="csr"))
    if features and log.action_features is not None:
        phi = log.action_features
        parts.append(sparse.csr_matrix((phi - phi.mean(axis=0)) / _scale(phi)))
    return sparse.hstack(parts, format="csr")
