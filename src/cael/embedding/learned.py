"""CAELMIPS, AELMIPS and NetworkDM: learned embeddings as estimators like any other."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.embedding.settings import NetworkSettings, Objective, Training, objective
from cael.engine.parts import MODEL_BIAS, NOT_TRAINED
from cael.errors import InputError, NeedsError, choose
from cael.estimators.estimator import Estimator, mean_of
from cael.estimators.marginal import EMBEDDING_BIAS, posterior_blocks
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.diagnostics import Diagnostics, TrainingFacts, in_words, weight_facts, weighted, with_warnings
from cael.inference.estimate import Estimate
from cael.judging.thresholds import DEFAULT
from cael.log.logged import Batch, LoggedData
from cael.outcomes.outcome_model import FittedOutcome, OutcomeModel, outcome_terms
from cael.policies.posterior import SoftmaxPosterior

if TYPE_CHECKING:
    from cael.embedding.training import History


def require_torch(name: str) -> None:
    """Say what to install where torch is missing."""
    if importlib.util.find_spec("torch") is None:
        raise NeedsError(f"{name} needs torch, which is not installed: pip install 'cael[learn]'.")


MIPS_NEEDS = ("logging", "probabilities")


@final
@dataclass(frozen=True)
class CAELMIPS(Estimator):
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

    needs: ClassVar[tuple[str, ...]] = MIPS_NEEDS
    panel: ClassVar[str] = "learned"
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
        return "CAELMIPS" if self.preset == "paper" else f"CAELMIPS({self.preset})"

    def solve(self, problem: Problem) -> Estimate:
        return self.solve_many([problem], [self.seed])[0]

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, trained at once (logs of equal length and the same actions)."""
        require_torch(type(self).__name__)
        from cael.embedding import build, training
        from cael.embedding.objective import CAELLoss, WeightSource

        logs, chosen = [problem.log for problem in problems], self._objective
        device = training.pick_device(self.training.device)
        network = build.context_action_network(logs[0], self.network, device)
        data = training.trial_data(logs, device)
        sort = chosen.bias == "gini" and chosen.alpha > 0 and chosen.posterior_gradient
        policies = [problem.policy for problem in problems]
        weights = WeightSource(logs, policies, device, sort=sort, log_mu=chosen.offset)
        loss = CAELLoss(network, chosen, weights, len(logs[0]), logs[0].n_actions)
        fitted, histories = training.train(network, data, loss, self.training, seeds, label=self.name)
        e = build.embeddings(network, fitted, data)
        if chosen.features == "xe":
            e = np.concatenate([np.stack([log.contexts for log in logs]), e], axis=2)
        return finish(self.name, problems, e, chosen, self.final_iter, histories, device)

    @property
    def _objective(self) -> Objective:
        assert self.objective is not None  # set in __post_init__
        return self.objective


AEL_PRESETS: dict[str, dict[str, Any]] = {
    # The settings of the authors' repository: 100 epochs of batches of 64 at a rate of 1e-4.
    "repository": {"epochs": 100, "batch_size": 64, "learning_rate": 1e-4},
    # Trained until it has learned something: 250 epochs of batches of 32 at 1e-2.
    "trained": {"epochs": 250, "batch_size": 32, "learning_rate": 1e-2},
}


