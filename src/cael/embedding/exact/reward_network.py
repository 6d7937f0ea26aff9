"""The reward network inside CAEL: r_hat(x, a) = e'[x, 1] with e = f(x, a), on standardised inputs and rewards.

Tables have a leading axis T, of networks that share nothing. first: (T, c + d + 1, h) takes the active action inputs,
the context and 1 to the sums of the first hidden layer; w2 (T, h, h) and b2 (T, h) lead to the second one; w3
(T, d + 1, h) and b3 (T, d + 1), with the 1 last, to e.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import silu

from cael.embedding.stream import Stream

Weights: TypeAlias = dict[str, Tensor]


def start(stream: Stream, context_dim: int, hidden: int) -> Weights:
    """A network without action inputs."""
    d, h, t = context_dim, hidden, stream.trials

    def normal(*shape: int, scale: float) -> Tensor:
        u = (stream.uniform(*shape) + 2.0**-25).clamp(max=1 - 2.0**-24)
        return math.sqrt(2) * torch.erfinv(2 * u - 1) * scale

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(t, *shape, device=stream.device)

    x = normal(d, h, scale=1 / math.sqrt(max(1, d))) if d else zeros(0, h)
    return {
        "first": torch.cat([x, normal(1, h, scale=0.5)], dim=1),
        "w2": normal(h, h, scale=math.sqrt(2 / h)),
        "b2": zeros(h),
        "w3": normal(h, d + 1, scale=0.1 / math.sqrt(h)).transpose(1, 2).contiguous(),
        "b3": zeros(d + 1),
    }


def of_actions(p: Weights) -> Tensor:
    """What the active action inputs add to the first layer, (T, c, h)."""
    return p["first"][:, : -p["w3"].shape[1]]


def of_contexts(p: Weights) -> Tensor:
    """What the context and 1 add to the first layer, (T, d + 1, h)."""
    return p["first"][:, -p["w3"].shape[1] :]


def with_one(x: Tensor) -> Tensor:
    """[x, 1]."""
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], dim=-1)


def hidden(p: Weights, first: Tensor) -> Tensor:
    """The second hidden layer (T, N, h) from the sums of the first."""
    return silu(torch.baddbmm(p["b2"][:, None], silu(first), p["w2"]))


def readout(p: Weights, x1: Tensor) -> tuple[Tensor, Tensor]:
    """v (T, N, h) and c (T, N) such that r_hat = v'h + c, of contexts with their 1, (T, N, d + 1).

    With h the second hidden layer, e'[x, 1] = (h W3 + b3)'[x, 1] = h'(W3 [x, 1]) + b3'[x, 1]. The product with W3 then
    has h columns; one with d + 1 columns, most often an odd number, would take five times as long on a CPU.
    """
    return torch.bmm(x1, p["w3"]), torch.bmm(x1, p["b3"][..., None])[..., 0]


def upper(p: Weights, first: Tensor, x1: Tensor) -> Tensor:
    """r_hat (T, N) from the sums of the first layer (T, N, h) and the contexts with their 1."""
    v, c = readout(p, x1)
    return (hidden(p, first) * v).sum(dim=-1) + c


def predict(p: Weights, x: Tensor, values: Tensor) -> Tensor:
    """r_hat (T, N) of contexts (T, N, d) and values (T, N, c) of the active action inputs."""
    x1 = with_one(x)
    return upper(p, torch.bmm(torch.cat([values, x1], dim=-1), p["first"]), x1)


def predict_all(p: Weights, x: Tensor, lifted: Tensor, actions: Tensor | None = None) -> Tensor:
    """r_hat (N, k) of one trial: contexts (N, d) with every action, or (N, m) with some of each row, actions (N, m).

    lifted: (k, h), what each action's active inputs add to the first layer.
    """
    of_each, x1 = lifted[None] if actions is None else lifted[actions], with_one(x)[None]
    first = torch.bmm(x1, of_contexts(p))[0][:, None] + of_each
    n, m, h = first.shape
    v, c = readout(p, x1)
    h2 = hidden(p, first.reshape(1, n * m, h)).reshape(n, m, h)
    return torch.baddbmm(c[0][:, None, None], h2, v[0][..., None])[..., 0]


def gradients(p: Weights, inputs: Tensor, r: Tensor, size: int) -> list[Tensor]:
    """Of sum (r_hat - r)^2 / size over rows, for p's tables in their order; inputs (T, N, c + d + 1), r (T, N).

    By hand, which at best takes a sixth less time than autograd for networks this small (0041).
    """
    x1 = inputs[..., -p["w3"].shape[1] :]
    first = torch.bmm(inputs, p["first"])
    h1 = silu(first)
    second = torch.baddbmm(p["b2"][:, None], h1, p["w2"])
    h2 = silu(second)
    v, c = readout(p, x1)
    delta = (((h2 * v).sum(dim=-1) + c - r) * (2 / size))[..., None]
    delta2 = torch.ops.aten.silu_backward(delta * v, second)
    delta1 = torch.ops.aten.silu_backward(torch.bmm(delta2, p["w2"].transpose(1, 2)), first)
    x1_t = x1.transpose(1, 2)
    return [
        torch.bmm(inputs.transpose(1, 2), delta1),
        torch.bmm(h1.transpose(1, 2), delta2),
        delta2.sum(dim=1),
        torch.bmm(x1_t, delta * h2),
        torch.bmm(x1_t, delta)[..., 0],
    ]
