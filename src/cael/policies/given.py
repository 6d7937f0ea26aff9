"""A policy from whatever a user hands in: a policy, probabilities, chosen labels, a classifier, a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from cael.errors import PolicyError
from cael.policies.chosen import Choice, is_label
from cael.policies.from_model import FromModel
from cael.policies.labelled import Names, by_position
from cael.policies.policy import Policy, Tabular


class Frame(Protocol):
    """A frame or series of pandas or polars, or a table of Arrow with one."""

    def to_numpy(self) -> Any: ...


class ArrowTable(Protocol):
    @property
    def column_names(self) -> Sequence[str]: ...


class Classifier(Protocol):
    """A fitted classifier of actions, such as a scikit-learn Pipeline."""

    def predict(self, X: Any) -> Any: ...


PolicyLike: TypeAlias = (
    "Policy | ArrayLike | Frame | ArrowTable | Classifier | Callable[[Any], Any] | Mapping[Any, Any] | str"
)
"""What may stand wherever a policy is expected."""


def as_policy(source: Any) -> Policy:
    """A policy from a policy, a (k,) or (n, k) array, frame or mapping of probabilities, (n,) chosen labels, a fitted
    classifier, or a function."""
    if isinstance(source, Policy):
        return source
    if isinstance(source, type) or callable(source) or hasattr(source, "predict"):
        return FromModel(source)
    if isinstance(source, Mapping) or hasattr(source, "column_names"):
        return Tabular(source)
    return Choice(source) if _chosen(np.asarray(source)) else Tabular(source)


def _chosen(values: Any) -> bool:
    """Whether an array holds labels that were chosen: one dimension, and no distribution of whole numbers."""
    if values.ndim != 1 or len(values) == 0 or values.dtype.kind == "f" or not is_label(values):
        return False
    return values.dtype.kind not in "iu" or bool(values.sum() != 1 or (values < 0).any())


def policy_on(source: Any, names: Names) -> Policy:
    """The policy that something means on a log that has these names."""
    if isinstance(source, Policy):
        return source.matched(names)
    array = None if isinstance(source, Mapping) or callable(source) or hasattr(source, "predict") else source
    if array is not None and not hasattr(array, "columns") and not hasattr(array, "column_names"):
        return _numbers_on(source, names)
    return as_policy(source).matched(names)


def _numbers_on(source: Any, names: Names) -> Policy:
    """An array, lists or a series: chosen labels, or probabilities."""
    values, k = np.asarray(source), len(names.actions)
    one_each = values.ndim == 1 and names.count is not None and len(values) == names.count != k
    if one_each and is_label(values):
        return Choice(source).matched(names)
    if one_each and values.dtype.kind == "f":
        raise PolicyError(
            f"a policy of {len(values):,} numbers, one for each row: expected probabilities of all {k} actions, or the "
            "label that is chosen on each row. Probabilities of the logged actions go to cael.LoggedOnly(p); predicted "
            "rewards are not a policy."
        )
    policy = as_policy(source)
    if names.hidden and isinstance(policy, Tabular) and policy.labels is None:
        raise PolicyError(by_position(f"an array of shape {values.shape}", names))
    return policy.matched(names)
