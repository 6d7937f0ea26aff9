"""The choice: the lift of every candidate on rows that it did not see, and which one to certify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.inference.intervals import quantile
from cael.learning.candidates import Candidate
from cael.learning.evidence import Evidence
from cael.learning.guardrails import SHARES, Guard
from cael.learning.limits import Limits, sharpest
from cael.learning.plays import Play, played
from cael.learning.rules import Rule, ScoredRule, among
from cael.log.batch import Batch
from cael.policies.policy import Uniform, probabilities

PESSIMISM = 0.5
"""Standard errors that are taken off a lift before the best is chosen: of many candidates the best one is lucky."""
HOPE = 2.0
"""Standard errors by which the lift of the chosen one must exceed what is asked for: with less its certificate would
hardly hold, and where nothing is better, every certificate is another chance to err. The best of some 80 candidates
that are worth nothing exceeds 1.5 in four of ten logs."""
NOTHING = 1e-300


@final
@dataclass(frozen=True)
class PathPoint:
    """One candidate on rows that it did not see.

    candidate: its kind. play: how its scores are played, in words. lift, error: over the old policy, per row, with its
    standard error. second: E w^2. changed: share of decisions that differ from those of the old policy. share: of the
    learned rule beside the old policy. promise: the expected gain of shipping it, the lift less PESSIMISM errors times
    the probability that its certificate holds. chosen: whether it is the best one.
    """

    candidate: str
    play: str
    lift: float
    error: float
    second: float
    changed: float
    share: float
    promise: float
    chosen: bool = False

    @property
    def named(self) -> str:
        """In words."""
        return f"{self.candidate}, {self.play}" if self.play else self.candidate


@final
class Totals:
    """Sums over rows of what the rules of one candidate would do there, and each row's lift."""

    def __init__(self, n: int) -> None:
        self.lift, self.model, self.w = np.empty(n), np.empty(n), np.empty(n)
        self.second = self.changed = 0.0

    def add(self, evidence: Evidence, rows: Ints, p: Floats, old: Floats) -> None:
        n, a = np.arange(len(rows)), evidence.log.actions[rows]
        assert evidence.log.propensities is not None
        self.w[rows] = w = p[n, a] / evidence.log.propensities[rows]
        self.model[rows] = np.einsum("ij,ij->i", p, evidence.table[rows]) - evidence.usual[rows]
        self.lift[rows] = self.model[rows] + (w - 1) * evidence.left[rows]
        self.second += float(np.divide(p**2, old, out=np.zeros_like(p), where=old > 0).sum())
        self.changed += float(np.maximum(p - old, 0.0).sum())

    def measured(self, evidence: Evidence) -> Measured:
        """The lift, its spread a row and the rest; the spread is at least what the second moment implies."""
        n = len(self.lift)
        second = max(self.second / n, 1.0)
        implied = self.model.var() + (second - 1) * evidence.left.var()
        guarded = tuple(self._guarded(guard, second) for guard in evidence.guards)
        spread = float(np.sqrt(max(self.lift.var(), implied)))
        return Measured(float(self.lift.mean()), spread, second, self.changed / n, guarded)

    def _guarded(self, guard: Guard, second: float) -> Moved:
        moved = (self.w - 1) * guard.left
        return Moved(float(moved.mean()), float(np.sqrt(max(moved.var(), (second - 1) * guard.left.var()))), guard.room)


@final
@dataclass(frozen=True)
class Moved:
    """How a guardrail moves, upwards where that is better: lift and standard deviation per row. room: what it may
    lose."""

    lift: float
    spread: float
    room: float


@final
@dataclass(frozen=True)
class Measured:
    """Per row: lift, its standard deviation, E w^2, the share of decisions that are changed, and the guardrails."""

    lift: float
    spread: float
    second: float
    changed: float
    guarded: tuple[Moved, ...] = ()


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """path: all that was tried. rule: the chosen one, learned from all rows. point: of it. hopeful: whether a lift is
    to be expected of it."""

    path: tuple[PathPoint, ...]
    rule: Rule
    point: PathPoint
    hopeful: bool


def chosen(
    evidence: Evidence, candidates: Sequence[Candidate], limits: Limits, allowed: Array | None, left: int
) -> Choice:
    """The most promising of all candidates and plays. left: rows of the certificate."""
    points: list[PathPoint] = []
    rules: list[Rule] = []
    explored = exploration(evidence)
    for candidate in candidates:
        for play, measured in zip(*tried(evidence, candidate, allowed), strict=True):
            rule = rule_of(candidate, play, allowed)
            for part in SHARES if evidence.guards else SHARES[:1]:
                points.append(point_of(candidate.name, play, measured, limits, explored, left, len(evidence), part))
                rules.append(rule)
    best = int(np.argmax([point.promise for point in points]))
    points[best] = replace(points[best], chosen=True)
    return Choice(tuple(points), rules[best], points[best], is_hopeful(points[best], limits))