@final
@dataclass(frozen=True)
class AELMIPS(Estimator):
    """AEL-MIPS (Cief, Golebiowski, Schmidt, Abedjan and Bekasov 2024): MIPS with learned embeddings of actions alone.

    V as of `CAELMIPS` with e = W [onehot(a), features(a)] + b from the linear reward model r_hat = e'x + c, trained on
    the reward loss only; posterior by logistic regression on e.

    preset: "repository" (the published settings, under which the embedding hardly moves from where it started) or
    "trained". actions: "onehot", "features", "both". C, final_iter: of the posterior.

    >>> import cael
    >>> cael.AELMIPS(preset="trained").name
    'AELMIPS(trained)'
    """

    needs: ClassVar[tuple[str, ...]] = MIPS_NEEDS
    panel: ClassVar[str] = "learned"
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
        changed = [] if self.preset == "repository" else [self.preset]
        changed += [] if self.actions == "onehot" else [self.actions]
        return "AELMIPS" + (f"({', '.join(changed)})" if changed else "")

    def schedule(self, n: int) -> Training:
        """The preset's epochs as steps, for n rows."""
        chosen = AEL_PRESETS[self.preset]
        batch = min(chosen["batch_size"], n)
        steps = chosen["epochs"] * (n // batch)
        return Training(steps, batch, chosen["learning_rate"], weight_decay=1e-2, device=self.device)

    def solve(self, problem: Problem) -> Estimate:
        return self.solve_many([problem], [self.seed])[0]

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, trained at once."""
        require_torch(type(self).__name__)
        from cael.embedding import build, training

        logs = [problem.log for problem in problems]
        device = training.pick_device(self.device)
        network = build.action_network(logs[0], self.actions, device)
        data = training.trial_data(logs, device)
        loss = reward_only(network)
        fitted, histories = training.train(network, data, loss, self.schedule(len(logs[0])), seeds, label=self.name)
        e = build.embeddings(network, fitted, data)
        chosen = Objective(alpha=0.0, beta=0.0, C=self.C)
        return finish(self.name, problems, e, chosen, self.final_iter, histories, device)


def reward_only(network: Any) -> Any:
    """L_R alone, as a loss for `train`."""
    from cael.embedding import losses

    def loss(parameters: Any, step: Any) -> Any:
        e = network.embed(parameters, step.x, step.a, step.masks)
        value = losses.reward_loss(network.reward(parameters, e, step.x), step.r)
        return value, {"reward": value}

    return loss


def finish(
    name: str,
    problems: Sequence[Problem],
    features: Floats,
    chosen: Objective,
    final_iter: int,
    histories: Sequence[History],
    device: Any,
) -> list[Estimate]:
    """Lines 10 and 11 for each trial: fit the posterior on all rows, weigh, average; features: (T, n, p)."""
    from cael.embedding.inner import fit_all_rows

    fitted = fit_all_rows(list(features), [problem.log for problem in problems], chosen, final_iter, device)
    rows = zip(problems, fitted, features, histories, strict=True)
    return [weigh(name, problem, posterior, z, history) for problem, posterior, z, history in rows]


def weigh(name: str, problem: Problem, fitted: SoftmaxPosterior, features: Floats, history: History) -> Estimate:
    """The MIPS estimate by a fitted posterior, with what the bounds and the entropy are."""
    log = problem.log
    rho, gini, squares, weight_squares = (np.empty(len(log)) for _ in range(4))
    at = 0
    for post, w in posterior_blocks(fitted, log, problem.policy, features):
        part = slice(at, at + len(post))
        rho[part] = np.einsum("ij,ij->i", post, w)
        squares[part] = np.einsum("ij,ij->i", post, post)
        weight_squares[part] = np.einsum("ij,ij->i", w, w)
        gini[part] = half_gini(post, w)
        at += len(post)
    r = log.rewards
    facts = TrainingFacts(
        iterations=0 if not history.iterations else history.iterations[-1] + 1,
        history={"iteration": tuple(map(float, history.iterations)), **history.losses},
        stopped_early=history.stopped_early,
        bias_bound=float(gini.mean()),
        variance_bound=float((r**2 * squares * weight_squares).mean() / len(log)),
        renyi_entropy=float(-np.log(squares).mean()),
        effective_actions=float((1 / squares).mean()),
        converged=fitted.converged,
    )
    return mean_of(name, problem, rho * r, learned_diagnostics(problem, rho, facts))


def half_gini(p: Floats, w: Floats) -> Floats:
    """sum over pairs of p_a p_b |w_a - w_b| for each row, in O(k log k): the numpy form of `losses.half_gini`."""
    order = np.argsort(w, axis=1)
    below = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)[:, :-1]
    return (below * (1 - below) * np.diff(np.take_along_axis(w, order, axis=1), axis=1)).sum(axis=1)


def learned_diagnostics(problem: Problem, rho: Floats, facts: TrainingFacts) -> Diagnostics:
    error = inference.stderr(inference.units(rho, problem.log.clusters))
    extra: tuple[str, ...] = (EMBEDDING_BIAS,)
    if not facts.converged:
        extra += ("The final posterior's solver stopped before it converged: raise final_iter.",)
    found = weighted(rho, rho, weight_facts(rho, error, problem.unsupported_mass), extra=extra)
    return in_words(replace(found, training=facts), DEFAULT)


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
        rows = [np.setdiff1d(np.arange(len(log)), each) for each in held_out]
        return list(self.fit_many([log] * len(rows), [seed + t for t in range(len(rows))], rows))

    def fit_many(
        self, logs: Sequence[LoggedData], seeds: Sequence[int], rows: Sequence[Any] | None = None
    ) -> list[FittedNetwork]:
        """Networks of several logs of one shape, trained at once, each on its `rows` (all by default)."""
        require_torch(type(self).__name__)
        from cael.embedding import build, training

        device = training.pick_device(self.training.device)
        network = build.context_action_network(logs[0], self.network, device)
        data = training.trial_data(logs, device, rows)
        fitted, _ = training.train(network, data, reward_only(network), self.training, seeds, label="NetworkOutcome")
        return [
            FittedNetwork(network, {name: value[t : t + 1] for name, value in fitted.items()}, str(device))
            for t in range(len(logs))
        ]


@final
@dataclass(frozen=True, eq=False)
class FittedNetwork(OutcomeModel, FittedOutcome):
    """A trained network; parameters have one trial. As a model it is fixed, and `fit` gives it back."""

    trains: ClassVar[bool] = False
    network: Any
    parameters: Any
    device: str

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        return self

    def predict(self, batch: Batch) -> Floats:
        import torch

        from cael.embedding.build import rewards_of_all

        return rewards_of_all(self.network, self.parameters, batch.contexts, torch.device(self.device))

    def at(self, batch: Batch, actions: Ints) -> Floats:
        import torch

        from cael.embedding.build import rewards_at

        some, device = np.maximum(actions, 0), torch.device(self.device)
        width = actions.shape[1] * self.network.cells // self.network.n_actions
        return batch.in_parts(
            lambda part, rows: rewards_at(self.network, self.parameters, part.contexts, some[rows], device), width
        )


@final
@dataclass(frozen=True)
class NetworkDM(Estimator):
    """The direct method with the network of CAEL-MIPS (eq. dm): V = (1/n) sum_i sum_a pi(a|x_i) r_hat(x_i, a).

    outcome: the network and its training. folds: 0 predicts the rows it was trained on, as the paper does; k >= 2
    cross-fits, all folds trained at once. DR(cael.NetworkOutcome()) corrects it with weighted residuals.

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
        terms = problem.outcome(self.outcome, self.folds, self.seed)
        return self._estimate(problem, terms.q_target, terms.cross_fitted)

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, their networks trained at once and without folds."""
        if self.folds:
            raise InputError("NetworkDM.solve_many trains one network per problem: use folds=0, or solve.")
        fitted = self.outcome.fit_many([problem.log for problem in problems], seeds)
        columns = (outcome_terms(p.log, p.policy, f, 0, 0) for p, f in zip(problems, fitted, strict=True))
        return [
            self._estimate(problem, terms.q_target, False) for problem, terms in zip(problems, columns, strict=True)
        ]

    def _estimate(self, problem: Problem, q_target: Floats, cross_fitted: bool | None) -> Estimate:
        found = Diagnostics(n=len(problem.log), unsupported_mass=problem.unsupported_mass, cross_fitted=cross_fitted)
        warnings = (MODEL_BIAS, NOT_TRAINED) if cross_fitted is False else (MODEL_BIAS,)
        return mean_of(self.name, problem, q_target, with_warnings(found, warnings))
