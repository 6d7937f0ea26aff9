"""calibrate: plant rewards whose truth is known on the user's own log, and see which estimators find it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, final

import numpy as np

from cael.common.types import Floats
from cael.engine.asking import ask, lacking
from cael.engine.nuisances import all_alike, in_memory
from cael.errors import NeedsError, positive_int
from cael.estimators import Estimator
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Check
from cael.log.batch import Batch
from cael.log.held import Held
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.outcomes.ridge import Ridge
from cael.policies.given import PolicyLike
from cael.policies.policy import Policy, probabilities
from cael.results.evaluate import only_estimators, panel
from cael.results.plots import plot_calibration
from cael.results.question import refuse_constant_rewards
from cael.results.sheet import Column, Note, Sheet, Shown, named

Reward: TypeAlias = Callable[[Batch], Floats]
KINDS = ("additive", "interaction", "target", "fitted")
SIGNAL = 0.3
"""Share of the reward's variance that the planted reward explains; the rest is noise."""
CELLS = 2_000_000


@final
@dataclass(frozen=True)
class CalibrationRow:
    """How an estimator did on rewards whose truth is known.

    rmse, bias: over all planted rewards (infinite and 0 where it never worked). coverage: share of intervals that held
    the truth, and its Monte Carlo error.
    worst_coverage, worst_kind: of the kind of reward on which the intervals did worst. width: mean width of the
    intervals. failed: trials in which the estimator raised an error (they count as not covered).
    coverage_error: the Monte Carlo error of the coverage.
    """

    estimator: str
    rmse: float
    bias: float
    coverage: float
    coverage_error: float
    worst_coverage: float
    worst_kind: str
    width: float
    failed: int


@final
@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Shown):
    """Estimators ranked on this log's own contexts, actions and propensities, the smallest error first.

    rows: one per estimator. kinds: of planted rewards. repeats: for each kind. n: rows of each planted log. level: of
    the intervals. redrawn: whether actions were drawn anew from the logging policy; where it is not known, the logged
    ones were kept and only rewards were planted. thresholds: by which the coverage is judged.
    """

    rows: tuple[CalibrationRow, ...]
    kinds: tuple[str, ...]
    repeats: int
    n: int
    level: float
    redrawn: bool
    thresholds: Thresholds = DEFAULT

    def __iter__(self) -> Iterator[CalibrationRow]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> CalibrationRow:
        return named("estimator", {row.estimator: row for row in self.rows}, name)

    @property
    def best(self) -> str:
        """The estimator with the smallest root mean squared error."""
        return self.rows[0].estimator

    def check(self, name: str, thresholds: Thresholds | None = None) -> Check:
        """Whether the intervals of an estimator held the truth as often as they say; by its own thresholds if None."""
        row, limits = self[name], self.thresholds if thresholds is None else thresholds
        error = math.sqrt(self.level * (1 - self.level) / (self.repeats * len(self.kinds)))
        status = limits.status("coverage", (self.level - row.coverage) / error)
        message = (
            f"On planted rewards, {self.level:.0%} intervals of {name} covered the true value {row.coverage:.0%} of "
            f"the time (± {row.coverage_error:.0%})."
        )
        return Check("calibration", status, row.coverage, message)

    def sentence(self) -> str:
        """How it was done, in words."""
        how = "actions drawn anew from the logging policy" if self.redrawn else "the logged actions kept"
        return (
            f"{self.repeats} logs of {self.n:,} rows for each of {len(self.kinds)} kinds of planted reward, {how}; "
            f"{self.best} came closest."
        )

    def __repr__(self) -> str:
        rows = "; ".join(f"{row.estimator}: RMSE {row.rmse:.3g}, covers {row.coverage:.0%}" for row in self.rows)
        return f"Calibration({rows})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "sentence": self.sentence(), "best": self.best, "kinds": list(self.kinds), "repeats": self.repeats,
            "n": self.n, "level": self.level, "redrawn": self.redrawn,
            "rows": [{**asdict(row), "rmse": row.rmse if math.isfinite(row.rmse) else None} for row in self.rows],
        }  # fmt: skip

    def sheet(self) -> Sheet:
        columns = (
            Column("estimator"), Column("rmse", "rough", "RMSE"), Column("bias", "rough difference"),
            Column("coverage", "percent and error", "covers"), Column("worst_coverage", "percent", "worst"),
            Column("worst_kind", head="worst on"), Column("width", "rough", wide=True),
            Column("failed", "count", wide=True),
        )  # fmt: skip
        rows = tuple(
            (
                row.estimator, row.rmse if math.isfinite(row.rmse) else None, row.bias,
                (row.coverage, row.coverage_error), row.worst_coverage, row.worst_kind, row.width, row.failed or None,
            )
            for row in self.rows
        )  # fmt: skip
        styles = tuple(self.check(row.estimator).status for row in self.rows)
        styles = tuple("" if status == "pass" else status for status in styles)
        return Sheet("planted rewards", columns, rows, (Note(self.sentence()),), (), styles)

    def plot(self, axes: Any = None) -> Any:
        """The coverage of every estimator, on Matplotlib's axes, which are returned."""
        return plot_calibration(self, axes)


