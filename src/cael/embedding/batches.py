"""Mini-batches of many trials at once, each from its own rows and its own random stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.embedding.arrays import AnyArray, Arrays, of
from cael.embedding.rows import gather_rows
from cael.embedding.stream import Stream
from cael.errors import InputError
from cael.log.logged import LoggedData


@final
@dataclass(frozen=True)
class TrialData:
    """L logs, each of T / L trials: x (L, n, d), a (L, n), r (L, n); rows[t] are the rows that trial t may train on.
    counted: (L, n) how often each row counts (None: all alike)."""

    x: AnyArray
    a: AnyArray
    r: AnyArray
    rows: tuple[AnyArray, ...]
    counted: AnyArray | None = None

    @property
    def trials(self) -> int:
        return len(self.rows)

    def at(self, rows: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        """x, a and r of some rows (T, B)."""
        return gather_rows(self.x, rows), gather_rows(self.a, rows), gather_rows(self.r, rows)

    def often(self, rows: AnyArray) -> AnyArray | float:
        """How often some rows (T, B) count."""
        return 1.0 if self.counted is None else gather_rows(self.counted, rows)


def check_alike(logs: Sequence[LoggedData]) -> None:
    """Refuse logs that cannot share a trial axis, each with action features of its own."""
    features = [() if log.action_features is None else log.action_features.shape for log in logs]
    if len({(len(log), log.n_actions, log.contexts.shape[1], *f) for log, f in zip(logs, features, strict=True)}) != 1:
        raise InputError(
            "logs that are trained together must have the same numbers of rows, actions, contexts and action features."
        )


def check_same_actions(logs: Sequence[LoggedData]) -> None:
    """The same of logs that share their action features, too."""
    check_alike(logs)
    if not all(np.array_equal(log.action_features, logs[0].action_features) for log in logs):  # type: ignore[arg-type]
        raise InputError("logs that are trained together must have the same action_features.")
    if len({log.counted is None for log in logs}) != 1:
        raise InputError("logs that are trained together must all have sampling weights, or none of them.")


def trial_data(logs: Sequence[LoggedData], xp: Arrays, rows: Sequence[np.ndarray] | None = None) -> TrialData:
    """Logs of equal length as one trial each; `rows` restricts what each trial trains on (folds)."""
    check_alike(logs)
    return TrialData(
        xp.asarray(np.stack([log.contexts for log in logs]), xp.float64),
        xp.asarray(np.stack([log.actions for log in logs]), xp.int64),
        xp.asarray(np.stack([log.rewards for log in logs]), xp.float64),
        tuple(xp.asarray(of_log, xp.int64) for of_log in rows or [np.arange(len(log)) for log in logs]),
    )


def padded(rows: Sequence[AnyArray]) -> tuple[AnyArray, AnyArray]:
    """Ragged rows as (T, longest) and which of them are real."""
    xp, lengths = of(rows[0]), [len(of_trial) for of_trial in rows]
    table = xp.zeros((len(rows), max(lengths)), xp.int64)
    for t, of_trial in enumerate(rows):
        table[t, : lengths[t]] = of_trial
    return table, xp.arange(max(lengths)) < xp.asarray(lengths, xp.int64)[:, None]


@final
class Batches:
    """Mini-batches (T, B) from shuffled passes over each trial's rows, without replacement within a pass."""

    def __init__(self, rows: Sequence[AnyArray], size: int, stream: Stream) -> None:
        self.stream = stream
        self.lengths = np.array([len(of_trial) for of_trial in rows])
        self.size = int(min(size, self.lengths.min()))
        if self.size < 2:
            raise InputError("a mini-batch needs at least 2 rows: batch normalisation has no spread with one.")
        self.rows = padded(rows)[0]
        self.order = stream.xp.zeros_like(self.rows)
        self.at = self.lengths.copy()

    def next(self) -> AnyArray:
        xp, short = self.stream.xp, np.flatnonzero(self.at + self.size > self.lengths)
        if len(short):
            lengths, trials = (xp.asarray(v, xp.int64) for v in (self.lengths[short], short))
            self.order[trials] = self.stream.shuffled_together(self.rows[trials], lengths, trials)
            self.at[short] = 0
        at = self.at.copy()
        self.at += self.size
        if (at == at[0]).all():
            return self.order[:, int(at[0]) : int(at[0]) + self.size]
        return xp.take_along(self.order, xp.asarray(at[:, None] + np.arange(self.size), xp.int64))
