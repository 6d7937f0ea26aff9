"""Cross-fitted reward predictions: sparse networks, and a ridge model beside them where that adds something.

The held-out folds decide on the penalty, on the number of inputs, and on the share of the ridge model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np
import torch

from cael.common.types import Array, Floats, Ints
from cael.embedding.build import rows_at_once
from cael.embedding.growing import Choice, Growing, Grown, Member
from cael.embedding.reward_network import predict, predict_all
from cael.embedding.settings import Growth
from cael.embedding.training import check_alike, one_thread, pick_device
from cael.errors import InputError
from cael.log.logged import BATCH_BYTES, Batch, LoggedData
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
    penalty, inputs: what was chosen. ridge: for each fold, a ridge model; empty: it adds nothing. share: of the
    networks in f, the rest is ridge. explained: held-out R^2 of f. rows: how many trained and judged the networks.
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
    ridge: tuple[FittedOutcome, ...] = ()
    share: float = 1.0
    explained: float = 0.0
    rows: int = 0

    @property
    def learned(self) -> bool:
        """Whether f is anything but the mean reward."""
        return bool(self.members[0] or self.ridge)

    @property
    def device(self) -> torch.device:
        """Where the networks are, and where what they predict is made into weights."""
        return self.members[0][0].table.device if self.members[0] else torch.device("cpu")

    def cpu(self) -> SparseRewards:
        """The same on the CPU, for other processes."""
        return self._to(device="cpu")

    def double(self) -> SparseRewards:
        """The same with numbers of 64 bits: slower, and what a row is told does not depend on the block that it is in.

        With 32 bits the sixth digit does, as products of other shapes are added up in another order.
        """
        return self._to(dtype=torch.float64)

    def _to(self, **where: Any) -> SparseRewards:
        members = tuple(
            tuple(Member({n: v.to(**where) for n, v in each.weights.items()}, each.table.to(**where)) for each in some)
            for some in self.members
        )
        return replace(self, members=members)

    def predict(self, fold: int, batch: Batch) -> Floats:
        """r_hat (b, k) for rows of a fold, by the models that did not see it."""
        if not self.ridge:
            return self._network(fold, batch)
        q = self.ridge[fold].predict(batch)
        return q if self.share == 0 else self.share * self._network(fold, batch) + (1 - self.share) * q

    def predict_at(self, fold: int, batch: Batch, actions: Ints) -> Floats:
        """r_hat (b, m) of some actions (b, m)."""
        if not self.ridge:
            return self._network(fold, batch, actions)
        q = self.ridge[fold].at(batch, actions)
        return q if self.share == 0 else self.share * self._network(fold, batch, actions) + (1 - self.share) * q

    @one_thread()
    @torch.no_grad()
    def _network(self, fold: int, batch: Batch, actions: Ints | None = None) -> Floats:
        """What the networks predict for all actions (b, k), or for some of each row (b, m)."""
        m = batch.n_actions if actions is None else actions.shape[1]
        if not self.members[fold]:
            return np.full((len(batch), m), self.mean)
        hidden = self.members[fold][0].weights["b2"].shape[-1]
        x = self._inputs(fold, batch)
        some = None if actions is None else torch.as_tensor(actions, device=x.device)
        size = rows_at_once(x.device, m * hidden)
        parts = []
        for at in range(0, len(x), size):
            block, wanted = x[at : at + size], None if some is None else some[at : at + size]
            every = [predict_all(each.weights, block, each.lifted, wanted) for each in self.members[fold]]
            parts.append(torch.stack(every).mean(dim=0).cpu().numpy())
        return np.concatenate(parts).astype(np.float64) * self.spread + self.mean

    @one_thread()
    @torch.no_grad()
    def network_logged(self, fold: int, batch: Batch) -> Floats:
        """What the networks predict for the logged actions (b,)."""
        if not self.members[fold]:
            return np.full(len(batch), self.mean)
        x, a = self._inputs(fold, batch)[None], torch.as_tensor(np.array(batch.actions))
        every = [predict(each.weights, x, each.table[a.to(each.table.device)][None])[0] for each in self.members[fold]]
        found: Floats = torch.stack(every).mean(dim=0).cpu().numpy().astype(np.float64)
        return found * self.spread + self.mean

    def _inputs(self, fold: int, batch: Batch) -> torch.Tensor:
        like = self.members[fold][0].table
        return torch.as_tensor((batch.contexts - self.centre) / self.scale, dtype=like.dtype, device=like.device)


def sparse_rewards(
    logs: Sequence[LoggedData], settings: Growth, folds: int, seeds: Sequence[int],
    given: Sequence[Sequence[Array]] | None = None,
) -> list[SparseRewards]:  # fmt: skip
    """Train the networks of all logs, penalties and folds at once, then the restarts of what each log chose; logs of
    one shape and the same actions.

    given: the folds of each log, where they are drawn already.
    """
    check_alike(logs)
    device = pick_device(settings.device)
    own = (log.folds(folds, seed) for log, seed in zip(logs, seeds, strict=True)) if given is None else given
    whole, splits = logs, [list(each) for each in own]
    logs, inside = sampled(logs, splits, settings.rows, seeds)
    growing = Growing(whole, logs, inside, [_scaler(log) for log in logs], settings, seeds, device)
    chosen, first = growing.choose()
    again = growing.again(chosen)
    found = [
        _rewards(t, choice, first, again, split, growing)
        for t, (choice, split) in enumerate(zip(chosen, splits, strict=True))
    ]
    fresh = [partial(Ridge().fit_without, *each) for each in zip(whole, splits, seeds, strict=True)]
    return [with_ridge(*each) for each in zip(found, whole, fresh, strict=True)]


def sampled(
    logs: Sequence[LoggedData], splits: Sequence[Sequence[Array]], most: int, seeds: Sequence[int]
) -> tuple[list[LoggedData], list[list[Array]]]:
    """At most so many rows of each log, drawn at random in whole clusters, and where its folds lie among them."""
    parts, inside = [], []
    for log, split, seed in zip(logs, splits, seeds, strict=True):
        rows = _some_rows(log, most, seed)
        parts.append(log if len(rows) == len(log) else log.take(rows))
        inside.append([np.flatnonzero(np.isin(rows, fold)) for fold in split])
        if max(len(fold) for fold in inside[-1]) > len(parts[-1]) - 2 or len(parts[-1]) < 2 * len(split):
            raise InputError(
                f"Growth(rows={most}) leaves a fold without rows to train on; use more rows, or fewer folds."
            )
    check_alike(parts)
    return parts, inside


def _some_rows(log: LoggedData, most: int, seed: int) -> Array:
    if len(log) <= most:
        return np.arange(len(log))
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x5A3B1E]))
    if log.clusters is None:
        return np.sort(rng.choice(len(log), most, replace=False))
    code, sizes = np.unique(log.clusters, return_inverse=True, return_counts=True)[1:]
    order = rng.permutation(len(sizes))
    kept = np.zeros(len(sizes), dtype=bool)
    kept[order[sizes[order].cumsum() <= most]] = True
    return np.flatnonzero(kept[code])


def with_ridge(
    networks: SparseRewards, log: LoggedData, ridge_models: Callable[[], list[FittedOutcome]]
) -> SparseRewards:
    """The networks with a ridge model beside them, in the shares that predict held-out rewards best.

    The ridge model joins only if, beside the networks, its coefficient is more than JOINS standard errors above 0: a
    model that knows nothing would only shrink f, which helps the loss and biases the estimate.
    """
    fitted = ridge_models()
    own, ridge = np.empty(len(log)), np.empty(len(log))
    for fold, rows in enumerate(networks.folds):
        for batch, some in blocks(log, rows, width=log.contexts.shape[1] + 1) if len(rows) else ():
            own[some], ridge[some] = networks.network_logged(fold, batch), fitted[fold].logged(batch)
    joins, share = _share(own, ridge, log.rewards)
    f = share * own + (1 - share) * ridge if joins else own
    explained = max(0.0, 1 - float(((log.rewards - f) ** 2).mean() / log.rewards.var()))
    if not joins:
        return replace(networks, explained=explained)
    return replace(networks, ridge=tuple(fitted), share=share, explained=explained)


def _share(own: Floats, ridge: Floats, rewards: Floats) -> tuple[bool, float]:
    """Whether the ridge model joins, and the share of the networks beside it."""
    r, x, z = (each - each.mean() for each in (rewards, own, ridge))
    # What the ridge model knows beside the networks, and its coefficient.
    beside = z - x * (float(x @ z) / max(float(x @ x), 1e-300))
    size = float(beside @ beside)
    if size <= SAME * float(z @ z):
        return False, 1.0
    coefficient = float(beside @ r) / size
    rest = r - x * (float(x @ r) / max(float(x @ x), 1e-300)) - coefficient * beside
    if coefficient <= JOINS * np.sqrt(float(rest @ rest) / len(r) / size):
        return False, 1.0
    apart = own - ridge
    return True, float(np.clip((rewards - ridge) @ apart / max(float(apart @ apart), 1e-300), 0.0, 1.0))


def blocks(log: LoggedData, rows: Array, width: int, bytes_each: int = BATCH_BYTES) -> Iterator[tuple[Batch, Array]]:
    """Batches of some rows of a log, with their row numbers."""
    at = 0
    for batch in log.take(rows).batches(width=width, bytes_each=bytes_each):
        yield batch, rows[at : at + len(batch)]
        at += len(batch)


def _scaler(log: LoggedData) -> tuple[Floats, Floats, float, float]:
    """Means and standard deviations of contexts and rewards; a constant column gets a scale that makes it 0."""
    x = np.asarray(log.contexts, dtype=np.float64)
    spread = x.std(axis=0)
    scale = np.where(spread > 1e-12 * (1 + np.abs(x.mean(axis=0))), spread, np.inf)
    r = log.rewards
    if not r.std() > 0:
        raise InputError("the rewards are all equal: there is nothing to learn, and every policy earns that.")
    return x.mean(axis=0), scale, float(r.mean()), float(r.std())


def _rewards(
    t: int, choice: Choice, first: Grown, again: Grown | None, split: Sequence[Array], growing: Growing
) -> SparseRewards:
    """The networks of log t at the round and penalty with the least held-out loss; none if the mean is as good."""
    folds, settings = len(split), growing.settings
    members: list[tuple[Member, ...]] = [()] * folds
    if choice.learned:
        for fold in range(folds):
            nets = [first.member(choice.at, t * first.each + choice.penalty * folds + fold)]
            if again is not None:
                start = t * again.each + fold * (settings.restarts - 1)
                nets += [again.member(choice.at, i) for i in range(start, start + settings.restarts - 1)]
            members[fold] = tuple(nets)
    inputs = first.rounds[choice.at].active.shape[1]
    found = SparseRewards(
        tuple(split), tuple(members), choice.losses, settings.penalties[choice.penalty], inputs, *growing.scalers[t]
    )
    return replace(found, rows=len(growing.logs[t]))
