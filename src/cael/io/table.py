"""From a table to a log: every column read once, every row checked, nothing dropped silently."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError, LogError, PolicyError
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.encode import Actions, matrix, read_actions, told
from cael.io.numpy_files import load_log, load_policy
from cael.io.policy_columns import Rows, build
from cael.io.roles import Columns, as_columns, resolve
from cael.io.sources import Source, open_source
from cael.io.specs import PolicySpec, parse
from cael.log.logged import LoggedData
from cael.policies.policy import FromModel, LoggedOnly, Policy, probabilities
from cael.policies.propensity import estimate_logging, warning


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

    def policy(self, spec: str | Mapping[str, Any] | PolicySpec | Policy) -> Policy:
        """A policy on the rows of this log, from a spec such as 'choice:best' (see the guide), or a policy as it is."""
        if isinstance(spec, Policy):
            return spec
        if self._rows is not None:
            policy = build(spec, self._rows, self.log.logging)
            if isinstance(policy, FromModel):  # a function or a model: one look at it before the whole log
                some = self.log.take(np.arange(min(16, len(self.log))))
                probabilities(policy, next(some.batches(width=some.n_actions)))
            return policy
        found = parse(spec) if not str(spec).endswith(".npy") else str(spec)
        if isinstance(found, str):
            return load_policy(found, self.source)
        if found.kind not in ("python", "uniform", "logging", "table"):
            raise PolicyError(f"policy '{found}': an .npz log has arrays, not columns; name an array or an .npy file.")
        return build(found, Rows(Source(self.source, ()), Actions(self.actions), None, None), self.log.logging)


def open_log(
    source: Any,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    actions: Any = None,
    n_actions: int | None = None,
    logging: str | Mapping[str, Any] | Policy | None = None,
    drop_invalid: bool = False,
    seed: int = 0,
) -> LogTable:
    """Read a log and keep the table at hand, for policies and segments that are columns of it.

    source : a file (Parquet, CSV, Arrow, .npz), a folder, a pattern, or a table of pandas, polars, DuckDB, pyarrow.
    columns : which column is what, as `Columns` or a mapping; others are found by conventional names.
    actions : a table that lists all actions, with a column `action` and features in the others.
    n_actions : the number of actions, where these are numbers 0 .. n_actions-1.
    logging : the logging policy, in any of the forms of a policy; "estimate" estimates it, "none" does without.
        By default the propensity column is used, and without one the logging policy is estimated, with a warning.
    drop_invalid : leave out rows with flaws, and say so, instead of refusing the log.
    seed : of the folds of an estimated logging policy.
    """
    if isinstance(source, str | Path) and str(source).endswith(".npz"):
        given = {"columns": columns, "actions": actions, "n_actions": n_actions, "logging": logging}
        told = [name for name, value in given.items() if value is not None] + ["drop_invalid"] * drop_invalid
        if told:
            raise InputError(
                f"{source}: {told[0]} does not go with an .npz log, whose arrays have fixed names (actions, rewards, "
                "contexts, propensities, logging, action_features, clusters, timestamps)."
            )
        return _from_npz(Path(source))
    table = open_source(source)
    try:
        roles = resolve(table, as_columns(columns))
        reading = _read(table, roles, actions, n_actions, use_propensity=_wants_propensity(logging, roles))
        kept, dropped = _checked(table, reading.n, reading.flaws, drop_invalid)
        rows = Rows(table, reading.actions, kept, roles.id)
        log, notes, warned = _log(reading, rows, logging, seed)
    except InputError as error:
        if table.name in str(error):
            raise
        raise type(error)(f"{table.name}: {error}") from None
    table_ = LogTable(
        log=log, actions=reading.actions.labels, columns=roles, rows_read=reading.n, dropped=dropped,
        segments=tuple((name, rows.only(labels)) for name, labels in reading.segments),
        notes=(columns_found(roles), *reading.notes, *notes), warnings=(*_said(dropped, reading.n, kept), *warned),
        source=table.name, _rows=rows,
    )  # fmt: skip
    log.with_table(table_)
    return table_


def read(
    source: Any,
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    actions: Any = None,
    n_actions: int | None = None,
    logging: str | Mapping[str, Any] | Policy | None = None,
    drop_invalid: bool = False,
    seed: int = 0,
) -> LoggedData:
    """A log from a file, a folder, a pattern, or a table of pandas, polars, DuckDB or pyarrow.

    The arguments are those of `cael.io.open_log`, which also gives the policies and segments that are columns of the
    same table. What it has to say, such as rows that were left out, comes as Python warnings.
    """
    found = open_log(
        source, columns, actions=actions, n_actions=n_actions, logging=logging, drop_invalid=drop_invalid, seed=seed
    )
    for each in found.warnings:
        python_warnings.warn(each, stacklevel=2)
    return found.log


@final
@dataclass(frozen=True, eq=False)
class _Reading:
    """The columns as arrays, all rows, with their flaws."""

    n: int
    contexts: Floats
    numbers: Ints
    rewards: Floats
    propensities: Floats | None
    clusters: Array | None
    timestamps: Array | None
    segments: list[tuple[str, Array]]
    actions: Actions
    flaws: list[Flaw]
    notes: list[str]
    places: Ints


def _wants_propensity(logging: Any, roles: Columns) -> bool:
    return roles.propensity is not None and logging not in ("estimate", "none")


def _read(table: Source, roles: Columns, action_table: Any, n_actions: int | None, *, use_propensity: bool) -> _Reading:
    table.load(roles.listed() if use_propensity else replace(roles, propensity=None).listed())
    rewards, wrong = cells.numbers(str(roles.reward), table.chunks(str(roles.reward)))
    n = len(rewards)
    if n == 0:
        raise LogError(f"{table.name} has no rows: expected at least 2.")
    numbers, actions, found, notes = read_actions(table, str(roles.action), action_table, n_actions)
    wrong = [*found, *wrong]
    propensities = clusters = timestamps = None
    if use_propensity:
        propensities, found = cells.numbers(str(roles.propensity), table.chunks(str(roles.propensity)))
        masks = {"is not above 0": propensities <= 0, "is above 1": propensities > 1}
        wrong += [*found, *cells.flaws(str(roles.propensity), masks, propensities)]
    contexts, more, found = matrix(table, roles.contexts or (), n)
    notes, wrong = [*notes, *more], [*wrong, *found]
    if roles.cluster is not None:
        codes, labels, found = cells.labels(roles.cluster, table.chunks(roles.cluster))
        clusters, wrong = np.array([*labels, labels[0]] if labels else [0])[codes], [*wrong, *found]
    if roles.timestamp is not None:
        timestamps, found = cells.times(roles.timestamp, table.chunks(roles.timestamp))
        wrong += found
    if roles.id is not None:
        wrong += _repeated(roles.id, table)
    segments = [(name, _segment(name, table)) for name in roles.segment or ()]
    return _Reading(
        n, contexts, numbers, rewards, propensities, clusters, timestamps, segments, actions, wrong, notes,
        table.row_places(n),
    )  # fmt: skip


def _repeated(column: str, table: Source) -> list[Flaw]:
    codes, distinct, found = cells.labels(column, table.chunks(column))
    first = np.full(len(distinct) + 1, -1, dtype=np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    again = np.flatnonzero((first[codes] != np.arange(len(codes))) & (codes >= 0))
    if len(again):
        found = [*found, Flaw(column, "repeats the id of an earlier decision", again, repr(distinct[codes[again[0]]]))]
    return found


def _segment(column: str, table: Source) -> Array:
    codes, distinct, _ = cells.labels(column, table.chunks(column))
    return np.array([*map(str, distinct), "(missing)"])[codes]


def _checked(
    table: Source, n: int, wrong: list[Flaw], drop_invalid: bool
) -> tuple[Ints | None, tuple[tuple[str, int], ...]]:
    """The rows to keep (None: all), and why the others are left out; an error where that was not asked for."""
    if not wrong:
        return None, ()
    bad = np.zeros(n, dtype=bool)
    for flaw in wrong:
        bad[flaw.rows] = True
    said = "; ".join(told(flaw, table) for flaw in wrong)
    if not drop_invalid:
        raise LogError(
            f"{table.name}: {int(bad.sum()):,} of {n:,} rows are invalid: {said}. Rows are counted from 0. Correct "
            "them, or leave them out knowingly with drop_invalid=True (--drop-invalid)."
        )
    if bad.all():
        raise LogError(f"{table.name}: every one of the {n:,} rows is invalid: {said}.")
    return np.flatnonzero(~bad), tuple((f"column {flaw.column!r} {flaw.what}", len(flaw.rows)) for flaw in wrong)


def _said(dropped: tuple[tuple[str, int], ...], n: int, kept: Ints | None) -> list[str]:
    if kept is None:
        return []
    why = "; ".join(f"{reason} ({rows:,})" for reason, rows in dropped)
    return [f"{n - len(kept):,} of {n:,} rows were left out because they are invalid: {why}."]


def columns_found(roles: Columns) -> str:
    listed = {role: getattr(roles, role) for role in ("action", "reward", "propensity", "cluster", "timestamp", "id")}
    told = [f"{role} = {name!r}" for role, name in listed.items() if name is not None]
    contexts = roles.contexts or ()
    told.append(
        f"contexts = {', '.join(map(repr, contexts[:8]))}{', ...' if len(contexts) > 8 else ''}"
        if contexts
        else "no contexts"
    )
    if roles.segment:
        told.append(f"segments = {', '.join(map(repr, roles.segment))}")
    return f"Columns: {'; '.join(told)}."


def _log(
    reading: _Reading, rows: Rows, logging: str | Mapping[str, Any] | Policy | None, seed: int
) -> tuple[LoggedData, list[str], list[str]]:
    def made(propensities: Floats | None, policy: Policy | None) -> LoggedData:
        return LoggedData(
            rows.only(reading.contexts), rows.only(reading.numbers), rows.only(reading.rewards),
            None if propensities is None else rows.only(propensities),
            logging=policy, n_actions=len(reading.actions), action_features=reading.actions.features,
            clusters=None if reading.clusters is None else rows.only(reading.clusters),
            timestamps=None if reading.timestamps is None else rows.only(reading.timestamps),
        ).placed(rows.only(reading.places))  # fmt: skip

    if logging == "none" or (logging is None and reading.propensities is not None):
        return made(reading.propensities, None), [], []
    if logging is None or logging == "estimate":
        log = made(None, None)
        found = estimate_logging(log, seed=seed)
        if found.trained_on < len(log) / 2:
            note = [f"The logging policy was estimated from {found.trained_on:,} rows for each fold."]
        else:
            note = []
        return made(None, found), note, [warning(found, log.contexts.shape[1])]
    if isinstance(logging, str) and logging.strip() == "logging":
        raise InputError("logging='logging' defines the logging policy by itself; name a column, a file or an object.")
    policy = logging if isinstance(logging, Policy) else build(logging, rows, None)
    if isinstance(policy, LoggedOnly):
        values = np.asarray(policy.logged)
        propensities = np.ones(reading.n)
        propensities[np.arange(reading.n) if rows.kept is None else rows.kept] = values
        return made(propensities, None), [], []
    return made(reading.propensities, policy), [], []


def _from_npz(path: Path) -> LogTable:
    log = load_log(path)
    table = LogTable(
        log=log, actions=tuple(range(log.n_actions)), columns=Columns(), segments=(), rows_read=len(log), dropped=(),
        notes=(), warnings=(), source=str(path), _rows=None,
    )  # fmt: skip
    log.with_table(table)
    return table
