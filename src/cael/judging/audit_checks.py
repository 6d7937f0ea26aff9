"""The checks of an audit: pure functions of a log and a survey of it, each with a sentence for what it found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.inference import intervals as inference
from cael.judging.survey import (
    Survey,
    action_drift,
    action_matters,
    count_p_values,
    depends_on_action,
    drift,
    evenly,
    holm,
    inverse_means,
    likeliness,
    repeats,
    row_keys,
    two_sided,
    z_of_mean,
)
from cael.judging.thresholds import Thresholds
from cael.judging.verdict import Check
from cael.log.logged import LoggedData
from cael.policies.policy import probabilities
from cael.policies.propensity import EstimatedLogging

DECIMALS = (1, 2, 3, 4, 5)
MOST_CELLS = 50_000_000


@final
@dataclass(frozen=True)
class Frequency:
    """An observed number of rows against the expected one. label: an action, or a range of probabilities. p_value: two-
    sided and adjusted by Holm for all that were tested; None where it could not be tested."""

    label: str
    observed: float
    expected: float | None
    p_value: float | None


@final
@dataclass(frozen=True)
class Period:
    """One of the equally large stretches of time: rows, mean reward, mean propensity, and by how many standard errors
    the propensities are off in it (None: not known)."""

    number: int
    rows: int
    reward: float
    propensity: float | None
    z: float | None


def known(log: LoggedData, found: Survey) -> Check:
    if log.propensities is None:
        told = "The log has no propensities: only a model can be evaluated on it, and nothing here checks a model."
        return Check("propensities", "fail", None, told)
    if isinstance(log.logging, EstimatedLogging):
        told = "The propensities were estimated from this log, not logged: the checks below say little."
        return Check("propensities", "warn", None, told)
    if found.expected is None:
        told = "The propensities of logged actions are known, those of the others are not: some checks are weaker."
        return Check("propensities", "pass", None, told)
    return Check("propensities", "pass", None, "All probabilities of the logging policy are known.")


def sums(log: LoggedData, found: Survey, limits: Thresholds) -> Check | None:
    """Whether the probabilities of a row add up to one; where only one is known, whether they do so on average."""
    if log.propensities is None:
        return None
    if found.worst_sum is not None:
        told = f"The probabilities of every row add up to 1 (within {max(found.worst_sum, 1e-12):.1g})."
        return Check("sums", "pass", found.worst_sum, told)
    mean, z = z_of_mean(1 / log.propensities - log.n_actions, log.clusters)
    total, status = (mean + log.n_actions) / log.n_actions, limits.status("sums", abs(z))
    told = f"The propensities of the {log.n_actions} actions add up to 1 on average ({total:.2f}, {z:+.1f} errors)."
    if status != "pass" and z > 0:
        told = f"The propensities are too small: 1/propensity averages {total:.2f} times the {log.n_actions} actions."
    if status != "pass" and z < 0:
        status = "warn"
        told = (
            f"1/propensity averages {total:.2f} times the {log.n_actions} actions and should be 1: propensities are "
            "too large, or some actions cannot be taken on some rows."
        )
    return Check("sums", status, total, told)


def rounding(log: LoggedData, limits: Thresholds) -> Check | None:
    """Whether propensities were rounded to few decimals, and what that can do to the smallest."""
    if log.propensities is None:
        return None
    p = log.propensities
    if len(np.unique(p[:10_000])) < 3:
        return Check("rounding", "pass", None, "The propensities have too few values for rounding to be seen.")
    for digits in DECIMALS:
        if np.abs(p * 10**digits - np.round(p * 10**digits)).max() < 1e-6:
            error = 0.5 * 10.0**-digits / float(np.quantile(p, 0.01))
            told = f"The propensities have {digits} decimals, an error of up to {error:.1%} in the smallest."
            return Check("rounding", limits.status("rounding", error), error, told)
    return Check("rounding", "pass", None, "The propensities are not rounded.")


def by_action(
    log: LoggedData, found: Survey, limits: Thresholds, names: Sequence[object] | None = None
) -> tuple[Frequency, ...]:
    """Rows of each action against what the propensities say."""
    rows = _by_action(log, found, limits.least_count)
    return rows if names is None else tuple(replace(row, label=str(names[int(row.label)])) for row in rows)


def _by_action(log: LoggedData, found: Survey, least: float) -> tuple[Frequency, ...]:
    n = len(log)
    if log.propensities is None:
        return tuple(Frequency(str(a), float(c), None, None) for a, c in enumerate(found.logged))
    if found.expected is not None and found.variance is not None:
        p = holm(count_p_values(found.logged, found.expected, found.variance, n))
        rows = zip(found.logged, found.expected, p, strict=True)
        return tuple(Frequency(str(a), float(c), float(e), float(q)) for a, (c, e, q) in enumerate(rows))
    mean, error = inverse_means(log)
    tested = (found.logged >= least) & (error > 0)
    z = np.divide(mean - 1, error, out=np.zeros_like(mean), where=tested)
    adjusted = np.ones(len(mean))
    adjusted[tested] = holm(np.array([two_sided(each) for each in z[tested]]))
    expected = np.divide(found.logged, mean, out=np.zeros_like(mean), where=mean > 0)
    return tuple(
        Frequency(str(a), float(found.logged[a]), float(expected[a]) if tested[a] else None,
                  float(adjusted[a]) if tested[a] else None)
        for a in range(log.n_actions)
    )  # fmt: skip


def action_check(actions: tuple[Frequency, ...], limits: Thresholds, n: int) -> Check | None:
    tested = [each for each in actions if each.p_value is not None and each.expected is not None]
    if not tested:
        return Check("frequencies", "unknown", None, "No action could be tested against its propensities.")
    off = [each for each in tested if each.p_value is not None and each.p_value < limits.p_value]
    if not off:
        told = f"All {len(tested)} tested actions were taken as often as their propensities say."
        return Check("frequencies", "pass", 0.0, told)
    share = sum(abs(each.observed - (each.expected or 0.0)) for each in off) / 2 / n
    most = max(off, key=lambda each: abs(each.observed - (each.expected or 0.0)))
    told = (
        f"{len(off)} of {len(tested)} tested actions were not taken as often as their propensities say; action "
        f"{most.label} has {most.observed:,.0f} rows and should have {most.expected:,.0f}"
    )
    status = limits.status("misplaced", share)
    so = f", which concerns no more than {share:.2%} of the rows." if status == "pass" else "."
    return Check("frequencies", status, share, told + so)


def by_decile(log: LoggedData) -> tuple[Frequency, ...]:
    """Rows whose action had a stated probability in a range, against the sum of the probabilities in that range.

    Ranges hold equal shares of the probability mass of a sample of rows, so the ten expectations are about equal. Of a
    large table, rows that are evenly spaced stand for all.
    """
    if log.logging is None or not log.logging.complete:
        return ()
    edges = _mass_deciles(log)
    log = log if len(log) * log.n_actions <= MOST_CELLS else log.take(evenly(len(log), MOST_CELLS // log.n_actions))
    assert log.logging is not None
    bins = len(edges) + 1
    observed, expected, variance = np.zeros(bins), np.zeros(bins), np.zeros(bins)
    for batch in log.batches(width=3 * log.n_actions):
        p = probabilities(log.logging, batch)
        place = np.searchsorted(edges, p, side="right")
        own = place[np.arange(len(p)), batch.actions]
        observed += np.bincount(own, minlength=bins)
        key = (place + bins * np.arange(len(p))[:, None]).ravel()
        mass = np.bincount(key, weights=p.ravel(), minlength=bins * len(p)).reshape(len(p), bins)
        expected += mass.sum(axis=0)
        variance += (mass * (1 - mass)).sum(axis=0)
    kept = expected > 0
    p_values = np.ones(bins)
    p_values[kept] = holm(count_p_values(observed[kept], expected[kept], variance[kept], len(log)))
    ends = [0.0, *edges.tolist(), 1.0]
    return tuple(
        Frequency(f"{ends[b]:.3g} to {ends[b + 1]:.3g}", float(observed[b]), float(expected[b]), float(p_values[b]))
        for b in range(bins)
        if kept[b] or observed[b]
    )


def _mass_deciles(log: LoggedData) -> Floats:
    """Nine probabilities that cut the mass of the logging policy on up to 500 rows into tenths."""
    assert log.logging is not None
    some = log.take(evenly(len(log), 500))
    p = np.sort(np.concatenate([probabilities(log.logging, b).ravel() for b in some.batches(width=log.n_actions)]))
    place = np.searchsorted(np.cumsum(p) / p.sum(), np.arange(1, 10) / 10)
    return np.unique(p[np.minimum(place, len(p) - 1)])


def decile_check(deciles: tuple[Frequency, ...], limits: Thresholds) -> Check | None:
    if len(deciles) < 2:
        return None
    off = [each for each in deciles if each.p_value is not None and each.p_value < limits.p_value]
    if not off:
        told = "Actions with a high and with a low stated probability were taken as often as stated."
        return Check("calibration", "pass", None, told)
    most = min(off, key=lambda each: each.p_value or 0.0)
    expected = most.expected or 0.0
    gap = abs(most.observed - expected) / max(expected, 1.0)
    told = (
        f"Actions with a stated probability of {most.label} were taken {most.observed:,.0f} times and should have been "
        f"{expected:,.0f} times; {len(off)} of {len(deciles)} ranges are off."
    )
    return Check("calibration", limits.status("decile_gap", gap), gap, told)


def surprise_check(log: LoggedData, found: Survey, limits: Thresholds) -> Check | None:
    seen = likeliness(found, log.clusters)
    if seen is None:
        return None
    mean, p = seen
    if p >= limits.p_value:
        return Check("surprise", "pass", mean, "The logged actions are as likely as the logging policy says of itself.")
    how = "less" if mean < 0 else "more"
    told = f"The logged actions are {how} likely than the logging policy says of itself, by {abs(mean):.3f} nats a row."
    return Check("surprise", limits.status("surprise", abs(mean)), mean, told)


def column_check(log: LoggedData, found: Survey, limits: Thresholds) -> Check | None:
    p = None if found.score is not None else action_matters(log)
    if p is None:
        return None
    if p <= limits.column_p_value:
        return Check("propensity_column", "pass", p, "The propensities depend on the actions they belong to.")
    told = f"Given the contexts, the propensities have nothing to do with the actions beside them (p = {p:.2f})."
    return Check("propensity_column", "warn", p, told)


def effect_check(log: LoggedData, limits: Thresholds) -> Check | None:
    p = depends_on_action(log.rewards, log)
    if p is None:
        return None
    if p <= limits.effect_p_value:
        return Check("action_effect", "pass", p, "The rewards depend on the actions.")
    told = f"The rewards show no sign of depending on the actions (p = {p:.2f}): do the two columns belong together?"
    return Check("action_effect", "warn", p, told)


def by_period(log: LoggedData, found: Survey, block: Ints) -> tuple[Period, ...]:
    """Rows, mean reward, mean propensity and z of the propensities in each stretch of time.

    The spread is that of the whole log: a stretch has too few rows for one of its own when 1 / propensity is skewed.
    """
    test = found.score
    if test is None and log.propensities is not None:
        test = 1 / log.propensities - log.n_actions
    error = None if test is None else inference.stderr(inference.units(test, log.clusters)) * math.sqrt(len(log))
    rows = []
    for number in range(int(block.max()) + 1):
        at = block == number
        z = float(test[at].mean()) / error * math.sqrt(at.sum()) if test is not None and error else None
        mean = None if log.propensities is None else float(log.propensities[at].mean())
        rows.append(Period(number, int(at.sum()), float(log.rewards[at].mean()), mean, z))
    return tuple(rows)


def period_check(periods: tuple[Period, ...], limits: Thresholds) -> Check | None:
    tested = [each for each in periods if each.z is not None]
    if not tested:
        return None
    p = holm(np.array([two_sided(each.z or 0.0) for each in tested]))
    off = [each for each, q in zip(tested, p, strict=True) if q < limits.p_value]
    if not off:
        return Check("periods", "pass", None, f"The propensities hold in each of {len(tested)} stretches of time.")
    most = max(off, key=lambda each: abs(each.z or 0.0))
    told = (
        f"The propensities do not hold in {len(off)} of {len(tested)} stretches of time; stretch {most.number + 1} is "
        f"{most.z:+.1f} standard errors off."
    )
    return Check("periods", "warn", most.z, told)


def drifts(log: LoggedData, block: Ints, limits: Thresholds) -> list[Check]:
    """Whether rewards and actions change over time; neither is wrong, and both are worth knowing."""
    when = "time" if log.timestamps is not None else "the order of the rows"
    change, p = drift(log.rewards, block, log.clusters)
    if p < limits.p_value:
        told = f"The mean reward changes over {when}: the last fifth of the log is {change:+.3g} from the rest."
        checks = [Check("reward_drift", "warn", change, told)]
    else:
        checks = [Check("reward_drift", "pass", change, f"The mean reward does not change over {when}.")]
    moved, p = action_drift(log.actions, block, log.n_actions)
    if p < limits.p_value:
        told = f"The mix of actions changes over {when}: {moved:.0%} of the rows would have to move to undo it."
        return [*checks, Check("action_drift", limits.status("action_drift", moved), moved, told)]
    return [*checks, Check("action_drift", "pass", moved, f"The mix of actions does not change over {when}.")]


def duplicates(log: LoggedData, limits: Thresholds) -> Check:
    """Rows that occur twice: more of them than contexts that come again and propensities explain."""
    context = [log.contexts[:, j] for j in range(log.contexts.shape[1])]
    if log.timestamps is not None:
        context.append(log.timestamps.view("i8") if log.timestamps.dtype.kind == "M" else log.timestamps)
    if not context:
        return Check("duplicates", "unknown", None, "Without contexts or timestamps, copied rows cannot be told apart.")
    same, match, chance = repeats(row_keys(context), row_keys([*context, log.actions, log.rewards]), log.propensities)
    share, excess = match / len(log), match - float(chance.sum())
    status = limits.status("duplicates", share)
    beyond = excess > limits.duplicates_z * math.sqrt(float((chance * (1 - chance)).sum()))
    if match and beyond and status != "pass":
        told = f"{match:,} rows ({share:.1%}) are exact copies of another row: the log may have been joined twice."
        return Check("duplicates", status if match > limits.duplicates_alike * same else "warn", share, told)
    told = f"{match:,} rows equal another one, no more than contexts that come again explain."
    return Check("duplicates", "pass", share, told if match else "No row occurs twice.")


def support(log: LoggedData, found: Survey, limits: Thresholds) -> Check:
    """Which actions have rows, and whether the logging policy explores."""
    k, least = log.n_actions, limits.few_rows
    never, few = int((found.logged == 0).sum()), int(((found.logged > 0) & (found.logged < least)).sum())
    told = f"{never} of {k} actions have no row, {few} fewer than {least:g}"
    if log.propensities is not None:
        certain = float((log.propensities > 1 - 1e-9).mean())
        status = limits.status("certain", certain)
        if status != "pass":
            sentence = (
                f"On {certain:.0%} of the rows the action was certain: the log says nothing about other actions there."
            )
            return Check("support", status, certain, sentence)
        told += f"; the smallest propensity is {float(log.propensities.min()):.2g}"
    share = (never + few) / k
    return Check("support", limits.status("thin_support", share), share, f"{told}.")


def reward(log: LoggedData, limits: Thresholds) -> Check:
    """Whether the rewards can tell policies apart, and whether a few of them decide the mean."""
    r = log.rewards
    if (r == r[0]).all():
        return Check("rewards", "fail", float(r[0]), f"Every reward is {r[0]:g}: no policy can be told from another.")
    centred = r - r.mean()
    ratio = abs(float(np.mean(centred**3)) / float(np.mean(centred**2)) ** 1.5) / math.sqrt(len(r))
    if limits.cautions("skewness", ratio):
        told = f"A few large rewards decide the mean (skewness ratio {ratio:.2f}): intervals cover less than they say."
        return Check("rewards", "warn", ratio, told)
    return Check("rewards", "pass", ratio, f"The mean reward is {r.mean():.4g}, and no single reward decides it.")
