"""Actions as numbers 0..k-1 with their labels, contexts and action features as a matrix of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError, LogError, PolicyError, positive_int
from cael.io import cells
from cael.io.cells import Flaw
from cael.io.kinds import is_list, is_text
from cael.io.missing import Filling, filled, filling_of, looks_like_lists
from cael.io.roles import CONVENTIONS, conventional, matching
from cael.io.sources import Source, open_source
from cael.policies.labelled import Names, by_position

Cast: TypeAlias = Callable[[str, list[Any]], tuple[Floats, list[Flaw]]]

MAX_CATEGORIES = 100
"""A column of text with more different values than this is not made into as many columns of 0 and 1."""


@final
@dataclass(frozen=True, eq=False)
class Actions:
    """The actions of a log. labels: (k,) in the order of their numbers. features: (k, f) or None.

    plain: the labels are the numbers 0..k-1 themselves.
    """

    labels: tuple[Any, ...]
    features: Floats | None = None
    source: str = "the log"

    @cached_property
    def plain(self) -> bool:
        return all(isinstance(each, int) and each == at for at, each in enumerate(self.labels))

    @property
    def hidden(self) -> bool:
        """Whether they are names whose order nobody said."""
        return self.source == "the log" and isinstance(self.labels[0], str)

    @property
    def beyond(self) -> str:
        """What is wrong with an action of the log that is none of these."""
        numbers = self.plain and self.source in ("the log", "n_actions")
        return f"is not in 0..{len(self) - 1}" if numbers else f"is not in the actions of {self.source}"

    def __len__(self) -> int:
        return len(self.labels)

    def numbers(self, codes: Ints, distinct: Sequence[Any]) -> Ints:
        """The action numbers (n,) of codes into distinct labels; -1 for a missing one, -2 for an unknown one."""
        known = {label: number for number, label in enumerate(self.labels)}
        if distinct and self.labels and isinstance(distinct[0], str) != isinstance(self.labels[0], str):
            known, distinct = {str(label): number for label, number in known.items()}, [str(each) for each in distinct]
        place: Array = np.array([*(known.get(label, -2) for label in distinct), -1], dtype=np.int32)
        return place[codes]

    def shown(self) -> str:
        first = ", ".join(repr(label) for label in self.labels[:5])
        return f"{first}{', ...' if len(self) > 5 else ''} ({len(self)} actions of {self.source})"


def read_actions(
    source: Source, column: str, table: Any, n_actions: int | None
) -> tuple[Ints, Actions, list[Flaw], list[str]]:
    """Action numbers (n,), the actions, the flaws, and what to tell the user."""
    codes, distinct, flaws = cells.labels(column, source.labels(column))
    if len(codes) == 0:
        raise LogError(f"{source.name} has no rows: expected at least 2.")
    if not distinct:
        raise InputError(f"column {column!r} of {source.name} holds no action: {len(codes)} rows, all missing.")
    known = sorted({*distinct, *source.actions})
    actions, notes = from_log(column, known, n_actions) if table is None else action_table(table, n_actions)
    numbers, unknown = numbered(column, codes, distinct, actions, actions.beyond)
    return numbers, actions, [*flaws, *unknown], notes


def action_numbers(column: str, chunks: list[Any], actions: Actions, what: str = "") -> tuple[Ints, list[Flaw]]:
    """Action numbers of a column of actions; unknown ones are flaws."""
    codes, distinct, flaws = cells.labels(column, chunks)
    numbers, unknown = numbered(column, codes, distinct, actions, what)
    return numbers, [*flaws, *unknown]


def numbered(column: str, codes: Ints, distinct: Sequence[Any], actions: Actions, what: str) -> tuple[Ints, list[Flaw]]:
    """Action numbers of codes into labels, and a flaw where there are unknown ones. what: is wrong with them."""
    numbers = actions.numbers(codes, distinct)
    unknown = np.flatnonzero(numbers == -2)
    if not len(unknown):
        return numbers, []
    what = what or f"is not among the actions {actions.shown()}"
    return numbers, [Flaw(column, what, unknown, repr(distinct[codes[unknown[0]]]))]


def from_log(column: str, distinct: list[Any], n_actions: int | None) -> tuple[Actions, list[str]]:
    whole = isinstance(distinct[0], int)
    if n_actions is not None:
        k = positive_int("n_actions", n_actions)
        if not whole:
            raise InputError(
                f"n_actions={k} goes with actions that are numbers 0..{k - 1}, and column {column!r} holds text. "
                "Give an action table (actions=, --actions), which lists them all."
            )
        return Actions(tuple(range(k)), source="n_actions"), []
    if whole and distinct[0] == 0 and distinct[-1] == len(distinct) - 1:
        return Actions(tuple(range(len(distinct)))), []
    kind = "whole numbers with gaps" if whole else "text"
    advice = " If actions that never occur exist too, give n_actions (--n-actions) or an action table." if whole else ""
    return Actions(tuple(distinct)), [
        f"The {len(distinct)} actions of column {column!r} are {kind}, numbered in order.{advice}"
    ]


def action_table(source: Any, n_actions: int | None) -> tuple[Actions, list[str]]:
    table = open_source(source)
    name = f"the action table {table.name}"
    column = conventional(table, CONVENTIONS["action"])
    if column is None:
        raise InputError(
            f"{name} needs a column 'action' with the action's number or name; it has "
            f"{', '.join(map(repr, table.names))}."
        )
    table.load(table.names)
    codes, distinct, missing = cells.labels(column, table.labels(column))
    if missing:
        raise InputError(f"{name}: column {column!r} is missing in {table.places(missing[0].rows)}.")
    if len(codes) == 0:
        raise InputError(f"{name} has no rows.")
    twice = np.flatnonzero(np.bincount(codes, minlength=len(distinct)) > 1)
    if len(twice):
        places = table.places(np.flatnonzero(codes == twice[0]))
        raise InputError(f"{name} lists {distinct[twice[0]]!r} more than once ({places}).")
    labels = [distinct[code] for code in codes]
    whole = all(isinstance(label, int) for label in labels) and sorted(labels) == list(range(len(labels)))
    order = np.argsort(labels) if whole else np.arange(len(labels))
    if n_actions is not None and n_actions != len(labels):
        raise InputError(f"n_actions is {n_actions}, but {name} lists {len(labels)}.")
    others = [other for other in table.names if other != column]
    features, notes, wrong = matrix(table, others, len(labels), cast=cells.measured)
    if wrong:
        raise InputError(f"{name}: {told(wrong[0], table)}.")
    return Actions(tuple(labels[at] for at in order), features[order] if others else None, table.name), notes


def told(flaw: Flaw, source: Source) -> str:
    """A flaw of a table in words."""
    return cells.sentence(flaw.column, flaw.what, flaw.example, len(flaw.rows), source.listed(flaw.rows))


def matrix(
    source: Source, columns: Sequence[str], n: int, *, categories: bool = True, cast: Cast = cells.numbers,
    fillings: Mapping[str, Filling] | None = None, fill: bool = False,
) -> tuple[Floats, list[str], list[Flaw]]:  # fmt: skip
    """(n, d) numbers from columns of numbers, of text (0/1 for each value, if allowed) and of lists; notes; flaws.
    cast: what makes a column numbers. fillings: of missing numbers; with fill they are found here."""
    blocks: list[Array] = []
    notes: list[str] = []
    wrong: list[Flaw] = []
    source.load(columns)
    for name in columns:
        chunks, kind = source.chunks(name), source.type_of(name)
        if is_list(kind) or (is_text(kind) and looks_like_lists(chunks)):
            block, flawed = _list_block(name, chunks, cast)
        elif is_text(kind) and categories:
            block, flawed, note = _one_hot(name, chunks)
            notes += note
        else:
            values, flawed = cast(name, chunks)
            filling = filling_of(name, values, flawed) if fill else (fillings or {}).get(name)
            notes += [filling.note] if fill and filling is not None and filling.note else []
            block, flawed = filled(values, flawed, filling)
        blocks.append(block)
        wrong += flawed
    if not blocks:
        return np.empty((n, 0)), notes, wrong
    return (blocks[0] if len(blocks) == 1 else np.hstack(blocks)), notes, wrong


def context_names(source: Source, columns: Sequence[str]) -> tuple[str, ...]:
    """A name for each of the numbers that these columns become."""
    names: list[str] = []
    for name in columns:
        chunks, kind = source.chunks(name), source.type_of(name)
        if is_list(kind) or (is_text(kind) and looks_like_lists(chunks)):
            width = _list_block(name, chunks, cells.numbers)[0].shape[1]
            names += [f"{name}[{at}]" for at in range(width)]
        elif is_text(kind):
            _, distinct, missing = cells.labels(name, chunks)
            names += [f"{name}={value}" for value in (*distinct, *(["(missing)"] if missing else []))]
        else:
            names.append(name)
    return tuple(names)


def _list_block(name: str, chunks: list[Any], cast: Cast) -> tuple[Floats, list[Flaw]]:
    lengths, (entries,), wrong = cells.lists(name, chunks, cast)
    if len(lengths) == 0:
        return np.empty((0, 0)), wrong
    width = int(np.bincount(np.maximum(lengths, 0)).argmax())
    other = np.flatnonzero((lengths != width) & (lengths >= 0))
    if len(other):
        wrong.append(Flaw(name, f"has another number of entries than {width}", other, str(lengths[other[0]])))
    if (lengths == width).all():
        return entries.reshape(len(lengths), width), wrong
    block = np.zeros((len(lengths), width))
    block[lengths == width] = entries[np.repeat(lengths == width, np.maximum(lengths, 0))].reshape(-1, width)
    return block, wrong


def _one_hot(name: str, chunks: list[Any]) -> tuple[Floats, list[Flaw], list[str]]:
    codes, distinct, missing = cells.labels(name, chunks)
    if len(distinct) > MAX_CATEGORIES:
        raise InputError(
            f"column {name!r} holds text with {len(distinct):,} different values, more than {MAX_CATEGORIES}: as a "
            "context it would become as many columns. Group the values, describe them by numbers, or leave it out."
        )
    notes = [*_almost_numbers(name, distinct)]
    if missing:  # a missing category is a category
        notes += [f"Column {name!r} is missing in {len(missing[0].rows):,} rows; they are a category of their own."]
        codes, distinct = np.where(codes < 0, len(distinct), codes), [*distinct, None]
    block = np.zeros((len(codes), len(distinct)))
    block[np.arange(len(codes)), codes] = 1.0
    return block, [], notes


def _almost_numbers(name: str, distinct: Sequence[str]) -> Iterator[str]:
    """What to say of categories of which nearly all are numbers."""
    strange = [label for label in distinct if not cells.is_written_number(label)]
    if strange and len(strange) <= len(distinct) // 10:
        yield (
            f"Column {name!r} is text, and {len(distinct) - len(strange)} of its {len(distinct)} values are numbers; "
            f"{strange[0]!r} is not. Each value became a category: correct the column if it should be numbers."
        )


def columns_of(source: Source, names: str, what: str) -> list[str]:
    """The columns that 'a', 'pi_*' or 'a+b+c' means."""
    return [column for each in names.split("+") for column in matching(source, each.strip(), what)]


def by_suffix(pattern: str, names: Sequence[str], actions: Actions, what: str) -> list[str]:
    """The columns in the order of the actions, whose labels stand where the pattern has its star."""
    before, _, after = pattern.partition("*")
    by_label = {name[len(before) : len(name) - len(after)]: name for name in names}
    labels = [str(label) for label in actions.labels]
    missing = [label for label in labels if label not in by_label]
    extra = [by_label[label] for label in by_label if label not in set(labels)]
    if missing or extra:
        wrong = f"there is no column {before}{missing[0]}{after}" if missing else f"{extra[0]} is not an action"
        raise PolicyError(
            f"{what}: {wrong}; there must be one column for each of {actions.shown()}. An action table "
            "(--actions) or --n-actions lists actions that the log does not hold."
        )
    return [by_label[label] for label in labels]


def said_order(what: str, actions: Actions, said: Sequence[str]) -> Ints | None:
    """The place (k,) of each action among numbers by position, in the order that was said; None: that of the log. An
    error where nobody said one and the actions are names that the log has."""
    names = Names(actions.labels, actions.hidden)
    if said:
        return names.order(said, what)
    if actions.hidden:
        raise PolicyError(by_position(what, names))
    return None


def padded(lengths: Ints, entries: Array, filler: float) -> Array:
    """(n, m) with the entries of each list, and the filler after its end."""
    width = max(1, int(lengths.max(initial=0)))
    if (lengths == width).all():
        return entries.reshape(len(lengths), width)
    table = np.full((len(lengths), width), filler, dtype=entries.dtype)
    lengths = np.maximum(lengths, 0)
    table[np.arange(width) < lengths[:, None]] = entries
    return table
