"""One training loop for every network: (network, data, loss, settings, seeds) -> (parameters, history).

Everything has a leading trial axis T: many trials, or the folds of one log, are trained at once, and each draws its
random numbers from its own stream. All is computed in 64 bits, and no trial waits for another: an estimate is the same
alone, beside any neighbours and on any device, but for the rounding of sums, which training does not amplify (0063).
(Trials share the batch size, which is at most the rows of the shortest.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from cael.common.progress import progress
from cael.embedding.batches import Batches, TrialData
from cael.embedding.network import Network, Parameters
from cael.embedding.settings import Diverged, Training
from cael.embedding.stream import Stream
from cael.embedding.tensors import Torch, deterministic

Loss: TypeAlias = Callable[[Parameters, "Step"], tuple[Tensor, dict[str, Tensor]]]
"""(parameters, step) -> the total loss of each trial (T,), and named parts (T,) for the history."""


@final
@dataclass(frozen=True)
class Step:
    """One mini-batch: rows (T, B) and the data there; masks of the dropout, None in evaluation mode."""

    rows: Tensor
    x: Tensor
    a: Tensor
    r: Tensor
    masks: list[Tensor] | None
    record: bool


@final
@dataclass(frozen=True)
class History:
    """What was seen every so many steps, for one trial: iteration, and each named loss."""

    iterations: tuple[int, ...]
    losses: dict[str, tuple[float, ...]]
    stopped_early: bool


def step_at(data: TrialData, rows: Tensor, masks: list[Tensor] | None, record: bool) -> Step:
    return Step(rows, *data.at(rows), masks, record)


def train(
    network: Network, data: TrialData, loss: Loss, settings: Training, seeds: Sequence[int], *, label: str = "training"
) -> tuple[Parameters, tuple[History, ...]]:
    """Minimise the sum over trials of `loss`; the trials share nothing, so each follows its own gradient."""
    stream = Stream(seeds, Torch(data.x.device))
    parameters = network.init(stream)
    learned = [p.requires_grad_() for name, p in parameters.items() if not name.startswith("running")]
    optimiser = _optimiser(learned, settings)
    rows, watched = _split(data.rows, settings.holdout, stream)
    batches = Batches(rows, settings.batch_size, stream)
    watch = _Watch(network, data, watched, settings)
    steps = settings.steps(int(batches.lengths.min()))
    with deterministic(), progress(label, steps) as advance:
        for iteration in range(steps):
            record = iteration % settings.check_every == 0 or iteration == steps - 1
            masks = network.masks(stream, batches.size)
            total, parts = loss(parameters, step_at(data, batches.next(), masks, record))
            optimiser.zero_grad(set_to_none=True)
            total.sum().backward()
            optimiser.step()
            advance(1)
            if record and watch.record(iteration, {"total": total, **parts}, parameters):
                break
    _check_finite(watch, settings)
    return watch.result(parameters), watch.histories()


def _check_finite(watch: _Watch, settings: Training) -> None:
    """Refuse a training whose loss grew without bound."""
    finite = np.isfinite(np.array(watch.losses.get("total", []), dtype=float)).reshape(-1, watch.data.trials)
    if not finite.all():
        rate = f"Lower learning_rate, which is {settings.learning_rate:g}."
        lost = tuple(np.flatnonzero(~finite.all(axis=0)).tolist())
        raise Diverged(f"the training diverged: its loss grew without bound. {rate}", lost)


def _optimiser(learned: list[Tensor], settings: Training) -> torch.optim.Optimizer:
    """Adam, or plain steps; weight decay is the same term in both."""
    if settings.optimiser == "gradient":
        return torch.optim.SGD(learned, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    return torch.optim.AdamW(learned, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)


def _split(rows: Sequence[Tensor], holdout: float, stream: Stream) -> tuple[list[Tensor], list[Tensor]]:
    """Rows to train on and rows to watch, for each trial."""
    if holdout == 0:
        return list(rows), [of_trial[:0] for of_trial in rows]
    count = max(1, round(holdout * min(map(len, rows))))
    mixed = [stream.shuffled(of_trial, t) for t, of_trial in enumerate(rows)]
    return [of_trial[count:] for of_trial in mixed], [of_trial[:count] for of_trial in mixed]


@final
class _Watch:
    """Keeps the history, and with a holdout the best parameters of each trial."""

    def __init__(self, network: Network, data: TrialData, watched: list[Tensor], settings: Training) -> None:
        self.network, self.data, self.watched, self.settings = network, data, watched, settings
        self.iterations: list[int] = []
        self.losses: dict[str, list[list[float]]] = {}
        self.best = np.full(data.trials, np.inf)
        self.best_at = np.zeros(data.trials, dtype=int)
        self.kept: Parameters = {}
        self.stopped = False

    def record(self, iteration: int, parts: dict[str, Tensor], parameters: Parameters) -> bool:
        """Note the losses; True when every trial has gone `patience` checks without improvement."""
        self.iterations.append(iteration)
        for name, value in parts.items():
            self.losses.setdefault(name, []).append(value.detach().cpu().tolist())
        if len(self.watched[0]) == 0:
            return False
        held_out = self._held_out(parameters)
        self.losses.setdefault("holdout", []).append(held_out.tolist())
        better = held_out < self.best
        self.best = np.where(better, held_out, self.best)
        self.best_at = np.where(better, iteration, self.best_at)
        self._keep(parameters, better)
        if self.settings.patience is not None:
            gone = iteration - self.best_at
            self.stopped = bool((gone >= self.settings.patience * self.settings.check_every).all())
        return self.stopped

    @torch.no_grad()
    def _held_out(self, parameters: Parameters) -> np.ndarray:
        step = step_at(self.data, torch.stack(self.watched), None, False)
        e = self.network.embed(parameters, step.x, step.a, None)
        error = (self.network.reward(parameters, e, step.x) - step.r) ** 2
        return error.mean(dim=1).cpu().double().numpy()

    def _keep(self, parameters: Parameters, better: np.ndarray) -> None:
        now = {name: value.detach().clone() for name, value in parameters.items()}
        self.kept = self.kept or now
        for t in np.flatnonzero(better):
            for name, value in now.items():
                self.kept[name][t] = value[t]

    def result(self, parameters: Parameters) -> Parameters:
        """The best parameters where early stopping looked for them, else the last."""
        chosen = self.kept if self.kept and self.settings.patience is not None else parameters
        return {name: value.detach() for name, value in chosen.items()}

    def histories(self) -> tuple[History, ...]:
        return tuple(
            History(
                tuple(self.iterations),
                {name: tuple(at[t] for at in values) for name, values in sorted(self.losses.items())},
                self.stopped,
            )
            for t in range(self.data.trials)
        )
