"""mu(a | x, e) by multinomial logistic regression, in blocks of rows, with the logging policy as an optional offset.

The penalised optimum is scikit-learn's (LogisticRegression, L2, intercept free). It is written here because
scikit-learn has no offset and holds several n x k arrays; this holds one block of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from cael._types import Floats, Ints
from cael.errors import InputError
from cael.log import BATCH_BYTES, Batch, LoggedData
from cael.policy import probabilities


@final
@dataclass(frozen=True)
class SoftmaxPosterior:
    """P(a | features) = softmax over the classes of features @ weights + intercept (+ log mu(a|x) with an offset).

    classes: (c,) the actions that have a logit; weights: (p, c); intercept: (c,). converged: of the solver.
    """

    classes: Ints
    weights: Floats
    intercept: Floats
    offset: bool
    converged: bool

    def probabilities(self, features: Floats, logging: Floats | None) -> Floats:
        """(b, c) posterior probabilities of the classes; logging: (b, c) probabilities, with an offset."""
        return _softmax(features @ self.weights + self.intercept, logging if self.offset else None)


def fit_softmax(log: LoggedData, features: Floats, *, C: float, offset: bool, max_iter: int) -> SoftmaxPosterior:
    """The L2-penalised maximum-likelihood fit of the logged actions on features (n, p).

    Minimises (1/n) sum_i -log P(a_i | features_i) + |weights|^2 / (2 C n). Without an offset the classes are the
    actions that occur, as in scikit-learn; with one they are all actions, and those that never occur follow the
    logging policy.
    """
    from scipy.optimize import minimize

    classes = np.arange(log.n_actions) if offset else np.unique(log.actions)
    n, p, c = len(log), features.shape[1], len(classes)
    if c < 2:
        raise InputError("a posterior over actions needs at least two different logged actions.")
    label = np.searchsorted(classes, log.actions)
    observed = _class_sums(features, label, c) / n

    def loss(flat: Floats) -> tuple[float, Floats]:
        table = flat.reshape(p + 1, c)
        total, expected = 0.0, np.zeros((p + 1, c))
        for part, batch in _blocks(log, c):
            f = features[part]
            prior = probabilities(log.logging, batch) if offset and log.logging is not None else None
            post = _softmax(f @ table[:p] + table[p], prior)
            total -= float(np.log(np.maximum(post[np.arange(len(f)), label[part]], 1e-300)).sum())
            expected[:p] += f.T @ post
            expected[p] += post.sum(axis=0)
        gradient = expected / n - observed
        gradient[:p] += table[:p] / (C * n)
        return total / n + float((table[:p] ** 2).sum()) / (2 * C * n), gradient.ravel()

    options = {"maxiter": max_iter, "gtol": 1e-6, "ftol": 1e-12, "maxcor": 10}
    found = minimize(loss, np.zeros((p + 1) * c), jac=True, method="L-BFGS-B", options=options)
    table = found.x.reshape(p + 1, c)
    return SoftmaxPosterior(classes, table[:p], table[p], offset, bool(found.status != 1))


def _class_sums(features: Floats, label: Ints, c: int) -> Floats:
    """Sums of [features, 1] by class, shape (p + 1, c)."""
    columns = [np.bincount(label, weights=column, minlength=c) for column in features.T]
    return np.vstack([*columns, np.bincount(label, minlength=c)])


def _blocks(log: LoggedData, width: int) -> Iterator[tuple[slice, Batch]]:
    at = 0
    for batch in log.batches(width=width, bytes_each=BATCH_BYTES // 4):
        yield slice(at, at + len(batch)), batch
        at += len(batch)


def _softmax(logits: Floats, prior: Floats | None) -> Floats:
    """Row-wise prior * exp(logits), normalised; actions with prior 0 get exactly 0. Overwrites its first argument."""
    if prior is not None:
        logits = np.where(prior > 0, logits, -np.inf)
    logits -= logits.max(axis=1, keepdims=True)
    post = np.exp(logits, out=logits)
    if prior is not None:
        post *= prior
    post /= post.sum(axis=1, keepdims=True)
    return post
