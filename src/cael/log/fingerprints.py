"""What tells a log from others: a digest of its rows, and what estimates keep of it."""

from __future__ import annotations

import hashlib
import weakref
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cael.common.types import Array
from cael.policies.policy import probabilities

if TYPE_CHECKING:
    from cael.log.logged import LoggedData


ARRAYS = (
    "contexts", "actions", "rewards", "propensities", "action_features", "clusters", "timestamps", "sampling_weights",
)  # fmt: skip


def digest_of(log: LoggedData) -> str:
    """SHA-256 of everything in a log."""
    digest = hashlib.sha256(repr(log).encode())
    if log.logging is not None and log.logging.complete:
        # All logged propensities are in the digest below; of the other probabilities, some rows stand for all.
        samples = log.take(np.unique(np.linspace(0, len(log) - 1, 64).astype(np.intp)))
        for batch in samples.batches(width=log.n_actions):
            _add(digest, np.ascontiguousarray(probabilities(log.logging, batch)))
    for name in ARRAYS:
        array = getattr(log, name)
        if array is not None:
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            _add(digest, array if array.dtype.kind not in "mM" else array.view("i8"))
    if log.eligible is not None:
        _add(digest, log.eligible.hashes)
    for name, array in log.metrics:
        digest.update(f"metric {name}".encode())
        _add(digest, array)
    digest.update(str(log.rows).encode() if isinstance(log.rows, slice) else log.rows.tobytes())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, array: Array, rows: int = 65536) -> None:
    """Add an array to the digest; equal numbers count as equal, so -0.0 as 0.0."""
    for at in range(0, len(array), rows) if array.dtype.kind == "f" else ():
        digest.update((array[at : at + rows] + array.dtype.type(0)).data)
    if array.dtype.kind != "f":
        digest.update(array.data)


@final
class LogKey:
    """Which log an estimate comes from; computes the fingerprint when it is first asked for, then lets the log go."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._digest = ""

    @property
    def fingerprint(self) -> str:
        if self._log is not None:
            self._digest, self._log = self._log.fingerprint, None
        return self._digest

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, LogKey) and self.fingerprint == other.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        return {"_log": None, "_digest": self.fingerprint}


def key_of(log: Any) -> LogKey:
    """What estimates keep of a log: the same object for all estimates of one log, while one of them lives."""
    reference = log.__dict__.get("_key")
    key = None if reference is None else reference()
    if key is None:
        key = LogKey(log)
        log.__dict__["_key"] = weakref.ref(key)
    return key
