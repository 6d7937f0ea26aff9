"""How many things this process may do at once."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any

BRING_THREADS = ("scipy.linalg", "scipy.sparse", "sklearn", "torch", "pyarrow")
"""Modules that may bring a library with threads of its own."""


def cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Threads for one piece of arithmetic: what OMP_NUM_THREADS allows, as for BLAS and torch, or one per core."""
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(number)) if number.isdecimal() else cores()


def one_thread() -> Any:
    """A context in which BLAS and OpenMP use one thread. The libraries are looked for once, and again after an import
    that may have brought one: the search takes as long as a small estimate."""
    return _libraries(tuple(name in sys.modules for name in BRING_THREADS)).limit(limits=1)


@lru_cache(maxsize=1)
def _libraries(loaded: tuple[bool, ...]) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
