"""A learned policy in words: a tree of questions, what changes, and what the reward model expects of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.learning.evidence import Evidence
from cael.learning.learned_policy import LearnedPolicy
from cael.learning.rules import KEEP, TreeRule
from cael.learning.tree_search import Search, search_of

MOST_ROWS = 4000
"""Rows on which a policy is looked at, to put it into words."""
SURROGATE = 2
"""Depth of the tree that stands for a policy that is none."""
MOST_ACTIONS = 5


@final
@dataclass(frozen=True)
class LeafFacts:
    """Of the rows that end in a leaf: their share; the share of decisions that change; and the reward that the model
    expects of the new policy and of the old one."""

    share: float
    changed: float
    new: float
    old: float


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """What a policy does on the rows that it was learned from. changed: share of decisions that differ from those of
    the old policy. tree: the policy's own, or one that resembles it; agrees: the share of its decisions in that tree
    (None: it is its own). leaves: of the tree, by node. actions: (action, old share, new share), the largest changes
    first."""

    changed: float
    tree: TreeRule
    agrees: float | None
    leaves: dict[int, LeafFacts]
    actions: tuple[tuple[int, float, float], ...]


@final
@dataclass(frozen=True, eq=False)
class Imitated:
    """In the place of evidence: the gain of an action is the probability that a policy gives it."""

    log: Any
    table: Floats
    pull: Floats

    def __len__(self) -> int:
        return len(self.log)

    def gains(self, rows: Ints) -> Floats:
        return self.table[rows]


def seen_on(policy: LearnedPolicy, evidence: Evidence) -> Seen:
    """What a policy does on the rows that it was learned from, or on some of them."""
    n = len(evidence)
    rows = np.linspace(0, n - 1, min(n, MOST_ROWS, max(200, 2**22 // evidence.log.n_actions))).astype(np.intp)
    new, old = np.empty((2, len(rows), evidence.log.n_actions))
    place = 0
    for _, batch, usual in evidence.blocks(rows):
        part = slice(place, place := place + len(batch))
        new[part], old[part] = policy.mixed(policy.rule.advised(batch, usual), usual, batch), usual
    tree, agrees = policy.rule, None
    if not isinstance(tree, TreeRule):
        tree, agrees = imitation(evidence, rows, new)
    leaf = tree.leaves(evidence.log.contexts[rows])
    away, table = np.maximum(new - old, 0.0).sum(axis=1), evidence.table[rows]
    expected = [np.einsum("ij,ij->i", p, table) for p in (new, old)]
    leaves = {
        int(node): LeafFacts(float(at.mean()), *(float(values[at].mean()) for values in (away, *expected)))
        for node in np.unique(leaf)
        for at in (leaf == node,)
    }
    return Seen(float(away.mean()), tree, agrees, leaves, moved(old.mean(axis=0), new.mean(axis=0)))


def imitation(evidence: Evidence, rows: Ints, new: Floats) -> tuple[TreeRule, float]:
    """The tree that agrees most with a policy, and how often."""
    log = evidence.log.take(rows)
    imitated: Any = Imitated(log, new, np.zeros(len(rows)))
    search: Search = search_of(imitated, None)
    tree = search.grown(np.arange(len(rows)), SURROGATE)
    chosen = tree.actions(log.contexts)
    return tree, float(np.where(chosen >= 0, new[np.arange(len(rows)), np.maximum(chosen, 0)], 0.0).mean())


def moved(old: Floats, new: Floats) -> tuple[tuple[int, float, float], ...]:
    """The actions whose share changes most."""
    order = np.argsort(-np.abs(new - old), kind="stable")[:MOST_ACTIONS]
    return tuple((int(a), float(old[a]), float(new[a])) for a in order if abs(new[a] - old[a]) > 0)


def explanation(policy: LearnedPolicy, seen: Seen) -> str:
    """The policy in words."""
    lines = [f"Policy: {policy.kind}. {mixture(policy)}It changes {seen.changed:.0%} of the decisions."]
    if seen.agrees is None:
        lines.append("The tree:")
    else:
        lines.append(f"A tree that makes {seen.agrees:.0%} of its decisions:")
    lines += tree_lines(policy, seen)
    if seen.actions:
        lines.append("The actions whose share of the decisions changes most:")
        lines += [f"  {label_of(policy, a)}: {old:.1%} -> {new:.1%}" for a, old, new in seen.actions]
    return "\n".join(lines)


def mixture(policy: LearnedPolicy) -> str:
    parts = []
    if policy.share < 1:
        parts.append(f"It is followed in {policy.share:.0%} of the decisions, the old policy in the others.")
    if policy.explore:
        parts.append(f"{policy.explore:.0%} of the decisions are drawn uniformly.")
    return "".join(f"{part} " for part in parts)


def tree_lines(policy: LearnedPolicy, seen: Seen, node: int = 0, indent: str = "  ") -> list[str]:
    """The tree from a node on."""
    tree = seen.tree
    if tree.feature[node] < 0:
        return [f"{indent}{leaf_words(policy, seen, node)}"]
    name, cut = context_of(policy, int(tree.feature[node])), f"{tree.threshold[node]:.4g}"
    low = tree_lines(policy, seen, int(tree.low[node]), indent + "  ")
    high = tree_lines(policy, seen, int(tree.high[node]), indent + "  ")
    return [f"{indent}{name} at most {cut}:", *low, f"{indent}{name} above {cut}:", *high]


def leaf_words(policy: LearnedPolicy, seen: Seen, node: int) -> str:
    action = int(seen.tree.action[node])
    what = "as the old policy" if action == KEEP else f"action {label_of(policy, action)}"
    facts = seen.leaves.get(node)
    if facts is None:
        return what
    return (
        f"{what}  ({facts.share:.0%} of the rows; {facts.changed:.0%} of the decisions change; expected reward "
        f"{facts.old:.4g} -> {facts.new:.4g})"
    )


def label_of(policy: LearnedPolicy, action: int) -> str:
    return str(action if policy.labels is None else policy.labels[action])


def context_of(policy: LearnedPolicy, feature: int) -> str:
    return f"x{feature}" if policy.contexts is None else policy.contexts[feature]
