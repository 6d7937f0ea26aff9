"""CAELMIPS, AELMIPS and NetworkDM: learned embeddings as estimators like any other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.embedding.settings import NetworkSettings, Objective, Training, objective, require_torch
from cael.engine.parts import MODEL_ERROR, NOT_TRAINED
from cael.errors import InputError, choose
from cael.estimators.estimator import Estimator, mean_of
from cael.estimators.marginal import EMBEDDING_BIAS, posterior_blocks
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.diagnostics import Diagnostics, TrainingFacts, in_words, weight_facts, weighted, with_warnings
from cael.inference.estimate import Estimate
from cael.judging.thresholds import DEFAULT
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.outcomes.outcome_model import FittedOutcome, OutcomeModel, OutcomeTerms, outcome_terms
from cael.policies.posterior import SoftmaxPosterior
from cael.theory import half_gini

if TYPE_CHECKING:
    from cael.embedding.training import History


NOT_CONVERGED = "The final posterior's solver stopped before it converged: raise final_iter."


class LearnedMIPS(Estimator):
    """Algorithm 1: train a network, fit the posterior of actions given its embeddings, weigh, average.

    reading: the objective. schedule: the training, for n rows. network_of: the network for a log, on a device.
    """

    needs: ClassVar[tuple[str, ...]] = ("logging", "probabilities")
    panel: ClassVar[str] = "learned"
    final_iter: int
    seed: int

    @property
    @abstractmethod
    def reading(self) -> Objective: ...

    @abstractmethod
    def schedule(self, n: int) -> Training: ...

    @abstractmethod
    def network_of(self, log: LoggedData, device: Any) -> Any: ...

    def solve(self, problem: Problem) -> Estimate:
        return self.solve_many([problem], [self.seed])[0]

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, trained at once (logs of equal length and the same actions)."""
        require_torch(type(self).__name__)
        from cael.embedding import build, training
        from cael.embedding.batches import trial_data
        from cael.embedding.published.inner import fit_all_rows
        from cael.embedding.published.objective import CAELLoss, weights_for
        from cael.embedding.tensors import Torch, pick_device

        logs, reading = [problem.log for problem in problems], self.reading
        schedule = self.schedule(len(logs[0]))
        device = pick_device(schedule.device)
        network, data = self.network_of(logs[0], device), trial_data(logs, Torch(device))
        loss = CAELLoss(network, reading, weights_for(problems, reading, device))
        parameters, histories = training.train(network, data, loss, schedule, seeds, label=self.name)
        e = build.embeddings(network, parameters, data)
        if reading.features == "xe":
            e = np.concatenate([np.stack([log.contexts for log in logs]), e], axis=2)
        posteriors = fit_all_rows(list(e), logs, reading, self.final_iter, device)
        return [weigh(self.name, *each) for each in zip(problems, posteriors, e, histories, strict=True)]


@final
@dataclass(frozen=True)
class CAELMIPS(LearnedMIPS):
    """CAEL-MIPS (Chandak, Liu and Lee 2025), Algorithm 1: MIPS with embeddings e = f(x, a) learned to lower its error.

    V = (1/n) sum_i sum_a mu(a|x_i, e_i) pi(a|x_i)/mu(a|x_i) r_i, the posterior by logistic regression. f minimises
    L_R + alpha L_bias + beta L_var. Biased in general, and its interval covers E[V]; see `cael.theory` for the bounds.

    preset: "paper" is the reading of the paper that reproduces its claims, "through" the plainest reading of the update
    rule. objective: every choice spelled out (then preset is "custom"). network, training: sizes and optimiser, which
    the paper does not state. final_iter: limit of the final fit (line 10). seed: of initial weights, batches, dropout.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> quick = cael.CAELMIPS(training=cael.Training(iterations=20, batch_size=64))
    >>> quick.estimate(log, policy).diagnostics.training.iterations
    20
    """

    preset: str = "paper"
    objective: Objective | None = None
    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: Training = field(default_factory=Training)
    final_iter: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.objective is None:
            object.__setattr__(self, "objective", objective(self.preset))
        elif self.preset == "paper" and self.objective != objective("paper"):
            object.__setattr__(self, "preset", "custom")

    @property
    def name(self) -> str:
        """With the preset, for tables."""
        return "CAELMIPS" if self.preset == "paper" else f"CAELMIPS({self.preset})"

    @property
    def reading(self) -> Objective:
        """The reading of the paper that the preset stands for."""
        assert self.objective is not None  # set in __post_init__
        return self.objective

    def schedule(self, n: int) -> Training:
        """The training settings for a log."""
        return self.training

    def network_of(self, log: LoggedData, device: Any) -> Any:
        """The network for a log."""
        from cael.embedding.build import context_action_network

        return context_action_network(log, self.network, device)


