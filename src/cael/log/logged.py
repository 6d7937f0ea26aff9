"""LoggedData: what the old policy did and earned. Validated once, copied, read-only, then trusted."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, Protocol, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints, frozen
from cael.errors import LogError, first_bad, positive_int
from cael.log import row_checks as checks
from cael.log.keys import folds_of_keys, label_keys
from cael.policies.policy import Policy, as_policy, logged_probability, probabilities

BATCH_BYTES = 4 * 2**20
"""Size of one (rows x width) block of float64: small enough to stay in cache, large enough to be fast."""

FEW = 64
"""Width of the batches for questions about few actions of a row; a policy that needs all cuts them further."""

PROPENSITY_RTOL, PROPENSITY_ATOL = 1e-3, 1e-6
"""How far a logged propensity may lie from the logging policy's own probability (rounded logs exist)."""


PER_ROW = ("contexts", "actions", "rewards", "propensities", "clusters", "cluster_keys", "timestamps", "places")


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """A run of rows of a log, as policies and models see them.

    rows: their numbers in the log that row-aligned policies were made for (a slice or an index array).
    contexts: (b, d). actions: (b,). rewards: (b,). propensities: (b,) or None. places: (b,) numbers that tell the rows
    of a stream apart, whatever the batch; None where `rows` do.
    """

    rows: slice | Ints
    contexts: Floats
    actions: Ints
    rewards: Floats
    propensities: Floats | None
    n_actions: int
    action_features: Floats | None
    places: Ints | None = None

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def draw_numbers(self) -> Ints:
        """Numbers that fix what is drawn for each row."""
        return self.row_numbers if self.places is None else self.places

    @property
    def row_numbers(self) -> Ints:
        """The row numbers, written out."""
        if isinstance(self.rows, slice):
            return np.arange(self.rows.start, self.rows.stop)
        return self.rows

    def part(self, rows: slice) -> Batch:
        """Some of the rows, counted within the batch."""
        numbers = self.rows
        if isinstance(numbers, slice):
            numbers = slice(numbers.start + rows.start, min(numbers.start + rows.stop, numbers.stop))
        else:
            numbers = numbers[rows]
        return Batch(
            numbers, self.contexts[rows], self.actions[rows], self.rewards[rows],
            None if self.propensities is None else self.propensities[rows], self.n_actions, self.action_features,
            None if self.places is None else self.places[rows],
        )  # fmt: skip

    def parts(self, width: int | None = None) -> Iterator[Batch]:
        """Parts of the rows, with at most BATCH_BYTES for `width` numbers a row, by default one for each action."""
        size = max(1, BATCH_BYTES // (8 * max(1, width or self.n_actions)))
        for at in range(0, len(self), size):
            yield self.part(slice(at, min(at + size, len(self))))

    def some(self, rows: Ints) -> Batch:
        """The rows with these numbers, counted within the batch."""
        return Batch(
            self.row_numbers[rows], self.contexts[rows], self.actions[rows], self.rewards[rows],
            None if self.propensities is None else self.propensities[rows], self.n_actions, self.action_features,
            None if self.places is None else self.places[rows],
        )  # fmt: skip

    def in_parts(self, ask: Callable[[Batch, slice], Array], width: int | None = None) -> Array:
        """ask(part, rows) for parts of the rows, joined: whoever makes an array of all actions asks like this.

        width: numbers that a row takes, by default one for each action; a part has at most BATCH_BYTES of them.
        """
        size = max(1, BATCH_BYTES // (8 * max(1, width or self.n_actions)))
        if len(self) <= size:
            return ask(self, slice(0, len(self)))
        cuts = [slice(at, min(at + size, len(self))) for at in range(0, len(self), size)]
        return np.concatenate([ask(self.part(rows), rows) for rows in cuts])


class Fingerprinted(Protocol):
    """A log, in memory or in files."""

    @property
    def fingerprint(self) -> str: ...


@final
class LogKey:
    """Which log an estimate comes from; computes the fingerprint when it is first asked for, then lets the log go."""

    def __init__(self, log: Fingerprinted) -> None:
        self._log: Fingerprinted | None = log
        self._digest = ""

    @property
    def fingerprint(self) -> str:
        if self._log is not None:
            self._digest, self._log = self._log.fingerprint, None
        return self._digest

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, LogKey) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        return {"_log": None, "_digest": self.fingerprint}


@final
class LoggedData:
    """A log of decisions: context, action taken, reward earned, probability with which it was taken.

    Parameters
    ----------
    contexts : (n, d) numbers, or None for a problem without contexts.
    actions : (n,) whole numbers in 0 .. n_actions-1.
    rewards : (n,) finite numbers.
    propensities : (n,) in (0, 1]: the logging policy's probability of the action it took. Optional when
        `logging` is given; without either, only `LoggedMean` and `DM` can be computed.
    logging : the logging policy, when all its probabilities are known: a `Policy`, or an array of shape
        (k,) or (n, k). MIPS and the learned embeddings need it.
    n_actions : the number of actions k; by default taken from `logging`, `action_features` or the log.
    action_features : (k, f) numbers that describe the actions.
    clusters : (n,) labels of rows that belong together (a user, a session); every interval is then
        cluster-robust and every split keeps a cluster in one fold.
    timestamps : (n,) numbers or datetimes.
    copy : False keeps the caller's arrays, as read-only views, where their types allow; it halves the memory, and the
        caller promises not to change them.

    The arrays are copied and nobody can write to them, not even with `setflags`. Truth never lives in a log.

    >>> log = LoggedData([[0.0], [1.0], [2.0]], [0, 1, 0], [1.0, 0.0, 1.0], [0.5, 0.5, 0.5])
    >>> log
    LoggedData(n=3, n_actions=2, context_dim=1, propensities)
    """

    contexts: Floats
    actions: Ints
    rewards: Floats
    propensities: Floats | None
    logging: Policy | None
    n_actions: int
    action_features: Floats | None
    clusters: Ints | None
    timestamps: Array | None
    rows: slice | Ints
    cluster_keys: Array | None
    places: Ints | None

    def __init__(
        self,
        contexts: ArrayLike | None,
        actions: ArrayLike,
        rewards: ArrayLike,
        propensities: ArrayLike | None = None,
        *,
        logging: Policy | ArrayLike | None = None,
        n_actions: int | None = None,
        action_features: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
        timestamps: ArrayLike | None = None,
        copy: bool = True,
    ) -> None:
        r = checks.vector("rewards", rewards, None)
        n = len(r)
        if n == 0:
            raise LogError("the log is empty: expected at least 2 rows, got 0. Check the filter that made it.")
        if n == 1:
            raise LogError("the log has one row: a standard error needs at least 2 rows.")
        policy = None if logging is None else as_policy(logging)
        features = None if action_features is None else checks.matrix("action_features", action_features, None)
        a = checks.actions_of(actions, n)
        checked = {
            "contexts": checks.contexts_of(contexts, n),
            "actions": a,
            "rewards": r,
            "propensities": None if propensities is None else checks.propensities_of(propensities, n),
            "action_features": features,
            "clusters": None if clusters is None else checks.clusters_of(clusters, n),
            "cluster_keys": None if clusters is None else label_keys(np.asarray(clusters)),
            "timestamps": None if timestamps is None else checks.timestamps_of(timestamps, n),
        }
        self._fill(**{name: None if each is None else frozen(each, copy=copy) for name, each in checked.items()})
        self._fill(
            logging=policy,
            n_actions=checks.count_actions(n_actions, a, policy, features),
            rows=slice(0, n),
            places=None,
        )
        if policy is not None:
            self._fill(propensities=_cross_check(self, policy))

    def _fill(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"LoggedData is immutable: cannot set {name!r}. Build a new log, or use take(rows).")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"LoggedData is immutable: cannot delete {name!r}.")

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in LoggedData.__annotations__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fill(**{k: frozen(v) if isinstance(v, np.ndarray) else v for k, v in state.items()})

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        known = [
            name
            for name in ("propensities", "logging", "action_features", "clusters", "timestamps")
            if getattr(self, name) is not None
        ]
        parts = [
            f"n={len(self)}",
            f"n_actions={self.n_actions}",
            f"context_dim={self.contexts.shape[1]}",
            *known,
        ]
        return f"LoggedData({', '.join(parts)})"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything in the log; two logs with the same one hold the same rows in the same order."""
        digest = hashlib.sha256(repr(self).encode())
        if self.logging is not None and self.logging.complete:
            # All logged propensities are in the digest below; of the other probabilities, some rows stand for all.
            some = self.take(np.unique(np.linspace(0, len(self) - 1, 64).astype(np.intp)))
            for batch in some.batches(width=self.n_actions):
                _add(digest, np.ascontiguousarray(probabilities(self.logging, batch)))
        for name in (
            "contexts",
            "actions",
            "rewards",
            "propensities",
            "action_features",
            "clusters",
            "timestamps",
        ):
            array = getattr(self, name)
            if array is not None:
                digest.update(f"{name}{array.shape}{array.dtype}".encode())
                _add(digest, array if array.dtype.kind not in "mM" else array.view("i8"))
        digest.update(str(self.rows).encode() if isinstance(self.rows, slice) else self.rows.tobytes())
        return digest.hexdigest()

    @property
    def key(self) -> LogKey:
        """What estimates keep of the log: the same object for all estimates of one log, while one of them lives."""
        known = self.__dict__.get("_key")
        key = None if known is None else known()
        if key is None:
            key = LogKey(self)
            self._fill(_key=weakref.ref(key))
        return key

    @cached_property
    def logging_covers_all(self) -> bool:
        """Whether the logging policy gives every action positive probability on every row."""
        if self.logging is None:
            raise LogError("the logging policy is not known: pass logging= to LoggedData.")
        if self.logging.least is not None and self.logging.least > 0:
            return True
        if self.logging.positive:
            return True
        return all(bool(probabilities(self.logging, batch).min() > 0) for batch in self.batches(width=self.n_actions))

    def batches(self, width: int = 1, *, bytes_each: int = BATCH_BYTES) -> Iterator[Batch]:
        """The log in order, in runs of rows such that (rows x width) float64 fit into `bytes_each`."""
        size = max(1, bytes_each // (8 * max(1, width)))
        for start in range(0, len(self), size):
            yield self._batch(slice(start, min(start + size, len(self))))

    def _batch(self, part: slice) -> Batch:
        offset = self.rows.start if isinstance(self.rows, slice) else 0
        shifted = slice(part.start + offset, part.stop + offset)
        return Batch(
            rows=shifted if isinstance(self.rows, slice) else self.rows[part],
            contexts=self.contexts[part],
            actions=self.actions[part],
            rewards=self.rewards[part],
            propensities=None if self.propensities is None else self.propensities[part],
            n_actions=self.n_actions,
            action_features=self.action_features,
        )

    def take(self, rows: ArrayLike) -> LoggedData:
        """The log of these rows (numbers, repeats allowed, or a mask). Row-aligned policies stay aligned."""
        index = np.asarray(rows)
        if index.dtype == bool:
            if index.shape != (len(self),):
                raise LogError(f"a mask of rows must have {len(self)} entries, one per row; got {index.shape}.")
            index = np.flatnonzero(index)
        if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
            raise LogError(f"take needs at least one row number; got {index.dtype} of shape {index.shape}.")
        if index.min() < 0 or index.max() >= len(self):
            raise LogError(f"row numbers must be in 0..{len(self) - 1}; got {index.min()}..{index.max()}.")
        part = object.__new__(LoggedData)
        part._fill(logging=self.logging, n_actions=self.n_actions, action_features=self.action_features)
        part._fill(rows=frozen(self.row_numbers[index]), _table=self.table)
        for name in (
            "contexts",
            "actions",
            "rewards",
            "propensities",
            "clusters",
            "cluster_keys",
            "timestamps",
            "places",
        ):
            array = getattr(self, name)
            part._fill(**{name: None if array is None else frozen(array[index])})
        return part

    def replanted(self, actions: ArrayLike, rewards: ArrayLike, propensities: ArrayLike) -> LoggedData:
        """These rows, with other actions, rewards and propensities; row-aligned policies stay aligned.

        Clusters are dropped: what happened together says nothing about what is put in its place.
        """
        n, part = len(self), object.__new__(LoggedData)
        part._fill(**{name: getattr(self, name) for name in LoggedData.__annotations__})
        part._fill(
            actions=frozen(checks.actions_of(actions, n)),
            rewards=frozen(checks.vector("rewards", rewards, n)),
            propensities=frozen(checks.propensities_of(propensities, n)),
            clusters=None,
            cluster_keys=None,
        )
        checks.count_actions(self.n_actions, part.actions, None, None)
        return part

    @property
    def table(self) -> Any:
        """The table that the log was read from, for policies that are columns of it; None: there is none."""
        return self.__dict__.get("_table")

    def with_table(self, table: Any) -> LoggedData:
        """The log, which then knows its table."""
        self._fill(_table=table)
        return self

    @property
    def row_numbers(self) -> Ints:
        """The numbers (n,) of the rows, as row-aligned policies count them."""
        return np.arange(self.rows.start, self.rows.stop) if isinstance(self.rows, slice) else self.rows

    @property
    def keys(self) -> Array:
        """64 bits (n,) that rows of one cluster share, or that are the row's own: its place in the files."""
        if self.cluster_keys is not None:
            return self.cluster_keys
        return (self.row_numbers if self.places is None else self.places).astype(np.uint64)

    def placed(self, places: Ints) -> LoggedData:
        """The same log, whose rows stood at these places (n,) of their files."""
        copy = object.__new__(LoggedData)
        copy._fill(**{name: getattr(self, name) for name in LoggedData.__annotations__})
        copy._fill(places=frozen(places))
        return copy

    def keyed(self, keys: Array | None) -> LoggedData:
        """The same log, whose clusters have these keys (n,)."""
        if keys is not None:
            self._fill(cluster_keys=frozen(keys))
        return self

    def folds(self, k: int, seed: int = 0) -> tuple[Ints, ...]:
        """A split of the row numbers into k folds by a hash of their keys; rows of one cluster stay together."""
        positive_int("folds", k, least=2)
        groups = len(self) if self.clusters is None else len(np.unique(self.clusters))
        what = "rows" if self.clusters is None else "clusters"
        if k > groups:
            raise LogError(f"cannot split {groups} {what} into {k} folds: use folds={groups} or fewer.")
        fold = folds_of_keys(self.keys, k, seed)
        if (fold == fold[0]).all():
            raise LogError(f"all {groups} {what} fall into one of {k} folds: use another seed, or more rows.")
        return tuple(np.flatnonzero(fold == number) for number in range(k))


