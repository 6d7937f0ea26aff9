"""Answer: what one pass over a log found, and the numbers that estimates, checks and figures are made from."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, final
from weakref import WeakValueDictionary

import numpy as np

from cael.common.types import Floats
from cael.engine.columns import Column, Lost, Misfit, Outcome, Product, Reward, SecondMoment, Weight, Weights, squared
from cael.engine.gathering import has_tables, summed
from cael.engine.moments import Combination, Moments
from cael.engine.partial import Partial, Range
from cael.engine.predictions import Predictions
from cael.engine.score import Score
from cael.engine.tally import Changed, Tally
from cael.engine.work import Work
from cael.errors import LARGEST, LogError, SupportError
from cael.inference.diagnostics import FEW_CLUSTERS, Diagnostics, WeightFacts, few_clusters, with_warnings
from cael.inference.estimate import Estimate
from cael.inference.reach import ends_of
from cael.inference.score_range import ScoreRange
from cael.log.held import EngineLog, Held
from cael.log.targets import Target
from cael.policies.fitted import LoggingFit

if TYPE_CHECKING:
    from cael.engine.parts import Part

T = TypeVar("T")
ALIKE = 1e-12
"""Weights whose mean has a smaller standard error are all the same, but for rounding."""
ROUNDING = 1e-12
"""A second moment that is so near to 1 is 1."""


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """What one pass over a log found. parts: of the estimators that can be computed. skipped: (target, estimator,
    reason). dropped: (reason, rows). warnings: what to tell the user. outcomes: the models that were trained. number:
    of the metric that is the reward, among those of the question. memo: what is shared between them (`once`)."""

    log: EngineLog
    names: tuple[str, ...]
    targets: tuple[Target, ...]
    parts: tuple[Part, ...]
    work: Work
    partial: Partial
    skipped: tuple[tuple[int, str, str], ...]
    dropped: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...]
    outcomes: dict[Outcome, Predictions]
    number: int = 0
    memo: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What does not depend on the metric: made once for all of them."""
        if key not in self.memo:
            self.memo[key] = make()
        value: T = self.memo[key]
        return value

    @property
    def n(self) -> int:
        return self.partial.rows

    @property
    def weighted(self) -> bool:
        """Whether rows have sampling weights."""
        return self.partial.moments.standing is not None

    @property
    def kish(self) -> float:
        """The number of rows; of rows with sampling weights, that of rows that count alike and are worth as many."""
        return self.partial.moments.kish

    @property
    def scale(self) -> float:
        """What makes sums of sampling weights sums over rows."""
        return self.partial.moments.scale

    @cached_property
    def worth(self) -> float:
        """So many rows that count alike would give the mean reward this standard error, were rows independent."""
        if not self.weighted:
            return self.n
        error = replace(self.single(Reward()), clusters=None, by_bucket=False).stderr
        return self.variance(Reward()) / error**2 * (self.n / (self.n - 1)) if error > 0 else self.kish

    def mean_mass(self, target: int) -> Floats:
        """(k,) the target's mean probability of each action."""
        return self.partial.masses[target] / self.partial.moments.total

    @property
    def read(self) -> int:
        return sum(self.partial.read.values())

    @property
    def r0(self) -> float:
        return self.work.metrics[self.number - 1].r0 if self.number else self.work.r0

    @cached_property
    def index(self) -> dict[Column, int]:
        return self.work.place(self.number)

    @property
    def range(self) -> Range:
        """The least and the greatest reward, and how many rows lay above a cap."""
        return self.partial.ranges[self.number]

    def means(self, columns: Sequence[Column]) -> Floats:
        """The means of some columns."""
        return self.partial.moments.mean[[self.index[column] for column in columns]]

    def mean(self, column: Column) -> float:
        return float(self.partial.moments.mean[self.index[column]])

    def variance(self, column: Column) -> float:
        """The variance of a column over the rows."""
        at = self.index[column]
        return max(0.0, float(self.partial.moments.comoment[at, at])) / self.n

    def tails(self, column: Column) -> tuple[float, float]:
        """The variance of a column whose square was kept beside it, and its kurtosis."""
        moments = self.partial.moments
        return self.variance(column), kurtosis_of(moments, self.index[column], self.index[squared(column)])

    @cached_property
    def two_values(self) -> tuple[float, float] | None:
        """The two values that all rewards have, 0 and 1 for example; None where there are more, or one."""
        low, high = self.range.low, self.range.high
        below, above = self.mean(Reward()) + self.r0 - low, high - self.mean(Reward()) - self.r0
        return (low, high) if low < high and math.isclose(self.variance(Reward()), below * above) else None

    def products(self, columns: Sequence[Column]) -> Floats:
        """(m, m) mean products of deviations of some columns."""
        at = [self.index[column] for column in columns]
        return self.partial.moments.comoment[np.ix_(at, at)] / self.n

    def combination(self, columns: Sequence[Column], score: Score) -> Combination:
        """The contributions of all rows: a score of some columns."""
        c: Floats = np.zeros(len(self.work.columns))
        for column, coefficient in zip(columns, score.coefficients, strict=True):
            c[self.index[column]] += coefficient
        p = self.partial
        return Combination(score.constant, c, p.moments, p.clusters, p.crowded, p.block, self.counted)

    @cached_property
    def counted(self) -> Floats | None:
        """(n,) the sampling weights of a log in memory, with mean 1."""
        weights = self.log.log.sampling_weights if isinstance(self.log, Held) else None
        return None if weights is None else np.asarray(weights * self.scale)

    def single(self, column: Column) -> Combination:
        """One column as it is."""
        return self.combination([column], Score(0.0, np.ones(1)))

    def estimate(
        self,
        name: str,
        columns: Sequence[Column],
        score: Score,
        diagnostics: Diagnostics | Callable[[Estimate], Diagnostics],
        score_range: ScoreRange | None = None,
        ratio: tuple[Combination, Combination] | None = None,
    ) -> Estimate:
        """The estimate whose contributions are a score of some columns."""
        return self.estimate_of(name, self.combination(columns, score), diagnostics, score_range, ratio)

    def estimate_of(
        self,
        name: str,
        sums: Combination,
        diagnostics: Diagnostics | Callable[[Estimate], Diagnostics],
        score_range: ScoreRange | None = None,
        ratio: tuple[Combination, Combination] | None = None,
    ) -> Estimate:
        """The estimate with these contributions. diagnostics: also as a function of it, for when they are asked for."""
        held = self.log.log if isinstance(self.log, Held) else None
        rows = sums.buckets if held is None else sums.rows
        if (sums.by_bucket or sums.clusters is not None) and sums.independent < FEW_CLUSTERS:
            diagnostics = functools.partial(_warned, diagnostics, few_clusters(sums.independent))
        return Estimate(
            estimator=name, value=sums.value if held is None else float(rows.mean()), contributions=rows,
            key=self.log.key, diagnostics=diagnostics, clusters=None if held is None else held.clusters,
            score_range=None if held is None or self.weighted else score_range, sums=sums, ratio=ratio,
            ends=ends_of(self.two_values, self.worth / sums.cluster_effect),
        )  # fmt: skip

    def unsupported(self, target: int) -> float | None:
        """The target's mean probability of actions that the logging policy never plays; None: not known."""
        return max(0.0, self.mean(Lost(target))) if Lost(target) in self.index else None

    def logging_fit(self, target: int) -> LoggingFit | None:
        """How good the fitted logging policy is for a target; None where none was fitted."""
        if self.work.fitted is None:
            return None
        error, mean = self.mean(Misfit()), self.mean(Weight(target))
        weighted = self.mean(Product(Weight(target), Misfit())) / mean if mean > 0 else 0.0
        return replace(self.work.fitted.fit, error=error, target_error=weighted)

    def second_moment(self, target: int) -> float:
        """E w^2: exact over all actions where both policies are known, else the mean over the log."""
        if self.knows_second_moment(target):
            column = SecondMoment(target)
            return self.mean(column) if column in self.index else self.once(column, lambda: mean_later(self, column))
        return self.variance(Weight(target)) + self.mean(Weight(target)) ** 2

    def knows_second_moment(self, target: int) -> bool:
        """Whether E w^2 is exact: kept by the pass, or to be had from two tables when it is asked for."""
        if SecondMoment(target) in self.index:
            return True
        return Weight(target) in self.index and has_tables(self.log, self.targets[target])

    def need_support(self, target: int) -> None:
        """An error where weighting can say nothing about a target."""
        refuse_no_support(self.tally(Weight(target)).largest, self.unsupported(target))

    def tally(self, column: Weights) -> Tally:
        tally = self.partial.tallies[self.work.tallied.index(column)]
        return tally.times(self.scale) if self.weighted else tally

    def changed(self, column: Weight) -> Changed:
        """The largest of the weights that a rule made, and how many rows it changed."""
        if column.plain:
            return Changed(self.tally(column).largest)
        changed = self.partial.changed[self.work.ruled.index(column)]
        return replace(changed, largest=changed.largest * self.scale)

    def effective_size(self, column: Column) -> float:
        """(sum w)^2 / sum w^2 of a column of weights, times sampling weights where there are any."""
        mean = self.mean(column)
        return self.n / (1 + max(0.0, self.single(column).variance) / mean / mean) if mean > 0 else 0.0

    def weight_facts(self, column: Weights) -> WeightFacts:
        """What weights that are tallied say."""
        mean, error = self.single(column).value, self.error_of_mean_weight(column)
        tail, unsupported = self.tally(column).tail_index(self.n), self.unsupported(column.target)
        return WeightFacts(self.n, mean, (mean - 1) / error if error > ALIKE else None, tail, unsupported)

    def error_of_mean_weight(self, column: Weights) -> float:
        """Of a mean of weights; at least what E w^2 says where that is known: few rows that match show far less."""
        seen = self.single(column).stderr
        if column != Weight(column.target) or not self.knows_second_moment(column.target):
            return seen
        excess = self.second_moment(column.target) - (1 - (self.unsupported(column.target) or 0.0)) ** 2
        known = math.sqrt(excess * self.cluster_effect / self.kish) if excess > ROUNDING else 0.0
        return max(seen, known)

    @cached_property
    def cluster_effect(self) -> float:
        """How much more a count can vary as rows of a cluster share their draw: sum of sizes^2 / n, at least 1."""
        p = self.partial
        if p.crowded:
            together = self.single(Reward())
            alone = replace(together, clusters=None, by_bucket=False)
            return max(1.0, (together.stderr / alone.stderr) ** 2) if alone.stderr > 0 else 1.0
        if p.clusters is None:
            return 1.0
        sizes = p.clusters.rows
        return float((sizes**2).sum() / p.moments.squares)

    def refuse_constant(self) -> None:
        """A log in which every reward is the same says nothing about the difference between policies."""
        if self.range.low == self.range.high:
            raise LogError(
                f"every one of the {self.n} rewards is {self.range.low:g}: all policies look alike on this log. "
                "Check that the reward column is the right one, or collect more rows. (A single estimator "
                "can still be run by its own estimate(log, policy).)"
            )

    def part(self, name: str, target: int) -> Part:
        return next(part for part in self.parts if part.name == name and part.target == target)

    def of(self, name: str, target: int) -> Estimate:
        """The estimate of one estimator for a target."""
        return self._estimated(self.part(name, target))

    def _estimated(self, part: Part) -> Estimate:
        """The estimate of a part, made once while somebody has it: one that is kept here would keep this answer alive,
        since its diagnostics are made from it when they are first read."""
        made: WeakValueDictionary[Any, Estimate] = self.once("estimates", WeakValueDictionary)
        key = (self.number, part.name, part.target)
        estimate = made.get(key)
        if estimate is None:
            estimate = made[key] = part.estimate(self)
        return estimate

    def estimates(self, target: int, asked: Collection[str] = ()) -> tuple[list[Estimate], list[tuple[str, str]]]:
        """The estimates of a target, and (estimator, reason) for those that its weights do not allow."""
        estimates, skipped = [], [(name, why) for t, name, why in self.skipped if t == target]
        for part in self.parts:
            if part.target != target:
                continue
            try:
                estimates.append(self._estimated(part))
            except SupportError as error:
                if part.name in asked:
                    raise
                skipped.append((part.name, str(error)))
        return estimates, skipped