AEL_PRESETS = {"repository": (100, 64, 1e-4), "trained": (250, 32, 1e-2)}
"""Epochs, batch size and rate: those of the authors' repository; and such that the network learns something."""


@final
@dataclass(frozen=True)
class AELMIPS(LearnedMIPS):
    """AEL-MIPS (Cief, Golebiowski, Schmidt, Abedjan and Bekasov 2024): MIPS with learned embeddings of actions alone.

    V of `CAELMIPS` with e = W [onehot(a), features(a)] + b from the linear reward model r_hat = e'x + c, trained on
    the reward loss only; posterior by logistic regression on e.

    preset: "repository" (the published settings, under which the embedding hardly moves from where it started) or
    "trained". actions: "onehot", "features", "both". C, final_iter: of the posterior.

    device: where it trains. seed: of initial weights and batches.

    >>> import cael
    >>> cael.AELMIPS(preset="trained").name
    'AELMIPS(trained)'
    """

    preset: str = "repository"
    actions: str = "onehot"
    C: float = 1.0
    final_iter: int = 1000
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        choose("preset", self.preset, tuple(AEL_PRESETS))
        choose("actions", self.actions, ("onehot", "features", "both"))

    @property
    def name(self) -> str:
        """With the preset, for tables."""
        changed = [] if self.preset == "repository" else [self.preset]
        changed += [] if self.actions == "onehot" else [self.actions]
        return "AELMIPS" + (f"({', '.join(changed)})" if changed else "")

    @property
    def reading(self) -> Objective:
        """The reading of the algorithm that the preset stands for."""
        return Objective(alpha=0.0, beta=0.0, C=self.C)

    def schedule(self, n: int) -> Training:
        """The preset's epochs as steps, for n rows."""
        epochs, batch_size, rate = AEL_PRESETS[self.preset]
        batch = min(batch_size, n)
        return Training(epochs * (n // batch), batch, rate, weight_decay=1e-2, device=self.device)

    def network_of(self, log: LoggedData, device: Any) -> Any:
        """The network for a log."""
        from cael.embedding.build import action_network

        return action_network(log, self.actions, device)


def weigh(name: str, problem: Problem, posterior: SoftmaxPosterior, features: Floats, history: History) -> Estimate:
    """The MIPS estimate by a fitted posterior, with what the bounds and the entropy are."""
    log = problem.log
    rho, squares, weight_squares, gini = np.hstack([
        np.stack([*(np.einsum("ij,ij->i", *pair) for pair in ((post, w), (post, post), (w, w))), half_gini(post, w)])
        for post, w in posterior_blocks(posterior, log, problem.policy, features)
    ])  # fmt: skip
    facts = TrainingFacts(
        iterations=0 if not history.iterations else history.iterations[-1] + 1,
        history={"iteration": tuple(map(float, history.iterations)), **history.losses},
        stopped_early=history.stopped_early,
        bias_bound=float(gini.mean()),
        variance_bound=float((log.rewards**2 * squares * weight_squares).mean() / len(log)),
        renyi_entropy=float(-np.log(squares).mean()),
        effective_actions=float((1 / squares).mean()),
        converged=posterior.converged,
    )
    error = inference.stderr(inference.units(rho, log.clusters))
    notes = (EMBEDDING_BIAS,) if posterior.converged else (EMBEDDING_BIAS, NOT_CONVERGED)
    diagnostics = weighted(rho, rho, weight_facts(rho, error, problem.unsupported_mass), extra=notes)
    return mean_of(name, problem, rho * log.rewards, in_words(replace(diagnostics, training=facts), DEFAULT))


@final
@dataclass(frozen=True)
class NetworkOutcome(OutcomeModel):
    """The network of CAEL-MIPS as a reward model: r_hat(x, a) = f(x, a)'x, trained on the reward loss alone.

    >>> NetworkOutcome(training=Training(iterations=50)).training.iterations
    50
    """

    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: Training = field(default_factory=Training)

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        return self.fit_many([log], [seed])[0]

    def fit_without(self, log: LoggedData, held_out: list[Any], seed: int) -> list[FittedOutcome]:
        """All folds trained at once."""
        rows = [np.setdiff1d(np.arange(len(log)), fold) for fold in held_out]
        return list(self.fit_many([log] * len(rows), [seed + t for t in range(len(rows))], rows))

    def fit_many(
        self, logs: Sequence[LoggedData], seeds: Sequence[int], rows: Sequence[Any] | None = None
    ) -> list[FittedNetwork]:
        """Networks of several logs of one shape, trained at once, each on its `rows` (all by default)."""
        require_torch(type(self).__name__)
        from cael.embedding import build, training
        from cael.embedding.batches import trial_data
        from cael.embedding.published.objective import CAELLoss
        from cael.embedding.tensors import Torch, pick_device

        device = pick_device(self.training.device)
        network = build.context_action_network(logs[0], self.network, device)
        data, loss = trial_data(logs, Torch(device), rows), CAELLoss(network, Objective(alpha=0.0, beta=0.0))
        fitted, _ = training.train(network, data, loss, self.training, seeds, label=type(self).__name__)
        trials = ({name: value[t : t + 1] for name, value in fitted.items()} for t in range(len(logs)))
        return [FittedNetwork(network, parameters, device) for parameters in trials]


@final
@dataclass(frozen=True, eq=False)
class FittedNetwork(OutcomeModel, FittedOutcome):
    """A trained network; parameters have one trial. As a model it is fixed, and `fit` gives it back."""

    trains: ClassVar[bool] = False
    network: Any
    parameters: Any
    device: Any

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        return self

    def predict(self, batch: Batch) -> Floats:
        from cael.embedding.build import rewards_of_all

        return rewards_of_all(self.network, self.parameters, batch.contexts, self.device)

    def at(self, batch: Batch, actions: Ints) -> Floats:
        from cael.embedding.build import rewards_at

        real = np.maximum(actions, 0)
        width = actions.shape[1] * self.network.cells // self.network.n_actions
        return batch.in_parts(
            lambda part, rows: rewards_at(self.network, self.parameters, part.contexts, real[rows], self.device), width
        )


@final
@dataclass(frozen=True)
class NetworkDM(Estimator):
    """The direct method with the network of CAEL-MIPS (eq. dm): V = (1/n) sum_i sum_a pi(a|x_i) r_hat(x_i, a).

    outcome: the network and its training. folds: 0 predicts the rows it was trained on, as the paper does; k >= 2
    cross-fits, all folds trained at once. DR(cael.NetworkOutcome()) corrects it with weighted residuals.

    seed: of initial weights and batches.

    >>> import cael
    >>> cael.NetworkDM().name
    'NetworkDM'
    """

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    panel: ClassVar[str] = "learned"
    outcome: NetworkOutcome = field(default_factory=NetworkOutcome)
    folds: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, NetworkOutcome):
            raise InputError("NetworkDM takes a NetworkOutcome; for other models use DM.")

    def solve(self, problem: Problem) -> Estimate:
        return self._estimate(problem, problem.outcome(self.outcome, self.folds, self.seed))

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, their networks trained at once and without folds."""
        if self.folds:
            raise InputError("NetworkDM.solve_many trains one network per problem: use folds=0, or solve.")
        models = self.outcome.fit_many([problem.log for problem in problems], seeds)
        terms = (outcome_terms(p.log, p.policy, model, 0, 0) for p, model in zip(problems, models, strict=True))
        return [self._estimate(p, replace(each, cross_fitted=False)) for p, each in zip(problems, terms, strict=True)]

    def _estimate(self, problem: Problem, terms: OutcomeTerms) -> Estimate:
        fitted = terms.cross_fitted
        diagnostics = Diagnostics(n=len(problem.log), unsupported_mass=problem.unsupported_mass, cross_fitted=fitted)
        notes = (MODEL_ERROR, NOT_TRAINED) if fitted is False else (MODEL_ERROR,)
        return mean_of(self.name, problem, terms.q_target, with_warnings(diagnostics, notes))
