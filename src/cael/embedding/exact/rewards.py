"""Cross-fitted reward predictions: sparse networks, and a ridge model beside them where that adds something.

The held-out folds decide on the penalty, on the number of inputs, and on the share of the ridge model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.embedding.arrays import NUMPY, AnyArray, Arrays, arrays_on
from cael.embedding.arrays import of as arrays_of
from cael.embedding.batches import check_same_actions
from cael.embedding.exact.growing import Growing, Member
from cael.embedding.exact.inputs import centre_and_scale
from cael.embedding.exact.reward_network import predict, predict_all
from cael.embedding.rows import rows_at_once
from cael.embedding.settings import Growth
from cael.errors import InputError
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.outcomes.outcome_model import FittedOutcome
from cael.outcomes.ridge import Ridge

JOINS = 2.0
"""Standard errors by which the ridge model's coefficient must be above 0."""
SAME = 1e-9
"""The ridge model says what the networks say where it has less than this share of its variance beside them."""


@final
@dataclass(frozen=True, eq=False)
class SparseRewards:
    """Reward models of one log, one for each fold of rows, each trained on the other folds.

    folds: the rows. members: for each fold, networks whose predictions are averaged; empty: the mean reward is better
    than any network. losses: (rounds, penalties) held-out mean squared error as a share of the reward's variance.
    penalty, inputs: what was chosen. centre, scale: of the contexts; mean, spread: of the rewards. rows: how many
    trained and judged the networks. ridge: for each fold, a ridge model; empty: it adds nothing. share: of the networks
    in f, the rest is ridge. explained: held-out R^2 of f. short: whether the budget ended the training.
    """

    folds: tuple[Array, ...]
    members: tuple[tuple[Member, ...], ...]
    losses: Floats
    penalty: float
    inputs: int
    centre: Floats
    scale: Floats
    mean: float
    spread: float
    rows: int
    ridge: tuple[FittedOutcome, ...] = ()
    share: float = 1.0
    explained: float = 0.0
    short: bool = False

    @property
    def learned(self) -> bool:
        """Whether f is anything but the mean reward."""
        return bool(self.members[0] or self.ridge)

    @property
    def xp(self) -> Arrays:
        """What the networks are computed with, and what they predict is made into weights."""
        return arrays_of(self.members[0][0].table) if self.members[0] else NUMPY

    def in_numpy(self, dtype: Any = None) -> SparseRewards:
        """The same networks on the CPU, as other processes need them; dtype: with numbers of another type."""

        def moved(x: AnyArray) -> AnyArray:
            return NUMPY.asarray(self.xp.to_numpy(x), dtype)

        members = tuple(
            tuple(Member({n: moved(v) for n, v in net.weights.items()}, moved(net.table)) for net in networks)
            for networks in self.members
        )
        return replace(self, members=members)

    def predict(self, fold: int, batch: Batch, actions: Ints | None = None) -> Floats:
        """r_hat (b, k) for rows of a fold, by the models that did not see it, or (b, m) of some actions (b, m)."""
        if not self.ridge:
            return self._networks(fold, batch, actions)
        ridge = self.ridge[fold].predict(batch) if actions is None else self.ridge[fold].at(batch, actions)
        if self.share == 0:
            return ridge
        return self.share * self._networks(fold, batch, actions) + (1 - self.share) * ridge

    def _networks(self, fold: int, batch: Batch, actions: Ints | None) -> Floats:
        """What the networks alone predict, of the same."""
        m, members = batch.n_actions if actions is None else actions.shape[1], self.members[fold]
        if not members:
            return np.full((len(batch), m), self.mean)
        x, xp = self._inputs(fold, batch), self.xp
        columns = None if actions is None else xp.asarray(actions, xp.int64)
        size = rows_at_once(xp, m * members[0].weights["b2"].shape[-1])
        parts = []
        for at in range(0, len(x), size):
            block, of = x[at : at + size], None if columns is None else columns[at : at + size]
            parts.append(self._average([predict_all(net.weights, block, net.lifted, of) for net in members]))
        return np.concatenate(parts)

    def network_logged(self, fold: int, batch: Batch) -> Floats:
        """What the networks alone predict for the logged actions (b,)."""
        members = self.members[fold]
        if not members:
            return np.full(len(batch), self.mean)
        x, a = self._inputs(fold, batch)[None], self.xp.asarray(batch.actions, self.xp.int64)
        return self._average([predict(net.weights, x, net.table[a][None])[0] for net in members])

    def _inputs(self, fold: int, batch: Batch) -> AnyArray:
        return self.xp.asarray((batch.contexts - self.centre) / self.scale, self.members[fold][0].table.dtype)

    def _average(self, predictions: list[AnyArray]) -> Floats:
        """The mean over networks, in units of the reward."""
        mean: AnyArray = sum(predictions[1:], predictions[0]) / len(predictions)
        return self.xp.to_numpy(mean).astype(np.float64) * self.spread + self.mean


