"""DM: believe the outcome model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

from cael.engine.asking import Asking
from cael.engine.parts import Form
from cael.estimators.estimator import Estimator
from cael.outcomes.outcome_model import OutcomeModel
from cael.outcomes.ridge import Ridge


@final
@dataclass(frozen=True)
class DM(Estimator):
    """The direct method: V = (1/n) sum_i sum_a pi(a|x_i) q(x_i, a).

    Unbiased only if the outcome model q is, which its interval assumes. With Ridge the interval holds the error of the
    coefficients (by their influence function) and what the penalties took off them; with other models neither. Needs
    no propensities.

    outcome: the model of the reward. folds: each row is predicted by a model trained on the other folds (0: trained
    on all rows, in-sample). seed: of the folds and of the model.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.DM(cael.FixedOutcome([1.0, 3.0])).estimate(log, [0.25, 0.75]).value
    2.5
    """

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    panel: ClassVar[str] = "default"
    outcome: OutcomeModel = field(default_factory=Ridge)
    folds: int = 5
    seed: int = 0

    def formula(self, asking: Asking, target: int) -> Form:
        return Form(outcome=self.modelled)
