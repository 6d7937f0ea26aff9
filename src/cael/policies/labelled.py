"""Labels that carry: columns are matched to actions, and rows to decisions, by name, never by an order nobody sees."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, final

import numpy as np

from cael.common.types import Array, Ints
from cael.errors import PolicyError

SHOWN, LISTED = 4, 8
"""Labels that a message names, and that it lists where the order counts."""


class Inputs(Protocol):
    """The table that a log came from: the labels of its rows, and its columns as they were."""

    @property
    def index(self) -> Sequence[Any] | None: ...
    @property
    def ids(self) -> Sequence[Any] | None: ...
    @property
    def id_name(self) -> str | None: ...
    @property
    def names(self) -> Sequence[str]: ...
    def frame(self, columns: Sequence[str], rows: slice | Ints) -> Any: ...


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """What a frame calls the columns and rows of its numbers. actions: None: by position. rows: None: by position.
    row_name: of the column or index that the rows' labels stand in. settled: the columns are in the order 0 .. k-1."""

    actions: Sequence[Any] | None
    rows: Sequence[Any] | None = None
    row_name: str | None = None
    settled: bool = False

    @property
    def in_order(self) -> bool:
        """Whether it can be used as it is, without a log that knows its labels."""
        return (self.actions is None or self.settled) and (self.rows is None or counted(self.rows))


@final
@dataclass(frozen=True, eq=False)
class Names:
    """What a log calls its actions and rows. actions: (k,) labels in the order of their numbers. hidden: they are names
    whose order nobody said. count: of the rows that row-aligned policies count. rows: numbers of those that the log
    holds (None: all). inputs: the table that it
    came from."""

    actions: tuple[Any, ...]
    hidden: bool = False
    count: int | None = None
    rows: slice | Ints | None = None
    inputs: Inputs | None = None

    @property
    def _here(self) -> slice | Ints:
        return slice(None) if self.rows is None else self.rows

    @cached_property
    def _number(self) -> dict[str, int]:
        return {str(plain(label)): number for number, label in enumerate(self.actions)}

    @property
    def shown(self) -> str:
        return f"{shown(self.actions)} ({len(self.actions)} actions)"

    def numbers(self, labels: Array, what: str) -> Ints:
        """Action numbers of an array of labels; an error where one is no action of the log."""
        distinct, codes = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
        known = np.array([self._number.get(label, self._number.get(whole(label), -1)) for label in distinct.tolist()])
        unknown = known[codes.reshape(-1)] < 0
        if unknown.any():
            examples = list(dict.fromkeys(map(plain, np.asarray(labels).reshape(-1)[unknown].tolist())))
            count = int(unknown.sum())
            raise PolicyError(
                f"{what}: expected actions of the log, {self.shown}; got other labels in {count:,} places, "
                f"such as {shown(examples)}. An action that the log does not hold is listed by actions= (--actions) or "
                "n_actions= (--n-actions)."
            )
        return np.asarray(known[codes].reshape(np.shape(labels)), dtype=np.intp)

    def order(self, labels: Sequence[Any], what: str) -> Ints:
        """The column (k,) of each action, by its label or by a label after a prefix that all columns share."""
        names = [str(plain(label)) for label in labels]
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise PolicyError(f"{what} has the column {repeated[0]!r} more than once: each action has one.")
        place = {name.removeprefix(self._prefix(names)): at for at, name in enumerate(names)}
        missing = [label for name, label in zip(self._number, self.actions, strict=True) if name not in place]
        extra = [name for name in place if name not in self._number]
        if missing or extra:
            raise PolicyError(self._mismatch(what, names, missing, extra))
        return np.array([place[name] for name in self._number], dtype=np.intp)

    def _prefix(self, names: Sequence[str]) -> str:
        """What stands before the action in every column: 'p_' of p_apple."""
        ends = [names[0].removesuffix(label) for label in self._number if names[0].endswith(label)]
        matching = (
            before
            for before in sorted({"", *ends}, key=len)
            if {name.removeprefix(before) for name in names if name.startswith(before)} == set(self._number)
        )
        return next(matching, "")

    def _mismatch(self, what: str, names: Sequence[str], missing: Sequence[Any], extra: Sequence[str]) -> str:
        wrong = f"no actions are {shown(extra)} ({len(extra):,})" if extra else ""
        without = f"without a column are {shown(missing)} ({len(missing):,})" if missing else ""
        parts = "; ".join(filter(None, (wrong, without)))
        return (
            f"{what}: expected one column for each action, named by it, in any order (or with one prefix, as in "
            f"'p_{self.actions[0]}'): {self.shown}; got {len(names):,} columns: {parts}. Rename them; or, where "
            "you know which column is which action, give the labels in the order of the columns: cael.Tabular(array, "
            "actions=[...]). log.action_labels has those of the log."
        )

    def places(self, labels: Labels, count: int, what: str) -> Ints | None:
        """For each row of the log, its row in a frame with these labels; None: rows are in the order of the log."""
        own = None if self.inputs is None else self.inputs.index
        if labels.rows is None or (counted(labels.rows) and own is None):
            return None
        if own is not None and list(own) == list(labels.rows):
            return None
        place = {label: at for at, label in enumerate(labels.rows)}
        if len(place) < len(labels.rows):
            repeated = [label for label, times in Counter(labels.rows).items() if times > 1]
            raise PolicyError(
                f"{what}: its rows are matched by label, and {len(repeated):,} labels occur more than once "
                f"({shown(repeated)}). Give each decision one row."
            )
        return self._matched(place, labels, own, what)

    def _matched(self, place: dict[Any, int], labels: Labels, own: Sequence[Any] | None, what: str) -> Ints:
        candidates = self._row_labels(own, labels)
        found = [np.array([place.get(label, -1) for label in known], dtype=np.intp) for known in candidates]
        full = [rows for rows in found if (rows[self._here] >= 0).all()]
        if not full:
            raise PolicyError(self._lost(place, candidates, found, what, own=own is not None))
        if any((rows != full[0]).any() for rows in full[1:]):
            raise PolicyError(
                f"{what}: the labels of its rows are both the numbers of the log's rows and ids of its decisions, in "
                f"other orders. Say which: name the index {self.inputs and self.inputs.id_name!r} for ids, or sort it."
            )
        return full[0]

    def _row_labels(self, own: Sequence[Any] | None, labels: Labels) -> list[Sequence[Any]]:
        """What the rows of the log may be called: by their own index or number, and by the ids of decisions."""
        numbered = own if own is not None else range(self.count or 0)
        ids = None if self.inputs is None else self.inputs.ids
        if ids is None:
            return [numbered]
        assert self.inputs is not None
        return [ids] if labels.row_name == self.inputs.id_name else [numbered, ids]

    def _lost(
        self, place: dict[Any, int], known: list[Sequence[Any]], found: list[Ints], what: str, *, own: bool
    ) -> str:
        at = int(np.argmax([(rows[self._here] >= 0).sum() for rows in found]))
        labels = np.empty(len(known[at]), dtype=object)
        labels[:] = list(known[at])
        needed, missing = labels[self._here], labels[self._here][found[at][self._here] < 0]
        strange = [label for label in place if label not in set(needed.tolist())]
        return (
            f"{what}: its rows have labels of their own, and {len(missing):,} of the {len(needed):,} rows of the log "
            f"are not among them, such as {shown(missing.tolist())}"
            + (f"; it has {shown(strange)}" if strange else "")
            + ". Give the frame the index (or the ids) of the log; if its rows are in the order of the log, "
            + ("frame.set_axis(index of the log, axis=0)." if own else "frame.reset_index(drop=True).")
        )

    def arranged(self, array: Array, labels: Labels, what: str) -> Array:
        """The array with actions, and rows, as the log numbers them."""
        order = np.arange(array.shape[-1]) if labels.actions is None else self.order(labels.actions, what)
        if array.ndim == 1:
            return array[order]
        places = self.places(labels, len(array), what)
        table = array if places is None else array[places]
        return table if (order[1:] > order[:-1]).all() else table[:, order]


