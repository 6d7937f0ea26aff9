"""The weights of MIPS, batch by batch: exact, or by a posterior that was fitted before the pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.engine.columns import Filling, Weights
from cael.errors import InputError
from cael.log.batch import Batch, chunks
from cael.log.logged import LoggedData
from cael.log.pieces import Piece
from cael.policies.policy import probabilities
from cael.policies.posterior import SoftmaxPosterior, fit_softmax

TABLES = 6
"""Arrays of rows times actions that the weights of a chunk need at once."""


class Source(Protocol):
    """How the weights of embeddings are made. converged: of its solver. contexts: whether it sees them."""

    @property
    def converged(self) -> bool: ...
    @property
    def cross_fitted(self) -> bool | None: ...
    @property
    def contexts(self) -> bool: ...

    def of(self, piece: Piece, part: slice, pi: Floats, mu: Floats) -> Floats:
        """rho (b,) of some rows of a batch, for pi and mu (b, k)."""


@final
@dataclass(frozen=True, eq=False)
class Exact:
    """rho from the likelihoods p(e_i|a). likelihood: (batch, number of its first row) -> (b, k)."""

    likelihood: Callable[[Batch, int], Floats]
    converged: bool = True
    cross_fitted: bool | None = None
    contexts: bool = False

    def of(self, piece: Piece, part: slice, pi: Floats, mu: Floats) -> Floats:
        """p(e_i|x_i, pi) / p(e_i|x_i, mu) of some rows of a batch."""
        batch = piece.batch(part)
        return ratios(self.likelihood(batch, piece.first + part.start), pi, mu, np.asarray(batch.draw_numbers))


def ratios(likelihood: Floats, pi: Floats, mu: Floats, rows: Ints) -> Floats:
    """p(e_i|x_i, pi) / p(e_i|x_i, mu) from p(e_i|a), pi and mu, (b, k) each. rows: (b,) their numbers, for errors."""
    above, below = np.einsum("ij,ij->i", pi, likelihood), np.einsum("ij,ij->i", mu, likelihood)
    if (below <= 0).any():
        raise InputError(f"the embedding of row {rows[below <= 0][0]} cannot occur under the logging policy.")
    return np.asarray(above / below)


@final
@dataclass(frozen=True, eq=False)
class Clustered:
    """rho of the clusters of actions: pi(c|x) / mu(c|x). groups: (f, k) the cluster of each action, for the rows of
    each fold; or (1, k) for all rows. seed: of the folds."""

    groups: Ints
    seed: int
    converged: bool = True
    cross_fitted: bool | None = None
    contexts: bool = False

    def of(self, piece: Piece, part: slice, pi: Floats, mu: Floats) -> Floats:
        batch = piece.batch(part)
        fold, numbers = piece.folds(len(self.groups), self.seed)[part], np.asarray(batch.draw_numbers)
        weights = np.empty(len(batch))
        for number, group in enumerate(self.groups):
            rows = np.flatnonzero(fold == number)
            same = (group[batch.actions[rows]][:, None] == group).astype(np.float64)
            weights[rows] = ratios(same, pi[rows], mu[rows], numbers[rows])
        return weights


@final
@dataclass(frozen=True, eq=False)
class Fitted:
    """rho by a posterior, or by that of each fold, which did not see its rows. table: (k, e) what it sees of each
    action; or (n, e) of each row of a log in memory (by_row)."""

    models: tuple[SoftmaxPosterior, ...]
    table: Floats
    by_row: bool
    seed: int
    contexts: bool = True

    @property
    def converged(self) -> bool:
        return all(model.converged for model in self.models)

    @property
    def cross_fitted(self) -> bool | None:
        return len(self.models) > 1 or None

    def of(self, piece: Piece, part: slice, pi: Floats, mu: Floats) -> Floats:
        batch = piece.batch(part)
        at = slice(piece.first + part.start, piece.first + part.stop) if self.by_row else batch.actions
        features = np.hstack([batch.contexts, self.table[at]])
        fold = piece.folds(len(self.models), self.seed)[part]
        weights = np.empty(len(batch))
        for number, model in enumerate(self.models):
            rows = np.flatnonzero(fold == number)
            post, w = posterior_block(model, pi[rows], mu[rows], features[rows])
            weights[rows] = np.einsum("ij,ij->i", post, w)
        return weights


@final
@dataclass(frozen=True)
class MarginalWeight(Weights):
    """The weights of embeddings. source: how they are made."""

    summed: ClassVar[bool] = True  # type: ignore[misc]
    target: int
    source: Source

    @property
    def contexts(self) -> bool:  # type: ignore[override]
        return self.source.contexts

    def fill(self, out: Floats, batch: Filling) -> None:
        piece, policy, logging = batch.piece, batch.policies[self.target], batch.whole_logging
        assert logging is not None
        for part in chunks(len(piece), TABLES * piece.n_actions):
            rows = piece.batch(part)
            out[part] = self.source.of(piece, part, probabilities(policy, rows), probabilities(logging, rows))


def fit(
    log: LoggedData, features: Any, split: list[Ints], settings: dict[str, Any], seed: int, *, by_row: bool
) -> Fitted:
    """The posterior of a log, or that of each fold. features: `RowFeatures`."""
    if not split:
        return Fitted((fit_softmax(log, features, **settings),), features.table, by_row, seed)
    others = [np.setdiff1d(np.arange(len(log)), rows) for rows in split]
    models = tuple(fit_softmax(log.take(rows), features.take(rows), **settings) for rows in others)
    return Fitted(models, features.table, by_row, seed)


def posterior_block(fitted: SoftmaxPosterior, pi: Floats, mu: Floats, features: Floats) -> tuple[Floats, Floats]:
    """(posterior, weights pi/mu) of the fitted classes, (b, c) each; pi, mu (b, k), features (b, p)."""
    if len(fitted.classes) < pi.shape[1]:
        pi, mu = pi[:, fitted.classes], mu[:, fitted.classes]
    return fitted.probabilities(features, mu), np.divide(pi, mu, out=np.zeros_like(pi), where=mu > 0)


@final
@dataclass(frozen=True)
class SameGroup:
    """p(e_i|a) for embeddings that are functions of the action: 1 if a shares the embedding of a_i, else 0."""

    group: Array

    @staticmethod
    def of(embeddings: Array) -> SameGroup:
        """embeddings: (k, m)."""
        return SameGroup(np.unique(embeddings, axis=0, return_inverse=True)[1].reshape(-1))

    def __call__(self, batch: Batch, at: int) -> Floats:
        return (self.group[batch.actions][:, None] == self.group).astype(np.float64)


@final
@dataclass(frozen=True)
class Products:
    """p(e_i|a) = prod_j density[j][a, e_ij], shape (b, k)."""

    density: tuple[Floats, ...]
    rows: Array
    n_actions: int

    def __post_init__(self) -> None:
        if self.rows.dtype.kind != "i" or self.rows.shape[1] != len(self.density):
            raise InputError("row_embeddings must be category numbers, one column for each array of density.")
        for j, p in enumerate(self.density):
            if len(p) != self.n_actions or self.rows[:, j].min() < 0 or self.rows[:, j].max() >= p.shape[1]:
                raise InputError(
                    f"density[{j}] has shape {p.shape}; it needs {self.n_actions} actions and every category of "
                    f"column {j}."
                )

    def __call__(self, batch: Batch, at: int) -> Floats:
        product = np.ones((len(batch), self.n_actions))
        for j, p in enumerate(self.density):
            product *= p.T[self.rows[at : at + len(batch), j]]
        return product