def is_hopeful(point: PathPoint, limits: Limits) -> bool:
    """Whether a candidate is worth a certificate."""
    return point.promise > 0 and point.lift - HOPE * point.error > limits.min_lift


def tried(
    evidence: Evidence, candidate: Candidate, allowed: Array | None
) -> tuple[tuple[Play | None, ...], list[Measured]]:
    """The plays of a candidate, and how each does on rows that it did not see."""
    plays: tuple[Play | None, ...] = candidate.plays or (None,)
    totals = [Totals(len(evidence)) for _ in plays]
    for fold in range(evidence.folds):
        for rows, batch, old in evidence.blocks(np.flatnonzero(evidence.fold == fold)):
            tables = advised(candidate, fold, batch, old, evidence.predicted(rows), allowed)
            for total, p in zip(totals, tables, strict=True):
                total.add(evidence, rows, p, old)
    return plays, [total.measured(evidence) for total in totals]


def advised(
    candidate: Candidate, fold: int, batch: Batch, old: Floats, predicted: Floats, allowed: Array | None
) -> list[Floats]:
    """What a candidate does on rows of a fold that it did not see, by each of its plays. predicted: by the model."""
    if candidate.rules:
        return [candidate.rules[fold].advised(batch, old)]
    scores = candidate.scorers[fold].on(batch, predicted)
    return played(scores, among(old, allowed), candidate.plays, candidate.spread)


def rule_of(candidate: Candidate, play: Play | None, allowed: Array | None) -> Rule:
    """The rule that was learned from all rows."""
    if play is None:
        return candidate.rules[-1]
    return ScoredRule(candidate.scorers[-1], play, candidate.spread, allowed)


def exploration(evidence: Evidence) -> Measured:
    """What uniform exploration would do."""
    total = Totals(len(evidence))
    for rows, batch, old in evidence.blocks(np.arange(len(evidence))):
        total.add(evidence, rows, probabilities(Uniform(evidence.log.n_actions), batch), old)
    return total.measured(evidence)


def point_of(
    name: str, play: Play | None, rule: Measured, limits: Limits, explored: Measured, left: int, n: int, part: float
) -> PathPoint:
    """A candidate with the share of it, at most `part`, that the limits allow, and with the exploration that they ask
    for."""
    e, share = limits.explore, min(part, limits.share(rule.changed, explored.changed, n))

    def mixed(own: float, other: float) -> float:
        return (1 - e) * share * own + e * other

    lift, spread = mixed(rule.lift, explored.lift), mixed(rule.spread, explored.spread)
    error = spread / np.sqrt(n)
    careful = lift - PESSIMISM * error
    passes = certain(careful - limits.min_lift, spread, left, limits)
    for own, other in zip(rule.guarded, explored.guarded, strict=True):
        moved, noise = mixed(own.lift, other.lift), mixed(own.spread, other.spread)
        passes *= certain(moved - PESSIMISM * noise / np.sqrt(n) + own.room, noise, left, limits)
    changed = (1 - e) * share * rule.changed + e * explored.changed
    promise = careful * passes if spread > 0 and careful > limits.min_lift else min(careful - limits.min_lift, 0.0)
    second = 1 + (share * (1 - e)) ** 2 * (rule.second - 1)
    if second > sharpest(left):  # a certificate that rests on so few rows is refused
        promise = min(promise, 0.0) - second
    return PathPoint(name, "" if play is None else play.words, lift, float(error), second, changed, share, promise)


def certain(distance: float, spread: float, left: int, limits: Limits) -> float:
    """The probability that so many rows show something at this distance, at the level of the certificate."""
    from scipy.special import ndtr

    return float(ndtr(distance / max(spread / np.sqrt(left), NOTHING) - quantile(limits.two_sided)))


def few_actions(evidence: Evidence, most: int) -> Array:
    """(k,) the actions, at most so many, whose best one on each row gains most on average: the greedy choice."""
    n, k = len(evidence), evidence.log.n_actions
    if most >= k:
        return np.ones(k, dtype=bool)
    rows = np.linspace(0, n - 1, min(n, GLANCE)).astype(np.intp)
    value = np.concatenate([np.where(old > 0, evidence.table[at], -np.inf) for at, _, old in evidence.blocks(rows)])
    allowed, best = np.zeros(k, dtype=bool), np.full(len(rows), value[np.isfinite(value)].min())
    for _ in range(most):
        gained = np.maximum(value - best[:, None], 0.0).mean(axis=0)
        gained[allowed] = -1.0
        joins = int(gained.argmax())
        allowed[joins] = True
        best = np.maximum(best, value[:, joins])
    return allowed


GLANCE = 1000
"""Rows by which the actions that may be played are chosen."""
