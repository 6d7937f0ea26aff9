"""Columns: named per-row numbers, each computed once however many estimators ask for it, on any kind of log.

r stands for r - r0, with a constant r0 near the rewards: so no digits are lost in sums where rewards have an offset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.inference.weight_rules import Raw, WeightRule
from cael.log.pieces import Piece
from cael.outcomes.outcome_model import OutcomeModel
from cael.policies.aligned import asked_once
from cael.policies.expectations import second_moments, surprises, unsupported
from cael.policies.fitted import FittedLogging
from cael.policies.policy import Policy, logged_probability

if TYPE_CHECKING:
    from cael.engine.predictions import Predictions, Starts


LOGGING = -1
"""The number of the logging policy, where a target is named."""


@final
@dataclass(frozen=True)
class Outcome:
    """An outcome model as an estimator asks for it: the settings, and the folds of the cross-fitting."""

    model: OutcomeModel
    folds: int
    seed: int


class Column(ABC):
    """A number for each row, by what it is; equal columns are one. control: whether its mean is 0 whatever the models
    say, because the logging policy is known: a control variate. rewarded: whether it depends on what the reward is;
    the others are shared between the metrics of a question."""

    control: bool = False
    rewarded: bool = True

    @abstractmethod
    def fill(self, out: Floats, batch: Filling) -> None:
        """Write the column (n,) of a batch."""


class Weights(Column):
    """A column of weights of a target. tallied: whether they are counted by size. contexts: whether they need them.
    summed: whether they are sums over all actions of the logging policy, which may be fitted."""

    target: int
    rewarded: bool = False
    tallied: bool = True
    contexts: bool = False
    summed: bool = False


@final
@dataclass(frozen=True)
class Reward(Column):
    """r - r0."""

    def fill(self, out: Floats, batch: Filling) -> None:
        np.subtract(batch.piece.rewards, batch.r0, out=out)


@final
@dataclass(frozen=True)
class Weight(Weights):
    """The weights of a target by a rule."""

    target: int
    rule: WeightRule = Raw()  # noqa: RUF009

    @property
    def plain(self) -> bool:
        """Whether they are w as it is."""
        return self.rule == Raw()

    @property
    def tallied(self) -> bool:  # type: ignore[override]
        return self.plain

    def fill(self, out: Floats, batch: Filling) -> None:
        propensities = batch.piece.propensities
        assert propensities is not None
        if self.plain:
            np.divide(batch.logged_probability(self.target), propensities, out=out)
        else:
            out[:] = self.rule(batch.get(Weight(self.target)), propensities)


@final
@dataclass(frozen=True)
class Product(Column):
    """The product of two columns."""

    left: Column
    right: Column

    @property
    def rewarded(self) -> bool:  # type: ignore[override]
        return self.left.rewarded or self.right.rewarded

    def fill(self, out: Floats, batch: Filling) -> None:
        np.multiply(batch.get(self.left), batch.get(self.right), out=out)


@final
@dataclass(frozen=True)
class Size(Column):
    """The absolute value of a column."""

    of: Column

    def fill(self, out: Floats, batch: Filling) -> None:
        np.abs(batch.get(self.of), out=out)


def squared(column: Column) -> Product:
    """The square of a column."""
    return Product(column, column)


@final
@dataclass(frozen=True)
class Residual(Column):
    """r - q(x, a). target: whose predictions these are, where they are given for one target alone."""

    outcome: Outcome
    target: int

    def fill(self, out: Floats, batch: Filling) -> None:
        np.subtract(batch.piece.rewards, batch.predicted(self.target, self.outcome)[0], out=out)


@final
@dataclass(frozen=True)
class Predicted(Column):
    """q(x, pi), the mean prediction under a target."""

    target: int
    outcome: Outcome

    def fill(self, out: Floats, batch: Filling) -> None:
        out[:] = batch.predicted(self.target, self.outcome)[1]


@final
@dataclass(frozen=True)
class Training(Column):
    """What a row adds to the mean prediction of Ridge under a target as a row that trained it, but for its mean."""

    target: int
    outcome: Outcome

    def fill(self, out: Floats, batch: Filling) -> None:
        balance = batch.outcomes[self.outcome].balance(batch.piece, self.target)
        np.multiply(balance, batch.get(Residual(self.outcome, self.target)), out=out)


@final
@dataclass(frozen=True)
class Control(Column):
    """q(x, a) - q(x, mu): what the draw of the logged action did to its reward, as far as a model knows."""

    control: ClassVar[bool] = True  # type: ignore[misc]
    outcome: Outcome

    def fill(self, out: Floats, batch: Filling) -> None:
        logged, mean = batch.predicted(LOGGING, self.outcome)
        np.subtract(logged, mean, out=out)


@final
@dataclass(frozen=True)
class InFold(Column):
    """1 in one of the folds, 0 elsewhere."""

    rewarded: ClassVar[bool] = False  # type: ignore[misc]
    folds: int
    seed: int
    fold: int

    def fill(self, out: Floats, batch: Filling) -> None:
        np.equal(batch.piece.folds(self.folds, self.seed), self.fold, out=out)


@final
@dataclass(frozen=True)
class Lost(Column):
    """The target's probability of actions that the logging policy never plays."""

    rewarded: ClassVar[bool] = False  # type: ignore[misc]
    target: int

    def fill(self, out: Floats, batch: Filling) -> None:
        assert batch.logging is not None
        out[:] = unsupported(batch.logging, batch.policies[self.target], batch.piece.batch())


