"""The paper's empirical sentences as data, each with the statistic that tests it, and a verdict that is computed.

A claim is a set of checks. A check is a number that must be positive, with a 95% interval from the bootstrap over runs
(paired: estimators see the same logs, and cells share their seeds) or a binomial one. It is supported if the interval
lies above 0, refuted if below, else open. A claim holds if all its checks are supported and does not hold if any is
refuted; a claim that something is "generally" so goes by the majority.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from importlib import resources
from itertools import pairwise, product
from typing import Any, final

import numpy as np

from cael.common.types import Floats
from cael.errors import InputError
from cael.experiments.summary import Table

LEAST_RUNS = 10
"""With fewer runs a bootstrap says nothing, and neither does a verdict."""
HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot tell"


@final
@dataclass(frozen=True)
class Claim:
    """A sentence of the paper. spec: the experiment that tests it. test: its name; settings: of the test."""

    id: str
    spec: str
    where: str
    sentence: str
    test: str
    settings: dict[str, Any]
    generally: bool = False
    note: str = ""


@final
@dataclass(frozen=True)
class Check:
    """One comparison: text with the numbers, and +1, -1 or 0 for supported, refuted or open; margin: for choosing what
    to show first, the smaller the worse for the claim.
    """

    text: str
    verdict: int
    margin: float


@final
@dataclass(frozen=True)
class Verdict:
    """What came of a claim. numbers: the check that is worst for it. supported, refuted, open: counts of checks."""

    claim: Claim
    verdict: str
    numbers: str
    supported: int
    refuted: int
    open: int

    def to_dict(self) -> dict[str, Any]:
        claim = {name: getattr(self.claim, name) for name in ("id", "spec", "where", "sentence", "note")}
        return claim | {name: value for name, value in vars(self).items() if name != "claim"}


def load_claims() -> list[Claim]:
    """All claims, in the order of the paper."""
    text = resources.files("cael.experiments").joinpath("claims.toml").read_text("utf-8")
    common = {field.name for field in fields(Claim)}
    return [
        Claim(
            **{name: value for name, value in entry.items() if name in common},
            settings={name: value for name, value in entry.items() if name not in common},
        )
        for entry in tomllib.loads(text)["claim"]
    ]


def judge(claim: Claim, table: Table) -> Verdict:
    """The verdict on a claim from the rows of its experiment."""
    if claim.test not in TESTS:
        raise InputError(f"claim {claim.id}: unknown test {claim.test!r}; there are: {', '.join(TESTS)}.")
    worst_first = {-1: 0, 0: 1, 1: 2}
    checks = sorted(
        TESTS[claim.test](table, **claim.settings), key=lambda check: (worst_first[check.verdict], check.margin)
    )
    if not checks:
        return Verdict(claim, OPEN, "this run does not visit the problems that the claim is about", 0, 0, 0)
    held, failed, undecided = (sum(check.verdict == sign for check in checks) for sign in (1, -1, 0))
    numbers = checks[0].text
    if table.spec.runs < LEAST_RUNS:
        verdict, numbers = OPEN, f"{table.spec.runs} runs are too few to tell; {numbers}"
    elif claim.generally:
        verdict = HOLDS if held > len(checks) / 2 else FAILS if failed > len(checks) / 2 else OPEN
    else:
        verdict = FAILS if failed else HOLDS if held == len(checks) else OPEN
    return Verdict(claim, verdict, numbers, held, failed, undecided)


def _cells(table: Table, at: Any) -> list[float | str]:
    """The cells that a claim speaks of: "all", "first", "last" on the axis, or a list of values."""
    known = {"all": table.places, "first": table.places[:1], "last": table.places[-1:]}
    return known[at] if isinstance(at, str) else [place for place in table.places if place in at]


def _place(table: Table, at: float | str) -> str:
    return f" at {table.spec.axis} = {at}" if table.spec.axis else ""


def _ratio(text: str, above: Floats, below: Floats, low: float, high: float, point: float) -> Check:
    """Check low < above / below < high on bootstrap samples of the two; point: the ratio itself."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(above) - np.log(below)
    logs = np.clip(logs[~np.isnan(logs)], -700.0, 700.0)
    if not len(logs):
        return Check(f"{text}: no run succeeded", 0, -math.inf)
    left, right = (float(end) for end in np.quantile(logs, [0.025, 0.975]))
    least, most = math.log(low) if low else -math.inf, math.log(high)
    verdict = 1 if least < left and right < most else -1 if right < least or left > most else 0
    logged = math.log(point) if point > 0 else -math.inf
    margins = [logged - least] if low else []
    margins += [most - logged] if math.isfinite(high) else []
    return Check(f"{text}: ratio {point:.3g} [{math.exp(left):.3g}, {math.exp(right):.3g}]", verdict, min(margins))


def _compare(
    table: Table, statistic: str, top: tuple[Any, str], bottom: tuple[Any, str], low: float, high: float
) -> Check:
    """Whether statistic(top) / statistic(bottom) lies between low and high; top, bottom: (cell, estimator)."""
    a, b = table.point(*top, statistic), table.point(*bottom, statistic)
    if top[1] == bottom[1]:
        text = f"{statistic} of {top[1]} {a:.3g}{_place(table, top[0])} to {b:.3g}{_place(table, bottom[0])}"
    else:
        text = f"{statistic} of {top[1]} {a:.3g} to {bottom[1]} {b:.3g}{_place(table, top[0])}"
    above, below = table.bootstrap(*top, statistic), table.bootstrap(*bottom, statistic)
    return _ratio(text, above, below, low, high, a / b if b else math.inf)


