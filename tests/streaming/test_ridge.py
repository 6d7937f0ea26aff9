"""Ridge in a stream: the same model as in memory, from sums by fold; folds are drawn by a hash instead of by a list."""

import numpy as np
import pytest

import cael
import cael.io
from cael.log import budget
from cael.log.keys import folds_of_keys
from tests.streaming.logs import K, table, write


def test_one_model_for_all_rows_is_that_of_a_log_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 90)
    log = table(600, offset=50.0)
    kept = cael.io.open_log(log, n_actions=K)
    estimators = [each(cael.Ridge(alpha=3.0), folds=0) for each in (cael.DM, cael.DR, cael.SNDR)]
    scanned = cael.scan(write(tmp_path / "log", log, [100, 350], 70), n_actions=K)
    found = cael.evaluate(scanned, "pi", estimators, learn=False)
    for each in estimators:
        twin = each.estimate(kept.log, kept.policy("pi"))
        assert found[each.name].value == pytest.approx(twin.value, rel=1e-9)
        assert found[each.name].stderr == pytest.approx(twin.stderr, rel=1e-9)
        assert found[each.name].diagnostics.cross_fitted is False


@pytest.mark.parametrize("clusters", [None, 50])
def test_cross_fitting_is_that_of_a_log_in_memory(clusters, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 90)
    log = table(600, 3, clusters=clusters)
    columns = {"cluster": "user" if clusters else None}
    where = write(tmp_path / "log", log, [100, 350], 70)
    kept = cael.io.open_log(where, columns, n_actions=K)
    found = cael.evaluate(cael.scan(where, columns, n_actions=K), "pi", learn=False)
    for name in ("DM", "DR", "SNDR"):
        twin = getattr(cael, name)().estimate(kept.log, kept.policy("pi"))
        assert found[name].value == pytest.approx(twin.value, rel=1e-9)
        assert found[name].stderr == pytest.approx(twin.stderr, rel=1e-9)
        assert found[name].diagnostics.cross_fitted is True


@pytest.mark.parametrize("policy", ["uniform", "topk:items+chances,rest=uniform", "pi", "choice:best,epsilon=0.1"])
def test_the_expectation_over_the_target_is_right_for_every_kind_of_policy(policy, tmp_path):
    log = table(300, 5)
    kept = cael.io.open_log(log, n_actions=K)
    scanned = cael.scan(write(tmp_path / "log", log, [120]), n_actions=K)
    model = cael.DM(cael.Ridge(alpha=3.0), folds=0)
    found = cael.evaluate(scanned, policy, model, learn=False)
    twin = model.estimate(kept.log, kept.policy(policy))
    assert found[twin.estimator].value == pytest.approx(twin.value, rel=1e-9)


def test_text_contexts_leave_out_what_needs_a_model(tmp_path):
    where = write(tmp_path / "log", table(300))
    found = cael.evaluate(cael.scan(where, {"contexts": ["part", "x_0"]}, n_actions=K), "pi", learn=False)
    assert "must be numbers" in dict(found.skipped)["DR"]
    assert found.headline == "SNIPS"


def test_folds_do_not_follow_the_order_of_the_rows():
    keys = (np.uint64(3) << np.uint64(44)) + np.arange(10, 10_010).astype(np.uint64)
    fold = folds_of_keys(keys, 5, 0)
    counts = np.bincount(fold)
    assert abs(counts - 2000).max() < 4 * np.sqrt(2000)
    assert abs(np.mean(fold[1:] == fold[:-1]) - 0.2) < 0.02
    assert (folds_of_keys(keys + np.uint64(1 << 44), 5, 0) != fold).any()
    assert (folds_of_keys(keys, 5, 1) != fold).any()
