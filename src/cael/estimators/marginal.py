"""MIPS: importance weights between embeddings of actions, not between actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, Ints, frozen
from cael.engine.asking import MODEL_ROWS, Asking
from cael.engine.drawn import with_logging
from cael.engine.parts import Form, Part, form_part
from cael.errors import InputError, NeedsError, choose
from cael.estimators.estimator import Estimator
from cael.estimators.marginal_weights import Exact, Fitted, MarginalWeight, Products, SameGroup, fit, posterior_block
from cael.log.held import EngineLog
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, probabilities
from cael.policies.posterior import Features, RowFeatures, SoftmaxPosterior

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

    folds, seed: of the cross-fitting of the posterior. max_iter: of its solver.

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
            embeddings = getattr(self, name)
            if embeddings is not None:
                object.__setattr__(self, name, frozen(_as_embeddings(name, embeddings)))
        if self.density is not None:
            object.__setattr__(self, "density", _as_density(self.density))
        if self.posterior == "exact" and (self.row_embeddings is None) != (self.density is None):
            raise InputError(
                "the exact weight of row_embeddings needs density, p(e|a), and density needs row_embeddings."
            )

    @property
    def name(self) -> str:
        """For tables."""
        kind = ["exact"] if self.posterior == "exact" else (["offset"] if self.offset else [])
        return ("SNMIPS" if self.self_normalised else "MIPS") + (f"({', '.join(kind)})" if kind else "")

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        source = self.source(asking)
        notes = (EMBEDDING_BIAS,) if source.converged else (EMBEDDING_BIAS, NOT_CONVERGED)
        # A posterior uses no rewards, so fitting it in-sample does not narrow the interval: no word about it.
        form = Form(
            MarginalWeight(target, source), self_normalised=self.self_normalised, notes=notes,
            cross_fitted=source.cross_fitted,
        )  # fmt: skip
        return form_part(asking, self.name, target, form)

    def source(self, asking: Asking) -> Exact | Fitted:
        """How the weights are made, fitted once however many targets and estimators use them."""
        arrays = (id(self.embeddings), id(self.row_embeddings), id(self.density))
        key = (MIPS, *arrays, self.posterior, self.offset, self.C, self.folds, self.seed, self.max_iter)
        if key not in asking.learned:
            asking.learned[key] = self._weights(asking)
        source: Exact | Fitted = asking.learned[key]
        return source

    def _weights(self, asking: Asking) -> Exact | Fitted:
        """How the weights are made; a posterior is fitted on the log, or on a sample of one in files."""
        log = asking.log
        if self.row_embeddings is not None and asking.held is None:
            raise NeedsError(f"{self.name} has row_embeddings, which belong to rows by number: it needs the whole log.")
        if self.posterior == "exact" and self.density is None:
            return Exact(SameGroup.of(self.per_action(log)))
        if self.posterior == "exact":
            assert asking.held is not None
            return Exact(Products(self.density, self._per_row(asking.held), log.n_actions))
        if self.row_embeddings is None:
            self.per_action(log)
        return self._fitted(asking)

    def _fitted(self, asking: Asking) -> Fitted:
        rows, known = MODEL_ROWS if asking.held is None else len(asking.held), asking.log.logging
        sample = asking.sample(rows, self.seed, known.columns if self.offset and known is not None else ())
        log = with_logging(asking.log, sample) if self.offset else sample.log
        if self.offset and known is None:
            log = asking.fit.attached(log)
        split = sample.folds(self.folds, self.seed) if self.folds >= 2 else []
        settings = {"C": self.C, "offset": self.offset, "max_iter": self.max_iter}
        return fit(log, self.features(log), split, settings, self.seed, by_row=self.row_embeddings is not None)

    def per_action(self, log: LoggedData | EngineLog) -> Array:
        """(k, m) embeddings of the actions."""
        embeddings: Array | None = log.action_features if self.embeddings is None else self.embeddings
        if embeddings is None:
            raise InputError("MIPS needs embeddings: pass embeddings=, or action_features in the log.")
        if len(embeddings) != log.n_actions:
            raise InputError(f"embeddings must have one row per action, {log.n_actions}; got {len(embeddings)}.")
        return embeddings

    def _per_row(self, log: LoggedData) -> Array:
        """(n, m) embeddings of the logged rows."""
        last = log.rows.stop if isinstance(log.rows, slice) else int(log.rows.max()) + 1
        if last > len(self.row_embeddings):
            raise InputError(f"row_embeddings has {len(self.row_embeddings)} rows, but the log has {last}.")
        return self.row_embeddings[log.rows]

    def features(self, log: LoggedData) -> RowFeatures:
        """What the logistic regression sees of each row: its context and its encoded embedding."""
        if self.row_embeddings is not None:
            every = self._per_row(log)
            return RowFeatures(log.contexts, encoder(every)(every), np.arange(len(log)))
        embeddings = self.per_action(log)
        seen, counts = np.unique(log.actions, return_counts=True)
        return RowFeatures(log.contexts, encoder(embeddings[seen], counts)(embeddings), log.actions)


def posterior_blocks(
    fitted: SoftmaxPosterior, log: LoggedData, policy: Policy, features: Features
) -> Iterator[tuple[Floats, Floats]]:
    """(posterior, weights pi/mu) of the fitted classes, (b, c) each, block by block; where mu is 0 the weight is 0."""
    assert log.logging is not None
    at = 0
    for batch in log.batches(width=log.n_actions):
        pi, mu = probabilities(policy, batch), probabilities(log.logging, batch)
        yield posterior_block(fitted, pi, mu, features[at : at + len(batch)])
        at += len(batch)


def _as_embeddings(name: str, values: Any) -> Array:
    table = np.asarray(values)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "iufb":
        raise InputError(f"{name} must be numbers of shape (rows, m); got {table.dtype} of shape {table.shape}.")
    table = table.astype(np.int64 if table.dtype.kind in "iub" else np.float64)
    if not np.isfinite(table).all():
        raise InputError(f"{name} must be finite.")
    return table


def _as_density(values: Any) -> tuple[Floats, ...]:
    columns: Sequence[Any] = [values] if isinstance(values, np.ndarray) and values.ndim == 2 else values
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
    others = [np.unique(column)[1:] for column in embeddings.T]
    return lambda every: np.hstack(
        [(column[:, None] == values).astype(np.float64) for column, values in zip(every.T, others, strict=True)]
    )
