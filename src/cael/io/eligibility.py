"""Eligible actions from a column of lists, or from a table of the actions of each period, joined by a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np

from cael.common.types import Array, Ints
from cael.errors import InputError
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.encode import Actions, action_numbers, told
from cael.io.roles import CONVENTIONS, Columns, conventional
from cael.io.sources import Source, open_source
from cael.log.eligible import EMPTY, TWICE, Eligible, Sets, joined, sets_of

PERIOD = ("period",)
WITHOUT = "does not list the logged action"


@final
@dataclass(frozen=True, eq=False)
class Calendar:
    """The actions that are eligible in each period. labels: of the periods, in the order of the sets. name: of the
    table."""

    sets: Sets
    labels: tuple[Any, ...]
    name: str

    def __repr__(self) -> str:
        return f"Calendar({self.name}: {len(self.labels)} periods, {int(self.sets.hashes.sum()):x})"

    def codes(self, codes: Ints, distinct: list[Any]) -> Ints:
        """The set (n,) of each row, from codes into labels of periods; -1 where the table does not have it."""
        known, labels = {label: at for at, label in enumerate(self.labels)}, distinct
        if labels and isinstance(labels[0], str) != isinstance(self.labels[0], str):
            known, labels = {str(label): at for label, at in known.items()}, [str(label) for label in labels]
        place: Array = np.array([*(known.get(label, -1) for label in labels), -1], dtype=np.intp)
        return place[codes]


def named_eligible(columns: Columns, given: Any) -> tuple[Columns, Any]:
    """The columns with that of the eligible actions, and the table of them (None: it is named there, if there is one).

    given: what `eligible=` is: the name of a column; or, with a period, a table.
    """
    if given is None or columns.period is not None or not isinstance(given, str):
        return columns, given
    return replace(columns, eligible=given), None


def calendar_of(roles: Columns, given: Any, actions: Actions) -> Calendar | None:
    """The table of eligible actions, where there is one. given: a table or {period: actions}; else as roles name it."""
    table = given if given is not None else roles.eligible if roles.period is not None else None
    if table is None and roles.period is not None:
        raise InputError(
            f"the period {roles.period!r} is of no use without a table of eligible actions: give one with the columns "
            "action and period (eligible=, --eligible)."
        )
    if table is None:
        return None
    if roles.period is None:
        raise InputError(
            "a table of eligible actions is joined to the log by a column of periods: name it with the role period "
            "(columns={'period': ...}, --period)."
        )
    source = open_source(_as_table(table) if isinstance(table, Mapping) else table)
    return _calendar(source, roles.period, actions)


def _as_table(given: Mapping[Any, Any]) -> Any:
    import pyarrow as pa

    pairs = [(label, action) for label, actions in given.items() for action in actions]
    if not pairs:
        raise InputError("the table of eligible actions has no entry: expected {period: actions}.")
    periods, actions = zip(*pairs, strict=True)
    return pa.table({"action": pa.array(actions), "period": pa.array(periods)})


def _calendar(table: Source, period: str, actions: Actions) -> Calendar:
    """From one row for each action of each period."""
    name = f"the table of eligible actions {table.name}"
    columns = {
        "action": conventional(table, CONVENTIONS["action"]),
        "period": conventional(table, (period.lower(), *PERIOD)),
    }
    for role, column in columns.items():
        if column is None:
            raise InputError(f"{name} needs a column {role!r}; it has {', '.join(map(repr, table.names))}.")
    action, by = str(columns["action"]), str(columns["period"])
    table.load([action, by])
    numbers, wrong = action_numbers(action, table.chunks(action), actions)
    codes, labels, missing = cells.labels(by, table.chunks(by))
    if wrong or missing:
        raise InputError(
            f"{name}: {told([*wrong, *missing][0], table)}. An action table (actions=, --actions) or n_actions "
            "(--n-actions) lists actions that the log does not hold."
        )
    if not labels:
        raise InputError(f"{name} has no rows.")
    order = np.argsort(codes, kind="stable")
    eligible, flaws, _ = sets_of(np.bincount(codes, minlength=len(labels)), numbers[order], len(actions))
    if flaws[TWICE].any():
        label = labels[int(flaws[TWICE].argmax())]
        raise InputError(f"{name} lists an action twice in the period {label!r}.")
    return Calendar(eligible.sets.some(eligible.codes), tuple(labels), table.name)


def eligible_in(
    source: Source, roles: Columns, actions: Actions, logged: Ints, calendar: Calendar | None
) -> tuple[Eligible | None, list[Flaw]]:
    """The eligible actions of all rows of a table, and what is wrong with them. logged: (n,) the actions taken."""
    column = roles.of_eligible
    if column is None:
        return None, []
    by_period = calendar is not None
    eligible, wrong = _by_period(source, column, calendar) if calendar else _by_lists(source, column, actions)
    bad = np.zeros(len(logged), dtype=bool)
    for flaw in wrong:
        bad[flaw.rows] = True
    without = ~eligible.holds(logged[:, None])[:, 0] & ~bad & (logged >= 0)
    what = "is a period in which the logged action is not eligible" if by_period else WITHOUT
    return eligible, [*wrong, *cells.flaws(column, {what: without})]


def _by_period(source: Source, column: str, calendar: Calendar) -> tuple[Eligible, list[Flaw]]:
    codes, distinct, wrong = cells.labels(column, source.chunks(column))
    sets = calendar.codes(codes, distinct)
    unknown = np.flatnonzero((sets < 0) & (codes >= 0))
    if len(unknown):
        what = f"is not a period of the table of eligible actions {calendar.name}"
        wrong = [*wrong, Flaw(column, what, unknown, repr(distinct[codes[unknown[0]]]))]
    return Eligible(calendar.sets, np.maximum(sets, 0)), wrong


def _by_lists(source: Source, column: str, actions: Actions) -> tuple[Eligible, list[Flaw]]:
    parts, wrong, at, chunks = [], list[Flaw](), 0, source.chunks(column)
    as_actions = partial(action_numbers, actions=actions)
    while chunks:
        lengths, (numbers,), flaws = cells.lists(column, [chunks.pop(0)], as_actions)
        part, masks, _ = sets_of(lengths, np.asarray(numbers), len(actions))
        more = cells.flaws(column, {"is an empty list": masks[EMPTY], "lists an action twice": masks[TWICE]})
        wrong += [Flaw(flaw.column, flaw.what, flaw.rows + at, flaw.example) for flaw in (*flaws, *more)]
        parts.append(part)
        at += len(part)
    return joined(parts), _merged(wrong)


def _merged(wrong: list[Flaw]) -> list[Flaw]:
    """Flaws of one kind together."""
    kinds = dict.fromkeys(flaw.what for flaw in wrong)
    of_kind = ([flaw for flaw in wrong if flaw.what == what] for what in kinds)
    return [
        Flaw(flaws[0].column, flaws[0].what, np.concatenate([flaw.rows for flaw in flaws]), flaws[0].example)
        for flaws in of_kind
    ]
