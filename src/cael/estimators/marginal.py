"""MIPS: importance weights between embeddings of actions, not between actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, Ints, frozen
from cael.errors import InputError, choose
from cael.estimators.estimator import Estimator, mean_of, mean_plus_ratio
from cael.estimators.posterior import Features, RowFeatures, SoftmaxPosterior, fit_softmax
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.diagnostics import weight_facts, weighted
from cael.inference.estimate import Estimate
from cael.log.logged import Batch, LoggedData
from cael.policies.policy import Policy, probabilities

EMBEDDING_BIAS = "The interval covers the mean of the estimate; the bias of the embedding is not in it."
NOT_CONVERGED = "The posterior's solver stopped before it converged: raise max_iter."


@final
@dataclass(frozen=True, eq=False)
class MIPS(Estimator):
    """Marginalised IPS (Saito and Joachims 2022), for embeddings of actions that are given.

    V = (1/n) sum_i rho_i r_i, rho = p(e|x, pi) / p(e|x, mu) = sum_a mu(a|x, e) pi(a|x) / mu(a|x). Unbiased if the
    action has no effect on the reward beyond x and e, and the target plays only embeddings that the logging policy
    plays.

    embeddings: (k, m), one per action; by default the log's action_features. Whole numbers are categories, other
        numbers are continuous.
    row_embeddings: (n, m), the embedding drawn with each row, where p(e|x, a) is not concentrated on one point.
    posterior: "logistic" fits mu(a|x, e) by logistic regression on context and embedding. "exact" computes rho: for
        `embeddings` by summing over the actions that share one, for `row_embeddings` from `density`.
    density: p(e_j = c | a) for each column j of `row_embeddings`, arrays (k, number of categories). Columns are
        independent given the action, so p(e|x, pi) = sum_a pi(a|x) prod_j p(e_j|a), a mixture of products.
    offset: give the logistic posterior the known logging policy, log mu(a|x), so that it has less to learn.
    C: inverse penalty of the logistic regression. self_normalised: divide by the mean weight. folds: 0 fits the
    posterior on all rows; k >= 2 fits it on the other folds.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 2], [1.0, 1.0, 4.0], logging=[0.25, 0.25, 0.5])
    >>> same = cael.MIPS([[0], [0], [1]], posterior="exact")  # actions 0 and 1 share an embedding
    >>> same.estimate(log, [0.0, 0.5, 0.5]).value
    2.0
    """

    needs: ClassVar[tuple[str, ...]] = ("logging", "probabilities")
    embeddings: Any = None
    posterior: str = "logistic"
    row_embeddings: Any = None
    density: Any = None
    offset: bool = False
    self_normalised: bool = False
    C: float = 1.0
    folds: int = 0
    seed: int = 0
    max_iter: int = 1000

    def __post_init__(self) -> None:
        choose("posterior", self.posterior, ("logistic", "exact"))
        if self.embeddings is not None and self.row_embeddings is not None:
            raise InputError("MIPS takes embeddings (one per action) or row_embeddings (one per row), not both.")
        for name in ("embeddings", "row_embeddings"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, frozen(_as_embeddings(name, given)))
        if self.density is not None:
            object.__setattr__(self, "density", _as_density(self.density))
        if self.posterior == "exact" and (self.row_embeddings is None) != (self.density is None):
            raise InputError(
                "the exact weight of row_embeddings needs density, p(e|a), and density needs row_embeddings."
            )

    @property
    def name(self) -> str:
        kind = ["exact"] if self.posterior == "exact" else (["offset"] if self.offset else [])
        return ("SNMIPS" if self.self_normalised else "MIPS") + (f"({', '.join(kind)})" if kind else "")

    def solve(self, problem: Problem) -> Estimate:
        extra: tuple[str, ...] = (EMBEDDING_BIAS,)
        cross_fitted = None
        if self.posterior == "exact":
            rho = self._exact(problem)
        else:
            rho, converged = self._fitted(problem)
            cross_fitted = self.folds >= 2
            extra = extra if converged else (*extra, NOT_CONVERGED)
        return self._finish(problem, rho, cross_fitted, extra)

    def _finish(self, problem: Problem, rho: Floats, cross_fitted: bool | None, extra: tuple[str, ...]) -> Estimate:
        error = inference.stderr(inference.units(rho, problem.log.clusters))
        facts = weight_facts(rho, error, problem.unsupported_mass)
        # A posterior uses no rewards, so fitting it in-sample does not narrow the interval: no word about it.
        found = weighted(rho, rho, facts, cross_fitted=cross_fitted or None, extra=extra)
        if self.self_normalised:
            return mean_plus_ratio(self.name, problem, 0.0, rho, problem.log.rewards, found)
        return mean_of(self.name, problem, rho * problem.log.rewards, found)

    def per_action(self, action_features: Array | None, n_actions: int) -> Array:
        """(k, m) embeddings of the actions."""
        given = action_features if self.embeddings is None else self.embeddings
        if given is None:
            raise InputError("MIPS needs embeddings: pass embeddings=, or action_features in the log.")
        if len(given) != n_actions:
            raise InputError(f"embeddings must have one row per action, {n_actions}; got {len(given)}.")
        return given

    def _per_action(self, log: LoggedData) -> Array:
        return self.per_action(log.action_features, log.n_actions)

    def table(self, log: LoggedData) -> Floats:
        """(k, e) what the logistic regression sees of each action, as the actions that were logged have it."""
        given = self._per_action(log)
        seen, counts = np.unique(log.actions, return_counts=True)
        return encoder(given[seen], counts)(given)

    def _per_row(self, log: LoggedData) -> Array:
        """(n, m) embeddings of the logged rows."""
        if self.row_embeddings is None:
            return self._per_action(log)[log.actions]
        last = log.rows.stop if isinstance(log.rows, slice) else int(log.rows.max()) + 1
        if last > len(self.row_embeddings):
            raise InputError(f"row_embeddings has {len(self.row_embeddings)} rows, but the log has {last}.")
        return self.row_embeddings[log.rows]

    def _exact(self, problem: Problem) -> Floats:
        """p(e_i|x_i, pi) / p(e_i|x_i, mu), shape (n,)."""
        log = problem.log
        if self.density is None:
            likelihood: SameGroup | _Products = SameGroup.of(self._per_action(log))
        else:
            likelihood = _Products(self.density, self._per_row(log), log.n_actions)
        parts, at = [], 0
        for batch in log.batches(width=log.n_actions):
            policies = probabilities(problem.policy, batch), probabilities(_logging(log), batch)
            parts.append(exact_weights(likelihood(batch, at), *policies, batch))
            at += len(batch)
        return np.concatenate(parts)

    def features(self, log: LoggedData) -> RowFeatures:
        """What the logistic regression sees of each row: its context and its encoded embedding."""
        if self.row_embeddings is not None:
            every = self._per_row(log)
            return RowFeatures(log.contexts, encoder(every)(every), np.arange(len(log)))
        return RowFeatures(log.contexts, self.table(log), log.actions)

    def _fitted(self, problem: Problem) -> tuple[Floats, bool]:
        """The weights by a fitted posterior, and whether the solver converged."""
        log = problem.log
        features = self.features(log)
        if self.folds < 2:
            return self._fit_and_weigh(problem, log, log, features, features)
        rho, converged = np.empty(len(log)), True
        for rows in log.folds(self.folds, self.seed):
            others = np.setdiff1d(np.arange(len(log)), rows)
            train, test = log.take(others), log.take(rows)
            rho[rows], good = self._fit_and_weigh(problem, train, test, features.take(others), features.take(rows))
            converged = converged and good
        return rho, converged

    def _fit_and_weigh(
        self, problem: Problem, train: LoggedData, test: LoggedData, train_features: RowFeatures, features: RowFeatures
    ) -> tuple[Floats, bool]:
        fitted = fit_softmax(train, train_features, C=self.C, offset=self.offset, max_iter=self.max_iter)
        parts = [np.einsum("ij,ij->i", post, w) for post, w in posterior_blocks(fitted, test, problem.policy, features)]
        return np.concatenate(parts), fitted.converged


def posterior_blocks(
    fitted: SoftmaxPosterior, log: LoggedData, policy: Policy, features: Features
) -> Iterator[tuple[Floats, Floats]]:
    """(posterior, weights pi/mu) of the fitted classes, (b, c) each, block by block; where mu is 0 the weight is 0."""
    at = 0
    for batch in log.batches(width=log.n_actions):
        pi, mu = probabilities(policy, batch), probabilities(_logging(log), batch)
        yield posterior_block(fitted, pi, mu, features[at : at + len(batch)])
        at += len(batch)


def posterior_block(fitted: SoftmaxPosterior, pi: Floats, mu: Floats, features: Floats) -> tuple[Floats, Floats]:
    """The same of one block: pi, mu (b, k), features (b, p)."""
    if len(fitted.classes) < pi.shape[1]:
        pi, mu = pi[:, fitted.classes], mu[:, fitted.classes]
    return fitted.probabilities(features, mu), np.divide(pi, mu, out=np.zeros_like(pi), where=mu > 0)


def exact_weights(p: Floats, pi: Floats, mu: Floats, batch: Batch) -> Floats:
    """p(e_i|x_i, pi) / p(e_i|x_i, mu) from the likelihoods p(e_i|a) (b, k)."""
    above, below = np.einsum("ij,ij->i", pi, p), np.einsum("ij,ij->i", mu, p)
    if (below <= 0).any():
        row = int(batch.row_numbers[below <= 0][0])
        raise InputError(f"density says that the embedding of row {row} cannot occur under the logging policy.")
    found: Floats = above / below
    return found


def _logging(log: LoggedData) -> Any:
    return log.logging


def _as_embeddings(name: str, given: Any) -> Array:
    table = np.asarray(given)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iufb":
        raise InputError(f"{name} must be numbers of shape (rows, m); got {table.dtype} of shape {table.shape}.")
    table = table.astype(np.int64 if table.dtype.kind in "iub" else np.float64)
    if not np.isfinite(table).all():
        raise InputError(f"{name} must be finite.")
    return table


def _as_density(given: Any) -> tuple[Floats, ...]:
    columns: Sequence[Any] = [given] if isinstance(given, np.ndarray) and given.ndim == 2 else given
    density = []
    for number, column in enumerate(columns):
        p = np.asarray(column, dtype=np.float64)
        if p.ndim != 2 or not (p >= 0).all() or not np.allclose(p.sum(axis=1), 1, atol=1e-6):
            raise InputError(
                f"density[{number}] must have shape (k, categories) with rows that sum to 1; got {p.shape}."
            )
        density.append(frozen(p))
    return tuple(density)


def encoder(embeddings: Array, counts: Ints | None = None) -> Callable[[Array], Floats]:
    """Inputs of the logistic regression, as a function of embeddings (m, c): whole-number columns one-hot without the
    first, others standardised. embeddings, counts: what was seen, and how many rows each stands for (one by default).
    """
    if embeddings.dtype.kind == "f":
        mean = np.average(embeddings, axis=0, weights=counts)
        scale = np.sqrt(np.average((embeddings - mean) ** 2, axis=0, weights=counts))
        return lambda every: (every - mean) / np.where(scale == 0, 1.0, scale)
    values = [np.unique(column)[1:] for column in embeddings.T]
    return lambda every: np.hstack(
        [(column[:, None] == own).astype(np.float64) for column, own in zip(every.T, values, strict=True)]
    )


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
class _Products:
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
