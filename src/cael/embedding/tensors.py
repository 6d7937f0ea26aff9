"""`arrays` in torch, on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cael.embedding.graphs import Replayed
from cael.errors import InputError


@final
@dataclass(frozen=True)
class Torch:
    """Tensors of torch on a device."""

    device: torch.device

    int16, int64, float32, float64 = torch.int16, torch.int64, torch.float32, torch.float64
    concatenate = staticmethod(torch.concatenate)
    erfinv = staticmethod(torch.erfinv)
    floor = staticmethod(torch.floor)
    sigmoid = staticmethod(torch.sigmoid)
    sqrt = staticmethod(torch.sqrt)
    where = staticmethod(torch.where)
    zeros_like = staticmethod(torch.zeros_like)

    @property
    def on_device(self) -> bool:
        return bool(self.device.type != "cpu")

    def asarray(self, values: Any, dtype: Any = None) -> Tensor:
        values = values if isinstance(values, Tensor) else np.array(values)  # logs cannot be written to
        return torch.as_tensor(values, dtype=dtype, device=self.device)

    def to_numpy(self, x: Tensor) -> np.ndarray:
        return x.cpu().numpy()

    def astype(self, x: Tensor, dtype: Any) -> Tensor:
        return x.to(dtype)

    def arange(self, *bounds: int) -> Tensor:
        return torch.arange(*bounds, dtype=torch.int64, device=self.device)

    def zeros(self, shape: Sequence[int], dtype: Any = torch.float32) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=self.device)

    def copy(self, x: Tensor) -> Tensor:
        return x.clone()

    def take(self, table: Tensor, rows: Tensor) -> Tensor:
        return table.index_select(0, rows)

    def take_along(self, table: Tensor, places: Tensor) -> Tensor:
        return torch.gather(table, 1, places)

    def put_along(self, table: Tensor, places: Tensor, values: Any) -> None:
        table.scatter_(1, places, values)

    def argsort(self, x: Tensor) -> Tensor:
        return torch.sort(x, dim=1, stable=True).indices

    def sort(self, x: Tensor) -> Tensor:
        """On a CPU by numpy, in half the time."""
        return torch.sort(x, dim=1).values if x.is_cuda else torch.as_tensor(np.sort(x.numpy(), axis=1))

    def searchsorted(self, table: Tensor, x: Tensor) -> Tensor:
        return torch.searchsorted(table, x.contiguous())

    def lowest(self, x: Tensor) -> Tensor:
        return x.amin(dim=1, keepdim=True)

    def nonzero(self, x: Tensor) -> Tensor:
        return x.nonzero().ravel()

    def bincount(self, x: Tensor, size: int) -> Tensor:
        return torch.bincount(x, minlength=size)

    def sums_at(self, at: Tensor, values: Tensor, size: int) -> Tensor:
        return values.new_zeros(size).index_add_(0, at, values)

    def row_sums_at(self, at: Tensor, rows: Tensor, size: int) -> Tensor:
        return rows.new_zeros(size, rows.shape[1]).index_add_(0, at, rows)

    def ratio(self, top: Tensor, bottom: Tensor, least: float) -> Tensor:
        return torch.where(bottom > least, top / bottom, 0.0)

    def dots(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum(dim=-1)

    def total(self, x: Tensor) -> Tensor:
        return x.sum(dim=1)

    def repeated(self, step: Callable[..., None], state: Sequence[Tensor]) -> Callable[..., None]:
        """On a GPU the step is a graph."""
        return Replayed(step, state) if self.on_device else step

    def deterministic(self) -> AbstractContextManager[None]:
        return deterministic()


def pick_device(name: str) -> torch.device:
    """The device of a setting; "auto" is the GPU where there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda' was asked for, but torch finds no GPU; use 'cpu' or 'auto'.")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


@contextmanager
def deterministic() -> Iterator[None]:
    """Bit-equal results on one device while inside, by one thread; the global switches are put back afterwards.

    One thread, as products this small gain nothing from more. Where other work keeps the cores busy, two threads that
    wait for each other took eight times as long.
    """
    before, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill, threads = torch.utils.deterministic.fill_uninitialized_memory, torch.get_num_threads()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads memory that was not written
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(before, warn_only=warn)
        torch.utils.deterministic.fill_uninitialized_memory = fill
