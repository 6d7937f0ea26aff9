"""The certificate: an evaluation of the learned policy on rows that took no part in learning or choosing it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from cael.common.types import Floats
from cael.estimators.direct import DM
from cael.estimators.doubly_robust import DR, SNDR
from cael.estimators.weighting import IPS, SNIPS, LoggedMean
from cael.judging.thresholds import Thresholds
from cael.learning.scorers import NetworkScores
from cael.outcomes.outcome_model import FixedOutcome
from cael.policies.policy import Policy
from cael.results.evaluate import controls_of, evaluation_of
from cael.results.evaluation import Evaluation
from cael.results.question import Question, ask_question
from cael.worlds.world import unlogged


@final
@dataclass(frozen=True, eq=False)
class Predicted:
    """A reward model as a function of contexts."""

    scorer: NetworkScores
    n_actions: int
    __name__: ClassVar[str] = "learned"

    def __call__(self, contexts: Floats) -> Floats:
        return self.scorer.scores(unlogged(contexts, self.n_actions))


def certified(
    rows: Any, policy: Policy, model: NetworkScores, level: float, thresholds: Thresholds | None
) -> Evaluation:
    """The evaluation on the rows of the certificate, by a model that was trained on the others: nothing is trained
    here."""
    outcome = FixedOutcome(Predicted(model, rows.n_actions))
    best = SNDR(outcome)
    panel = [LoggedMean(), best, DR(outcome), DM(outcome), SNIPS(), IPS()]
    asked = ask_question(rows, {"": policy}, Question(), (panel, ()), controls_of([best]), (best.name,))
    return plainly(evaluation_of(asked, level, best, thresholds), best.name.removeprefix("SNDR"))


def plainly(evaluation: Evaluation, ending: str) -> Evaluation:
    """The same, whose estimators have their names without the settings that all of them share."""
    estimates = tuple(replace(one, estimator=one.estimator.removesuffix(ending)) for one in evaluation.estimates)
    skipped = tuple((name.removesuffix(ending), why) for name, why in evaluation.skipped)
    headline = evaluation.headline.removesuffix(ending)
    verdict = replace(evaluation.verdict, estimator=headline)
    return replace(evaluation, estimates=estimates, skipped=skipped, headline=headline, verdict=verdict)
