"""Problem: a log and a target policy, with the per-row facts that estimators share, each computed at most once."""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Floats
from cael.engine.asking import NEEDS
from cael.errors import InputError, NeedsError, PolicyError, SupportError
from cael.inference import intervals as inference
from cael.inference.diagnostics import WeightFacts, weight_facts
from cael.log.logged import FEW, LoggedData
from cael.outcomes.outcome_model import OutcomeModel, OutcomeTerms, Trained, terms_of, train
from cael.policies.expectations import unsupported
from cael.policies.policy import Policy, as_policy, logged_probability


@final
class Problem:
    """The question "what would `policy` have earned on `log`?"."""

    def __init__(self, log: LoggedData, policy: Policy | ArrayLike) -> None:
        if not isinstance(log, LoggedData):
            raise InputError(f"expected a cael.LoggedData; got {type(log).__name__}.")
        self.log = log
        self.policy = as_policy(policy)
        if self.policy.n_actions is not None and self.policy.n_actions != log.n_actions:
            raise PolicyError(f"{self.policy!r} has {self.policy.n_actions} actions, but the log has {log.n_actions}.")
        self._outcomes: dict[tuple[OutcomeModel, int, int], OutcomeTerms] = {}
        self._trained: dict[tuple[OutcomeModel, int, int], Trained] = {}

    def of(self, policy: Policy | ArrayLike) -> Problem:
        """The same question about another policy; outcome models, which do not depend on it, are shared."""
        made = Problem(self.log, policy)
        made._trained = self._trained
        return made

    def missing(self, needs: tuple[str, ...]) -> list[str]:
        """Those of the needs that this log and policy cannot meet, in words."""
        has = {
            "propensities": self.log.propensities is not None,
            "logging": self.log.logging is not None,
            "logged_probability": True,
            "probabilities": self.policy.complete,
        }
        return [NEEDS[need] for need in needs if not has[need]]

    def require(self, name: str, needs: tuple[str, ...]) -> None:
        missing = self.missing(needs)
        if missing:
            raise NeedsError(f"{name} needs {'; and '.join(missing)}.")

    @cached_property
    def weights(self) -> Floats:
        """w_i = pi(a_i|x_i) / mu(a_i|x_i), shape (n,); refuses a target without any support."""
        log = self.log
        if log.propensities is None:
            raise NeedsError(f"importance weights need {NEEDS['propensities']}.")
        w, at = np.empty(len(log)), 0
        for batch in log.batches(width=FEW):
            part = slice(at, at + len(batch))
            w[part] = logged_probability(self.policy, batch) / log.propensities[part]
            at += len(batch)
        mass = self.unsupported_mass
        if (not w.any() and mass is None) or (mass is not None and mass > 1 - 1e-9):
            raise SupportError(
                "the target has no support at all in this log: it gives probability 0 to every action that was "
                "logged. No weighting can say anything about it; collect data with exploration, or use DM, which "
                "extrapolates by a model."
            )
        w.setflags(write=False)
        return w

    @cached_property
    def unsupported_mass(self) -> float | None:
        """Mean over rows of the target's probability of actions that the logging policy never plays there."""
        log = self.log
        if log.logging is None or not log.logging.complete or not self.policy.complete:
            return None
        if log.logging.least or log.logging.positive:
            return 0.0
        return sum(float(unsupported(log.logging, self.policy, batch).sum()) for batch in log.batches(FEW)) / len(log)

    @cached_property
    def weight_facts(self) -> WeightFacts:
        w = self.weights
        return weight_facts(w, inference.stderr(inference.units(w, self.log.clusters)), self.unsupported_mass)

    @cached_property
    def max_weight(self) -> float | None:
        """The largest weight that is possible at all, where the two policies bound it beforehand."""
        logging = self.log.logging
        if logging is None or not logging.least or self.policy.most is None:
            return None
        return self.policy.most / logging.least

    def outcome(self, model: OutcomeModel, folds: int, seed: int) -> OutcomeTerms:
        """Predictions of an outcome model, trained once however many estimators ask for it."""
        key = (model, folds, seed)
        if key not in self._outcomes:
            self._outcomes[key] = terms_of(self.trained(model, folds, seed), self.policy)
        return self._outcomes[key]

    def trained(self, model: OutcomeModel, folds: int, seed: int) -> Trained:
        """An outcome model trained on the log."""
        key = (model, folds, seed)
        if key not in self._trained:
            self._trained[key] = train(self.log, model, folds, seed)
        return self._trained[key]
