"""The memory budget: how much there is, what a row of a batch takes, and so how many rows a batch may have."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

from cael.common.cores import cores
from cael.errors import InputError, positive_int

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
         "TIB": 2**40}  # fmt: skip

PROGRAM = 256 * 2**20
"""What Python, numpy, scipy and Arrow take before the first row."""

LEARNING = 512 * 2**20
"""What networks or other models take in addition while they are trained."""

LEAST = 384 * 2**20
LEAST_ROWS, MOST_ROWS = 2**10, 2**16
COPIES = 12
"""A row of a batch exists so many times over: compressed and decoded pages, casts, weights, features, in Arrow's and
numpy's memory, which is given back late."""


def bytes_of(given: int | str | None) -> int:
    """A number of bytes from '2GiB', '500 MB' or a number; by default half of the memory that is free."""
    if given is None:
        return max(LEAST, free() // 2)
    size = size_of("memory", given) if isinstance(given, str) else positive_int("memory", given)
    if size < LEAST:
        raise InputError(
            f"memory must be at least {shown(LEAST)}, as the program itself takes about {shown(PROGRAM)}; got "
            f"{shown(size)}."
        )
    return size


def size_of(name: str, text: str) -> int:
    """The number of bytes of '2GiB' or '500 MB'. name: for messages."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not parts or parts[2].upper() not in UNITS:
        raise InputError(f"{name} must be a size such as 2GiB, 500MB or a number of bytes; got {text!r}.")
    return int(min(float(parts[1]) * UNITS[parts[2].upper()], 2.0**62))


def free() -> int:
    """Bytes of memory that a new program can have."""
    try:
        text = Path("/proc/meminfo").read_text("ascii")
    except OSError:
        return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))
    line = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(line[1]) * 1024 if line else 4 * 2**30


def shown(size: float) -> str:
    """'384 MiB', '2.0 GiB'."""
    return f"{size / 2**20:,.0f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"


@final
@dataclass(frozen=True)
class Budget:
    """memory: bytes in all. given_workers: threads that were asked for, None for as many as there are cores."""

    memory: int
    given_workers: int | None = None

    @property
    def workers(self) -> int:
        return cores() if self.given_workers is None else positive_int("workers", self.given_workers)

    @property
    def batch_bytes(self) -> float:
        """Bytes of the columns of a batch, such that all threads together stay within the budget."""
        return (self.memory - PROGRAM) / 2 / self.workers / COPIES

    def batch_rows(self, row_bytes: float) -> int:
        """Rows of a batch such that all threads together stay within the budget."""
        room = (self.memory - PROGRAM) / 2 / self.workers
        need = PROGRAM + 2 * self.workers * COPIES * row_bytes * LEAST_ROWS
        advice = f" with {self.workers} workers. Name fewer columns, or give fewer workers."
        return min(MOST_ROWS, self._rows(room, row_bytes, need, "for", advice))

    def sample_rows(self, row_bytes: float, training: int = LEARNING) -> int:
        """Rows of a sample to train on: a quarter of what the program and training, by default of networks, leave."""
        room = (self.memory - PROGRAM - training) / 4
        need = PROGRAM + training + 4 * COPIES * row_bytes * LEAST_ROWS
        return self._rows(room, row_bytes, need, "to train models on a sample of", ".")

    def _rows(self, room: float, row_bytes: float, need: float, purpose: str, advice: str) -> int:
        rows = int(room / (COPIES * max(1.0, row_bytes)))
        if rows < LEAST_ROWS:
            raise InputError(
                f"memory={shown(self.memory)} is too little {purpose} rows of {row_bytes:,.0f} bytes: expected at "
                f"least {shown(need)}{advice}"
            )
        return rows

    def most_clusters(self, p: int) -> int:
        """Clusters whose sums of p features can be kept: a quarter of the budget, with room to sort them."""
        return int((self.memory - PROGRAM) / 4 / (8 * (p + 2) * 3))
