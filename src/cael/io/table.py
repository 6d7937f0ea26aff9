"""From a table to a log: every column read once, every row checked, nothing dropped silently."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from cael.common.types import Array, Ints
from cael.common.visible import visible
from cael.errors import InputError, LogError, PolicyError
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.eligibility import calendar_of, named_eligible
from cael.io.encode import Actions, context_names, read_actions
from cael.io.logging_models import NONE, WORD, leaves_propensities, logging_model
from cael.io.numpy_files import load_log, load_policy
from cael.io.originals import Originals
from cael.io.policy_columns import Rows, build, guess
from cael.io.roles import Columns, as_columns, resolve
from cael.io.sources import Source, open_source
from cael.io.specs import PolicySpec, is_spec, parse
from cael.log.flaws import REPEATS, Flaws, Numbering, RowReport, contradiction, counted
from cael.log.keys import label_array
from cael.log.logged import LoggedData
from cael.log.pieces import Door, RowArrays, row_arrays, segment_of
from cael.log.row_checks import Contradicted
from cael.policies.from_model import FromModel
from cael.policies.given import PolicyLike, policy_on
from cael.policies.labelled import Names
from cael.policies.policy import LoggedOnly, Policy, probabilities
from cael.policies.propensity import LoggingModel, estimate_logging, warning


@final
@dataclass(frozen=True, eq=False, repr=False)
class LogTable:
    """A log and the table that it was read from; made by `cael.io.open_log`.

    log: the log. actions: labels of the actions, in the order of their numbers. columns: which column is what.
    segments: (name, labels (n,)) pairs. rows_read: rows of the table. dropped: (reason, rows) pairs, for rows that
    were left out because the caller asked for it. notes: what was done on the way. warnings: what to worry about.
    """

    log: LoggedData
    actions: tuple[Any, ...]
    columns: Columns
    segments: tuple[tuple[str, Array], ...]
    rows_read: int
    dropped: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    source: str
    _rows: Rows | None

    def __repr__(self) -> str:
        return f"LogTable({self.source}: {self.log!r})"

    def names(self, rows: slice | Ints) -> Names:
        """What the log calls its actions, and these of its rows."""
        if self._rows is None:
            return Names(self.actions, False, len(self.log), rows)
        rewards = tuple(filter(None, (self.columns.reward, *(self.columns.metric or ()))))
        return names_of(self._rows, len(self.log), rows, rewards)

    def policy(self, spec: PolicyLike | PolicySpec) -> Policy:
        """A policy on the rows of this log, from a spec such as 'choice:best' (see the guide), or from whatever else
        may stand where a policy is expected: a fitted Pipeline, a frame of probabilities, chosen labels, a function."""
        if not is_spec(spec):
            return policy_on(spec, self.log.names)
        if self._rows is not None:
            policy = build(spec, self._rows, self.log.logging).matched(self.log.names)
            learned = getattr(policy, "contexts", None)
            if learned is not None:
                refuse_other_contexts(learned, self.context_names)
            if isinstance(policy, FromModel):  # a function or a model: one look at it before the whole log
                head = self.log.take(np.arange(min(16, len(self.log))))
                probabilities(policy, next(head.batches(width=head.n_actions)))
            return policy
        parsed = parse(spec) if not str(spec).endswith(".npy") else str(spec)
        if isinstance(parsed, str):
            return load_policy(parsed, self.source)
        if parsed.kind not in ("python", "learned", "uniform", "logging", "table"):
            raise PolicyError(f"policy '{parsed}': an .npz log has arrays, not columns; name an array or an .npy file.")
        return build(parsed, Rows(Source(self.source, ()), Actions(self.actions), None, None), self.log.logging)

    def label_of(self, text: str) -> str:
        """What a policy that is given by a text is called: with its kind, where the columns say that."""
        parsed = parse(text)
        if isinstance(parsed, str) and self._rows is not None:
            return str(guess(parsed, self._rows.source))
        return text

    def labels(self, column: str) -> Array:
        """The labels (n,) of a column of the table, for segments."""
        known = dict(self.segments)
        if column in known:
            return known[column]
        if self._rows is None:
            raise InputError(f"{self.source} has arrays, not columns: give labels, one per row, not {column!r}.")
        self._rows.source.need(column)
        names, codes = segment_of(column, self._rows.source)
        return self._rows.only(np.array(names)[codes])

    @cached_property
    def context_names(self) -> tuple[str, ...] | None:
        """A name for each context as a number, a value of a text among them; None where the log has no such table."""
        names = None if self._rows is None else context_names(self._rows.source, self.columns.contexts or ())
        return names if names is not None and len(names) == self.log.contexts.shape[1] else None


def refuse_other_contexts(learned: tuple[str, ...] | None, there: tuple[str, ...] | None) -> None:
    """Refuse a policy that was learned from other contexts, or from these in another order."""
    if learned is not None and there is not None and learned != there:
        raise PolicyError(
            f"the policy was learned from the contexts {', '.join(learned[:8])}; this log has {', '.join(there[:8])}. "
            "Name the same columns in the same order (contexts=, --contexts)."
        )


def open_log(
    source: Any,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    actions: Any = None,
    n_actions: int | None = None,
    logging: PolicyLike | None = None,
    eligible: Any = None,
    drop_invalid: bool = False,
    seed: int = 0,
) -> LogTable:
    """Read a log and keep the table at hand, for policies and segments that are columns of it.

    source : a file (Parquet, CSV, Arrow, .npz), a folder, a pattern, or a table of pandas, polars, DuckDB, pyarrow.
    columns : which column is what, as `Columns` or a mapping; others are found by conventional names.
    actions : a table that lists all actions, with a column `action` and features in the others.
    n_actions : the number of actions, where these are numbers 0 .. n_actions-1.
    logging : the logging policy, in any of the forms of a policy; "estimate", "estimate:boosting" or a `LoggingModel`
        estimates it, "none" does without.
        By default the propensity column is used, and without one the logging policy is estimated, with a warning.
    eligible : the actions that could be taken, where these are not all: the name of a column of lists; or, where
        `columns` name a period, a table with the columns `action` and `period` (or a mapping {period: actions}).
    drop_invalid : leave out rows with flaws, and say so, instead of refusing the log.
    seed : of the folds of an estimated logging policy.
    """
    if isinstance(source, str | Path) and str(source).endswith(".npz"):
        options = {"columns": columns, "actions": actions, "n_actions": n_actions, "logging": logging}
        options |= {"eligible": eligible, "drop_invalid": drop_invalid or None}
        refused = [name for name, value in options.items() if value is not None]
        if refused:
            raise InputError(
                f"{source}: {refused[0]} does not go with an .npz log, whose arrays have fixed names (actions, "
                "rewards, contexts, propensities, logging, action_features, clusters, timestamps, eligible_*)."
            )
        log = load_log(source)
        return _known(
            LogTable(log, tuple(range(log.n_actions)), Columns(), (), len(log), (), (), (), str(source), None)
        )
    table = open_source(source)
    try:
        given, sets = named_eligible(as_columns(columns), eligible)
        roles = resolve(table, given)
        used = replace(roles, propensity=None) if leaves_propensities(logging) else roles
        reading = _read(table, used, sets, actions, n_actions)
        dropped, warned = _report(table, used, reading).settled(drop_invalid)
        rows = Rows(table, reading.actions, reading.kept, roles.id)
        log, notes, doubts = _log(reading, rows, logging, seed)
    except Contradicted as error:
        raise _contradiction(table, reading, error.flaws) from None
    except InputError as error:
        if table.name in str(error):
            raise
        raise type(error)(f"{table.name}: {error}") from None
    segments = tuple(
        (name, rows.only(np.array(labels)[codes]))
        for name, (labels, codes) in zip(roles.segment or (), reading.rows.segments, strict=True)
    )
    notes = [*table.notes, columns_found(roles), *reading.notes, *notes]
    return _known(
        LogTable(
            log, reading.actions.labels, roles, segments, reading.n, dropped, tuple(notes), (*warned, *doubts),
            table.name, rows,
        )
    )  # fmt: skip


def names_of(table: Rows, count: int, rows: slice | Ints | None = None, outcomes: tuple[str, ...] = ()) -> Names:
    """What a log of so many rows calls its actions, and those of its rows that are asked about."""
    inputs = Originals(table.source, table.kept, table.id, table.source.given, outcomes)
    return Names(table.actions.labels, table.actions.hidden, count, rows, inputs)


NAMED = {"times": "timestamps", "sampling": "sampling_weights"}
"""What `LoggedData` calls the columns of a `Piece`."""


def _known(table: LogTable) -> LogTable:
    """The table, which its log then knows."""
    table.log.with_table(table)
    return table


def read(
    source: Any,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    actions: Any = None,
    n_actions: int | None = None,
    logging: PolicyLike | None = None,
    eligible: Any = None,
    drop_invalid: bool = False,
    seed: int = 0,
) -> LoggedData:
    """A log from a file, a folder, a pattern, or a table of pandas, polars, DuckDB or pyarrow.

    The arguments are those of `cael.io.open_log`, which also gives the policies and segments that are columns of the
    same table. What it has to say, such as rows that were left out, comes as Python warnings.
    """
    table = open_log(
        source, columns, actions=actions, n_actions=n_actions, logging=logging, eligible=eligible,
        drop_invalid=drop_invalid, seed=seed,
    )  # fmt: skip
    for message in table.warnings:
        python_warnings.warn(visible(message), stacklevel=2)
    return table.log


@final
@dataclass(frozen=True, eq=False)
class _Reading:
    """All rows of a table, with what is wrong in them. kept: those without a flaw; None: all."""

    rows: RowArrays
    actions: Actions
    kept: Ints | None
    notes: list[str]

    @property
    def n(self) -> int:
        return len(self.rows.arrays["actions"])


def _read(table: Source, roles: Columns, sets: Any, action_table: Any, n_actions: int | None) -> _Reading:
    """sets: a table of eligible actions, where they are no column."""
    table.load(roles.listed())
    numbers, actions, flaws, notes = read_actions(table, str(roles.action), action_table, n_actions)
    door = Door(
        roles, actions, tuple(roles.segment or ()), categories=True, look=True,
        calendar=calendar_of(roles, sets, actions),
    )  # fmt: skip
    rows = row_arrays(table, door, (numbers, flaws), _clusters, _codes)
    rows = replace(rows, flaws=(*rows.flaws, *_repeats(roles.id, rows)))
    return _Reading(rows, actions, rows.sound if rows.flaws else None, [*notes, *rows.notes])


def _clusters(column: str, source: Source) -> tuple[Array, list[Flaw]]:
    codes, labels, flaws = cells.labels(column, source.labels(column))
    return label_array([*labels, labels[0]] if labels else [0])[codes], flaws


def _codes(column: str, source: Source) -> tuple[Ints, list[Flaw]]:
    codes, _, flaws = cells.labels(column, source.labels(column))
    return codes, flaws


def _repeats(column: str | None, rows: RowArrays) -> list[Flaw]:
    """Of the rows without a flaw, those whose id an earlier one has."""
    if column is None:
        return []
    sound = rows.sound
    first = np.unique(rows.arrays["ids"][sound], return_index=True)[1]
    return cells.flaws(column, {REPEATS: np.isin(np.arange(len(rows.arrays["ids"])), np.delete(sound, first))})


def _numbering(table: Source, n: int) -> Numbering:
    return Numbering(tuple(file.path.name for file in table.files) if table.sizes else (), table.sizes or (n,))


def _placed(flaws: Iterable[Flaw], rows: Numbering) -> list[Flaws]:
    """The flaws with the places of their rows in the files."""
    found = counted(flaws, 0, 0).values()
    return [replace(flaw, places=tuple(rows.place(row) for _, row in flaw.places)) for flaw in found]


def _report(table: Source, roles: Columns, reading: _Reading) -> RowReport:
    n, rows = reading.n, _numbering(table, reading.n)
    kept = n if reading.kept is None else len(reading.kept)
    return RowReport(
        table.name, n, n - kept, tuple(_placed(reading.rows.flaws, rows)), rows, roles.listed(), roles.reward
    )  # fmt: skip


def _contradiction(table: Source, reading: _Reading, flaws: list[Flaw]) -> LogError:
    """The error about a logging policy, with the rows of the table; flaws: of those that are kept."""
    rows = _numbering(table, reading.n)
    if reading.kept is not None:
        flaws = [replace(flaw, rows=reading.kept[flaw.rows]) for flaw in flaws]
    return LogError(f"{table.name}: {contradiction(_placed(flaws, rows), rows)}")


def columns_found(roles: Columns) -> str:
    shown = ("action", "reward", "propensity", "sampling_weight", "cluster", "timestamp", "id")
    listed = {role: getattr(roles, role) for role in shown}
    parts = [f"{role.replace('_', ' ')} = {name!r}" for role, name in listed.items() if name is not None]
    if roles.eligible is not None:
        parts.append(f"eligible actions = {roles.eligible!r}" + (f" by {roles.period!r}" if roles.period else ""))
    contexts = roles.contexts or ()
    more = ", ..." if len(contexts) > 8 else ""
    parts.append(f"contexts = {', '.join(map(repr, contexts[:8]))}{more}" if contexts else "no contexts")
    if roles.metric:
        parts.append(f"metrics = {', '.join(map(repr, roles.metric))}")
    if roles.segment:
        parts.append(f"segments = {', '.join(map(repr, roles.segment))}")
    return f"Columns: {'; '.join(parts)}."


def _log(
    reading: _Reading, rows: Rows, logging: PolicyLike | None, seed: int
) -> tuple[LoggedData, list[str], list[str]]:
    """The log with its logging policy, notes and warnings."""
    values: dict[str, Any] = {
        name: None if array is None else rows.only(array) for name, array in reading.rows.arrays.items()
    }
    arrays = {NAMED.get(name, name): array for name, array in values.items() if name != "ids"}
    arrays["metrics"] = {name: rows.only(array) for name, array in reading.rows.metrics.items()}
    k, features, places = len(reading.actions), reading.actions.features, rows.source.row_places(reading.n)
    eligible = reading.rows.eligible
    if eligible is not None and rows.kept is not None:
        eligible = eligible.part(rows.kept)

    def log_with(policy: Policy | None) -> LoggedData:
        log = LoggedData(**arrays, logging=policy, n_actions=k, action_features=features, eligible=eligible)
        return log.placed(rows.only(places))

    none = isinstance(logging, str) and logging.strip() == NONE
    if none or (logging is None and arrays["propensities"] is not None):
        return log_with(None), [], []
    how = LoggingModel(seed=seed) if logging is None or logging == WORD else logging_model(logging)
    if how is not None:
        log = log_with(None)
        estimated = estimate_logging(log, model=how.model, folds=how.folds, C=how.C, seed=how.seed)
        few = estimated.trained_on < len(log) / 2
        note = f"The logging policy was estimated from {estimated.trained_on:,} rows for each fold."
        return log_with(estimated), [note] if few else [], [warning(estimated, log.contexts.shape[1])]
    if isinstance(logging, str) and logging.strip() == "logging":
        raise InputError("logging='logging' is circular; name a column, a file or an object.")
    policy = build(logging, rows, None) if is_spec(logging) else logging
    policy = policy_on(policy, names_of(rows, len(arrays["rewards"])))
    if isinstance(policy, LoggedOnly):
        arrays["propensities"] = np.asarray(policy.logged)
        return log_with(None), [], []
    return log_with(policy), [], []
