"""CAELMIPS, AELMIPS and NetworkDM: learned embeddings as estimators like any other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.embedding.published.weighing import NOT_CONVERGED, Learned, Trained, sample_rows, weigh
from cael.embedding.settings import (
    TRAININGS,
    NetworkSettings,
    Objective,
    Training,
    nearest,
    objective,
    require_torch,
)
from cael.engine.asking import Asking, ask
from cael.engine.drawn import with_logging
from cael.engine.parts import MODEL_ERROR, NOT_TRAINED, Form, Part, form_part
from cael.errors import InputError, choose
from cael.estimators.estimator import Estimator, mean_of
from cael.estimators.marginal import EMBEDDING_BIAS
from cael.estimators.marginal_weights import MarginalWeight
from cael.estimators.problem import Problem
from cael.inference.diagnostics import Diagnostics, with_warnings
from cael.inference.estimate import Estimate
from cael.log.batch import Batch
from cael.log.held import Held
from cael.log.logged import LoggedData
from cael.outcomes.outcome_model import FittedOutcome, OutcomeModel, OutcomeTerms, outcome_terms


class LearnedMIPS(Estimator):
    """Algorithm 1: train a network, fit the posterior of actions given its embeddings, weigh, average.

    A log of more than `sample_rows` rows, and one in files, trains and fits on a sample of them, and weighs all rows.
    reading: the objective. schedule: the training. network_of: the network for logs of one shape, on a device.
    """

    needs: ClassVar[tuple[str, ...]] = ("logging", "probabilities")
    panel: ClassVar[str] = "learned"
    final_iter: int
    seed: int

    @property
    @abstractmethod
    def reading(self) -> Objective: ...

    @property
    @abstractmethod
    def schedule(self) -> Training: ...

    @abstractmethod
    def network_of(self, logs: Sequence[LoggedData], device: Any) -> Any: ...

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        most = sample_rows(asking.log.n_actions)
        if asking.held is not None and len(asking.held) <= most:
            return self._whole(asking, target)
        require_torch(type(self).__name__)
        if (self, target) not in asking.learned:
            asking.learned[self, target] = self._sampled(asking, target, most)
        return form_part(asking, self.name, target, asking.learned[self, target])

    def _sampled(self, asking: Asking, target: int, most: int) -> Form:
        """The weights of all rows, by a network and a posterior that saw a sample of them."""
        known, given = asking.log.logging, asking.targets[target]
        more = (*given.columns, *(() if known is None else known.columns))
        sample = asking.sample(most, self.seed, tuple(dict.fromkeys(more)))
        log, policy = with_logging(asking.log, sample), sample.policy(given) if asking.held is None else given.policy
        log = asking.fit.attached(log) if known is None else log
        assert policy is not None  # of a log in memory
        trained = self._trained([Problem(log, policy)], [self.seed])
        return Form(MarginalWeight(target, trained.source(log, self)), notes=self._notes(trained.learned[0]))

    def _notes(self, learned: Learned) -> tuple[str, ...]:
        """What to say of the embedding, of terms that trained nothing, and of a solver that stopped too early."""
        late = () if learned.posterior.converged else (NOT_CONVERGED,)
        return EMBEDDING_BIAS, *self.reading.without_effect, *late

    def solve(self, problem: Problem) -> Estimate:
        if len(problem.log) > sample_rows(problem.log.n_actions):
            held = Held(problem.log)
            return ask(held, {"": problem.policy}, [self], asked=(self.name,), controls=None).of(self.name, 0)
        return self.solve_many([problem], [self.seed])[0]

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, trained at once (logs of equal length and as many actions)."""
        if len(problems[0].log) > sample_rows(problems[0].log.n_actions):
            each = zip(problems, seeds, strict=True)
            return [replace(self, seed=seed).solve(problem) for problem, seed in each]  # type: ignore[type-var]
        learned = self._trained(problems, seeds).learned
        return [weigh(self.name, p, each, self._notes(each)) for p, each in zip(problems, learned, strict=True)]

    def _trained(self, problems: Sequence[Problem], seeds: Sequence[int]) -> Trained:
        require_torch(type(self).__name__)
        from cael.embedding import build, training
        from cael.embedding.batches import trial_data
        from cael.embedding.published.inner import fit_all_rows
        from cael.embedding.published.objective import CAELLoss, weights_for
        from cael.embedding.tensors import Torch, pick_device

        logs, reading = [problem.log for problem in problems], self.reading
        device = pick_device(self.schedule.device)
        data = trial_data(logs, Torch(device))
        network = self.network_of(logs, device)
        loss = CAELLoss(network, reading, weights_for(problems, reading, device))
        parameters, histories = training.train(network, data, loss, self.schedule, seeds, label=self.name)
        e, r_hat = build.embeddings(network, parameters, data)
        if reading.features == "xe":
            e = np.concatenate([np.stack([log.contexts for log in logs]), e], axis=2)
        posteriors = fit_all_rows(list(e), logs, reading, self.final_iter, device)
        parts = zip(posteriors, e, r_hat, histories, strict=True)
        return Trained(parameters, [Learned(*each) for each in parts])


