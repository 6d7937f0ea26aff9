"""From estimators to demands: what each needs of the pass on this log and target, or an error that says why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, final

from cael.embedding.auto import Auto, to_learn
from cael.embedding.cael import CAEL
from cael.engine.demands import Demand, Key, demand_of
from cael.engine.learning import Learning
from cael.engine.predictions import Pair, predictable
from cael.engine.tally import Rule
from cael.errors import CaelError, InputError, LogError, NeedsError
from cael.estimators import MIPS, SLOPE, Estimator, SubGaussianDR, SubGaussianIPS
from cael.estimators.problem import NEEDS
from cael.estimators.selection import Tuned
from cael.inference.weights import lambda_of
from cael.log.pieces import refuse_text_contexts
from cael.log.scanned import ScannedLog
from cael.log.targets import Target
from cael.outcomes.outcome_model import FixedOutcome, OutcomeModel
from cael.outcomes.ridge import Ridge


@final
@dataclass(frozen=True)
class PathDemand:
    """CAEL on a target. path: its number. width: of its columns."""

    estimator: CAEL
    target: int
    path: int
    width: int

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(("path", self.path, at) for at in range(self.width))


@final
@dataclass(frozen=True)
class ChoiceDemand:
    """Auto on a target. parts: the demand of each candidate, or the sentence that says why it is left out."""

    estimator: Auto
    target: int
    parts: tuple[Demand | PathDemand | str, ...]

    @property
    def keys(self) -> tuple[Key, ...]:
        """What is asked beside the keys of its parts: what the outcome models leave of the rewards."""
        modelled = [each for each in self.parts if isinstance(each, Demand) and each.outcome is not None]
        return tuple(("d", each.target, each.outcome) for each in modelled)  # type: ignore[misc]


@final
@dataclass(frozen=True)
class SlopeDemand:
    """A choice by SLOPE on a target. parts: the demand of each candidate."""

    estimator: Estimator
    target: int
    parts: tuple[Demand | PathDemand, ...]
    delta: float
    keys: tuple[Key, ...] = ()


Wanted: TypeAlias = Demand | PathDemand | ChoiceDemand | SlopeDemand


def flat(demands: list[Wanted]) -> list[Demand | PathDemand]:
    """The demands, with the candidates in place of a choice."""
    found: list[Demand | PathDemand] = []
    for each in demands:
        if isinstance(each, ChoiceDemand | SlopeDemand):
            found += [part for part in each.parts if not isinstance(part, str)]
        else:
            found.append(each)
    return found


@final
@dataclass(eq=False)
class Wanting:
    """The demands on one log. models: (outcome model, folds, seed), each once. learning: of CAEL. look: a pass that
    finds (rows, largest weight, mean squared weight) of each target, for settings that depend on them."""

    log: ScannedLog
    targets: tuple[Target, ...]
    learning: Learning
    look: Callable[[], list[tuple[int, float, float]]]
    models: list[tuple[OutcomeModel, int, int]] = field(default_factory=list)

    def demand(self, estimator: Estimator, target: int) -> Wanted:
        """What the estimator needs, if this log and this target have it."""
        if isinstance(estimator, CAEL):
            return self._path(estimator, target)
        if isinstance(estimator, MIPS):
            return self._marginal(estimator, target)
        if isinstance(estimator, Auto):
            return self._choice(estimator, target)
        if isinstance(estimator, SLOPE):
            return self._slope(estimator, estimator.estimators(), estimator, target)
        if isinstance(estimator, Tuned) and estimator.chooser is not None:
            every = estimator.chooser.settled(estimator, lambda: self.seen[target][1])
            return self._slope(estimator, every, estimator.chooser, target)
        return self._plain(estimator, target)

    @cached_property
    def seen(self) -> list[tuple[int, float, float]]:
        if not self.log.has_propensities:
            raise NeedsError(f"it needs {NEEDS['propensities']}.")
        return self.look()

    def _slope(self, estimator: Estimator, candidates: Sequence[Estimator], chooser: SLOPE, target: int) -> SlopeDemand:
        parts = [self.demand(each, target) for each in candidates]
        plain = tuple(each for each in parts if isinstance(each, Demand | PathDemand))
        if len(plain) < len(parts):
            raise NeedsError(f"{estimator.name} chooses among choices, which needs the log in memory.")
        return SlopeDemand(estimator, target, plain, chooser.delta)

    def _marginal(self, estimator: MIPS, target: int) -> Demand:
        missing = self.learning.missing(target)
        if missing:
            raise NeedsError(f"it needs {'; and '.join(missing)}.")
        rule = Rule("marginal", float(self.learning.marginal(estimator)))
        return Demand(estimator, target, "ratio" if estimator.self_normalised else "weighted", rule)

    def _path(self, estimator: CAEL, target: int) -> PathDemand:
        missing = [*self.learning.missing(target), *to_learn(equal=False)]
        if missing:
            raise NeedsError(f"it needs {'; and '.join(missing)}.")
        path = self.learning.path(estimator, target)
        return PathDemand(estimator, target, path, self.learning.paths[path].width)

    def _choice(self, estimator: Auto, target: int) -> ChoiceDemand:
        if not self.log.has_propensities:
            raise NeedsError(f"it needs {NEEDS['propensities']}.")
        parts: list[Demand | PathDemand | str] = []
        for each in estimator.candidates():
            try:
                found = self.demand(each, target)
                assert isinstance(found, Demand | PathDemand)
                parts.append(found)
            except LogError:
                raise
            except CaelError as error:
                parts.append(f"Auto left {each.name} out: {error}")
        return ChoiceDemand(estimator, target, tuple(parts))

    def _plain(self, estimator: Estimator, target: int) -> Demand:
        def number(model: OutcomeModel) -> int:
            folds, seed = int(getattr(estimator, "folds", 0)), int(getattr(estimator, "seed", 0))
            if isinstance(model, FixedOutcome):
                predictable(model)
            elif not isinstance(model, Ridge):
                refuse_text_contexts(self.log.source, self.log.columns)
                self.learning.model(model, folds, seed)
            elif self.log.predictions is None:
                refuse_text_contexts(self.log.source, self.log.columns)
            key = (model, folds, seed)
            if key not in self.models:
                self.models.append(key)
            return self.models.index(key)

        settled = estimator
        if isinstance(estimator, SubGaussianIPS | SubGaussianDR) and estimator.lambda_ is None:
            n, _, second = self.seen[target]
            settled = replace(estimator, lambda_=lambda_of(second, n))
        found = replace(demand_of(settled, target, number), estimator=estimator)
        if found.rule is not None and not self.log.has_propensities:
            raise NeedsError(f"it needs {NEEDS['propensities']}.")
        if found.outcome is not None:
            self._model(estimator, target)
        return found

    def _model(self, estimator: Estimator, target: int) -> None:
        """Refuse where the predictions of the target's actions cannot be had."""
        own = isinstance(estimator.outcome, Ridge) and self.log.predictions is not None  # type: ignore[attr-defined]
        if own and isinstance(self.log.predictions, Pair):
            if len(self.targets) > 1:
                raise InputError(
                    "predictions 'LOGGED+TARGET' belong to one target, and there are several. Give the predictions of "
                    "all actions: a pattern, or a column of lists."
                )
        elif not self.targets[target].complete:
            raise NeedsError(f"it needs {NEEDS['probabilities']}.")
