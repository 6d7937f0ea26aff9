"""The search for trees against one that tries everything."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import cael
from cael.learning import tree_search
from cael.learning.explained import Imitated
from cael.learning.rules import KEEP


def problem(seed, n=90, d=3, k=4, levels=4):
    """Gains of all actions for rows whose contexts take few values."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, levels, (n, d)).astype(float)
    gains = rng.standard_normal((n, k)) + 0.8 * np.sin(x @ rng.standard_normal((d, k)))
    log = cael.LoggedData(x, rng.integers(0, k, n), rng.standard_normal(n), np.full(n, 1 / k), n_actions=k)
    return Imitated(log, gains, rng.standard_normal(n))


def leaf_value(evidence, rows, fewest):
    if len(rows) < fewest:
        return -np.inf
    k = evidence.log.n_actions
    squares = np.array([(evidence.pull[rows][evidence.log.actions[rows] == a] ** 2).sum() for a in range(k)])
    return max(0.0, (evidence.gains(rows).sum(axis=0) - tree_search.CAUTION * np.sqrt(squares)).max())


def best_value(evidence, rows, depth, fewest):
    """By trying every question."""
    value = leaf_value(evidence, rows, fewest)
    x = evidence.log.contexts
    if depth:
        for feature, cut in product(range(x.shape[1]), np.unique(x)):
            low, high = rows[x[rows, feature] <= cut], rows[x[rows, feature] > cut]
            if len(low) and len(high):
                value = max(value, sum(best_value(evidence, part, depth - 1, fewest) for part in (low, high)))
    return value


def value_of(evidence, tree, rows, fewest):
    leaf, total = tree.leaves(evidence.log.contexts[rows]), 0.0
    for node in np.unique(leaf):
        own = rows[leaf == node]
        action = int(tree.action[node])
        if action != KEEP:
            played = own[evidence.log.actions[own] == action]
            squares = (evidence.pull[played] ** 2).sum()
            total += evidence.gains(own)[:, action].sum() - tree_search.CAUTION * np.sqrt(squares)
    return total


@pytest.mark.parametrize(("seed", "depth"), list(product(range(4), (1, 2))))
def test_trees_to_depth_2_are_the_best_ones(seed, depth):
    evidence = problem(seed)
    search, rows = tree_search.search_of(evidence, None), np.arange(90)
    value, _ = search._node(rows, depth)
    tree = search.grown(rows, depth)
    assert value == pytest.approx(best_value(evidence, rows, depth, search.fewest))
    assert value_of(evidence, tree, rows, search.fewest) == pytest.approx(value)
    assert tree.depth <= depth


def test_a_deeper_tree_is_no_worse():
    evidence = problem(7, n=400)
    search, rows = tree_search.search_of(evidence, None), np.arange(400)
    values = [search._node(rows, depth)[0] for depth in (0, 1, 2, 3, 4)]
    assert values == sorted(values)
    assert values[-1] > values[2]


def test_a_tree_plays_allowed_actions_alone():
    evidence = problem(3)
    allowed = np.array([False, True, True, False])
    tree = tree_search.search_of(evidence, allowed).grown(np.arange(90), 2)
    assert set(tree.action[tree.feature < 0]) <= {1, 2, KEEP}


def test_thresholds_leave_rows_on_both_sides():
    for values in (
        np.array([0.0, 0.0, 1.0]),
        np.linspace(0, 1, 500),
        np.zeros(4),
        np.array([1.0, np.nextafter(1.0, 2)]),
    ):
        for cut in tree_search.edges(values, 12):
            assert 0 < (values <= cut).sum() < len(values)
    assert len(tree_search.edges(np.zeros(4), 12)) == 0
    assert len(tree_search.edges(np.linspace(0, 1, 500), 12)) == 11
