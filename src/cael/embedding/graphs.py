"""A step of training as a CUDA graph: where steps are small, a GPU's time is the number of launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor


def beforehand(function: Callable[[], object]) -> None:
    """Call a function on a stream of its own: what is allocated once per process must not be captured."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        function()
    torch.cuda.current_stream().wait_stream(aside)


@final
class Replayed:
    """A function of tensors that changes others in place, captured at its first call and replayed from then on.

    state: every tensor that the function changes; the trial call before the capture is undone there.
    """

    def __init__(self, function: Callable[..., None], state: Sequence[Tensor]) -> None:
        self.function, self.state = function, state
        self.inputs: list[Tensor] = []
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *inputs: Tensor) -> None:
        if self.graph is None:
            self.inputs = [value.clone() for value in inputs]
            self.graph = self._captured()
        for mine, new in zip(self.inputs, inputs, strict=True):
            mine.copy_(new)
        self.graph.replay()

    def _captured(self) -> torch.cuda.CUDAGraph:
        before = [value.detach().clone() for value in self.state]
        beforehand(lambda: self.function(*self.inputs))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.function(*self.inputs)
        with torch.no_grad():
            for mine, old in zip(self.state, before, strict=True):
                mine.copy_(old)
        return graph
