"""The checks behind a verdict: each is a function of facts that were computed anyway, and says one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cael.common.types import Floats
from cael.errors import InputError
from cael.inference.diagnostics import worth
from cael.inference.estimate import Estimate
from cael.judging.survey import (
    Survey,
    action_matters,
    count_p_values,
    depends_on_action,
    holm,
    two_sided,
)
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Check
from cael.log.logged import LoggedData

PREFERRED = ("Auto", "SNDR", "DR", "SNIPS", "BaselineIPS", "IPS", "DM", "LoggedMean")
CONSISTENT = ("IPS", "SNIPS", "DR", "SNDR")
BLOCKS = 10


def choose_headline(estimates: Sequence[Estimate], asked: str | None) -> str:
    """The name of the estimate that a verdict speaks of: the one that was asked for, else the first preferred one."""
    names = [each.estimator for each in estimates]
    if asked is not None:
        if asked not in names:
            raise InputError(f"headline: no estimate named {asked!r}; there are: {', '.join(names)}.")
        return asked
    return next((name for name in PREFERRED if name in names), names[0])


def of_weights(best: Estimate, estimates: Sequence[Estimate], found: Survey, limits: Thresholds) -> list[Check | None]:
    """The checks that need no rows of the log, in memory or streamed."""
    return [
        effective_rows(best, limits),
        largest_row(best, limits),
        skewness(best, limits),
        tail(best, limits),
        mean_weight(best, limits),
        support(best, found, limits),
        disagreement(best, estimates, limits),
    ]


def evidence(best: Estimate, *, propensities: bool, estimated: bool = False) -> Check:
    """Whether the number rests on rows, or on a model that nothing can check."""
    name = "evidence"
    if estimated and best.diagnostics.effective_sample_size is not None:
        told = (
            "The propensities were estimated, not logged: if the old policy looked at anything that the contexts do "
            "not hold, the number is off and nothing here can see it."
        )
        return Check(name, "warn", None, told)
    if best.diagnostics.bias_bound is not None or best.diagnostics.effective_sample_size is not None:
        return Check(name, "pass", None, "The number rests on logged rewards, weighted by known propensities.")
    why = "The log has no propensities" if not propensities else f"{best.estimator} uses no propensities"
    return Check(name, "fail", None, f"{why}: the number is a model's extrapolation that nothing here can check.")


def effective_rows(best: Estimate, limits: Thresholds) -> Check | None:
    size, n = best.diagnostics.effective_sample_size, best.n
    if size is None:
        return None
    status = limits.status("effective_rows", size)
    tail = "." if status == "pass" else ": too few for an interval to be relied on."
    return Check("effective_rows", status, size, worth(size, n) + tail)


def largest_row(best: Estimate, limits: Thresholds) -> Check | None:
    d = best.diagnostics
    if d.max_weight is None or not d.mean_weight:
        return None
    share = d.max_weight / (d.mean_weight * d.n)
    status = limits.status("largest_share", share)
    tail = "." if status == "pass" else ": one row could overturn the answer."
    return Check("largest_share", status, share, f"The heaviest row carries {share:.1%} of all the weight{tail}")


def skewness(best: Estimate, limits: Thresholds) -> Check:
    z = best.groups
    ratio = abs(skewness_of(z)) / math.sqrt(len(z))
    status = limits.status("skewness", ratio)
    told = f"The rows pull the estimate evenly enough for a normal interval (skewness ratio {ratio:.2f})."
    if status != "pass":
        told = f"A few rows decide the estimate (skewness ratio {ratio:.2f}): the interval covers less than it says."
    return Check("skewness", status, ratio, told)


def skewness_of(z: Floats) -> float:
    """Third standardised moment of z (n,); 0 without spread."""
    centred = z - z.mean()
    spread = float(np.mean(centred**2))
    return 0.0 if spread <= 0 else float(np.mean((centred / math.sqrt(spread)) ** 3))


def tail(best: Estimate, limits: Thresholds) -> Check | None:
    k = best.diagnostics.tail_index
    if best.diagnostics.effective_sample_size is None:
        return None
    if k is None:
        return Check("tail_index", "pass", None, "The weights have a ceiling and no heavy tail.")
    status = limits.status("tail_index", k)
    told = f"The largest weights fall off fast enough (tail index {k:.2f})."
    if status != "pass":
        told = f"Some weights are extreme (tail index {k:.2f}): rows that would widen the interval may be missing."
    return Check("tail_index", status, k, told)


def mean_weight(best: Estimate, limits: Thresholds) -> Check | None:
    d = best.diagnostics
    if d.mean_weight is None:
        return None
    if d.mean_weight_z is None:  # all weights are alike, and then each of them must be 1
        if abs(d.mean_weight - 1) <= 1e-3:
            return None
        told = f"Every row has the weight {d.mean_weight:.3g}, and weights average 1: the probabilities are wrong."
        return Check("mean_weight", "fail", d.mean_weight, told)
    z = abs(d.mean_weight_z)
    status = limits.status("mean_weight_z", z)
    told = f"The weights average what they should, within chance ({z:.1f} standard errors from 1)."
    if status != "pass":
        told = (
            f"The weights should average 1 and miss it by {z:.1f} standard errors: the propensities are wrong or rows "
            "are missing."
        )
    return Check("mean_weight", status, d.mean_weight_z, told)


def support(best: Estimate, found: Survey, limits: Thresholds) -> Check:
    mass, where = best.diagnostics.unsupported_mass, "actions that the old policy never plays"
    if mass is None and found.target is not None:
        mass, where = float(found.target[found.logged == 0].sum()), "actions without a single row in this log"
    if mass is None:
        told = "Whether the new policy plays actions that the old one never does cannot be seen from logged actions."
        return Check("support", "unknown", None, told)
    status = limits.status("unsupported_mass", mass)
    told = f"{mass:.1%} of the new policy's decisions are {where}"
    return Check("support", status, mass, told + ("." if status == "pass" else ": their reward is unknown."))


def disagreement(best: Estimate, estimates: Sequence[Estimate], limits: Thresholds) -> Check:
    """The largest paired distance between the headline and the other estimators that are consistent."""
    others = [each for each in estimates if each.estimator in CONSISTENT and each.estimator != best.estimator]
    if not others or best.diagnostics.effective_sample_size is None:
        return Check("disagreement", "unknown", None, "There is no second estimator to compare with.")
    far = [(abs(gap.value) / gap.stderr if gap.stderr > 0 else 0.0, each) for each in others for gap in (best - each,)]
    z, other = max(far, key=lambda pair: pair[0])
    status = limits.status("disagreement", z)
    told = f"The estimators agree within chance (at most {z:.1f} standard errors apart)."
    if status != "pass":
        told = (
            f"{best.estimator} says {best.value:.4g} and {other.estimator} says {other.value:.4g}, {z:.1f} standard "
            "errors apart: they should agree."
        )
    return Check("disagreement", status, z, told)


NO_FREQUENCIES = Check("frequencies", "unknown", None, "Without propensities, action frequencies cannot be checked.")


def frequencies(off: np.ndarray, gap: Floats, limits: Thresholds) -> Check:
    """The share of rows whose action the propensities do not explain, over the actions that are `off` (k,)."""
    share = float(np.abs(gap[off]).sum()) / 2
    status = limits.status("misplaced", share)
    count = int(off.sum())
    if status == "pass":
        return Check("frequencies", status, share, "Every action was taken as often as its propensities say.")
    told = (
        f"{count} of {len(off)} actions were not taken as often as their propensities say ({share:.1%} of the "
        "rows are out of place): the propensities are wrong or rows are missing."
    )
    return Check("frequencies", status, share, told)


def off_by_counts(found: Survey, n: int, p_value: float) -> tuple[np.ndarray, Floats]:
    """(k,) whether an action's frequency is off beyond chance (Holm), and (k,) by what share of the rows."""
    assert found.expected is not None
    assert found.variance is not None
    p = count_p_values(found.logged, found.expected, found.variance, n)
    return holm(p) < p_value, (found.logged - found.expected) / n


