"""mu(a | x, e) by multinomial logistic regression, in blocks of rows, with the logging policy as an optional offset.

The penalised optimum is scikit-learn's (LogisticRegression, L2, intercept free). It is written here because
scikit-learn has no offset and holds several n x k arrays; this holds one block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np

from cael.common.cores import threads
from cael.common.types import Floats, Ints
from cael.errors import InputError
from cael.log.batch import BATCH_BYTES, Batch, chunks
from cael.log.logged import LoggedData
from cael.policies.policy import probabilities

GRADIENT_TOLERANCE = 1e-6
"""The largest component of the gradient of the mean loss at which a fit counts as converged."""
GROUPS = 8
IDLE = 1e-9
"""Directions of the features that can change no logit by more than this are left out."""


Features: TypeAlias = "Floats | RowFeatures"
"""Inputs (n, p) of the regression."""


@final
@dataclass(frozen=True)
class Dense:
    """Products of centred and decorrelated features, z = (features - mean) A, and their sums over rows; row by row."""

    features: Features
    mean: Floats
    A: Floats

    def product(self, table: Floats) -> Callable[[slice], Floats]:
        """A function of rows: z (b, p) times a table (p, c)."""
        weights = self.A @ table
        return lambda rows: (self.features[rows] - self.mean) @ weights

    def room(self, c: int) -> Floats:
        """Zeros for what `add` adds up."""
        return np.zeros((self.features.shape[1], c))

    def add(self, room: Floats, rows: slice, post: Floats) -> None:
        """Add what gives the sums of z times post (b, c)."""
        room += (self.features[rows] - self.mean).T @ post

    def gathered(self, room: Floats) -> Floats:
        """z' post over all rows that were added, (p, c)."""
        return self.A.T @ room


@final
@dataclass(frozen=True)
class RowFeatures:
    """[contexts, table[code]] of each row: contexts (n, d), table (m, e), code (n,)."""

    contexts: Floats
    table: Floats
    code: Ints

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.code), self.contexts.shape[1] + self.table.shape[1]

    def __getitem__(self, rows: slice) -> Floats:
        return np.hstack([self.contexts[rows], self.table[self.code[rows]]])

    def take(self, rows: Ints) -> RowFeatures:
        return RowFeatures(self.contexts[rows], self.table, self.code[rows])

    def design(self, mean: Floats, A: Floats) -> Dense | Tabled:
        """By lines of the table where that is less work and takes little more room, else by rows."""
        seen, code = np.unique(self.code, return_inverse=True)
        (n, p), d = self.shape, self.contexts.shape[1]
        if len(seen) * p + n * d > (n + p) * p or len(seen) > 4 * p:
            return Dense(self, mean, A)
        return Tabled(self.contexts - mean[:d], A[:d], (self.table[seen] - mean[d:]) @ A[d:], code.reshape(-1))


@final
@dataclass(frozen=True)
class Tabled:
    """As `Dense`, z = contexts A + lines[code]: products are made once for all rows that share a line (m, p).

    adding: for each block of rows that was asked for, the lines that occur there, and the matrix of zeros and ones that
    adds its rows up by line.
    """

    contexts: Floats
    A: Floats
    lines: Floats
    code: Ints
    adding: dict[tuple[int, int], tuple[Ints, Any]] = field(default_factory=dict)

    def product(self, table: Floats) -> Callable[[slice], Floats]:
        weights, lifted = self.A @ table, self.lines @ table
        return lambda rows: self.contexts[rows] @ weights + lifted[self.code[rows]]

    def room(self, c: int) -> Floats:
        return np.zeros((self.contexts.shape[1] + len(self.lines), c))

    def add(self, room: Floats, rows: slice, post: Floats) -> None:
        d = self.contexts.shape[1]
        room[:d] += self.contexts[rows].T @ post
        block = rows.start, rows.stop
        if block not in self.adding:
            self.adding[block] = self._adding(self.code[rows])
        lines, adding = self.adding[block]
        room[d + lines] += adding @ post

    def _adding(self, code: Ints) -> tuple[Ints, Any]:
        from scipy.sparse import csr_array

        lines, place = np.unique(code, return_inverse=True)
        ones, every = np.ones(len(code)), np.arange(len(code))
        return lines, csr_array((ones, (place.reshape(-1), every)), shape=(len(lines), len(code)))

    def gathered(self, room: Floats) -> Floats:
        d = self.contexts.shape[1]
        return self.A.T @ room[:d] + self.lines.T @ room[d:]


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
    options = {"maxiter": max_iter, "gtol": GRADIENT_TOLERANCE, "ftol": 1e-11, "maxcor": 5}
    # The cores work on groups of blocks; BLAS threads on top would spin.
    with threadpool_limits(1, user_api="blas"), _pool(len(fun.groups)) as fun.map:
        optimum = minimize(fun, np.zeros(fun.shape[0] * fun.shape[1]), jac=True, method="L-BFGS-B", options=options)
    weights, intercept = fun.coefficients(optimum.x)
    return SoftmaxPosterior(classes, weights, intercept, offset, bool(optimum.status != 1))


