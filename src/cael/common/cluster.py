"""A Dask cluster: a client for the address of a scheduler, and what is said when the cluster is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cael.errors import InputError

CONNECT = 10
"""Seconds in which a scheduler must answer."""

LOGGERS = ("distributed", "distributed.client", "tornado.application")


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """A Dask client as it is, or one for the address of a scheduler."""
    if not isinstance(client, str):
        yield client
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError("--dask needs Dask, which is not installed: pip install 'cael[dask]'.") from error
    with _quiet():
        try:
            opened = Client(client, timeout=CONNECT)
        except (OSError, TimeoutError, ValueError) as error:
            raise InputError(f"there is no Dask scheduler at {client}, or it is gone.") from error
        with opened:
            yield opened


@contextmanager
def losses_told(kept: str = "") -> Iterator[None]:
    """Turns the loss of the scheduler, or of many workers, into one sentence. kept: what of the work is not lost."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise InputError(f"the cluster lost several workers over one task: {error}{kept}") from None
    except (CancelledError, CommClosedError):
        raise InputError(
            "the Dask scheduler was lost, or it cancelled the work. Start it again, then run the same command"
            f"{kept or '.'}"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """A client that loses its scheduler logs tracebacks from its own thread; the error of the call says it once."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
