"""Eligible actions from a column of lists, or from a table of the actions of each period, joined by a column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.encode import Actions, action_numbers, told
from cael.io.roles import CONVENTIONS, Columns, conventional
from cael.io.sources import Source, open_source
from cael.log.eligible import EMPTY, TWICE, Eligible, Sets, joined, sets_of

PERIOD = ("period",)
FROM, TO = ("from", "start", "valid_from", "from_period"), ("to", "end", "valid_to", "to_period")
WITHOUT = "does not list the logged action"
MOST_ENTRIES = 2 * 10**8
"""Entries of all sets together, 1.6 GB, that a table of time periods may come to."""


class Calendar(ABC):
    """The actions that are eligible in each period. sets: of them. name: of the table."""

    sets: Sets
    name: str

    @abstractmethod
    def codes(self, column: str, chunks: list[Any]) -> tuple[Ints, list[Flaw]]:
        """The set (n,) of each row, from the column of periods; -1 where the table has none."""

    def __repr__(self) -> str:
        return f"Calendar({self.name}: {len(self.sets)} sets, {int(self.sets.hashes.sum()):x})"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Periods(Calendar):
    """One set for each label of a period. labels: in the order of the sets."""

    sets: Sets
    labels: tuple[Any, ...]
    name: str

    def codes(self, column: str, chunks: list[Any]) -> tuple[Ints, list[Flaw]]:
        codes, distinct, wrong = cells.labels(column, chunks)
        known, labels = {label: at for at, label in enumerate(self.labels)}, distinct
        if labels and isinstance(labels[0], str) != isinstance(self.labels[0], str):
            known, labels = {str(label): at for label, at in known.items()}, [str(label) for label in labels]
        place: Array = np.array([*(known.get(label, -1) for label in labels), -1], dtype=np.intp)
        return place[codes], wrong


@final
@dataclass(frozen=True, eq=False, repr=False)
class Stretches(Calendar):
    """One set for each of the points (p,) at which a stretch begins or ends, and for each gap before, between and after
    them. place: (2 p + 1,) its set, -1 where nothing is eligible. timed: whether the points are times, in us."""

    sets: Sets
    points: Floats
    place: Ints
    timed: bool
    name: str

    def codes(self, column: str, chunks: list[Any]) -> tuple[Ints, list[Flaw]]:
        values, timed, wrong = _moments(column, chunks)
        if timed != self.timed:
            kinds = ("numbers", "times")
            raise InputError(
                f"column {column!r} holds {kinds[timed]}, and the table of eligible actions {self.name} has "
                f"{kinds[self.timed]} from which to which actions are eligible: expected the same kind."
            )
        return self.place[_slots(self.points, values)], wrong


def _slots(points: Floats, values: Floats) -> Ints:
    """Where values lie: 2 i before point i and after the one before it, 2 i + 1 at it."""
    i = np.searchsorted(points, values)
    slots: Ints = 2 * i + (points[np.minimum(i, len(points) - 1)] == values if len(points) else 0)
    return slots


def _moments(column: str, chunks: list[Any]) -> tuple[Floats, bool, list[Flaw]]:
    """Numbers, or times as microseconds, which float64 holds exactly; whether they are times; missing ones are NaN."""
    values, wrong = cells.times(column, chunks)
    if values.dtype.kind != "M":
        return values, False, wrong
    return np.where(np.isnat(values), np.nan, values.astype(np.int64).astype(np.float64)), True, wrong


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
    """From one row for each action and period, or for each action and time period."""
    name = f"the table of eligible actions {table.name}"
    action = conventional(table, CONVENTIONS["action"])
    by, begin, end = (conventional(table, names) for names in ((period.lower(), *PERIOD), FROM, TO))
    if action is None or (by is None and (begin is None or end is None)):
        what = "'action'" if action is None else f"'period' (or {period!r}), or two columns 'from' and 'to'"
        raise InputError(f"{name} needs a column {what}; it has {', '.join(map(repr, table.names))}.")
    table.load([each for each in (action, *([by] if by else [begin, end])) if each is not None])
    numbers, wrong = action_numbers(action, table.chunks(action), actions)
    if wrong:
        raise InputError(
            f"{name}: {told(wrong[0], table)}. An action table (actions=, --actions) or n_actions (--n-actions) lists "
            "actions that the log does not hold."
        )
    if not len(numbers):
        raise InputError(f"{name} has no rows.")
    return _periods(table, by, numbers, len(actions)) if by else _stretches(table, begin, end, numbers, len(actions))


def _periods(table: Source, by: str, numbers: Ints, k: int) -> Periods:
    codes, labels, missing = cells.labels(by, table.chunks(by))
    if missing:
        raise InputError(f"the table of eligible actions {table.name}: {told(missing[0], table)}.")
    order = np.argsort(codes, kind="stable")
    sets = _distinct(table, np.bincount(codes, minlength=len(labels)), numbers[order], k)
    return Periods(sets.sets.some(sets.codes), tuple(labels), table.name)


def _stretches(table: Source, begin: Any, end: Any, numbers: Ints, k: int) -> Stretches:
    """A missing end is none: the action is eligible from its beginning on, and likewise a missing beginning."""
    (first, timed, _), (last, too, _) = (_moments(column, table.chunks(column)) for column in (begin, end))
    first, last = np.where(np.isnan(first), -np.inf, first), np.where(np.isnan(last), np.inf, last)
    turned = np.flatnonzero(first > last)
    if len(turned) or timed != too:
        what = "hold numbers and times" if timed != too else f"are in the wrong order in {table.places(turned)}"
        raise InputError(f"the table of eligible actions {table.name}: its columns {begin!r} and {end!r} {what}.")
    points = np.unique(np.concatenate([first, last]))
    points = points[np.isfinite(points)]
    low = np.where(np.isfinite(first), _slots(points, first), 0)
    high = np.where(np.isfinite(last), _slots(points, last), 2 * len(points))
    counts = high - low + 1
    if counts.sum() > MOST_ENTRIES:
        raise InputError(
            f"the table of eligible actions {table.name} has {len(points):,} points of time at which the sets change, "
            f"{int(counts.sum()):,} entries in all: expected at most {MOST_ENTRIES:,}. Round its times, to days say."
        )
    owner = np.repeat(np.arange(len(numbers)), counts)
    slot = low[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.argsort(slot, kind="stable")
    used, lengths = np.unique(slot, return_counts=True)
    sets = _distinct(table, lengths, numbers[owner[order]], k)
    place = np.full(2 * len(points) + 1, -1)
    place[used] = sets.codes
    return Stretches(sets.sets, points, place, timed, table.name)


def _distinct(table: Source, lengths: Ints, numbers: Ints, k: int) -> Eligible:
    """The sets of a table, each action once."""
    eligible, flaws, _ = sets_of(lengths, numbers, k)
    if flaws[TWICE].any():
        raise InputError(
            f"the table of eligible actions {table.name} lists an action twice in {int(flaws[TWICE].sum()):,} of "
            f"{len(lengths):,} periods. Remove the repeated rows, or those that overlap."
        )
    return eligible


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
    sets, wrong = calendar.codes(column, source.chunks(column))
    missing = np.zeros(len(sets), dtype=bool)
    for flaw in wrong:
        missing[flaw.rows] = True
    what = f"is not a period of the table of eligible actions {calendar.name}"
    return Eligible(calendar.sets, np.maximum(sets, 0)), [*wrong, *cells.flaws(column, {what: (sets < 0) & ~missing})]


def _by_lists(source: Source, column: str, actions: Actions) -> tuple[Eligible, list[Flaw]]:
    parts, wrong, at, chunks = [], list[Flaw](), 0, source.chunks(column)
    as_actions = partial(action_numbers, actions=actions)
    while chunks:
        lengths, (numbers,), flaws = cells.lists(column, [chunks.pop(0)], as_actions)
        part, masks, _ = sets_of(lengths, np.asarray(numbers), len(actions))
        more = cells.flaws(column, {"is an empty list": masks[EMPTY], "lists an action twice": masks[TWICE]})
        wrong += [Flaw(flaw.column, _told(flaw.what), flaw.rows + at, flaw.example) for flaw in (*flaws, *more)]
        parts.append(part)
        at += len(part)
    return joined(parts), _merged(wrong)


def _told(what: str) -> str:
    """What is wrong, and where an action is unknown, how it becomes known."""
    return f"{what} (actions=, --actions, or n_actions, --n-actions, lists all)" if "not among" in what else what


def _merged(wrong: list[Flaw]) -> list[Flaw]:
    """Flaws of one kind together."""
    kinds = dict.fromkeys(flaw.what for flaw in wrong)
    of_kind = ([flaw for flaw in wrong if flaw.what == what] for what in kinds)
    return [
        Flaw(flaws[0].column, flaws[0].what, np.concatenate([flaw.rows for flaw in flaws]), flaws[0].example)
        for flaws in of_kind
    ]