def calibrate(
    log: LoggedData | ScannedLog,
    policy: PolicyLike,
    estimators: Sequence[Estimator] | None = None,
    *,
    repeats: int = 30,
    level: float = 0.95,
    rows: int | None = None,
    seed: int = 0,
    thresholds: Thresholds | None = None,
) -> Calibration:
    """Which estimator comes closest on a log like this one, and do its intervals hold the truth?

    A reward function is planted on the log's own contexts, so that the target's value is known exactly. Kinds:
    "additive" (contexts and actions, no interaction), "interaction" (random smooth functions of both), "target" (what
    the target prefers earns more) and "fitted" (a ridge model of the real rewards). It explains 30% of the variance of
    the rewards; noise is resampled from the real ones. Where the logging policy is known whole, rows are resampled
    and actions drawn anew from it; otherwise the rows and actions stay as they are and "fitted" is left out, since
    repeating it would repeat the same error.

    estimators: the panel of `evaluate` if None. rows: of each planted log; by default all, but at most 20,000 and at
    most 2,000,000 divided by the number of actions. log: in memory, or scanned (`cael.scan`), of which as many rows are
    drawn in a pass. thresholds: where coverage that is too low becomes a warning or a failure.
    """
    inference.check_level(level)
    positive_int("repeats", repeats, least=2)
    log, policy = in_memory(log, policy, seed, _most(log.n_actions, rows))
    log = all_alike(log, "calibrate", seed)
    held = Held(log)
    refuse_constant_rewards(held)
    target = held.target(policy)
    for need in lacking(("probabilities", "propensities"), held, target):
        raise NeedsError(f"calibrate needs {need}.")
    given = only_estimators(panel() if estimators is None else estimators, "cael.MIPS()")
    usable = [estimator for estimator in given if not lacking(estimator.needs, held, target)]
    if not usable:
        raise NeedsError("none of the estimators can be computed on this log and policy.")
    redrawn = held.logging is not None
    kinds = KINDS if redrawn else KINDS[:3]
    base = _some_rows(log, rows, seed)
    trials = np.empty((len(usable), len(kinds), repeats, 3))
    for at, repeat in np.ndindex(len(kinds), repeats):
        rng = np.random.default_rng([seed, at, repeat])
        planted, truth = plant(base, policy, kinds[at], rng, redraw=redrawn)
        estimates = {e.estimator: e for e in ask(Held(planted), {"": policy}, usable, controls=None).estimates(0)[0]}
        trials[:, at, repeat] = [_outcome(estimates.get(estimator.name), truth, level) for estimator in usable]
    ranked = sorted(map(_row, [e.name for e in usable], trials, [kinds] * len(usable)), key=lambda row: row.rmse)
    return Calibration(tuple(ranked), kinds, repeats, len(base), level, redrawn, thresholds or DEFAULT)


