"""Partial: everything that is kept of some rows. Batches, files, threads, processes and machines merge it alike."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from cael.common.types import Floats
from cael.engine.ids import Ids
from cael.engine.moments import Clusters, Moments
from cael.engine.tally import Changed, Tally
from cael.log.flaws import Flaws

MOST_STRETCHES, LEAST_STRETCHES = 4096, 640
STRETCH_BYTES = 48 * 2**20
"""What the stretches of a log may take together, while there are more than the least number of them."""
MERGED = ("moments", "actions", "tallies", "changed", "segments", "flaws", "ids", "ranges")
"""What of two partials is merged by its own rule."""


@final
@dataclass(frozen=True, eq=False)
class Stretch:
    """Rows that follow each other. number: of the stretch. place: of the first row. moments: without buckets. low,
    high: the first and the last of their timestamps, None without."""

    number: int
    place: tuple[int, int]
    moments: Moments
    low: Any = None
    high: Any = None

    def merge(self, later: Stretch) -> Stretch:
        low = min((time for time in (self.low, later.low) if time is not None), default=None)
        high = max((time for time in (self.high, later.high) if time is not None), default=None)
        return Stretch(self.number, self.place, self.moments.merge(later.moments), low, high)


@final
@dataclass(frozen=True, eq=False)
class ActionSums:
    """By action, (k,): rows; counted: sums of their sampling weights s (the rows, without); sums of s/mu and of its
    square (of s where there are no propensities); eligible: rows on which it could be taken, by s; and, where the
    logging policy is known, expected: what `counted` should be, variance: of that, and seen: the same as the rows show
    it, where they have sampling weights.
    worst: the largest distance of a row's probabilities from a sum of one."""

    rows: Floats
    counted: Floats
    inverse: Floats
    squares: Floats
    eligible: Floats
    expected: Floats
    variance: Floats
    seen: Floats
    worst: float = 0.0

    def merge(self, other: ActionSums) -> ActionSums:
        return ActionSums(
            self.rows + other.rows, self.counted + other.counted, self.inverse + other.inverse,
            self.squares + other.squares, self.eligible + other.eligible, self.expected + other.expected,
            self.variance + other.variance, self.seen + other.seen, max(self.worst, other.worst),
        )  # fmt: skip


@final
@dataclass(frozen=True)
class Range:
    """Of a metric: its least and its greatest value, and how many rows lay above its cap."""

    low: float = math.inf
    high: float = -math.inf
    cut: int = 0

    def merge(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high), self.cut + other.cut)


@final
@dataclass(frozen=True, eq=False)
class Partial:
    """What is kept of some rows of a log, for some targets and estimators.

    read: rows that were read, by file. rows: of them without a flaw. moments: of the features. stretches: the rows in
    their order. actions: by action. masses: for each target (k,) the sum of its probabilities of each action, or of
    the weights where only logged actions are known. tallies: of the weights that are tallied. changed: of those that a
    rule made.
    clusters: sums by cluster, None without clusters or after there were too many of them (crowded). segments: for
    each segment column, moments by label. flaws: by (column, what). ranges: of the metrics. groups: what groups
    of columns sum in addition (none where no row was read). spans: where there are windows of time, by (file, row)
    of each task, its first and last timestamp, None where they are not in order. firsts: the least timestamp of each
    window. block: (p, rows) the columns themselves, of a log in memory. ids: of decisions, to see repeated ones.
    """

    read: dict[int, int]
    rows: int
    moments: Moments
    stretches: tuple[Stretch, ...]
    actions: ActionSums
    masses: tuple[Floats, ...]
    tallies: tuple[Tally, ...]
    changed: tuple[Changed, ...]
    clusters: Clusters | None
    crowded: bool
    segments: tuple[dict[str, Moments], ...]
    flaws: dict[tuple[str, str], Flaws]
    ranges: tuple[Range, ...]
    most_clusters: int
    groups: tuple[Any, ...] = ()
    spans: dict[tuple[int, int], tuple[Any, Any] | None] = field(default_factory=dict)
    firsts: dict[int, Any] = field(default_factory=dict)
    block: Floats | None = None
    ids: Ids | None = None

    def merge(self, other: Partial) -> Partial:
        """Of the rows of both; the order of merging changes no more than the last digits."""
        crowded = self.crowded or other.crowded
        clusters = None if crowded else merged(self.clusters, other.clusters)
        crowded = crowded or (clusters is not None and len(clusters.keys) > self.most_clusters)
        return replace(
            self,
            read=united(self.read, other.read, operator.add),
            rows=self.rows + other.rows,
            stretches=whole_stretches((*self.stretches, *other.stretches)),
            masses=tuple(map(operator.add, self.masses, other.masses)),
            clusters=None if crowded else clusters,
            crowded=crowded,
            groups=merged(self.groups, other.groups) if self.groups and other.groups else self.groups or other.groups,
            spans={**self.spans, **other.spans},
            firsts=united(self.firsts, other.firsts, min),
            **{name: merged(getattr(self, name), getattr(other, name)) for name in MERGED},
        )


def merged(a: Any, b: Any) -> Any:
    """Two that merge; of dictionaries what has the same key, of tuples what has the same place; None without both."""
    if a is None or b is None:
        return None
    if isinstance(a, dict):
        return united(a, b, merged)
    return tuple(map(merged, a, b)) if isinstance(a, tuple) else a.merge(b)


def united(a: dict[Any, Any], b: dict[Any, Any], join: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    """What both have; what has a key in both is joined."""
    return {**a, **b, **{key: join(a[key], b[key]) for key in a.keys() & b.keys()}}


def whole_stretches(stretches: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Sorted by their place; parts of one stretch are put together, and neighbours where there are too many."""
    whole: list[Stretch] = []
    for stretch in sorted(stretches, key=lambda stretch: stretch.place):
        if whole and whole[-1].number == stretch.number:
            whole[-1] = whole[-1].merge(stretch)
        else:
            whole.append(stretch)
    size = 8 * len(whole[0].moments.mean) ** 2 if whole else 1
    most = max(LEAST_STRETCHES, min(MOST_STRETCHES, STRETCH_BYTES // size))
    while len(whole) > most:
        pairs = [a.merge(b) for a, b in zip(whole[::2], whole[1::2], strict=False)]
        whole = [*pairs, whole[-1]] if len(whole) % 2 else pairs
    return tuple(whole)
