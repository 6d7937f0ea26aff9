"""MDR: the weights of MIPS, and an outcome model whose residual they weight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

from cael.engine.asking import Asking
from cael.engine.parts import Form, Part, form_part
from cael.estimators.estimator import Estimator
from cael.estimators.marginal import EMBEDDING_BIAS, MIPS, NOT_CONVERGED
from cael.estimators.marginal_weights import MarginalWeight
from cael.outcomes.outcome_model import OutcomeModel
from cael.outcomes.ridge import Ridge


@final
@dataclass(frozen=True)
class MDR(Estimator):
    """Marginalised doubly robust (Shimizu and Forastiere 2023, arXiv:2308.03443): MIPS with an outcome model.

    V = (1/n) sum_i [ q(x_i, pi) + rho_i (r_i - q(x_i, a_i)) ], rho of `MIPS`. Unbiased if the residual r - q has no
    effect of the action beyond context and embedding: where MIPS is unbiased, with less variance the better q is, and
    where q is right about what the embedding misses. `OffCEM` is the same with clusters for embeddings.

    mips: the settings of the weights. outcome, folds, seed: see `DM`.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 2], [1.0, 1.0, 4.0], logging=[0.25, 0.25, 0.5])
    >>> weights = cael.MIPS([[0], [0], [1]], posterior="exact")
    >>> cael.MDR(weights, cael.FixedOutcome([1.0, 1.0, 4.0])).estimate(log, [0.0, 0.5, 0.5]).value  # q is right: DM
    2.5
    """

    needs: ClassVar[tuple[str, ...]] = MIPS.needs
    mips: MIPS = field(default_factory=MIPS)
    outcome: OutcomeModel = field(default_factory=Ridge)
    folds: int = 5
    seed: int = 0

    @property
    def name(self) -> str:
        """For tables."""
        model = "" if self.outcome == Ridge() else f"({self.outcome})"
        return self.mips.name.replace("MIPS", "MDR") + model

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        source = self.mips.source(asking)
        notes = (EMBEDDING_BIAS,) if source.converged else (EMBEDDING_BIAS, NOT_CONVERGED)
        form = Form(MarginalWeight(target, source), self.modelled, self.mips.self_normalised, notes=notes)
        return form_part(asking, self.name, target, form)
