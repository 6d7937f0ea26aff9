"""The work on one task: read its batches, make the features of all estimators, and keep their sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats
from cael.engine.demands import Key, features_of
from cael.engine.marginal_weights import Marginal
from cael.engine.moments import (
    BUCKETS,
    Clusters,
    Moments,
    buckets_at,
    buckets_by,
    cut,
    empty,
    grouped,
    moments_by,
    together,
)
from cael.engine.partial import ActionSums, Partial, Stretch
from cael.engine.path_columns import Path, PathSums, fill
from cael.engine.predictions import Predictions
from cael.engine.tally import Changed, Rule, Tallying
from cael.engine.windows import Times, Windows
from cael.errors import CaelError, PolicyError
from cael.io.reading import Task, batches
from cael.log.keys import folds_of, keys_of
from cael.log.logged import Batch
from cael.log.pieces import Door, Flaws, Piece, flaws_of, piece_of
from cael.log.scratch import Scratch
from cael.log.targets import Target, as_source, chunks, mass_of, with_propensities
from cael.policies.policy import Policy, logged_probability

SPREAD = 617
"""Buckets that the first rows of two files are apart, so that many short files fill all buckets."""


@final
@dataclass(frozen=True, eq=False)
class Work:
    """What shall be kept of every batch: a description that can be sent to another machine.

    name: of the log. columns: those to read. size: rows of a batch. r0: taken off the rewards. keys: the features.
    rules: (target, rule) pairs. pairs: (target, outcome) pairs. top: largest weights to keep. stretch: rows of a
    stretch. most_clusters: beyond it, clusters are summed into buckets only. logging: the logging policy, where it is
    known. paths: of CAEL. windows: of time, which are one more segment column. marginals: of MIPS, by their numbers.
    """

    name: str
    door: Door
    columns: tuple[str, ...]
    types: dict[str, Any]
    size: int
    r0: float
    targets: tuple[Target, ...]
    outcomes: tuple[Predictions, ...]
    keys: tuple[Key, ...]
    rules: tuple[tuple[int, Rule], ...]
    pairs: tuple[tuple[int, int], ...]
    top: int
    stretch: int
    most_clusters: int
    logging: Target | None = None
    paths: tuple[Path, ...] = ()
    windows: Windows | None = None
    marginals: tuple[Marginal, ...] = ()


def run(work: Work, task: Task) -> Partial:
    """The sums of one task."""
    summing = Summing(work, task)
    for at, piece in pieces(work.name, task, work.door, work.columns, work.size, work.types):
        try:
            summing.add(at, piece)
        except PolicyError as error:
            raise PolicyError(
                f"{error} Found in {task.file.path} at rows {at:,} to {at + piece.read - 1:,}, where reading stopped; "
                "rows of the message may be counted from there."
            ) from None
    return summing.done()


def pieces(
    name: str, task: Task, door: Door, columns: Sequence[str], size: int, types: dict[str, Any]
) -> Iterator[tuple[int, Piece]]:
    """(number of the first row in the file, piece) for every batch of a task."""
    at, kinds, scratch = task.first, None, Scratch()
    for batch in batches(task, columns, size, types):
        kinds = kinds or tuple(zip(batch.schema.names, batch.schema.types, strict=True))
        try:
            piece = piece_of(as_source(batch, name, (task.file.path.name, at), kinds, scratch), door)
        except CaelError as error:
            if str(task.file.path) in str(error):
                raise
            raise type(error)(f"{task.file.path}: {error}") from None
        yield at, piece
        at += batch.num_rows


@final
@dataclass
class Summing:
    """Sums that grow by batches; `done` gives them away as a Partial."""

    work: Work
    task: Task
    read: int = 0
    rows: int = 0
    flaws: dict[tuple[str, str], Flaws] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    groups: list[Clusters] = field(default_factory=list)
    crowded: bool = False
    low: float = np.inf
    high: float = -np.inf
    paths: tuple[PathSums, ...] = ()

    def __post_init__(self) -> None:
        work, k = self.work, len(self.work.door.actions)
        p = len(work.keys)
        self.bucket_rows, self.bucket_sums = np.zeros(BUCKETS), np.zeros((p, BUCKETS))
        self.actions = ActionSums(np.zeros(k), np.zeros(k), np.zeros(k))
        self.masses = [np.zeros(k) for _ in work.targets]
        self.tallies = [Tallying(work.top) for _ in work.targets]
        self.marginal_tallies = [Tallying(work.top) for _ in work.marginals]
        self.changed = [Changed() for _ in work.rules]
        self.segments: list[dict[str, Moments]] = [{} for _ in work.door.segments]
        if work.windows is not None:
            self.segments.append({})
        self.times = Times()
        self.scratch = Scratch()

    def add(self, at: int, piece: Piece) -> None:
        """Add a batch whose first row is number `at` of its file."""
        work, number = self.work, self.task.number
        self.read += piece.read
        for key, flaw in flaws_of(piece, number, at).items():
            self.flaws[key] = self.flaws[key].merge(flaw) if key in self.flaws else flaw
        n = len(piece)
        if n == 0:
            return
        if work.windows is not None:
            piece = self._in_windows(piece, work.windows)
        actions = work.door.actions

        def keys() -> Array:
            return keys_of(piece, number)

        logging = None if work.logging is None else work.logging.on(piece, actions, keys)
        if logging is not None:
            piece = with_propensities(piece, logging, actions)
        shift = (number * SPREAD + at) % BUCKETS
        block = self._room(shift, n)
        rows = dict(zip(work.keys, block[:, shift : shift + n], strict=True))
        np.subtract(piece.rewards, work.r0, out=rows[("r",)])
        policies = [target.on(piece, actions, keys) for target in work.targets]
        self._weights(piece, policies, rows)
        self._marginals(piece, policies, logging, rows)
        predicted = {(t, o): work.outcomes[o].terms(piece, policies[t], actions, number) for t, o in work.pairs}
        features_of(rows, piece.rewards, predicted, lambda count, seed: folds_of(piece, number, count, seed))
        found = fill(rows, work.paths, piece, policies, logging, actions, number, predicted)
        self.paths = tuple(a.merge(b) for a, b in zip(self.paths, found, strict=True)) if self.paths else found
        self._keep(at, shift, piece, block)
        self._count(piece, policies, rows)
        self.rows += n

    def _in_windows(self, piece: Piece, windows: Windows) -> Piece:
        window = windows.of(piece, self.task.number)
        if piece.times is not None:
            self.times.add(piece.times, window)
        return replace(piece, segments=(*piece.segments, ([str(each) for each in range(windows.count)], window)))

    def _room(self, shift: int, n: int) -> Floats:
        """(p, m) of whole rounds of buckets, with room for n rows from `shift` on and 0 in all other places."""
        width, p = -(-(shift + n) // BUCKETS) * BUCKETS, len(self.work.keys)
        block: Array = self.scratch.take("block", p * width).reshape(p, width)
        block[:, :shift] = 0.0
        block[:, shift + n :] = 0.0
        return block

    def _weights(self, piece: Piece, policies: list[Policy], rows: dict[Key, Floats]) -> None:
        """The weights of all targets by all rules, into their rows."""
        work, k = self.work, len(self.work.door.actions)
        if piece.propensities is None or not work.rules:
            return
        for t, (target, policy, tally) in enumerate(zip(work.targets, policies, self.tallies, strict=True)):
            parts = [
                logged_probability(policy, self._batch(piece, part, target))
                for part in (chunks(len(piece), k) if _dense(target, policy) else [slice(0, len(piece))])
            ]
            p = parts[0] if len(parts) == 1 else np.concatenate(parts)
            tally.add(np.divide(p, piece.propensities, out=rows["w", t, Rule()]))
        for place, (t, rule) in enumerate(work.rules):
            if rule != Rule() and rule.marginal is None:
                raw, w = rows["w", t, Rule()], rows["w", t, rule]
                w[:] = rule(raw)
                found = Changed(float(w.max()), int(np.count_nonzero(w != raw)))
                self.changed[place] = self.changed[place].merge(found)

    def _marginals(self, piece: Piece, policies: list[Policy], logging: Policy | None, rows: dict[Key, Floats]) -> None:
        for t, rule in self.work.rules:
            if rule.marginal is None:
                continue
            assert logging is not None
            w = rows["w", t, rule]
            w[:] = self.work.marginals[rule.marginal].of(
                piece, policies[t], logging, self.work.door.actions, self.task.number
            )
            self.marginal_tallies[rule.marginal].add(w)

    def _batch(self, piece: Piece, part: slice, target: Target) -> Batch:
        """A function of contexts is told the numbers of the rows in the file, for its messages."""
        door = self.work.door
        shift = 0 if target.spec is not None else piece.source.origin[1] if piece.source.origin else 0
        batch = piece.batch(part, len(door.actions), door.actions.features)
        return batch if shift == 0 else replace(batch, rows=slice(part.start + shift, part.stop + shift))

    def _keep(self, at: int, shift: int, piece: Piece, block: Floats) -> None:
        """Everything that is summed by row: moments, stretches, segments, clusters."""
        n, number = len(piece), self.task.number
        features = block[:, shift : shift + n]
        bucket = None
        if piece.clusters is not None:
            bucket = (piece.clusters % np.uint64(BUCKETS)).astype(np.intp)
            self._clusters(piece.clusters, features)
        for sums, (labels, codes) in zip(self.segments, piece.segments, strict=True):
            own = (shift + np.arange(n)) % BUCKETS if bucket is None else bucket
            for code in np.unique(codes).tolist():
                chosen = np.flatnonzero(codes == code)
                found = moments_by(features[:, chosen], own[chosen])
                sums[labels[code]] = sums[labels[code]].merge(found) if labels[code] in sums else found
        rows, totals = buckets_at(block, shift, n) if bucket is None else buckets_by(features, bucket)
        self.bucket_rows += rows
        self.bucket_sums += totals
        for step, each in enumerate(cut(features, self.work.stretch, totals)):
            part = slice(step * self.work.stretch, step * self.work.stretch + each.n)
            self.stretches.append(Stretch((number, at + part.start), each, *_times(piece.times, part)))

    def _clusters(self, keys: Array, features: Floats) -> None:
        if self.crowded:
            return
        self.groups.append(grouped(keys, np.ones(len(keys)), np.ascontiguousarray(features.T)))
        if sum(len(each.keys) for each in self.groups[1:]) > max(2**18, len(self.groups[0].keys)):
            self.groups = [self._joined()]
            self.crowded = len(self.groups[0].keys) > self.work.most_clusters

    def _joined(self) -> Clusters:
        keys = np.concatenate([each.keys for each in self.groups])
        rows = np.concatenate([each.rows for each in self.groups])
        return grouped(keys, rows, np.concatenate([each.sums for each in self.groups]))

    def _count(self, piece: Piece, policies: list[Policy], features: dict[Key, Floats]) -> None:
        k, a = len(self.work.door.actions), piece.actions
        rows = np.bincount(a, minlength=k).astype(np.float64)
        if piece.propensities is None:
            found = ActionSums(rows, rows, rows)
        else:
            inverse = np.divide(1.0, piece.propensities, out=self.scratch.take("inverse", len(a)))
            total: Array = np.bincount(a, weights=inverse, minlength=k)
            np.multiply(inverse, inverse, out=inverse)
            squares: Array = np.bincount(a, weights=inverse, minlength=k)
            found = ActionSums(rows, total, squares)
        self.actions = self.actions.merge(found)
        for t, (target, policy) in enumerate(zip(self.work.targets, policies, strict=True)):
            if target.complete:
                self.masses[t] += mass_of(policy, piece, k, self.work.door.actions.features)
            elif piece.propensities is not None:
                self.masses[t] += np.bincount(a, weights=features["w", t, Rule()], minlength=k)
        self.low = min(self.low, float(piece.rewards.min()))
        self.high = max(self.high, float(piece.rewards.max()))

    def done(self) -> Partial:
        clusters = self._joined() if self.groups and not self.crowded else None
        if clusters is None and self.work.door.roles.cluster is not None and not self.crowded:
            clusters = Clusters(np.empty(0, np.uint64), np.empty(0), np.empty((0, len(self.work.keys))))
        tallies = tuple(each.done() for each in self.tallies)
        marginal = tuple(each.done() for each in self.marginal_tallies)
        changed = [
            Changed(tallies[t].largest)
            if rule == Rule()
            else found
            if rule.marginal is None
            else Changed(marginal[rule.marginal].largest)
            for (t, rule), found in zip(self.work.rules, self.changed, strict=True)
        ]
        moments = empty(len(self.work.keys))
        if self.stretches:
            moments = together([each.moments for each in self.stretches], self.bucket_rows, self.bucket_sums)
        return Partial(
            read={self.task.number: self.read}, rows=self.rows, moments=moments, stretches=tuple(self.stretches),
            actions=self.actions, masses=tuple(self.masses), tallies=tallies, changed=tuple(changed),
            marginal_tallies=marginal,
            clusters=clusters, crowded=self.crowded, segments=tuple(self.segments), flaws=self.flaws, low=self.low,
            high=self.high, most_clusters=self.work.most_clusters, paths=self.paths,
            spans={} if self.times.span is None
            else {(self.task.number, self.task.first): self.times.span if self.times.ordered else None},
            firsts=self.times.first,
        )  # fmt: skip


def _dense(target: Target, policy: Policy) -> bool:
    """Whether a policy's answer takes an array of rows times actions."""
    from cael.policies.topk import TopK

    return target.complete and not isinstance(policy, TopK)


def _times(times: Array | None, part: slice) -> tuple[Any, Any]:
    return (None, None) if times is None or not len(times[part]) else (times[part].min(), times[part].max())
