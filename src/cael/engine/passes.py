"""Passes over a log: tasks are mapped, on threads or on a Dask cluster, and what they keep is merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from cael.common.cluster import connected, losses_told
from cael.common.cores import one_thread
from cael.errors import CaelError, InputError
from cael.io.reading import batches
from cael.log.held import EngineLog, Run
from cael.log.pieces import Piece, Reading, piece_of
from cael.log.scratch import Scratch
from cael.log.targets import as_source

ATTEMPTS = 10
"""Workers that may be lost with one task before it counts as impossible."""


class Mergeable(Protocol):
    def merge(self, other: Self) -> Self: ...


M = TypeVar("M", bound=Mergeable)


def pieces(reading: Reading, task: Any) -> Iterator[tuple[int, Piece]]:
    """(number of the first row in the file, piece) for every batch of a task."""
    if isinstance(task, Run):
        yield from task.pieces(reading.size)
        return
    assert reading.door is not None
    at, kinds, scratch = task.first, None, Scratch()
    for batch in batches(task, reading.columns, reading.size, reading.types, reading.most):
        kinds = kinds or tuple(zip(batch.schema.names, batch.schema.types, strict=True))
        source = as_source(batch, reading.name, (task.file.path.name, at), kinds, scratch)
        try:
            piece = piece_of(source, reading.door, task.number)
        except CaelError as error:
            if str(task.file.path) in str(error):
                raise
            raise type(error)(f"{task.file.path}: {error}") from None
        yield at, piece
        at += batch.num_rows


def reduced(function: Callable[[Any, Any], M], work: Any, log: EngineLog) -> M:
    """function(work, task) of every task of a log, merged in their order, so that the answer is the same each time."""
    return over_tasks(function, work, log.tasks, log.workers, log.client)


def over_tasks(
    function: Callable[[Any, Any], M], work: Any, tasks: Sequence[Any], workers: int, client: Any = None
) -> M:
    """The same for tasks that are given."""
    whole: M | None = None
    source: Iterable[tuple[int, M]]
    if client is None:
        source = on_threads(function, work, tasks, workers)
    elif callable(client):
        source = enumerate(client(partial(_call, function=function, work=work), list(tasks)))
    else:
        source = on_dask(function, work, tasks, client)
    for part in in_order(source):
        whole = part if whole is None else whole.merge(part)
    if whole is None:
        raise InputError("the log has no files with rows.")
    return whole


def in_order(results: Iterable[tuple[int, M]]) -> Iterator[M]:
    """The results 0, 1, 2, ... of pairs (number, result) that come in any order."""
    waiting: dict[int, M] = {}
    following = 0
    for number, result in results:
        waiting[number] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def on_threads(
    function: Callable[[Any, Any], M], work: Any, tasks: Sequence[Any], workers: int
) -> Iterator[tuple[int, M]]:
    """Arrow and numpy do nearly all of the work outside the interpreter's lock; their own threads are kept out."""
    from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

    with one_thread():
        if workers == 1 or len(tasks) == 1:
            for number, task in enumerate(tasks):
                yield number, function(work, task)
            return
        with ThreadPoolExecutor(workers) as pool:
            running: dict[Future[M], int] = {}
            left = list(enumerate(tasks))[::-1]
            try:
                while left or running:
                    while left and len(running) < 2 * workers:
                        number, task = left.pop()
                        running[pool.submit(function, work, task)] = number
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(done), done.result()
            finally:
                for future in running:
                    future.cancel()


def on_dask(function: Callable[[Any, Any], M], work: Any, tasks: Sequence[Any], client: Any) -> Iterator[tuple[int, M]]:
    """A worker that is lost takes nothing with it: what it had not handed over is computed again by the others."""
    from dask import config
    from distributed import as_completed

    with config.set({"distributed.scheduler.allowed-failures": ATTEMPTS}), connected(client) as cluster:
        # The work goes along with every task: what is scattered is lost with the workers that hold it.
        futures = cluster.map(_call, tasks, function=function, work=work, pure=False)
        number_of = {future.key: number for number, future in enumerate(futures)}
        try:
            with losses_told():
                for future in as_completed(futures):
                    yield number_of[future.key], future.result()
                    future.release()
        finally:
            with suppress(CancelledError, OSError):  # the scheduler is gone, and the work with it
                cluster.cancel(futures)


def _call(task: Any, *, function: Callable[[Any, Any], M], work: Any) -> M:
    """One task in a process of its own, where numpy's threads would fight with those of the other workers."""
    with one_thread():
        return function(work, task)
