"""Problem: a log and a target policy, with the per-row facts that estimators share, each computed at most once."""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.engine.answer import refuse_no_support
from cael.engine.asking import NEEDS, Asking, lacking, named_error
from cael.errors import InputError, NeedsError
from cael.log.batch import FEW
from cael.log.held import Held
from cael.log.logged import LoggedData
from cael.outcomes.outcome_model import OutcomeModel, OutcomeTerms, Trained, terms_of, train
from cael.policies.expectations import unsupported
from cael.policies.fitted import FittedLogging, LoggingFit
from cael.policies.given import PolicyLike
from cael.policies.policy import logged_probability


@final
class Problem:
    """The question "what would `policy` have earned on `log`?"."""

    def __init__(self, log: LoggedData, policy: PolicyLike) -> None:
        if not isinstance(log, LoggedData):
            raise InputError(f"expected a cael.LoggedData; got {type(log).__name__}.")
        self.log = log
        self._held = Held(log)
        self._target = self._held.target(policy)
        assert self._target.policy is not None
        self.policy = self._target.policy
        self._outcomes: dict[tuple[OutcomeModel, int, int], OutcomeTerms] = {}
        self._trained: dict[tuple[OutcomeModel, int, int], Trained] = {}

    def of(self, policy: PolicyLike) -> Problem:
        """The same question about another policy; outcome models, which do not depend on it, are shared."""
        problem = Problem(self.log, policy)
        problem._trained = self._trained
        return problem

    def missing(self, needs: tuple[str, ...]) -> list[str]:
        """Those of the needs that this log and policy cannot meet, in words."""
        return lacking(needs, self._held, self._target)

    def require(self, name: str, needs: tuple[str, ...]) -> None:
        """An error where something that an estimator needs is not known."""
        missing = self.missing(needs)
        if missing:
            raise NeedsError(f"{name} needs {'; and '.join(missing)}.")

    def completed(self, name: str, needs: tuple[str, ...]) -> tuple[Problem, LoggingFit | None]:
        """The problem, with a fitted logging policy where it needs all probabilities and those of logged actions are
        known; or an error that says what is missing."""
        asking = Asking(self._held, (self._target,), 0.0)
        try:
            asking.require(needs, 0)
        except NeedsError as error:
            raise named_error(name, error) from None
        if asking.fitted is None:
            return self, None
        log = asking.fitted.attached(self.log)
        assert isinstance(log.logging, FittedLogging)
        return Problem(log, self.policy), log.logging.fit_for(log.whole, self.weights)

    @cached_property
    def weights(self) -> Floats:
        """w_i = pi(a_i|x_i) / mu(a_i|x_i), shape (n,); refuses a target without any support."""
        log = self.log
        if log.propensities is None:
            raise NeedsError(f"importance weights need {NEEDS['propensities']}.")
        batches = log.batches(width=FEW)
        w: Floats = np.concatenate([logged_probability(self.policy, batch) for batch in batches]) / log.propensities
        refuse_no_support(float(w.max()), self.unsupported_mass)
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
