"""Eligible actions: which actions could be taken on each row. Distinct sets are kept once, and each row has a code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints, frozen, settle
from cael.errors import LogError, refuse_rows
from cael.log.keys import mixed

MISSING, EMPTY = "has no list of eligible actions", "has an empty list of eligible actions"
UNKNOWN, TWICE = "lists an eligible action that is not one of the log's", "lists an eligible action twice"
WITHOUT = "does not list the logged action as eligible"
PERIODLESS = "is in a period that the table of eligible actions does not have"

FORMS = (
    "eligible must be a list of action numbers for each row, a boolean mask of shape (n, k), or "
    "Eligible.by_period(periods, {period: actions})"
)


@final
@dataclass(frozen=True, eq=False)
class Sets:
    """m distinct sets of k actions; those of set j are actions[starts[j]:starts[j + 1]], in the order of their numbers.

    starts: (m + 1,). actions: (t,).
    """

    starts: Ints
    actions: Ints
    n_actions: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> Ints:
        """(m,) how many actions each has."""
        return np.diff(self.starts)

    @cached_property
    def owner(self) -> Ints:
        """(t,) the set that each entry is in."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def keys(self) -> Ints:
        """(t,) set * k + action, which is sorted."""
        return self.owner * self.n_actions + self.actions

    @cached_property
    def hashes(self) -> Array:
        """(m,) 64 bits that equal sets share, whatever the others are."""
        return hashes_of(self.sizes, self.actions)

    def sums(self, values: Floats) -> Floats:
        """(m, ...) the sum of values (k, ...) over the actions of each set."""
        return np.add.reduceat(values[self.actions], self.starts[:-1], axis=0) if len(self) else values[:0]

    def mask(self) -> Array:
        """(m, k) whether an action is in a set."""
        table = np.zeros((len(self), self.n_actions), dtype=bool)
        table[self.owner, self.actions] = True
        return table

    def some(self, codes: Ints) -> Sets:
        """These sets, in this order."""
        sizes = self.sizes[codes]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.repeat(self.starts[codes] - starts[:-1], sizes) + np.arange(starts[-1])
        return Sets(starts, self.actions[entries], self.n_actions)