@final
@dataclass(frozen=True)
class SecondMoment(Column):
    """sum_a pi^2 / mu: what w^2 is on average in this row."""

    rewarded: ClassVar[bool] = False  # type: ignore[misc]
    target: int

    def fill(self, out: Floats, batch: Filling) -> None:
        assert batch.logging is not None
        out[:] = second_moments(batch.logging, batch.policies[self.target], batch.piece.batch())


@final
@dataclass(frozen=True)
class Surprise(Column):
    """log mu(a|x) less its mean over the actions of mu, which has mean 0 if the logging policy is what it says.

    relative: the same of mu(a|x) / popularity(a), which sees most sharply whether actions belong to these contexts.
    """

    rewarded: ClassVar[bool] = False  # type: ignore[misc]
    relative: bool

    def fill(self, out: Floats, batch: Filling) -> None:
        out[:] = batch.surprises[int(self.relative)]


@final
@dataclass(frozen=True)
class Misfit(Column):
    """|log(fitted probability / propensity)| of the logged action, by a model that did not see the row."""

    rewarded: ClassVar[bool] = False  # type: ignore[misc]

    def fill(self, out: Floats, batch: Filling) -> None:
        assert batch.fitted is not None
        out[:] = batch.fitted.errors(batch.piece.batch())


@final
@dataclass(frozen=True, eq=False)
class Given(Column):
    """Numbers (n,) of a log in memory, from an estimator that needs all rows at once."""

    values: Floats

    def fill(self, out: Floats, batch: Filling) -> None:
        out[:] = self.values[batch.piece.first : batch.piece.first + len(batch.piece)]


@final
@dataclass(frozen=True)
class Member(Column):
    """One of the columns that a group makes together. group: says which of them are controls."""

    group: Any
    number: int

    @property
    def control(self) -> bool:  # type: ignore[override]
        return self.number in self.group.controls

    def fill(self, out: Floats, batch: Filling) -> None:
        out[:] = batch.group(self.group)[0][self.number]


@final
@dataclass(frozen=True)
class OfMetric(Column):
    """A column whose reward is one of the further metrics of a question. number: of the metric, from 1 on."""

    column: Column
    number: int

    @property
    def control(self) -> bool:  # type: ignore[override]
        return self.column.control

    def fill(self, out: Floats, batch: Filling) -> None:
        self.column.fill(out, batch.of(self.number))


def for_metric(column: Column, number: int) -> Column:
    """The column of a metric: as it is for the first, and where it does not depend on the reward."""
    return OfMetric(column, number) if number and column.rewarded else column


@final
@dataclass(frozen=True, eq=False)
class Metered:
    """A further metric of a question. r0: taken off its values. outcomes: models of it."""

    r0: float
    outcomes: dict[Outcome, Predictions]


