"""evaluate: one policy by several estimators side by side, with the verdict on them."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cael.common.lazy import exported
from cael.common.visible import visible
from cael.embedding.auto import Auto
from cael.embedding.exact.flagship import CAEL
from cael.embedding.settings import Growth
from cael.engine.answer import Answer
from cael.engine.asking import as_engine_log
from cael.engine.columns import Outcome
from cael.errors import InputError, NeedsError, choose
from cael.estimators.direct import DM
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.weighting import SNIPS, LoggedMean
from cael.inference import intervals as inference
from cael.inference.estimate import reworded
from cael.judging.checks import choose_headline
from cael.judging.overlap_facts import overlap_of
from cael.judging.sensitivity import sensitivity_of
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.log.held import EngineLog
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.log.targets import Target
from cael.policies.given import PolicyLike
from cael.results.course import course_of
from cael.results.evaluation import Evaluation
from cael.results.lifts import outcome_of
from cael.results.metric import Metric
from cael.results.question import Asked, Question, ask_question, question_of
from cael.results.scope import scope_of


def panel(which: str = "default") -> tuple[Estimator, ...]:
    """The estimators that every evaluation shows side by side ("default"), those and the rest ("all"), or "learned".

    The learned ones train networks: Auto, CAEL, and those of the paper.
    """
    choose("panel", which, ("default", "all", "learned"))
    panels = ("default", "all") if which == "all" else (which,)
    return tuple(kind() for kind in exported(Estimator) if kind.panel in panels)


def auto(budget: float | None) -> Auto:
    """Auto, whose training ends after so many seconds (None: when it no longer helps)."""
    return Auto() if budget is None else Auto(cael=CAEL(growth=Growth(budget=budget)))


def default_estimator(
    log: EngineLog, targets: Sequence[Target], learn: bool | None, budget: float | None = None
) -> Estimator:
    """The estimator that decisions rest on unless another is asked for: the same in evaluate, compare and segments.

    Auto; without learning SNDR, or SNIPS where a target is known on logged actions alone; DM without propensities.
    """
    learning = auto(budget)
    if not log.has_propensities:
        return DM()
    if learn is None or learn:
        return learning
    predicted = log.predictions is not None and len(targets) == 1
    return SNDR() if predicted or all(target.complete for target in targets) else SNIPS()


def panel_with(
    estimators: Sequence[Estimator] | Estimator | None, learn: bool | None, budget: float | None = None
) -> tuple[dict[str, Estimator], dict[str, Estimator]]:
    """The default panel with what was asked for in it, and what was asked for, both by name."""
    given = () if estimators is None else (estimators,) if isinstance(estimators, Estimator) else tuple(estimators)
    asked = {estimator.name: estimator for estimator in only_estimators(given, "cael.SNIPS()")}
    usual = panel() if learn is False else (auto(budget), *panel())
    return {**{estimator.name: estimator for estimator in usual}, **asked}, asked


def only_estimators(given: Sequence[Any], example: str) -> tuple[Estimator, ...]:
    """What was given, or an error where one is no estimator."""
    for estimator in given:
        if not isinstance(estimator, Estimator):
            raise InputError(f"estimators must be cael estimators, such as {example}; got {estimator!r}.")
    return tuple(given)


def controls_of(estimators: Iterable[Estimator]) -> list[Outcome]:
    """The outcome models of the control variates for these estimators, each once."""
    return list(dict.fromkeys(map(outcome_of, estimators)))


def evaluate(
    log: LoggedData | ScannedLog,
    policy: PolicyLike,
    estimators: Sequence[Estimator] | Estimator | None = None,
    *,
    metrics: Sequence[str | Metric] | None = None,
    baseline: Any = None,
    level: float = 0.95,
    headline: str | Estimator | None = None,
    thresholds: Thresholds | None = None,
    learn: bool | None = None,
    budget: float | None = None,
    seed: int = 0,
) -> Evaluation:
    """What the policy would have earned per row of the log, by several estimators side by side.

    Auto comes first, then LoggedMean, IPS, SNIPS, DM, DR and SNDR; `estimators` are added to them (one of the same
    name takes the place of the default). Those of the default panel that the log or the policy does not allow are
    listed as skipped, with the reason; an estimator that was asked for and cannot be computed is an error.

    metrics: what to evaluate by, as texts such as "clicked", "spend/clicked" or "latency:min:+2%", or `cael.Metric`;
    the first is the primary one, and the panel is about it. With several there is a `scorecard`, whose intervals are
    simultaneous (max-t bootstrap with `seed`), and a decision: ship, test or keep. baseline: the policy that the lift
    is over, alone or as (name, policy); None: the logging policy.

    learn: False leaves Auto out, which trains networks (CAEL) where that can shorten the interval: seconds to a minute,
    and about four minutes for a million rows. budget: so many seconds of training at most.

    headline: the estimate that the verdict is about, by name or as one of `estimators`; by default the first that
    exists of Auto, SNDR, DR, SNIPS, BaselineIPS, IPS, DM. thresholds: where a doubt becomes a caution or a refusal.

    log: in memory, or scanned (`cael.scan`). policy may be a text such as "topk:items+chances" where the log was read
    from a table. Estimators that need all rows at once are skipped on a scanned log, with the reason.
    """
    inference.check_level(level)
    question = question_of(metrics, baseline)
    asked = asked_about(
        as_engine_log(log), {"": policy}, estimators, learn, budget, headline=headline, question=question
    )
    warn(asked.answer)
    return evaluation_of(asked, level, headline, thresholds, seed)


def asked_about(
    log: EngineLog,
    policies: Mapping[str, Any],
    estimators: Sequence[Estimator] | Estimator | None,
    learn: bool | None,
    budget: float | None = None,
    *,
    headline: str | Estimator | None = None,
    question: Question | None = None,
    **cuts: Any,
) -> Asked:
    """The answer to the default panel with what was asked for in it. headline: by which further metrics are evaluated,
    too. cuts: segments, windows."""
    panel_by_name, asked = panel_with(estimators, learn, budget)
    every = tuple(panel_by_name.values())
    usual = default_estimator(log, [log.target(policy) for policy in policies.values()], learn, budget)
    named = headline.name if isinstance(headline, Estimator) else headline or usual.name
    others = {estimator.name: estimator for estimator in (LoggedMean(), panel_by_name.get(named, usual), SNIPS())}
    controls = controls_of((SNDR(), *every))
    panels = every, tuple(others.values())
    return ask_question(log, policies, question or Question(), panels, controls, asked, **cuts)


def evaluation_of(
    asked: Asked,
    level: float,
    headline: str | Estimator | None,
    thresholds: Thresholds | None,
    seed: int = 0,
) -> Evaluation:
    """The evaluation of the first target."""
    limits, answer = thresholds or DEFAULT, asked.answer
    unworded, skipped = asked.estimates(0)
    estimates = [reworded(estimate, limits) for estimate in unworded]
    if not any(estimate.estimator != "LoggedMean" for estimate in estimates):
        reasons = " ".join(f"{name}: {why}" for name, why in skipped)
        raise NeedsError(f"nothing can be said about this policy: {reasons}")
    chosen = choose_headline(estimates, headline.name if isinstance(headline, Estimator) else headline)
    scorecard = asked.scorecard(chosen, level, limits, seed)
    verdict = asked.verdict(asked.primary, 0, chosen, level, limits) if scorecard is None else scorecard.rows[0].verdict
    result = Evaluation(
        tuple(estimates), tuple(skipped), headline=chosen,
        verdict=verdict, log=answer.log.described(answer.n),
        policy=answer.targets[0].label, lifted=asked.lifted(asked.primary, 0, chosen, limits),
        scope=scope_of(answer, ratio=asked.ratio), overlap=overlap_of(answer, 0), level=level,
        metric=asked.metric, sign=asked.sign, baseline_name=asked.question.name, scorecard=scorecard,
        sensitivity=sensitivity_of(answer, 0, estimates, chosen, level),
    )  # fmt: skip
    course = () if asked.ratio else course_of(answer, result.lifted, result.lift_interval, result.factor)
    return replace(result, course=course)


def warn(answer: Answer) -> None:
    for message in answer.warnings:
        python_warnings.warn(visible(message), stacklevel=3)
