"""Frames of probabilities: columns by name, rows by label, and never by an order that nobody sees."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cael

RNG = np.random.default_rng(0)
TABLE = RNG.dirichlet(np.ones(5), 40)
LOG = cael.LoggedData(RNG.normal(size=(40, 2)), RNG.integers(0, 5, 40), RNG.random(40), logging=np.full(5, 0.2))


def value(policy):
    return float(cael.SNIPS().estimate(LOG, policy))


@pytest.mark.parametrize("names", [lambda a: a, str, lambda a: f"p_{a}", lambda a: f"column_{a}"])
@given(order=st.permutations(range(5)))
def test_columns_in_any_order_are_the_same_policy(names, order):
    columns = {names(action): TABLE[:, action] for action in order}
    frames = [pd.DataFrame(columns), *([pl.DataFrame(columns)] if isinstance(names(0), str) else [])]
    for frame in frames:
        assert value(frame) == value(TABLE)
    wrong = TABLE[:, list(order)]
    assert (value(wrong) == value(TABLE)) == (list(order) == [0, 1, 2, 3, 4])  # by position it would be another policy


@pytest.mark.parametrize(
    "names", [list("abcde"), [0, 1, 2, 3, 5], ["p_0", "q_1", "p_2", "p_3", "p_4"], [1, 2, 3, 4, 5], [0, 1, 2, 3, 3]]
)
def test_columns_that_name_no_actions_are_refused(names):
    with pytest.raises(cael.PolicyError, match=r"columns by action, 0 to 4 in any order .* frame.to_numpy"):
        cael.Tabular(pd.DataFrame(TABLE, columns=names))


@pytest.mark.parametrize("labels", [np.arange(40)[::-1], np.arange(1, 41), [f"u{i}" for i in range(40)]])
def test_rows_with_other_labels_are_refused(labels):
    frame = pd.DataFrame(TABLE, index=labels)
    with pytest.raises(cael.PolicyError, match=r"number 0 is labelled .*reset_index.drop=True.*sort_index"):
        cael.Tabular(frame)
    assert value(frame.reset_index(drop=True)) == value(TABLE)


def test_a_series_is_one_distribution():
    assert value(pd.Series(TABLE[0])) == value(pl.Series(TABLE[0])) == value(TABLE[0])
    with pytest.raises(cael.PolicyError, match="entries"):
        cael.Tabular(pd.Series(TABLE[0], index=[4, 3, 2, 1, 0]))


def test_a_frame_that_is_in_order_is_not_copied_twice():
    frame = pd.DataFrame(TABLE)
    assert np.shares_memory(cael.Tabular(frame, copy=False).table, frame.to_numpy())


@pytest.mark.parametrize("kind", [cael.Softmax, cael.EpsilonGreedy])
def test_scores_are_matched_by_name_too(kind):
    scores = pd.DataFrame({f"s_{action}": np.log(TABLE[:, action]) for action in (3, 0, 4, 2, 1)})
    assert value(kind(scores)) == value(kind(np.log(TABLE))) != value(kind(scores.to_numpy()))
