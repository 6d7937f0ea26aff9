"""Auto: the estimator that a user gets without choosing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.embedding.blend import BOUND
from cael.embedding.cael import CAEL
from cael.errors import SupportError
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.problem import Problem
from cael.estimators.weighting import SNIPS
from cael.inference.diagnostics import Candidate, with_warnings
from cael.inference.estimate import Estimate
from cael.log.logged import FEW, Batch
from cael.policies import draws
from cael.policies.policy import Policy, probabilities, probability_of, support


@final
@dataclass(frozen=True)
class Auto(Estimator):
    """The one of SNIPS, SNDR and CAEL with the least estimated mean squared error; `evaluate` shows it first.

    CAEL says what its error is. That of the other two is estimated by variance plus squared bias: the variance is the
    larger of what the contributions show and of what the known second moment of the weights implies (with few matching
    rows the first is far too small); the bias comes from target mass on actions that are never
    logged. `interval()` accounts for the choice by Bonferroni's inequality. A candidate that this
    log or policy does not allow is left out, and a warning says so.

    learn: False leaves CAEL out, which takes seconds to train. cael: its settings. seed: of all of them.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> cael.Auto(learn=False).estimate(log, policy).diagnostics.choices
    2
    """

    needs: ClassVar[tuple[str, ...]] = ("propensities", "logged_probability")
    learn: bool = True
    cael: CAEL = field(default_factory=CAEL)
    seed: int = 0

    def solve(self, problem: Problem) -> Estimate:
        return self.among(problem, None)

    def among(self, problem: Problem, learned: Estimate | None) -> Estimate:
        """The choice, with CAEL's estimate where it is there already."""
        left_out: list[str] = []
        found: list[Estimate] = []
        for each in self.candidates():
            if learned is not None and isinstance(each, CAEL):
                found.append(learned)
                continue
            missing = problem.missing(each.needs)
            if isinstance(each, CAEL):
                missing += to_learn(equal=bool((problem.log.rewards == problem.log.rewards[0]).all()))
            if missing:
                left_out.append(f"Auto left {each.name} out: it needs {'; and '.join(missing)}.")
                continue
            try:
                made = each.solve(problem)
                spread = 0.0 if made.diagnostics.bias_bound is not None else _spread(each, problem)
                found.append(judged(made, spread, problem.unsupported_mass, lambda: second_moment(problem)))
            except SupportError as error:
                left_out.append(f"Auto left {each.name} out: {error}")
        return self.chosen(found, left_out)

    def candidates(self) -> list[Estimator]:
        learned = [replace(self.cael, seed=self.seed)] if self.learn else []
        return [SNIPS(), SNDR(seed=self.seed), *learned]

    def chosen(self, found: list[Estimate], left_out: list[str]) -> Estimate:
        """The one of these with the least error, with the warnings that say what was left out."""
        if not found:
            raise SupportError("Auto found no estimator that can say anything: " + " ".join(left_out))
        errors = np.array([_error(each) for each in found])
        best = int(errors.argmin())
        winner = found[best]
        path = tuple(
            Candidate(each.estimator, each.value, float(np.sqrt(error)), True, i == best)
            for i, (each, error) in enumerate(zip(found, errors, strict=True))
        )
        note = f"Auto took {winner.estimator.split('(')[0]} out of {len(found)}."
        told = replace(winner.diagnostics, choices=len(found), path=(*path, *winner.diagnostics.path))
        told = with_warnings(told, (note, *left_out))
        return replace(winner, estimator=self.name, diagnostics=told, score_range=None)


def _error(estimate: Estimate) -> float:
    d = estimate.diagnostics
    if d.embedding is not None:
        # Standard error and bias bound of a blend both hold the noise between its two ends: it counts once.
        return d.embedding.error**2
    return max(estimate.stderr, d.stderr_floor or 0.0) ** 2 + ((d.bias_bound or 0.0) / BOUND) ** 2


def to_learn(*, equal: bool) -> list[str]:
    """What CAEL needs beside what is known of the policies, in words. equal: whether all rewards are."""
    missing = []
    if importlib.util.find_spec("torch") is None:
        missing.append("torch, which is not installed (pip install 'cael[learn]')")
    return [*missing, "rewards that are not all equal, to learn from"] if equal else missing


def judged(estimate: Estimate, spread: float, unsupported: float | None, second: Callable[[], float]) -> Estimate:
    """The estimate with a bias bound and a floor of its standard error, for those that bring none of their own.

    spread: the standard deviation of the reward, or of what the outcome model leaves of it. unsupported: target mass on
    actions that are never logged (None: unknown). second: gives E w^2.
    """
    d = estimate.diagnostics
    if d.bias_bound is not None:
        return estimate
    bound, floor = BOUND * (unsupported or 0.0) * spread, spread * float(np.sqrt(second() / estimate.n))
    return replace(estimate, diagnostics=replace(d, bias_bound=bound, stderr_floor=floor))


def _spread(estimator: Estimator, problem: Problem) -> float:
    """The standard deviation of the reward, or of what the outcome model leaves of it."""
    rewards = problem.log.rewards
    if not isinstance(estimator, SNDR):
        return float(rewards.std())
    return float((rewards - problem.outcome(estimator.outcome, estimator.folds, estimator.seed).q_logged).std())


def second_moment(problem: Problem) -> float:
    """E w^2: exact over all actions where both policies are known, else the mean over the log."""
    log = problem.log
    if log.logging is None or not log.logging.complete or not problem.policy.complete:
        return float((problem.weights**2).mean())
    return sum(float(second_moments(log.logging, problem.policy, each).sum()) for each in log.batches(FEW)) / len(log)


def second_moments(logging: Policy, policy: Policy, batch: Batch) -> Floats:
    """sum_a pi^2 / mu (b,); from lists alone where both policies have one, or the target has one without a rest."""
    target, logged = support(policy, batch), support(logging, batch)
    if target is not None and not target.rest.any():
        return _squares(target.probabilities, probability_of(logging, batch, target.actions)).sum(axis=1)
    if target is not None and logged is not None:
        both, _, (extra,) = draws.merged(
            np.hstack([target.actions, logged.actions]), np.hstack([target.excess(), np.zeros(logged.actions.shape)])
        )
        listed = _squares(
            np.where(both >= 0, extra + target.rest[:, None], 0.0), probability_of(logging, batch, both)
        ).sum(axis=1)
        return listed + (batch.n_actions - (both >= 0).sum(axis=1)) * _squares(target.rest, logged.rest)
    return batch.in_parts(
        lambda part, _: _squares(probabilities(policy, part), probabilities(logging, part)).sum(axis=1)
    )


def _squares(pi: Floats, mu: Floats) -> Floats:
    return np.divide(pi**2, mu, out=np.zeros_like(pi), where=mu > 0)
