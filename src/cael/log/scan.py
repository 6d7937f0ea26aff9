"""scan: a log in files, from what the user says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cael.engine.actions_pass import distinct_actions
from cael.engine.predictions import predictions_of
from cael.errors import InputError, LogError
from cael.io import cells
from cael.io.eligibility import calendar_of, named_eligible
from cael.io.encode import Actions, action_table, from_log
from cael.io.logging_models import NONE, WORD, leaves_propensities
from cael.io.reading import Task, batches, found_files, opened, tasks_of
from cael.io.roles import Columns, as_columns, resolve
from cael.io.sources import Source
from cael.io.table import columns_found
from cael.log.budget import Budget, bytes_of
from cael.log.scanned import ScannedLog, csv_types


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
