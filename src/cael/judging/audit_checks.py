"""The checks of an audit: pure functions of what a pass kept, or of rows in memory, each with its sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.engine.answer import Answer
from cael.engine.columns import Column, Reward, Surprise, Weight
from cael.engine.partial import Stretch
from cael.inference.intervals import skewness_of_mean
from cael.judging.checks import reason_for
from cael.judging.judge import drift, left_of_reward, order_of, setless, tested_actions
from cael.judging.likely import likeliness, z_of
from cael.judging.survey import (
    Survey,
    action_drift,
    count_p_values,
    evenly,
    holm,
    repeats,
    row_keys,
    two_sided,
)
from cael.judging.thresholds import Thresholds
from cael.judging.verdict import Check
from cael.log.logged import LoggedData
from cael.policies.policy import probabilities

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

    @property
    def gap(self) -> float:
        """The distance of the two."""
        return abs(self.observed - (self.expected or 0.0))

    def off(self, limits: Thresholds) -> bool:
        """Whether they are apart beyond chance."""
        return self.p_value is not None and self.p_value < limits.p_value


@final
@dataclass(frozen=True)
class Period:
    """One of the equally large time periods: rows, mean reward, mean propensity, and by how many standard errors
    the propensities are off in it (None: not known).

    number: of the period. z: the standard errors.
    """

    number: int
    rows: int
    reward: float
    propensity: float | None
    z: float | None


def known(answer: Answer) -> Check:
    log = answer.log
    if not log.has_propensities:
        message = "The log has no propensities: only a model can be evaluated on it, and the log cannot check one."
        return Check("propensities", "fail", None, message)
    if log.estimates_logging:
        message = "The propensities were estimated from this log, not logged: the checks below say little."
        return Check("propensities", "warn", None, message)
    message = "All probabilities of the logging policy are known."
    if log.logging is None:
        message = "The propensities of logged actions are known, those of the others are not: some checks are weaker."
    return Check("propensities", "pass", None, message)


def sums(answer: Answer, limits: Thresholds) -> Check | None:
    """Whether the probabilities of a row add up to one; where only one is known, whether they do so on average, which
    is whether the weights of the uniform policy average one."""
    if not answer.log.has_propensities:
        return None
    if answer.log.logging is not None:
        worst = answer.partial.actions.worst
        message = f"The probabilities of every row add up to 1 (within {max(worst, 1e-12):.1g})."
        return Check("sums", "pass", worst, message)
    weight, k = answer.single(Weight(0)), f"the {answer.log.n_actions} actions"
    k = "the number of eligible actions" if answer.log.has_eligible else k
    total, z = weight.value, z_of(weight, 1.0) if unrounded(weight.value - 1, 1.0, limits) else 0.0
    status = limits.status("sums", abs(z))
    shown = k.removeprefix("the number of ")
    message = f"The propensities of {shown} add up to 1 on average ({total:.2f}, {z:+.1f} standard errors)."
    if status != "pass" and z > 0:
        message = f"The propensities are too small: 1/propensity averages {total:.2f} times {k}."
    if status != "pass" and z < 0:
        status = "warn"
        message = (
            f"1/propensity averages {total:.2f} times {k} and should be 1: propensities are "
            "too large, or some actions cannot be taken on some rows"
            + (" (then say which can: the role eligible, --eligible)." if setless(answer) else ".")
        )
    return Check("sums", status, total, message)


def rounding(log: LoggedData, limits: Thresholds) -> Check | None:
    """Whether propensities were rounded to few decimals, and what that can do to the smallest."""
    if log.propensities is None:
        return None
    p = log.propensities
    if len(np.unique(p[:10_000])) < 3:
        return Check("rounding", "pass", None, "The propensities have too few values for rounding to be seen.")
    if allocated(log.actions, p):
        return Check("rounding", "pass", None, "Each action has one propensity, which its frequency checks.")
    for digits in DECIMALS:
        if np.abs(p * 10**digits - np.round(p * 10**digits)).max() < 1e-6:
            error = 0.5 * 10.0**-digits / float(np.quantile(p, 0.01))
            message = f"The propensities have {digits} decimals, an error of up to {error:.1%} in the smallest."
            return Check("rounding", limits.status("rounding", error), error, message)
    return Check("rounding", "pass", None, "The propensities are not rounded.")


def allocated(actions: Ints, p: Floats) -> bool:
    """Whether each action has the same propensity on all rows, as in a trial with fixed shares."""
    order = np.argsort(actions, kind="stable")
    same = actions[order][1:] == actions[order][:-1]
    return bool((p[order][1:] == p[order][:-1])[same].all())


def by_action(
    answer: Answer, counts: Survey, limits: Thresholds, names: Sequence[object] | None = None
) -> tuple[Frequency, ...]:
    """Rows of each action against what the propensities say."""
    labels = [str(name) for name in (range(len(counts.logged)) if names is None else names)]
    actions = tested_actions(answer, counts, limits)
    if actions is None:
        return tuple(
            Frequency(label, float(rows), None, None) for label, rows in zip(labels, counts.counted, strict=True)
        )
    tested, adjusted = actions.tested, np.ones(len(labels))
    adjusted[tested] = holm(actions.p_values[tested])
    return tuple(
        Frequency(labels[a], float(counts.counted[a]), float(actions.expected[a]), float(adjusted[a]))
        if tested[a]
        else Frequency(labels[a], float(counts.counted[a]), None, None)
        for a in range(len(labels))
    )


def action_check(actions: tuple[Frequency, ...], limits: Thresholds, n: int, *, open: bool = False) -> Check:
    """open: whether it is not known which actions were eligible."""
    tested = [action for action in actions if action.p_value is not None]
    if not tested:
        return Check("frequencies", "unknown", None, "No action could be tested against its propensities.")
    off = [action for action in tested if action.off(limits)]
    if not off:
        message = f"All {len(tested)} tested actions were taken as often as their propensities say."
        return Check("frequencies", "pass", 0.0, message)
    share = sum(action.gap for action in off) / 2 / n
    most = max(off, key=lambda action: action.gap)
    gaps = [action.observed - (action.expected or 0.0) for action in off]
    status = limits.status("misplaced", share)
    message = (
        f"{len(off)} of {len(tested)} tested actions were not taken as often as their propensities say; action "
        f"{most.label} has {most.observed:,.0f} rows and should have {most.expected:,.0f}"
    )
    so = f", which concerns no more than {share:.2%} of the rows." if status == "pass" else "."
    if status != "pass" and (reason := reason_for(gaps, open=open)):
        so = f"{reason}."
    return Check("frequencies", status, share, message + so)


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
        logged = place[np.arange(len(p)), batch.actions]
        observed += np.bincount(logged, minlength=bins)
        key = (place + bins * np.arange(len(p))[:, None]).ravel()
        mass = np.bincount(key, weights=p.ravel(), minlength=bins * len(p)).reshape(len(p), bins)
        expected += mass.sum(axis=0)
        variance += (mass * (1 - mass)).sum(axis=0)
    kept, variance = expected > 0, np.maximum(variance, 0.0)
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
    rows = log.take(evenly(len(log), 500))
    p = np.sort(np.concatenate([probabilities(log.logging, b).ravel() for b in rows.batches(width=log.n_actions)]))
    place = np.searchsorted(np.cumsum(p) / p.sum(), np.arange(1, 10) / 10)
    return np.unique(p[np.minimum(place, len(p) - 1)])


def decile_check(deciles: tuple[Frequency, ...], limits: Thresholds) -> Check | None:
    if len(deciles) < 2:
        return None
    off = [decile for decile in deciles if decile.off(limits)]
    if not off:
        message = "Actions with a high and with a low stated probability were taken as often as stated."
        return Check("calibration", "pass", None, message)
    most = min(off, key=lambda decile: decile.p_value or 0.0)
    gap = most.gap / max(most.expected or 0.0, 1.0)
    message = (
        f"Actions with a stated probability of {most.label} were taken {most.observed:,.0f} times and should have been "
        f"{most.expected:,.0f} times; {len(off)} of {len(deciles)} ranges are off."
    )
    return Check("calibration", limits.status("decile_gap", gap), gap, message)


def surprise_check(answer: Answer, limits: Thresholds) -> Check | None:
    likely = likeliness(answer)
    if likely is None:
        return None
    mean, p = likely
    if p >= limits.p_value:
        return Check("surprise", "pass", mean, "The logged actions are as likely as the logging policy says.")
    how = "less" if mean < 0 else "more"
    message = f"The logged actions are {how} likely than the logging policy says, by {abs(mean):.3f} nats per row."
    return Check("surprise", limits.status("surprise", abs(mean)), mean, message)


def by_period(
    answer: Answer, blocks: Sequence[Stretch], propensities: Sequence[float | None], limits: Thresholds
) -> tuple[Period, ...]:
    """Rows, mean reward, mean propensity and z of the propensities in each time period.

    The spread is that of the whole log: a stretch has too few rows for one of its own when 1 / propensity is skewed.
    """
    column: Column = Surprise(relative=False) if answer.log.logging is not None else Weight(0)
    centre, error, at = float(isinstance(column, Weight)), 0.0, answer.index.get(column)
    if at is not None and z_of(answer.single(column), math.inf):
        error = answer.single(column).stderr * math.sqrt(answer.n)

    def z(block: Stretch) -> float | None:
        if not error:
            return None
        return unrounded(float(block.moments.mean[at]) - centre, centre, limits) / error * math.sqrt(block.moments.n)

    return tuple(
        Period(
            number, block.moments.n, answer.r0 + float(block.moments.mean[answer.index[Reward()]]), propensity, z(block)
        )
        for number, (block, propensity) in enumerate(zip(blocks, propensities, strict=True))
    )  # fmt: skip


def unrounded(gap: float, centre: float, limits: Thresholds) -> float:
    """By how much a mean is off its centre; 0 where rounding explains that of weights, whose centre is 1."""
    return gap if centre == 0 or abs(gap) > limits.constant_weight else 0.0


def period_check(periods: tuple[Period, ...], limits: Thresholds) -> Check | None:
    tested = [(period, period.z) for period in periods if period.z is not None]
    if not tested:
        return None
    p_values = holm(np.array([two_sided(z) for _, z in tested]))
    off = [pair for pair, p in zip(tested, p_values, strict=True) if p < limits.p_value]
    if not off:
        return Check("periods", "pass", None, f"The propensities hold in each of {len(tested)} time periods.")
    most, z = max(off, key=lambda pair: abs(pair[1]))
    message = (
        f"The propensities do not hold in {len(off)} of {len(tested)} time periods; period {most.number + 1} is "
        f"{z:+.1f} standard errors off."
    )
    return Check("periods", "warn", z, message)


def drifts(answer: Answer, blocks: Sequence[Stretch], rows: LoggedData, block: Ints, limits: Thresholds) -> list[Check]:
    """Whether rewards and actions change over time; neither is wrong, and both are worth knowing. block: of a row.

    Where the eligible actions change, and the rewards with them, it is what a model leaves of the rewards that counts.
    """
    when, change, p, column = order_of(answer), 0.0, 1.0, left_of_reward(answer)
    what = "mean reward" + ("" if column == Reward() else " for given contexts and actions")
    if answer.range.low < answer.range.high:
        change, p = drift(answer, len(blocks), answer.single(column).coefficients)
    reward = Check("reward_drift", "pass", change, f"The {what} does not change over {when}.")
    if p < limits.p_value:
        message = f"The {what} changes over {when}: the last fifth of the log is {change:+.3g} from the rest."
        reward = Check("reward_drift", "warn", change, message)
    moved, p = action_drift(rows.actions, block, rows.n_actions)
    if rows.eligible is not None and rows.eligible.changes:
        message = (
            "The mix of actions follows the sets of eligible actions: whether it also changes within them is open."
        )
        return [reward, Check("action_drift", "pass", moved, message)]
    if p < limits.p_value:
        message = f"The mix of actions changes over {when}: {moved:.0%} of the rows would have to move to undo it."
        return [reward, Check("action_drift", limits.status("action_drift", moved), moved, message)]
    return [reward, Check("action_drift", "pass", moved, f"The mix of actions does not change over {when}.")]


def no_drifts(why: str) -> list[Check]:
    return [Check(name, "unknown", None, why) for name in ("reward_drift", "action_drift")]


def duplicates(log: LoggedData, n: int, limits: Thresholds) -> Check:
    """Rows that occur twice: more of them than contexts that come again and propensities explain. n: of the log."""
    if len(log) < n:
        message = f"Copied rows are not looked for: {len(log):,} of {n:,} rows stand for this log in files."
        return Check("duplicates", "unknown", None, message)
    context = [log.contexts[:, j] for j in range(log.contexts.shape[1])]
    if log.timestamps is not None:
        context.append(log.timestamps.view("i8") if log.timestamps.dtype.kind == "M" else log.timestamps)
    if not context:
        return Check("duplicates", "unknown", None, "Without contexts or timestamps, copied rows cannot be recognised.")
    same, match, chance = repeats(row_keys(context), row_keys([*context, log.actions, log.rewards]), log.propensities)
    share, excess = match / len(log), match - float(chance.sum())
    status = limits.status("duplicates", share)
    beyond = excess > limits.duplicates_z * math.sqrt(float((chance * (1 - chance)).sum()))
    if match and beyond and status != "pass":
        message = f"{match:,} rows ({share:.1%}) are exact copies of another row: the log may have been joined twice."
        return Check("duplicates", status if match > limits.duplicates_alike * same else "warn", share, message)
    message = f"{match:,} rows equal another one, no more than contexts that come again explain."
    return Check("duplicates", "pass", share, message if match else "No row occurs twice.")


def support(log: LoggedData, counts: Survey, limits: Thresholds) -> Check:
    """Which actions have rows, and whether the logging policy explores."""
    k, least = log.n_actions, limits.few_rows
    never, few = int((counts.logged == 0).sum()), int(((counts.logged > 0) & (counts.logged < least)).sum())
    message = f"{never} of {k} actions have no row, and {few} have fewer than {least:g} rows"
    if never == few == 0:
        message = f"All {k} actions have at least {least:g} rows"
    if log.propensities is not None:
        certain = float((log.propensities > 1 - 1e-9).mean())
        status = limits.status("certain", certain)
        if status != "pass":
            sentence = (
                f"On {certain:.0%} of the rows the action was certain: the log says nothing about other actions there."
            )
            return Check("support", status, certain, sentence)
        message += f"; the smallest propensity is {float(log.propensities.min()):.2g}"
    share = (never + few) / k
    return Check("support", limits.status("thin_support", share), share, f"{message}.")


def reward(log: LoggedData, limits: Thresholds) -> Check:
    """Whether the rewards differ enough to compare policies, and whether a few of them decide the mean."""
    r = log.rewards
    if (r == r[0]).all():
        return Check("rewards", "fail", float(r[0]), f"Every reward is {r[0]:g}: all policies look alike on this log.")
    ratio = abs(skewness_of_mean(r))
    if limits.cautions("skewness", ratio):
        message = f"A few large rewards decide the mean (skewness ratio {ratio:.2f}): intervals are too narrow."
        return Check("rewards", "warn", ratio, message)
    return Check("rewards", "pass", ratio, f"The mean reward is {r.mean():.4g}, and no single reward decides it.")
