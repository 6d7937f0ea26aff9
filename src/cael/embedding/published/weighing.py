"""MIPS with learned embeddings: the weights of a log by a trained network and its posterior, and what they are like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cael.common.types import Floats
from cael.estimators.estimator import mean_of
from cael.estimators.marginal import posterior_blocks
from cael.estimators.marginal_weights import posterior_block
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.diagnostics import TrainingFacts, in_words, weight_facts, weighted
from cael.inference.estimate import Estimate
from cael.judging.thresholds import DEFAULT
from cael.log.logged import LoggedData
from cael.log.pieces import Piece
from cael.policies.posterior import SoftmaxPosterior
from cael.theory import half_gini

if TYPE_CHECKING:
    from cael.embedding.training import History

NOT_CONVERGED = "The final posterior's solver stopped before it converged: raise final_iter."
MOST_ROWS, LEAST_ROWS, MOST_CELLS = 100_000, 1000, 2**26
"""A longer log trains on a sample of so many rows: of MOST_CELLS by actions, but at least LEAST_ROWS."""


def sample_rows(n_actions: int) -> int:
    """Rows that train a network and fit its posterior, whose work is rows times actions."""
    return min(MOST_ROWS, max(LEAST_ROWS, MOST_CELLS // n_actions))


@final
@dataclass(frozen=True, eq=False)
class Embedded:
    """Weights rho of any rows by a network of one trial, on the CPU, and its posterior. A source of `MarginalWeight`.

    with_contexts: whether the posterior sees (x, e) in place of e.
    """

    network: Any
    parameters: Any
    posterior: SoftmaxPosterior
    with_contexts: bool
    cross_fitted: bool | None = None
    contexts: bool = True

    @property
    def converged(self) -> bool:
        return self.posterior.converged

    def of(self, piece: Piece, part: slice, pi: Floats, mu: Floats) -> Floats:
        from cael.embedding.build import embeddings_at

        batch = piece.batch(part)
        e = embeddings_at(self.network, self.parameters, batch.contexts, batch.actions)
        features = np.hstack([batch.contexts, e]) if self.with_contexts else e
        return np.asarray(np.einsum("ij,ij->i", *posterior_block(self.posterior, pi, mu, features)))


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """Networks of several logs: their parameters (T, ...), and what was learned on each."""

    parameters: Any
    learned: list[Learned]

    def source(self, log: LoggedData, estimator: Any) -> Embedded:
        """The weights of any rows by the network of the first log."""
        import torch

        parameters = {name: value[:1].cpu() for name, value in self.parameters.items()}
        network = estimator.network_of([log], torch.device("cpu"))
        return Embedded(network, parameters, self.learned[0].posterior, estimator.reading.features == "xe")


@final
@dataclass(frozen=True, eq=False)
class Learned:
    """What was trained on one log: the posterior, its inputs (n, p), r_hat (n,), and the losses on the way."""

    posterior: SoftmaxPosterior
    features: Floats
    r_hat: Floats
    history: History


def weigh(name: str, problem: Problem, learned: Learned, notes: tuple[str, ...]) -> Estimate:
    """The MIPS estimate by a fitted posterior, with what the losses, the bounds and the entropy are."""
    log, posterior, history = problem.log, learned.posterior, learned.history
    rho, squares, weight_squares, gini = np.hstack([
        np.stack([*(np.einsum("ij,ij->i", *pair) for pair in ((post, w), (post, post), (w, w))), half_gini(post, w)])
        for post, w in posterior_blocks(posterior, log, problem.policy, learned.features)
    ])  # fmt: skip
    facts = TrainingFacts(
        iterations=0 if not history.iterations else history.iterations[-1] + 1,
        history={"iteration": tuple(map(float, history.iterations)), **history.losses},
        stopped_early=history.stopped_early,
        bias_bound=float(gini.mean()),
        variance_bound=float((log.rewards**2 * squares * weight_squares).mean() / len(log)),
        bias_loss=float(gini.mean() ** 2),
        variance_loss=float((learned.r_hat**2 * squares * weight_squares).mean() / len(log)),
        renyi_entropy=float(-np.log(squares).mean()),
        effective_actions=float((1 / squares).mean()),
        converged=posterior.converged,
    )
    error = inference.stderr(inference.units(rho, log.clusters))
    diagnostics = weighted(rho, rho, weight_facts(rho, error, problem.unsupported_mass), extra=notes)
    return mean_of(name, problem, rho * log.rewards, in_words(replace(diagnostics, training=facts), DEFAULT))
