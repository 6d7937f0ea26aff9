"""Auto: the estimator that a user gets without choosing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from cael.embedding.exact.blend import BOUND
from cael.embedding.exact.flagship import CAEL, solved
from cael.engine.answer import Answer, spread
from cael.engine.asking import Asking
from cael.engine.columns import Column, Residual, Reward, SecondMoment
from cael.engine.parts import Part
from cael.errors import CaelError, SupportError
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.problem import Problem
from cael.estimators.weighting import SNIPS
from cael.inference.diagnostics import Candidate, with_warnings
from cael.inference.estimate import Estimate


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
    panel: ClassVar[str] = "learned"
    learn: bool = True
    cael: CAEL = field(default_factory=CAEL)
    seed: int = 0

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        parts: list[Part] = []
        left_out: list[str] = []
        for candidate in self.candidates():
            try:
                parts.append(candidate.part(asking, target))
            except CaelError as error:
                asking.refuse_files(error)
                left_out.append(f"Auto left {candidate.name} out: {error}")
        known = asking.log.logging is not None and asking.targets[target].complete
        floor = (SecondMoment(target),) if known else ()
        return AutoPart(self.name, target, tuple(parts), tuple(left_out), self, floor)

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, all their networks trained at once."""
        trained = self.cael.trained_on(problems, seeds)
        return [
            solved(problem, replace(self, cael=cael, seed=cael.seed), learned)
            for problem, (cael, learned) in zip(problems, trained, strict=True)
        ]

    def candidates(self) -> list[Estimator]:
        learned = [replace(self.cael, seed=self.seed)] if self.learn else []
        return [SNIPS(), SNDR(seed=self.seed), *learned]

    def chosen(self, estimates: list[Estimate], left_out: list[str]) -> Estimate:
        """The one of these with the least error, with the warnings that say what was left out."""
        if not estimates:
            raise SupportError("Auto found no estimator that can say anything: " + " ".join(left_out))
        errors = np.array([_error(estimate) for estimate in estimates])
        best = int(errors.argmin())
        winner = estimates[best]
        path = tuple(
            Candidate(estimate.estimator, estimate.value, float(np.sqrt(error)), True, i == best)
            for i, (estimate, error) in enumerate(zip(estimates, errors, strict=True))
        )
        note = f"Auto took {winner.estimator.split('(')[0]} out of {len(estimates)}."
        d = replace(winner.diagnostics, choices=len(estimates), path=(*path, *winner.diagnostics.path))
        d = with_warnings(d, (note, *left_out))
        return replace(winner, estimator=self.name, diagnostics=d, score_range=None)


@final
@dataclass(frozen=True, eq=False)
class AutoPart(Part):
    """Auto on a target. parts: of the candidates. left_out: why others are. floor: what bounds standard errors."""

    name: str
    target: int
    parts: tuple[Part, ...]
    left_out: tuple[str, ...]
    estimator: Auto
    floor: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return (*(column for part in self.parts for column in part.columns), *self.floor)

    def estimate(self, answer: Answer) -> Estimate:
        estimates, left_out = [], list(self.left_out)
        for part in self.parts:
            try:
                estimates.append(judged(part.estimate(answer), spread_of(answer, part), answer, self.target))
            except SupportError as error:
                left_out.append(f"Auto left {part.name} out: {error}")
        return self.estimator.chosen(estimates, left_out)


def spread_of(answer: Answer, part: Part) -> float:
    """The standard deviation of the reward, or of what the outcome model of a part leaves of it."""
    residuals = [column for column in part.columns if isinstance(column, Residual)]
    return spread(answer, residuals[0] if residuals else Reward())


def _error(estimate: Estimate) -> float:
    d = estimate.diagnostics
    if d.embedding is not None:
        # Standard error and bias bound of a blend both hold the noise between its two ends: it counts once.
        return d.embedding.error**2
    return max(estimate.stderr, d.stderr_floor or 0.0) ** 2 + ((d.bias_bound or 0.0) / BOUND) ** 2


def judged(estimate: Estimate, spread: float, answer: Answer, target: int) -> Estimate:
    """The estimate with a bias bound and a floor of its standard error, for those that bring none of their own.

    spread: the standard deviation of the reward, or of what the outcome model leaves of it.
    """
    d = estimate.diagnostics
    if d.bias_bound is not None:
        return estimate
    bound = BOUND * (answer.unsupported(target) or 0.0) * spread
    floor = spread * float(np.sqrt(answer.second_moment(target) / estimate.n))
    return replace(estimate, diagnostics=replace(d, bias_bound=bound, stderr_floor=floor))
