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
from cael.inference.lift import lift_of
from cael.inference.weights import tail_index
from cael.judging.survey import Survey, action_matters, depends_on_action, two_sided
from cael.judging.thresholds import Thresholds
from cael.judging.verdict import STATUSES, Check
from cael.log.logged import LoggedData

PREFERRED = ("Auto", "SNDR", "DR", "SNIPS", "BaselineIPS", "IPS", "DM", "LoggedMean")
CONSISTENT = ("IPS", "SNIPS", "DR", "SNDR")
BLOCKS = 10
REACHED = 0.25
"""Weights of which the largest is so near to a ceiling hide no larger ones that matter."""


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
            "The propensities were estimated, not logged. If the logging policy used anything that is not in the "
            "contexts, the estimate is biased, and no check of the log can show it."
        )
        return Check(name, "warn", None, message)
    if best.diagnostics.bias_bound is not None or best.diagnostics.effective_sample_size is not None:
        return Check(name, "pass", None, "The number rests on logged rewards, weighted by known propensities.")
    why = "The log has no propensities" if not propensities else f"{best.estimator} uses no propensities"
    return Check(name, "fail", None, f"{why}: the estimate is a model's extrapolation, which this log cannot check.")


def effective_rows(best: Estimate, known: float | None, limits: Thresholds) -> Check | None:
    """known: n / E W^2 of the weights that were used, where both policies are known; few rows can show more."""
    size, n = best.diagnostics.effective_sample_size, best.n
    if size is None:
        return None
    size = size if known is None else min(size, known)
    message = worth(size, n)
    sentences = (f"{message}.", f"{message}: too few for an interval to be relied on.")
    name = "effective_rows" if best.diagnostics.embedding is None else "smoothed_rows"
    return graded("effective_rows", size, limits, sentences, (name, size))


def unsmoothed(best: Estimate, rows: float | None, limits: Thresholds) -> Check | None:
    """Of an estimator that smooths the weights by a model: what the log alone is worth. rows: n / E w^2."""
    if rows is None or best.diagnostics.embedding is None:
        return None
    worth_of = f"Without the reward model, the log has the information of about {rows:,.0f} rows (n / E w²)"
    sentences = (f"{worth_of}.", f"{worth_of}: the estimate rests mostly on the model.")
    return graded("unsmoothed_rows", rows, limits, sentences)


def successes(best: Estimate, limits: Thresholds) -> Check | None:
    """Of rewards that take two values: how many of the rarer one are among the rows that carry the weight."""
    proportion = best.diagnostics.proportion
    if proportion is None:
        return None
    share = min(max(proportion.share, 0.0), 1.0)
    rows = min(share, 1 - share) * proportion.trials
    value = proportion.high if share <= 0.5 else proportion.low
    message = f"The rows that carry the weight hold the reward {value:g} about {rows:.1f} times"
    doubt = f"{message}: the interval rests on its rate in the other rows."
    return graded("successes", rows, limits, (f"{message}.", doubt))


def dropped_rows(rows: int, read: int, limits: Thresholds) -> Check | None:
    """Where rows were left out because they are invalid: how many."""
    if rows >= read:
        return None
    share = 1 - rows / read
    message = f"{read - rows:,} of {read:,} rows ({share:.1%}) were left out because they are invalid"
    doubt = f"{message}: the estimate is about the other rows, which may differ from them."
    return graded("dropped", share, limits, (f"{message}.", doubt))


def logging_fit(best: Estimate, limits: Thresholds) -> Check | None:
    """Of an estimate that took a logging policy fitted to the logged propensities: how far that is off."""
    fit = best.diagnostics.logging_fit
    if fit is None:
        return None
    doubt = f"{fit.sentence[:-1]}: the interval allows for it, and is wider for it."
    return graded("logging_fit", fit.error, limits, (fit.sentence, doubt), ("logging_error", fit.error))


def largest_row(best: Estimate, limits: Thresholds) -> Check | None:
    d = best.diagnostics
    if d.max_weight is None or not d.mean_weight:
        return None
    share = d.max_weight / (d.mean_weight * d.n)
    message = f"The heaviest row carries {share:.1%} of all the weight"
    return graded("largest_share", share, limits, (f"{message}.", f"{message}: one row can change the answer."))


def skewness(best: Estimate, limits: Thresholds) -> Check:
    ratio = abs(best.skew)
    sentences = (
        f"The rows pull the estimate evenly enough for a normal interval (skewness ratio {ratio:.2f}).",
        f"A few rows decide the estimate (skewness ratio {ratio:.2f}): the interval is too narrow.",
    )
    steadied = best.diagnostics.stderr_floor is not None
    return graded("skewness", ratio, limits, sentences, ("steadied_skewness" if steadied else "skewness", ratio))


