"""Ridge in a stream: the same model as in memory, from sums by fold; folds are drawn by a hash instead of by a list."""

import numpy as np
import pyarrow as pa
import pytest

import cael
import cael.io
from cael.engine import asking
from cael.log import budget
from cael.log.keys import folds_of_keys
from cael.outcomes.linear import AdditiveOutcome, InteractingOutcome
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


def personalised(n, seed=0, **more):
    """The log, but rewards follow the contexts in a way of each action."""
    log = table(n, seed, **more)
    x, a = (log[name].to_numpy() for name in ("x_1", "action"))
    return log.set_column(log.column_names.index("reward"), "reward", pa.array(log["reward"].to_numpy() + x * (a - 2)))


@pytest.fixture
def models(monkeypatch):
    """The models that passes train, of each training a list."""
    trained, solved = [], asking.solved

    def kept(*given):
        folded = solved(*given)
        trained.append([type(model) for model in folded.models])
        return folded

    monkeypatch.setattr(asking, "solved", kept)
    return trained


@pytest.mark.parametrize("clusters", [None, 50])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_interactions_are_those_of_a_log_in_memory(clusters, offset, models, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 90)
    log = personalised(900, 3, clusters=clusters, offset=offset)
    columns = {"cluster": "user" if clusters else None}
    where = write(tmp_path / "log", log, [100, 350], 70)
    kept = cael.io.open_log(where, columns, n_actions=K)
    found = cael.evaluate(cael.scan(where, columns, n_actions=K, workers=2), "pi", learn=False)
    for name in ("DM", "DR", "SNDR"):
        twin = getattr(cael, name)().estimate(kept.log, kept.policy("pi"))
        assert found[name].value == pytest.approx(twin.value, rel=1e-9)
        assert found[name].stderr == pytest.approx(twin.stderr, rel=1e-9)
    assert len(models) == 4
    assert all(fold is InteractingOutcome for each in models for fold in each)


def test_in_memory_training_by_rows_is_training_by_a_pass():
    """What CAEL and plans use, and what passes use, are one model."""
    log = cael.io.open_log(personalised(900, 4), n_actions=K).log
    folds = list(log.folds(5, 0))
    by_rows = cael.Ridge().fit_without(log, folds, 0)
    sums = cael.DM().estimate(log, cael.Tabular(np.eye(K)[2])).sums
    by_pass = sums.block[
        np.flatnonzero(sums.coefficients)[0]
    ]  # the predictions, without the influence of training rows
    for rows, model in zip(folds, by_rows, strict=True):
        np.testing.assert_allclose(model.predict(log.whole.part(rows))[:, 2], by_pass[rows], rtol=1e-9)


def test_without_interactions_the_model_stays_additive(models):
    log = cael.io.open_log(table(900, 3), n_actions=K).log
    for seed in range(4):
        cael.DM(seed=seed).estimate(log, cael.Uniform(K))
    additive = [fold is AdditiveOutcome for each in models for fold in each]
    assert sum(additive) >= 0.7 * len(additive) == 14
    models.clear()
    cael.DM(cael.Ridge(interactions=True)).estimate(log, cael.Uniform(K))
    assert models == [[InteractingOutcome] * 5]


@pytest.mark.parametrize("policy", ["uniform", "topk:items+chances,rest=uniform", "pi", "choice:best,epsilon=0.1"])
@pytest.mark.parametrize("folds", [0, 2, 5])
def test_the_expectation_of_interactions_is_right_for_every_kind_of_policy(policy, folds, tmp_path):
    where = write(tmp_path / "log", personalised(400, 5), [120])
    kept, scanned = cael.io.open_log(where, n_actions=K), cael.scan(where, n_actions=K)
    model = cael.DM(cael.Ridge(alpha=3.0, interactions=True), folds=folds)
    found = cael.evaluate(scanned, policy, model, learn=False)
    twin = model.estimate(kept.log, kept.policy(policy))
    assert found[twin.estimator].value == pytest.approx(twin.value, rel=1e-9)
    q = np.empty((400, K))
    rows = [np.arange(400)] if folds == 0 else list(kept.log.folds(folds, 0))
    fitted = [model.outcome.fit(kept.log, 0)] if folds == 0 else model.outcome.fit_without(kept.log, rows, 0)
    for mine, each in zip(rows, fitted, strict=True):
        q[mine] = each.predict(kept.log.whole.part(mine))
    pi = kept.policy(policy).probabilities(kept.log.whole)
    assert twin.value == pytest.approx((pi * q).sum(axis=1).mean(), rel=1e-9)


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