def _most(n_actions: int, rows: int | None) -> int:
    return min(20_000, max(500, CELLS // n_actions)) if rows is None else positive_int("rows", rows, least=20)


def _some_rows(log: LoggedData, rows: int | None, seed: int) -> LoggedData:
    """A random part of the log, of the size that planted logs shall have."""
    limit = _most(log.n_actions, rows)
    if limit >= len(log):
        return log
    return log.take(np.sort(np.random.default_rng(seed).permutation(len(log))[:limit]))


def _outcome(estimate: Estimate | None, truth: float, level: float) -> tuple[float, bool, float]:
    """(error, covered, width) of one estimate; a failure has no error and does not cover."""
    if estimate is None:
        return math.nan, False, math.nan
    interval = estimate.interval(level)
    return estimate.value - truth, truth in interval, interval.width


def _row(name: str, trials: Floats, kinds: Sequence[str]) -> CalibrationRow:
    """How an estimator did in trials (kinds, repeats, 3)."""
    error, covered, width = trials[..., 0], trials[..., 1], trials[..., 2]
    by_kind, fine, share = covered.mean(axis=1), np.isfinite(error), float(covered.mean())
    worst = int(by_kind.argmin())
    return CalibrationRow(
        estimator=name,
        rmse=float(np.sqrt(np.mean(error[fine] ** 2))) if fine.any() else math.inf,
        bias=float(error[fine].mean()) if fine.any() else 0.0,
        coverage=share,
        coverage_error=math.sqrt(max(share * (1 - share), 1 / error.size) / error.size),
        worst_coverage=float(by_kind[worst]),
        worst_kind=kinds[worst],
        width=float(width[fine].mean()) if fine.any() else 0.0,
        failed=int((~fine).sum()),
    )


def plant(
    log: LoggedData, policy: Policy, kind: str, rng: np.random.Generator, *, redraw: bool
) -> tuple[LoggedData, float]:
    """A log with planted rewards, and the target's exact value over the rows of `log`.

    With `redraw`, rows are resampled with replacement and actions drawn from the logging policy.
    """
    reward = _scaled(log, kind, policy, rng)
    truth = _truth(log, policy, reward)
    part = log.take(rng.integers(0, len(log), len(log))) if redraw else log
    planted = []
    for batch in part.batches(width=log.n_actions):
        rows, actions, propensities = np.arange(len(batch)), batch.actions, batch.propensities
        if redraw:
            assert log.logging is not None
            p = probabilities(log.logging, batch)
            edges = np.cumsum(p, axis=1)
            actions = (edges <= rng.random(len(p))[:, None] * edges[:, -1:]).sum(axis=1)
            propensities = p[rows, actions]
        assert propensities is not None
        planted.append((actions, propensities, reward(batch)[rows, actions]))
    actions, propensities, mean = map(np.concatenate, zip(*planted, strict=True))
    return part.replanted(actions, _noisy(mean, log.rewards, rng), propensities), truth


def _truth(log: LoggedData, policy: Policy, reward: Reward) -> float:
    total = 0.0
    for batch in log.batches(width=log.n_actions):
        total += float(np.einsum("ij,ij->", probabilities(policy, batch), reward(batch)))
    return total / len(log)


def _binary(rewards: Floats) -> bool:
    return bool(((rewards == 0) | (rewards == 1)).all())


def _noisy(mean: Floats, rewards: Floats, rng: np.random.Generator) -> Floats:
    """Rewards around their means: coins where the real ones are 0 and 1, else resampled deviations of the real ones."""
    if _binary(rewards):
        return (rng.random(len(mean)) < mean).astype(np.float64)
    drawn = rng.choice(rewards - rewards.mean(), len(mean))
    return mean + math.sqrt(1 - SIGNAL) * drawn


def _scaled(log: LoggedData, kind: str, policy: Policy, rng: np.random.Generator) -> Reward:
    """A reward function of this kind with the mean and the stated share of the variance of the real rewards."""
    raw = _shape(log, kind, policy, rng)
    seen = np.concatenate([raw(b)[np.arange(len(b)), b.actions] for b in log.batches(width=log.n_actions)])
    middle, spread = float(seen.mean()), float(seen.std())
    mean, scale = float(log.rewards.mean()), math.sqrt(SIGNAL) * float(log.rewards.std())
    factor = scale / spread if spread > 0 else 0.0
    binary = _binary(log.rewards)
    factor = min(factor, 0.5 * min(mean, 1 - mean) / spread) if binary and spread > 0 else factor

    def reward(batch: Batch) -> Floats:
        q = mean + factor * (raw(batch) - middle)
        return np.clip(q, 0.0, 1.0) if binary else q

    return reward


def _shape(log: LoggedData, kind: str, policy: Policy, rng: np.random.Generator) -> Reward:
    """The unscaled function of contexts and actions, (b, k)."""
    k, d = log.n_actions, log.contexts.shape[1]
    centre, spread = log.contexts.mean(axis=0), log.contexts.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    slopes, levels = rng.standard_normal(d), rng.standard_normal(k)
    if kind == "fitted":
        return Ridge().fit(log, 0).predict
    inner, shift = rng.standard_normal((d, 8)) / math.sqrt(max(d, 1)), rng.standard_normal(8)
    outer = rng.standard_normal((8, k))

    def additive(batch: Batch) -> Floats:
        x = (batch.contexts - centre) / spread
        return (x @ slopes / math.sqrt(max(d, 1)))[:, None] + levels

    def interaction(batch: Batch) -> Floats:
        x = (batch.contexts - centre) / spread
        return np.tanh(2 * x @ inner + shift) @ outer

    def target(batch: Batch) -> Floats:
        p = probabilities(policy, batch)
        return p / p.max(axis=1, keepdims=True) + 0.3 * additive(batch)

    return {"additive": additive, "interaction": interaction, "target": target}[kind]
