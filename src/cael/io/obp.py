"""From obp: the dictionary `bandit_feedback` and the array `action_dist`, as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array
from cael.errors import InputError
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, Tabular

REQUIRED = ("action", "reward")


@overload
def from_obp(bandit_feedback: Mapping[str, Any]) -> LoggedData: ...
@overload
def from_obp(bandit_feedback: Mapping[str, Any], action_dist: ArrayLike) -> tuple[LoggedData, Policy]: ...


def from_obp(
    bandit_feedback: Mapping[str, Any], action_dist: ArrayLike | None = None
) -> LoggedData | tuple[LoggedData, Policy]:
    """The log of obp's `bandit_feedback`; with `action_dist`, the pair (log, policy).

    Used: context, action, reward, pscore, pi_b, action_context, n_actions; and eligible, where it is there: lists of
    the actions that could be taken, or a boolean mask (n, n_actions). Not used: expected_reward (truth does not live in
    a log), action_embed (pass it to MIPS as row_embeddings). A slate (several positions) is refused.

    >>> log, policy = from_obp({"action": [0, 1], "reward": [1.0, 0.0], "pscore": [0.5, 0.5]}, [[[0.2], [0.8]]] * 2)
    >>> log, policy
    (LoggedData(n=2, n_actions=2, context_dim=0, propensities), Tabular((2, 2)))
    """
    if not isinstance(bandit_feedback, Mapping):
        raise InputError(f"from_obp needs obp's bandit_feedback, a dict; got {type(bandit_feedback).__name__}.")
    missing = [name for name in REQUIRED if bandit_feedback.get(name) is None]
    if missing:
        raise InputError(f"bandit_feedback has no {missing[0]!r}; it has {', '.join(map(str, bandit_feedback))}.")
    _one_position(bandit_feedback.get("position"))
    dist = None if action_dist is None else _flat("action_dist", action_dist)
    logging = bandit_feedback.get("pi_b")
    logging = None if logging is None else _flat("pi_b", logging)
    n_actions = bandit_feedback.get("n_actions")
    if n_actions is None and logging is None and dist is not None:
        n_actions = dist.shape[1]
    log = LoggedData(
        bandit_feedback.get("context"), bandit_feedback["action"], bandit_feedback["reward"],
        bandit_feedback.get("pscore"), logging=logging, n_actions=None if n_actions is None else int(n_actions),
        action_features=bandit_feedback.get("action_context"), eligible=bandit_feedback.get("eligible"),
    )  # fmt: skip
    return log if dist is None else (log, Tabular(dist))


def _one_position(position: Any) -> None:
    if position is not None and len(np.unique(np.asarray(position))) > 1:
        raise InputError(
            f"bandit_feedback has {len(np.unique(np.asarray(position)))} positions: a slate is more than one decision. "
            "Evaluate one position at a time, with its rows and its layer of action_dist."
        )


def _flat(name: str, values: ArrayLike) -> Array:
    """(n, k) from (n, k, 1)."""
    array = np.asarray(values)
    if array.ndim == 3 and array.shape[2] == 1:
        return array[:, :, 0]
    if array.ndim != 2:
        raise InputError(
            f"{name} must have shape (n, n_actions, 1); got {array.shape}. A slate is more than one decision."
        )
    return array