@final
@dataclass(frozen=True, eq=False)
class Eligible:
    """The eligible actions of b rows: sets, and codes (b,) into them.

    >>> days = Eligible.by_period([1, 1, 2], {1: [0, 2], 2: [1, 2]}, n_actions=3)
    >>> days
    Eligible(3 rows, 2 distinct sets of 3 actions)
    >>> days.sizes
    array([2, 2, 2])
    """

    sets: Sets
    codes: Ints

    def __repr__(self) -> str:
        return f"Eligible({len(self):,} rows, {len(self.sets):,} distinct sets of {self.n_actions} actions)"

    def __len__(self) -> int:
        return len(self.codes)

    def __getstate__(self) -> dict[str, Any]:
        return {"arrays": (self.sets.starts, self.sets.actions, self.codes), "k": self.n_actions}

    def __setstate__(self, state: dict[str, Any]) -> None:
        starts, actions, codes = map(frozen, state["arrays"])
        settle(self, sets=Sets(starts, actions, state["k"]), codes=codes)

    @staticmethod
    def by_period(periods: Sequence[Any] | Array, table: Mapping[Any, Sequence[int]], n_actions: int) -> Eligible:
        """From the period of each row (n,), and the action numbers that each period has."""
        labels = list(table)
        lengths, entries = flat([table[label] for label in labels])
        sets, flaws, examples = sets_of(lengths, entries, n_actions)
        for what, bad in flaws.items():
            if bad.any():
                at = int(bad.argmax())
                shown = f", such as {examples[at]}" if what == UNKNOWN else ""
                raise LogError(
                    f"the period {labels[at]!r} {what}{shown} ({int(bad.sum()):,} of {len(labels):,} periods are "
                    f"wrong in this way; actions are 0 to {n_actions - 1})."
                )
        place = {label: at for at, label in enumerate(labels)}
        codes = np.array([place.get(label, -1) for label in np.asarray(periods).tolist()], dtype=np.intp)
        refuse_rows(codes < 0, np.asarray(periods), f"the row {PERIODLESS}", error=LogError)
        return Eligible(sets.sets, sets.codes[codes])

    @property
    def n_actions(self) -> int:
        """k, of all actions."""
        return self.sets.n_actions

    @property
    def sizes(self) -> Ints:
        """(b,) how many actions each row has."""
        return self.sets.sizes[self.codes]

    @property
    def hashes(self) -> Array:
        """(b,) 64 bits that rows with equal sets share."""
        return self.sets.hashes[self.codes]

    @property
    def changes(self) -> bool:
        """Whether there is more than one set."""
        return len(self.sets) > 1 and bool((self.codes != self.codes[0]).any())

    def part(self, rows: slice | Ints) -> Eligible:
        """Of some of the rows."""
        return Eligible(self.sets, self.codes[rows])

    def mask(self, columns: slice = slice(None)) -> Array:
        """(b, k) whether an action is eligible; or only of these columns."""
        few, line = np.unique(self.codes, return_inverse=True)
        table: Array = self.sets.some(few).mask()[:, columns]
        return table[line.reshape(-1)]

    def entries(self, actions: Ints) -> Ints:
        """(b, m) where each action stands among the entries of all sets; -1 where it is not eligible."""
        keys = self.sets.keys
        wanted = self.codes[:, None] * self.n_actions + np.maximum(actions, 0)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((keys[at] == wanted) & (actions >= 0), at, -1)

    def holds(self, actions: Ints) -> Array:
        """(b, m) whether actions (b, m) are eligible."""
        return self.entries(actions) >= 0

    def places(self, actions: Ints) -> Ints:
        """(b, m) the number of each action among the eligible ones of its row; -1 where it is not one of them."""
        at = self.entries(actions)
        return np.where(at >= 0, at - self.sets.starts[self.codes][:, None], -1)

    def at(self, places: Ints) -> Ints:
        """(b, m) the actions with these numbers among the eligible ones of their row; -1 of -1."""
        last = (self.sizes - 1)[:, None]
        entries = self.sets.starts[self.codes][:, None] + np.clip(places, 0, last)
        return np.where(places >= 0, self.sets.actions[entries], -1)

    def sums(self, values: Floats) -> Floats:
        """(b, ...) the sum of values (k, ...) over the eligible actions."""
        few, line = np.unique(self.codes, return_inverse=True)
        return self.sets.some(few).sums(values)[line.reshape(-1)]

    def spread(self, amounts: Floats) -> Floats:
        """(k,) amounts (b,), added to each eligible action of their rows."""
        by_set = np.bincount(self.codes, weights=amounts, minlength=len(self.sets))
        used = np.flatnonzero(np.bincount(self.codes, minlength=len(self.sets)))
        sets = self.sets.some(used)
        return np.bincount(sets.actions, np.repeat(by_set[used], sets.sizes), self.n_actions).astype(np.float64)

    def own(self, *, copy: bool = True) -> Eligible:
        """The same in memory that nobody can write to."""
        sets = Sets(frozen(self.sets.starts, copy=copy), frozen(self.sets.actions, copy=copy), self.n_actions)
        return Eligible(sets, frozen(self.codes, copy=copy))


