"""Training on several processes: each takes its part of every batch, and sums are added over all of them.

Started by torchrun, every process runs the same program on the same log. Random numbers come from streams that belong
to trials, so all processes draw the same batches; process r of w takes the rows r, r + w, ... of each. What is summed
over rows (gradients, losses) is added over processes before anything is decided, so all take the same steps, and they
are those of one process up to the order of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from cael.errors import InputError


@final
@dataclass(frozen=True)
class Processes:
    """rank: the number of this process. count: how many there are."""

    rank: int = 0
    count: int = 1

    def own(self, rows: Tensor) -> Tensor:
        """This process's part of rows (T, B), (T, about B / count)."""
        return rows[:, self.rank :: self.count]

    def added(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The sums over all processes of tensors of one type, in one message."""
        if self.count == 1:
            return list(values)
        flat = torch.cat([value.reshape(-1) for value in values])
        dist.all_reduce(flat)
        parts = torch.split(flat, [value.numel() for value in values])
        return [part.reshape(value.shape) for part, value in zip(parts, values, strict=True)]


ALONE = Processes()


def processes(parallel: bool, device: torch.device) -> Processes:
    """The processes of this run; joins those that torchrun started, where that has not been done."""
    if not parallel:
        return ALONE
    if not dist.is_available():
        raise InputError("Growth(parallel=True) needs torch.distributed, which this build of torch does not have.")
    if not dist.is_initialized():
        if not dist.is_torchelastic_launched():
            raise InputError(
                "Growth(parallel=True) trains on the processes that torchrun started, and this is none of them. Start "
                "it with `torchrun --nproc-per-node 2 script.py`, or call torch.distributed.init_process_group."
            )
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Processes(dist.get_rank(), dist.get_world_size())
