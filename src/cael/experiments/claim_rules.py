"""The rules by which sentences of the paper are judged: each gives checks, numbers of a table that must be on one side.

A check has a doubt: the share of bootstrap samples over runs in which what is claimed is not so. Samples are paired:
estimators see the same logs, and cells share their seeds. Of shares of runs the doubt comes from binomial intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, final

import numpy as np

from cael.common.types import Floats
from cael.experiments.claim_words import written
from cael.experiments.summary import Table, draws, statistic_of

TAIL = 0.025
"""A check is supported with at most this doubt, and refuted with at most this chance of being true."""
UNBIASED = "IPS"
"""Its bias is 0 in theory where the logging policy plays every action, whatever its mean error over the runs."""
STATED_RUNS = 30
"""Runs that the shares in the paper's text come from; they are as uncertain as that."""
Cells = Any
Pair = tuple[float | str, str]


@final
@dataclass(frozen=True)
class Check:
    """One comparison: text with the numbers; doubt (above); margin: what to show first, the smaller the worse."""

    text: str
    doubt: float
    margin: float

    def verdict(self, beside: int = 1) -> int:
        """1, -1 or 0: supported, refuted, or open. beside: checks of the claim, which share the chance of an error."""
        return 1 if self.doubt <= TAIL else -1 if 1 - self.doubt <= TAIL / beside else 0


def cells_of(table: Table, at: Cells) -> list[float | str]:
    """The cells that a claim is about: "all", "first", "last" on the axis, a list of values, or one by experiment."""
    at = at.get(table.spec.name, []) if isinstance(at, dict) else at
    known = {"all": table.places, "first": table.places[:1], "last": table.places[-1:]}
    return known[at] if isinstance(at, str) else [place for place in table.places if place in at]


def place_in(table: Table, at: float | str) -> str:
    return f" at {table.spec.axis} = {at}" if table.spec.axis else ""


def common(table: Table, *pairs: Pair) -> int:
    """Runs that these estimators in these cells share."""
    return min(len(table.values[at][name]) for at, name in pairs)


def samples(table: Table, pair: Pair, statistic: str, runs: int) -> Floats:
    """(RESAMPLES,) a statistic on bootstrap samples of the first runs."""
    return statistic_of(table.numbers(*pair, statistic)[:runs][draws(runs)], statistic)


def ratio_check(text: str, above: Floats, below: Floats, bounds: tuple[float, float], point: float) -> Check:
    """Whether low < above / below < high on samples of the two; point: the ratio itself."""
    low, high = bounds
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = above / below
    ratios = ratios[~np.isnan(ratios)]
    if not len(ratios):
        return Check(f"{text}: no run succeeded", 0.5, -math.inf)
    left, right = (float(end) for end in np.quantile(ratios, [TAIL, 1 - TAIL], method="nearest"))
    doubt = max(float((ratios <= low).mean()), float((ratios >= high).mean()))
    logged = math.log(point) if point > 0 else -math.inf
    margins = [logged - math.log(low)] if low else []
    margins += [math.log(high) - logged] if math.isfinite(high) else []
    return Check(f"{text}: ratio {point:.3g} [{left:.3g}, {right:.3g}]", doubt, min(margins))


def compare(table: Table, statistic: str, top: Pair, bottom: Pair, bounds: tuple[float, float]) -> Check:
    """Whether statistic(top) / statistic(bottom) lies between two bounds."""
    if statistic == "bias" and UNBIASED in (top[1], bottom[1]):
        return against_unbiased(table, top, bottom)
    runs = common(table, top, bottom)
    a, b = (float(statistic_of(table.numbers(*pair, statistic)[:runs], statistic)) for pair in (top, bottom))
    if top[1] == bottom[1]:
        text = (
            f"{written(statistic)} of {top[1]} {a:.3g}{place_in(table, top[0])} to {b:.3g}{place_in(table, bottom[0])}"
        )
    else:
        text = f"{written(statistic)} of {top[1]} {a:.3g} to {bottom[1]} {b:.3g}{place_in(table, top[0])}"
    above, below = (samples(table, pair, statistic, runs) for pair in (top, bottom))
    return ratio_check(text, above, below, bounds, a / b if b else math.inf)


def against_unbiased(table: Table, top: Pair, bottom: Pair) -> Check:
    """|bias| of top above that of bottom, one of them without bias: a question of whether the other's is not 0."""
    biased = bottom if top[1] == UNBIASED else top
    errors = table.errors(*biased)
    signed = statistic_of(errors[draws(len(errors))], "signed")
    low, high = np.quantile(signed, [TAIL, 1 - TAIL])
    zero = min(float((signed <= 0).mean()), float((signed >= 0).mean()))
    text = f"bias of {biased[1]} {np.nanmean(errors):.3g} [{low:.3g}, {high:.3g}]{place_in(table, biased[0])}"
    size = abs(float(np.nanmean(errors)))
    if biased == top:
        return Check(f"{text}, of IPS 0 by theory", zero, size)
    return Check(f"{text}, of IPS 0 by theory", 1 - zero if zero <= TAIL else 0.5, -size)


