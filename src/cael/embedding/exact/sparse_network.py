"""A reward network that grows: inputs enter by the size of their gradient, under a group lasso; all folds at once.

The network (`reward_network`) begins with the contexts alone. In each round the inactive action inputs with the largest
gradients join, doubling their number, and training goes on from where it was. Every input, of the context too, has a
group lasso on its row of the first layer, minimised by proximal steps. How many inputs and how strong a penalty are
best is for the held-out folds to say.

Leading axis T: (log, penalty, fold, restart), in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from cael.common.progress import progress
from cael.embedding.exact.inputs import ActionInputs
from cael.embedding.exact.parallel import ALONE, Processes, processes
from cael.embedding.exact.proximal import BETA1, BETA2, ProximalAdam
from cael.embedding.exact.reward_network import Weights, gradients, predict, start, upper, with_one
from cael.embedding.graphs import Replayed
from cael.embedding.settings import Growth
from cael.embedding.stream import Stream
from cael.embedding.training import Batches, TrialData, deterministic, padded

SCREENED = 16384
"""Gradients of inactive inputs are taken over at most so many rows."""


@final
@dataclass(frozen=True)
class Round:
    """The networks after one round: active (T, c) input numbers, weights, held_out (T,) mean squared errors."""

    active: Tensor
    weights: Weights
    held_out: np.ndarray


def grow(
    inputs: ActionInputs,
    data: TrialData,
    held_out: Sequence[Tensor],
    penalties: Tensor,
    settings: Growth,
    seeds: Sequence[int],
    done: Callable[[list[Round]], bool],
) -> list[Round]:
    """Train round after round until `done(rounds)`; data.rows[t] trains trial t, held_out[t] judges it."""
    everyone = processes(settings.parallel, data.x.device)
    stream = Stream(seeds, data.x.device)
    optimiser = ProximalAdam(start(stream, data.x.shape[2], settings.hidden), penalties)
    # Folds differ in length from log to log: a batch is no larger than what each log of this length can train on.
    batches = Batches(data.rows, min(settings.batch_size, max(2, data.r.shape[1] // 3)), stream)
    judge, screen = padded(held_out), padded([rows[:SCREENED] for rows in data.rows])
    active = torch.zeros(data.trials, 0, dtype=torch.int64, device=data.x.device)
    rounds: list[Round] = []
    counts = sizes(inputs.count)
    with deterministic(), progress("training the reward model", len(counts) * settings.steps) as advance:
        for size in counts:
            if size > active.shape[1]:
                more = size - active.shape[1]
                joining = _strongest(optimiser.p, inputs, data, screen, active, more, everyone)
                optimiser.grow(active.shape[1], more)
                active = torch.cat([active, joining], dim=1)
            step = _step(optimiser, inputs, data, active, batches.size, everyone)
            for pace in _paces(settings, len(rounds), data.x.device):
                step(everyone.own(batches.next()), pace)
                advance(1)
            kept = {name: value.clone() for name, value in optimiser.p.items()}
            rounds.append(Round(active, kept, _judged(kept, inputs, data, judge, active, everyone)))
            if done(rounds):
                break
    return rounds


def _step(
    optimiser: ProximalAdam, inputs: ActionInputs, data: TrialData, active: Tensor, size: int, everyone: Processes
) -> Callable[[Tensor, Tensor], None]:
    """One step of training in place, a function of rows (T, B) and pace (3,); on a GPU it is a graph."""
    values = inputs.lookup(active)

    def step(rows: Tensor, pace: Tensor) -> None:
        x, a, r = data.at(rows)
        sums = gradients(optimiser.p, torch.cat([values(a), with_one(x)], dim=-1), r, size)
        optimiser.step(everyone.added(sums), pace)

    return Replayed(step, optimiser.state) if data.x.is_cuda and everyone.count == 1 else step


def sizes(count: int) -> list[int]:
    """0, 1, 2, 4, ... and all."""
    powers = [2**i for i in range(count.bit_length()) if 2**i < count]
    return [0, *powers, count]


def _paces(settings: Growth, before: int, device: torch.device) -> Tensor:
    """(steps, 3) of `ProximalAdam.step` in the round after `before` others; the rate falls to a twentieth along half a
    cosine."""
    i = np.arange(settings.steps)
    rate = settings.learning_rate * (0.05 + 0.95 * 0.5 * (1 + np.cos(np.pi * i / settings.steps)))
    t = before * settings.steps + i + 1
    paces = np.stack([rate, 1 - BETA1**t, 1 - BETA2**t], axis=1)
    return torch.as_tensor(paces, dtype=torch.float32, device=device)


def _strongest(
    p: Weights, inputs: ActionInputs, data: TrialData, screen: tuple[Tensor, Tensor], active: Tensor, count: int,
    everyone: Processes = ALONE,
) -> Tensor:  # fmt: skip
    """(T, count) the inactive inputs whose gradient at 0 has the largest norm."""
    rows, valid = screen
    share = valid / valid.sum(dim=1, keepdim=True)
    rows, share = everyone.own(rows), everyone.own(share)
    deltas, actions = [], []
    for at in range(0, rows.shape[1], 1024):
        part = slice(at, at + 1024)
        x, a, r = data.at(rows[:, part])
        x1 = with_one(x)
        first = torch.bmm(torch.cat([inputs.values(a, active), x1], dim=-1), p["first"]).requires_grad_()
        loss = (share[:, part] * (upper(p, first, x1) - r) ** 2).sum()
        deltas.append(torch.autograd.grad(loss, first)[0])
        actions.append(a)
    norms = inputs.norms(torch.cat(deltas, dim=1), torch.cat(actions, dim=1), everyone.added).scatter(1, active, -1.0)
    return norms.topk(count, dim=1).indices


@torch.no_grad()
def _judged(
    p: Weights, inputs: ActionInputs, data: TrialData, judge: tuple[Tensor, Tensor], active: Tensor,
    everyone: Processes = ALONE,
) -> np.ndarray:  # fmt: skip
    counts = judge[1].sum(dim=1).clamp(min=1)  # a hash can leave a fold empty
    rows, valid = everyone.own(judge[0]), everyone.own(judge[1])
    total = torch.zeros(data.trials, device=data.x.device, dtype=torch.float64)
    for at in range(0, rows.shape[1], 4096):
        part = slice(at, at + 4096)
        x, a, r = data.at(rows[:, part])
        total += (((predict(p, x, inputs.values(a, active)) - r) ** 2) * valid[:, part]).sum(dim=1).double()
    return (everyone.added([total])[0] / counts).cpu().numpy()
