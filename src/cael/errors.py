"""The error tree. Every message says what was expected, what was found, where, and what to do.

CaelError
├── InputError (also a ValueError)   what was handed in is wrong
│   ├── LogError                     a log, or an array of one
│   └── PolicyError                  a policy, or the rows it produced
├── NeedsError (also a TypeError)    the estimator needs something this log or policy cannot give
└── SupportError (also a ValueError) the log says nothing about what was asked
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from cael.common.visible import visible

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class CaelError(Exception):
    """Root of every error that cael raises on purpose. What a terminal would obey is written out in its message."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(visible(each) if isinstance(each, str) else each for each in arguments))


class InputError(CaelError, ValueError):
    """What was handed in is wrong."""


class LogError(InputError):
    """A log, or one of its arrays, is wrong."""


class PolicyError(InputError):
    """A policy, or the probabilities it gave, is wrong."""


class NeedsError(CaelError, TypeError):
    """An estimator needs something that this log or policy cannot give."""


class SupportError(CaelError, ValueError):
    """The log says nothing about what was asked."""


NEED_CLUSTERS = (
    "a standard error needs at least 2 clusters, and says little with fewer than 10. Give clusters that are "
    "independent of each other, such as users; or none, where the rows are."
)
NEED_ROWS = "a standard error needs at least 2 rows; got 1."


def first_bad(bad: ArrayLike, values: ArrayLike, rows: ArrayLike | None = None) -> str:
    """Where the trouble is: 'row 1841 has 0.0 (7 such rows: 1841, 1902, ...)'."""
    import numpy as np  # here, so that the command line's help need not wait for it

    where = np.flatnonzero(bad)
    numbers = where if rows is None else np.asarray(rows)[where]
    found = np.asarray(values)[where[0]]
    shown_value = float(f"{found:.6g}") if isinstance(found, np.floating) else found
    text = f"row {numbers[0]} has {shown_value}"
    if len(where) > 1:
        shown = ", ".join(str(number) for number in numbers[:5])
        text += f" ({len(where)} such rows: {shown}{', ...' if len(where) > 5 else ''})"
    return text


def refuse_rows(
    bad: Any, values: ArrayLike, message: str, advice: str = "", *,
    rows: ArrayLike | None = None, error: type[InputError] = PolicyError,
) -> None:  # fmt: skip
    """Where a row is bad, an error with the message, the first of them, and the advice. rows: their numbers."""
    if bad.any():
        raise error(f"{message}; {first_bad(bad, values, rows)}.{advice and ' '}{advice}")


def choose(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse an option that is not one of the allowed ones, and list them."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")


LARGEST = 1e37
"""Rewards and contexts beyond it, and propensities below one over it, are refused: the fourth power of a weighted
reward would overflow, and networks are trained in single precision, which ends there."""

LIMITS = {
    "n_actions": 10**7, "context_dim": 10**5, "windows": 10**4, "blocks": 10**4, "workers": 1024, "folds": 1000,
    "splits": 1000, "repeats": 10**5, "resamples": 10**6, "n": 10**9, "population": 10**8, "hidden": 10**5,
    "embedding_dim": 10**4, "candidates": 1000, "count": 10**5, "action_dim": 10**5, "seed": 2**63,
}  # fmt: skip
"""The largest whole numbers that arguments may be: sizes of what is made in memory."""


def positive_int(name: str, value: object, least: int = 1) -> int:
    """A whole number of at least `least`, and no more than can be meant, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number >= {least}; got {value!r}.")
    if int(value) > LIMITS.get(name, 10**15):
        raise InputError(f"{name} must be at most {LIMITS.get(name, 10**15):,}; got {value!r}.")
    return int(value)