def smaller_than(
    table: Table, statistic: str, smaller: list[str], larger: list[str], at: Cells = "all"
) -> Iterator[Check]:
    """Each of `smaller` has a smaller statistic than each of `larger`."""
    for cell, small, large in product(cells_of(table, at), smaller, larger):
        if small != large:
            yield compare(table, statistic, (cell, large), (cell, small), (1.0, math.inf))


def chain(table: Table, statistic: str, order: list[str], at: Cells = "all") -> Iterator[Check]:
    """The statistic grows along a list of estimators."""
    for cell, (small, large) in product(cells_of(table, at), pairwise(order)):
        yield compare(table, statistic, (cell, large), (cell, small), (1.0, math.inf))


def trend(
    table: Table, statistic: str, estimators: list[str], factor: float = 1.0, start: Any = None, end: Any = None
) -> Iterator[Check]:
    """From the first cell to the last (or from `start` to `end`), the statistic grows by more than `factor`; with a
    factor below 1, it falls below that share.
    """
    first, last = table.places[0] if start is None else start, table.places[-1] if end is None else end
    if not {first, last} <= set(table.places) or first == last:
        return
    for name in estimators:
        yield compare(table, statistic, (last, name), (first, name), (factor, math.inf) if factor >= 1 else (0, factor))


def falls(table: Table, statistic: str, estimators: list[str]) -> Iterator[Check]:
    """The statistic is smaller in the last cell than in the first."""
    yield from trend(table, statistic, estimators, factor=1.0 - 1e-12)


def steps(table: Table, statistic: str, estimators: list[str], up: bool, at: Cells = "all") -> Iterator[Check]:
    """The statistic grows (or falls) from the first cell to the last, and no step between two goes the other way.

    The ends alone would miss a bias that changes its sign in between. Of the steps, those are checks that are refuted.
    """
    cells = cells_of(table, at)
    for name in estimators:
        pairs = [(one, two) if up else (two, one) for one, two in [(cells[0], cells[-1]), *pairwise(cells)]]
        ends, *between = (compare(table, statistic, (b, name), (a, name), (1.0, math.inf)) for a, b in pairs)
        yield ends
        yield from (check for check in between if check.verdict(len(between)) < 0)


def rate(table: Table, statistic: str, estimators: list[str], expected: float, within: float = 2.0) -> Iterator[Check]:
    """From the first cell to the last, the statistic grows by `expected`, give or take the factor `within`."""
    for name in estimators:
        top, bottom = (table.places[-1], name), (table.places[0], name)
        yield compare(table, statistic, top, bottom, (expected / within, expected * within))


def similar(table: Table, statistic: str, pair: list[str], at: Cells = "last", within: float = 2.0) -> Iterator[Check]:
    """The two differ by less than the factor `within`."""
    for cell in cells_of(table, at):
        yield compare(table, statistic, (cell, pair[0]), (cell, pair[1]), (1 / within, within))


def fades(table: Table, statistic: str, of: str, against: str) -> Iterator[Check]:
    """`of` has the smaller statistic in the first cell, and the ratio of the two is larger there than in the last."""
    first, last = table.places[0], table.places[-1]
    yield compare(table, statistic, (first, against), (first, of), (1.0, math.inf))
    four: list[Pair] = [(first, against), (first, of), (last, against), (last, of)]
    runs = common(table, *four)
    a, b, c, d = (samples(table, pair, statistic, runs) for pair in four)
    p, q, r, s = (float(statistic_of(table.numbers(*pair, statistic)[:runs], statistic)) for pair in four)
    name = table.spec.axis
    text = f"{written(statistic)} of {against} to {of}: {p / q:.3g} at {name} = {first}, {r / s:.3g} at {last}"
    yield ratio_check(text, a / b, c / d, (1.0, math.inf), p / q / (r / s))


def small_price(table: Table, of: str, against: str, at: Cells = "all") -> Iterator[Check]:
    """The variance grows, by less than the squared bias falls."""
    for cell in cells_of(table, at):
        yield compare(table, "variance", (cell, of), (cell, against), (1.0, math.inf))
        yield compare(table, "mse", (cell, against), (cell, of), (1.0, math.inf))