def smaller_than(
    table: Table, statistic: str, smaller: list[str], larger: list[str], at: Any = "all"
) -> Iterator[Check]:
    """Each of `smaller` has a smaller statistic than each of `larger`."""
    for cell, small, large in product(_cells(table, at), smaller, larger):
        if small != large:
            yield _compare(table, statistic, (cell, large), (cell, small), 1.0, math.inf)


def chain(table: Table, statistic: str, order: list[str], at: Any = "all") -> Iterator[Check]:
    """The statistic grows along a list of estimators."""
    for cell, (small, large) in product(_cells(table, at), pairwise(order)):
        yield _compare(table, statistic, (cell, large), (cell, small), 1.0, math.inf)


def trend(
    table: Table, statistic: str, estimators: list[str], factor: float = 1.0, start: Any = None, end: Any = None
) -> Iterator[Check]:
    """From the first cell to the last (or from `start` to `end`), the statistic grows by more than `factor`; with a
    factor below 1, it falls below that share.
    """
    first, last = table.places[0] if start is None else start, table.places[-1] if end is None else end
    if not {first, last} <= set(table.places) or first == last:
        return
    low, high = (factor, math.inf) if factor >= 1 else (0.0, factor)
    for name in estimators:
        yield _compare(table, statistic, (last, name), (first, name), low, high)


def falls(table: Table, statistic: str, estimators: list[str]) -> Iterator[Check]:
    """The statistic is smaller in the last cell than in the first."""
    yield from trend(table, statistic, estimators, factor=1.0 - 1e-12)


def rate(table: Table, statistic: str, estimators: list[str], expected: float, within: float = 2.0) -> Iterator[Check]:
    """From the first cell to the last, the statistic grows by `expected`, give or take the factor `within`."""
    for name in estimators:
        top, bottom = (table.places[-1], name), (table.places[0], name)
        yield _compare(table, statistic, top, bottom, expected / within, expected * within)


def similar(table: Table, statistic: str, pair: list[str], at: Any = "last", within: float = 2.0) -> Iterator[Check]:
    """The two differ by less than the factor `within`."""
    for cell in _cells(table, at):
        yield _compare(table, statistic, (cell, pair[0]), (cell, pair[1]), 1 / within, within)


def small_price(table: Table, of: str, against: str, at: Any = "all") -> Iterator[Check]:
    """The variance grows, by less than the squared bias falls."""
    for cell in _cells(table, at):
        yield _compare(table, "variance", (cell, of), (cell, against), 1.0, math.inf)
        yield _compare(table, "mse", (cell, against), (cell, of), 1.0, math.inf)


def dominated(table: Table, estimator: str, by: str, at: Any = "all") -> Iterator[Check]:
    """The MSE is mostly squared bias, or mostly variance."""
    for cell in _cells(table, at):
        bias, variance = (table.bootstrap(cell, estimator, statistic) for statistic in ("bias", "variance"))
        b, v = (table.point(cell, estimator, statistic) for statistic in ("bias", "variance"))
        text = f"{estimator}{_place(table, cell)}: squared bias {b * b:.3g}, variance {v:.3g}"
        above, below, ratio = (bias**2, variance, b * b / v) if by == "bias" else (variance, bias**2, v / (b * b))
        yield _ratio(text, above, below, 1.0, math.inf, ratio)


def relative_errors(table: Table, at: float | str, name: str) -> Floats:
    """(runs,) squared errors divided by that of IPS on the same log."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return table.errors(at, name) ** 2 / table.errors(at, "IPS") ** 2


def wilson(count: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The 95% interval of a share.

    >>> [round(x, 3) for x in wilson(12, 30)]
    [0.246, 0.577]
    """
    p = count / n
    centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)


def share(
    table: Table, estimator: str, below: float, relation: str, share: float = 0.0, beside: str = "LoggedMean"
) -> Iterator[Check]:
    """The share of runs whose error relative to IPS is below a threshold is "above", "about", or "never" (0)."""
    at = table.places[0]
    errors = relative_errors(table, at, estimator)
    n, count = len(errors), int((errors < below).sum())
    low, high = wilson(count, n)
    other = (relative_errors(table, at, beside) < below).mean()
    text = f"{count} of {n} runs below {below:g} ({count / n:.0%} [{low:.0%}, {high:.0%}]); {beside}: {other:.0%}"
    if relation == "never":
        yield Check(text, 1 if count == 0 else -1, -count)
    elif relation == "about":
        yield Check(text, 1 if low <= share <= high else -1, -abs(count / n - share))
    else:
        yield _more_than(share, text, count, n)


def _more_than(share: float, text: str, count: int, n: int) -> Check:
    low, high = wilson(count, n)
    return Check(text, 1 if low > share else -1 if high < share else 0, count / n - share)


def most_runs(table: Table, estimator: str, others: list[str], share: float = 0.5) -> Iterator[Check]:
    """In more than this share of the runs, the estimator errs less than each of the others."""
    at = table.places[0]
    distances = np.abs(table.errors(at, estimator))
    for other in others:
        n, count = len(distances), int((distances < np.abs(table.errors(at, other))).sum())
        low, high = wilson(count, n)
        text = f"nearer than {other} in {count} of {n} runs ({count / n:.0%} [{low:.0%}, {high:.0%}])"
        yield _more_than(share, text, count, n)


TESTS: dict[str, Callable[..., Iterator[Check]]] = {
    "order": smaller_than, "chain": chain, "trend": trend, "falls": falls, "rate": rate, "similar": similar,
    "small_price": small_price, "dominated": dominated, "share": share, "most_runs": most_runs,
}  # fmt: skip