def counted(labels: Sequence[Any]) -> bool:
    """Whether labels are 0, 1, 2, ..."""
    return isinstance(labels, range) or all(label == at for at, label in enumerate(labels))


def plain(label: Any) -> Any:
    """A label as Python has it; 3.0 is 3."""
    label = label.item() if isinstance(label, np.generic) else label
    return int(label) if isinstance(label, float) and label.is_integer() else label


def whole(label: str) -> str:
    """'3' of '3.0'."""
    return label[:-2] if label.endswith(".0") else label


def shown(labels: Sequence[Any]) -> str:
    return ", ".join(repr(plain(label)) for label in labels[:SHOWN]) + (", ..." if len(labels) > SHOWN else "")


def is_frame(source: Any) -> bool:
    return hasattr(source, "columns") or hasattr(source, "column_names")


def names_in(frame: Any) -> list[Any]:
    """The names of the columns of a frame of pandas, polars or Arrow."""
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def index_of(source: Any) -> Sequence[Any] | None:
    """The labels of the rows of a frame or series of pandas; of others None."""
    index = getattr(source, "index", None)
    if index is None or callable(index):
        return None
    return range(len(index)) if index.equals(type(index)(range(len(index)))) else tuple(index.tolist())


def labelled(source: Any, actions: Sequence[Any] | None = None) -> tuple[Array, Labels | None]:
    """The numbers, (k,) or (n, k), and their labels (None: an array); columns 0 .. k-1 are put in order at once.

    source: an array or lists; a frame of pandas, polars or Arrow; a series; {action: probability or column}. actions:
    the labels of an array's columns.
    """
    if isinstance(source, Mapping):
        return _settled(np.stack([np.asarray(column) for column in source.values()], axis=-1), Labels(tuple(source)))
    labels: Labels | None
    if is_frame(source):
        array, labels = _frame(source)
    else:
        array = np.asarray(source.to_numpy() if hasattr(source, "to_numpy") else source)
        index = index_of(source)
        labels = None if index is None or array.ndim != 1 else Labels(index)
    if actions is None:
        return (array, None) if labels is None else _settled(array, labels)
    actions = tuple(actions)
    if array.ndim and len(actions) != array.shape[-1]:
        raise PolicyError(f"actions= names {len(actions)} actions, and there are {array.shape[-1]} columns.")
    rows = None if labels is None or array.ndim == 1 else labels.rows
    return _settled(array, Labels(actions, rows))


