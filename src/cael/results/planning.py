"""plan: how many rows, or how much exploration, it takes to detect a lift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.engine.asking import NEEDS
from cael.engine.nuisances import in_memory
from cael.errors import LARGEST, InputError, NeedsError, positive_int
from cael.estimators.problem import Problem
from cael.inference import intervals as inference
from cael.inference.lift import rows_to_detect
from cael.inference.weights import effective_sample_size
from cael.judging.checks import graded
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Check, doubts, worst
from cael.log.batch import Batch
from cael.log.held import Held
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.outcomes.outcome_model import OutcomeModel, train
from cael.outcomes.ridge import Ridge
from cael.policies.given import PolicyLike
from cael.policies.policy import Policy, logged_probability, probabilities
from cael.policies.propensity import EstimatedLogging
from cael.results.lifts import LOGGING
from cael.results.plots import plot_plan
from cael.results.question import question_of, refuse_constant_rewards
from cael.results.sheet import Column, Note, Sheet, Shown, level_text

EXPLORATION = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@final
@dataclass(frozen=True)
class PlanOption:
    """One way to collect: a share of the decisions is drawn uniformly (of what is eligible), the others by the logging
    policy.

    rows: how many rows detect the lift (None: no number of rows does). spread: standard deviation of a row's
    contribution to the lift. cost: what the exploration loses per row, in units of the reward (estimated, None where
    unknown); negative where uniform actions earn more.
    """

    exploration: float
    rows: int | None
    spread: float | None
    cost: float | None


@final
@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown):
    """What it takes to detect a lift, two-sided at `level`, with probability `power`.

    lift: in units of the reward. baseline: the mean logged reward. n: rows of the log. detectable: the smallest lift
    that this log can detect (None: none at all). options: one for each share of exploration, as rows of a new log.
    enough: the smallest share of exploration with which `rows` new rows are enough (None: none of them).
    checks: doubts about the plan. baseline_name: of what the lift is over.
    policy: in words.
    """

    policy: str
    lift: float
    baseline: float
    level: float
    power: float
    n: int
    rows: int
    detectable: float | None
    options: tuple[PlanOption, ...]
    enough: float | None
    checks: tuple[Check, ...]
    baseline_name: str = LOGGING

    @property
    def rows_needed(self) -> int | None:
        """Rows that detect the lift under the logging policy as it is; None: no number does."""
        return next(option.rows for option in self.options if option.exploration == 0)

    @property
    def more_rows(self) -> int | None:
        """Rows to add to this log; 0 if it is large enough, None if no number is."""
        return None if self.rows_needed is None else max(0, self.rows_needed - self.n)

    @property
    def status(self) -> str:
        """The worst of the checks: "pass", "warn" or "fail"."""
        return worst(self.checks)

    def sentences(self) -> list[str]:
        """The answer in words."""
        over = "" if self.baseline_name == LOGGING else f" over {self.baseline_name}"
        goal = f"a lift of {self.lift:.4g}{over}" + (
            f" ({self.lift / abs(self.baseline):.2%})" if self.baseline else ""
        )
        size = f"This log of {self.n:,} rows can detect a lift of {self.detectable or 0:.4g}."
        need = f"That is enough for {goal}, which takes {self.rows_needed or 0:,} rows."
        if self.rows_needed is None:
            need = f"No number of rows of the logging policy detects {goal}: it never plays what is asked about."
        elif self.more_rows:
            need = f"To detect {goal} takes {self.rows_needed:,} rows, {self.more_rows:,} more than there are."
        share = f"With {self.rows:,} new rows, no share of uniform exploration is enough."
        if self.enough is not None:
            share = f"With {self.rows:,} new rows, {self.enough:.0%} of them drawn uniformly are enough."
        return [*([] if self.detectable is None else [size]), need, *([] if self.enough == 0 else [share])]

    def __repr__(self) -> str:
        return f"Plan({' '.join(self.sentences())})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        fields = asdict(self)
        lists = {"options": list(fields["options"]), "checks": list(fields["checks"])}
        more = {"rows_needed": self.rows_needed, "more_rows": self.more_rows, "sentences": self.sentences()}
        return {**fields, **lists, **more}

    def sheet(self) -> Sheet:
        columns = (
            Column("exploration", "percent", "drawn uniformly"), Column("rows", "count", "rows needed"),
            Column("cost", "rough", "cost per row"),
        )  # fmt: skip
        rows = tuple((o.exploration, "never" if o.rows is None else o.rows, o.cost) for o in self.options)
        title = f"level {level_text(self.level)}, power {level_text(self.power)}"
        return Sheet(title, columns, rows, tuple(map(Note, self.sentences())), doubts(self.checks))

    def plot(self, axes: Any = None) -> Any:
        """Rows needed against the share of exploration, on Matplotlib's axes, which are returned."""
        return plot_plan(self, axes)


