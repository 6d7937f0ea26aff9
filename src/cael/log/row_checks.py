"""What the arrays of a log must be: each check gives the array back, or says what is wrong, where, and what to do."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints, all_finite
from cael.errors import LogError, first_bad, positive_int
from cael.policies.policy import Policy


def numbers(name: str, values: ArrayLike) -> Floats:
    """An array of float64, of any shape."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LogError(f"{name} must be numbers: {error}. Encode categories as numbers first.") from None


def vector(name: str, values: ArrayLike, n: int | None) -> Floats:
    array = numbers(name, values)
    if array.ndim != 1:
        raise LogError(f"{name} must have one dimension, one entry per row; got shape {array.shape}.")
    _same_length(name, len(array), n)
    if not all_finite(array):
        bad = ~np.isfinite(array)
        raise LogError(f"{name} must be finite; {first_bad(bad, array)}. Fix or remove these rows first.")
    return array


def _same_length(name: str, length: int, n: int | None) -> None:
    if n is not None and length != n:
        raise LogError(f"lengths differ: rewards has {n} rows, {name} has {length}. They must describe the same rows.")


def matrix(name: str, values: ArrayLike, n: int | None) -> Floats:
    array = numbers(name, values)
    if array.ndim != 2:
        raise LogError(f"{name} must have two dimensions (rows, columns); got shape {array.shape}.")
    _same_length(name, len(array), n)
    if not all_finite(array):
        bad = ~np.isfinite(array)
        row, column = np.argwhere(bad)[0]
        many = int(bad.any(axis=1).sum())
        raise LogError(
            f"{name} must be finite; row {row}, column {column} has {array[row, column]} ({many} such rows)."
        )
    return array


def contexts_of(values: ArrayLike | None, n: int) -> Floats:
    return np.empty((n, 0)) if values is None else matrix("contexts", values, n)


def actions_of(values: ArrayLike, n: int) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1:
        raise LogError(f"actions must have one dimension, one entry per row; got shape {array.shape}.")
    _same_length("actions", len(array), n)
    if array.dtype.kind not in "iuf":
        raise LogError(f"actions must be whole numbers 0..k-1; got {array.dtype}. Map action names to numbers first.")
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array) | (array != np.floor(array))
        if bad.any():
            raise LogError(f"actions must be whole numbers; {first_bad(bad, array)}.")
    bad = array < 0
    if bad.any():
        raise LogError(f"actions must be >= 0; {first_bad(bad, array)}.")
    return array.astype(np.intp, copy=False)


def propensities_of(values: ArrayLike, n: int) -> Floats:
    array = numbers("propensities", values)
    if array.ndim != 1:
        raise LogError(
            f"propensities must have one entry per row, the probability of the action taken; got shape {array.shape}. "
            "Pass the probabilities of all actions as logging=."
        )
    _same_length("propensities", len(array), n)
    bad = ~((array > 0) & (array <= 1))
    if bad.any():
        raise LogError(
            f"propensity must be in (0, 1]; {first_bad(bad, array)}. An action that was taken had a positive "
            "probability: correct the log, or remove these rows knowingly."
        )
    return array


def clusters_of(values: ArrayLike, n: int) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1:
        raise LogError(f"clusters must have one label per row; got shape {array.shape}.")
    _same_length("clusters", len(array), n)
    missing = np.array([each is None or each != each for each in array]) if array.dtype == object else array != array
    if missing.any():
        raise LogError(f"clusters must not be missing; {first_bad(missing, array)}.")
    try:
        codes = np.unique(array, return_inverse=True)[1].astype(np.intp)
    except TypeError:
        raise LogError("clusters must be labels of one kind, all numbers or all strings; got a mixture.") from None
    if codes.max() == 0:
        raise LogError("all rows are in one cluster: a standard error needs at least 2 clusters.")
    return codes


def timestamps_of(values: ArrayLike, n: int) -> Array:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iufM":
        raise LogError(
            f"timestamps must be one number or datetime64 per row; got {array.dtype} of shape {array.shape}."
        )
    _same_length("timestamps", len(array), n)
    missing = array != array
    if missing.any():
        raise LogError(f"timestamps must not be missing; {first_bad(missing, array)}.")
    return array


def count_actions(given: int | None, actions: Ints, logging: Policy | None, features: Floats | None) -> int:
    sources = {
        "n_actions": None if given is None else positive_int("n_actions", given),
        "logging": None if logging is None else logging.n_actions,
        "action_features": None if features is None else len(features),
    }
    known = {name: k for name, k in sources.items() if k is not None}
    if len(set(known.values())) > 1:
        told = ", ".join(f"{name} says {k}" for name, k in known.items())
        raise LogError(f"the number of actions is contradictory: {told}.")
    k = next(iter(known.values()), int(actions.max()) + 1)
    bad = actions >= k
    if bad.any():
        raise LogError(f"actions must be in 0..{k - 1} ({k} actions); {first_bad(bad, actions)}.")
    return k
