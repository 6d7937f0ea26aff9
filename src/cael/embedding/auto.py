"""Auto: the estimator that a user gets without choosing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np

from cael.embedding.exact.blend import BOUND
from cael.embedding.exact.flagship import CAEL, solved
from cael.embedding.exact.path_part import KeptPath, PathPart
from cael.engine.answer import Answer
from cael.engine.asking import Asking
from cael.engine.columns import Column
from cael.engine.parts import Part
from cael.engine.steadying import steadied
from cael.errors import CaelError, SupportError
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.problem import Problem
from cael.estimators.weighting import SNIPS
from cael.inference.diagnostics import Candidate, with_warnings
from cael.inference.estimate import Estimate
from cael.log.held import Held
from cael.policies.expectations import second_moments, unsupported

SPARED = "Auto trained no network: the log alone has enough rows for this policy, so that there is little to gain."
ESTIMATED = "Auto left SNIPS out: the propensities are estimated, and its interval does not allow for their error."


@final
@dataclass(frozen=True)
class Auto(Estimator):
    """The one of SNIPS, SNDR and CAEL with the least estimated mean squared error; `evaluate` shows it first.

    CAEL says what its error is. That of the other two is estimated by variance plus squared bias: the variance is
    raised towards what the second moment of the weights implies (with few matching rows what they show is far too
    small); the bias comes from target mass on actions that are never logged. A candidate that this log or policy does
    not allow is left out, and a warning says so.

    learn: False leaves CAEL out, which takes seconds to train. enough: CAEL is not trained for a target to whose
    importance weights the log is worth so many rows (n / E w^2, from the first rows): there it has little to gain.
    Where the propensities are estimated, CAEL is always trained, as less hangs on them the more the reward model
    knows; and SNIPS is left out, whose interval does not allow for their error.
    cael: its settings. seed: of all of them.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> cael.Auto(learn=False).estimate(log, policy).diagnostics.choices
    2
    """

    needs: ClassVar[tuple[str, ...]] = ("propensities", "logged_probability")
    panel: ClassVar[str] = "learned"
    learn: bool = True
    enough: float = 800.0
    cael: CAEL = field(default_factory=CAEL)
    seed: int = 0

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        parts: list[Part] = []
        left_out: list[str] = []
        rows = asking.log.rows or asking.sample(self.cael.growth.rows, self.seed).of
        spared = self.spared(asking, target, rows) if self.learn else None
        left_out += [ESTIMATED] if doubtful(asking, target) else []
        for candidate in self.candidates(learn=self.learn and spared is None, plain=not left_out):
            try:
                parts.append(candidate.part(asking, target))
            except CaelError as error:
                asking.refuse_files(error)
                left_out.append(f"Auto left {candidate.name} out: {error}")
        left_out += [spared] if spared else []
        return AutoPart(self.name, target, tuple(parts), tuple(left_out), self)

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, all networks that are needed trained at once."""
        logs = [Held(problem.log) for problem in problems]
        askings = [Asking(log, (log.target(p.policy),), 0.0) for log, p in zip(logs, problems, strict=True)]
        spared = [self.spared(asking, 0, log.rows) for log, asking in zip(logs, askings, strict=True)]
        lean = [i for i, why in enumerate(spared) if self.learn and why is None]
        trained = self.cael.trained_on([problems[i] for i in lean], [seeds[i] for i in lean]) if lean else []
        learned = dict(zip(lean, (networks for _, networks in trained), strict=True))
        return [
            solved(problem, replace(self, cael=replace(self.cael, seed=seed), seed=seed), learned.get(i, {}))
            for i, (problem, seed) in enumerate(zip(problems, seeds, strict=True))
        ]

    def spared(self, asking: Asking, target: int, rows: int) -> str | None:
        """Why no network is trained; None where one is. Estimated propensities want the best reward model there is: the
        less it misses, the less hangs on them."""
        if asking.log.estimates_logging:
            return None
        return SPARED if worth(asking, target, rows) >= self.enough else None

    def candidates(self, *, learn: bool, plain: bool = True) -> list[Estimator]:
        """The estimators that it chooses from. plain: SNIPS among them."""
        learned = [replace(self.cael, seed=self.seed)] if learn else []
        return [*([SNIPS()] if plain else []), SNDR(seed=self.seed), *learned]

    def chosen(self, estimates: list[Estimate], errors: list[float], left_out: list[str]) -> Estimate:
        """The one of these with the least squared error, with the warnings that say what was left out."""
        if not estimates:
            raise SupportError("Auto found no estimator that this log allows: " + " ".join(left_out))
        best = int(np.argmin(errors))
        winner = estimates[best]
        path = tuple(
            Candidate(estimate.estimator, estimate.value, float(np.sqrt(error)), True, i == best)
            for i, (estimate, error) in enumerate(zip(estimates, errors, strict=True))
        )
        note = f"Auto chose {winner.estimator.split('(')[0]} from {len(estimates)} candidates."
        d = replace(winner.diagnostics, choices=len(estimates), path=(*path, *winner.diagnostics.path))
        d = with_warnings(d, (note, *left_out))
        unbiased = unbiased_among(winner, estimates)
        return replace(winner, estimator=self.name, diagnostics=d, score_range=None, unbiased=unbiased)