def off_by_means(
    logged: Floats, mean: Floats, error: Floats, n: int, limits: Thresholds = DEFAULT
) -> tuple[np.ndarray, Floats]:
    """The same from the means of 1{a_i = a} / mu_i, which should be 1, and their standard errors."""
    enough = (logged >= limits.least_count) & (error > 0)
    z = np.divide(mean - 1, error, out=np.zeros_like(mean), where=enough)
    p = np.array([two_sided(each) for each in z])
    # Rows of an action in a log with correct propensities: logged / mean, if the mean is off by a factor.
    gap = np.divide(logged, mean, out=np.zeros_like(mean), where=mean > 0)
    return (holm(p) < limits.p_value) & enough, (logged - gap) / n


def surprise(mean: float, p: float, limits: Thresholds) -> Check:
    """Whether the logged actions are as likely as the logging policy says that its own actions are."""
    size = abs(mean) if p < limits.p_value else 0.0
    status = limits.status("surprise", size)
    told = "The logged actions are as likely as the old policy says they should be."
    if status != "pass":
        how = "less" if mean < 0 else "more"
        told = (
            f"The logged actions are {how} likely under the old policy than it claims, by {abs(mean):.3f} nats a row: "
            "the rows were not drawn from it."
        )
    return Check("surprise", status, mean, told)


