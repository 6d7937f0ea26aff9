"""Networks of several logs trained at once: one of each penalty and fold, by which round and penalty are chosen, and
then the restarts of what was chosen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import final

import numpy as np

from cael.common.types import Array, Floats
from cael.embedding.arrays import AnyArray, Arrays
from cael.embedding.batches import TrialData
from cael.embedding.exact import sparse_network as sparse
from cael.embedding.exact.inputs import ActionInputs, action_inputs_of
from cael.embedding.exact.reward_network import Weights, of_actions
from cael.embedding.settings import Growth
from cael.log.logged import LoggedData


@final
@dataclass(frozen=True, eq=False)
class Member:
    """One trained network: its weights, and its active inputs for all actions (k, c)."""

    weights: Weights
    table: AnyArray

    @cached_property
    def lifted(self) -> AnyArray:
        """What each action adds to the first layer, (k, h)."""
        return self.table @ of_actions(self.weights)[0]


@final
@dataclass(frozen=True)
class Choice:
    """Of one log. losses: (rounds, penalties) that it chose from. at, penalty: numbers of the best of both. stopped:
    whether the budget ended the training."""

    losses: Floats
    at: int
    penalty: int
    stopped: bool = False

    @property
    def learned(self) -> bool:
        """Whether a network is better than the mean reward."""
        return bool(self.losses.min() < 1)


@final
@dataclass(frozen=True, eq=False)
class Grown:
    """Networks of all logs after every round, `each` of a log, and the inputs that they could choose from."""

    rounds: list[sparse.Round]
    inputs: ActionInputs
    each: int

    def member(self, at: int, trial: int) -> Member:
        last = self.rounds[at]
        weights = {name: value[trial : trial + 1] for name, value in last.weights.items()}
        return Member(weights, self.inputs.table(trial, last.active[trial]))


@final
@dataclass(frozen=True, eq=False)
class Growing:
    """Logs, their folds, the means and scales of their contexts and rewards, and how their networks are trained."""

    logs: Sequence[LoggedData]
    splits: Sequence[Sequence[Array]]
    scalers: Sequence[tuple[Floats, Floats, float, float]]
    settings: Growth
    seeds: Sequence[int]
    xp: Arrays
    started: float = field(default_factory=lambda: time.monotonic())

    def late(self, share: float = 0.0) -> bool:
        """Whether the budget is used up, or would be after so much more time, as a share of that until now."""
        budget = self.settings.budget
        return budget is not None and (time.monotonic() - self.started) * (1 + share) >= budget

    def choose(self) -> tuple[list[Choice], Grown]:
        """What the held-out folds say, of each log."""
        shape = (len(self.logs), len(self.settings.penalties), len(self.splits[0]))
        pairs = zip(self.logs, self.splits, strict=True)
        sizes = np.array([[_size(log, fold) for fold in split] for log, split in pairs])
        shares = (sizes / sizes.sum(axis=1, keepdims=True))[:, None, :]

        def judged(rounds: list[sparse.Round]) -> Floats:
            """(rounds, logs, penalties) mean held-out loss over all rows."""
            return np.stack([(each.held_out.reshape(shape) * shares).sum(axis=2) for each in rounds])

        def enough(rounds: list[sparse.Round]) -> list[int]:
            """Of each log, the rounds after which it has gone `patience` of them without a better one; 0: not yet."""
            best = judged(rounds).min(axis=2)
            behind = np.arange(len(best)) - np.stack([best[: i + 1].argmin(axis=0) for i in range(len(best))]).T
            return [next((i + 1 for i, gone in enumerate(of) if gone >= self.settings.patience), 0) for of in behind]

        penalties = [self.settings.penalties] * len(self.logs)
        first = self._grow(penalties, 1, 0x5BA25E, lambda rounds: self.late() or all(enough(rounds)))
        losses, chosen, cut = judged(first.rounds), [], len(first.rounds) < len(sparse.sizes(first.inputs.count))
        # Logs that are trained together go on until all have had enough; each chooses from the rounds it would have
        # alone.
        for t, stop in enumerate(enough(first.rounds)):
            of_log = losses[: stop or None, t]
            at, penalty = np.unravel_index(int(of_log.argmin()), of_log.shape)
            chosen.append(Choice(of_log, int(at), int(penalty), stopped=cut and not stop))
        return chosen, first

    def again(self, chosen: Sequence[Choice], rounds: int) -> Grown | None:
        """The restarts of what was chosen after so many rounds; None where there are none, or no time is left."""
        if self.settings.restarts == 1 or not any(choice.learned for choice in chosen):
            return None
        last = max(choice.at for choice in chosen if choice.learned)
        if self.late((self.settings.restarts - 1) / len(self.settings.penalties) * (last + 1) / rounds):
            return None
        penalties = [(self.settings.penalties[choice.penalty],) for choice in chosen]
        return self._grow(penalties, self.settings.restarts - 1, 0x5BA25F, lambda rounds: len(rounds) > last)

    def members(self, t: int, choice: Choice, first: Grown, again: Grown | None) -> tuple[tuple[Member, ...], ...]:
        """For each fold the chosen networks of log t; none if the mean is as good."""
        folds, restarts = len(self.splits[t]), self.settings.restarts - 1
        if not choice.learned:
            return ((),) * folds
        nets = [[first.member(choice.at, t * first.each + choice.penalty * folds + fold)] for fold in range(folds)]
        if again is not None:
            for fold, i in product(range(folds), range(restarts)):
                nets[fold].append(again.member(choice.at, t * again.each + fold * restarts + i))
        return tuple(map(tuple, nets))

    def _grow(
        self, penalties: Sequence[Sequence[float]], times: int, stream: int, done: Callable[[list[sparse.Round]], bool]
    ) -> Grown:
        """Networks of the given penalties of each log, of all folds, so many times; on the trial axis in this order."""
        each = len(penalties[0]) * len(self.splits[0]) * times
        inputs = action_inputs_of(self.logs, each, self.xp)
        states = (np.random.SeedSequence([seed, stream]).generate_state(each) for seed in self.seeds)
        seeds = [int(state) for of_log in states for state in of_log]
        return Grown(sparse.grow(inputs, *self._trials(penalties, times), self.settings, seeds, done), inputs, each)

    def _trials(self, penalties: Sequence[Sequence[float]], times: int) -> tuple[TrialData, list[AnyArray], AnyArray]:
        """The trial axis (log, penalty, fold, restart): data, held-out rows, penalties."""
        xp, rows, held_out, strengths = self.xp, [], [], []
        for log, split, of_log in zip(self.logs, self.splits, penalties, strict=True):
            others = [np.setdiff1d(np.arange(len(log)), fold) for fold in split]
            folds = [tuple(xp.asarray(part, xp.int64) for part in pair) for pair in zip(others, split, strict=True)]
            for penalty, (train, held), _ in product(of_log, folds, range(times)):
                rows.append(train)
                held_out.append(held)
                strengths.append(penalty / np.sqrt(len(train)))
        return TrialData(*self._columns(), tuple(rows), self._often()), held_out, xp.asarray(strengths, xp.float32)

    def _often(self) -> AnyArray | None:
        """(L, n) how often each row counts; None without sampling weights."""
        often = [log.counted for log in self.logs if log.counted is not None]
        return self.xp.asarray(np.stack(often), self.xp.float32) if often else None

    def _columns(self) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Contexts (L, n, d), actions and rewards (L, n) of all logs, standardised."""
        xp, pairs = self.xp, list(zip(self.logs, self.scalers, strict=True))
        x = np.stack([(log.contexts - centre) / scale for log, (centre, scale, *_) in pairs])
        r = np.stack([(log.rewards - mean) / spread for log, (*_, mean, spread) in pairs])
        a = np.stack([log.actions for log in self.logs])
        return xp.asarray(x, xp.float32), xp.asarray(a, xp.int64), xp.asarray(r, xp.float32)


def _size(log: LoggedData, rows: Array) -> float:
    """How many rows some rows count as."""
    return float(len(rows) if log.counted is None else log.counted[rows].sum())