def _frame(frame: Any) -> tuple[Array, Labels]:
    """(n, k) numbers with their labels; a column of text, or one that is named like an id, labels the rows."""
    names = names_in(frame)
    ids = [name for name in names if _is_id(frame, name)]
    kept = [name for name in names if name not in ids]
    if len(ids) > 1 or not kept:
        raise PolicyError(
            f"a frame of probabilities has a column of numbers for each action; got {shown(names)}, of which "
            f"{len(ids)} hold no numbers. Select those of the actions."
        )
    array = _numbers(frame, kept) if ids else _numbers(frame, None)
    if ids:
        return array, Labels(tuple(kept), tuple(_column(frame, ids[0]).tolist()), str(ids[0]))
    name = getattr(getattr(frame, "index", None), "name", None)
    return array, Labels(tuple(kept), index_of(frame), None if name is None else str(name))


def _column(frame: Any, name: Any) -> Array:
    column = frame[name]
    return np.asarray(column.to_numpy())


def _numbers(frame: Any, names: list[Any] | None) -> Array:
    if hasattr(frame, "column_names"):  # Arrow
        return np.stack([_column(frame, name) for name in names or frame.column_names], axis=1)
    return np.asarray((frame if names is None else frame[names]).to_numpy())


def _is_id(frame: Any, name: Any) -> bool:
    if str(name).lower() in ("decision_id", "request_id", "impression_id", "round_id"):
        return True
    kinds = getattr(frame, "schema", None) or getattr(frame, "dtypes", None)
    if kinds is None or Counter(names_in(frame))[name] > 1:
        return False
    kind = str(kinds.field(name).type if hasattr(kinds, "field") else kinds[name]).lower()
    return kind in ("object", "str", "string", "large_string", "category", "categorical")


def _settled(array: Array, labels: Labels) -> tuple[Array, Labels]:
    """Columns that are numbered 0 .. k-1 in order, whatever stands before the number."""
    assert labels.actions is not None
    order = numbered([str(plain(name)) for name in labels.actions])
    if order is None:
        return array, labels
    moved = array if (order[1:] > order[:-1]).all() else array[..., order]
    return moved, Labels(tuple(labels.actions[at] for at in order), labels.rows, labels.row_name, settled=True)


def numbered(names: Sequence[str]) -> Ints | None:
    """The place (k,) of each action among columns whose names end in 0 .. k-1 after one prefix; None: they do not."""
    matches = [match for name in names if (match := re.fullmatch(r"(.*?)(\d+)", name, re.DOTALL))]
    numbers = [int(match[2]) for match in matches]
    same = len({match[1] for match in matches}) == 1 and sorted(numbers) == list(range(len(names)))
    return np.argsort(numbers) if same else None


def need_order(labels: Labels | None, what: str) -> None:
    """Refuse numbers whose labels no log has been asked about."""
    if labels is not None and not labels.in_order:
        raise PolicyError(
            f"{what} has labels ({shown(labels.actions or labels.rows or ())}) that only a log can match: give it to "
            "an estimator, evaluate or compare together with its log."
        )


def refuse_other_indexes(**given: Any) -> None:
    """Refuse series and frames of pandas that belong to the same rows and label them differently."""
    labels = {name: index for name, value in given.items() if (index := index_of(value)) is not None}
    first = next(iter(labels), "")
    for name, index in labels.items():
        if index != labels[first]:
            at = next((i for i, pair in enumerate(zip(index, labels[first], strict=False)) if pair[0] != pair[1]), 0)
            raise PolicyError(
                f"{name} and {first} label their rows differently: row {at} is {shown(index[at : at + 1])} in one and "
                f"{shown(labels[first][at : at + 1])} in the other. Align them ({name}.loc[{first}.index]), or "
                "pass .to_numpy() of both if their rows are in the same order."
            )


def by_position(what: str, names: Names) -> str:
    """Why numbers by position are refused where the actions are names, and what to do."""
    labels = [plain(label) for label in names.actions]
    few = len(labels) <= LISTED
    order = repr(labels) if few else "log.action_labels"
    written = few and not any(mark in str(label) for label in labels for mark in "|,")
    text = f"; in a text, dense:COLUMN,actions={'|'.join(map(str, labels))}" if written else ""
    return (
        f"{what} gives one number for each action by position, and the actions are names, of which the log says no "
        f"order: {names.shown}. If yours are in this order, say so: cael.Tabular(array, actions={order}), "
        f"cael.FromModel(function, actions={order}){text}. If they are in another, list the actions in that one; or "
        "give a mapping {action: probability}, a frame or columns named by the actions (dense:pi_*), or an action "
        "table (actions=, --actions), which lists them in your order."
    )
