"""What the arrays of a log must be: each check gives the array back, or says what is wrong, where, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints, all_finite
from cael.errors import LARGEST, NEED_CLUSTERS, LogError, positive_int, refuse_rows
from cael.io import cells
from cael.io.cells import Flaw
from cael.log.flaws import LOGGING, NOTHING, OTHERWISE, Numbering, contradiction, counted
from cael.policies.policy import Policy

PROPENSITY_RTOL, PROPENSITY_ATOL = 1e-3, 1e-6
"""How far a logged propensity may lie from the logging policy's own probability (rounded logs exist)."""


def numbers(name: str, values: ArrayLike) -> Floats:
    """An array of float64, of any shape."""
    given = np.asarray(values)
    if given.dtype.kind in "mM":
        raise LogError(f"{name} must be numbers; got {given.dtype}. Say which number of each time is meant.")
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LogError(f"{name} must be numbers: {error}. Encode categories as numbers first.") from None


def _same_length(name: str, length: int, n: int | None) -> None:
    if n is not None and length != n:
        raise LogError(f"lengths differ: rewards has {n} rows, {name} has {length}. They must describe the same rows.")


def _one_entry_per_row(name: str, array: Array, n: int | None) -> None:
    if array.ndim != 1:
        raise LogError(f"{name} must have one dimension, one entry per row; got shape {array.shape}.")
    _same_length(name, len(array), n)


def vector(name: str, values: ArrayLike, n: int | None) -> Floats:
    array = numbers(name, values)
    _one_entry_per_row(name, array, n)
    if not all_finite(array):
        message, advice = f"{name} must be finite", "Fix or remove these rows first."
        refuse_rows(~np.isfinite(array), array, message, advice, error=LogError)
    if len(array) and max(-array.min(), array.max()) > LARGEST:
        message = f"{name} must be within {LARGEST:g} of 0, or their powers overflow"
        refuse_rows(np.abs(array) > LARGEST, array, message, "Divide them by a constant.", error=LogError)
    return array


def matrix(name: str, values: ArrayLike, n: int | None) -> Floats:
    array = numbers(name, values)
    if array.ndim != 2:
        raise LogError(f"{name} must have two dimensions (rows, columns); got shape {array.shape}.")
    _same_length(name, len(array), n)
    if not all_finite(array):
        bad = ~np.isfinite(array)
        row, column = np.argwhere(bad)[0]
        count = int(bad.any(axis=1).sum())
        raise LogError(
            f"{name} must be finite; row {row}, column {column} has {array[row, column]} ({count} such rows)."
        )
    if array.size and max(-array.min(), array.max()) > LARGEST:
        row, column = np.argwhere(np.abs(array) > LARGEST)[0]
        raise LogError(
            f"{name} must be within {LARGEST:g} of 0, or their powers overflow; row {row}, column {column} has "
            f"{array[row, column]}. Divide the column by a constant."
        )
    return array


def actions_of(values: ArrayLike, n: int) -> Ints:
    array = np.asarray(values)
    _one_entry_per_row("actions", array, n)
    if array.dtype.kind not in "iuf":
        raise LogError(f"actions must be whole numbers 0..k-1; got {array.dtype}. Map action names to numbers first.")
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array) | (array != np.floor(array))
        refuse_rows(bad, array, "actions must be whole numbers", error=LogError)
    refuse_rows(array < 0, array, "actions must be >= 0", error=LogError)
    return array.astype(np.intp, copy=False)


def propensities_of(values: ArrayLike, n: int) -> Floats:
    array = numbers("propensities", values)
    if array.ndim != 1:
        raise LogError(
            f"propensities must have one entry per row, the probability of the action taken; got shape {array.shape}. "
            "Pass the probabilities of all actions as logging=."
        )
    _same_length("propensities", len(array), n)
    advice = "An action that was taken had a positive probability: correct the log, or remove these rows knowingly."
    refuse_rows(~((array > 0) & (array <= 1)), array, "propensity must be in (0, 1]", advice, error=LogError)
    small = f"propensity must be at least {1 / LARGEST:g}, or the powers of its weight overflow"
    refuse_rows(array < 1 / LARGEST, array, small, advice, error=LogError)
    return array


def sampling_weights_of(values: ArrayLike, n: int) -> Floats:
    array = vector("sampling_weights", values, n)
    advice = "A row stands for so many decisions: leave out rows that stand for none."
    refuse_rows(array < 1 / LARGEST, array, "sampling_weights must be above 0", advice, error=LogError)
    return array


def clusters_of(values: ArrayLike, n: int) -> Ints:
    array = np.asarray(values)
    _one_entry_per_row("clusters", array, n)
    missing = (
        np.array([label is None or label != label for label in array]) if array.dtype == object else array != array
    )
    refuse_rows(missing, array, "clusters must not be missing", error=LogError)
    try:
        codes = np.unique(array, return_inverse=True)[1].astype(np.intp)
    except TypeError:
        raise LogError("clusters must be labels of one kind, all numbers or all strings; got a mixture.") from None
    if codes.max() == 0:
        raise LogError(f"all rows are in one cluster: {NEED_CLUSTERS}")
    return codes


def timestamps_of(values: ArrayLike, n: int) -> Array:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iufM":
        raise LogError(
            f"timestamps must be one number or datetime64 per row; got {array.dtype} of shape {array.shape}."
        )
    _same_length("timestamps", len(array), n)
    refuse_rows(array != array, array, "timestamps must not be missing", error=LogError)
    return array


def count_actions(
    given: int | None, actions: Ints, logging: Policy | None, features: Floats | None, eligible: int | None = None
) -> int:
    sources = {
        "n_actions": None if given is None else positive_int("n_actions", given),
        "logging": None if logging is None else logging.n_actions,
        "action_features": None if features is None else len(features),
        "eligible": eligible,
    }
    known = {name: k for name, k in sources.items() if k is not None}
    if len(set(known.values())) > 1:
        contradiction = ", ".join(f"{name} says {k}" for name, k in known.items())
        raise LogError(f"the number of actions is contradictory: {contradiction}.")
    k = next(iter(known.values()), 0) or positive_int("n_actions", int(actions.max()) + 1)
    refuse_rows(actions >= k, actions, f"actions must be in 0..{k - 1} ({k} actions)", error=LogError)
    return k


class Contradicted(LogError):
    """The logging policy's probabilities of logged actions cannot be. flaws: how, and in which of the rows given."""

    def __init__(self, message: str, flaws: list[Flaw]) -> None:
        super().__init__(message)
        self.flaws = flaws

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.flaws)


def contradictions(logged: Floats, propensities: Floats | None) -> list[Flaw]:
    """Rows whose logged action has the probability 0 by the logging policy (n,), or another than the log says."""
    flaws = cells.flaws(LOGGING, {NOTHING: logged <= 0})
    if propensities is None:
        return flaws
    apart = (logged > 0) & ~np.isclose(logged, propensities, rtol=PROPENSITY_RTOL, atol=PROPENSITY_ATOL)
    rows = np.flatnonzero(apart)
    if not len(rows):
        return flaws
    example = f"propensity {propensities[rows[0]]}, but the logging policy gives its action {logged[rows[0]]}"
    return [*flaws, Flaw(LOGGING, OTHERWISE, rows, example)]


def refuse_contradictions(logged: Floats, propensities: Floats | None) -> None:
    """Refuse a logging policy whose probabilities (n,) of the logged actions are 0, or not the log's propensities."""
    flaws = contradictions(logged, propensities)
    if flaws:
        message = contradiction(counted(flaws, 0, 0).values(), Numbering((), (len(logged),)))
        raise Contradicted(message, flaws)
