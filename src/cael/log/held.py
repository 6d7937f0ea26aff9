"""What the engine asks of a log, and a log in memory that answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

from cael.common.cores import cores
from cael.common.types import Floats, Ints, settle
from cael.errors import InputError, PolicyError
from cael.log.batch import at_rows
from cael.log.fingerprints import LogKey
from cael.log.logged import LoggedData
from cael.log.measure import Measure
from cael.log.pieces import Piece, Reading
from cael.log.targets import Target
from cael.policies.given import policy_on
from cael.policies.policy import Policy
from cael.policies.propensity import EstimatedLogging

if TYPE_CHECKING:
    from cael.log.scanned import ScannedLog

PROBE = 4096
"""Rows at the start of a log that are looked at before a pass."""
TASK_ROWS = 2**17
BATCH = 2**16

EngineLog: TypeAlias = "Held | ScannedLog"
"""A log as the engine reads it: in memory, or in files."""


@final
@dataclass(frozen=True, eq=False)
class Run:
    """Rows first .. stop of a log in memory, which one worker goes through. segments: (labels, codes (n,)) pairs.
    metrics: (measure, its values (n,)) of what is the reward, and of further metrics; none: the log's own rewards."""

    log: LoggedData
    first: int
    stop: int
    segments: tuple[tuple[list[str], Ints], ...] = ()
    metrics: tuple[tuple[Measure, Floats], ...] = ()

    number: ClassVar[int] = 0

    def pieces(self, size: int) -> Iterator[tuple[int, Piece]]:
        for at in range(self.first, self.stop, size):
            yield at, self.piece(slice(at, min(at + size, self.stop)))

    def piece(self, part: slice) -> Piece:
        log, batch = self.log, self.log.whole.part(part)
        values = tuple(measure.of(column[part]) for measure, column in self.metrics)
        cut = tuple(measure.changed(column[part]) for measure, column in self.metrics)
        return Piece(
            None, None, batch.actions, values[0] if values else batch.rewards, batch.propensities, batch.contexts,
            at_rows(log.cluster_keys, part), at_rows(log.timestamps, part),
            tuple((labels, codes[part]) for labels, codes in self.segments), (), len(batch), log.n_actions,
            log.action_features, 0, part.start, batch.rows, batch.draw_numbers, eligible=batch.eligible,
            metrics=values[1:], cut=cut, sampling=at_rows(log.sampling_weights, part),
        )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Held:
    """A log in memory, as the engine reads it. segments: (labels, codes (n,)) pairs by which rows are also summed.
    measures: the metrics that a pass sums, the first of which is the reward; none: the reward alone."""

    log: LoggedData
    segments: tuple[tuple[list[str], Ints], ...] = ()
    measures: tuple[Measure, ...] = ()
    n_actions: int = field(init=False)
    action_features: Floats | None = field(init=False)
    context_dim: int = field(init=False)
    rows: int = field(init=False)
    has_propensities: bool = field(init=False)
    estimates_logging: bool = field(init=False)
    clustered: bool = field(init=False)
    timed: bool = field(init=False)
    has_eligible: bool = field(init=False)
    weighted: bool = field(init=False)
    client: ClassVar[Any] = None
    predictions: ClassVar[Any] = None
    numeric_contexts: ClassVar[bool] = True
    starts: ClassVar[tuple[int, ...]] = (0,)

    def __post_init__(self) -> None:
        log = self.log
        settle(
            self,
            n_actions=log.n_actions,
            action_features=log.action_features,
            context_dim=log.contexts.shape[1],
            rows=len(log),
            has_propensities=log.propensities is not None,
            estimates_logging=isinstance(log.logging, EstimatedLogging),
            clustered=log.clusters is not None,
            timed=log.timestamps is not None,
            has_eligible=log.eligible is not None,
            weighted=log.sampling_weights is not None,
        )

    @property
    def workers(self) -> int:
        return cores()

    @property
    def key(self) -> LogKey:
        return self.log.key

    @cached_property
    def logging(self) -> Target | None:
        policy = self.log.logging
        return None if policy is None or not policy.complete else target_in_memory(policy)

    @cached_property
    def tasks(self) -> tuple[Run, ...]:
        n, metrics = len(self.log), tuple(zip(self.measures, self.log.values_of(self.measures), strict=True))
        return tuple(Run(self.log, at, min(at + TASK_ROWS, n), self.segments, metrics) for at in range(0, n, TASK_ROWS))

    @property
    def reward_name(self) -> str:
        return self.log.reward_name

    def measured(self, measure: Measure) -> Held:
        """The log with one of its metrics as the reward."""
        return Held(self.log.measured(measure), self.segments)

    def measuring(self, measures: tuple[Measure, ...]) -> Held:
        """The log with the first of these metrics as the reward, whose passes also sum the others."""
        return Held(self.log.measured(measures[0]), self.segments, measures)

    def target(self, given: Any) -> Target:
        """The target policy that this means."""
        if isinstance(given, str):
            return self._named(given)
        policy = policy_on(given, self.log.names)
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
        return Target(self.log.table.label_of(text), None, policy, policy.complete)

    def probe(self, *, contexts: bool = False) -> Piece:
        metrics = tuple(zip(self.measures, self.log.values_of(self.measures), strict=True))
        return Run(self.log, 0, len(self.log), metrics=metrics).piece(slice(0, min(PROBE, len(self.log))))

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
