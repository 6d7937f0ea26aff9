"""The work on one task: read its batches, fill the columns of all estimators, and keep their sums."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.engine.columns import Column, Filling, Metered, OfMetric, Outcome, Weight, Weights
from cael.engine.ids import Ids, ids_of
from cael.engine.moments import (
    BUCKETS,
    Clusters,
    Moments,
    about_mean,
    buckets_at,
    buckets_by,
    grouped,
    joined,
    moments_by,
    no_moments,
    runs_of,
    together,
    weighted_run,
)
from cael.engine.partial import ActionSums, Partial, Range, Stretch, whole_stretches
from cael.engine.passes import pieces
from cael.engine.predictions import Predictions
from cael.engine.tally import Changed, Tallying
from cael.engine.windows import Times, Windows
from cael.errors import PolicyError
from cael.log.batch import at_rows
from cael.log.flaws import Flaws
from cael.log.keys import FILE_BITS
from cael.log.pieces import Piece, Reading, flaws_of
from cael.log.scratch import Scratch
from cael.log.targets import Target, with_propensities
from cael.policies.expectations import spread_seen, totals, variances, worst_sum
from cael.policies.fitted import FittedLogging
from cael.policies.policy import Policy

SPREAD = 617
"""Buckets that the first rows of two files are apart where rows are not counted, so that short files fill all."""
STRETCHES = 640
"""Into so many stretches of equal length a log is cut whose rows are counted beforehand."""
UNCOUNTED = 1024
"""Rows of a stretch of other logs."""


@final
@dataclass(frozen=True, eq=False)
class Work:
    """What shall be kept of every batch: a description that can be sent to another machine.

    r0: taken off the rewards. columns: to keep. tallied: weights that are counted by size. ruled: weights that a rule
    made. groups: of columns that are made together, each with the number of its metric. popularity: (k,) logs of the
    mean probabilities of the first rows. top: largest weights to keep. rows, starts: of the log and of the first row of
    each file, where they are known. fitted: the logging policy where only that of logged actions is known and the
    others were fitted. most_clusters: beyond it, clusters are summed into buckets only. kept: (p, n) where the columns
    of a log in memory go. judged: whether to make the sums by action and by stretch that the checks of a verdict look
    at. metrics: the further ones.
    """

    reading: Reading
    r0: float
    targets: tuple[Target, ...]
    logging: Target | None
    outcomes: dict[Outcome, Predictions]
    columns: tuple[Column, ...]
    tallied: tuple[Weights, ...]
    ruled: tuple[Weight, ...]
    groups: tuple[tuple[Any, int], ...]
    popularity: Floats | None
    top: int
    rows: int | None
    starts: tuple[int, ...]
    clustered: bool
    most_clusters: int
    kept: Floats | None
    segments: int
    judged: bool
    windows: Windows | None = None
    fitted: FittedLogging | None = None
    metrics: tuple[Metered, ...] = ()

    def place(self, number: int = 0) -> dict[Column, int]:
        """Where the columns of a metric are, by their names for it."""
        places: dict[Column, int] = {}
        for at, column in enumerate(self.columns):
            if isinstance(column, OfMetric):
                if column.number == number:
                    places[column.column] = at
            elif number == 0 or not column.rewarded:
                places[column] = at
        return places

    def sums_of(self, group: Any) -> int:
        """The number of a group of columns."""
        return [known for known, _ in self.groups].index(group)


def run(work: Work, task: Any) -> Partial:
    """The sums of one task."""
    summing = Summing(work, task)
    for at, piece in pieces(work.reading, task):
        try:
            summing.add(at, piece)
        except PolicyError as error:
            if piece.source is None:
                raise
            raise PolicyError(
                f"{error} Found in {task.file.path} at rows {at:,} to {at + piece.read - 1:,}, where reading stopped."
            ) from None
    return summing.done()


@final
@dataclass
class Summing:
    """Sums that grow by batches; `done` gives them away as a Partial."""

    work: Work
    task: Any
    read: int = 0
    rows: int = 0
    flaws: dict[tuple[str, str], Flaws] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    clusters: list[Clusters] = field(default_factory=list)
    crowded: bool = False
    ranges: tuple[Range, ...] = ()
    groups: tuple[Any, ...] = ()
    ids: Ids | None = None

    def __post_init__(self) -> None:
        work, k = self.work, self.work.reading.n_actions
        self.bucket_rows, self.bucket_sums = np.zeros(BUCKETS), np.zeros((len(work.columns), BUCKETS))
        self.actions = ActionSums(*np.zeros((8, k)))
        self.masses = [np.zeros(k) for _ in work.targets]
        self.tallies = [Tallying(work.top) for _ in work.tallied]
        self.changed = [Changed() for _ in work.ruled]
        self.segments: list[dict[str, Moments]] = [{} for _ in range(work.segments)]
        if work.windows is not None:
            self.segments.append({})
        self.times, self.scratch = Times(), Scratch()
        self.ranges = (Range(),) * (1 + len(work.metrics))

    def add(self, at: int, piece: Piece) -> None:
        """Add a batch whose first row is number `at` of its file."""
        self.read += piece.read
        for key, flaw in flaws_of(piece, self.task.number, at).items():
            self.flaws[key] = self.flaws[key].merge(flaw) if key in self.flaws else flaw
        if piece.ids is not None:
            ids = ids_of(piece.ids, piece.places)
            self.ids = ids if self.ids is None else self.ids.merge(ids)
        if len(piece) == 0:
            return
        work = self.work
        if work.windows is not None:
            piece = self._in_windows(piece, work.windows)
        logging = None if work.logging is None else work.logging.on(piece)
        if logging is not None and piece.source is not None:
            piece = with_propensities(piece, logging)
        start = piece.file * SPREAD if work.rows is None else work.starts[piece.file]
        shift = (start + at) % BUCKETS
        block = self._room(shift, len(piece))
        columns = block[:, shift : shift + len(piece)]
        policies = [target.on(piece) for target in work.targets]
        filling = Filling(
            piece, dict(zip(work.columns, columns, strict=True)), work.r0, policies, logging, work.outcomes,
            work.popularity, None if work.fitted is None else work.fitted.on(piece), work.metrics,
        )  # fmt: skip
        filling.all()
        self._weights(filling)
        self._groups(filling)
        self._keep(at, shift, piece, block)
        self._count(piece, policies, logging, filling)
        self.rows += len(piece)

    def _in_windows(self, piece: Piece, windows: Windows) -> Piece:
        window = windows.of(piece)
        if piece.times is not None:
            self.times.add(piece.times, window)
        labels = [str(number) for number in range(windows.count)]
        return replace(piece, segments=(*piece.segments, (labels, window)))

    def _room(self, shift: int, n: int) -> Floats:
        """(p, m) of whole rounds of buckets, with room for n rows from `shift` on and 0 in all other places."""
        width, p = -(-(shift + n) // BUCKETS) * BUCKETS, len(self.work.columns)
        block: Array = self.scratch.take("block", p * width).reshape(p, width)
        block[:, :shift] = 0.0
        block[:, shift + n :] = 0.0
        return block

    def _weights(self, filling: Filling) -> None:
        for column, tally in zip(self.work.tallied, self.tallies, strict=True):
            tally.add(filling.counted(filling.get(column)))
        for at, column in enumerate(self.work.ruled):
            w = filling.get(column)
            rows = int(np.count_nonzero(w != filling.get(Weight(column.target))))
            self.changed[at] = self.changed[at].merge(Changed(float(filling.counted(w).max()), rows))

    def _groups(self, filling: Filling) -> None:
        fillings = ((group, filling.of(number) if number else filling) for group, number in self.work.groups)
        sums = tuple(of_metric.group(group)[1] for group, of_metric in fillings)
        self.groups = tuple(a.merge(b) for a, b in zip(self.groups, sums, strict=True)) if self.groups else sums

    def _keep(self, at: int, shift: int, piece: Piece, block: Floats) -> None:
        """Everything that is summed by row: moments, stretches, segments, clusters."""
        n = len(piece)
        columns, bucket = block[:, shift : shift + n], None
        if piece.clusters is not None:
            bucket = (piece.clusters % np.uint64(BUCKETS)).astype(np.intp)
            self._clusters(piece, columns)
        elif piece.segments or piece.sampling is not None:
            bucket = (shift + np.arange(n)) % BUCKETS
        if piece.segments and bucket is not None:
            self._segments(piece, columns, bucket)
        plain = bucket is None or (piece.clusters is None and piece.sampling is None)
        rows, totals = (
            buckets_at(block, shift, n) if plain or bucket is None else buckets_by(columns, bucket, piece.sampling)
        )
        self.bucket_rows += rows
        self.bucket_sums += totals
        self._stretches(at, piece, columns, totals)
        if self.work.kept is not None:
            self.work.kept[:, at : at + n] = columns

    def _segments(self, piece: Piece, columns: Floats, bucket: Ints) -> None:
        for sums, (labels, codes) in zip(self.segments, piece.segments, strict=True):
            for code in np.unique(codes).tolist():
                rows = np.flatnonzero(codes == code)
                moments = moments_by(columns[:, rows], bucket[rows], at_rows(piece.sampling, rows))
                label = labels[code]
                sums[label] = sums[label].merge(moments) if label in sums else moments

    def _stretches(self, at: int, piece: Piece, columns: Floats, totals: Floats) -> None:
        numbers = self._numbers(at, piece)
        bounds = [*(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(piece)]
        start = 0
        for stop, moments in zip(bounds, runs_of(columns, bounds, totals, piece.sampling), strict=True):
            part = slice(start, stop)
            place = (piece.file, at + start)
            self.stretches.append(Stretch(int(numbers[start]), place, moments, *_times(piece.times, part)))
            start = stop

    def _numbers(self, at: int, piece: Piece) -> Ints:
        """The number (n,) of each row's stretch."""
        work = self.work
        if not work.judged:
            return np.zeros(len(piece), np.intp)
        if work.rows is None:
            return (piece.file << FILE_BITS) + at + np.arange(len(piece)) // UNCOUNTED * UNCOUNTED
        rows = np.arange(piece.read) if piece.rows is None else piece.rows
        return (work.starts[piece.file] + at + rows) * STRETCHES // work.rows

    def _clusters(self, piece: Piece, columns: Floats) -> None:
        if self.crowded or piece.clusters is None:
            return
        counted = columns if piece.sampling is None else columns * piece.sampling
        self.clusters.append(grouped(piece.clusters, piece.counted, np.ascontiguousarray(counted.T)))
        if sum(len(part.keys) for part in self.clusters[1:]) > max(2**18, len(self.clusters[0].keys)):
            self.clusters = [joined(self.clusters)]
            self.crowded = len(self.clusters[0].keys) > self.work.most_clusters

    def _count(self, piece: Piece, policies: list[Policy], logging: Policy | None, filling: Filling) -> None:
        values, cut = (piece.rewards, *piece.metrics), piece.cut or (0,)
        ranges = (Range(float(r.min()), float(r.max()), count) for r, count in zip(values, cut, strict=True))
        self.ranges = tuple(a.merge(b) for a, b in zip(self.ranges, ranges, strict=True))
        if not self.work.judged:
            return
        k, actions = piece.n_actions, piece.actions
        self.actions = self.actions.merge(self._actions(piece, logging))
        for t, (target, policy) in enumerate(zip(self.work.targets, policies, strict=True)):
            if target.complete:
                self.masses[t] += totals(policy, piece.batch(), sampling=piece.sampling)
            elif piece.propensities is not None:
                self.masses[t] += np.bincount(actions, weights=filling.counted(filling.get(Weight(t))), minlength=k)

    def _actions(self, piece: Piece, logging: Policy | None) -> ActionSums:
        k, actions, s = piece.n_actions, piece.actions, piece.sampling
        rows = np.bincount(actions, minlength=k).astype(np.float64)
        counted: Array = rows if s is None else np.bincount(actions, weights=s, minlength=k)
        inverse: Array = counted
        squares: Array = counted
        if piece.propensities is not None:
            scratch = np.divide(1.0, piece.propensities, out=self.scratch.take("inverse", len(actions)))
            if s is not None:
                np.multiply(scratch, s, out=scratch)
            inverse = np.bincount(actions, weights=scratch, minlength=k)
            np.multiply(scratch, scratch, out=scratch)
            squares = np.bincount(actions, weights=scratch, minlength=k)
        there = np.full(k, float(piece.counted.sum()))
        if piece.eligible is not None:
            there = piece.eligible.spread(piece.counted)
        if logging is None:
            return ActionSums(rows, counted, inverse, squares, there, np.zeros(k), np.zeros(k), np.zeros(k))
        batch, square = piece.batch(), None if s is None else s * s
        expected, variance = totals(logging, batch, sampling=s), totals(logging, batch, variances, square)
        seen = variance if square is None else spread_seen(logging, batch, square)
        return ActionSums(rows, counted, inverse, squares, there, expected, variance, seen, worst_sum(logging, batch))

    def done(self) -> Partial:
        moments = no_moments(len(self.work.columns))
        if self.stretches:
            moments = together([part.moments for part in self.stretches], self.bucket_rows, self.bucket_sums)
        spans = {}
        if self.times.span is not None:
            spans = {(self.task.number, self.task.first): self.times.span if self.times.ordered else None}
        return Partial(
            read={self.task.number: self.read}, rows=self.rows, moments=moments,
            stretches=whole_stretches(self.stretches), actions=self.actions,
            masses=tuple(self.masses), tallies=tuple(tally.done() for tally in self.tallies),
            changed=tuple(self.changed), clusters=self._all_clusters(), crowded=self.crowded,
            segments=tuple(self.segments), flaws=self.flaws, ranges=self.ranges,
            most_clusters=self.work.most_clusters, groups=self.groups, spans=spans, firsts=self.times.first,
            ids=self.ids,
        )  # fmt: skip

    def _all_clusters(self) -> Clusters | None:
        if self.crowded or not self.work.clustered:
            return None
        empty = Clusters(np.empty(0, np.uint64), np.empty(0), np.empty((0, len(self.work.columns))))
        return joined([*self.clusters, empty])


def stretches_by_time(timestamps: Array, block: Floats, sampling: Floats | None = None) -> tuple[Stretch, ...]:
    """Stretches of equal numbers of rows of columns (p, n), in the order of the timestamps. sampling: (n,) weights."""
    order = np.argsort(timestamps, kind="stable")
    numbers = np.arange(len(order)) * STRETCHES // len(order)
    stretches, start = [], 0
    for rows in np.split(order, np.flatnonzero(np.diff(numbers)) + 1):
        part = block[:, rows]
        moments = about_mean(part, part.mean(axis=1)) if sampling is None else weighted_run(part, sampling[rows])
        stretches.append(Stretch(int(numbers[start]), (0, start), moments, timestamps[rows[0]], timestamps[rows[-1]]))
        start += len(rows)
    return tuple(stretches)


def _times(times: Array | None, part: slice) -> tuple[Any, Any]:
    return (None, None) if times is None or not len(times[part]) else (times[part].min(), times[part].max())
