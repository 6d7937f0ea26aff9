"""Adam with a group lasso, on all weights as one table: where networks are small, the time is the number of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from cael.embedding.exact.reward_network import Weights

BETA1, BETA2, EPS = 0.9, 0.99, 1e-8


@final
class ProximalAdam:
    """Adam whose steps on the inputs of the first layer share one scale per input, followed by the group lasso's
    proximal map.

    With one scale per group the step is exact: an input stays at 0 if and only if the norm of its averaged gradient is
    below the penalty (T,). p: the weights, which are views of one table (T, P); its first part is that of the inputs.
    """

    def __init__(self, start: Weights, penalty: Tensor) -> None:
        self.penalty = penalty[:, None, None]
        self.width = start["first"].shape[2]
        self.flat = torch.cat([table.flatten(1) for table in start.values()], dim=1)
        self.m, self.v = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.p = self._views({name: table.shape for name, table in start.items()})

    def _views(self, shapes: dict[str, torch.Size]) -> Weights:
        parts = torch.split(self.flat, [int(shape[1:].numel()) for shape in shapes.values()], dim=1)
        return {name: part.unflatten(1, shape[1:]) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}

    @property
    def state(self) -> list[Tensor]:
        """What a step changes."""
        return [self.flat, self.m, self.v]

    def grow(self, at: int, count: int) -> None:
        """Room for so many more action inputs, from place `at`; they begin at 0."""
        shapes = {name: table.shape for name, table in self.p.items()}
        trials, inputs, width = shapes["first"]
        shapes["first"] = torch.Size((trials, inputs + count, width))
        self.flat, self.m, self.v = (
            torch.cat([old[:, : at * width], old.new_zeros(trials, count * width), old[:, at * width :]], dim=1)
            for old in self.state
        )
        self.p = self._views(shapes)

    def step(self, gradients: Sequence[Tensor], pace: Tensor) -> None:
        """One step in place, by the gradients of p's tables in their order. pace: (3,) the learning rate, and what the
        two averages have seen of their whole."""
        rate, up, down = pace
        g = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)
        self.m.lerp_(g, 1 - BETA1)
        squares = g.mul_(g)
        inputs = self._inputs(squares)
        inputs.copy_(inputs.mean(dim=-1, keepdim=True).expand_as(inputs))
        self.v.lerp_(squares, 1 - BETA2)
        size = torch.div(rate / up, torch.sqrt(self.v / down).add_(EPS))
        self.flat.addcmul_(self.m, size, value=-1)
        inputs, scale = self._inputs(self.flat), self._inputs(size)[..., :1]
        norm = torch.linalg.vector_norm(inputs, dim=-1, keepdim=True).clamp_(min=1e-30)
        inputs.mul_((1 - up * scale * self.penalty / norm).clamp_(min=0))

    def _inputs(self, table: Tensor) -> Tensor:
        """The part (T, inputs, h) of a table (T, P) that is penalised: all of the first layer but its bias."""
        return table[:, : (self.p["first"].shape[1] - 1) * self.width].unflatten(1, (-1, self.width))