def column(log: LoggedData, found: Survey, limits: Thresholds = DEFAULT) -> Check | None:
    """Where only logged propensities are known: whether they have anything to do with the logged actions."""
    p = None if found.expected is not None else action_matters(log)
    return _relation(
        "propensity_column", p, limits.column_p_value, "The propensities depend on the actions they belong to.",
        "Given the contexts, the propensities have nothing to do with the actions beside them",
        "one of the two columns may belong to other rows",
    )  # fmt: skip


def effect(log: LoggedData, limits: Thresholds = DEFAULT) -> Check | None:
    """Whether rewards have anything to do with the actions; if not, the columns may not belong together."""
    return _relation(
        "action_effect", depends_on_action(log.rewards, log), limits.effect_p_value,
        "The rewards depend on the actions.",
        "The rewards show no sign of depending on the actions",
        "no action is better than another, or the two columns belong to different rows",
    )  # fmt: skip


def _relation(name: str, p: float | None, most: float, seen: str, unseen: str, so: str) -> Check | None:
    """Whether a p-value shows that two columns depend on each other; None where it could not be computed."""
    if p is None:
        return None
    return Check(name, "pass", p, seen) if p <= most else Check(name, "warn", p, f"{unseen} (p = {p:.2f}): {so}.")


def drifted(
    seen: Sequence[tuple[str, float, float]], best: Estimate, level: float, limits: Thresholds, name: str
) -> Check:
    """The check from (what, change in the last fifth, p-value) of all that was looked at."""
    half, status = best.interval(level, "normal").width / 2, "pass"
    what, change, p = min(seen, key=lambda each: each[2])
    size = abs(change) / half if half > 0 else (math.inf if change else 0.0)
    if p * len(seen) < limits.drift_p_value:
        status = limits.status("drift", size)
    told = f"No change over {name} that the interval does not allow for."
    if status != "pass":
        told = (
            f"The {what} changed by {change:+.3g} in the last fifth of the log, {size:.1f} times the interval's "
            "half-width: the number describes the past, not today."
        )
    return Check("drift", status, change, told)


def bias(best: Estimate, level: float, limits: Thresholds) -> Check | None:
    """The bound on the bias, where the estimator knows one, against the noise."""
    bound = best.diagnostics.bias_bound
    if bound is None:
        return None
    half = best.interval(level, "normal").width / 2
    size = bound / half if half > 0 else (math.inf if bound else 0.0)
    status = limits.status("bias", size)
    told = f"The bias is at most {bound:.3g}, against a half-width of {half:.3g}"
    return Check("bias", status, bound, told + ("." if status == "pass" else ": it can be larger than the noise."))
