"""ScannedLog: a log in files that is never in memory as a whole."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints, settle
from cael.engine.nuisances import estimated_logging
from cael.engine.predictions import Predictions
from cael.engine.row_pass import refuse_rows_of, settle_rows_of
from cael.errors import InputError, LogError
from cael.io.csv_files import Written
from cael.io.eligibility import Calendar
from cael.io.encode import Actions
from cael.io.kinds import is_text
from cael.io.logging_models import logging_model
from cael.io.missing import Filling, fillings_of
from cael.io.originals import refuse_outcomes
from cael.io.reading import Task, batches, fingerprint_of
from cael.io.roles import Columns
from cael.io.sources import Source
from cael.log.batch import at_rows
from cael.log.budget import Budget
from cael.log.fingerprints import LogKey, key_of
from cael.log.flaws import Numbering, RowReport
from cael.log.held import PROBE
from cael.log.keys import FILE_BITS
from cael.log.measure import Measure, known_measures
from cael.log.pieces import Door, Piece, Reading, piece_of, refuse_text_contexts, unique
from cael.log.targets import Target, as_source, target_of


@final
@dataclass(frozen=True, eq=False, repr=False)
class ScannedLog:
    """A log in Parquet, Arrow or CSV files that is read in batches; made by `cael.scan`.

    source: the table that the files make. tasks: the parts that workers read. columns: which column is what.
    memory: the budget. notes: what was done on the way. given_logging: the logging policy, as it was given. calendar:
    of eligible actions, where a table says them. measures: the metrics that a pass sums, the first of which is the
    reward; none: the reward alone. portion: see `Door`.
    `cael.evaluate`, `cael.compare` and `cael.segments` take it in place of a `LoggedData`, with policies that are
    columns (such as "topk:items+chances") or functions of contexts.
    predictions: columns of reward predictions. drop_invalid: whether rows with flaws are left out. client: of Dask.
    """

    source: Source
    tasks: tuple[Task, ...]
    columns: Columns
    actions: Actions
    predictions: Predictions | None
    budget: Budget
    drop_invalid: bool
    workers: int
    client: Any
    notes: tuple[str, ...]
    given_logging: Any = None
    calendar: Calendar | None = None
    measures: tuple[Measure, ...] = ()
    portion: tuple[int, int] | None = None

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.actions)

    @property
    def action_features(self) -> Floats | None:
        """(k, m) features of the actions; None without."""
        return self.actions.features

    @property
    def rows(self) -> int | None:
        """The number of rows, where the files say it beforehand (Parquet)."""
        counts = [task.rows for task in self.tasks]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def has_propensities(self) -> bool:
        """Whether the probabilities of the logged actions are known: as a column, or from the logging policy."""
        return self.columns.propensity is not None or self.given_logging is not None

    @property
    def estimates_logging(self) -> bool:
        """Whether the logging policy is to be estimated."""
        return logging_model(self.given_logging) is not None

    @cached_property
    def logging(self) -> Target | None:
        """The logging policy, where it was given or is estimated, which takes a pass."""
        if self.given_logging is None:
            return None
        if self.estimates_logging:
            return estimated_logging(self)
        target = target_of(self.given_logging, self._head, self.actions, self.columns.id)
        if not target.complete:
            raise InputError(
                f"logging={self.given_logging!r} knows only the probabilities of the logged actions. Name that column "
                "as the propensity: columns={'propensity': ...} (--propensity)."
            )
        return target

    def target(self, given: Any) -> Target:
        """The target policy that this means."""
        target = target_of(given, self._head, self.actions, self.columns.id, self.logging)
        if target.policy is not None:
            refuse_outcomes(target.columns, (str(self.columns.reward), *(self.columns.metric or ())))
        return target

    @property
    def known(self) -> list[str]:
        """What is known beside actions and rewards."""
        named = ("propensity", "cluster", "timestamp", "sampling_weight")
        roles = [role for role in named if getattr(self.columns, role) is not None]
        roles += ["eligible"] if self.has_eligible else []
        return [*roles, "logging"] if self.given_logging is not None else roles

    def __repr__(self) -> str:
        return self.described("?" if self.rows is None else self.rows)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the sizes and ends of all files and of how they are read; not of every value."""
        settings = repr((self.columns, self.actions.labels, self.drop_invalid, self.calendar, self.portion))
        if self.given_logging is not None:
            settings += self.given_logging if isinstance(self.given_logging, str) else type(self.given_logging).__name__
        return fingerprint_of(self.source.files, settings)

    @property
    def key(self) -> LogKey:
        """What estimates keep of the log; the same whichever of its metrics is the reward."""
        return key_of(self.__dict__.get("_whole_log", self))

    @property
    def reward_name(self) -> str:
        """The column of the rewards."""
        return str(self.columns.reward)

    def measured(self, measure: Measure) -> ScannedLog:
        """The same log, with one of its metrics as the reward; its estimates can be paired with those of the log."""
        return self.measuring((measure,))

    def measuring(self, measures: tuple[Measure, ...]) -> ScannedLog:
        """The log with the first of these metrics as the reward, whose passes also sum the others."""
        known = known_measures(measures, self.reward_name, self.columns.metric or ())
        if known == (Measure(self.reward_name),):
            return self
        predictions = self.predictions if known[0].column == self.reward_name else None  # they are of the reward
        log = replace(self, measures=known, predictions=predictions)
        shared = ("_whole_log", "csv_types", "starts", "_first", "logging")
        settle(log, **{name: self.__dict__[name] for name in shared if name in self.__dict__})
        log.__dict__.setdefault("_whole_log", self)
        return log

    @cached_property
    def csv_types(self) -> dict[str, Any]:
        """The types that columns of CSV files are read as, in every file."""
        return csv_types(self.source, self.columns)

    def door(
        self, *, contexts: bool = False, segments: tuple[str, ...] = (), times: bool = True, categories: bool = False,
        clusters: bool = True, propensities: bool = True, ids: bool = False,
    ) -> Door:  # fmt: skip
        """How its columns become arrays. categories: whether contexts may be text. Where rows with a flaw are left out,
        all columns are read: every pass must leave out the same rows."""
        if contexts and not categories:
            refuse_text_contexts(self.source, self.columns)
        needed = {
            "contexts": contexts, "timestamp": times, "cluster": clusters, "propensity": propensities, "id": ids,
        }  # fmt: skip
        unneeded = [role for role, wanted in needed.items() if not (wanted or self.drop_invalid)]
        roles = replace(self.columns, **dict.fromkeys(unneeded))
        if not contexts:
            roles = replace(roles, contexts=None)
        fillings = self.fillings if contexts else None
        return Door(
            roles, self.actions, segments, categories, self.calendar, self.measures, fillings, portion=self.portion
        )

    @cached_property
    def numeric_contexts(self) -> bool:
        """Whether there are contexts, and all of them are numbers."""
        names = self.columns.contexts or ()
        return bool(names) and not any(is_text(self.source.type_of(name)) for name in names)

    @cached_property
    def fillings(self) -> dict[str, Filling]:
        """What stands in for missing numbers of contexts, from the first rows."""
        if not self.columns.contexts:
            return {}
        source = self._first[0]
        numbers = [name for name in self.columns.contexts if not is_text(source.type_of(name))]
        return fillings_of(source, numbers)

    @property
    def has_eligible(self) -> bool:
        """Whether it is known which actions were eligible."""
        return self.columns.of_eligible is not None

    @property
    def clustered(self) -> bool:
        """Whether rows have clusters."""
        return self.columns.cluster is not None

    @property
    def weighted(self) -> bool:
        """Whether rows have sampling weights."""
        return self.columns.sampling_weight is not None

    @property
    def timed(self) -> bool:
        """Whether rows have times."""
        return self.columns.timestamp is not None

    @property
    def context_dim(self) -> int:
        """The number of context columns."""
        return self.probe(contexts=True).contexts.shape[1]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of the first row of each file, where the rows are counted beforehand."""
        sizes = Counter[int]()
        for task in self.tasks:
            sizes[task.number] += task.rows or 0
        return self._starts(sizes)

    def _starts(self, sizes: Mapping[int, int]) -> tuple[int, ...]:
        """The number of the first row of each file, from the rows of each."""
        return tuple(itertools.accumulate((sizes.get(at, 0) for at in range(len(self.source.files) - 1)), initial=0))

    def probe(self, *, contexts: bool = False) -> Piece:
        """The first rows, all columns; to see what the columns hold."""
        contexts = contexts and bool(self.columns.contexts)
        if contexts not in self._probes:
            source, places = self._first
            piece = piece_of(source, self.door(contexts=contexts))
            self._probes[contexts] = replace(piece, known_places=at_rows(places, piece.kept))
        return self._probes[contexts]

    @cached_property
    def _probes(self) -> dict[bool, Piece]:
        return {}

    @cached_property
    def _first(self) -> tuple[Source, Ints]:
        return first_rows(self.source, self.tasks, self.csv_types)

    @cached_property
    def _head(self) -> Piece:
        """The first rows of the first file, to see what policies are; messages name their place. Where none of them is
        sound, those of all files."""
        source, places = self._first
        rows = source.memory.slice(0, int((places < 1 << FILE_BITS).sum()))
        head = piece_of(as_source(rows, source.name, source.origin or ("", 0)), self.door())
        if len(head):
            return head
        if not self.drop_invalid:
            refuse_rows_of(self)
        if len(self.probe()) == 0:
            settle_rows_of(self)
        return self.probe()

    def reading(
        self, *, contexts: bool = False, propensities: bool = True, segments: tuple[str, ...] = (),
        columns: Sequence[str] = (), numbers: int = 0, ids: bool = False,
    ) -> Reading:  # fmt: skip
        """Which columns a pass reads, and how many rows at a time. columns: further ones. numbers: what else each row
        takes."""
        for name in segments:
            self.source.need(name)
        door = self.door(contexts=contexts, segments=segments, propensities=propensities, ids=ids)
        names = unique([*door.columns, *columns])
        width = self.row_bytes(names) + 8 * (numbers + 4)
        size = self.budget.batch_rows(width)
        return Reading(self.source.name, door, names, self.csv_types, size, self.n_actions, self.budget.batch_bytes)

    def row_bytes(self, names: Sequence[str]) -> float:
        """Bytes of a row of these columns, as the first rows have it; numbers become float64."""
        table = self._first[0].memory
        return sum(max(8.0, table.column(name).nbytes / max(1, table.num_rows)) for name in names)

    def checked(self, partial: Any) -> tuple[tuple[tuple[str, int], ...], list[str]]:
        """Why rows were left out of a pass, and what to say about it; an error where that was not asked for."""
        read = sum(partial.read.values())
        warnings: list[str] = []
        if read < 2:
            raise LogError(f"{self.source.name} has {read} rows: expected at least 2.")
        if partial.crowded:
            warnings.append(
                "There are more clusters than the memory budget holds: the standard errors come from 997 sums of "
                "clusters and are themselves off by about 2%."
            )
        repeated = bool(getattr(partial, "ids", None) and partial.ids.repeats)
        if repeated or (partial.flaws and not self.drop_invalid):
            refuse_rows_of(self)
        dropped, said = self.report(partial).settled(self.drop_invalid)
        return dropped, [*warnings, *said]

    def report(self, sums: Any) -> RowReport:
        """What is wrong with the rows of a pass that counted all of them."""
        rows = Numbering(
            tuple(file.path.name for file in self.source.files),
            tuple(sums.read.get(at, 0) for at in range(len(self.source.files))),
        )
        read = sum(sums.read.values())
        # Rows that another portion of the log holds are not read here, and are not wrong.
        bad = min(read - sums.rows, sum(flaws.count for flaws in sums.flaws.values()))
        return RowReport(
            self.source.name, read, bad, tuple(sums.flaws.values()), rows, self.columns.listed(), self.columns.reward
        )  # fmt: skip

    def most_clusters(self, columns: int) -> int:
        """So many clusters are kept apart at most."""
        return self.budget.most_clusters(columns)

    def described(self, n: int | str) -> str:
        """The log in words."""
        parts = [f"n={n}", f"n_actions={self.n_actions}", f"files={len(self.source.files)}", *self.known]
        return f"ScannedLog({', '.join(parts)})"


def csv_types(table: Source, roles: Columns) -> dict[str, Any]:
    """Columns that are numbers in the first block are numbers in all; those with fractions later on as well. Labels
    stay as they are written, unless all are whole numbers."""
    import pyarrow as pa
    import pyarrow.types as t

    if table.files[0].format != "csv":
        return {}
    named = (roles.reward, roles.propensity, roles.sampling_weight)
    numeric = {*map(str, named), *(roles.contexts or ()), *(roles.metric or ())}
    labels = {roles.action, roles.cluster, roles.id, *(roles.segment or ())}
    parts = {name for file in table.files for name, _ in file.parts}
    types: dict[str, Any] = {}
    for name, kind in table.types:
        if name in parts or (t.is_null(kind) and name not in labels):
            continue
        if name in numeric:
            types[name] = pa.float64() if t.is_integer(kind) else kind
        elif name in labels or (name != roles.timestamp and (t.is_integer(kind) or t.is_boolean(kind))):
            types[name] = kind if is_text(kind) and not t.is_null(kind) else Written(t.is_integer(kind))
        else:
            types[name] = kind
    counted = [name for name, kind in types.items() if kind == Written(True)]
    exact = table.files[0].exact(counted)
    return types | {name: Written(False) for name in counted if name not in exact}


def first_rows(table: Source, tasks: tuple[Task, ...], types: dict[str, Any], size: int = PROBE) -> tuple[Source, Ints]:
    """The first rows as a table, from as many files as hold them, and their places."""
    import pyarrow as pa

    parts, places, left = [], [], size
    for task in tasks:
        at = task.first
        for batch in batches(task, table.names, size, types) if left > 0 else ():
            part = batch.slice(0, left)
            parts.append(pa.Table.from_batches([part]))
            places.append((task.number << FILE_BITS) + at + np.arange(part.num_rows))
            at, left = at + batch.num_rows, left - part.num_rows
            if left <= 0:
                break
    if left == size:
        raise LogError(f"{table.name} has no rows: expected at least 2.")
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks().to_batches()[0]
    return as_source(rows, table.name, (tasks[0].file.path.name, tasks[0].first)), np.concatenate(places)