def plan(
    log: LoggedData | ScannedLog,
    policy: PolicyLike,
    *,
    baseline: Any = None,
    lift: float = 0.01,
    relative: bool = True,
    level: float = 0.95,
    power: float = 0.8,
    rows: int | None = None,
    exploration: Sequence[float] = EXPLORATION,
    outcome: OutcomeModel | None = None,
    folds: int = 5,
    seed: int = 0,
    thresholds: Thresholds | None = None,
) -> Plan:
    """How many rows it takes to detect a lift of the policy over the baseline; and how many with exploration.

    baseline: a policy, alone or as (name, policy); None: the logging policy. lift: as a share of the mean logged
    reward, or in units of the reward with relative=False. rows: the size of the new log for which the least exploration
    is looked for (as many as there are, by default). exploration: shares of decisions that would be drawn uniformly.
    The lift is the one of `compare`: a self-normalised doubly robust estimate with `outcome` (Ridge by default), or
    SNIPS where only the probabilities of logged actions are known, minus the value of the baseline. What it would vary
    by under more exploration is estimated from this log by importance weighting. thresholds: where a doubt about the
    plan becomes a warning or a failure.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> cael.plan(log, policy, lift=0.05).more_rows
    0
    """
    inference.check_level(level)
    inference.check_level(power)
    given, over = log, question_of(None, baseline)
    log, policy = in_memory(given, policy, seed)
    other = None if over.baseline is None else in_memory(given, over.baseline, seed)[1]
    refuse_constant_rewards(Held(log))
    problem = Problem(log, policy)
    if log.propensities is None:
        raise NeedsError(f"plan needs {NEEDS['propensities']}.")
    logged, rows_there = log.mean_reward, worth_of(log)
    goal = _goal(lift, relative, logged)
    new_rows = rows_there if rows is None else positive_int("rows", rows)
    shares = _shares(exploration)
    pieces = _pieces(problem, Ridge() if outcome is None else outcome, folds, seed, other)
    factor, limits = _factor(level, power), thresholds or DEFAULT
    uniform = _uniform_value(log, limits)
    options = []
    for share in shares:
        spread = pieces.spread(share)
        need = None if spread is None else rows_to_detect(spread, goal, factor)
        cost = None if uniform is None else share * (logged - uniform) + 0.0
        options.append(PlanOption(share, need, spread, cost))
    now = pieces.spread(0.0)
    detectable = None if now is None else factor * now / math.sqrt(rows_there)
    enough = next((option.exploration for option in options if option.rows and option.rows <= new_rows), None)
    return Plan(
        repr(problem.policy), goal, logged, level, power, rows_there, new_rows, detectable, tuple(options), enough,
        _doubts(problem, limits), over.name,
    )  # fmt: skip


def _goal(lift: float, relative: bool, baseline: float) -> float:
    if not (isinstance(lift, int | float) and math.isfinite(lift) and lift > 0):
        raise InputError(f"lift must be a positive number, such as 0.01 for one percent; got {lift!r}.")
    if relative and baseline == 0:
        raise InputError("a relative lift needs a mean logged reward that is not 0; pass relative=False.")
    goal = abs(baseline) * lift if relative else float(lift)
    if not 1 / LARGEST <= goal <= LARGEST:
        raise InputError(f"lift must be between {1 / LARGEST:g} and {LARGEST:g} in units of the reward; got {goal!r}.")
    return goal


