"""What the engine asks of a log, and a log in memory that answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, final

import numpy as np

from cael.common.cores import cores
from cael.common.types import Floats, Ints
from cael.errors import InputError, PolicyError
from cael.log.logged import LoggedData, LogKey
from cael.log.pieces import Piece, Reading
from cael.log.targets import Target
from cael.policies.policy import Policy, as_policy
from cael.policies.propensity import EstimatedLogging

PROBE = 4096
"""Rows at the start of a log that are looked at before a pass."""
TASK_ROWS = 2**17
BATCH = 2**16


class EngineLog(Protocol):
    """A log as the engine reads it: in memory, or in files."""

    @property
    def n_actions(self) -> int: ...
    @property
    def action_features(self) -> Floats | None: ...
    @property
    def has_propensities(self) -> bool: ...
    @property
    def logging(self) -> Target | None: ...
    @property
    def estimates_logging(self) -> bool: ...
    @property
    def clustered(self) -> bool: ...
    @property
    def timed(self) -> bool: ...
    @property
    def context_dim(self) -> int: ...
    @property
    def rows(self) -> int | None: ...
    @property
    def starts(self) -> tuple[int, ...]: ...
    @property
    def tasks(self) -> Sequence[Any]: ...
    @property
    def workers(self) -> int: ...
    @property
    def client(self) -> Any: ...
    @property
    def key(self) -> LogKey: ...
    @property
    def predictions(self) -> Any: ...

    def target(self, given: Any) -> Target: ...
    def probe(self, *, contexts: bool = False) -> Piece: ...
    def reading(
        self, *, contexts: bool = False, propensities: bool = True, segments: tuple[str, ...] = (),
        columns: Sequence[str] = (), numbers: int = 0, ids: bool = False,
    ) -> Reading: ...  # fmt: skip
    def most_clusters(self, columns: int) -> int: ...
    def described(self, n: int | str) -> str: ...


@final
@dataclass(frozen=True, eq=False)
class Run:
    """Rows first .. stop of a log in memory, which one worker goes through. segments: (labels, codes (n,)) pairs."""

    log: LoggedData
    first: int
    stop: int
    segments: tuple[tuple[list[str], Ints], ...] = ()

    @property
    def number(self) -> int:
        return 0

    def pieces(self, size: int) -> Iterator[tuple[int, Piece]]:
        for at in range(self.first, self.stop, size):
            yield at, self.piece(slice(at, min(at + size, self.stop)))

    def piece(self, part: slice) -> Piece:
        log = self.log
        numbers = log.rows[part] if not isinstance(log.rows, slice) else shifted(part, log.rows.start)
        return Piece(
            None, None, log.actions[part], log.rewards[part],
            None if log.propensities is None else log.propensities[part], log.contexts[part],
            None if log.cluster_keys is None else log.cluster_keys[part],
            None if log.timestamps is None else log.timestamps[part],
            tuple((labels, codes[part]) for labels, codes in self.segments), (), part.stop - part.start,
            log.n_actions, log.action_features, 0, part.start, numbers, places_of(log, part),
        )  # fmt: skip


def shifted(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def places_of(log: LoggedData, part: slice) -> Ints:
    """The places of rows: where they stood in their files, or their numbers."""
    if log.places is not None:
        return log.places[part]
    if isinstance(log.rows, slice):
        return np.arange(part.start, part.stop) + log.rows.start
    return log.rows[part]


@final
@dataclass(frozen=True, eq=False)
class Held:
    """A log in memory, as the engine reads it. segments: (labels, codes (n,)) pairs by which rows are also summed."""

    log: LoggedData
    segments: tuple[tuple[list[str], Ints], ...] = ()
    client: Any = None
    predictions: Any = None

    @property
    def n_actions(self) -> int:
        return self.log.n_actions

    @property
    def action_features(self) -> Floats | None:
        return self.log.action_features

    @property
    def has_propensities(self) -> bool:
        return self.log.propensities is not None

    @cached_property
    def logging(self) -> Target | None:
        policy = self.log.logging
        return None if policy is None or not policy.complete else target_in_memory(policy)

    @property
    def estimates_logging(self) -> bool:
        return isinstance(self.log.logging, EstimatedLogging)

    @property
    def clustered(self) -> bool:
        return self.log.clusters is not None

    @property
    def timed(self) -> bool:
        return self.log.timestamps is not None

    @property
    def context_dim(self) -> int:
        return self.log.contexts.shape[1]

    @property
    def rows(self) -> int:
        return len(self.log)

    @property
    def starts(self) -> tuple[int, ...]:
        return (0,)

    @property
    def workers(self) -> int:
        return cores()

    @property
    def key(self) -> LogKey:
        return self.log.key

    @cached_property
    def tasks(self) -> tuple[Run, ...]:
        n = len(self.log)
        return tuple(Run(self.log, at, min(at + TASK_ROWS, n), self.segments) for at in range(0, n, TASK_ROWS))

    def target(self, given: Any) -> Target:
        """The target policy that this means."""
        if isinstance(given, str):
            return self._named(given)
        policy = as_policy(given)
        if policy.n_actions is not None and policy.n_actions != self.n_actions:
            raise PolicyError(f"{policy!r} has {policy.n_actions} actions, but the log has {self.n_actions}.")
        return target_in_memory(policy)

    def _named(self, text: str) -> Target:
        if self.log.table is None:
            raise PolicyError(
                f"policy {text!r} names columns, and this log was made from arrays. Give a cael.Policy, an array of "
                "probabilities or a function of contexts; or read the log with cael.read, which keeps its columns."
            )
        policy = self.log.table.policy(text)
        return Target(text, None, policy, policy.complete)

    def probe(self, *, contexts: bool = False) -> Piece:
        return Run(self.log, 0, len(self.log)).piece(slice(0, min(PROBE, len(self.log))))

    def reading(
        self, *, contexts: bool = False, propensities: bool = True, segments: tuple[str, ...] = (),
        columns: Sequence[str] = (), numbers: int = 0, ids: bool = False,
    ) -> Reading:  # fmt: skip
        if segments:
            raise InputError("the segments of a log in memory are given by labels, one per row, not by a column.")
        return Reading("", None, (), {}, BATCH, self.n_actions)

    def most_clusters(self, columns: int) -> int:
        return len(self.log)

    def described(self, n: int | str) -> str:
        return repr(self.log)


def target_in_memory(policy: Policy) -> Target:
    return Target(repr(policy), None, policy, policy.complete)