def unbiased_among(winner: Estimate, estimates: Sequence[Estimate]) -> tuple[Estimate, ...]:
    """What the interval of a blend is no wider than: the widest of the other candidates, and its own unbiased end."""
    if not winner.unbiased:
        return ()
    others = [estimate for estimate in estimates if estimate is not winner]
    return tuple(replace(other, unbiased=winner.unbiased) for other in others) or winner.unbiased


def doubtful(asking: Asking, target: int) -> bool:
    """Whether propensities are estimated, and estimators with a reward model can be had, which know what that costs."""
    return asking.log.estimates_logging and asking.targets[target].complete


def worth(asking: Asking, target: int, rows: int) -> float:
    """n / E w^2 for a target, from the first rows of a log with so many rows: how many rows of the target's own it is
    worth to importance weights. 0 where a policy is not known in full, or the target plays what is never logged."""
    if not asking.targets[target].complete:
        return 0.0
    probe = asking.log.probe(contexts=True)
    try:
        logging = asking.whole_logging(probe)
    except CaelError as error:  # CAEL, which is asked next, says the same
        asking.refuse_files(error)
        return 0.0
    policy, batch = asking.targets[target].on(probe), probe.batch()
    if logging is None or unsupported(logging, policy, batch).any():
        return 0.0
    return rows / float(second_moments(logging, policy, batch).mean())


@final
@dataclass(frozen=True, eq=False)
class AutoPart(Part):
    """Auto on a target. parts: of the candidates. left_out: why others are."""

    name: str
    target: int
    parts: tuple[Part, ...]
    left_out: tuple[str, ...]
    estimator: Auto

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return tuple(column for part in self.parts for column in part.columns)

    @property
    def doubted(self) -> tuple[Column, ...]:  # type: ignore[override]
        return tuple(column for part in self.parts for column in part.doubted)

    def estimate(self, answer: Answer) -> Estimate:
        estimates, errors, left_out = [], [], list(self.left_out)
        second = fitted_second(answer, self.parts)
        for part in self.parts:
            try:
                estimate = with_hole(with_second(part.estimate(answer), answer, second), answer, self.target)
            except SupportError as error:
                left_out.append(f"Auto left {part.name} out: {error}")
            else:
                estimates.append(estimate)
                errors.append(error_of(estimate))
        return self.estimator.chosen(estimates, errors, left_out)


def fitted_second(answer: Answer, parts: Sequence[Part]) -> float | None:
    """E w^2 by a fitted logging policy, which CAEL sums; None where it was not fitted."""
    paths = [part.path for part in parts if isinstance(part, PathPart)]
    return float(KeptPath(answer, paths[0]).second[0]) if paths and not paths[0].known else None


def with_second(estimate: Estimate, answer: Answer, second: float | None) -> Estimate:
    """The estimate, its standard error raised by E w^2 as a fitted logging policy has it: few rows that match show far
    less. With the policy known, estimates do that themselves."""
    pooled = estimate.diagnostics.pooled
    if second is None or pooled is None or pooled.second >= second or estimate.diagnostics.embedding is not None:
        return estimate
    return steadied(answer, estimate, replace(pooled, second=second))


def with_hole(estimate: Estimate, answer: Answer, target: int) -> Estimate:
    """The estimate, allowing for the bias of target mass on actions that are never logged where it does not yet."""
    pooled = estimate.diagnostics.pooled
    if estimate.diagnostics.bias_bound is not None or pooled is None:
        return estimate
    bound = BOUND * (answer.unsupported(target) or 0.0) * float(np.sqrt(pooled.noise))
    return replace(estimate, diagnostics=replace(estimate.diagnostics, bias_bound=bound))


def error_of(estimate: Estimate) -> float:
    """The estimated mean squared error: what CAEL says of itself; of the others variance and squared bias."""
    d = estimate.diagnostics
    if d.embedding is None:
        return estimate.error**2 + ((d.bias_bound or 0.0) / BOUND) ** 2
    return d.embedding.error**2 + ((d.moved or 0.0) / BOUND) ** 2
