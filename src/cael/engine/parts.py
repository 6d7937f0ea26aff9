"""Parts: what an estimator needs of a pass for one target, and how its estimate follows from what was kept."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.engine.answer import Answer
from cael.engine.asking import Asking
from cael.engine.columns import (
    Column,
    Given,
    Outcome,
    Predicted,
    Product,
    Residual,
    Reward,
    Size,
    Training,
    Weight,
    Weights,
    squared,
)
from cael.engine.moments import Combination
from cael.engine.score import Score
from cael.engine.steadying import pooled_of, second_of, steady
from cael.errors import SupportError
from cael.inference.diagnostics import NOT_TRAINED as NOT_TRAINED
from cael.inference.diagnostics import Diagnostics, weighted_by, with_fit, with_moved
from cael.inference.estimate import Estimate
from cael.inference.score_range import ScoreRange
from cael.inference.weight_rules import WeightRule

MODEL_BIAS = "The interval assumes that the outcome model is right on average: a bias of the model is not in it."
MODEL_ERROR = (
    "The interval takes the outcome model as given: neither the error of its training nor a bias of the model is in "
    "it. With Ridge, the error of the training is."
)


class Part(ABC):
    """What an estimator needs of a pass. name: of the estimator. target: its number. columns: that it needs. doubted:
    what else it needs where the propensities are estimated."""

    name: str
    target: int
    columns: tuple[Column, ...]
    doubted: tuple[Column, ...] = ()

    @abstractmethod
    def estimate(self, answer: Answer) -> Estimate:
        """The estimate, from what a pass kept; an error where the target has no support."""


@final
@dataclass(frozen=True)
class Form:
    """V = mean(q(x, pi) + w' (r - q(x, a))), or its second term divided by mean(w'); each part may be absent.

    weight: how w' is made from w = pi / mu, or a column of weights; None: there are none. outcome: of q; None: q = 0.
    self_normalised: divide by the mean weight. bounded: whether intervals with a guarantee may use the largest weight
    that is possible. notes: warnings.
    """

    weight: WeightRule | Weights | None = None
    outcome: Outcome | None = None
    self_normalised: bool = False
    bounded: bool = False
    notes: tuple[str, ...] = ()
    cross_fitted: bool | None = None


@final
@dataclass(frozen=True)
class FormPart(Part):
    """A part of the form that nearly all estimators have. most: the largest weight that is possible. leaning: whether
    the value is a mean prediction of Ridge, whose training error is known."""

    name: str
    target: int
    form: Form
    most: float | None
    leaning: bool = False

    @property
    def weight(self) -> Weights | None:
        """The column of its weights."""
        weight = self.form.weight
        return Weight(self.target, weight) if isinstance(weight, WeightRule) else weight

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        """(weights, weighted, predicted), as far as they are there; the reward alone where none is."""
        outcome, weight = self.form.outcome, self.weight
        if weight is None:
            predicted = () if outcome is None else (Predicted(self.target, outcome),)
            training = (Training(self.target, outcome),) if outcome is not None and self.leaning else ()
            return (*predicted, *training) or (Reward(),)
        if outcome is None:
            return (weight, Product(weight, Reward()))
        residual = Residual(outcome, self.target)
        return (weight, Product(weight, residual), Predicted(self.target, outcome), residual)

    @property
    def doubted(self) -> tuple[Column, ...]:  # type: ignore[override]
        """(weighted squares, weighted sizes) of what is weighted, where the weights are normalised."""
        weight, outcome = self.weight, self.form.outcome
        if weight is None or not self.form.self_normalised:
            return ()
        noisy: Column = Reward() if outcome is None else Residual(outcome, self.target)
        return Product(weight, squared(noisy)), Product(weight, Size(noisy))

    def score(self, means: Floats, r0: float) -> Score:
        """The contributions, as a score of the columns; means: of the columns."""
        weight, outcome = self.weight, self.form.outcome
        if weight is None:
            # The training error moves no value: a row's influence by training counts without its mean.
            return Score(r0 if outcome is None else -float(means[1:].sum()), np.ones(len(means)))
        c = np.zeros(len(means))
        if outcome is not None:
            c[2] = 1.0
        offset = r0 if outcome is None else 0.0  # w r = w (r - r0) + r0 w
        if not self.form.self_normalised:
            c[0], c[1] = offset, 1.0
            return Score(0.0, c)
        if means[0] == 0:
            raise SupportError(
                f"{self.name} is undefined: every weight is 0, no logged action has positive target probability. "
                "Collect more rows, or use DM."
            )
        # z = T + w (d - T) / mean(w): centred, the influence function of the ratio T
        ratio = float(means[1] / means[0])
        c[0], c[1] = -ratio / means[0], 1 / means[0]
        return Score(ratio + offset, c)

    def values(self, means: Floats, r0: float) -> Floats:
        """The values (b,) for means (m, b) of the columns, of parts of the rows; nan where every weight is 0."""
        weight, outcome = self.weight, self.form.outcome
        offset = r0 if outcome is None else 0.0
        if weight is None:
            return means[0] + offset
        direct = 0.0 if outcome is None else means[2]
        if not self.form.self_normalised:
            return np.asarray(direct + means[1] + offset * means[0])
        ratio = np.divide(means[1], means[0], out=np.full(means.shape[1], np.nan), where=means[0] > 0)
        return np.asarray(direct + offset + ratio)

    def estimate(self, answer: Answer) -> Estimate:
        if self.weight is not None:
            answer.need_support(self.target)
        score = self.score(answer.means(self.columns), answer.r0)
        ratio = self._ratio(answer) if self.form.self_normalised else None
        later = partial(self._steadied, answer)
        return answer.estimate(self.name, self.columns, score, later, self._range(), ratio)

    def _steadied(self, answer: Answer, estimate: Estimate) -> Diagnostics:
        """The diagnostics, with what the interval needs."""
        diagnostics = self.diagnostics(answer)
        if self.weight is None and self.form.outcome is not None:
            return self._leaned(answer, estimate, diagnostics) if self.leaning else diagnostics
        if self.weight is not None and self.weight.summed:
            diagnostics = self._fitted(answer, diagnostics)
        if self.weight is not None and self.form.outcome is not None and answer.log.estimates_logging:
            diagnostics = with_moved(diagnostics, estimate.value - answer.mean(self.columns[2]))
        pooled = pooled_of(answer, self.weight, self._noise(answer))
        return steady(answer, estimate, diagnostics, replace(pooled, level=self._level(answer)))

    def _fitted(self, answer: Answer, diagnostics: Diagnostics) -> Diagnostics:
        """With the error of a fitted logging policy, over whose actions the weights are sums."""
        return with_fit(diagnostics, answer.logging_fit(self.target), self._noise(answer))

    def _ratio(self, answer: Answer) -> tuple[Combination, Combination]:
        """The influence of the mean of weighted numbers over the mean weight, and the weights over their mean."""
        columns = self.columns[:2]
        weight, weighted = answer.means(columns)
        part = Score(0.0, np.array([-weighted / weight, 1.0]) / weight)
        return answer.combination(columns, part), answer.combination(columns, Score(0.0, np.array([1.0, 0.0]) / weight))

    def _leaned(self, answer: Answer, estimate: Estimate, diagnostics: Diagnostics) -> Diagnostics:
        """The diagnostics with a standard error that also allows for what the penalties took off the coefficients: by
        so much the mean prediction would move if the residuals of the training rows, which they left, were added."""
        error = math.hypot(estimate.stderr, answer.mean(self.columns[1]))
        return replace(diagnostics, stderr_floor=error)

    def _level(self, answer: Answer) -> float:
        """The mean of weights times what is weighted, where these are not normalised."""
        weight, outcome = self.weight, self.form.outcome
        if weight is None or self.form.self_normalised:
            return 0.0
        offset = answer.r0 * answer.mean(weight) if outcome is None else 0.0
        return answer.mean(self.columns[1]) + offset

    def _noise(self, answer: Answer) -> float:
        """The variance of what is weighted, or its mean square where the weights are not normalised."""
        outcome = self.form.outcome
        noisy: Column = Reward() if outcome is None else Residual(outcome, self.target)
        if self.weight is None or self.form.self_normalised:
            return answer.variance(noisy)
        return second_of(answer, noisy, answer.r0 if outcome is None else 0.0)

    def diagnostics(self, answer: Answer) -> Diagnostics:
        weight, outcome, n = self.weight, self.form.outcome, answer.n
        fitted = self.form.cross_fitted if outcome is None else answer.outcomes[outcome].cross_fitted
        if weight is None and outcome is None:
            return Diagnostics(n=n, effective_sample_size=float(answer.kish), max_weight=1.0, mean_weight=1.0)
        if weight is None:
            bias = MODEL_BIAS if self.leaning or fitted is None else MODEL_ERROR
            notes = (bias, NOT_TRAINED) if fitted is False else (bias,)
            unsupported = answer.unsupported(self.target)
            return Diagnostics(n=n, unsupported_mass=unsupported, cross_fitted=fitted, warnings=notes)
        return weight_diagnostics(answer, weight, fitted, self.form.notes)

    def _range(self) -> ScoreRange | None:
        weight, outcome = self.weight, self.form.outcome
        if not self.form.bounded:
            return None
        if weight is None:
            return ScoreRange("mean", 1.0)
        ceiling = weight.rule.ceiling if isinstance(weight, Weight) else None
        return ScoreRange("weighted" if outcome is None else "doubly_robust", lowest(self.most, ceiling))


def lowest(*bounds: float | None) -> float | None:
    """The least of the bounds that are known and finite, None without."""
    known = [bound for bound in bounds if bound is not None and np.isfinite(bound)]
    return min(known) if known else None


def weight_diagnostics(
    answer: Answer, weight: Weights, cross_fitted: bool | None, notes: tuple[str, ...] = ()
) -> Diagnostics:
    """Of an estimate that used a column of weights."""
    size = answer.effective_size(weight)
    if weight.tallied:
        facts = answer.weight_facts(weight)
        return weighted_by(size, answer.tally(weight).largest, facts, cross_fitted=cross_fitted, extra=notes)
    assert isinstance(weight, Weight)
    changed = answer.changed(weight)
    return weighted_by(
        size, changed.largest, answer.weight_facts(Weight(weight.target)), mean=answer.mean(weight),
        clipped_share=changed.rows / answer.n, cross_fitted=cross_fitted, extra=notes,
    )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class ChoicePart(Part):
    """An estimator that chooses among others. parts: theirs. choose: gives the estimate from those of the parts."""

    name: str
    target: int
    parts: tuple[Part, ...]
    choose: Callable[[Sequence[Estimate]], Estimate]

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return tuple(column for part in self.parts for column in part.columns)

    def estimate(self, answer: Answer) -> Estimate:
        return self.choose([part.estimate(answer) for part in self.parts])


@final
@dataclass(frozen=True, eq=False)
class WholePart(Part):
    """An estimator that needs all rows at once: its estimate on a log in memory, whose contributions are the column."""

    name: str
    target: int
    alone: Estimate
    column: Given

    @property
    def columns(self) -> tuple[Column, ...]:  # type: ignore[override]
        return (self.column,)

    def estimate(self, answer: Answer) -> Estimate:
        return replace(self.alone, sums=answer.single(self.column))


def form_part(asking: Asking, name: str, target: int, form: Form) -> FormPart:
    """The part of a form, after a look at whether this log and target allow it."""
    if form.outcome is not None:
        asking.outcome(form.outcome, target)
    leaning = form.weight is None and form.outcome is not None and asking.outcomes[form.outcome] is None
    if form.outcome is not None and leaning:
        asking.leaning.append((target, form.outcome))
    return FormPart(name, target, form, asking.max_weight(target), leaning)
