"""Training on several processes: each takes its part of every batch, and sums are added over all of them.

Started by torchrun, every process runs the same program on the same log. Random numbers come from streams that belong
to trials, so all processes draw the same batches; process r of w takes the rows r, r + w, ... of each. What is summed
over rows (gradients, losses) is added over processes before anything is decided, so all take the same steps, and they
are those of one process up to the order of additions. torch carries the messages; on a CPU the arithmetic is numpy's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from cael.embedding.arrays import AnyArray, of
from cael.embedding.settings import require_torch
from cael.errors import InputError


@final
@dataclass(frozen=True)
class Processes:
    """rank: the number of this process. count: how many there are."""

    rank: int = 0
    count: int = 1

    def own(self, rows: AnyArray) -> AnyArray:
        """This process's part of rows (T, B), (T, about B / count)."""
        return rows[:, self.rank :: self.count]

    def added(self, values: Sequence[AnyArray]) -> list[AnyArray]:
        """The sums over all processes of arrays of one type, in one message."""
        if self.count == 1:
            return list(values)
        import torch

        flat = of(values[0]).concatenate([value.reshape(-1) for value in values])
        torch.distributed.all_reduce(torch.as_tensor(flat))  # of an array of numpy it is a view
        parts, at = [], 0
        for value in values:
            size = math.prod(value.shape)
            parts.append(flat[at : at + size].reshape(value.shape))
            at += size
        return parts


ALONE = Processes()


def processes(parallel: bool, on_device: bool) -> Processes:
    """The processes of this run; joins those that torchrun started, where that has not been done."""
    if not parallel:
        return ALONE
    require_torch("Growth(parallel=True)")
    import torch.distributed as dist

    if not dist.is_available():
        raise InputError("Growth(parallel=True) needs torch.distributed, which this build of torch does not have.")
    if not dist.is_initialized():
        if not dist.is_torchelastic_launched():
            raise InputError(
                "Growth(parallel=True) trains on the processes that torchrun started, and this is none of them. Start "
                "it with `torchrun --nproc-per-node 2 script.py`, or call torch.distributed.init_process_group."
            )
        dist.init_process_group("nccl" if on_device else "gloo")
    return Processes(dist.get_rank(), dist.get_world_size())
