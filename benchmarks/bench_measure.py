"""Time and peak memory of one task in this process. Runs in both environments; needs Linux's /proc."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ENOUGH_SECONDS = 3.0
"""A task is repeated until it has run this long in all, ..."""
MOST_REPEATS = 9
"""... or this often."""

ARRAYS = ("contexts", "actions", "rewards", "propensities", "target", "logging", "q_hat", "embedding")
RESAMPLES = 999

Arrays = dict[str, Any]
Task = Callable[[Any], dict[str, Any]]


def load(folder: Path) -> Arrays:
    """The log as both sides are given it."""
    return {name: np.load(folder / f"{name}.npy") for name in ARRAYS}


def head(arrays: Arrays, rows: int = 400) -> Arrays:
    """The first rows: enough to warm up imports, caches and threads."""
    return {name: a if name == "embedding" else a[:rows] for name, a in arrays.items()}


def _memory(field: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS now, or VmHWM, its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def _settle() -> int:
    """Give freed memory back to the system, forget the peak, and say what is resident now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _timed(run: Callable[[Any], Any], argument: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run(argument)
    return time.perf_counter() - start, result


def measure(arrays: Arrays, prepare: Callable[[Arrays], Any], task: Task) -> dict[str, Any]:
    """Run prepare (what must be built from the arrays first) and the task on what it returns.

    prepare_*: the cost of building. seconds: of the task, each time on something freshly built, the median.
    again: of the task on something that it has already run on. first, cpu: wall and processor time of the first
    run. load: of the machine. peak: bytes above what was resident before the task, on its first run. total_peak:
    bytes above the loaded data, with what prepare built.
    """
    task(prepare(head(arrays)))
    data = _settle()
    print(json.dumps({"resident": data}), flush=True)
    prepare_seconds, built = _timed(prepare, arrays)
    prepare_peak = _memory("VmHWM") - data
    before = _settle()
    cpu = time.process_time()
    seconds, said = _timed(task, built)
    cpu = time.process_time() - cpu
    task_peak = _memory("VmHWM")
    times, prepares, again = [seconds], [prepare_seconds], []
    while sum(times) < ENOUGH_SECONDS and len(times) < MOST_REPEATS:
        again.append(_timed(task, built)[0])
        built = None
        prepare_seconds, built = _timed(prepare, arrays)
        prepares.append(prepare_seconds)
        times.append(_timed(task, built)[0])
    return {
        "seconds": statistics.median(times),
        "again": statistics.median(again) if again else seconds,
        "first": seconds,
        "cpu": cpu,
        "load": os.getloadavg()[0],
        "repeats": len(times),
        "prepare_seconds": statistics.median(prepares),
        "prepare_peak": max(0, prepare_peak),
        "prepare_held": max(0, before - data),
        "peak": max(0, task_peak - before),
        "total_peak": max(0, prepare_peak, task_peak - data),
        **said,
    }


def main(tasks: dict[str, tuple[Callable[[Arrays], Any], Task]], packages: tuple[str, ...]) -> None:
    """Command line of a side: TASK FOLDER -> what was measured, as one line of JSON."""
    name, folder = sys.argv[1:]
    result = measure(load(Path(folder)), *tasks[name])
    print(json.dumps({**result, "versions": {package: version(package) for package in packages}}), flush=True)
