"""A log as one .npz file: named arrays, no pickles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cael.common.types import Array
from cael.common.whole import not_written, whole_file
from cael.errors import CaelError, InputError, LogError, PolicyError
from cael.log.eligible import Eligible
from cael.log.logged import LoggedData
from cael.policies.policy import LoggedOnly, Policy, Tabular, probabilities

REQUIRED = ("actions", "rewards")
OPTIONAL = ("contexts", "propensities", "logging", "action_features", "clusters", "timestamps", "sampling_weights")
ELIGIBLE = ("eligible_starts", "eligible_actions", "eligible_sets")
"""The distinct sets of eligible actions, as offsets and action numbers, and the number of each row's set."""


def save_log(path: Path | str, log: LoggedData, *, target: Policy | None = None) -> None:
    """Write a log, and a target policy's (n, k) probabilities under the name "target", to an .npz file."""
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(f"a log is written to a file that ends in .npz; got {path.name!r}.")
    arrays = {name: getattr(log, name) for name in (*REQUIRED, *OPTIONAL) if name != "logging"}
    for name, policy in (("logging", log.logging), ("target", target)):
        arrays[name] = None if policy is None else _table(policy, log)
    if log.eligible is not None:
        sets = log.eligible.sets
        arrays |= dict(zip(ELIGIBLE, (sets.starts, sets.actions, log.eligible.codes), strict=True))
    try:
        with whole_file(path) as file:
            np.savez_compressed(file, **{name: array for name, array in arrays.items() if array is not None})
    except OSError as error:
        raise not_written(path, error) from error


def _table(policy: Policy, log: LoggedData) -> Array:
    return np.concatenate([probabilities(policy, batch) for batch in log.batches(width=log.n_actions)])


def load_log(path: Path | str) -> LoggedData:
    """Read a log from an .npz file with arrays `actions`, `rewards`, and any of the optional ones."""
    arrays = _arrays(Path(path))
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise LogError(f"{path}: missing {', '.join(missing)}; it has {', '.join(arrays) or 'nothing'}.")
    known: dict[str, Any] = {name: arrays[name] for name in (*REQUIRED, *OPTIONAL) if name in arrays}
    if "logging" in known:
        known["logging"] = Tabular(known["logging"], copy=False)
    if any(name in arrays for name in ELIGIBLE):
        known["eligible"] = _eligible(arrays, known, path)
    return LoggedData(**{"contexts": None, **known})


def _eligible(arrays: dict[str, Array], known: Mapping[str, Any], path: Path | str) -> Eligible:
    """The eligible actions of each row, from the arrays of their sets."""
    missing = [name for name in ELIGIBLE if name not in arrays]
    if missing:
        raise LogError(f"{path}: eligible actions take the arrays {', '.join(ELIGIBLE)}; {missing[0]} is missing.")
    starts, actions, codes = (arrays[name] for name in ELIGIBLE)
    features, logging = known.get("action_features"), known.get("logging")
    k = int(max(actions.max(initial=0), known["actions"].max(initial=0))) + 1
    k = len(features) if features is not None else k if logging is None else logging.n_actions
    sets: dict[Any, Any] = dict(enumerate(np.split(actions, starts[1:-1])))
    return Eligible.by_period(codes, sets, k)


def load_policy(name: str, log_path: Path | str) -> Policy:
    """A policy from an .npy file, or from the array of that name in the log's file."""
    if name.endswith(".npy"):
        table = _array(Path(name))
    else:
        arrays = _arrays(Path(log_path))
        if name not in arrays:
            raise PolicyError(f"{log_path} has no array {name!r}; it has {', '.join(arrays)}. Or give an .npy file.")
        table = arrays[name]
    if table.dtype.kind not in "fiub":
        raise PolicyError(f"policy {name!r} must be an array of numbers; got {table.dtype} of shape {table.shape}.")
    n = len(_arrays(Path(log_path))["rewards"])
    if table.ndim == 1 and len(table) == n and abs(float(table.sum()) - 1) > 1e-5:
        return LoggedOnly(table)
    return Tabular(table, copy=False)


def _array(path: Path) -> Array:
    with _loading(path, "an .npy file of a plain array"), path.open("rb") as content:
        return np.load(content, allow_pickle=False)


def _arrays(path: Path) -> dict[str, Array]:
    if path.suffix != ".npz":
        raise InputError(f"expected an .npz file; got {path.name!r}.")
    with (
        _loading(path, "an .npz file of plain arrays"),
        path.open("rb") as content,
        np.load(content, allow_pickle=False) as file,
    ):
        return {name: file[name] for name in file.files}


@contextmanager
def _loading(path: Path, what: str) -> Iterator[None]:
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    try:
        yield
    except Exception as error:  # zipfile, zlib and numpy each have their own
        if isinstance(error, MemoryError | CaelError):
            raise
        raise InputError(f"{path} is not {what}: {error}") from None