def _warned(
    diagnostics: Diagnostics | Callable[[Estimate], Diagnostics], warning: str, estimate: Estimate
) -> Diagnostics:
    """Diagnostics, or what gives them, with a warning more."""
    given = diagnostics if isinstance(diagnostics, Diagnostics) else diagnostics(estimate)
    return given if warning in given.warnings else with_warnings(given, (warning,))


def mean_later(answer: Answer, column: Column) -> float:
    """The mean of a column of two policies over a log in memory, by a pass of its own."""
    work = replace(answer.work, columns=(column,), tallied=(), ruled=(), groups=(), kept=None, metrics=())
    return float(summed(work, answer.log).moments.mean[0])


def kurtosis_of(moments: Moments, at: int, square: int) -> float:
    """The kurtosis of the column at one place, whose square is at another; 0 without spread.

    (y - m)^2 is y^2 - 2 m y and a constant: its variance over that of y, squared, is the kurtosis less one.
    """
    products, mean = moments.comoment[np.ix_((at, square), (at, square))] / moments.n, moments.mean[at]
    variance = products[0, 0]
    spread = products[1, 1] - 4 * mean * products[0, 1] + 4 * mean**2 * variance
    return float(spread / variance**2 + 1) if variance**2 > 0 else 0.0  # the square of a tiny variance is 0


def refuse_no_support(largest: float, unsupported: float | None) -> None:
    """Refuse a target by its largest weight, or by its mass on actions that the logging policy never plays."""
    if largest == 0 if unsupported is None else unsupported > 1 - 1e-9:
        raise SupportError(
            "the target has no support at all in this log: it gives probability 0 to every action that was "
            "logged. No weighting can say anything about it; collect data with exploration, or use DM, which "
            "extrapolates by a model."
        )
    if 0 < largest < 1 / LARGEST:
        raise SupportError(
            f"the largest importance weight is {largest:.3g}: the target hardly ever takes an action that was logged. "
            "No weighting can say anything about it; collect data with exploration, or use DM, which extrapolates by a "
            "model."
        )


def spread(answer: Answer, column: Column) -> float:
    """The standard deviation of a column."""
    return math.sqrt(answer.variance(column))