@final
@dataclass(eq=False)
class Filling:
    """A batch while its columns are computed. rows: where the columns that are kept go. logging: the logging policy,
    where it is known. fitted: where it was fitted instead. metrics: the further ones. whole, number: of the filling of
    such a one, the batch that it belongs to and its number."""

    piece: Piece
    rows: dict[Column, Floats]
    r0: float
    policies: list[Policy]
    logging: Policy | None
    outcomes: dict[Outcome, Predictions]
    popularity: Floats | None = None
    fitted: FittedLogging | None = None
    metrics: tuple[Metered, ...] = ()
    whole: Filling | None = None
    number: int = 0

    def __post_init__(self) -> None:
        self._of: dict[int, Filling] = {}
        self._done: dict[Column, Floats] = {}
        self._terms: dict[tuple[int, Outcome], dict[int, tuple[Floats, Floats]]] = {}
        self._starts: dict[Outcome, Starts | None] = {}
        self._groups: dict[Any, Any] = {}

    def all(self) -> None:
        """Fill every column that is kept."""
        for column in self.rows:
            self.get(column)

    def get(self, column: Column) -> Floats:
        """A column (n,), computed when it is first asked for."""
        if self.whole is not None:
            return self.whole.get(for_metric(column, self.number))
        if column not in self._done:
            out = self.rows[column] if column in self.rows else np.empty(len(self.piece))
            column.fill(out, self)
            self._done[column] = out
        return self._done[column]

    def counted(self, column: Floats) -> Floats:
        """A column (n,) times the sampling weights, where rows have them."""
        return column if self.piece.sampling is None else column * self.piece.sampling

    def of(self, number: int) -> Filling:
        """The batch with one of the further metrics as the reward."""
        if number not in self._of:
            metric, piece = self.metrics[number - 1], replace(self.piece, rewards=self.piece.metrics[number - 1])
            self._of[number] = Filling(
                piece, {}, metric.r0, self.policies, self.logging, metric.outcomes, self.popularity, self.fitted,
                whole=self, number=number,
            )  # fmt: skip
        return self._of[number]

    def predicted(self, target: int, outcome: Outcome) -> tuple[Floats, Floats]:
        """q(x, a) and q(x, pi), each (n,), for all metrics at once. target: LOGGING is the logging policy."""
        whole, key = self.whole or self, (target, outcome)
        if key not in whole._terms:
            whole._terms[key] = whole._terms_of(target, outcome)
        return whole._terms[key][self.number]

    def _terms_of(self, target: int, outcome: Outcome) -> dict[int, tuple[Floats, Floats]]:
        """By the number of the metric, of those that have this outcome model."""
        from cael.engine.predictions import starts_of, terms_of_all

        policy = self.logging if target == LOGGING else self.policies[target]
        assert policy is not None
        of_metrics = [self.outcomes, *(metric.outcomes for metric in self.metrics)]
        models = {number: trained.get(outcome) for number, trained in enumerate(of_metrics)}
        known = {number: model for number, model in models.items() if model is not None}
        several = list(known.values())
        if outcome not in self._starts:
            self._starts[outcome] = starts_of(several, self.piece)
        return dict(zip(known, terms_of_all(several, self.piece, policy, self._starts[outcome]), strict=True))

    def group(self, group: Any) -> Any:
        """The columns (m, n) of a group, and what else it sums."""
        if group not in self._groups:
            self._groups[group] = group.of(self.piece, self.policies[group.target], self.whole_logging)
        return self._groups[group]

    @cached_property
    def whole_logging(self) -> Policy | None:
        """The logging policy for sums over all actions of a row: as it is known, or fitted."""
        if self.whole is not None:
            return self.whole.whole_logging
        return self.logging if self.fitted is None else asked_once(self.fitted, self.piece.batch())

    def logged_probability(self, target: int) -> Floats:
        """The target's probability of each logged action."""
        return logged_probability(self.policies[target], self.piece.batch())

    @cached_property
    def surprises(self) -> tuple[Floats, Floats]:
        assert self.logging is not None
        assert self.popularity is not None
        return surprises(self.logging, self.piece.batch(), self.popularity)