@contextmanager
def _pool(parts: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` over so many parts, on as many threads as may be used."""
    if min(parts, threads()) == 1:
        yield map
        return
    with ThreadPoolExecutor(min(parts, threads())) as pool:
        yield pool.map


@final
class _Likelihood:
    """The objective, over flat tables (p + 1, c) with the intercept last; reads the log block by block, on all cores.

    The solver works on centred and decorrelated features, for which L-BFGS needs a fraction of the steps; the penalty
    stays that of the weights of the given features: W = A V, and the intercept, which is free, takes up the centring.
    """

    def __init__(self, log: LoggedData, features: Features, label: Ints, c: int, C: float, offset: bool) -> None:
        self.log, self.label, self.offset, self.n = log, label, offset, len(log)
        self.map: Callable[..., Iterable[Any]] = map
        parts = [(rows, log.whole.part(rows)) for rows in chunks(len(log), c, BATCH_BYTES // 4)]
        # A fixed number of groups, each summed in order: the result does not depend on the number of cores.
        self.groups = [parts[g::GROUPS] for g in range(min(GROUPS, len(parts)))]
        self.raw = features
        self.mean = sum(features[part].sum(axis=0) for part, _ in parts) / self.n
        second = sum(z.T @ z for part, _ in parts for z in (self._centred(part),)) / self.n
        values, vectors = np.linalg.eigh(second)
        # For two classes scikit-learn has one logit and penalises that: half of the squares of our two.
        strength = (2 if c == 2 and not offset else 1) / (C * self.n)
        # Along a direction of variance v the loss has a slope of at most sqrt(v), so that the weight is at most
        # sqrt(v) / strength and moves the logits by v / strength. With more features than rows most have none.
        moving = values > IDLE * strength
        values, vectors = values[moving], vectors[:, moving]
        self.shape = (len(values) + 1, c)
        # The curvature at a uniform posterior, values / c + strength, becomes 1 / c, as it is for the intercept.
        curvature = values + c * strength
        self.A = vectors / np.sqrt(curvature)
        self.penalty = (strength / curvature)[:, None]  # |W|^2 = |A V|^2, and A'A is diagonal
        plain = Dense(features, self.mean, self.A)
        self.design = features.design(self.mean, self.A) if isinstance(features, RowFeatures) else plain
        sums = np.zeros((features.shape[1] + 1, c))
        for part, _ in parts:
            sums += _class_sums(self._centred(part), label[part], c)
        self.observed = np.vstack([self.A.T @ sums[:-1], sums[-1]]) / self.n

    def _centred(self, part: slice) -> Floats:
        return self.raw[part] - self.mean

    def coefficients(self, flat: Floats) -> tuple[Floats, Floats]:
        """Weights (p, c) and intercept (c,) for the features as they were given."""
        table = flat.reshape(self.shape)
        weights = self.A @ table[:-1]
        return weights, table[-1] - self.mean @ weights

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        """Loss and gradient."""
        table = flat.reshape(self.shape)
        product = self.design.product(table[:-1])
        groups = self.map(lambda group: self._group(group, product, table[-1]), self.groups)
        losses, sums, counts = zip(*groups, strict=True)
        by_class = self.design.gathered(np.sum(sums, axis=0))
        gradient = np.vstack([by_class, np.sum(counts, axis=0)]) / self.n - self.observed
        pull = self.penalty * table[:-1]
        gradient[:-1] += pull
        return sum(losses) / self.n + 0.5 * float((pull * table[:-1]).sum()), gradient.ravel()

    def _group(
        self, group: list[tuple[slice, Batch]], product: Callable[[slice], Floats], intercept: Floats
    ) -> tuple[float, Floats, Floats]:
        """Minus the log-likelihood, and the sums of features by expected class and of expected classes, of blocks."""
        total, sums, counts = 0.0, self.design.room(self.shape[1]), np.zeros(self.shape[1])
        for part, batch in group:
            prior = probabilities(self.log.logging, batch) if self.offset and self.log.logging is not None else None
            post = _softmax(product(part) + intercept, prior)
            chosen = post[np.arange(len(post)), self.label[part]]
            total -= float(np.log(np.maximum(chosen, 1e-300)).sum())
            self.design.add(sums, part, post)
            counts += post.sum(axis=0)
        return total, sums, counts


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
