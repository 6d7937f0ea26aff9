"""How many things this process may do at once."""

from __future__ import annotations

import os


def cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Threads for one piece of arithmetic: what OMP_NUM_THREADS allows, as for BLAS and torch, or one per core."""
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(number)) if number.isdecimal() else cores()
