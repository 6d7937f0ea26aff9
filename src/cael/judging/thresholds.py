"""Thresholds: the one table of numbers at which a doubt is put into words, becomes a caution or becomes a refusal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, final

from cael.errors import InputError

Limit: TypeAlias = float | tuple[float, float]

LESS_IS_WORSE = ("effective_rows", "smoothed_rows", "unsmoothed_rows", "successes")


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _check_pair(name: str, pair: Any) -> None:
    if not isinstance(pair, tuple) or len(pair) != 2 or not all(map(_is_limit, pair)):
        raise InputError(f"{name} must be (caution, refuse), two numbers >= 0; got {pair!r}.")
    caution, refuse = pair
    if caution < refuse if name in LESS_IS_WORSE else caution > refuse:
        raise InputError(f"{name}: a refusal must not come before a caution; got {pair!r}.")


def _check_number(name: str, value: Any) -> None:
    if not _is_limit(value):
        raise InputError(f"{name} must be one number >= 0; got {value!r}.")
    if name.endswith("p_value") and not 0 < value < 1:
        raise InputError(f"{name} must be between 0 and 1; got {value!r}.")


@final
@dataclass(frozen=True)
class Thresholds:
    """Where a doubt becomes a caution, and where it becomes a refusal: (caution, refuse), each with its reason.

    The first number also decides what the warnings of an estimate say. A single number decides the one thing that is
    stated. Every verdict, warning, audit, plan, calibration, segment table and figure uses this table.

    The weights of an estimate:

    effective_rows: effective sample size of the weighted rows. Below the first, a normal interval of skewed
        contributions is known to cover too little; below the second there is no sample to speak of: figures draw it
        grey, and a plan states no cost of exploration.
    smoothed_rows: the same of an estimator that smooths the weights by a model. Its interval takes their second moment
        from the policies and allows for the model's bias: it covered in 37 of 37 logs where n / E w^2 is below 10.
    unsmoothed_rows: n / E w^2 of the log alone, for an estimator that smooths the weights by a model. Below 100 more
        than the rows of the log, the model, decides. It never refuses: the interval allows for the model's bias.
    effective_share: the same as a share of the rows, for warnings only. Below one percent nearly all the data were
        thrown away, and another estimator would use more of them.
    largest_share: share of all the weight on one row. What one row can overturn is no average.
    skewness: |skewness of the contributions| / sqrt(rows). By the Edgeworth expansion one side of a 95% interval errs
        by about 0.085 times it: 0.25 costs two points of coverage, 1 costs eight. An audit warns at the first, for the
        rewards alone.
    hidden_weight: n / E w^2 as the rows show it over what it is, where both policies are known. At 2 an interval from
        the rows alone is too narrow by a factor of 1.4, at 5 by 2.2.
    successes: of rewards that take two values, the rarer one among the rows that carry the weight. With fewer than 5
        any interval rests on the assumption that the rate elsewhere in the log says something about these rows. It
        never refuses: the interval has the shape of a binomial's.
    steadied_skewness: the same where the interval has a raised standard error. Between 0.25 and 1 such intervals missed
        in 5 of 210 simulated logs.
    reward_tail: Pareto k of the largest or of the smallest rewards, the greater of the two. Above 0.5 they have no
        variance, and the extreme ones, which decide, are not in every log; from 1 on they have no mean, and 1.2 is that
        beyond doubt.
    logging_error: mean absolute error of log probabilities of a logging policy that was fitted to the logged
        propensities, on held-out rows. Below 10% the interval hardly differs from that with the policy known; from 30%
        on the model is not used at all, and estimators that need it are left out.
    tail_index: Pareto k of the largest weights. Above 0.7 an average of them settles too slowly to be used (Vehtari et
        al. 2024); from 1 on they have no mean. Weights with a known second moment, or with a ceiling that the log
        reaches, have no such tail.
    mean_weight_z: the mean weight is 1 if the propensities are right; distance in standard errors. 3 happens by chance
        once in 400 logs, 5 never.
    mean_weight_gap: |mean weight - 1| of a learned embedding, for warnings. Its weights are not exact, so that the
        distance counts and not only its standard errors; 0.2 is more than the bias that such an embedding is used for.
    unsupported_mass: the target's probability of actions that the logging policy never plays. The value of that share
        of decisions is unknown whatever the rows say.
    disagreement: largest paired distance, in standard errors, between estimators that are all consistent. Three pairs
        are looked at, so 3.5 happens by chance once in 700 logs.
    disagreement_gap: the same distance in half-widths of the interval that decisions rest on; both must be exceeded.
        Estimators that are nearly the same differ by many standard errors and little. Below half the interval holds
        both, above 1 it excludes the other.
    trained_here: by how many standard errors a fitted model knows the chance in the rewards of this log. By
        chance 4 happens once in 30,000 logs; it never refuses, as a model that rightly knows the reward at a finer
        scale than the nearest rows of the log looks the same.
    bias: the bias that the interval allows for, in half-widths of the interval without it. It is counted already, and
        from 3 on more data would hardly narrow the interval. It never refuses.

    The log:

    dropped: share of rows that were left out because they are invalid. At one percent, rows that are unlike the others
        move a rate by about a percent of its size. It never refuses: nothing in a log says what they would have been.
    misplaced: share of rows whose action the propensities do not explain, counted over the actions whose frequency is
        off beyond chance. Half a percent is rounding; five percent is another policy.
    least_count: rows that an action must have before its frequency is tested where only logged propensities are known.
        With fewer than 50, the mean of 1 / propensity is too far from normal.
    surprise: by how much the logged actions are less (or more) likely under the logging policy than it says of itself,
        in nats. 0.005 is rounding; 0.05 is another policy.
    decile_gap: relative distance between the rows that were taken and those that were stated, of the range of
        probabilities that is furthest off beyond chance. Any such distance is worth a warning; a tenth moves weights
        as much as five percent of misplaced rows.
    drift: change of the logged reward from the first four fifths of the log to the last, in half-widths of the
        interval, where it is beyond chance. From 0.5 on, an interval for the whole log misses today's value several
        times as often as it says. It never refuses: the number is right for the period of the log.
    action_drift: share of rows that would have to move to undo a change of the actions over time that is beyond
        chance. Below five percent it is of no consequence; it never refuses, as a logging policy may change.
    sums: distance of the mean of 1 / propensity from the number of actions, in standard errors. 4 happens by chance
        once in 16,000 logs. Propensities that are too large never refuse: actions may be missing on some rows.
    rounding: relative error that rounding can put on a small propensity. From 2% it shows in the weights, from 20% it
        decides them.
    duplicates: share of rows that are exact copies, where there are more of them than repeated contexts explain. A
        thousandth is a retry; five percent is a log that was joined twice.
    duplicates_z: standard errors by which the copies must exceed what repeated contexts explain. 5 never happens by
        chance.
    duplicates_alike: a refusal needs this share of the rows with a repeated context to be copies: in a log that was
        joined twice all are, while honest visitors who come again also see other actions.
    few_rows: an action with fewer rows counts as thinly supported. The mean of fewer than 10 rewards says nothing.
    thin_support: share of the actions that are thinly supported or have no row. It never refuses: a target may not
        play them.
    certain: share of rows on which the logged action had probability one. Where half the decisions were certain, the
        log says nothing about other actions.

    Enough to look at:

    related_rows: rows that a log must have before rewards or propensities are tested for depending on the actions.
    related_count: rows that an action must have to count in these tests. One row cannot be compared with itself.
    related_spread: standard deviation that log propensities must have before they are tested. Below 5% they are nearly
        uniform, and nothing in them could belong to another row.
    drift_rows: rows that a log must have before changes over time are looked for, in a verdict.
    constant_weight: |weight - 1| where all weights are alike, which must be 1 then; in an audit, of the mean weight of
        the uniform policy, whose weights may be nearly alike. A thousandth is rounding.

    Results:

    coverage: how far the coverage on planted rewards is below its level, in standard errors. 3 happens by chance once
        in 700 calibrations; with 9, intervals are short by more than a tenth in a calibration of the usual size.

    Chance:

    p_value: below it a deviation counts as beyond chance; 0.001, as every log is checked for many things.
    drift_p_value: the same for drift, which never refuses: a caution costs little, and drift is hard to see.
    column_p_value: above it, propensities show no sign of depending on the actions beside them. They must depend on
        them by construction, so that any log of some size is far below 0.01.
    effect_p_value: above it, rewards show no sign of depending on the actions. An honest effect can be small, so that
        the usual 0.05 is enough.
    vouched_z: standard errors by which shuffled actions would move the surprise; from 6 on the check of the surprise
        would see them in all but one of 300 logs, and nothing needs to be asked of the rewards.
    effect_half_width: half-width of the interval, in standard deviations of the reward (and of the weights, where that
        is below 1), up to which the lack of such a sign is a doubt. With 0.14 an effect of 0.2, small by Cohen's scale,
        is seen in four of five logs; an interval that is wider holds such effects anyway.
    segments_p_value: below it, segments are said to differ; 0.01, as several columns are looked at.
    """

    effective_rows: tuple[float, float] = (100.0, 20.0)
    smoothed_rows: tuple[float, float] = (100.0, 5.0)
    unsmoothed_rows: tuple[float, float] = (100.0, 0.0)
    effective_share: float = 0.01
    largest_share: tuple[float, float] = (0.1, 0.3)
    skewness: tuple[float, float] = (0.25, 1.0)
    hidden_weight: tuple[float, float] = (2.0, 5.0)
    successes: tuple[float, float] = (5.0, 0.0)
    steadied_skewness: tuple[float, float] = (1.0, 3.0)
    reward_tail: tuple[float, float] = (0.5, 1.2)
    logging_error: tuple[float, float] = (0.1, 0.3)
    tail_index: tuple[float, float] = (0.7, 1.0)
    mean_weight_z: tuple[float, float] = (3.0, 5.0)
    mean_weight_gap: float = 0.2
    unsupported_mass: tuple[float, float] = (0.01, 0.1)
    disagreement: tuple[float, float] = (3.5, 6.0)
    disagreement_gap: tuple[float, float] = (0.5, 1.0)
    trained_here: tuple[float, float] = (4.0, math.inf)
    bias: tuple[float, float] = (3.0, math.inf)
    dropped: tuple[float, float] = (0.01, math.inf)
    misplaced: tuple[float, float] = (0.005, 0.05)
    least_count: float = 50.0
    surprise: tuple[float, float] = (0.005, 0.05)
    decile_gap: tuple[float, float] = (0.0, 0.1)
    drift: tuple[float, float] = (0.5, math.inf)
    action_drift: tuple[float, float] = (0.05, math.inf)
    sums: tuple[float, float] = (4.0, 4.0)
    rounding: tuple[float, float] = (0.02, 0.2)
    duplicates: tuple[float, float] = (0.001, 0.05)
    duplicates_z: float = 5.0
    duplicates_alike: float = 0.9
    few_rows: float = 10.0
    thin_support: tuple[float, float] = (0.1, math.inf)
    certain: tuple[float, float] = (0.5, 0.5)
    related_rows: float = 500.0
    related_count: float = 2.0
    related_spread: float = 0.05
    drift_rows: float = 100.0
    constant_weight: float = 0.001
    coverage: tuple[float, float] = (3.0, 9.0)
    p_value: float = 0.001
    drift_p_value: float = 0.01
    column_p_value: float = 0.01
    effect_p_value: float = 0.05
    effect_half_width: float = 0.14
    vouched_z: float = 6.0
    segments_p_value: float = 0.01

    def __post_init__(self) -> None:
        for field in fields(self):
            check = _check_pair if isinstance(field.default, tuple) else _check_number
            check(field.name, getattr(self, field.name))

    def status(self, name: str, value: float) -> str:
        """How a value stands to the two thresholds of a name; of effective_rows less is worse."""
        caution, refuse = getattr(self, name)
        if name in LESS_IS_WORSE:
            return "fail" if value < refuse else "warn" if value < caution else "pass"
        return "fail" if value > refuse else "warn" if value > caution else "pass"

    def cautions(self, name: str, value: float) -> bool:
        """Whether a value is beyond the first of the two thresholds of a name."""
        return self.status(name, value) != "pass"

    def changed(self) -> dict[str, Limit]:
        """Those that are not the default, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    def to_dict(self) -> dict[str, Any]:
        """Those that are not the default, in plain types, ready for JSON; infinity is null."""
        return {name: [*map(_plain, v)] if isinstance(v, tuple) else _plain(v) for name, v in self.changed().items()}


DEFAULT = Thresholds()


def thresholds_from(given: Mapping[str, object]) -> Thresholds:
    """The table with these thresholds in place of the defaults; a name that it does not have is an error."""
    names = [field.name for field in fields(Thresholds)]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise InputError(f"there is no threshold {unknown[0]!r}; there are: {', '.join(names)}.")
    limits: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return Thresholds(**limits)
