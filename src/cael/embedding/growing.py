"""Networks of several logs trained at once: one of each penalty and fold, by which round and penalty are chosen, and
then the restarts of what was chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch

from cael.common.types import Array, Floats
from cael.embedding import sparse_network as sparse
from cael.embedding.inputs import ActionInputs, action_inputs_of
from cael.embedding.reward_network import Weights, of_actions
from cael.embedding.settings import Growth
from cael.embedding.training import TrialData
from cael.log.logged import LoggedData


@final
@dataclass(frozen=True, eq=False)
class Member:
    """One trained network: its weights, and its active inputs for all actions (k, c)."""

    weights: Weights
    table: torch.Tensor

    @cached_property
    def lifted(self) -> torch.Tensor:
        """What each action adds to the first layer, (k, h)."""
        return self.table @ of_actions(self.weights)[0]


@final
@dataclass(frozen=True)
class Choice:
    """Of one log. losses: (rounds, penalties) that it chose from. at, penalty: numbers of the best of both."""

    losses: Floats
    at: int
    penalty: int

    @property
    def learned(self) -> bool:
        """Whether a network is better than the mean reward."""
        return bool(self.losses.min() < 1)


@final
@dataclass(frozen=True, eq=False)
class Grown:
    """Networks of all logs, `each` of a log: after every round, and the inputs that they could choose from."""

    rounds: list[sparse.Round]
    inputs: ActionInputs
    each: int

    def member(self, at: int, trial: int) -> Member:
        found = self.rounds[at]
        weights = {name: value[trial : trial + 1] for name, value in found.weights.items()}
        return Member(weights, self.inputs.table(trial, found.active[trial]))


@final
@dataclass(frozen=True, eq=False)
class Growing:
    """Logs, the folds inside them, and what to train: one network of each penalty and fold, by which round and penalty
    are chosen, then the restarts of what was chosen."""

    whole: Sequence[LoggedData]
    logs: Sequence[LoggedData]
    inside: Sequence[Sequence[Array]]
    scalers: Sequence[Any]
    settings: Growth
    seeds: Sequence[int]
    device: torch.device

    def choose(self) -> tuple[list[Choice], Grown]:
        """What the held-out folds say, of each log."""
        shape = (len(self.logs), len(self.settings.penalties), len(self.inside[0]))
        sizes = np.array([[len(fold) for fold in split] for split in self.inside], dtype=np.float64)
        shares = (sizes / sizes.sum(axis=1, keepdims=True))[:, None, :]

        def judged(rounds: list[sparse.Round]) -> Floats:
            """(rounds, logs, penalties) mean held-out loss over all rows."""
            return np.stack([(each.held_out.reshape(shape) * shares).sum(axis=2) for each in rounds])

        def enough(rounds: list[sparse.Round]) -> list[int]:
            """Of each log, the rounds after which it has gone `patience` of them without a better one; 0: not yet."""
            best = judged(rounds).min(axis=2)
            behind = np.arange(len(best)) - np.stack([best[: i + 1].argmin(axis=0) for i in range(len(best))]).T
            return [next((i + 1 for i, gone in enumerate(own) if gone >= self.settings.patience), 0) for own in behind]

        every = [self.settings.penalties] * len(self.logs)
        first = self._grow(every, 1, 0x5BA25E, lambda some: all(enough(some)))
        losses, chosen = judged(first.rounds), []
        # Logs that are trained together go on until all have had enough; each chooses from the rounds it would have
        # alone.
        for t, stop in enumerate(enough(first.rounds)):
            own = losses[: stop or None, t]
            at, penalty = np.unravel_index(int(own.argmin()), own.shape)
            chosen.append(Choice(own, int(at), int(penalty)))
        return chosen, first

    def again(self, chosen: Sequence[Choice]) -> Grown | None:
        """The restarts of what was chosen; None where there are none."""
        if self.settings.restarts == 1 or not any(each.learned for each in chosen):
            return None
        last = max(each.at for each in chosen if each.learned)
        penalties = [(self.settings.penalties[each.penalty],) for each in chosen]
        return self._grow(penalties, self.settings.restarts - 1, 0x5BA25F, lambda rounds: len(rounds) > last)

    def _grow(
        self, penalties: Sequence[Sequence[float]], times: int, stream: int, done: Callable[[list[sparse.Round]], bool]
    ) -> Grown:
        """Networks of the given penalties of each log, of all folds, so many times; on the trial axis in this order."""
        each = len(penalties[0]) * len(self.inside[0]) * times
        inputs = action_inputs_of(list(self.whole), each, self.device)
        data, held_out, strengths = trials_of(self.logs, self.inside, self.scalers, penalties, times, self.device)
        states = (np.random.SeedSequence([seed, stream]).generate_state(each) for seed in self.seeds)
        seeds = [int(state) for own in states for state in own]
        return Grown(sparse.grow(inputs, data, held_out, strengths, self.settings, seeds, done), inputs, each)


def trials_of(
    logs: Sequence[LoggedData], splits: Sequence[Sequence[Array]], scalers: Sequence[Any],
    wanted: Sequence[Sequence[float]], times: int, device: torch.device,
) -> tuple[TrialData, list[torch.Tensor], torch.Tensor]:  # fmt: skip
    """The trial axis (log, penalty, fold, restart): data, held-out rows, penalties. wanted: penalties of each log."""
    x, a, r, rows, held_out, penalties = [], [], [], [], [], []
    for log, split, own, (centre, scale, mean, spread) in zip(logs, splits, wanted, scalers, strict=True):
        every = np.arange(len(log))
        folds = [
            (
                torch.as_tensor(np.setdiff1d(every, fold), device=device),
                torch.as_tensor(np.asarray(fold), device=device),
            )
            for fold in split
        ]
        count = len(own) * len(split) * times
        one_x = torch.as_tensor((log.contexts - centre) / scale, dtype=torch.float32, device=device)
        one_r = torch.as_tensor((log.rewards - mean) / spread, dtype=torch.float32, device=device)
        one_a = torch.as_tensor(np.array(log.actions), dtype=torch.int64, device=device)
        x.append(one_x[None].expand(count, -1, -1))
        a.append(one_a[None].expand(count, -1))
        r.append(one_r[None].expand(count, -1))
        for penalty in own:
            for train, held in folds:
                for _ in range(times):
                    rows.append(train)
                    held_out.append(held)
                    penalties.append(penalty / np.sqrt(len(train)))
    join = (lambda parts: parts[0]) if len(logs) == 1 else torch.cat
    data = TrialData(join(x), join(a), join(r), tuple(rows))
    return data, held_out, torch.as_tensor(penalties, dtype=torch.float32, device=device)
