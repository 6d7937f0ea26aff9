"""LoggedData: what the old policy did and earned. Validated once, copied, read-only, then trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints, frozen, settle
from cael.errors import LogError, positive_int
from cael.io.originals import Originals
from cael.log import row_checks as checks
from cael.log.batch import BATCH_BYTES, FEW, Batch
from cael.log.eligible import Eligible, eligible_of
from cael.log.fingerprints import LogKey, digest_of, key_of
from cael.log.keys import folds_of_keys, label_keys, seeded
from cael.log.measure import Measure, known_measures
from cael.policies.given import PolicyLike, as_policy
from cael.policies.labelled import Names, is_frame, refuse_other_indexes
from cael.policies.policy import Policy, logged_probability, probabilities

PER_ROW = (
    "contexts", "actions", "rewards", "propensities", "clusters", "cluster_keys", "timestamps", "places",
    "sampling_weights",
)  # fmt: skip

ALIKE = 0xA11CE
"""Another stream of numbers than those of folds and samples."""


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
        (k,) or (n, k). Without it, MIPS and the learned embeddings fit it to the propensities.
    n_actions : the number of actions k; by default taken from `logging`, `action_features` or the log.
    action_features : (k, f) numbers that describe the actions.
    clusters : (n,) labels of rows that belong together (a user, a session); every interval is then
        cluster-robust and every split keeps a cluster in one fold.
    timestamps : (n,) numbers or datetimes.
    eligible : the actions that could be taken on each row, where these are not all: a list of action numbers for each
        row, a boolean mask (n, k), or `Eligible.by_period(periods, {period: actions})`. Equal sets are kept once.
        Policies given by name or by scores then play eligible actions alone.
    sampling_weights : (n,) how many decisions each row stands for, where not all were kept: 10 on rows of which a tenth
        was. Every mean over rows is then a weighted one; the scale does not matter.
    metrics : further rewards by name, each (n,) finite numbers, for `evaluate(..., metrics=[...])`.
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
    sampling_weights: Floats | None
    rows: slice | Ints
    cluster_keys: Array | None
    places: Ints | None
    eligible: Eligible | None
    metrics: tuple[tuple[str, Floats], ...]

    def __init__(
        self,
        contexts: ArrayLike | None,
        actions: ArrayLike,
        rewards: ArrayLike,
        propensities: ArrayLike | None = None,
        *,
        logging: PolicyLike | None = None,
        n_actions: int | None = None,
        action_features: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
        timestamps: ArrayLike | None = None,
        eligible: Any = None,
        sampling_weights: ArrayLike | None = None,
        metrics: Mapping[str, ArrayLike] | None = None,
        copy: bool = True,
    ) -> None:
        refuse_other_indexes(
            contexts=contexts, actions=actions, rewards=rewards, propensities=propensities, clusters=clusters,
            timestamps=timestamps, sampling_weights=sampling_weights,
        )  # fmt: skip
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
            "contexts": np.empty((n, 0)) if contexts is None else checks.matrix("contexts", contexts, n),
            "actions": a,
            "rewards": r,
            "propensities": None if propensities is None else checks.propensities_of(propensities, n),
            "action_features": features,
            "clusters": None if clusters is None else checks.clusters_of(clusters, n),
            "cluster_keys": None if clusters is None else label_keys(np.asarray(clusters)),
            "timestamps": None if timestamps is None else checks.timestamps_of(timestamps, n),
            "sampling_weights": None if sampling_weights is None else checks.sampling_weights_of(sampling_weights, n),
        }
        settle(self, **{name: None if array is None else frozen(array, copy=copy) for name, array in checked.items()})
        k = checks.count_actions(n_actions, a, policy, features, getattr(eligible, "n_actions", None))
        settle(
            self,
            logging=policy,
            n_actions=k,
            rows=slice(0, n),
            places=None,
            eligible=None if eligible is None else eligible_of(eligible, a, k).own(copy=copy),
            metrics=tuple(
                (str(name), frozen(checks.vector(f"metric {name!r}", values, n), copy=copy))
                for name, values in (metrics or {}).items()
            ),
        )
        settle(self, _columns=Originals(None, given=contexts) if is_frame(contexts) else None)
        if policy is not None:
            policy = policy.matched(self.names)
            settle(self, logging=policy, propensities=_cross_check(self, policy))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"LoggedData is immutable: cannot set {name!r}. Build a new log, or use take(rows).")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"LoggedData is immutable: cannot delete {name!r}.")

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in LoggedData.__annotations__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        settle(self, **{k: frozen(v) if isinstance(v, np.ndarray) else v for k, v in state.items()})
        settle(self, metrics=tuple((name, frozen(array)) for name, array in state["metrics"]))

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        optional = (
            "propensities",
            "logging",
            "action_features",
            "clusters",
            "timestamps",
            "eligible",
            "sampling_weights",
        )
        known = [name for name in optional if getattr(self, name) is not None]
        known += [f"metrics={', '.join(name for name, _ in self.metrics)}"] if self.metrics else []
        sizes = f"n={len(self)}, n_actions={self.n_actions}, context_dim={self.contexts.shape[1]}"
        return f"LoggedData({', '.join([sizes, *known])})"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything in the log; two logs with the same one hold the same rows in the same order."""
        return digest_of(self)

    @property
    def key(self) -> LogKey:
        """What estimates keep of the log; the same whichever of its metrics is the reward."""
        return key_of(self.__dict__.get("_whole_log", self))

    @property
    def reward_name(self) -> str:
        """The column of the rewards, where the log was read from a table."""
        return (self.table is not None and self.table.columns.reward) or "reward"

    def values_of(self, measures: Sequence[Measure]) -> tuple[Floats, ...]:
        """The columns (n,) of these measures as they are in the log, uncut."""
        log = self.__dict__.get("_whole_log", self)
        columns = {log.reward_name: log.rewards, **dict(log.metrics)}
        known = known_measures(measures, log.reward_name, [name for name, _ in log.metrics])
        return tuple(columns[measure.column] for measure in known)

    def measured(self, measure: Measure) -> LoggedData:
        """The same log, with one of its metrics as the reward; its estimates can be paired with those of the log."""
        values = self.values_of([measure])[0]
        if values is self.rewards and measure.cap is None:
            return self
        log = self._with(rewards=values if measure.cap is None else frozen(measure.of(values)))
        settle(log, _whole_log=self.__dict__.get("_whole_log", self), _measure=measure)
        return log

    @property
    def measure(self) -> Measure | None:
        """The metric that is the reward, where one was chosen (`measured`)."""
        return self.__dict__.get("_measure")

    @cached_property
    def logging_covers_all(self) -> bool:
        """Whether the logging policy gives every eligible action positive probability on every row."""
        if self.logging is None:
            raise LogError("the logging policy is not known: pass logging= to LoggedData.")
        if self.logging.least or self.logging.positive:
            return True
        return all(_covered(probabilities(self.logging, batch), batch) for batch in self.batches(width=self.n_actions))

    @property
    def whole(self) -> Batch:
        """All rows as one batch."""
        return Batch(
            self.rows, self.contexts, self.actions, self.rewards, self.propensities, self.n_actions,
            self.action_features, self.places, self.eligible,
        )  # fmt: skip

    def batches(self, width: int = 1, *, bytes_each: int = BATCH_BYTES) -> Iterator[Batch]:
        """The log in order, in runs of rows such that (rows x width) float64 fit into `bytes_each`."""
        return self.whole.parts(max(1, width), bytes_each)

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
        arrays = {name: getattr(self, name) for name in PER_ROW if getattr(self, name) is not None}
        eligible = None if self.eligible is None else Eligible(self.eligible.sets, frozen(self.eligible.codes[index]))
        return self._with(
            eligible=eligible,
            rows=frozen(self.row_numbers[index]),
            metrics=tuple((name, frozen(array[index])) for name, array in self.metrics),
            **{name: frozen(array[index]) for name, array in arrays.items()},
        )

    def _with(self, **fields: Any) -> LoggedData:
        """The same log, but for some fields."""
        copy = object.__new__(LoggedData)
        settle(copy, **{name: getattr(self, name) for name in LoggedData.__annotations__}, _table=self.table)
        settle(copy, _columns=self.__dict__.get("_columns"))
        settle(copy, **fields)
        return copy

    def with_logging(self, logging: Policy) -> LoggedData:
        """The same log, with all that is known or believed of its logging policy; unchecked."""
        return self._with(logging=logging)

    def replanted(self, actions: ArrayLike, rewards: ArrayLike, propensities: ArrayLike) -> LoggedData:
        """These rows, with other actions, rewards and propensities; row-aligned policies stay aligned.

        Clusters are dropped: what happened together says nothing about what is put in its place.
        """
        n, whole = len(self), checks.actions_of(actions, len(self))
        checks.count_actions(self.n_actions, whole, None, None)
        if self.eligible is not None:
            eligible_of(self.eligible, whole, self.n_actions)
        return self._with(
            actions=frozen(whole),
            rewards=frozen(checks.vector("rewards", rewards, n)),
            propensities=frozen(checks.propensities_of(propensities, n)),
            clusters=None,
            cluster_keys=None,
        )

    @property
    def action_labels(self) -> tuple[Any, ...]:
        """(k,) what the actions are called, in the order of their numbers: the labels that policies are matched by."""
        return self.names.actions

    @cached_property
    def names(self) -> Names:
        """What the log calls its actions and rows."""
        if self.table is not None:
            return self.table.names(self.rows)
        count = int(self.row_numbers.max()) + 1
        return Names(tuple(range(self.n_actions)), False, count, self.rows, self.__dict__.get("_columns"))

    @property
    def table(self) -> Any:
        """The table that the log was read from, for policies that are columns of it; None: there is none."""
        return self.__dict__.get("_table")

    def with_table(self, table: Any) -> LoggedData:
        """The log, which then knows its table."""
        settle(self, _table=table)
        return self

    @cached_property
    def counted(self) -> Floats | None:
        """(n,) how often each row counts beside the others: the sampling weights with mean 1; None without."""
        s = self.sampling_weights
        return None if s is None else np.asarray(s / s.mean())

    def rows_alike(self, seed: int = 0) -> Ints:
        """A sample of row numbers that count alike: each is kept with a chance in proportion to its sampling weight."""
        if self.sampling_weights is None:
            return np.arange(len(self))
        chance = seeded(self.whole.draw_numbers.astype(np.uint64), seed, ALIKE) / 2.0**64
        return np.flatnonzero(chance < self.sampling_weights / self.sampling_weights.max())

    def alike(self, seed: int = 0) -> LoggedData | None:
        """The log of `rows_alike`; the log itself without sampling weights; None where fewer than two rows are left."""
        if self.sampling_weights is None:
            return self
        rows = self.rows_alike(seed)
        return self.take(rows)._with(sampling_weights=None) if len(rows) > 1 else None

    @property
    def mean_reward(self) -> float:
        """The mean of the rewards, by sampling weights where there are any."""
        return float(self.rewards.mean() if self.counted is None else (self.rewards * self.counted).mean())

    @property
    def row_numbers(self) -> Ints:
        """The numbers (n,) of the rows, as row-aligned policies count them."""
        return self.whole.row_numbers

    @property
    def keys(self) -> Array:
        """64 bits (n,) that rows of one cluster share, or that are the row's own: its place in the files."""
        return self.whole.draw_numbers.astype(np.uint64) if self.cluster_keys is None else self.cluster_keys

    def placed(self, places: Ints) -> LoggedData:
        """The same log, whose rows stood at these places (n,) of their files."""
        return self._with(places=frozen(places))

    def keyed(self, keys: Array | None) -> LoggedData:
        """The same log, whose clusters have these keys (n,)."""
        return self if keys is None else self._with(cluster_keys=frozen(keys))

    @cached_property
    def groups(self) -> int:
        """The number of clusters, or of rows where there are no clusters."""
        return len(self) if self.clusters is None else len(np.unique(self.clusters))

    def fold_numbers(self, k: int, seed: int = 0) -> Ints:
        """The fold (n,) of each row, by a hash of its key; rows of one cluster stay together."""
        positive_int("folds", k, least=2)
        what = "rows" if self.clusters is None else "clusters"
        if k > self.groups:
            raise LogError(f"cannot split {self.groups} {what} into {k} folds: use folds={self.groups} or fewer.")
        fold = folds_of_keys(self.keys, k, seed)
        if (fold == fold[0]).all():
            raise LogError(f"all {self.groups} {what} fall into one of {k} folds: use another seed, or more rows.")
        return fold

    def folds(self, k: int, seed: int = 0) -> tuple[Ints, ...]:
        """The row numbers of each of k folds."""
        fold = self.fold_numbers(k, seed)
        return tuple(np.flatnonzero(fold == number) for number in range(k))


def _covered(p: Floats, batch: Batch) -> bool:
    """Whether p (b, k) is positive for every eligible action."""
    return bool((p > 0).all() if batch.eligible is None else ((p > 0) | ~batch.eligible.mask()).all())


def _cross_check(log: LoggedData, policy: Policy) -> Floats:
    """The propensities, after checking that the logging policy says the same: logging[i, a_i] == propensity_i."""
    logged = np.concatenate([logged_probability(policy, batch) for batch in log.batches(width=FEW)])
    checks.refuse_contradictions(logged, log.propensities)
    return frozen(logged) if log.propensities is None else log.propensities
