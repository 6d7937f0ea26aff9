"""The weights of MIPS in a stream: the posterior is fitted on a sample, or is exact, and a pass weighs every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.errors import NeedsError
from cael.estimators import MIPS
from cael.estimators.marginal import SameGroup, exact_weights, posterior_block
from cael.estimators.posterior import SoftmaxPosterior, fit_softmax
from cael.io.encode import Actions
from cael.log.keys import folds_of
from cael.log.logged import LoggedData
from cael.log.pieces import Piece
from cael.log.targets import chunks
from cael.policies.policy import Policy, probabilities

TABLES = 6
"""Arrays of rows times actions that the weights of a chunk need at once."""


@final
@dataclass(frozen=True, eq=False)
class Marginal:
    """How the weights of MIPS are made; a description that can be sent to another machine.

    group: of the actions, where weights are exact. fitted: the posterior, or that of each fold, which did not see its
    rows. table: (k, e) what it sees of each action. folds, seed: of the folds.
    """

    group: SameGroup | None
    fitted: tuple[SoftmaxPosterior, ...]
    table: Floats
    folds: int
    seed: int

    @property
    def contexts(self) -> bool:
        """Whether the posterior looks at contexts."""
        return self.group is None

    @property
    def converged(self) -> bool:
        return all(each.converged for each in self.fitted)

    def of(self, piece: Piece, policy: Policy, logging: Policy, actions: Actions, file: int) -> Floats:
        """The weights (n,) of a batch."""
        n, k = len(piece), len(actions)
        found, fold = np.empty(n), None
        if len(self.fitted) > 1:
            fold = folds_of(piece, file, self.folds, self.seed)
        for part in chunks(n, TABLES * k):
            batch = piece.batch(part, k, actions.features)
            pi, mu = probabilities(policy, batch), probabilities(logging, batch)
            if self.group is not None:
                found[part] = exact_weights(self.group(batch, part.start), pi, mu, batch)
                continue
            features = np.hstack([batch.contexts, self.table[batch.actions]])
            for number, fitted in enumerate(self.fitted):
                mine = np.flatnonzero(fold[part] == number) if fold is not None else np.arange(len(batch))
                post, w = posterior_block(fitted, pi[mine], mu[mine], features[mine])
                found[part.start + mine] = np.einsum("ij,ij->i", post, w)
        return found


def refuse_rows(estimator: MIPS) -> None:
    """Embeddings that belong to rows by their number cannot be streamed."""
    if estimator.row_embeddings is not None:
        raise NeedsError(
            f"{estimator.name} has row_embeddings, which belong to rows by number: it needs the whole log."
        )


def exact(estimator: MIPS, features: Floats | None, n_actions: int) -> Marginal:
    """Without a posterior to fit. features: of the actions."""
    return Marginal(SameGroup.of(estimator.per_action(features, n_actions)), (), np.empty((0, 0)), 0, 0)


def fitted(estimator: MIPS, log: LoggedData, split: list[Ints]) -> Marginal:
    """The posterior of a sample. log: its rows, with the logging policy where that is an offset. split: its folds."""
    features, every = estimator.features(log), np.arange(len(log))
    settings: dict[str, Any] = {"C": estimator.C, "offset": estimator.offset, "max_iter": estimator.max_iter}
    models = [fit_softmax(log, features, **settings)] if not split else []
    for held in split:
        rows = np.setdiff1d(every, held)
        models.append(fit_softmax(log.take(rows), features.take(rows), **settings))
    return Marginal(None, tuple(models), features.table, estimator.folds, estimator.seed)
