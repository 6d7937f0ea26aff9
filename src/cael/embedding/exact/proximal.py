"""Adam with a group lasso, on all weights as one table: where networks are small, the time is the number of calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

from cael.embedding.arrays import AnyArray, of
from cael.embedding.exact.reward_network import Weights

BETA1, BETA2, EPS = 0.9, 0.99, 1e-8


@final
class ProximalAdam:
    """Adam whose steps on the inputs of the first layer share one scale per input, followed by the group lasso's
    proximal map.

    With one scale per group the step is exact: an input stays at 0 if and only if the norm of its averaged gradient is
    below the penalty (T,). p: the weights, which are views of one table (T, P); its first part is that of the inputs.
    """

    def __init__(self, start: Weights, penalty: AnyArray) -> None:
        self.xp, self.penalty = of(penalty), penalty[:, None, None]
        self.width = start["first"].shape[2]
        self.flat = self._table(list(start.values()))
        self.m, self.v = self.xp.zeros_like(self.flat), self.xp.zeros_like(self.flat)
        self.p = self._views({name: tuple(table.shape) for name, table in start.items()})

    def _table(self, parts: Sequence[AnyArray]) -> AnyArray:
        """(T, P) of tables (T, ...)."""
        return self.xp.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def _views(self, shapes: dict[str, tuple[int, ...]]) -> Weights:
        views, at = {}, 0
        for name, shape in shapes.items():
            size = math.prod(shape[1:])
            views[name] = self.flat[:, at : at + size].reshape(shape)
            at += size
        return views

    @property
    def state(self) -> list[AnyArray]:
        """What a step changes."""
        return [self.flat, self.m, self.v]

    def grow(self, at: int, count: int) -> None:
        """Room for so many more action inputs, from place `at`; they begin at 0."""
        shapes = {name: tuple(table.shape) for name, table in self.p.items()}
        trials, inputs, width = shapes["first"]
        shapes["first"] = trials, inputs + count, width
        room = self.xp.zeros((trials, count * width), self.flat.dtype)
        self.flat, self.m, self.v = (
            self.xp.concatenate([old[:, : at * width], room, old[:, at * width :]], axis=1) for old in self.state
        )
        self.p = self._views(shapes)

    def step(self, gradients: Sequence[AnyArray], pace: AnyArray) -> None:
        """One step in place, by the gradients of p's tables in their order. pace: (3,) the learning rate, and what the
        two averages have seen of their whole."""
        rate, up, down = pace
        g = self._table(gradients)
        self.m *= BETA1
        self.m += g * (1 - BETA1)
        g *= g
        squares = self._inputs(g)
        squares[...] = squares.mean(axis=-1, keepdims=True)
        self.v *= BETA2
        g *= 1 - BETA2
        self.v += g
        size = self.xp.sqrt(self.v / down)
        size += EPS
        size = (rate / up) / size
        self.flat -= self.m * size
        inputs, scale = self._inputs(self.flat), self._inputs(size)[..., :1]
        norm = self.xp.sqrt(self.xp.dots(inputs, inputs))[..., None].clip(1e-30)
        inputs *= (1 - up * scale * self.penalty / norm).clip(0)

    def _inputs(self, table: AnyArray) -> AnyArray:
        """The part (T, inputs, h) of a table (T, P) that is penalised: all of the first layer but its bias."""
        inputs = self.p["first"].shape[1] - 1
        return table[:, : inputs * self.width].reshape(len(table), inputs, self.width)
