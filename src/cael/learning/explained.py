"""A learned policy in words: a tree of questions, what changes, and what the reward model expects of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints
from cael.learning.evidence import Evidence
from cael.learning.learned_policy import LearnedPolicy
from cael.learning.rules import KEEP, TreeRule
from cael.learning.tree_search import Search, search_of
from cael.log.batch import Batch
from cael.policies.policy import probabilities

MOST_ROWS, MOST_CONTEXTS = 400, 50
"""Rows on which a policy is looked at, to put it into words, and contexts that are tried."""
ALIKE = 0.4
"""A tree is shown where it makes at least so many of a policy's decisions."""
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
    """What a policy does on some rows that it was learned from. facts: of all of them. tree: the policy's own, or one
    that resembles it; agrees: the share of its decisions in that tree (None: it is its own). leaves: of its own tree,
    by node. actions: (action, old share, new share), the largest changes first. decides: (context, share of the
    decisions that change where it is that of another row)."""

    facts: LeafFacts
    tree: TreeRule
    agrees: float | None
    leaves: dict[int, LeafFacts]
    actions: tuple[tuple[int, float, float], ...]
    decides: tuple[tuple[int, float], ...]


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
    """What a policy does on some rows that it was learned from."""
    rows = np.arange(len(evidence))
    new, old = played_on(policy, evidence, evidence.log.whole)
    tree = policy.rule if isinstance(policy.rule, TreeRule) else None
    away, decides = np.maximum(new - old, 0.0).sum(axis=1), deciders(policy, evidence, new)
    facts = facts_of(rows, away, evidence, new, old)
    if tree is not None:
        leaf = tree.leaves(evidence.log.contexts)
        rows_of = {int(node): np.flatnonzero(leaf == node) for node in np.unique(leaf)}
        leaves = {node: facts_of(own, away, evidence, new, old) for node, own in rows_of.items()}
        return Seen(facts, tree, None, leaves, moved(old.mean(axis=0), new.mean(axis=0)), decides)
    tree, agrees = imitation(evidence, new)
    return Seen(facts, tree, agrees, {}, moved(old.mean(axis=0), new.mean(axis=0)), decides)


def facts_of(rows: Ints, away: Floats, evidence: Evidence, new: Floats, old: Floats) -> LeafFacts:
    """Of some of the rows."""
    table = evidence.table[rows]
    expected = [float(np.einsum("ij,ij->i", p[rows], table).mean()) for p in (new, old)]
    return LeafFacts(len(rows) / len(evidence), float(away[rows].mean()), *expected)


def played_on(policy: LearnedPolicy, evidence: Evidence, whole: Batch) -> tuple[Floats, Floats]:
    """(n, k) of the policy and of the old one."""
    parts = [(probabilities(policy, part), probabilities(policy.old, part)) for part in whole.parts()]
    new, old = (np.concatenate(tables) for tables in zip(*parts, strict=True))
    return new, old


def deciders(policy: LearnedPolicy, evidence: Evidence, new: Floats) -> tuple[tuple[int, float], ...]:
    """(context, share of the decisions that change where it is that of another row), the largest first."""
    whole, d = evidence.log.whole, evidence.log.contexts.shape[1]
    order, shares = np.random.default_rng(0).permutation(len(new)), []
    for feature in range(min(d, MOST_CONTEXTS)):
        contexts = whole.contexts.copy()
        contexts[:, feature] = contexts[order, feature]
        other = played_on(policy, evidence, replace(whole, contexts=contexts))[0]
        shares.append((feature, float(np.maximum(other - new, 0.0).sum(axis=1).mean())))
    return tuple(sorted(shares, key=lambda pair: -pair[1]))[:MOST_ACTIONS]


def imitation(evidence: Evidence, new: Floats) -> tuple[TreeRule, float]:
    """The tree that agrees most with a policy, and how often."""
    imitated: Any = Imitated(evidence.log, new, np.zeros(len(new)))
    search: Search = search_of(imitated, None)
    tree = search.grown(np.arange(len(new)), SURROGATE)
    chosen = tree.actions(evidence.log.contexts)
    return tree, float(np.where(chosen >= 0, new[np.arange(len(new)), np.maximum(chosen, 0)], 0.0).mean())


def moved(old: Floats, new: Floats) -> tuple[tuple[int, float, float], ...]:
    """The actions whose share changes most."""
    order = np.argsort(-np.abs(new - old), kind="stable")[:MOST_ACTIONS]
    return tuple((int(a), float(old[a]), float(new[a])) for a in order if abs(new[a] - old[a]) > 0)


def explanation(policy: LearnedPolicy, seen: Seen) -> str:
    """The policy in words."""
    facts = seen.facts
    lines = [
        f"Policy: {policy.kind}. {mixture(policy)}It changes {facts.changed:.0%} of the decisions; the reward model "
        f"expects {facts.new:.4g} of it and {facts.old:.4g} of the old policy."
    ]
    if seen.agrees is None:
        lines += ["The tree, with how many decisions change, and the expected reward:", *tree_lines(policy, seen)]
    elif seen.agrees >= ALIKE:
        lines += [f"A tree that makes {seen.agrees:.0%} of its decisions:", *tree_lines(policy, seen)]
    if seen.decides and seen.decides[0][1] > 0:
        lines.append("How many decisions change where a context is that of another row:")
        lines += [f"  {context_of(policy, feature)}: {share:.0%}" for feature, share in seen.decides if share > 0]
    if seen.actions:
        lines.append("Share of the decisions, of the actions that change most:")
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
    return f"{what}  ({facts.share:.0%} of the rows; {facts.changed:.0%} change; {facts.old:.3g} -> {facts.new:.3g})"


def label_of(policy: LearnedPolicy, action: int) -> str:
    return str(action if policy.labels is None else policy.labels[action])


def context_of(policy: LearnedPolicy, feature: int) -> str:
    return f"x{feature}" if policy.contexts is None else policy.contexts[feature]