def reward_tail(log: LoggedData, limits: Thresholds) -> Check:
    """Whether the log shows the extreme rewards; a skewness cannot say so, since that of a log without them is small.

    Each side by itself: among distances from the mean, the many small rewards of a skewed one begin a tail that is not
    there, and amounts as tame as exponential ones had an index of 0.75 in 100 rows.
    """
    r = log.rewards
    with np.errstate(all="ignore"):
        k = float(np.fmax(tail_index(r - r.min()), tail_index(r.max() - r)))
    if math.isnan(k):
        return Check("reward_tail", "pass", None, "The rewards have a ceiling and no heavy tail.")
    sentences = (
        f"The largest rewards fall off fast enough (tail index {k:.2f}).",
        f"Some rewards are extreme (tail index {k:.2f}): the interval does not allow for larger ones.",
    )
    return graded("reward_tail", k, limits, sentences)


def tail(best: Estimate, known: float | None, ceiling: float, limits: Thresholds) -> Check | None:
    """Whether the rows show the large weights. known: n / E W^2 of the weights that were used, where both policies are
    known; else by the tail of the weights, unless they reach a `ceiling`."""
    size, largest, k = (
        getattr(best.diagnostics, name) for name in ("effective_sample_size", "max_weight", "tail_index")
    )
    if size is None:
        return None
    if known is not None:
        return hidden(size, known, limits)
    if k is None or largest >= REACHED * ceiling:
        return Check("tail_index", "pass", k, "The weights have a ceiling and no heavy tail.")
    sentences = (
        f"The largest weights fall off fast enough (tail index {k:.2f}).",
        f"Some weights are extreme (tail index {k:.2f}): rows that would widen the interval may be missing.",
    )
    return graded("tail_index", k, limits, sentences)


def hidden(size: float, known: float, limits: Thresholds) -> Check:
    """Whether the rows show as large weights as the two policies say that there are."""
    ratio = size / known if known > 0 else math.inf
    sentences = (
        f"Large weights occur as they should: the effective sample size is {size:,.0f}, expected {known:,.0f}.",
        f"The effective sample size is {size:,.0f}, and the two policies imply {known:,.0f}: rows with large weights, "
        "which would widen the interval, are missing.",
    )
    return graded("tail_index", ratio, limits, sentences, ("hidden_weight", ratio))


WITHIN = "The weights average what they should, within chance ({:.1f} standard errors from 1)."


def mean_weight(best: Estimate, limits: Thresholds, *, normal: bool = True, estimated: bool = False) -> Check | None:
    """normal: whether the weights are such that their mean is nearly normal. estimated: whether propensities are, whose
    errors many rows can see: the interval allows for them, so that they are a doubt and no refusal."""
    d = best.diagnostics
    if d.mean_weight is None:
        return None
    if d.mean_weight_z is None:  # all weights are alike, and then each of them must be 1
        if abs(d.mean_weight - 1) <= limits.constant_weight:
            return None
        message = f"Every row has the weight {d.mean_weight:.3g}, and weights average 1: the probabilities are wrong."
        return Check("mean_weight", "fail", d.mean_weight, message)
    if not normal or (d.effective_sample_size or 0.0) < limits.effective_rows[1]:
        message = "Too few rows carry the weight to test whether the weights average 1."
        return Check("mean_weight", "unknown", d.mean_weight_z, message)
    z = abs(d.mean_weight_z)
    if estimated:
        off = f"The weights should average 1 and average {d.mean_weight:.3g}, {z:.1f} standard errors away: the model "
        sentences = (WITHIN.format(z), off + "of the logging policy misses something that the new policy uses.")
        status = "warn" if limits.cautions("mean_weight_z", z) else "pass"
        return Check("mean_weight", status, d.mean_weight_z, sentences[status == "warn"])
    sentences = (
        WITHIN.format(z),
        f"The weights should average 1 and miss it by {z:.1f} standard errors: the propensities are wrong, rows "
        "are missing, or the log has few of the actions that the new policy plays most.",
    )
    return graded("mean_weight", d.mean_weight_z, limits, sentences, ("mean_weight_z", z))