def dominated(table: Table, estimator: str, by: str, at: Cells = "all") -> Iterator[Check]:
    """The MSE is mostly squared bias, or mostly variance."""
    for cell in cells_of(table, at):
        runs = len(table.values[cell][estimator])
        bias, variance = (samples(table, (cell, estimator), each, runs) for each in ("bias", "variance"))
        b, v = (table.point(cell, estimator, statistic) for statistic in ("bias", "variance"))
        text = f"{estimator}{place_in(table, cell)}: squared bias {b * b:.3g}, variance {v:.3g}"
        above, below, ratio = (bias**2, variance, b * b / v) if by == "bias" else (variance, bias**2, v / (b * b))
        yield ratio_check(text, above, below, (1.0, math.inf), ratio)


def relative_errors(table: Table, at: float | str, name: str) -> Floats:
    """(runs,) squared errors divided by that of IPS on the same log."""
    runs = common(table, (at, name), (at, "IPS"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((table.errors(at, name)[:runs] ** 2) / (table.errors(at, "IPS")[:runs] ** 2))


def wilson(count: float, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The 95% interval of a share.

    >>> [round(x, 3) for x in wilson(12, 30)]
    [0.246, 0.577]
    """
    p = count / n
    centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)


def about(table: Table, estimator: str, below: float, share: float, beside: str = "LoggedMean") -> Iterator[Check]:
    """The share of runs whose error relative to IPS is below a threshold is what the paper states, from its 30 runs.

    The stated share is itself uncertain. Supported: our interval lies within that of the stated share. Refuted: apart.
    """
    errors = relative_errors(table, table.places[0], estimator)
    n, count = len(errors), int((errors < below).sum())
    (low, high), (least, most) = wilson(count, n), wilson(share * STATED_RUNS, STATED_RUNS)
    doubt = 1.0 if low > most or high < least else 0.0 if least <= low and high <= most else 0.5
    text = f"{counted(errors, below)}; stated {share:.0%} [{max(least, 0):.0%}, {most:.0%}]"
    yield Check(f"{text}{beside_text(table, beside, below)}", doubt, -abs(count / n - share))


def counted(errors: Floats, below: float) -> str:
    n, count = len(errors), int((errors < below).sum())
    low, high = wilson(count, n)
    return f"{count} of {n} runs below {below:g} ({count / n:.0%} [{max(low, 0):.0%}, {high:.0%}])"


def beside_text(table: Table, beside: str, below: float) -> str:
    at = table.places[0]
    return f"; {beside} {(relative_errors(table, at, beside) < below).mean():.0%}" if beside in table.values[at] else ""


def never(table: Table, estimator: str, below: float, unlike: str) -> Iterator[Check]:
    """The share below a threshold is that of an event that 30 runs do not show, and `unlike` is below it more often.

    The second check keeps the claim from being empty: where nobody gets there, "never" tells the two from nothing.
    """
    yield from about(table, estimator, below, 0.0)
    ours, other = (relative_errors(table, table.places[0], name) < below for name in (estimator, unlike))
    runs = min(len(ours), len(other))
    gap = (other[:runs].astype(float) - ours[:runs])[draws(runs)].mean(axis=1)
    text = (
        f"below {below:g}: {unlike} in {other[:runs].mean():.0%} of the runs, {estimator} in {ours[:runs].mean():.0%}"
    )
    yield Check(text, float((gap <= 0).mean()), float(gap.mean()))


def above(table: Table, estimator: str, below: float, share: float, beside: str = "LoggedMean") -> Iterator[Check]:
    """The share of runs whose error relative to IPS is below a threshold is larger than stated."""
    errors = relative_errors(table, table.places[0], estimator)
    text = f"{counted(errors, below)}{beside_text(table, beside, below)}"
    yield more_than(share, text, int((errors < below).sum()), len(errors))


def more_than(share: float, text: str, count: int, n: int) -> Check:
    low, high = wilson(count, n)
    return Check(text, 0.0 if low > share else 1.0 if high < share else 0.5, count / n - share)


def most_runs(table: Table, estimator: str, others: list[str], share: float = 0.5) -> Iterator[Check]:
    """In more than this share of the runs, the estimator errs less than each of the others."""
    at = table.places[0]
    for other in others:
        n = common(table, (at, estimator), (at, other))
        count = int((np.abs(table.errors(at, estimator)[:n]) < np.abs(table.errors(at, other)[:n])).sum())
        low, high = wilson(count, n)
        text = f"{estimator} nearer than {other} in {count} of {n} runs ({count / n:.0%} [{low:.0%}, {high:.0%}])"
        yield more_than(share, text, count, n)


RULES: dict[str, Callable[..., Iterator[Check]]] = {
    "order": smaller_than, "chain": chain, "trend": trend, "falls": falls, "steps": steps, "rate": rate,
    "similar": similar, "fades": fades, "small_price": small_price, "dominated": dominated, "about": about,
    "above": above, "never": never, "most_runs": most_runs,
}  # fmt: skip
