"""The old policy as a learned one leans on it: the logging policy itself, or a model of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from cael.common.types import Floats
from cael.engine.drawn import Sample
from cael.engine.nuisances import fitted_to
from cael.errors import NeedsError
from cael.log.batch import Batch
from cael.log.held import Held, Run
from cael.log.logged import LoggedData
from cael.policies.fitted import FittedLogging
from cael.policies.label_fit import LabelModel
from cael.policies.policy import Policy
from cael.policies.propensity import EstimatedLogging


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ModelledOld(Policy):
    """The old policy as a model of it, fitted to logged propensities, has it; a function of the contexts.

    error: mean of |log(fitted / logged propensity)| on rows that a model did not see."""

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    n_actions: int
    model: LabelModel
    error: float

    def __repr__(self) -> str:
        return f"ModelledOld({self.n_actions} actions, error={self.error:.3f})"

    def probabilities(self, batch: Batch) -> Floats:
        eligible = None if batch.eligible is None else batch.eligible.mask()
        p = self.model.probabilities(batch.contexts, eligible)
        return p / p.sum(axis=1, keepdims=True)


@final
@dataclass(frozen=True, eq=False)
class Old:
    """policy: the old one. exact: whether it is the logging policy itself. words: what is said about it."""

    policy: Policy
    exact: bool
    words: tuple[str, ...] = ()


def old_of(log: Any, sample: Sample, rows: LoggedData) -> Old:
    """What is known of the old policy. log: the engine's. sample: of its rows. rows: what is learned from."""
    if not log.has_propensities:
        raise NeedsError(
            "learning needs propensities: how likely the logged actions were. Name their column, give logging=, or "
            "estimate them with logging='estimate' (--logging estimate), with caution."
        )
    known = rows.logging
    if known is not None and known.complete and (isinstance(log, Held) or as_function(log)):
        estimated = isinstance(known, EstimatedLogging)
        return Old(known, not estimated, (ESTIMATED,) if estimated else ())
    fitted = fitted_to(Sample(rows, Run(rows, 0, len(rows)).piece(slice(0, len(rows))), sample.of, sample.counts))
    words = () if known is not None else (fitted.fit.sentence,)
    return Old(modelled(fitted), False, words)


ESTIMATED = (
    "The propensities were estimated: the certificate assumes that the contexts hold everything that the old policy "
    "looked at, which no log can show. Test the policy on a part of the traffic before it replaces the old one."
)


def as_function(log: Any) -> bool:
    """Whether the logging policy of a log in files is a function of the contexts, not of columns."""
    target = log.logging
    return target is not None and target.spec is None and not isinstance(target.policy, EstimatedLogging)


def modelled(fitted: FittedLogging) -> ModelledOld:
    """One function of the contexts of a policy with a model for each fold."""
    return ModelledOld(n_actions=fitted.n_actions, model=fitted._models[0], error=fitted.fit.error)
