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
from cael.engine.actions_pass import distinct_actions
from cael.engine.nuisances import estimated_logging
from cael.engine.predictions import Predictions, predictions_of
from cael.engine.row_pass import refuse_rows_of
from cael.errors import InputError, LogError
from cael.io import cells
from cael.io.csv_files import Written
from cael.io.eligibility import Calendar, calendar_of, named_eligible
from cael.io.encode import Actions, action_table, from_log
from cael.io.kinds import is_text
from cael.io.logging_models import NONE, WORD, leaves_propensities, logging_model
from cael.io.missing import Filling, fillings_of
from cael.io.originals import refuse_outcomes
from cael.io.reading import Task, batches, fingerprint_of, found_files, opened, tasks_of
from cael.io.roles import Columns, as_columns, resolve
from cael.io.sources import Source
from cael.io.table import columns_found
from cael.log.budget import Budget, bytes_of
from cael.log.flaws import Numbering, RowReport
from cael.log.held import PROBE
from cael.log.keys import FILE_BITS
from cael.log.logged import LogKey, at_rows, key_of
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
        roles = [role for role in ("propensity", "cluster", "timestamp") if getattr(self.columns, role) is not None]
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
        """How its columns become arrays. categories: whether contexts may be text."""
        if contexts and not categories:
            refuse_text_contexts(self.source, self.columns)
        unneeded = {
            "contexts": not contexts, "timestamp": not times, "cluster": not clusters, "propensity": not propensities,
            "id": not ids,
        }  # fmt: skip
        roles = replace(self.columns, **{role: None for role, without in unneeded.items() if without})
        fillings = self.fillings if contexts else None
        return Door(
            roles, self.actions, segments, categories, self.calendar, self.measures, fillings, portion=self.portion
        )

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
        if len(head) == 0 and not self.drop_invalid:
            refuse_rows_of(self)
        return head if len(head) else self.probe()

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
        return RowReport(self.source.name, read, bad, tuple(sums.flaws.values()), rows, self.columns.listed())

    def most_clusters(self, columns: int) -> int:
        """So many clusters are kept apart at most."""
        return self.budget.most_clusters(columns)

    def described(self, n: int | str) -> str:
        """The log in words."""
        parts = [f"n={n}", f"n_actions={self.n_actions}", f"files={len(self.source.files)}", *self.known]
        return f"ScannedLog({', '.join(parts)})"


def scan(
    source: Any,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    actions: Any = None,
    n_actions: int | None = None,
    logging: Any = None,
    predictions: str | None = None,
    eligible: Any = None,
    drop_invalid: bool = False,
    memory: int | str | None = None,
    workers: int | None = None,
    client: Any = None,
) -> ScannedLog:
    """A log in files that need not fit into memory. Nothing but the action column is read until it is evaluated.

    source : a file (Parquet, CSV, Arrow), a folder, a pattern, or a list of them.
    columns, actions, n_actions, eligible, drop_invalid : see `cael.io.open_log`. Without `actions` or `n_actions`, the
        action column is read once to find the actions.
    logging : the logging policy, where all its probabilities are known: in the forms of a target policy, such as
        "dense:mu_*", or a function of contexts. Without it, CAEL fits it to the propensities. "estimate",
        "estimate:boosting" or a `LoggingModel` estimates it from a sample of the rows, and "none" does without; neither
        looks at a propensity column. By default that column is used, and without one the logging policy is estimated,
        with a warning.
    predictions : columns with predictions of the reward, which DM, DR and SNDR then use: "LOGGED+TARGET" names that of
        the logged action and that of the target's actions; a pattern, or a column of lists, those of all actions.
        Without it, they train a ridge regression in a pass of its own.
    memory : how much the program may take, such as "2GiB" or a number of bytes; half of what is free by default.
    workers : threads that read; as many as there are cores by default.
    client : a Dask client, or the address of a scheduler; its workers read the files in place of threads, so they must
        see them under the same names. Or a function client(f, tasks) that gives f(task) for each task, in order, as
        `map` does: with it other engines can be used, such as joblib's backends or Spark.
    """
    word = logging.strip() if isinstance(logging, str) else ""
    if word == "logging":
        raise InputError("logging='logging' is circular; name columns, a table or a function.")
    files, name = found_files(source)
    files = files if client is None else tuple(file.anywhere() for file in files)
    table = opened(files, name)
    given, sets = named_eligible(as_columns(columns), eligible)
    roles = resolve(table, given)
    tasks = tasks_of(files)
    budget = Budget(bytes_of(memory), workers)
    types = csv_types(table, roles)
    try:
        known_actions, notes = actions_of_log(table, tasks, roles, actions, n_actions, types, budget)
        calendar = calendar_of(roles, sets, known_actions)
    except InputError as error:
        raise (error if name in str(error) else type(error)(f"{name}: {error}")) from None
    notes = [*table.notes, columns_found(roles), *notes]
    if leaves_propensities(logging):
        roles = replace(roles, propensity=None)
    if word == NONE or logging is None:
        logging = WORD if word != NONE and roles.propensity is None else None
    predicted = None if predictions is None else predictions_of(predictions, table, known_actions)
    log = ScannedLog(
        table, tasks, roles, known_actions, predicted, budget, drop_invalid, budget.workers, client, tuple(notes),
        logging, calendar,
    )  # fmt: skip
    if log.rows == 0:
        raise LogError(f"{name} has no rows: expected at least 2.")
    return replace(log, notes=(*notes, *(filling.note for filling in log.fillings.values() if filling.note)))


def csv_types(table: Source, roles: Columns) -> dict[str, Any]:
    """Columns that are numbers in the first block are numbers in all; those with fractions later on as well. Labels
    stay as they are written, unless all are whole numbers."""
    import pyarrow as pa
    import pyarrow.types as t

    if table.files[0].format != "csv":
        return {}
    numeric = {str(roles.reward), str(roles.propensity), *(roles.contexts or ()), *(roles.metric or ())}
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


def actions_of_log(
    table: Source, tasks: tuple[Task, ...], roles: Columns, given: Any, n_actions: int | None,
    types: dict[str, Any], budget: Budget,
) -> tuple[Actions, list[str]]:  # fmt: skip
    """The actions, from their table, from their number, or from a pass over the action column."""
    column = str(roles.action)
    if given is not None:
        return action_table(given, n_actions)
    if n_actions is not None:
        probe = next((batch for task in tasks for batch in batches(task, [column], 1024, types)), None)
        chunks = [] if probe is None else [probe.column(0)]
        _, distinct, _ = cells.labels(column, chunks)
        return from_log(column, distinct or [0], n_actions)
    distinct = distinct_actions(tasks, column, types, budget.workers)
    if not distinct:
        raise InputError(f"column {column!r} of {table.name} holds no action.")
    known, notes = from_log(column, sorted({*distinct, *table.actions}), None)
    return known, [*notes, f"The {len(known)} actions were found by reading column {column!r} once."]


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