def hashes_of(lengths: Ints, entries: Ints) -> Array:
    """(n,) 64 bits of lists with these lengths, the same for lists with the same entries in any order."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    with np.errstate(over="ignore"):
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed(entries.astype(np.uint64)))])
        return mixed(total[starts[1:]] - total[starts[:-1]] + lengths.astype(np.uint64))


def flat(lists: Sequence[Any]) -> tuple[Ints, Array]:
    """(lengths, joined entries) of lists; the length of None is -1."""
    lengths = np.array([-1 if each is None else len(each) for each in lists], dtype=np.intp)
    parts = [np.asarray(each) for each in lists if each is not None and len(each)]
    return lengths, np.concatenate(parts) if parts else np.empty(0, np.intp)


def sets_of(lengths: Ints, entries: Ints, n_actions: int) -> tuple[Eligible, dict[str, Array], Ints]:
    """The sets of lists with these lengths (-1: missing), of action numbers; what is wrong, as masks of rows (n,); and
    an entry of each list (n,), for messages. Lists with a flaw get the set of all actions."""
    sizes = np.maximum(lengths, 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    owner = np.repeat(np.arange(len(lengths)), sizes)
    odd = (entries < 0) | (entries >= n_actions)
    unknown = np.bincount(owner[odd], minlength=len(lengths)) > 0
    missing, empty = lengths < 0, lengths == 0
    _, first, codes = np.unique(hashes_of(sizes, entries), return_index=True, return_inverse=True)
    codes = codes.reshape(-1)
    kept = np.repeat(starts[first], sizes[first])
    kept = kept + np.arange(len(kept)) - np.repeat(np.cumsum(sizes[first]) - sizes[first], sizes[first])
    of = np.repeat(np.arange(len(first)), sizes[first])
    order = np.lexsort((entries[kept], of))
    actions = entries[kept][order].astype(np.intp, copy=False)
    again = np.flatnonzero((actions[1:] == actions[:-1]) & (of[1:] == of[:-1]))
    double = np.zeros(len(first), dtype=bool)
    double[of[again]] = True
    flaws = {MISSING: missing, EMPTY: empty, UNKNOWN: unknown, TWICE: double[codes] & ~unknown}
    sets = Sets(np.concatenate([[0], np.cumsum(sizes[first])]), actions, n_actions)
    wrong = missing | empty | unknown | double[codes]
    return _repaired(Eligible(sets, codes), wrong), flaws, _examples(starts, entries, odd)


def _examples(starts: Ints, entries: Ints, odd: Array) -> Ints:
    """(n,) an entry that is none of the actions, where a list has one; 0 elsewhere."""
    shown = np.zeros(len(starts) - 1, dtype=np.intp)
    at = np.flatnonzero(odd)
    shown[np.searchsorted(starts, at, side="right") - 1] = entries[at]
    return shown


def _repaired(eligible: Eligible, wrong: Array) -> Eligible:
    """All actions for the rows that are wrong."""
    if not wrong.any():
        return eligible
    sets, k = eligible.sets, eligible.n_actions
    kept, codes = np.unique(eligible.codes[~wrong], return_inverse=True)
    good = sets.some(kept)
    whole = Sets(np.append(good.starts, good.starts[-1] + k), np.append(good.actions, np.arange(k)), k)
    place = np.full(len(wrong), len(kept))
    place[~wrong] = codes.reshape(-1)
    return Eligible(whole, place)


def of_mask(mask: Array) -> tuple[Ints, Ints]:
    """(lengths, entries) of a boolean mask (n, k)."""
    return np.count_nonzero(mask, axis=1), np.nonzero(mask)[1]


def joined(parts: Sequence[Eligible]) -> Eligible:
    """Rows of several runs after each other, equal sets once."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.sets) for part in parts)])
    sizes = np.concatenate([part.sets.sizes for part in parts])
    actions = np.concatenate([part.sets.actions for part in parts])
    whole = Sets(np.concatenate([[0], np.cumsum(sizes)]), actions, parts[0].n_actions)
    _, first, codes = np.unique(whole.hashes, return_index=True, return_inverse=True)
    old = np.concatenate([part.codes + at for part, at in zip(parts, starts, strict=False)])
    return Eligible(whole.some(first), codes.reshape(-1)[old])


def eligible_of(given: Any, actions: Ints, n_actions: int) -> Eligible:
    """What `LoggedData` was given, checked against the logged actions (n,)."""
    eligible = given if isinstance(given, Eligible) else _from_arrays(given, n_actions)
    if eligible.n_actions != n_actions:
        raise LogError(f"eligible is of {eligible.n_actions} actions, but the log has {n_actions}.")
    if len(eligible) != len(actions):
        raise LogError(f"lengths differ: rewards has {len(actions)} rows, eligible has {len(eligible)}.")
    without = ~eligible.holds(actions[:, None])[:, 0]
    advice = "What was taken could be taken: correct the lists, or remove these rows knowingly."
    message = f"a row {WITHOUT}; its action is shown"
    refuse_rows(without, actions, message, advice, error=LogError)
    return eligible


def _from_arrays(given: Any, n_actions: int) -> Eligible:
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype == bool:
        if given.shape[1] != n_actions:
            raise LogError(f"a mask of eligible actions must have {n_actions} columns; got shape {given.shape}.")
        lengths, entries = of_mask(given)
    else:
        try:
            lengths, entries = flat(list(given))
        except (TypeError, ValueError):
            raise LogError(f"{FORMS}; got {type(given).__name__}.") from None
    if entries.dtype.kind not in "iu":
        raise LogError(f"{FORMS}; the entries of the lists are {entries.dtype}. Map action names to numbers first.")
    eligible, flaws, shown = sets_of(lengths, entries, n_actions)
    for what, bad in flaws.items():
        values = shown if what == UNKNOWN else lengths
        told = {UNKNOWN: "; an entry is shown", TWICE: "; the length of its list is shown"}.get(what, "")
        more = ", or give n_actions= if there are more actions" if what == UNKNOWN else ""
        advice = f"Correct the lists{more}, or remove these rows."
        refuse_rows(bad, values, f"a row {what}{told}", advice, error=LogError)
    return eligible
