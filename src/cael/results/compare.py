"""compare: several policies against the logging policy, with simultaneous intervals and a verdict on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cael.engine.answer import Answer
from cael.engine.asking import as_engine_log, ask
from cael.errors import InputError, PolicyError
from cael.estimators.doubly_robust import SNDR
from cael.estimators.estimator import Estimator
from cael.estimators.weighting import SNIPS, LoggedMean
from cael.inference import intervals as inference
from cael.inference.estimate import Estimate, reworded
from cael.inference.intervals import Interval
from cael.inference.lift import lift_of
from cael.judging.judge import judge
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.log.held import EngineLog
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.policies.policy import Policy
from cael.results.comparison import Compared, Comparison
from cael.results.evaluate import control_of, default_estimator, outcome_of, refuse_constant_rewards, warn


def compare(
    log: LoggedData | ScannedLog,
    policies: Mapping[str, Policy | ArrayLike | str] | Sequence[Policy],
    estimator: Estimator | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
    thresholds: Thresholds | None = None,
    learn: bool | None = None,
) -> Comparison:
    """Which of these policies beats the logging policy, and by how much?

    Each policy's estimate (by `estimator`; if None, by the headline of `evaluate`: Auto, or SNDR with learn=False, or
    what the log allows) is contrasted, row by row, with the mean logged reward, which is the value of the logging
    policy; where that is known in full, the lift is adjusted by a control variate for the random choice of logged
    actions. A max-t multiplier bootstrap makes the intervals simultaneous; they allow for the bias of an estimator that
    bounds it. log: in memory, or scanned (`cael.scan`); policies may be texts such as "topk:items+chances" where the
    log was read from a table.
    """
    inference.check_level(level)
    answer, chosen = ask_to_compare(as_engine_log(log), policies, estimator, learn)
    warn(answer)
    return comparison_of(answer, chosen, level, seed, thresholds)


def ask_to_compare(
    log: EngineLog, policies: Any, estimator: Estimator | None, learn: bool | None
) -> tuple[Answer, Estimator]:
    """The answer for all policies; SNIPS, cheap once the weights are there, is a second opinion."""
    named = named_policies(policies)
    if not named:
        raise InputError("compare needs at least one policy.")
    refuse_constant_rewards(log)
    chosen = estimator
    if chosen is None:
        chosen = default_estimator(log, [log.target(policy) for policy in named.values()], learn)
    wanted = {each.name: each for each in (LoggedMean(), chosen, *((SNIPS(),) if log.has_propensities else ()))}
    controls = dict.fromkeys([outcome_of(chosen), outcome_of(SNDR())])
    answer = ask(log, named, list(wanted.values()), asked=(LoggedMean().name, chosen.name), controls=list(controls))
    answer.refuse_constant()
    return answer, chosen


def comparison_of(
    answer: Answer, chosen: Estimator, level: float, seed: int, thresholds: Thresholds | None
) -> Comparison:
    """Each target against the logged mean, with simultaneous intervals."""
    baseline = answer.of("LoggedMean", 0)
    limits = DEFAULT if thresholds is None else thresholds
    rows = []
    for t, name in enumerate(answer.names):
        estimates = [reworded(estimate, limits) for estimate in answer.estimates(t, {chosen.name})[0]]
        best = next(estimate for estimate in estimates if estimate.estimator == chosen.name)
        opinions = [estimate for estimate in estimates if estimate.estimator in (chosen.name, "SNIPS")]
        lift = lift_of(best, baseline, control_of(answer, chosen.name, t))
        rows.append((name, best, lift, judge(answer, t, opinions, chosen.name, level, limits)))
    factor = inference.max_t(np.stack([lift.groups for _, _, lift, _ in rows], axis=1), level, seed=seed)
    compared = [Compared(name, best, lift, within(lift, factor, level), verdict) for name, best, lift, verdict in rows]
    ordered = tuple(sorted(compared, key=lambda row: -row.estimate.value))
    return Comparison(ordered, baseline, level, factor, chosen.name)


def within(lift: Estimate, factor: float, level: float) -> Interval:
    """The joint interval; that of an estimator with a bound on its bias allows for it, at the same factor."""
    if lift.diagnostics.bias_bound is None:
        half = factor * lift.stderr
    else:
        from scipy.special import ndtr

        half = lift.interval(float(2 * ndtr(factor) - 1), "bias_aware").width / 2
    return Interval(lift.value - half, lift.value + half, level, "simultaneous")


def named_policies(policies: Any) -> dict[str, Any]:
    """Policies by name, from a mapping or a sequence."""
    if isinstance(policies, Mapping):
        return dict(policies)
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise PolicyError("compare needs several policies: a mapping of names to policies, or a list.")
    return {f"{at}: {each if isinstance(each, str) else repr(each)}": each for at, each in enumerate(policies)}