@final
@dataclass(frozen=True)
class CAELMIPS(LearnedMIPS):
    """CAEL-MIPS (Chandak, Liu and Lee 2025), Algorithm 1: MIPS with embeddings e = f(x, a) learned to lower its error.

    V = (1/n) sum_i sum_a mu(a|x_i, e_i) pi(a|x_i)/mu(a|x_i) r_i, the posterior by logistic regression. f minimises
    L_R + alpha L_bias + beta L_var. Biased in general, and its interval covers E[V]; see `cael.theory` for the bounds.

    preset: which reading of the paper. "constant-posterior" takes the posterior as a constant in each step, which gives
    L_bias no gradient; the paper's first figure holds under it. "through-posterior" lets the gradient run through the
    posterior. "offset" is constant-posterior with log mu(a|x) in the posterior. "literal" is the text, letter by
    letter: through the posterior, n of L_var is the batch, plain gradient steps. objective: every choice spelled out
    (preset is "custom" then, unless it is that of a preset). network, training: sizes and optimiser, which the paper
    does not state (None: the preset's). final_iter: limit of the final fit (line 10). seed: of initial weights,
    batches, dropout.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> quick = cael.CAELMIPS(training=cael.Training(iterations=20, batch_size=64))
    >>> quick.estimate(log, policy).diagnostics.training.iterations
    20
    >>> cael.CAELMIPS(objective=cael.Objective(alpha=1.0, beta=0.01)).name
    'CAELMIPS(alpha=1, beta=0.01)'
    """

    preset: str = "constant-posterior"
    objective: Objective | None = None
    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: Training | None = None
    final_iter: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.objective is None:
            object.__setattr__(self, "objective", objective(self.preset))
        preset, changes = nearest(self.reading)
        exact = "custom" if changes else preset
        if self.preset not in ("constant-posterior", exact):
            raise InputError(f"preset={self.preset!r} and an objective that is {exact!r}: pass one of the two.")
        object.__setattr__(self, "preset", exact)
        if self.training is None:
            object.__setattr__(self, "training", TRAININGS.get(preset, Training()))

    @property
    def name(self) -> str:
        """With the preset and what differs from it, for tables."""
        preset, changes = nearest(self.reading)
        words = [] if preset == "constant-posterior" else [preset]
        words += [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                  for name, value in changes.items()]  # fmt: skip
        words += [] if self.network.hidden_layers == 2 else [f"hidden_layers={self.network.hidden_layers}"]
        words += [] if self.network.contexts else ["no contexts"]
        stated = TRAININGS.get(preset, Training()).optimiser
        words += [] if self.schedule.optimiser == stated else [self.schedule.optimiser]
        return "CAELMIPS" + (f"({', '.join(words)})" if words else "")

    @property
    def reading(self) -> Objective:
        """The reading of the paper that the preset stands for."""
        assert self.objective is not None  # set in __post_init__
        return self.objective

    @property
    def schedule(self) -> Training:
        """How it is trained."""
        assert self.training is not None  # set in __post_init__
        return self.training

    def network_of(self, logs: Sequence[LoggedData], device: Any) -> Any:
        """The network for logs of one shape."""
        from cael.embedding.build import context_action_network

        return context_action_network(logs, self.network, device)


AEL_PRESETS = {
    "repository": Training(epochs=100, batch_size=64, learning_rate=1e-4, weight_decay=1e-2),
    "trained": Training(epochs=250, batch_size=32, learning_rate=1e-2, weight_decay=1e-2),
}
"""The settings of the authors' repository; and such that the network learns something."""


@final
@dataclass(frozen=True)
class AELMIPS(LearnedMIPS):
    """AEL-MIPS (Cief, Golebiowski, Schmidt, Abedjan and Bekasov 2024): MIPS with learned embeddings of actions alone.

    V of `CAELMIPS` with e = W [onehot(a), features(a)] + b from the linear reward model r_hat = e'x + c, trained on
    the reward loss only; posterior by logistic regression on e.

    preset: "repository" (the published settings, under which the embedding hardly moves from where it started) or
    "trained". actions: "onehot", "features", "both". C, final_iter: of the posterior. offset: give it log mu(a|x), as
    preset "offset" of `CAELMIPS` does.

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
    offset: bool = False

    def __post_init__(self) -> None:
        choose("preset", self.preset, tuple(AEL_PRESETS))
        choose("actions", self.actions, ("onehot", "features", "both"))

    @property
    def name(self) -> str:
        """With the preset, for tables."""
        changed = [] if self.preset == "repository" else [self.preset]
        changed += [] if self.actions == "onehot" else [self.actions]
        changed += ["offset"] if self.offset else []
        return "AELMIPS" + (f"({', '.join(changed)})" if changed else "")

    @property
    def reading(self) -> Objective:
        """The reading of the algorithm that the preset stands for."""
        return Objective(alpha=0.0, beta=0.0, C=self.C, offset=self.offset)

    @property
    def schedule(self) -> Training:
        """The preset's training."""
        return replace(AEL_PRESETS[self.preset], device=self.device)

    def network_of(self, logs: Sequence[LoggedData], device: Any) -> Any:
        """The network for logs of one shape."""
        from cael.embedding.build import action_network

        return action_network(logs, self.actions, device)


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
        network = build.context_action_network(logs, self.network, device)
        data, loss = trial_data(logs, Torch(device), rows), CAELLoss(network, Objective(alpha=0.0, beta=0.0))
        fitted, _ = training.train(network, data, loss, self.training, seeds, label=type(self).__name__)
        trials = ({name: value[t : t + 1] for name, value in fitted.items()} for t in range(len(logs)))
        return [FittedNetwork(network.of_trial(t), parameters, device) for t, parameters in enumerate(trials)]


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

    def part(self, asking: Asking, target: int) -> Part:
        if asking.held is None:
            return form_part(asking, self.name, target, Form(outcome=self.modelled))
        return super().part(asking, target)

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
