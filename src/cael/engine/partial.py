"""Partial: everything that is kept of some rows. Batches, files, threads, processes and machines merge it alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from cael.common.types import Floats
from cael.engine.ids import Ids
from cael.engine.moments import Clusters, Moments
from cael.engine.tally import Changed, Tally
from cael.log.pieces import Flaws

MOST_STRETCHES, LEAST_STRETCHES = 4096, 640
STRETCH_BYTES = 48 * 2**20
"""What the stretches of a log may take together, while there are more than the least number of them."""


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
        low = self.low if later.low is None else later.low if self.low is None else min(self.low, later.low)
        high = self.high if later.high is None else later.high if self.high is None else max(self.high, later.high)
        return Stretch(self.number, self.place, self.moments.merge(later.moments), low, high)


@final
@dataclass(frozen=True, eq=False)
class ActionSums:
    """By action, (k,): rows; sums of 1/mu and of its square (of ones where there are no propensities); and, where the
    logging policy is known, expected: the rows that it should have played, and variance: of their number.
    worst: the largest distance of a row's probabilities from a sum of one."""

    rows: Floats
    inverse: Floats
    squares: Floats
    expected: Floats
    variance: Floats
    worst: float = 0.0

    def merge(self, other: ActionSums) -> ActionSums:
        return ActionSums(
            self.rows + other.rows, self.inverse + other.inverse, self.squares + other.squares,
            self.expected + other.expected, self.variance + other.variance, max(self.worst, other.worst),
        )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Partial:
    """What is kept of some rows of a log, for some targets and estimators.

    read: rows that were read, by file. rows: of them without a flaw. moments: of the features. stretches: the rows in
    their order. actions: by action. masses: for each target (k,) the sum of its probabilities of each action, or of
    the weights where only logged actions are known. tallies: of the weights that are tallied. changed: of those that a
    rule made.
    clusters: sums by cluster, None without clusters or after there were too many of them (crowded). segments: for
    each segment column, moments by label. flaws: by (column, what). low, high: range of the rewards. groups: what
    groups of columns sum besides (none where no row was read). spans: where there are windows of time, by (file, row)
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
    low: float
    high: float
    most_clusters: int
    groups: tuple[Any, ...] = ()
    spans: dict[tuple[int, int], tuple[Any, Any] | None] = field(default_factory=dict)
    firsts: dict[int, Any] = field(default_factory=dict)
    block: Floats | None = None
    ids: Ids | None = None

    def merge(self, other: Partial) -> Partial:
        """Of the rows of both; the order of merging changes no more than the last digits."""
        crowded = self.crowded or other.crowded
        clusters = None
        if self.clusters is not None and other.clusters is not None and not crowded:
            clusters = self.clusters.merge(other.clusters)
            crowded = len(clusters.keys) > self.most_clusters
        return replace(
            self,
            read=_added(self.read, other.read),
            rows=self.rows + other.rows,
            moments=self.moments.merge(other.moments),
            stretches=_in_order((*self.stretches, *other.stretches)),
            actions=self.actions.merge(other.actions),
            masses=tuple(a + b for a, b in zip(self.masses, other.masses, strict=True)),
            tallies=tuple(a.merge(b) for a, b in zip(self.tallies, other.tallies, strict=True)),
            changed=tuple(a.merge(b) for a, b in zip(self.changed, other.changed, strict=True)),
            clusters=None if crowded else clusters,
            crowded=crowded,
            segments=tuple(_merged(a, b) for a, b in zip(self.segments, other.segments, strict=True)),
            flaws=_merged(self.flaws, other.flaws),
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            groups=tuple(a.merge(b) for a, b in zip(self.groups, other.groups, strict=True))
            if self.groups and other.groups
            else self.groups or other.groups,
            block=None
            if self.block is None or other.block is None
            else np.concatenate([self.block, other.block], axis=1),
            ids=None if self.ids is None or other.ids is None else self.ids.merge(other.ids),
            spans={**self.spans, **other.spans},
            firsts={
                key: min(each.firsts[key] for each in (self, other) if key in each.firsts)
                for key in {**self.firsts, **other.firsts}
            },
        )


def _added(a: dict[int, int], b: dict[int, int]) -> dict[int, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}


def _merged(a: dict[Any, Any], b: dict[Any, Any]) -> dict[Any, Any]:
    return {key: a[key].merge(b[key]) if key in a and key in b else a.get(key, b.get(key)) for key in {**a, **b}}


def _in_order(stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    """Sorted by their place; parts of one stretch are put together, and neighbours where there are too many."""
    found: list[Stretch] = []
    for stretch in sorted(stretches, key=lambda stretch: stretch.place):
        if found and found[-1].number == stretch.number:
            found[-1] = found[-1].merge(stretch)
        else:
            found.append(stretch)
    size = 8 * len(found[0].moments.mean) ** 2 if found else 1
    most = max(LEAST_STRETCHES, min(MOST_STRETCHES, STRETCH_BYTES // size))
    while len(found) > most:
        pairs = [a.merge(b) for a, b in zip(found[::2], found[1::2], strict=False)]
        found = [*pairs, found[-1]] if len(found) % 2 else pairs
    return tuple(found)
