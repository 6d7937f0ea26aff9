"""A log is validated once, copied, read-only, then trusted."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cael
from cael import LogError, LoggedData

GOOD = {
    "contexts": [[0.0], [1.0], [2.0], [3.0]],
    "actions": [0, 1, 0, 2],
    "rewards": [1.0, 0.0, 1.0, 2.0],
    "propensities": [0.5, 0.25, 0.5, 0.25],
}


def refused(match, **changes):
    with pytest.raises(LogError, match=match):
        LoggedData(**{**GOOD, **changes})


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, np.nan])
def test_a_propensity_outside_0_1_is_refused_with_its_row(value):
    refused(r"propensity must be in \(0, 1\]; row 2 has " + re.escape(str(value)), propensities=[0.5, 0.5, value, 1.0])


def test_propensities_that_are_no_numbers_are_refused():
    refused("propensities must be numbers", propensities=["a", "b", "c", "d"])


def test_the_count_of_bad_rows_is_told():
    refused(r"3 such rows: 0, 1, 3", propensities=[0.0, 0.0, 0.5, 0.0])


def test_actions():
    refused(r"actions must be >= 0; row 1 has -1", actions=[0, -1, 0, 1])
    refused(r"actions must be whole numbers; row 3 has 1.5", actions=[0, 1, 0, 1.5])
    refused(r"actions must be in 0..1 \(2 actions\); row 3 has 2", n_actions=2)
    refused(r"actions must be whole numbers .* got <U1", actions=["a", "b", "a", "c"])
    assert LoggedData(**{**GOOD, "actions": [0.0, 1.0, 0.0, 2.0]}).actions.dtype == np.intp


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_refused(value):
    refused(r"rewards must be finite; row 1 has", rewards=[1.0, value, 0.0, 0.0])


def test_contexts():
    refused(r"contexts must be finite; row 2, column 0 has nan \(1 such rows\)", contexts=[[0], [1], [np.nan], [0]])
    refused(r"contexts must have two dimensions", contexts=[0, 1, 2, 3])
    refused(r"contexts must be numbers", contexts=[["a"], ["b"], ["c"], ["d"]])
    assert LoggedData(**{**GOOD, "contexts": None}).contexts.shape == (4, 0)


def test_an_empty_log_and_one_row_are_refused():
    with pytest.raises(LogError, match="the log is empty: expected at least 2 rows, got 0"):
        LoggedData(np.empty((0, 1)), [], [], [])
    with pytest.raises(LogError, match="one row"):
        LoggedData([[1.0]], [0], [1.0], [0.5])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("contexts", [[1.0]] * 3),
        ("actions", [0, 1]),
        ("propensities", [0.5] * 5),
        ("clusters", [1, 2, 3]),
        ("timestamps", [1, 2, 3]),
    ],
)
def test_mismatched_lengths_name_both(name, value):
    refused(rf"rewards has 4 rows, {name} has {len(value)}", **{name: value})


def test_clusters_and_timestamps():
    refused("clusters must not be missing; row 1", clusters=[1.0, np.nan, 2.0, 2.0])
    refused("clusters must not be missing; row 1 has None", clusters=["a", None, "b", "b"])
    refused("clusters must be labels of one kind", clusters=np.array(["a", 1, "b", 2], dtype=object))
    refused("all rows are in one cluster", clusters=[7, 7, 7, 7])
    refused("timestamps must be one number or datetime64", timestamps=["a", "b", "c", "d"])
    refused("timestamps must not be missing", timestamps=np.array(["2020-01-01", "NaT"] * 2, dtype="datetime64[D]"))
    log = LoggedData(**GOOD, clusters=["b", "a", "b", "a"], timestamps=np.arange(4).astype("datetime64[s]"))
    assert log.clusters.tolist() == [1, 0, 1, 0]
    assert len(log.fingerprint) == 64


def test_the_logging_policy_is_cross_checked_with_the_propensities():
    table = [[0.5, 0.25, 0.25]] * 4
    refused(r"disagree on 1 row: row 3 has propensity 0.3, but the logging policy gives its action 0.25",
            logging=table, propensities=[0.5, 0.25, 0.5, 0.3])  # fmt: skip
    assert LoggedData(**GOOD, logging=table).logging is not None
    without = LoggedData(**{**GOOD, "propensities": None}, logging=table)
    assert without.propensities.tolist() == GOOD["propensities"]
    refused("gives the logged action probability 0; row 3", logging=[[0.5, 0.5, 0.0]] * 4, propensities=None)
    refused("contradictory: n_actions says 4, logging says 3", logging=table, n_actions=4)


def test_rounded_propensities_pass():
    table = np.full((4, 3), 1 / 3)
    LoggedData(**{**GOOD, "propensities": [0.3333] * 4}, logging=table)


def test_pandas_columns_are_accepted():
    import pandas as pd

    frame = pd.DataFrame({"x": [0.0, 1.0], "a": [0, 1], "r": [1.0, 0.0], "p": [0.5, 0.5]})
    assert len(LoggedData(frame[["x"]], frame["a"], frame["r"], frame["p"])) == 2


@pytest.mark.parametrize("name", ["contexts", "actions", "rewards", "propensities", "clusters", "action_features"])
def test_nothing_can_be_written(name):
    log = LoggedData(**GOOD, clusters=[0, 1, 1, 0], action_features=np.eye(3))
    array = getattr(log, name)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 9
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.setflags(write=True)
    with pytest.raises(AttributeError, match="immutable"):
        setattr(log, name, None)
    with pytest.raises(AttributeError, match="immutable"):
        delattr(log, name)


def test_the_log_does_not_follow_the_callers_array():
    rewards = np.array([1.0, 0.0, 1.0, 2.0])
    log = LoggedData(**{**GOOD, "rewards": rewards})
    before = log.fingerprint
    rewards[0] = 99.0
    assert log.rewards[0] == 1.0
    assert pickle.loads(pickle.dumps(log)).fingerprint == before


def test_a_log_can_share_the_callers_memory():
    rewards = np.array([1.0, 0.0, 1.0, 2.0])
    log = LoggedData(**{**GOOD, "rewards": rewards}, copy=False)
    assert np.shares_memory(log.rewards, rewards)
    with pytest.raises(ValueError, match="read-only"):
        log.rewards[0] = 5.0


def test_a_pickled_log_is_still_immutable():
    log = pickle.loads(pickle.dumps(LoggedData(**GOOD)))
    with pytest.raises(ValueError, match="WRITEABLE"):
        log.rewards.setflags(write=True)


def test_fingerprint_tells_logs_apart():
    base = LoggedData(**GOOD).fingerprint
    assert base == LoggedData(**GOOD).fingerprint
    changes = [{"rewards": [1.0, 0.0, 1.0, 3.0]}, {"actions": [0, 1, 0, 1]}, {"clusters": [0, 0, 1, 1]}]
    changes += [{"propensities": [0.5, 0.25, 0.5, 0.2]}, {"contexts": [[0.0], [1.0], [2.0], [4.0]]}, {"n_actions": 9}]
    assert len({base, *(LoggedData(**{**GOOD, **change}).fingerprint for change in changes)}) == 1 + len(changes)


def test_equal_numbers_have_one_fingerprint():
    """A CSV file says 0 where Parquet says -0.0."""
    changed = LoggedData(**{**GOOD, "contexts": [[-0.0], [1.0], [2.0], [3.0]]})
    assert changed.fingerprint == LoggedData(**{**GOOD, "contexts": [[0.0], [1.0], [2.0], [3.0]]}).fingerprint


def test_fingerprint_sees_the_whole_logging_policy_and_no_memory_address():
    rows = {"contexts": None, "actions": [0, 1], "rewards": [1.0, 2.0], "n_actions": 3}
    a = LoggedData(**rows, logging=[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    b = LoggedData(**rows, logging=[[0.5, 0.3, 0.2], [0.3, 0.5, 0.2]])
    assert a.fingerprint != b.fingerprint

    def flat():
        return cael.FromModel(lambda x: np.full((len(x), 3), 1 / 3))

    assert LoggedData(**rows, logging=flat()).fingerprint == LoggedData(**rows, logging=flat()).fingerprint


def test_take_keeps_row_aligned_policies_aligned():
    log = LoggedData(**GOOD, clusters=[5, 6, 7, 8])
    table = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
    part = log.take([2, 0]).take([1, 0, 0])
    (batch,) = part.batches()
    assert cael.Tabular(table).probabilities(batch).argmax(axis=1).tolist() == [0, 2, 2]
    assert log.take([True, False, True, True]).rewards.tolist() == [1.0, 1.0, 2.0]
    for bad in ([], [4], [-1], [0.5], [True]):
        with pytest.raises(LogError):
            log.take(bad)


@given(st.integers(2, 60), st.integers(2, 6), st.integers(0, 99))
def test_folds_are_a_partition_that_keeps_clusters_whole(n_clusters, k, seed):
    clusters = np.random.default_rng(seed).integers(0, n_clusters, 200)
    log = LoggedData(None, np.zeros(200, dtype=int), np.zeros(200), np.ones(200), clusters=clusters)
    if len(np.unique(clusters)) < k:
        with pytest.raises(LogError, match="folds"):
            log.folds(k)
        return
    try:
        folds = log.folds(k, seed)
    except LogError as error:
        assert "fall into one" in str(error)
        assert len(np.unique(clusters)) < 12  # a hash puts few clusters into one fold now and then
        return
    assert np.array_equal(np.sort(np.concatenate(folds)), np.arange(200))
    assert all(set(clusters[a]).isdisjoint(clusters[b]) for i, a in enumerate(folds) for b in folds[:i])
    assert all(np.array_equal(a, b) for a, b in zip(folds, log.folds(k, seed), strict=True))


def test_batches_cover_the_log_in_order():
    log = cael.testing.example()[0]
    for bytes_each in (8, 8 * 8 * 7, 2**30):
        rows = np.concatenate([batch.row_numbers for batch in log.batches(width=8, bytes_each=bytes_each)])
        assert np.array_equal(rows, np.arange(len(log)))
        assert max(len(batch) for batch in log.batches(width=8, bytes_each=bytes_each)) * 64 <= max(bytes_each, 64)
