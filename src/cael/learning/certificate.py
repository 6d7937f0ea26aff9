"""The certificate: an evaluation of the learned policy on rows that took no part in learning or choosing it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from cael.common.types import Floats
from cael.estimators.direct import DM
from cael.estimators.doubly_robust import DR, SNDR
from cael.estimators.weighting import IPS, SNIPS, LoggedMean
from cael.inference.intervals import quantile
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.learning.scorers import NetworkScores
from cael.outcomes.outcome_model import FixedOutcome
from cael.policies.policy import Policy
from cael.results.evaluate import controls_of, evaluation_of
from cael.results.evaluation import Evaluation
from cael.results.metric import Metric
from cael.results.question import Question, ask_question
from cael.results.scorecard import Measured, measured_row
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


@final
@dataclass(frozen=True, eq=False)
class Certificate:
    """The evaluation on the rows of the certificate, and the guardrails there, each at the level of the evaluation."""

    evaluation: Evaluation
    guarded: tuple[Measured, ...] = ()


def certified(
    rows: Any, policy: Policy, model: NetworkScores, level: float, thresholds: Thresholds | None,
    guardrails: tuple[Metric, ...] = (),
) -> Certificate:  # fmt: skip
    """By a model that was trained on the other rows: nothing but the ridge models of guardrails is trained here."""
    outcome = FixedOutcome(Predicted(model, rows.n_actions))
    best = SNDR(outcome)
    panel = [LoggedMean(), best, DR(outcome), DM(outcome), SNIPS(), IPS()]
    metrics = (Metric(rows.reward_name), *guardrails) if guardrails else ()
    panels, usual = (panel, [LoggedMean(), SNDR(), SNIPS()]), controls_of([best, *([SNDR()] if guardrails else [])])
    asked = ask_question(rows, {"": policy}, Question(metrics), panels, usual, (best.name,))
    evaluation = evaluation_of(replace(asked, question=Question()), level, best, thresholds)
    guarded = tuple(
        measured_row(asked.row(metric, 0, "SNDR", level, thresholds or DEFAULT), quantile(level), level)
        for metric in guardrails
    )
    return Certificate(plainly(evaluation, best.name.removeprefix("SNDR")), guarded)


def plainly(evaluation: Evaluation, ending: str) -> Evaluation:
    """The same, whose estimators have their names without the settings that all of them share."""
    estimates = tuple(replace(one, estimator=one.estimator.removesuffix(ending)) for one in evaluation.estimates)
    skipped = tuple((name.removesuffix(ending), why) for name, why in evaluation.skipped)
    headline = evaluation.headline.removesuffix(ending)
    verdict = replace(evaluation.verdict, estimator=headline)
    return replace(evaluation, estimates=estimates, skipped=skipped, headline=headline, verdict=verdict)