def support(best: Estimate, counts: Survey, limits: Thresholds) -> Check:
    mass, where = best.diagnostics.unsupported_mass, "actions that the logging policy never plays"
    if mass is None and counts.target is not None:
        mass = float(counts.target[counts.logged == 0].sum()) * beyond_chance(counts.logged)
        where = "actions without a single row in this log"
    if mass is None:
        message = "Logged actions do not show whether the new policy plays actions that the logging policy never plays."
        return Check("support", "unknown", None, message)
    message = f"{mass:.1%} of the new policy's decisions are {where}"
    doubt = f"{message}: their reward is unknown."
    return graded("support", mass, limits, (f"{message}.", doubt), ("unsupported_mass", mass))


def beyond_chance(logged: Floats) -> float:
    """The share of the actions without a row, of counts (k,), that chance does not explain: beyond Chao's estimate from
    the actions with one row and with two, and three of its standard errors."""
    none, one, two = (float((logged == rows).sum()) for rows in (0, 1, 2))
    ratio = one / max(two, 1.0)
    by_chance = one * ratio / 2
    error = math.sqrt(max(two, 1.0) * (ratio**4 / 4 + ratio**3 + ratio**2 / 2))
    return max(none - by_chance - 3 * error, 0.0) / none if none else 0.0


def disagreement(best: Estimate, estimates: Sequence[Estimate], rows: float, level: float, limits: Thresholds) -> Check:
    """The largest paired distance between the headline and the other estimators that are consistent. rows: that the log
    alone is worth, where it is known; from few rows a standard error says nothing."""
    others = [e for e in estimates if e.estimator in CONSISTENT and e.estimator != best.estimator]
    others = [e for e in others if min(rows, e.diagnostics.effective_sample_size or 0.0) >= limits.effective_rows[1]]
    if not others or best.diagnostics.effective_sample_size is None:
        message = "There is no second estimator with enough effective rows to compare with."
        return Check("disagreement", "unknown", None, message)
    interval = best.interval(level)
    statuses = [apart(best - other, interval, limits) for other in others]
    (status, z, size), other = max(
        zip(statuses, others, strict=True), key=lambda pair: (STATUSES.index(pair[0][0]), pair[0][1])
    )
    message = (
        f"The estimators agree: the distance of {best.estimator} from each is small, by its error or the interval."
    )
    if status != "pass":
        message = (
            f"{best.estimator} says {best.value:.4g} and {other.estimator} says {other.value:.4g}, {z:.1f} standard "
            f"errors and {size:.1f} half-widths of the interval apart: they should agree."
        )
    return Check("disagreement", status, z, message)


def no_lift(estimates: Sequence[Estimate], rows: float, limits: Thresholds) -> float | None:
    """p-value that the policy earns what the log does, by SNDR, else SNIPS. rows: that the log alone is worth; None
    where these are too few for a normal interval, or an estimate is missing."""
    by_name = {estimate.estimator: estimate for estimate in estimates}
    weighted, plain = by_name.get("SNDR", by_name.get("SNIPS")), by_name.get("LoggedMean")
    if weighted is None or plain is None:
        return None
    if min(rows, weighted.diagnostics.effective_sample_size or 0.0) < limits.effective_rows[0]:
        return None
    lift = lift_of(weighted, plain)
    return two_sided(lift.value / lift.error) if lift.error > 0 else None


def apart(gap: Estimate, interval: Interval, limits: Thresholds) -> tuple[str, float, float]:
    """The milder status of two distances, and both: in standard errors, and in half-widths of the interval."""
    z, size = abs(gap.value) / gap.error if gap.error > 0 else 0.0, in_half_widths(gap.value, interval)
    by_both = limits.status("disagreement", z), limits.status("disagreement_gap", size)
    return min(by_both, key=STATUSES.index), z, size


DISORDER = "The files are not in the order of time, and a stream is not sorted: changes over time were not checked."
NO_FREQUENCIES = Check("frequencies", "unknown", None, "Without propensities, action frequencies cannot be checked.")


COME_AND_GO = (
    "; all of these have too few rows, so if actions come and go, say which were eligible (the role eligible, "
    "--eligible)"
)
HARDLY = "; it has too few rows, as an action has that is hardly ever played on the rows of the others"


def too_few(gaps: Sequence[float], *, open: bool) -> bool:
    """Whether actions that are off, by so many rows each, all have too few, and it is not known which were eligible.

    Then logged propensities alone cannot say that they are wrong: the mean of 1 / propensity of an action is below 1
    as well where it could not be taken, or hardly ever, on the rows that do not show it.
    """
    return open and len(gaps) > 0 and max(gaps) < 0


def reason_for(gaps: Sequence[float], *, open: bool) -> str:
    """What may explain that, the end of a sentence."""
    return (HARDLY if len(gaps) == 1 else COME_AND_GO) if too_few(gaps, open=open) else ""


