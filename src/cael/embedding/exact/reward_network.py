"""The reward network inside CAEL: r_hat(x, a) = e'[x, 1] with e = f(x, a), on standardised inputs and rewards.

Tables have a leading axis T, of networks that share nothing. first: (T, c + d + 1, h) takes the active action inputs,
the context and 1 to the sums of the first hidden layer; w2 (T, h, h) and b2 (T, h) lead to the second one; w3
(T, d + 1, h) and b3 (T, d + 1), with the 1 last, to e. The activation is silu(z) = z sigmoid(z).
"""

from __future__ import annotations

import math
from typing import TypeAlias

from cael.embedding.arrays import AnyArray, of
from cael.embedding.stream import Stream

Weights: TypeAlias = dict[str, AnyArray]


def start(stream: Stream, context_dim: int, hidden: int) -> Weights:
    """A network without action inputs."""
    d, h, t, xp = context_dim, hidden, stream.trials, stream.xp

    def normal(*shape: int, scale: float) -> AnyArray:
        u = (stream.uniform(*shape) + 2.0**-25).clip(max=1 - 2.0**-24)
        return math.sqrt(2) * xp.erfinv(2 * u - 1) * scale

    x = normal(d, h, scale=1 / math.sqrt(max(1, d))) if d else xp.zeros((t, 0, h))
    return {
        "first": xp.concatenate([x, normal(1, h, scale=0.5)], axis=1),
        "w2": normal(h, h, scale=math.sqrt(2 / h)),
        "b2": xp.zeros((t, h)),
        "w3": normal(h, d + 1, scale=0.1 / math.sqrt(h)).swapaxes(1, 2),
        "b3": xp.zeros((t, d + 1)),
    }


def of_actions(p: Weights) -> AnyArray:
    """What the active action inputs add to the first layer, (T, c, h)."""
    return p["first"][:, : -p["w3"].shape[1]]


def of_contexts(p: Weights) -> AnyArray:
    """What the context and 1 add to the first layer, (T, d + 1, h)."""
    return p["first"][:, -p["w3"].shape[1] :]


def with_one(x: AnyArray) -> AnyArray:
    """[x, 1]."""
    xp = of(x)
    return xp.concatenate([x, xp.zeros((*x.shape[:-1], 1), x.dtype) + 1], axis=-1)


def hidden(p: Weights, first: AnyArray) -> AnyArray:
    """The second hidden layer (T, N, h) from the sums of the first."""
    return _layers(p, first)[3]


def _layers(p: Weights, first: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """For each hidden layer the sigmoid of its sums and its values, (T, N, h) each."""
    xp = of(first)
    s1 = xp.sigmoid(first)
    h1 = first * s1
    h2 = h1 @ p["w2"]
    h2 += p["b2"][:, None]
    s2 = xp.sigmoid(h2)
    h2 *= s2
    return s1, h1, s2, h2


def readout(p: Weights, x1: AnyArray) -> tuple[AnyArray, AnyArray]:
    """v (T, N, h) and c (T, N) such that r_hat = v'h + c, of contexts with their 1, (T, N, d + 1).

    With h the second hidden layer, e'[x, 1] = (h W3 + b3)'[x, 1] = h'(W3 [x, 1]) + b3'[x, 1]. The product with W3 then
    has h columns, and not d + 1 of them, most often an odd number.
    """
    return x1 @ p["w3"], (x1 @ p["b3"][..., None])[..., 0]


def upper(p: Weights, first: AnyArray, x1: AnyArray) -> AnyArray:
    """r_hat (T, N) from the sums of the first layer (T, N, h) and the contexts with their 1."""
    v, c = readout(p, x1)
    return of(v).dots(hidden(p, first), v) + c


def predict(p: Weights, x: AnyArray, values: AnyArray) -> AnyArray:
    """r_hat (T, N) of contexts (T, N, d) and values (T, N, c) of the active action inputs."""
    x1 = with_one(x)
    return upper(p, of(x).concatenate([values, x1], axis=-1) @ p["first"], x1)


def predict_all(p: Weights, x: AnyArray, lifted: AnyArray, actions: AnyArray | None = None) -> AnyArray:
    """r_hat (N, k) of one trial: contexts (N, d) with every action, or (N, m) with some of each row, actions (N, m).

    lifted: (k, h), what each action's active inputs add to the first layer.
    """
    of_each, x1 = lifted[None] if actions is None else lifted[actions], with_one(x)[None]
    first = (x1 @ of_contexts(p))[0][:, None] + of_each
    n, m, h = first.shape
    v, c = readout(p, x1)
    h2 = hidden(p, first.reshape(1, n * m, h)).reshape(n, m, h)
    return (h2 @ v[0][..., None])[..., 0] + c[0][:, None]


def gradients(p: Weights, inputs: AnyArray, r: AnyArray, size: int, often: AnyArray | float = 1.0) -> list[AnyArray]:
    """Of sum (r_hat - r)^2 / size over rows, for p's tables in their order; inputs (T, N, c + d + 1), r (T, N). often:
    (T, N) how often each row counts."""
    x1, xp = inputs[..., -p["w3"].shape[1] :], of(inputs)
    delta, h1, h2, delta1, delta2 = backwards(p, inputs @ p["first"], x1, r, often / size)
    pull = x1 * delta
    return [
        inputs.swapaxes(1, 2) @ delta1,
        h1.swapaxes(1, 2) @ delta2,
        xp.total(delta2),
        pull.swapaxes(1, 2) @ h2,
        xp.total(pull),
    ]


def backwards(
    p: Weights, first: AnyArray, x1: AnyArray, r: AnyArray, share: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray]:
    """For the loss sum share (r_hat - r)^2 with share (T, N) or a number: its derivative by r_hat (T, N, 1), the two
    hidden layers, and its derivatives by the sums of the first and of the second, (T, N, h) each."""
    s1, h1, s2, h2 = _layers(p, first)
    v, c = readout(p, x1)
    delta = of(v).dots(h2, v)
    delta += c
    delta -= r
    delta *= 2 * share
    delta = delta[..., None]
    delta2 = v
    delta2 *= delta
    delta2 *= _slope(s2, h2)
    delta1 = delta2 @ p["w2"].swapaxes(1, 2)
    delta1 *= _slope(s1, h1)
    return delta, h1, h2, delta1, delta2


def _slope(s: AnyArray, h: AnyArray) -> AnyArray:
    """The derivative of silu where its sigmoid is s and its value h: s + h (1 - s); in the place of s."""
    rest = h * s
    s += h
    s -= rest
    return s
