"""The checks behind a verdict: each is a function of facts that were computed anyway, and says one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cael.common.types import Floats
from cael.errors import InputError
from cael.inference.diagnostics import worth
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.judging.survey import Survey, action_matters, depends_on_action, skewness_ratio
from cael.judging.thresholds import Thresholds
from cael.judging.verdict import Check
from cael.log.logged import LoggedData

PREFERRED = ("Auto", "SNDR", "DR", "SNIPS", "BaselineIPS", "IPS", "DM", "LoggedMean")
CONSISTENT = ("IPS", "SNIPS", "DR", "SNDR")
BLOCKS = 10


def choose_headline(estimates: Sequence[Estimate], asked: str | None) -> str:
    """The name of the estimate that a verdict speaks of: the one that was asked for, else the first preferred one."""
    names = [estimate.estimator for estimate in estimates]
    if asked is not None:
        if asked not in names:
            raise InputError(f"headline: no estimate named {asked!r}; there are: {', '.join(names)}.")
        return asked
    return next((name for name in PREFERRED if name in names), names[0])


def graded(
    name: str, value: float, limits: Thresholds, sentences: tuple[str, str], threshold: tuple[str, float] | None = None
) -> Check:
    """A check of a value by the threshold of its name, or by another one and the number that it is about. sentences:
    where it passes, and where it does not."""
    status = limits.status(*(threshold or (name, value)))
    return Check(name, status, value, sentences[status != "pass"])


def evidence(best: Estimate, *, propensities: bool, estimated: bool = False) -> Check:
    """Whether the number rests on rows, or on a model that nothing can check."""
    name = "evidence"
    if estimated and best.diagnostics.effective_sample_size is not None:
        message = (
            "The propensities were estimated, not logged: if the old policy looked at anything that the contexts do "
            "not hold, the number is off and nothing here can see it."
        )
        return Check(name, "warn", None, message)
    if best.diagnostics.bias_bound is not None or best.diagnostics.effective_sample_size is not None:
        return Check(name, "pass", None, "The number rests on logged rewards, weighted by known propensities.")
    why = "The log has no propensities" if not propensities else f"{best.estimator} uses no propensities"
    return Check(name, "fail", None, f"{why}: the number is a model's extrapolation that nothing here can check.")


def effective_rows(best: Estimate, limits: Thresholds) -> Check | None:
    size, n = best.diagnostics.effective_sample_size, best.n
    if size is None:
        return None
    message = worth(size, n)
    return graded(
        "effective_rows", size, limits, (f"{message}.", f"{message}: too few for an interval to be relied on.")
    )


def largest_row(best: Estimate, limits: Thresholds) -> Check | None:
    d = best.diagnostics
    if d.max_weight is None or not d.mean_weight:
        return None
    share = d.max_weight / (d.mean_weight * d.n)
    message = f"The heaviest row carries {share:.1%} of all the weight"
    return graded("largest_share", share, limits, (f"{message}.", f"{message}: one row could overturn the answer."))


def skewness(best: Estimate, limits: Thresholds) -> Check:
    ratio = skewness_ratio(best.groups)
    sentences = (
        f"The rows pull the estimate evenly enough for a normal interval (skewness ratio {ratio:.2f}).",
        f"A few rows decide the estimate (skewness ratio {ratio:.2f}): the interval covers less than it says.",
    )
    return graded("skewness", ratio, limits, sentences)


def tail(best: Estimate, limits: Thresholds) -> Check | None:
    k = best.diagnostics.tail_index
    if best.diagnostics.effective_sample_size is None:
        return None
    if k is None:
        return Check("tail_index", "pass", None, "The weights have a ceiling and no heavy tail.")
    sentences = (
        f"The largest weights fall off fast enough (tail index {k:.2f}).",
        f"Some weights are extreme (tail index {k:.2f}): rows that would widen the interval may be missing.",
    )
    return graded("tail_index", k, limits, sentences)


def mean_weight(best: Estimate, limits: Thresholds) -> Check | None:
    d = best.diagnostics
    if d.mean_weight is None:
        return None
    if d.mean_weight_z is None:  # all weights are alike, and then each of them must be 1
        if abs(d.mean_weight - 1) <= limits.constant_weight:
            return None
        message = f"Every row has the weight {d.mean_weight:.3g}, and weights average 1: the probabilities are wrong."
        return Check("mean_weight", "fail", d.mean_weight, message)
    z = abs(d.mean_weight_z)
    sentences = (
        f"The weights average what they should, within chance ({z:.1f} standard errors from 1).",
        f"The weights should average 1 and miss it by {z:.1f} standard errors: the propensities are wrong or rows are "
        "missing.",
    )
    return graded("mean_weight", d.mean_weight_z, limits, sentences, ("mean_weight_z", z))


def support(best: Estimate, counts: Survey, limits: Thresholds) -> Check:
    mass, where = best.diagnostics.unsupported_mass, "actions that the old policy never plays"
    if mass is None and counts.target is not None:
        mass, where = float(counts.target[counts.logged == 0].sum()), "actions without a single row in this log"
    if mass is None:
        message = "Whether the new policy plays actions that the old one never does cannot be seen from logged actions."
        return Check("support", "unknown", None, message)
    message = f"{mass:.1%} of the new policy's decisions are {where}"
    doubt = f"{message}: their reward is unknown."
    return graded("support", mass, limits, (f"{message}.", doubt), ("unsupported_mass", mass))


def disagreement(best: Estimate, estimates: Sequence[Estimate], limits: Thresholds) -> Check:
    """The largest paired distance between the headline and the other estimators that are consistent."""
    others = [e for e in estimates if e.estimator in CONSISTENT and e.estimator != best.estimator]
    if not others or best.diagnostics.effective_sample_size is None:
        return Check("disagreement", "unknown", None, "There is no second estimator to compare with.")
    gaps = [best - estimate for estimate in others]
    distances = [abs(gap.value) / gap.stderr if gap.stderr > 0 else 0.0 for gap in gaps]
    z, other = max(zip(distances, others, strict=True), key=lambda pair: pair[0])
    sentences = (
        f"The estimators agree within chance (at most {z:.1f} standard errors apart).",
        f"{best.estimator} says {best.value:.4g} and {other.estimator} says {other.value:.4g}, {z:.1f} standard errors "
        "apart: they should agree.",
    )
    return graded("disagreement", z, limits, sentences)


DISORDER = "The files are not in the order of time, and a stream is not sorted: changes over time are not seen."
NO_FREQUENCIES = Check("frequencies", "unknown", None, "Without propensities, action frequencies cannot be checked.")


def frequencies(off: np.ndarray, gap: Floats, limits: Thresholds) -> Check:
    """The share of rows whose action the propensities do not explain, over the actions that are `off` (k,)."""
    share = float(np.abs(gap[off]).sum()) / 2
    sentences = (
        "Every action was taken as often as its propensities say.",
        f"{int(off.sum())} of {len(off)} actions were not taken as often as their propensities say ({share:.1%} of the "
        "rows are out of place): the propensities are wrong or rows are missing.",
    )
    return graded("frequencies", share, limits, sentences, ("misplaced", share))


def surprise(mean: float, p: float, limits: Thresholds) -> Check:
    """Whether the logged actions are as likely as the logging policy says that its own actions are."""
    sentences = (
        "The logged actions are as likely as the old policy says they should be.",
        f"The logged actions are {'less' if mean < 0 else 'more'} likely under the old policy than it claims, by "
        f"{abs(mean):.3f} nats a row: the rows were not drawn from it.",
    )
    return graded("surprise", mean, limits, sentences, ("surprise", abs(mean) if p < limits.p_value else 0.0))


def column(
    log: LoggedData, limits: Thresholds, *, known: bool, so: str = ": one of the two columns may belong to other rows."
) -> Check | None:
    """Where only logged propensities are known: whether they have anything to do with the logged actions."""
    p = None if known else action_matters(log, limits)
    if p is None:
        return None
    if p <= limits.column_p_value:
        return Check("propensity_column", "pass", p, "The propensities depend on the actions they belong to.")
    message = f"Given the contexts, the propensities have nothing to do with the actions beside them (p = {p:.2f})"
    return Check("propensity_column", "warn", p, message + so)


def effect(
    log: LoggedData,
    limits: Thresholds,
    so: str = "no action is better than another, or the two columns belong to different rows.",
) -> Check | None:
    """Whether rewards have anything to do with the actions; if not, the columns may not belong together."""
    p = depends_on_action(log.rewards, log, limits)
    if p is None:
        return None
    if p <= limits.effect_p_value:
        return Check("action_effect", "pass", p, "The rewards depend on the actions.")
    return Check(
        "action_effect", "warn", p, f"The rewards show no sign of depending on the actions (p = {p:.2f}): {so}"
    )


def drifted(
    changes: Sequence[tuple[str, float, float]], best: Estimate, level: float, limits: Thresholds, name: str
) -> Check:
    """The check from (what, change in the last fifth, p-value) of all that was looked at."""
    what, change, p = min(changes, key=lambda triple: triple[2])
    size = in_half_widths(change, best.interval(level, "normal"))
    sentences = (
        f"No change over {name} that the interval does not allow for.",
        f"The {what} changed by {change:+.3g} in the last fifth of the log, {size:.1f} times the interval's half-width"
        ": the number describes the past, not today.",
    )
    return graded(
        "drift", change, limits, sentences, ("drift", size if p * len(changes) < limits.drift_p_value else 0.0)
    )


def bias(best: Estimate, level: float, limits: Thresholds) -> Check | None:
    """The bound on the bias, where the estimator knows one, against the noise."""
    bound = best.diagnostics.bias_bound
    if bound is None:
        return None
    interval = best.interval(level, "normal")
    message = f"The bias is at most {bound:.3g}, against a half-width of {interval.width / 2:.3g}"
    doubt = f"{message}: it can be larger than the noise."
    return graded("bias", bound, limits, (f"{message}.", doubt), ("bias", in_half_widths(bound, interval)))


def in_half_widths(change: float, interval: Interval) -> float:
    """The size of a change, in half-widths of an interval."""
    half = interval.width / 2
    return abs(change) / half if half > 0 else (math.inf if change else 0.0)