def _shares(exploration: Sequence[float]) -> list[float]:
    shares = sorted({0.0, *map(float, exploration)})
    if not all(0 <= share <= 1 for share in shares):
        raise InputError(f"exploration must be shares between 0 and 1; got {list(exploration)}.")
    return shares


def _factor(level: float, power: float) -> float:
    """How many standard errors a lift must have to be seen at `level` with probability `power`."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2) + ndtri(power))


@final
@dataclass(frozen=True, eq=False)
class _Pieces:
    """What the variance of a lift is made of; arrays (n,).

    base: probabilities of the logged action under the baseline, mu where that is the logging policy. gap: q(x, pi) -
    q(x, base); q(x, pi) - V where the baseline is the logging policy mu and not known in full, V the mean reward; 0
    without a model. rest: r - q(x, a), and r - V without a model. centred: what the baseline's value has in its place,
    the same or r - V. pi, mu: probabilities of the logged action. k: eligible actions, of each row where that differs.
    unseen: mean over rows of k times the sum of pi^2 over actions with mu = 0, times the variance of the rest, of the
    policy, and of another baseline. effect: how much a cluster's rows vary together, a factor on the variance. often:
    (n,) how often each row counts.
    """

    gap: Floats
    rest: Floats
    centred: Floats
    pi: Floats
    mu: Floats
    base: Floats
    k: int | Ints
    unseen: float
    effect: float
    often: Floats

    def spread(self, share: float) -> float | None:
        """Standard deviation of a row's contribution when a share of the decisions is uniform.

        The contribution is gap + pi / m rest - mu / m centred with m = (1 - share) mu + share / k: the value of the
        policy minus that of the logging policy. Rows of the log stand for rows of the new one with weight m / mu.
        """
        if share == 0 and self.unseen > 0:
            return None
        m = (1 - share) * self.mu + share / self.k
        weight = self.often * m / self.mu
        z = self.gap + self.pi / m * self.rest - self.base / m * self.centred
        mean = float((weight * z).mean())
        square = float((weight * (z - mean) ** 2).mean())
        square += self.unseen / share if self.unseen > 0 else 0.0
        return math.sqrt(square * self.effect)


def _pieces(problem: Problem, model: OutcomeModel, folds: int, seed: int, other: Policy | None) -> _Pieces:
    """other: the baseline, where it is not the logging policy."""
    log, policy = problem.log, problem.policy
    assert log.propensities is not None
    mu = np.asarray(log.propensities)
    if other is not None:
        return _over(problem, other, mu, model, folds, seed)
    width = log.n_actions if policy.complete else 1
    pi = np.concatenate([logged_probability(policy, batch) for batch in log.batches(width=width)])
    centred, often = log.rewards - log.mean_reward, often_of(log)
    gap, rest, unseen = np.zeros(len(log)), centred, 0.0
    if policy.complete:
        trained = train(log, model, folds, seed)
        logging = log.logging
        if logging is None or not logging.complete or isinstance(logging, EstimatedLogging):
            logged, target = trained.columns(policy)
            gap, rest = target - log.mean_reward, log.rewards - logged
        else:
            logged, target, usual = trained.columns(policy, logging)
            gap = target - usual
            rest = centred = log.rewards - logged
        if log.logging is not None and log.logging.complete and not log.logging_covers_all:
            unseen = _unseen(problem) * float(np.mean(often * rest**2))
    effect = _effect(gap + pi / mu * rest - centred, log)
    return _Pieces(gap, rest, centred, pi, mu, mu, counts_of(log), unseen, effect, often)


def _over(problem: Problem, other: Policy, mu: Floats, model: OutcomeModel, folds: int, seed: int) -> _Pieces:
    """The same over a baseline of which the log is not a sample: both policies are weighted."""
    log, policies = problem.log, (problem.policy, other)
    complete = all(policy.complete for policy in policies)
    width = log.n_actions if complete else 1
    pi, base = (
        np.concatenate([logged_probability(policy, batch) for batch in log.batches(width=width)]) for policy in policies
    )
    rest, gap, unseen, often = log.rewards - log.mean_reward, np.zeros(len(log)), 0.0, often_of(log)
    if complete:
        logged, target, usual = train(log, model, folds, seed).columns(*policies)
        gap, rest = target - usual, log.rewards - logged
        if log.logging is not None and log.logging.complete and not log.logging_covers_all:
            unseen = sum(_unseen(problem.of(policy)) for policy in policies) * float(np.mean(often * rest**2))
    effect = _effect(gap + (pi - base) / mu * rest, log)
    return _Pieces(gap, rest, rest, pi, mu, base, counts_of(log), unseen, effect, often)


def often_of(log: LoggedData) -> Floats:
    """(n,) how often each row counts."""
    return np.ones(len(log)) if log.counted is None else log.counted


def worth_of(log: LoggedData) -> int:
    """Rows of the log; where they have sampling weights, decisions that would give the mean reward the same error."""
    if log.counted is None:
        return len(log)
    away = (log.rewards - log.mean_reward) ** 2
    return max(2, round(len(log) * float((log.counted * away).mean() / (log.counted**2 * away).mean())))


def _effect(z: Floats, log: LoggedData) -> float:
    """How much a cluster's rows vary together, a factor on the variance."""
    if log.counted is not None:
        mean = float((log.counted * z).mean())
        z = mean + log.counted * (z - mean)
    alone = inference.stderr(z)
    return (inference.stderr(inference.units(z, log.clusters)) / alone) ** 2 if alone > 0 else 1.0


