"""Whether a policy that was read from a file is one: sizes, ranges, and whether it answers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from cael.common.types import Array
from cael.errors import PolicyError, positive_int
from cael.learning.learned_policy import LearnedPolicy
from cael.learning.rules import KEEP, Rule, ScoredRule, TreeRule
from cael.log.batch import Batch
from cael.policies.gate import checked_rows
from cael.policies.policy import Policy

MOST = 10_000_000
"""Actions and contexts."""
UNUSABLE = (ArithmeticError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""What a part of a wrong size or kind raises."""


def refuse_unsound(policy: LearnedPolicy) -> None:
    """Refuse a policy with parts that do not fit together."""
    k, d = positive_int("n_actions", policy.n_actions), positive_int("context_dim", policy.context_dim, least=0)
    need(k <= MOST and d <= MOST, f"at most {MOST:,} actions and contexts")
    for name in ("share", "explore"):
        value = getattr(policy, name)
        need(is_number(value) and 0 <= value <= 1, f"{name} in [0, 1]; got {value!r}")
    need(isinstance(policy.kind, str), "the kind as text")
    need(isinstance(policy.rule, Rule) and isinstance(policy.old, Policy), "a rule, and the old policy")
    labels, contexts = policy.labels, policy.contexts
    need(labels is None or are_labels(labels, k), f"{k:,} labels, each once")
    need(contexts is None or all(isinstance(name, str) for name in contexts), "contexts as names")
    refuse_strange_numbers(policy)
    need(policy.rule.allowed is None or are_flags(policy.rule.allowed, k), f"allowed: {k:,} truth values, one true")
    if isinstance(policy.rule, TreeRule):
        refuse_unsound_tree(policy.rule, k, d)
    if isinstance(policy.rule, ScoredRule):
        spread = policy.rule.spread
        need(is_number(spread) and 0 <= spread < np.inf, f"a spread of 0 or more; got {spread!r}")
    try_out(policy)


def need(holds: bool, expected: str) -> None:
    if not holds:
        raise PolicyError(f"expected {expected}.")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_labels(labels: Any, k: int) -> bool:
    kinds = {type(label) for label in labels} if isinstance(labels, tuple) else set()
    return kinds in ({int}, {str}) and len(labels) == k == len(set(labels))


def are_flags(allowed: Any, k: int) -> bool:
    return isinstance(allowed, np.ndarray) and allowed.dtype == bool and allowed.shape == (k,) and bool(allowed.any())


def refuse_strange_numbers(part: Any) -> None:
    """Refuse numbers that are not finite, anywhere in a part."""
    if isinstance(part, np.ndarray):
        need(part.dtype.kind != "f" or bool(np.isfinite(part).all()), "finite numbers")
    elif isinstance(part, float):
        need(bool(np.isfinite(part)), "finite numbers")
    elif isinstance(part, tuple | list):
        for each in part:
            refuse_strange_numbers(each)
    elif is_dataclass(part):
        for field in fields(part):
            refuse_strange_numbers(getattr(part, field.name, None))


def refuse_unsound_tree(tree: TreeRule, k: int, d: int) -> None:
    """Refuse a tree with a node of a wrong kind, or a child that does not stand behind its parent."""
    whole: tuple[Array, ...] = (tree.feature, tree.low, tree.high, tree.action)
    need(all(isinstance(part, np.ndarray) for part in (*whole, tree.threshold)), "a tree of arrays")
    need(len({part.shape for part in (*whole, tree.threshold)}) == 1 and tree.feature.ndim == 1, "one length of a tree")
    need(all(part.dtype.kind == "i" for part in whole), "whole numbers in a tree")
    n = len(tree.feature)
    nodes, inner = np.arange(n), tree.feature >= 0
    need(n > 0 and bool((tree.feature < d).all()), f"questions about {d:,} contexts")
    for child in (tree.low[inner], tree.high[inner]):
        need(bool(((child > nodes[inner]) & (child < n)).all()), "children behind their parents in a tree")
    leaves = tree.action[~inner]
    need(bool(((leaves >= KEEP) & (leaves < k)).all()), f"actions of a tree among {k:,}")


def try_out(policy: LearnedPolicy) -> None:
    """Ask it about two rows."""
    shape = (2, policy.context_dim)
    rows = Batch(
        slice(0, 2), np.vstack([np.zeros(shape[1]), np.ones(shape[1])]), np.zeros(2, dtype=np.intp), np.zeros(2),
        np.ones(2), policy.n_actions, None,
    )  # fmt: skip
    try:
        checked_rows(policy.probabilities(rows), (2, policy.n_actions), repr(policy))
    except UNUSABLE as error:
        raise PolicyError(f"expected a policy that answers; it fails with {type(error).__name__}: {error}") from None
