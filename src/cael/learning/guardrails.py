"""Guardrails: other metrics that must stay within their bounds, in the choice and in the certificate.

A policy is shipped only if each of them is shown to be within its bound at the one-sided level of the certificate. As
all of them must be, none is corrected for the others: shipping one that breaks a bound is as rare as the level says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from cael.common.types import Floats
from cael.errors import InputError
from cael.log.logged import LoggedData
from cael.log.measure import Measure, known_measures
from cael.results.metric import Metric, measures_of

SHARES = (1.0, 0.5, 0.25, 0.1)
"""Shares of a rule beside the old policy that are tried where there are guardrails: less of it moves them less."""


@final
@dataclass(frozen=True, eq=False)
class Guard:
    """A guardrail on the rows that are learned from. left: (n,) the metric less its mean, times 1 where more is better
    and -1 where less is. room: how far it may fall."""

    left: Floats
    room: float


def guardrails_of(given: Sequence[str | Metric]) -> tuple[Metric, ...]:
    """Guardrails from texts such as "latency:min:+2%", or metrics; one without a bound must not get worse."""
    if isinstance(given, str | Metric):
        raise InputError(f"guardrails must be a list, such as ['latency:min:+2%']; got {given!r}.")
    metrics = tuple(Metric.of(each, guardrail=True) for each in given)
    names = [metric.name for metric in metrics]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"guardrail {name!r} is named twice. Name every metric once.")
    return metrics


def measured_by(log: Any, metrics: Sequence[Metric]) -> Any:
    """The engine's log with the columns of the guardrails beside its reward."""
    return log.measuring((Measure(log.reward_name), *others(metrics, log.reward_name))) if metrics else log


def others(metrics: Sequence[Metric], reward: str) -> list[Measure]:
    """The columns that guardrails need, beside the reward."""
    return [measure for measure in measures_of(metrics) if measure != Measure(reward)]


def guards_of(metrics: Sequence[Metric], log: LoggedData, reward: str) -> tuple[Guard, ...]:
    """The guardrails on these rows. reward: the name of what is learned from."""
    columns = {reward: log.rewards, **dict(log.metrics)}
    known = known_measures(measures_of(metrics), reward, [name for name, _ in log.metrics])
    values = {measure.column: measure.of(columns[measure.column]) for measure in known}
    return tuple(_guard(metric, values) for metric in metrics)


def _guard(metric: Metric, columns: dict[str, Floats]) -> Guard:
    top = columns[metric.column]
    mean, left = float(top.mean()), top - top.mean()
    if metric.per is not None:  # linear around the ratio of the means
        bottom = columns[metric.per]
        mean = float(top.mean() / bottom.mean()) if bottom.mean() else 0.0
        left = (top - mean * bottom) / (bottom.mean() or 1.0)
    size, relative = metric.tolerance
    room = size * abs(mean) if relative else size
    if metric.limit is not None:
        room = metric.sign * (mean - metric.limit)
    return Guard(metric.sign * left, room)