def _add(digest: hashlib._Hash, array: Array, rows: int = 65536) -> None:
    """Add an array to the digest; equal numbers count as equal, so -0.0 as 0.0."""
    for at in range(0, len(array), rows) if array.dtype.kind == "f" else ():
        digest.update((array[at : at + rows] + array.dtype.type(0)).data)
    if array.dtype.kind != "f":
        digest.update(array.data)


def _cross_check(log: LoggedData, policy: Policy) -> Floats:
    """The propensities, after checking that the logging policy says the same: logging[i, a_i] == propensity_i."""
    own, apart, at = np.empty(len(log)), np.zeros(len(log), dtype=bool), 0
    for batch in log.batches(width=FEW):
        part = slice(at, at + len(batch))
        own[part] = logged_probability(policy, batch)
        if batch.propensities is not None:
            apart[part] = ~np.isclose(own[part], batch.propensities, rtol=PROPENSITY_RTOL, atol=PROPENSITY_ATOL)
        at += len(batch)
    impossible = own <= 0
    if impossible.any():
        raise LogError(
            f"the logging policy gives the logged action probability 0; {first_bad(impossible, own)}. "
            "Check that the columns of logging are in the order of the action numbers."
        )
    if log.propensities is None:
        return frozen(own)
    given = log.propensities
    if apart.any():
        row = int(np.flatnonzero(apart)[0])
        raise LogError(
            f"propensities and logging disagree on {apart.sum()} rows: row {row} has propensity {given[row]}, "
            f"but logging[{row}, {log.actions[row]}] is {own[row]}. Check row order and the layout of the columns."
        )
    return given
