"""A reward network that grows: inputs enter by the size of their gradient, under a group lasso; all folds at once.

r_hat(x, a) = e'[x, 1] with e = f(x, a), on standardised inputs and rewards. The network begins with the contexts alone.
In each round the inactive action inputs with the largest gradients join, doubling their number, and training goes on
from where it was. Every input, of the context too, has a group lasso on its row of the first layer, minimised by
proximal steps. How many inputs and how strong a penalty are best is for the held-out folds to say.

Leading axis T: (log, penalty, fold, restart), in this order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from cael.embedding.graphs import Replayed
from cael.embedding.inputs import ActionInputs
from cael.embedding.parallel import ALONE, Processes, processes
from cael.embedding.settings import Growth
from cael.embedding.stream import Stream
from cael.embedding.training import Batches, TrialData, deterministic, gather_rows, padded
from cael.progress import progress

BETA1, BETA2, EPS = 0.9, 0.99, 1e-8
SCREENED = 16384
"""Gradients of inactive inputs are taken over at most so many rows."""

Weights: TypeAlias = dict[str, Tensor]
PENALISED = ("x", "a")


def start(stream: Stream, context_dim: int, hidden: int) -> Weights:
    """A network without action inputs: tables (T, ...), x: contexts, a: action inputs, then the upper layers."""
    d, h, t = context_dim, hidden, stream.trials

    def normal(*shape: int, scale: float) -> Tensor:
        u = (stream.uniform(*shape) + 2.0**-25).clamp(max=1 - 2.0**-24)
        return math.sqrt(2) * torch.erfinv(2 * u - 1) * scale

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(t, *shape, device=stream.device)

    return {
        "x": normal(d, h, scale=1 / math.sqrt(max(1, d))) if d else zeros(0, h),
        "a": zeros(0, h),
        "b1": normal(h, scale=0.5),
        "w2": normal(h, h, scale=math.sqrt(2 / h)),
        "b2": zeros(h),
        "w3": normal(h, d + 1, scale=0.1 / math.sqrt(h)).transpose(1, 2).contiguous(),
        "b3": zeros(d + 1),
    }


def hidden(p: Weights, first: Tensor) -> Tensor:
    """The second hidden layer (T, N, h) from the sums of the first."""
    return torch.nn.functional.silu(torch.baddbmm(p["b2"][:, None], torch.nn.functional.silu(first), p["w2"]))


def readout(p: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    """v (T, N, h) and c (T, N) such that r_hat = v'h + c, of contexts (T, N, d).

    With h the second hidden layer, e'[x, 1] = (h W3 + b3)'[x, 1] = h'(W3 [x, 1]) + b3'[x, 1]. The product with W3 then
    has h columns; one with d + 1 columns, most often an odd number, would take five times as long on a CPU.
    """
    v = torch.baddbmm(p["w3"][:, -1:], x, p["w3"][:, :-1])
    return v, (x * p["b3"][:, None, :-1]).sum(dim=-1) + p["b3"][:, -1:]


def upper(p: Weights, first: Tensor, x: Tensor) -> Tensor:
    """r_hat (T, N) from the sums of the first layer (T, N, h) and the contexts (T, N, d)."""
    v, c = readout(p, x)
    return (hidden(p, first) * v).sum(dim=-1) + c


def predict(p: Weights, x: Tensor, values: Tensor) -> Tensor:
    """r_hat (T, N) of contexts (T, N, d) and values (T, N, c) of the active action inputs."""
    first = torch.baddbmm(torch.baddbmm(p["b1"][:, None], x, p["x"]), values, p["a"])
    return upper(p, first, x)


def predict_all(p: Weights, x: Tensor, lifted: Tensor, actions: Tensor | None = None) -> Tensor:
    """r_hat (N, k) of one trial: contexts (N, d) with every action, or (N, m) with some of each row, actions (N, m).

    lifted: (k, h), what each action's active inputs add to the first layer.
    """
    own = lifted[None] if actions is None else lifted[actions]
    first = torch.baddbmm(p["b1"][:, None], x[None], p["x"])[0][:, None] + own
    n, m, h = first.shape
    v, c = readout(p, x[None])
    h2 = hidden(p, first.reshape(1, n * m, h)).reshape(n, m, h)
    found: Tensor = torch.baddbmm(c[0][:, None, None], h2, v[0][..., None])
    return found[..., 0]


@final
class ProximalAdam:
    """Adam whose steps on the penalised tables share one scale per input, followed by the group lasso's proximal map.

    With one scale per group the step is exact: an input stays at 0 if and only if the norm of its averaged gradient is
    below the penalty (T,).
    """

    def __init__(self, p: Weights, penalty: Tensor) -> None:
        self.penalty = penalty[:, None, None]
        self.m = {name: torch.zeros_like(value) for name, value in p.items()}
        self.v = {name: torch.zeros_like(value[..., :1] if name in PENALISED else value) for name, value in p.items()}

    def grow(self, count: int) -> None:
        """Room for so many more action inputs."""
        for state in (self.m, self.v):
            state["a"] = torch.cat([state["a"], state["a"].new_zeros(len(state["a"]), count, state["a"].shape[2])], 1)

    @torch.no_grad()
    def step(self, p: Weights, gradients: Sequence[Tensor], pace: Tensor) -> None:
        """One step in place. pace: (3,) the learning rate, and what the two averages have seen of their whole."""
        rate, up, down = pace
        for (name, value), g in zip(p.items(), gradients, strict=True):
            m, v = self.m[name], self.v[name]
            m.lerp_(g, 1 - BETA1)
            v.lerp_((g * g).mean(dim=-1, keepdim=True) if name in PENALISED else g * g, 1 - BETA2)
            size = rate / (torch.sqrt(v / down) + EPS)
            value.addcmul_(m, size / up, value=-1)
            if name in PENALISED:
                norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
                value.mul_((1 - size * self.penalty / norm.clamp(min=1e-30)).clamp(min=0))


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
    p = _require(start(stream, data.x.shape[2], settings.hidden))
    optimiser = ProximalAdam(p, penalties)
    batches = Batches(data.rows, settings.batch_size, stream)
    judge, screen = padded(held_out), padded([each[:SCREENED] for each in data.rows])
    active = torch.zeros(data.trials, 0, dtype=torch.int64, device=data.x.device)
    rounds: list[Round] = []
    sizes = _sizes(inputs.count)
    with deterministic(), progress("growing a sparse network", len(sizes) * settings.steps) as advance:
        for size in sizes:
            if size > active.shape[1]:
                more = size - active.shape[1]
                active = torch.cat([active, _strongest(p, inputs, data, screen, active, more, everyone)], dim=1)
                p = _require({**p, "a": torch.cat([p["a"], p["a"].new_zeros(data.trials, more, settings.hidden)], 1)})
                optimiser.grow(more)
            step = _step(p, optimiser, inputs, data, active, batches.size, everyone)
            for pace in _paces(settings, len(rounds), data.x.device):
                step(everyone.own(batches.next()), pace)
                advance(1)
            kept = {name: value.detach().clone() for name, value in p.items()}
            rounds.append(Round(active, kept, _judged(p, inputs, data, judge, active, everyone)))
            if done(rounds):
                break
    return rounds


def _step(
    p: Weights, optimiser: ProximalAdam, inputs: ActionInputs, data: TrialData, active: Tensor, size: int,
    everyone: Processes,
) -> Callable[[Tensor, Tensor], None]:  # fmt: skip
    """One step of training in place, a function of rows (T, B) and pace (3,); on a GPU it is a graph."""

    told = inputs.told(active)

    def step(rows: Tensor, pace: Tensor) -> None:
        x, a, r = (gather_rows(each, rows) for each in (data.x, data.a, data.r))
        loss = ((predict(p, x, told(a)) - r) ** 2).sum() / size
        optimiser.step(p, everyone.added(torch.autograd.grad(loss, list(p.values()))), pace)

    if not data.x.is_cuda or everyone.count > 1:
        return step
    return Replayed(step, [*p.values(), *optimiser.m.values(), *optimiser.v.values()])


def _require(p: Weights) -> Weights:
    return {name: value.detach().requires_grad_() for name, value in p.items()}


def _sizes(count: int) -> list[int]:
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
        x, a, r = (gather_rows(each, rows[:, part]) for each in (data.x, data.a, data.r))
        with torch.no_grad():
            first = torch.baddbmm(torch.baddbmm(p["b1"][:, None], x, p["x"]), inputs.values(a, active), p["a"])
        first.requires_grad_()
        loss = (share[:, part] * (upper(p, first, x) - r) ** 2).sum()
        deltas.append(torch.autograd.grad(loss, first)[0])
        actions.append(a)
    norms = inputs.norms(torch.cat(deltas, dim=1), torch.cat(actions, dim=1), everyone.added).scatter(1, active, -1.0)
    return norms.topk(count, dim=1).indices


@torch.no_grad()
def _judged(
    p: Weights, inputs: ActionInputs, data: TrialData, judge: tuple[Tensor, Tensor], active: Tensor,
    everyone: Processes = ALONE,
) -> np.ndarray:  # fmt: skip
    counts = judge[1].sum(dim=1)
    rows, valid = everyone.own(judge[0]), everyone.own(judge[1])
    total = torch.zeros(data.trials, device=data.x.device, dtype=torch.float64)
    for at in range(0, rows.shape[1], 4096):
        some, ok = rows[:, at : at + 4096], valid[:, at : at + 4096]
        x, a, r = (gather_rows(each, some) for each in (data.x, data.a, data.r))
        total += (((predict(p, x, inputs.values(a, active)) - r) ** 2) * ok).sum(dim=1).double()
    return (everyone.added([total])[0] / counts).cpu().numpy()
