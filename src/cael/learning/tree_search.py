"""The best policy tree on doubly robust scores: exact over a grid of thresholds to depth 2, deeper with that as
lookahead.

The value of a leaf is that of its best action, or 0 for keeping to the old policy: the sum of its rows' gains, less
CAUTION standard deviations of what the logged rewards in it add (Athey and Wager 2021, with a pessimistic leaf). All
sums are made at once: rows are summed by pairs of bins, and cumulative sums over both give every pair of questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.learning.evidence import Evidence
from cael.learning.rules import KEEP, TreeRule

CAUTION = 1.0
MOST_SUMS = 2**22
"""Sums of a pair of questions are kept for at most so many bins times actions."""
BINS, FEWEST_BINS = 12, 4
MOST_FEATURES = 12
"""Of more contexts, those whose single question gains most are asked in pairs."""
FEWEST_ROWS = 20


class Leaf(NamedTuple):
    action: int


class Split(NamedTuple):
    feature: int
    cut: int
    low: Leaf | Split
    high: Leaf | Split


Node: TypeAlias = Leaf | Split


class Values(NamedTuple):
    """Of leaves: value and action, arrays of one shape."""

    value: Floats
    action: Ints


@final
@dataclass(frozen=True, eq=False)
class Search:
    """What trees are grown from. codes: (n, d) bins of the contexts. cuts: their upper edges, (bins - 1,) of each
    context. allowed: (k,) actions; None: all."""

    evidence: Evidence
    codes: Ints
    cuts: tuple[Floats, ...]
    allowed: Array | None
    fewest: int

    def grown(self, rows: Ints, depth: int) -> TreeRule:
        """The tree of so many questions on these rows."""
        return laid_out(self._node(rows, depth)[1], self.cuts, self.allowed)

    def _node(self, rows: Ints, depth: int) -> tuple[float, Node]:
        gains = self.evidence.gains(rows)
        leaf = self._leaf(gains, rows)
        if depth == 0 or len(rows) < 2 * self.fewest:
            return leaf
        sums = Sums(self, rows, gains)
        single = sums.single()
        if depth == 1 or not self.codes.shape[1]:
            return max(leaf, single, key=lambda pair: pair[0])
        double = sums.double(self._asked(sums))
        best = max(leaf, single, double, key=lambda pair: pair[0])
        return self._deeper(best, rows, depth) if depth > 2 else best

    def _deeper(self, best: tuple[float, Node], rows: Ints, depth: int) -> tuple[float, Node]:
        """The first question of the best tree, with better ones below it."""
        node = best[1]
        if isinstance(node, Leaf):
            return best
        below = self.codes[rows, node.feature] <= node.cut
        (low, left), (high, right) = self._node(rows[below], depth - 1), self._node(rows[~below], depth - 1)
        return (low + high, Split(node.feature, node.cut, left, right)) if low + high > best[0] else best

    def _asked(self, sums: Sums) -> Ints:
        """The contexts that are asked in pairs."""
        d = self.codes.shape[1]
        if d <= MOST_FEATURES:
            return np.arange(d)
        gained = np.array([sums.question(feature)[0].max(initial=-np.inf) for feature in range(d)])
        return np.sort(np.argsort(-gained, kind="stable")[:MOST_FEATURES])

    def _leaf(self, gains: Floats, rows: Ints) -> tuple[float, Node]:
        pull = self.evidence.pull[rows] ** 2
        squares = np.bincount(self.evidence.log.actions[rows], pull, gains.shape[1]).astype(np.float64)
        best = self.leaves(gains.sum(axis=0), squares, np.array(len(rows)))
        return float(best.value), Leaf(int(best.action))

    def leaves(self, sums: Floats, squares: Floats, counts: Array) -> Values:
        """The value of leaves (..., ) with these sums and squares (..., k), and what they play."""
        careful = sums - CAUTION * np.sqrt(np.maximum(squares, 0.0))
        if self.allowed is not None:
            careful = np.where(self.allowed, careful, -np.inf)
        action = careful.argmax(axis=-1)
        value = np.take_along_axis(careful, action[..., None], axis=-1)[..., 0]
        kept = value <= 0
        value = np.where(counts >= self.fewest, np.where(kept, 0.0, value), -np.inf)
        return Values(value, np.where(kept, KEEP, action))


@final
class Sums:
    """Gains, squares and counts of the rows of a node, by bins."""

    def __init__(self, search: Search, rows: Ints, gains: Floats) -> None:
        self.search, self.rows, self.gains = search, rows, gains
        self.k, self.codes = gains.shape[1], search.codes[rows]
        self.actions, self.squares = search.evidence.log.actions[rows], search.evidence.pull[rows] ** 2

    def by(self, code: Ints, size: int) -> tuple[Floats, Floats, Floats]:
        """(size, k) sums and squares, (size,) counts, by a code of each row."""
        from scipy.sparse import csr_array

        hot = csr_array((np.ones(len(code)), (code, np.arange(len(code)))), shape=(size, len(code)))
        squares: Floats = np.bincount(code * self.k + self.actions, self.squares, size * self.k).astype(np.float64)
        counts: Floats = np.bincount(code, minlength=size).astype(np.float64)
        return np.asarray(hot @ self.gains), squares.reshape(size, self.k), counts

    def bins(self, feature: int) -> int:
        return len(self.search.cuts[feature]) + 1

    def question(self, feature: int) -> tuple[Floats, Values, Values]:
        """The value of each cut of a context, and the leaves on both sides."""
        parts = [part.cumsum(axis=0) for part in self.by(self.codes[:, feature], self.bins(feature))]
        low = self.search.leaves(*(part[:-1] for part in parts))
        high = self.search.leaves(*(part[-1] - part[:-1] for part in parts))
        return low.value + high.value, low, high

    def single(self) -> tuple[float, Node]:
        """The best tree with one question."""
        best: tuple[float, Node] = (-np.inf, Leaf(KEEP))
        for feature in range(self.codes.shape[1]):
            value, low, high = self.question(feature)
            if len(value) and value.max() > best[0]:
                at = int(value.argmax())
                node = Split(feature, at, Leaf(int(low.action[at])), Leaf(int(high.action[at])))
                best = float(value[at]), node
        return best

    def double(self, features: Ints) -> tuple[float, Node]:
        """The best tree with a question, and another one on each side, or none."""
        best: tuple[float, Node] = (-np.inf, Leaf(KEEP))
        for first in features.tolist():
            if self.bins(first) < 2:
                continue
            sides = self._alone(first)
            for second in features.tolist():
                if self.bins(second) > 1:
                    sides = [better(*pair) for pair in zip(sides, self._pair(first, second), strict=True)]
            value = sides[0].value + sides[1].value
            if value.max() > best[0]:
                at = int(value.argmax())
                best = float(value[at]), Split(first, at, sides[0].node(at), sides[1].node(at))
        return best

    def _alone(self, first: int) -> list[Side]:
        """Both sides of each cut without another question."""
        _, low, high = self.question(first)
        nothing = np.full(len(low.value), -1)
        return [Side(side.value, nothing, nothing, side.action, side.action) for side in (low, high)]

    def _pair(self, first: int, second: int) -> list[Side]:
        """Both sides of each cut of the first context, by the best cut of the second one."""
        b1, b2 = self.bins(first), self.bins(second)
        flat = self.by(self.codes[:, first] * b2 + self.codes[:, second], b1 * b2)
        total = [part.reshape(b1, b2, *part.shape[1:]).cumsum(axis=0).cumsum(axis=1) for part in flat]
        below = [part[:-1] for part in total]
        above = [part[-1:] - part[:-1] for part in total]
        return [self._side(second, part) for part in (below, above)]

    def _side(self, second: int, parts: list[Floats]) -> Side:
        low = self.search.leaves(*(part[:, :-1] for part in parts))
        high = self.search.leaves(*(part[:, -1:] - part[:, :-1] for part in parts))
        value = low.value + high.value
        at, rows = value.argmax(axis=1), np.arange(len(value))
        return Side(value[rows, at], np.full(len(at), second), at, low.action[rows, at], high.action[rows, at])


@final
@dataclass(frozen=True, eq=False)
class Side:
    """What to do on one side of each cut: the second question (-1: none), its cut, and what its leaves play."""

    value: Floats
    feature: Ints
    cut: Ints
    low: Ints
    high: Ints

    def node(self, at: int) -> Node:
        low, high = Leaf(int(self.low[at])), Leaf(int(self.high[at]))
        return low if self.feature[at] < 0 else Split(int(self.feature[at]), int(self.cut[at]), low, high)


def better(one: Side, other: Side) -> Side:
    """The better one at each cut; the first of equals."""
    more = other.value > one.value
    fields = ("value", "feature", "cut", "low", "high")
    return Side(*(np.where(more, getattr(other, name), getattr(one, name)) for name in fields))


def search_of(evidence: Evidence, allowed: Array | None) -> Search:
    """Bins of the contexts by their quantiles over the rows."""
    contexts, k = evidence.log.contexts, evidence.log.n_actions
    bins = int(np.clip(np.sqrt(MOST_SUMS / k), FEWEST_BINS, BINS))
    cuts = tuple(edges(contexts[:, feature], bins) for feature in range(contexts.shape[1]))
    codes = np.empty(contexts.shape, dtype=np.intp)
    for feature, own in enumerate(cuts):
        codes[:, feature] = np.searchsorted(own, contexts[:, feature], side="left")
    return Search(evidence, codes, cuts, allowed, max(FEWEST_ROWS, len(evidence) // 50))


def edges(values: Floats, bins: int) -> Floats:
    """Thresholds between values, about so many bins with alike numbers of rows; a row at one belongs below it."""
    distinct = np.unique(values)
    if len(distinct) < 2:
        return np.empty(0)
    middles = (distinct[:-1] + distinct[1:]) / 2
    middles = np.where(middles < distinct[1:], middles, distinct[:-1])
    if len(middles) < bins:
        return middles
    wanted = np.quantile(values, np.arange(1, bins) / bins)
    at = np.clip(np.searchsorted(distinct, wanted, side="right") - 1, 0, len(middles) - 1)
    return np.unique(middles[at])


def laid_out(root: Node, cuts: tuple[Floats, ...], allowed: Array | None) -> TreeRule:
    """The tree as a table; parents stand before their children, and two leaves that do the same are one."""
    rows: list[list[float]] = []

    def add(node: Node) -> int:
        at = len(rows)
        rows.append([-1, 0.0, -1, -1, KEEP])
        if isinstance(node, Leaf):
            rows[at][4] = node.action
        else:
            rows[at][:2] = [node.feature, float(cuts[node.feature][node.cut])]
            rows[at][2], rows[at][3] = add(node.low), add(node.high)
        return at

    add(pruned(root))
    feature, threshold, low, high, action = zip(*rows, strict=True)
    whole = [np.array(column, dtype=np.intp) for column in (feature, low, high, action)]
    return TreeRule(whole[0], np.array(threshold), whole[1], whole[2], whole[3], allowed)


def pruned(node: Node) -> Node:
    """Without questions whose answers do not matter."""
    if isinstance(node, Leaf):
        return node
    low, high = pruned(node.low), pruned(node.high)
    return low if isinstance(low, Leaf) and low == high else Split(node.feature, node.cut, low, high)