def _unseen(problem: Problem) -> float:
    """Mean over rows of the number of eligible actions times the sum of pi(a|x)^2 over those that the logging policy
    never plays."""
    log, total, at = problem.log, 0.0, 0
    assert log.logging is not None
    for batch in log.batches(width=log.n_actions):
        never = probabilities(log.logging, batch) <= 0
        squares = np.where(never, probabilities(problem.policy, batch) ** 2, 0.0).sum(axis=1)
        total += float((counts_of(batch) * squares) @ often_of(log)[at : at + len(batch)])
        at += len(batch)
    return total / len(log)


def counts_of(rows: LoggedData | Batch) -> int | Ints:
    """How many actions are eligible: on all rows, or on each where that differs."""
    return rows.n_actions if rows.eligible is None else rows.eligible.sizes


def _uniform_value(log: LoggedData, limits: Thresholds) -> float | None:
    """What uniform actions would have earned, by SNIPS; None where the log does not say: an action has no row, or the
    weights are worth too few rows."""
    assert log.propensities is not None
    ever = log.n_actions if log.eligible is None else np.count_nonzero(log.eligible.spread(np.ones(len(log))))
    if len(np.unique(log.actions)) < ever:
        return None
    w = often_of(log) / (counts_of(log) * log.propensities)
    enough = limits.status("effective_rows", effective_sample_size(w)) != "fail"
    return float(w @ log.rewards / w.sum()) if enough else None


def _doubts(problem: Problem, limits: Thresholds) -> tuple[Check, ...]:
    size = effective_sample_size(problem.weights * often_of(problem.log))
    message = f"The plan rests on an effective sample size of {size:,.0f}"
    checks = [graded("effective_rows", size, limits, (f"{message}.", f"{message}: it is a rough guess."))]
    mass = problem.unsupported_mass
    if mass is not None and mass > 0:
        message = f"{mass:.1%} of the new policy's decisions are actions that the logging policy never plays: explore."
        checks.append(graded("support", mass, limits, (message, message), ("unsupported_mass", mass)))
    return tuple(checks)
