"""DM: believe the outcome model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

from cael.estimators.estimator import Estimator, mean_of
from cael.estimators.problem import Problem
from cael.inference.diagnostics import Diagnostics
from cael.inference.estimate import Estimate
from cael.outcomes.outcome_model import OutcomeModel
from cael.outcomes.ridge import Ridge

NOT_TRAINED = "The outcome model was trained on the rows it predicts: the interval is too narrow."
MODEL_BIAS = "The interval covers the mean of the model's predictions; the bias of the model is not in it."


@final
@dataclass(frozen=True)
class DM(Estimator):
    """The direct method: V = (1/n) sum_i sum_a pi(a|x_i) q(x_i, a).

    Unbiased only if the outcome model q is; its interval covers the mean of the predictions and knows nothing of the
    model's bias. Needs no propensities.

    outcome: the model of the reward. folds: each row is predicted by a model trained on the other folds (0: trained
    on all rows, in-sample). seed: of the folds and of the model.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1], [1.0, 3.0], [0.5, 0.5])
    >>> cael.DM(cael.FixedOutcome([1.0, 3.0])).estimate(log, [0.25, 0.75]).value
    2.5
    """

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    outcome: OutcomeModel = field(default_factory=Ridge)
    folds: int = 5
    seed: int = 0

    def solve(self, problem: Problem) -> Estimate:
        terms = problem.outcome(self.outcome, self.folds, self.seed)
        warnings = (MODEL_BIAS, NOT_TRAINED) if terms.cross_fitted is False else (MODEL_BIAS,)
        found = Diagnostics(
            n=len(problem.log), unsupported_mass=problem.unsupported_mass, cross_fitted=terms.cross_fitted,
            warnings=warnings,
        )  # fmt: skip
        return mean_of(self.name, problem, terms.q_target, found)
