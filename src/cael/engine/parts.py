"""Parts: what an estimator needs of a pass for one target, and how its estimate follows from what was kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.engine.answer import Answer
from cael.engine.asking import Asking
from cael.engine.columns import Column, Given, Outcome, Predicted, Product, Residual, Reward, Weight, Weights
from cael.engine.score import Score
from cael.errors import SupportError
from cael.inference.diagnostics import NOT_TRAINED as NOT_TRAINED
from cael.inference.diagnostics import Diagnostics, weighted_by
from cael.inference.estimate import Estimate, ScoreRange
from cael.inference.weight_rules import WeightRule

MODEL_BIAS = "The interval covers the mean of the model's predictions; the bias of the model is not in it."


class Part(ABC):
    """What an estimator needs of a pass. name: of the estimator. target: its number. columns: that it needs."""

    name: str
    target: int
    columns: tuple[Column, ...]

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
    """A part of the form that nearly all estimators have."""

    name: str
    target: int
    form: Form
    most: float | None

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
            return (Reward(),) if outcome is None else (Predicted(self.target, outcome),)
        if outcome is None:
            return (weight, Product(weight, Reward()))
        residual = Residual(outcome, self.target)
        return (weight, Product(weight, residual), Predicted(self.target, outcome), residual)

    def score(self, means: Floats, r0: float) -> Score:
        """The contributions, as a score of the columns; means: of the columns."""
        weight, outcome = self.weight, self.form.outcome
        if weight is None:
            return Score(r0 if outcome is None else 0.0, np.ones(1))
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

    def estimate(self, answer: Answer) -> Estimate:
        if self.weight is not None:
            answer.need_support(self.target)
        score = self.score(answer.means(self.columns), answer.r0)
        return answer.estimate(self.name, self.columns, score, self.diagnostics(answer), self._range())

    def diagnostics(self, answer: Answer) -> Diagnostics:
        weight, outcome, n = self.weight, self.form.outcome, answer.n
        fitted = self.form.cross_fitted if outcome is None else answer.outcomes[outcome].cross_fitted
        if weight is None and outcome is None:
            return Diagnostics(n=n, effective_sample_size=float(n), max_weight=1.0, mean_weight=1.0)
        if weight is None:
            notes = (MODEL_BIAS, NOT_TRAINED) if fitted is False else (MODEL_BIAS,)
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
    return FormPart(name, target, form, asking.max_weight(target))
