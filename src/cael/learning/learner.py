"""learn: a better policy from a log, with a certificate on rows that took no part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cael.embedding.settings import Growth
from cael.engine.asking import as_engine_log
from cael.errors import InputError, NeedsError, choose, positive_int
from cael.judging.thresholds import Thresholds
from cael.learning.advice import KEEP, SHIP, Learned, labelled
from cael.learning.candidates import KINDS, Candidate
from cael.learning.certificate import Certificate, certified
from cael.learning.choice import Choice, chosen, few_actions
from cael.learning.evidence import Evidence, gathered, most_rows
from cael.learning.explained import MOST_ROWS
from cael.learning.guardrails import guardrails_of, guards_of, measured_by
from cael.learning.learned_policy import LearnedPolicy
from cael.learning.limits import Limits
from cael.learning.old_policy import Old, old_of
from cael.learning.scorers import NetworkScores
from cael.learning.split import Split, split_of
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.outcomes.outcome_model import FixedOutcome
from cael.results.evaluation import Evaluation
from cael.results.metric import Metric
from cael.results.planning import Plan, plan
from cael.results.question import refuse_constant_rewards

CERTIFY = 0.4
"""The share of the rows that is kept for the certificate."""
FOLDS = 5
DEFAULT = ("best_arm", "linear", "ridge", "cael", "clusters", "likelihood", "tree")


def learn(
    log: LoggedData | ScannedLog,
    *,
    candidates: Sequence[str] = DEFAULT,
    depth: int = 2,
    min_lift: float = 0.0,
    max_changed: float = 1.0,
    explore: float = 0.0,
    max_actions: int | None = None,
    single: bool = False,
    guardrails: Sequence[str | Metric] = (),
    level: float = 0.95,
    certify: float = CERTIFY,
    budget: float | None = None,
    seed: int = 0,
    thresholds: Thresholds | None = None,
) -> Learned:
    """A better policy than the one that made the log, if the log can show one; else the advice to keep the old one.

    The log is split once. One part learns: each kind of candidate is learned without every fold of it, and judged on
    that fold; the most promising one is learned again from all of it. The other part took no part in this, and
    certifies the choice: "ship" is said where the lower bound of its lift there, at the one-sided `level`, is above
    `min_lift`. So a policy that is no better than the old one is shipped in at most 1 - level of all logs.

    candidates: kinds to try, of "best_arm" (one order of the actions for all contexts), "linear" (linear scores),
    "ridge", "cael" (the reward model of CAEL), "clusters" (POTEC's two stages), "likelihood" (a softmax policy by
    weighted log likelihood), "tree" (a policy tree). Those that score actions are played on the best-scored share of
    the old policy, or tilted towards them, from cautious to greedy. depth: questions of a tree, one below the other.
    min_lift: in units of the reward. max_changed: share of decisions that may differ from those of the old policy.
    explore: share of decisions that are drawn uniformly, so that the next log can be evaluated, too. max_actions: how
    many actions may be advised. single: only policies that name one action for a context, which can be written as code.
    guardrails: other metrics of the log with their bounds, such as "latency:min:+2%", each of which must be shown to be
    within its bound. certify: share of the rows kept for the certificate. budget: seconds of training at most.

    A log in files is learned from a sample, and certified on all other rows.

    >>> import cael
    >>> log, _ = cael.testing.example()
    >>> learned = cael.learn(log, candidates=["best_arm"])
    >>> learned.decision in ("ship", "keep")
    True
    """
    limits = Limits(min_lift, max_changed, explore, max_actions, level)
    for kind in (kinds := refuse_none(candidates)):
        choose("candidates", kind, tuple(KINDS))
    positive_int("depth", depth)
    bounds = guardrails_of(guardrails)
    engine, growth = measured_by(as_engine_log(log), bounds), Growth(budget=budget)
    refuse_constant_rewards(engine)
    split = split_of(engine, certify, most_rows(engine.n_actions, growth), seed)
    old = old_of(engine, split.sample, split.learn)
    guards = guards_of(bounds, split.learn, engine.reward_name)
    evidence = gathered(
        split.learn, old.policy, growth, FOLDS, seed, exact=old.exact, guards=guards, left_out=split.left
    )
    allowed = None if max_actions is None else few_actions(evidence, max_actions)
    tried = [KINDS[kind](depth)(evidence, allowed, seed) for kind in dict.fromkeys(kinds)]
    tried = [decisive(candidate) for candidate in tried] if single else tried
    choice = chosen(evidence, tried, limits, allowed, split.left)
    return labelled(concluded(evidence, choice, limits, split, old, thresholds, bounds), *names_of(log))


def refuse_none(candidates: Sequence[str]) -> tuple[str, ...]:
    """The kinds, or an error where there are none."""
    kinds = (candidates,) if isinstance(candidates, str) else tuple(candidates)
    if not kinds:
        raise InputError(f"candidates: name at least one kind of policy to learn, of {', '.join(KINDS)}.")
    return kinds


def names_of(log: LoggedData | ScannedLog) -> tuple[tuple[Any, ...] | None, tuple[str, ...] | None]:
    """The labels of the actions and the names of the contexts, of a log that was read from a table."""
    if isinstance(log, ScannedLog):
        return tuple(log.actions.labels), tuple(log.columns.contexts or ())
    table = log.table
    return (None, None) if table is None else (tuple(table.actions), table.context_names)


def decisive(candidate: Candidate) -> Candidate:
    """With the plays alone that name one action."""
    return replace(candidate, plays=tuple(play for play in candidate.plays if play.kind == "greedy"))


def concluded(
    evidence: Evidence, choice: Choice, limits: Limits, split: Split, old: Old, thresholds: Thresholds | None,
    guardrails: tuple[Metric, ...],
) -> Learned:  # fmt: skip
    """The chosen policy, its certificate, and the decision."""
    point = choice.point
    log = evidence.log
    policy = LearnedPolicy(
        n_actions=log.n_actions, context_dim=log.contexts.shape[1], rule=choice.rule, old=old.policy, kind=point.named,
        share=point.share, explore=limits.explore,
    )  # fmt: skip
    model = NetworkScores(evidence.model, tuple(range(evidence.folds)))
    certificate = certified(split.certificate, policy, model, limits.two_sided, thresholds, guardrails)
    evaluation = certificate.evaluation
    reasons = reasons_to_keep(certificate, choice, limits)
    decision = KEEP if reasons else SHIP
    return Learned(
        decision, tuple(reasons), policy, evaluation, choice.path, point.changed, len(log), limits,
        plan_for(evaluation, policy, split, model, limits) if reasons else None, old.words, evidence.some(MOST_ROWS),
        certificate.guarded, getattr(split.certificate, "log", None),
    )  # fmt: skip


def reasons_to_keep(certificate: Certificate, choice: Choice, limits: Limits) -> list[str]:
    """Why the old policy is kept; none where the learned one is shipped."""
    reasons, evaluation = [], certificate.evaluation
    if not choice.hopeful:
        reasons.append("No candidate promised a lift on rows that it did not see.")
    if not evaluation.lift_interval.low > limits.min_lift:
        least = "0" if limits.min_lift == 0 else f"the {limits.min_lift:g} that was asked for"
        reasons.append(f"The lower bound of the lift is not above {least}.")
    if evaluation.verdict.level == "refuse":
        reasons.append(f"The certificate is not to be trusted: {' '.join(evaluation.verdict.reasons[:1])}")
    for row in certificate.guarded:
        if row.status != "within":
            reasons.append(f"{row.metric.label} is not shown to be within its bound.")
        elif row.verdict.level == "refuse":
            reasons.append(f"{row.metric.label} is not to be trusted: {' '.join(row.verdict.reasons[:1])}")
    return reasons


def plan_for(
    evaluation: Evaluation, policy: LearnedPolicy, split: Split, model: NetworkScores, limits: Limits
) -> Plan | None:
    """What it would take to show the lift that the certificate estimates; None where it is not positive."""
    lift = evaluation.lift.value - limits.min_lift
    rows = getattr(split.certificate, "log", None)
    if lift <= 0 or rows is None:
        return None
    from cael.learning.certificate import Predicted

    outcome = FixedOutcome(Predicted(model, policy.n_actions))
    try:
        return plan(rows, policy, lift=lift, relative=False, level=limits.two_sided, outcome=outcome)
    except (InputError, NeedsError):
        return None
