"""Outcome models: what reward to expect of a context and an action, q(x, a)."""

from cael.outcomes.outcome_model import FittedOutcome, FixedOutcome, OutcomeModel, OutcomeTerms, outcome_terms
from cael.outcomes.ridge import Ridge
from cael.outcomes.sampled import Sampled
from cael.outcomes.sklearn import Boosting, Logistic, SklearnOutcome

__all__ = [
    "Boosting",
    "FittedOutcome",
    "FixedOutcome",
    "Logistic",
    "OutcomeModel",
    "OutcomeTerms",
    "Ridge",
    "Sampled",
    "SklearnOutcome",
    "outcome_terms",
]
