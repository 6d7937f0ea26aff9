"""From the sums of a pass to estimates, their diagnostics, the overlap and the verdict: as of a log in memory."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import numpy as np

from cael.common.types import Floats
from cael.engine.asking import Answer, cluster_effect, facts_of
from cael.engine.choosing import choice_estimate, path_estimate, slope_estimate
from cael.engine.demands import Demand
from cael.engine.partial import Stretch
from cael.engine.tally import Rule
from cael.engine.wanted import ChoiceDemand, PathDemand, SlopeDemand, Wanted
from cael.errors import LogError, SupportError
from cael.estimators.direct import MODEL_BIAS, NOT_TRAINED
from cael.estimators.marginal import EMBEDDING_BIAS, NOT_CONVERGED
from cael.inference.diagnostics import Diagnostics, weighted_by, with_warnings, words
from cael.inference.estimate import Estimate
from cael.inference.overlap import MOST_ACTIONS, ActionOverlap, Overlap
from cael.judging.checks import (
    BLOCKS,
    NO_FREQUENCIES,
    bias,
    column,
    drifted,
    effect,
    evidence,
    frequencies,
    of_weights,
    off_by_means,
)
from cael.judging.survey import Survey, drift_of, inverse_means_of
from cael.judging.verdict import Check, Thresholds, Verdict, verdict_of


def estimate_of(answer: Answer, demand: Wanted) -> Estimate:
    """The estimate of one estimator; an error where its target has no support."""
    if isinstance(demand, PathDemand):
        return path_estimate(answer, demand)
    if isinstance(demand, ChoiceDemand):
        return choice_estimate(answer, demand)
    if isinstance(demand, SlopeDemand):
        return slope_estimate(answer, demand)
    if demand.rule is not None:
        answer.need_support(demand.target)
    found = answer.combination(demand)
    return Estimate(
        estimator=demand.estimator.name, value=found.value, contributions=found.buckets, key=answer.log.key,
        diagnostics=diagnostics_of(answer, demand), sums=found,
    )  # fmt: skip


def diagnostics_of(answer: Answer, demand: Demand) -> Diagnostics:
    n = answer.n
    fitted = None if demand.outcome is None else answer.outcomes[demand.outcome].cross_fitted
    fitted = True if demand.form == "baseline" else fitted
    if demand.form == "reward":
        return Diagnostics(n=n, effective_sample_size=float(n), max_weight=1.0, mean_weight=1.0)
    if demand.rule is None:
        said = (MODEL_BIAS, NOT_TRAINED) if fitted is False else (MODEL_BIAS,)
        unsupported = answer.unsupported(demand.target)
        return Diagnostics(n=n, unsupported_mass=unsupported, cross_fitted=fitted, warnings=said)
    if demand.rule.marginal is not None:
        return marginal_diagnostics(answer, demand, demand.rule, demand.rule.marginal)
    facts = answer.weight_facts[demand.target]
    place = answer.rules.index((demand.target, demand.rule))
    changed = answer.partial.changed[place]
    at = answer.index["w", demand.target, demand.rule]
    mean = float(answer.partial.moments.mean[at])
    found = Diagnostics(
        n=n,
        effective_sample_size=effective_size(answer, at),
        max_weight=changed.largest,
        mean_weight=mean,
        mean_weight_z=facts.z,
        tail_index=facts.tail,
        unsupported_mass=facts.unsupported_mass,
        clipped_share=None if demand.rule == Rule() else changed.rows / n,
        cross_fitted=fitted,
    )
    return with_warnings(found, words(found, facts, changed.largest / (mean * n) if mean > 0 else None))


def marginal_diagnostics(answer: Answer, demand: Demand, rule: Rule, number: int) -> Diagnostics:
    """Of the weights of MIPS, as in memory."""
    made = answer.marginals[number]
    extra = (EMBEDDING_BIAS,) if made.converged else (EMBEDDING_BIAS, NOT_CONVERGED)
    size = effective_size(answer, answer.index["w", demand.target, rule])
    largest = answer.partial.marginal_tallies[number].largest
    facts = facts_of(answer, demand.target, rule)
    return weighted_by(size, largest, facts, cross_fitted=len(made.fitted) > 1 or None, extra=extra)


def effective_size(answer: Answer, at: int) -> float:
    """(sum w)^2 / sum w^2 of the weights that are the feature at this place."""
    moments, n = answer.partial.moments, answer.n
    mean, squares = float(moments.mean[at]), float(moments.comoment[at, at])
    return n / (1 + squares / n / mean / mean) if mean > 0 else 0.0


def refuse_constant(answer: Answer) -> None:
    if answer.partial.low == answer.partial.high:
        raise LogError(
            f"every one of the {answer.n} rewards is {answer.partial.low:g}: this log cannot tell one policy from "
            "another. Check that the reward column is the right one, or collect more rows."
        )


def estimates_of(answer: Answer, target: int, asked: Collection[str]) -> tuple[list[Estimate], list[tuple[str, str]]]:
    """The estimates of a target, and (estimator, reason) for those that its weights do not allow."""
    found, skipped = [], [(name, why) for t, name, why in answer.skipped if t == target]
    for demand in answer.demands:
        if demand.target != target:
            continue
        try:
            found.append(estimate_of(answer, demand))
        except SupportError as error:
            if demand.estimator.name in asked:
                raise
            skipped.append((demand.estimator.name, str(error)))
    return found, skipped


def survey_of(answer: Answer, target: int) -> Survey:
    """What the pass counted, in the form that the checks read."""
    mass = answer.partial.masses[target] / answer.n if answer.targets[target].complete else None
    return Survey(answer.partial.actions.rows, None, None, None, None, None, mass)


def overlap_of(answer: Answer, target: int) -> Overlap | None:
    """Where the weight lies; None without weights."""
    if not answer.log.has_propensities or answer.partial.tallies[target].largest == 0:
        return None
    tally, n, logged = answer.partial.tallies[target], answer.n, answer.partial.actions.rows
    at = answer.index["w", target, Rule()]
    mean = float(answer.partial.moments.mean[at])
    edges, counts, shares = tally.histogram(mean * n)
    mass, complete = answer.partial.masses[target] / n, answer.targets[target].complete
    return Overlap(
        n=n, n_actions=len(logged), effective_rows=effective_size(answer, at), mean_weight=mean,
        max_weight=tally.largest, zero_share=tally.zeros / n, largest_share=tally.largest / (mean * n),
        top_share=tally.top_share(n, mean * n), edges=edges, counts=counts, shares=shares,
        actions=tuple(
            ActionOverlap(int(a), int(logged[a]), None, float(mass[a]))
            for a in np.argsort(-mass, kind="stable")[:MOST_ACTIONS]
        ),
        never_logged=int((logged == 0).sum()),
        never_logged_mass=float(mass[logged == 0].sum()) if complete else None,
    )  # fmt: skip


def judge(
    answer: Answer, target: int, estimates: list[Estimate], headline: str, level: float, limits: Thresholds
) -> Verdict:
    """The verdict on the estimate named `headline`; the checks that need single rows look at a sample of them."""
    best = next(each for each in estimates if each.estimator == headline)
    found = survey_of(answer, target)
    sample = answer.sample
    checks = [
        evidence(best, propensities=answer.log.has_propensities, estimated=answer.log.estimates_logging),
        *of_weights(best, estimates, found, limits),
        _frequencies(answer, limits),
        None if sample is None else column(sample, found),
        None if sample is None else effect(sample),
        drifting(answer, best, level, limits),
        bias(best, level, limits),
    ]
    return verdict_of(headline, [each for each in checks if each is not None])


def _frequencies(answer: Answer, limits: Thresholds) -> Check:
    if not answer.log.has_propensities:
        return NO_FREQUENCIES
    sums, n = answer.partial.actions, answer.n
    factor = cluster_effect(answer.partial, answer.single(("r",)))
    mean, error = inverse_means_of(sums.inverse, sums.squares, n, factor)
    return frequencies(*off_by_means(sums.rows, mean, error, n, limits.p_value), limits)


def drifting(answer: Answer, best: Estimate, level: float, limits: Thresholds) -> Check:
    """Whether rewards or contributions change over time, from the stretches of the log in their order."""
    n, stretches = answer.n, answer.partial.stretches
    if n < 10 * BLOCKS or len(stretches) < BLOCKS:
        return Check("drift", "unknown", None, f"{n} rows are too few to look for changes over time.")
    timed = answer.log.columns.timestamp is not None
    if timed and not in_time(stretches):
        told = "The files are not in the order of time, and a stream is not sorted: changes over time are not seen."
        return Check("drift", "unknown", None, told)
    groups = blocks_of(stretches, n)
    factor = cluster_effect(answer.partial, answer.single(("r",)))
    assert best.sums is not None
    reward = np.zeros(len(answer.index))
    reward[answer.index[("r",)]] = 1.0
    seen = [("logged reward", *_drift(groups, reward, factor))]
    if best.estimator != "LoggedMean":
        seen.append(("new policy's value", *_drift(groups, best.sums.coefficients, factor)))
    return drifted(seen, best, level, limits, "time" if timed else "the order of the rows")


def in_time(stretches: tuple[Stretch, ...]) -> bool:
    known = [each for each in stretches if each.low is not None]
    return all(a.high <= b.low for a, b in itertools.pairwise(known))


def blocks_of(stretches: tuple[Stretch, ...], n: int) -> list[Stretch]:
    """Ten runs of stretches with about the same number of rows."""
    found: list[Stretch] = []
    before, current = 0, -1
    for each in stretches:
        block = min(BLOCKS - 1, int((before + each.moments.n / 2) * BLOCKS / n))
        found = [*found[:-1], found[-1].merge(each)] if block == current else [*found, each]
        before, current = before + each.moments.n, block
    return found


def _drift(groups: list[Stretch], coefficients: Floats, factor: float) -> tuple[float, float]:
    count = np.array([each.moments.n for each in groups], dtype=np.float64)
    mean = np.array([float(coefficients @ each.moments.mean) for each in groups])
    squares = np.array([float(coefficients @ each.moments.comoment @ coefficients) for each in groups])
    return drift_of(count, mean, np.maximum(squares, 0.0) / np.maximum(count - 1, 1) / count * factor)
