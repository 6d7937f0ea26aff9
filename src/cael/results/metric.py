"""Metric: what is evaluated, which way is better, and by how much it may get worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from cael.errors import InputError, choose
from cael.log.measure import Measure

FORM = "COLUMN[/COLUMN][:max|min][:cap=NUMBER][:MARGIN or limit=NUMBER]"
DIRECTIONS = ("max", "min")


@final
@dataclass(frozen=True)
class Metric:
    """A metric of a policy: the mean of a column of the log, or the ratio of two means.

    column: of the log, its reward or one that was read as a metric. per: of a ratio metric, such as revenue per click,
    the column of the denominator. direction: "max" where more is better, "min" where less is. cap: values of the column
    above it count as the cap (winsorised); it also holds where the column is part of a ratio.

    A guardrail has a margin or a limit. margin: by how much it may get worse than under the baseline, a share of the
    baseline's value ("2%") or a number in units of the metric. limit: the worst value that is allowed at all.

    >>> Metric.of("latency:min:+2%")
    Metric('latency', direction='min', margin='+2%')
    >>> Metric.of("spend/clicks:cap=500").name
    'spend/clicks'
    """

    column: str
    direction: str = "max"
    per: str | None = None
    cap: float | None = None
    margin: float | str | None = None
    limit: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise InputError(f"a metric is named by a column of the log; got {self.column!r}.")
        choose("direction", self.direction, DIRECTIONS)
        for name in ("cap", "limit"):
            value = getattr(self, name)
            if value is not None and not _finite(value):
                raise InputError(f"{name} of metric {self.name!r} must be a finite number; got {value!r}.")
        if self.margin is not None and self.limit is not None:
            raise InputError(f"metric {self.name!r} has a margin and a limit: give one of them.")
        if self.per == self.column:
            raise InputError(f"metric {self.name!r} is a ratio of a column to itself, which is always 1.")
        _ = self.tolerance

    @property
    def name(self) -> str:
        """As tables show it."""
        return self.column if self.per is None else f"{self.column}/{self.per}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log that it needs."""
        return (self.column,) if self.per is None else (self.column, self.per)

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return 1 if self.direction == "max" else -1

    @property
    def guardrail(self) -> bool:
        """Whether it is a guardrail, and no goal."""
        return self.margin is not None or self.limit is not None

    @property
    def tolerance(self) -> tuple[float, bool]:
        """By how much it may get worse, at least 0, and whether that is a share of the baseline's value."""
        if self.margin is None:
            return 0.0, False
        text = str(self.margin).strip()
        number = _number(text.removesuffix("%"))
        worse = "-" if self.direction == "max" else "+"
        if number is None or not math.isfinite(number):
            raise InputError(
                f"the margin of metric {self.name!r} must be a share of the baseline's value, such as 2%, or a number "
                f"in units of the metric; got {self.margin!r}."
            )
        if (number < 0 or text.startswith("+")) and number != 0 and text[0] != worse:
            better = "more" if self.direction == "max" else "less"
            raise InputError(
                f"the margin of metric {self.name!r} says by how much it may get worse, and {better} of it is better: "
                f"expected {worse}{text.lstrip('+-')}, got {self.margin!r}. Or change its direction (max, min)."
            )
        return (abs(number) / 100, True) if text.endswith("%") else (abs(number), False)

    @property
    def bound(self) -> str:
        """What a guardrail allows, in words."""
        if self.limit is not None:
            return f"{'at most' if self.direction == 'min' else 'at least'} {self.limit:g}"
        size, relative = self.tolerance
        mark = "+" if self.direction == "min" else "-"
        return f"{mark}{100 * size:g}%" if relative else f"{mark}{size:g}" if size else "no worse"

    @property
    def label(self) -> str:
        """Its name with the direction, where that is not the usual one, and the bound of a guardrail."""
        if self.guardrail:
            return f"{self.name} ({self.bound})"
        return self.name if self.direction == "max" else f"{self.name} (min)"

    @classmethod
    def of(cls, given: Any, *, guardrail: bool = False) -> Metric:
        """A metric as it is, or from a text such as "latency:min:+2%"; guardrail: one without a margin has none."""
        metric = given if isinstance(given, Metric) else _parsed(given)
        if guardrail and not metric.guardrail:
            return replace(metric, margin=0.0)
        return metric

    def __repr__(self) -> str:
        names = ("direction", "per", "cap", "margin", "limit")
        usual = {name: getattr(type(self), name) for name in names}
        said = [f", {name}={getattr(self, name)!r}" for name in names if getattr(self, name) != usual[name]]
        return f"Metric({self.column!r}{''.join(said)})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "name": self.name, "column": self.column, "per": self.per, "direction": self.direction, "cap": self.cap,
            "guardrail": self.guardrail, "bound": self.bound if self.guardrail else None,
        }  # fmt: skip


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parsed(text: Any) -> Metric:
    """'spend/clicks:min:cap=500:+2%' as a metric."""
    if not isinstance(text, str):
        raise InputError(f"metrics are texts such as 'latency:min', or cael.Metric; got {text!r}.")
    name, *parts = (part.strip() for part in text.split(":"))
    column, _, per = name.partition("/")
    options: dict[str, Any] = {"per": per or None} if "/" in name else {}
    for part in parts:
        key, value = _option(part, text)
        if key in options:
            raise InputError(f"metric {text!r} says its {key} twice. Expected {FORM}.")
        options[key] = value
    if not column or per.count("/") or ("/" in name and not per):
        raise InputError(f"metric {text!r}: expected {FORM}, such as spend/clicks or latency:min:+2%.")
    return Metric(column, **options)


def _option(part: str, text: str) -> tuple[str, Any]:
    if part in DIRECTIONS:
        return "direction", part
    key, equals, rest = part.partition("=")
    if equals and key in ("cap", "limit") and _number(rest) is not None:
        return key, _number(rest)
    if not equals and _number(part.removesuffix("%")) is not None:
        return "margin", part
    raise InputError(f"metric {text!r}: {part!r} is not understood. Expected {FORM}, such as latency:min:+2%.")


def metrics_of(given: Any) -> tuple[Metric, ...]:
    """Metrics from texts and metrics; the first goal is the primary one and comes first, names are not repeated."""
    if isinstance(given, str | Metric) or not isinstance(given, Sequence):
        raise InputError(f"metrics must be a list, such as ['clicked', 'latency:min:+2%']; got {given!r}.")
    metrics = [Metric.of(text) for text in given]
    names = [metric.name for metric in metrics]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise InputError(f"metric {name!r} is named twice. Name every metric once.")
    goals = [metric for metric in metrics if not metric.guardrail]
    if not goals:
        raise InputError("there is no metric to decide by, only guardrails: name the primary metric first (--metric).")
    return (*goals, *(metric for metric in metrics if metric.guardrail))


def measures_of(metrics: Sequence[Metric]) -> tuple[Measure, ...]:
    """The columns that the metrics need, each once with its cap."""
    caps: dict[str, float | None] = {}
    for metric in metrics:
        if metric.cap is not None and caps.get(metric.column, metric.cap) != metric.cap:
            raise InputError(f"column {metric.column!r} has two caps, {caps[metric.column]:g} and {metric.cap:g}.")
        caps |= {metric.column: metric.cap} if metric.cap is not None else {}
    columns = dict.fromkeys(column for metric in metrics for column in metric.columns)
    return tuple(Measure(column, caps.get(column)) for column in columns)
