"""From estimators to demands: what each needs of the pass on this log and target, or an error that says why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, final

from cael.embedding.auto import Auto
from cael.embedding.cael import CAEL
from cael.errors import CaelError, InputError, LogError, NeedsError
from cael.estimators import Estimator
from cael.outcomes.base import FixedOutcome, OutcomeModel
from cael.outcomes.ridge import Ridge
from cael.problem import NEEDS
from cael.streaming.demands import Demand, Key, demand_of
from cael.streaming.learning import Learning
from cael.streaming.outcomes import Pair, predictable
from cael.streaming.pieces import refuse_text_contexts
from cael.streaming.scanned import ScannedLog
from cael.streaming.targets import Target


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


Wanted: TypeAlias = Demand | PathDemand | ChoiceDemand


def flat(demands: list[Wanted]) -> list[Demand | PathDemand]:
    """The demands, with the candidates in place of a choice."""
    found: list[Demand | PathDemand] = []
    for each in demands:
        if isinstance(each, ChoiceDemand):
            found += [part for part in each.parts if not isinstance(part, str)]
        else:
            found.append(each)
    return found


@final
@dataclass(eq=False)
class Wanting:
    """The demands on one log. models: (outcome model, folds, seed), each once. learning: of CAEL."""

    log: ScannedLog
    targets: tuple[Target, ...]
    learning: Learning
    models: list[tuple[OutcomeModel, int, int]] = field(default_factory=list)

    def demand(self, estimator: Estimator, target: int) -> Wanted:
        """What the estimator needs, if this log and this target have it."""
        if isinstance(estimator, CAEL):
            return self._path(estimator, target)
        if isinstance(estimator, Auto):
            return self._choice(estimator, target)
        return self._plain(estimator, target)

    def _path(self, estimator: CAEL, target: int) -> PathDemand:
        missing = self.learning.missing(target)
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
                assert not isinstance(found, ChoiceDemand)
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

        found = demand_of(estimator, target, number)
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