def sparse_rewards(
    logs: Sequence[LoggedData], settings: Growth, folds: int, seeds: Sequence[int]
) -> list[SparseRewards]:
    """Models of logs of one shape and the same actions. On a device all train at once; on a CPU one after the other,
    as the arrays of one fit its cache (five at once took a third longer)."""
    check_same_actions(logs)
    xp = arrays_on(settings.device)
    count = len(logs) if xp.on_device else 1
    parts = [slice(at, at + count) for at in range(0, len(logs), count)]
    return [model for part in parts for model in trained_at_once(logs[part], settings, folds, seeds[part], xp)]


def trained_at_once(
    logs: Sequence[LoggedData], settings: Growth, folds: int, seeds: Sequence[int], xp: Arrays
) -> list[SparseRewards]:
    """The networks of all logs, penalties and folds, then the restarts of what each log chose."""
    splits = [list(log.folds(folds, seed)) for log, seed in zip(logs, seeds, strict=True)]
    for log, split in zip(logs, splits, strict=True):
        if max(len(fold) for fold in split) > len(log) - 2 or len(log) < 2 * folds:
            raise InputError(
                f"{len(log)} rows leave a fold without rows to train on; use more rows (Growth(rows=...)), or fewer "
                "folds."
            )
    growing = Growing(logs, splits, [_scaler(log) for log in logs], settings, seeds, xp)
    chosen, first = growing.choose()
    again = growing.again(chosen, len(first.rounds))
    models = [
        SparseRewards(
            tuple(split), growing.members(t, choice, first, again), choice.losses, settings.penalties[choice.penalty],
            first.rounds[choice.at].active.shape[1], *growing.scalers[t], len(log),
            short=choice.stopped or (again is None and choice.learned and settings.restarts > 1),
        )
        for t, (log, split, choice) in enumerate(zip(logs, splits, chosen, strict=True))
    ]  # fmt: skip
    return [_with_ridge(*each) for each in zip(models, logs, seeds, strict=True)]


def _with_ridge(networks: SparseRewards, log: LoggedData, seed: int) -> SparseRewards:
    """The networks with a ridge model beside them, in the shares that predict held-out rewards best.

    The ridge model joins only if, beside the networks, its coefficient is more than JOINS standard errors above 0: a
    model that knows nothing would only shrink f, which helps the loss and biases the estimate.
    """
    models = Ridge().fit_without(log, list(networks.folds), seed)
    network, ridge = np.empty(len(log)), np.empty(len(log))
    for fold, rows in enumerate(networks.folds):
        for batch, of in blocks(log, rows, width=log.contexts.shape[1] + 1) if len(rows) else ():
            network[of], ridge[of] = networks.network_logged(fold, batch), models[fold].logged(batch)
    often = np.ones(len(log)) if log.counted is None else log.counted
    joins, share = _share(network, ridge, log.rewards, often)
    f = share * network + (1 - share) * ridge if joins else network
    left = float((often * (log.rewards - f) ** 2).mean() / (often * (log.rewards - log.mean_reward) ** 2).mean())
    explained = max(0.0, 1 - left)
    return replace(networks, ridge=tuple(models) if joins else (), share=share, explained=explained)


def _share(network: Floats, ridge: Floats, rewards: Floats, often: Floats) -> tuple[bool, float]:
    """Whether the ridge model joins, and the share of the networks beside it. often: how often each row counts."""
    root = np.sqrt(often)
    r, x, z = (root * (values - float((often * values).mean())) for values in (rewards, network, ridge))
    # What the ridge model knows beside the networks, and its coefficient.
    beside = z - x * (float(x @ z) / max(float(x @ x), 1e-300))
    size = float(beside @ beside)
    if size <= SAME * float(z @ z):
        return False, 1.0
    coefficient = float(beside @ r) / size
    rest = r - x * (float(x @ r) / max(float(x @ x), 1e-300)) - coefficient * beside
    if coefficient <= JOINS * np.sqrt(float(rest @ rest) / len(r) / size):
        return False, 1.0
    apart = root * (network - ridge)
    return True, float(np.clip((root * (rewards - ridge)) @ apart / max(float(apart @ apart), 1e-300), 0.0, 1.0))


def blocks(log: LoggedData, rows: Array, width: int) -> Iterator[tuple[Batch, Array]]:
    """Batches of some rows of a log, with their row numbers."""
    at = 0
    for batch in log.take(rows).batches(width=width):
        yield batch, rows[at : at + len(batch)]
        at += len(batch)


def _scaler(log: LoggedData) -> tuple[Floats, Floats, float, float]:
    """Means and standard deviations of contexts and rewards."""
    if not log.rewards.std() > 0:
        raise InputError("the rewards are all equal: there is nothing to learn, and every policy earns that.")
    often, mean = np.ones(len(log)) if log.counted is None else log.counted, log.mean_reward
    return *centre_and_scale(log.contexts), mean, float(np.sqrt((often * (log.rewards - mean) ** 2).mean()))