def frequencies(off: np.ndarray, gap: Floats, limits: Thresholds, *, open: bool = False) -> Check:
    """The share of rows whose action the propensities do not explain, over the actions that are `off` (k,). open:
    whether it is not known which actions were eligible; then actions that have `too_few` rows are no refusal, as the
    mean weight says whether the new policy plays them where they are missing."""
    gaps = gap[off].tolist()
    share = float(np.abs(gap[off]).sum()) / 2
    judged = min(share, limits.misplaced[1]) if too_few(gaps, open=open) else share
    sentences = (
        "Every action was taken as often as its propensities say.",
        f"{int(off.sum())} of {len(off)} actions were not taken as often as their propensities say ({share:.1%} of the "
        "rows have actions that the propensities do not explain): the propensities are wrong or rows are missing"
        f"{reason_for(gaps, open=open)}.",
    )
    return graded("frequencies", share, limits, sentences, ("misplaced", judged))


def surprise(mean: float, p: float, limits: Thresholds) -> Check:
    """Whether the logged actions are as likely as the logging policy says that its own actions are."""
    sentences = (
        "The logged actions are as likely as the logging policy says.",
        f"The logged actions are {'less' if mean < 0 else 'more'} likely under the logging policy than it says, by "
        f"{abs(mean):.3f} nats per row: the rows were not drawn from it.",
    )
    return graded("surprise", mean, limits, sentences, ("surprise", abs(mean) if p < limits.p_value else 0.0))


def column(
    log: LoggedData, limits: Thresholds, *, known: bool, so: str = ": one of the two columns may come from other rows."
) -> Check | None:
    """Where only logged propensities are known: whether they have anything to do with the logged actions."""
    p = None if known else action_matters(log, limits)
    if p is None:
        return None
    if p <= limits.column_p_value:
        return Check("propensity_column", "pass", p, "The propensities depend on the actions they belong to.")
    message = f"Given the contexts, the propensities do not depend detectably on the logged actions (p = {p:.2f})"
    return Check("propensity_column", "warn", p, message + so)


def effect(
    log: LoggedData, limits: Thresholds, half_width: float = 0.0, lift: float | None = None, *, joined: bool = False
) -> Check | None:
    """Whether rewards depend on the actions; if not, the columns may not belong together. half_width: of the interval
    that decisions rest on, as `Thresholds.effect_half_width` has it. lift: p-value of no lift, the one effect that the
    number is about; the lesser of the two p-values counts, doubled. joined: other checks show that they do."""
    p = depends_on_action(log.rewards, log, limits)
    if p is None:
        return None
    p = p if lift is None else min(1.0, 2 * min(p, lift))
    if p <= limits.effect_p_value:
        return Check("action_effect", "pass", p, "The rewards depend on the actions.")
    message = f"The rewards do not depend detectably on the actions (p = {p:.2f})"
    if joined or half_width > limits.effect_half_width:
        return Check("action_effect", "pass", p, f"{message}; a small effect looks like this too.")
    doubt = f"{message}: effects are small, or the two columns come from different rows."
    return Check("action_effect", "warn", p, doubt)


def drifted(
    changes: Sequence[tuple[str, float, float]], best: Estimate, level: float, limits: Thresholds, name: str
) -> Check:
    """The check from (what, change in the last fifth, p-value) of all that was looked at."""
    what, change, p = min(changes, key=lambda triple: triple[2])
    size = in_half_widths(change, best.interval(level))
    sentences = (
        f"No change over {name} that the interval does not allow for.",
        f"The {what} changed by {change:+.3g} in the last fifth of the log, {size:.1f} times the interval's half-width"
        ": the number describes the past, not today.",
    )
    return graded(
        "drift", change, limits, sentences, ("drift", size if p * len(changes) < limits.drift_p_value else 0.0)
    )


def bias(best: Estimate, level: float, limits: Thresholds) -> Check | None:
    """The bias that the interval allows for, against the noise that it counts."""
    bound = best.diagnostics.bias_bound
    if bound is None:
        return None
    noise = best.interval(level, "normal" if best.diagnostics.stderr_floor is None else "steadied")
    message = f"The interval allows for a bias of up to {bound:.3g} beside noise of ±{noise.width / 2:.3g}"
    doubt = f"{message}: more rows of this kind would hardly narrow it."
    return graded("bias", bound, limits, (f"{message}.", doubt), ("bias", in_half_widths(bound, noise)))


def in_half_widths(change: float, interval: Interval) -> float:
    """The size of a change, in half-widths of an interval."""
    half = interval.width / 2
    return abs(change) / half if half > 0 else (math.inf if change else 0.0)
