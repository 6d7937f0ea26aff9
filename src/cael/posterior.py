"""mu(a | x, e) by multinomial logistic regression, in blocks of rows, with the logging policy as an optional offset.

The penalised optimum is scikit-learn's (LogisticRegression, L2, intercept free). It is written here because
scikit-learn has no offset and holds several n x k arrays; this holds one block of rows.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from cael._types import Floats, Ints
from cael.errors import InputError
from cael.log import BATCH_BYTES, Batch, LoggedData
from cael.policy import probabilities

GRADIENT_TOLERANCE = 1e-6
"""The largest component of the gradient of the mean loss at which a fit counts as converged."""
GROUPS = 8


class Features(Protocol):
    """Inputs (n, p) of the regression: an array, or anything that makes a slice of its rows when asked."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> Floats: ...


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


def fit_softmax(log: LoggedData, features: Features, *, C: float, offset: bool, max_iter: int) -> SoftmaxPosterior:
    """The L2-penalised maximum-likelihood fit of the logged actions on features (n, p).

    Minimises (1/n) sum_i -log P(a_i | features_i) + |weights|^2 / (2 C n). Without an offset the classes are the
    actions that occur, as in scikit-learn; with one they are all actions, and those that never occur follow the
    logging policy.
    """
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    classes = np.arange(log.n_actions) if offset else np.unique(log.actions)
    if len(classes) < 2:
        raise InputError("a posterior over actions needs at least two different logged actions.")
    fun = _Likelihood(log, features, np.searchsorted(classes, log.actions), len(classes), C, offset)
    options = {"maxiter": max_iter, "gtol": GRADIENT_TOLERANCE, "ftol": 1e-11, "maxcor": 10}
    with threadpool_limits(1, user_api="blas"):  # the cores work on blocks of rows; BLAS threads on top would spin
        found = minimize(fun, np.zeros(fun.shape[0] * fun.shape[1]), jac=True, method="L-BFGS-B", options=options)
    weights, intercept = fun.coefficients(found.x)
    return SoftmaxPosterior(classes, weights, intercept, offset, bool(found.status != 1))


@final
class _Likelihood:
    """The objective, over flat tables (p + 1, c) with the intercept last; reads the log block by block, on all cores.

    The solver works on centred and decorrelated features, for which L-BFGS needs a fraction of the steps; the penalty
    stays that of the weights of the given features: W = A V, and the intercept, which is free, takes up the centring.
    """

    def __init__(self, log: LoggedData, features: Features, label: Ints, c: int, C: float, offset: bool) -> None:
        self.log, self.label, self.offset, self.n = log, label, offset, len(log)
        self.shape = (features.shape[1] + 1, c)
        blocks = list(log.batches(width=c, bytes_each=BATCH_BYTES // 4))
        ends = np.cumsum([len(batch) for batch in blocks])
        parts = [(slice(end - len(batch), end), batch) for batch, end in zip(blocks, ends, strict=True)]
        # A fixed number of groups, each summed in order: the result does not depend on the number of cores.
        self.groups = [parts[g::GROUPS] for g in range(min(GROUPS, len(parts)))]
        self.raw = features
        self.mean = sum(features[part].sum(axis=0) for part, _ in parts) / self.n
        second = sum(z.T @ z for part, _ in parts for z in (self._centred(part),)) / self.n
        values, vectors = np.linalg.eigh(second)
        # For two classes scikit-learn has one logit and penalises that: half of the squares of our two.
        self.strength = (2 if c == 2 and not offset else 1) / (C * self.n)
        # The curvature at a uniform posterior, values / c + strength, becomes 1 / c, as it is for the intercept.
        self.A = vectors / np.sqrt(np.maximum(values, 0.0) + c * self.strength)
        sums = np.zeros(self.shape)
        for part, _ in parts:
            sums += _class_sums(self._centred(part), label[part], c)
        self.observed = self._white(sums) / self.n

    def _centred(self, part: slice) -> Floats:
        return self.raw[part] - self.mean

    def _white(self, sums: Floats) -> Floats:
        """Sums over rows of [centred features, 1] (p + 1, c), as sums of the decorrelated ones."""
        return np.vstack([self.A.T @ sums[:-1], sums[-1]])

    def coefficients(self, flat: Floats) -> tuple[Floats, Floats]:
        """Weights (p, c) and intercept (c,) for the features as they were given."""
        table = flat.reshape(self.shape)
        weights = self.A @ table[:-1]
        return weights, table[-1] - self.mean @ weights

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        """Loss and gradient."""
        table = flat.reshape(self.shape)
        weights = self.A @ table[:-1]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(lambda group: self._group(group, weights, table[-1]), self.groups))
        expected = np.sum([each[1] for each in found], axis=0) / self.n
        expected[:-1] += self.strength * weights
        penalty = 0.5 * self.strength * float(np.vdot(weights, weights))
        return sum(each[0] for each in found) / self.n + penalty, (self._white(expected) - self.observed).ravel()

    def _group(self, group: list[tuple[slice, Batch]], weights: Floats, intercept: Floats) -> tuple[float, Floats]:
        """Minus the log-likelihood, and the expected class sums (p + 1, c), of some blocks of rows."""
        total, expected = 0.0, np.zeros(self.shape)
        for part, batch in group:
            z = self._centred(part)
            prior = probabilities(self.log.logging, batch) if self.offset and self.log.logging is not None else None
            post = _softmax(z @ weights + intercept, prior)
            chosen = post[np.arange(len(z)), self.label[part]]
            total -= float(np.log(np.maximum(chosen, 1e-300)).sum())
            expected[:-1] += z.T @ post
            expected[-1] += post.sum(axis=0)
        return total, expected


def _class_sums(features: Floats, label: Ints, c: int) -> Floats:
    """Sums of [features, 1] by class, shape (p + 1, c)."""
    columns = [np.bincount(label, weights=column, minlength=c) for column in features.T]
    return np.vstack([*columns, np.bincount(label, minlength=c)])


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
