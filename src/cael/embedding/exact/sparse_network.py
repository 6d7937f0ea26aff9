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
from logging import getLogger
from typing import final

import numpy as np

from cael.common.progress import progress
from cael.embedding.arrays import AnyArray, Arrays, of
from cael.embedding.batches import Batches, TrialData, padded
from cael.embedding.exact.inputs import SUMS, ActionInputs
from cael.embedding.exact.parallel import ALONE, Processes, processes
from cael.embedding.exact.proximal import BETA1, BETA2, ProximalAdam
from cael.embedding.exact.reward_network import Weights, backwards, gradients, predict, start, with_one
from cael.embedding.rows import gather_rows
from cael.embedding.settings import Growth
from cael.embedding.stream import Stream

LOGGER = getLogger("cael.training")
SCREENED = 16384
"""Gradients of inactive inputs are taken over at most so many rows."""


@final
@dataclass(frozen=True)
class Round:
    """The networks after one round: active (T, c) input numbers, weights, held_out (T,) mean squared errors."""

    active: AnyArray
    weights: Weights
    held_out: np.ndarray


def grow(
    inputs: ActionInputs,
    data: TrialData,
    held_out: Sequence[AnyArray],
    penalties: AnyArray,
    settings: Growth,
    seeds: Sequence[int],
    done: Callable[[list[Round]], bool],
) -> list[Round]:
    """Train round after round until `done(rounds)`; data.rows[t] trains trial t, held_out[t] judges it."""
    from threadpoolctl import threadpool_limits

    xp = of(data.x)
    everyone = processes(settings.parallel, xp.on_device)
    stream = Stream(seeds, xp)
    optimiser = ProximalAdam(start(stream, data.x.shape[2], settings.hidden), penalties)
    # Folds differ in length from log to log: a batch is no larger than what each log of this length can train on.
    batches = Batches(data.rows, min(settings.batch_size, max(2, data.r.shape[1] // 3)), stream)
    judge, screen = padded(held_out), padded([rows[:SCREENED] for rows in data.rows])
    active = xp.zeros((data.trials, 0), xp.int64)
    rounds: list[Round] = []
    counts = sizes(inputs.count)
    LOGGER.info("training the reward model: %d inputs at most, %d steps", counts[-1], len(counts) * settings.steps)
    # Products this small gain nothing from more threads, and sums by several are not the same each time.
    with (
        threadpool_limits(1),
        xp.deterministic(),
        progress("training the reward model", len(counts) * settings.steps) as advance,
    ):
        for size in counts:
            if size > active.shape[1]:
                more = size - active.shape[1]
                joining = _strongest(optimiser.p, inputs, data, screen, active, more, everyone)
                optimiser.grow(active.shape[1], more)
                active = xp.concatenate([active, joining], axis=1)
            step = _step(optimiser, inputs, data, active, batches.size, everyone)
            for pace in _paces(settings, len(rounds), xp):
                step(everyone.own(batches.next()), pace)
                advance(1)
            kept = {name: xp.copy(value) for name, value in optimiser.p.items()}
            rounds.append(Round(active, kept, _judged(kept, inputs, data, judge, active, everyone)))
            if done(rounds):
                break
    return rounds


def _step(
    optimiser: ProximalAdam, inputs: ActionInputs, data: TrialData, active: AnyArray, size: int, everyone: Processes
) -> Callable[[AnyArray, AnyArray], None]:
    """One step of training in place, a function of rows (T, B) and pace (3,); on a GPU it is a graph."""
    told = _inputs(inputs, data, active)

    def step(rows: AnyArray, pace: AnyArray) -> None:
        sums = gradients(optimiser.p, told(rows), gather_rows(data.r, rows), size, data.often(rows))
        optimiser.step(everyone.added(sums), pace)

    return of(active).repeated(step, optimiser.state) if everyone.count == 1 else step


def _inputs(inputs: ActionInputs, data: TrialData, active: AnyArray) -> Callable[[AnyArray], AnyArray]:
    """What networks are told of rows (T, B), (T, B, c + d + 1): from a table of all rows where it is small enough."""
    values, xp, (n, d) = inputs.lookup(active), of(active), data.x.shape[1:]

    def told(rows: AnyArray) -> AnyArray:
        return xp.concatenate([values(gather_rows(data.a, rows)), with_one(gather_rows(data.x, rows))], axis=-1)

    if data.trials * n * (active.shape[1] + d + 1) > SUMS:
        return told
    table = told(xp.zeros((data.trials, n), xp.int64) + xp.arange(n))
    return lambda rows: gather_rows(table, rows)


def sizes(count: int) -> list[int]:
    """0, 1, 2, 4, ... and all."""
    powers = [2**i for i in range(count.bit_length()) if 2**i < count]
    return [0, *powers, count]


def _paces(settings: Growth, before: int, xp: Arrays) -> AnyArray:
    """(steps, 3) of `ProximalAdam.step` in the round after `before` others; the rate falls to a twentieth along half a
    cosine."""
    i = np.arange(settings.steps)
    rate = settings.learning_rate * (0.05 + 0.95 * 0.5 * (1 + np.cos(np.pi * i / settings.steps)))
    t = before * settings.steps + i + 1
    paces = np.stack([rate, 1 - BETA1**t, 1 - BETA2**t], axis=1)
    return xp.asarray(paces, xp.float32)


def _strongest(
    p: Weights, inputs: ActionInputs, data: TrialData, screen: tuple[AnyArray, AnyArray], active: AnyArray, count: int,
    everyone: Processes = ALONE,
) -> AnyArray:  # fmt: skip
    """(T, count) the inactive inputs whose gradient at 0 has the largest norm."""
    (rows, valid), xp = screen, of(active)
    share = xp.astype(valid, xp.float32) * data.often(rows) / valid.sum(axis=1)[:, None]
    rows, share = everyone.own(rows), everyone.own(xp.astype(share, xp.float32))
    deltas, actions = [], []
    for at in range(0, rows.shape[1], 1024):
        part = slice(at, at + 1024)
        x, a, r = data.at(rows[:, part])
        x1 = with_one(x)
        first = xp.concatenate([inputs.values(a, active), x1], axis=-1) @ p["first"]
        deltas.append(backwards(p, first, x1, r, share[:, part])[3])
        actions.append(a)
    delta, a = (xp.concatenate(parts, axis=1) for parts in (deltas, actions))
    norms = inputs.norms(delta, a, everyone.added)
    xp.put_along(norms, active, -1.0)
    return xp.argsort(-norms)[:, :count]


def _judged(
    p: Weights, inputs: ActionInputs, data: TrialData, judge: tuple[AnyArray, AnyArray], active: AnyArray,
    everyone: Processes = ALONE,
) -> np.ndarray:  # fmt: skip
    xp = of(active)
    counts = (judge[1] * data.often(judge[0])).sum(axis=1)
    counts = counts + (counts == 0)  # a hash can leave a fold empty
    rows, valid = everyone.own(judge[0]), everyone.own(judge[1])
    total = xp.zeros((data.trials,), xp.float64)
    for at in range(0, rows.shape[1], 4096):
        part = slice(at, at + 4096)
        x, a, r = data.at(rows[:, part])
        often = valid[:, part] * data.often(rows[:, part])
        total += (((predict(p, x, inputs.values(a, active)) - r) ** 2) * often).sum(axis=1)
    return xp.to_numpy(everyone.added([total])[0] / counts)
