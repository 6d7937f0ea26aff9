"""The logging policy, estimated: calibrated, never sure by memory, and never without a warning."""

import numpy as np
import pandas as pd
import pytest

import cael
from cael.policies.policy import probabilities


def bare(log):
    return cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=log.n_actions)


def table_of(policy, log):
    return np.concatenate([probabilities(policy, batch) for batch in log.batches(width=log.n_actions)])


@pytest.fixture(scope="module")
def world():
    return cael.worlds.PaperWorld(n_actions=10, gamma=1.0)


@pytest.fixture(scope="module")
def estimated(world):
    log = world.sample(4000, 0)
    return log, cael.estimate_logging(bare(log))


def test_it_is_a_policy(estimated):
    log, found = estimated
    cael.testing.check_policy(found, bare(log))


def test_it_is_near_the_logging_policy_that_it_can_represent(estimated):
    """PaperWorld's logging policy is a softmax of something smooth in the contexts."""
    log, found = estimated
    error = np.abs(table_of(found, bare(log)) - table_of(log.logging, log)).mean()
    frequencies = np.bincount(log.actions, minlength=10) / len(log)
    assert error < 0.3 * np.abs(frequencies - table_of(log.logging, log)).mean()
    assert found.loss < found.loss_frequencies


def test_it_is_calibrated(estimated):
    """Among the (row, action) pairs with an estimated probability near p, the action was taken about p of the time."""
    log, found = estimated
    p = table_of(found, bare(log)).ravel()
    taken = (log.actions[:, None] == np.arange(10)).ravel()
    order = np.argsort(p)
    for part in np.array_split(order, 10):
        expected, spread = p[part].mean(), np.sqrt(p[part].mean() / len(part))
        assert abs(taken[part].mean() - expected) < 4 * spread


def test_without_information_it_falls_back_to_the_frequencies():
    rng = np.random.default_rng(0)
    actions = rng.choice(4, 600, p=[0.5, 0.3, 0.1, 0.1])
    log = cael.LoggedData(rng.normal(size=(600, 20)), actions, rng.normal(size=600))
    found = cael.estimate_logging(log)
    assert found.strength < 0.35
    assert table_of(found, log).max() < 0.75


def test_rows_are_predicted_by_models_that_did_not_see_them():
    """With as many contexts as rows a model knows every row by heart; held-out predictions do not."""
    rng = np.random.default_rng(0)
    log = cael.LoggedData(rng.normal(size=(60, 80)), rng.integers(0, 3, 60), rng.normal(size=60))
    found = cael.estimate_logging(log, C=1e6)
    logged = table_of(found, log)[np.arange(60), log.actions]
    assert logged.mean() < 0.5


def test_an_action_that_a_fold_does_not_hold_keeps_a_positive_probability():
    actions = np.array([0] * 50 + [1] * 49 + [2])
    log = cael.LoggedData(np.linspace(-1, 1, 100)[:, None], actions, np.arange(100.0))
    p = table_of(cael.estimate_logging(log), log)
    assert (p > 0).all()
    assert p[99, 2] < 0.1


def test_clusters_stay_in_one_fold():
    rng = np.random.default_rng(0)
    log = cael.LoggedData(
        rng.normal(size=(90, 1)), rng.integers(0, 2, 90), rng.normal(size=90), clusters=np.arange(90) // 9
    )
    found = cael.estimate_logging(log)
    assert all(len(set(found._fold[9 * g : 9 * g + 9])) == 1 for g in range(10))


def test_settings_are_checked(estimated):
    log, _ = estimated
    with pytest.raises(cael.InputError, match="C must be a positive number"):
        cael.estimate_logging(log, C=0.0)
    with pytest.raises(cael.InputError, match="folds must be a whole number >= 2"):
        cael.estimate_logging(log, folds=1)


def frame(world, n=1500):
    log = world.sample(n, 0)
    columns = {f"x_{j}": log.contexts[:, j] for j in range(log.contexts.shape[1])}
    return pd.DataFrame({"action": log.actions, "reward": log.rewards, "propensity": log.propensities, **columns})


def test_a_log_without_propensities_is_read_with_a_plain_warning(world):
    told = frame(world).drop(columns="propensity")
    table = cael.io.open_log(told)
    assert isinstance(table.log.logging, cael.EstimatedLogging)
    assert "There are no logged propensities: they were estimated from the 5 context numbers" in table.warnings[0]
    with pytest.warns(UserWarning, match="no logged propensities"):
        cael.read(told)
    truth = world.value(world.target)
    assert abs(cael.SNDR().estimate(table.log, world.target).value - truth) < 1.0


def test_the_verdict_and_the_audit_know_that_propensities_were_estimated(world):
    log = cael.io.open_log(frame(world).drop(columns="propensity")).log
    found = cael.evaluate(log, world.target)
    assert found.verdict.level != "ok"
    assert "The propensities were estimated, not logged" in " ".join(found.verdict.reasons)
    assert cael.audit(log)["propensities"].status == "warn"


def test_it_can_be_asked_for_and_done_without(world):
    assert cael.io.open_log(frame(world)).warnings == ()
    assert cael.io.open_log(frame(world), logging="estimate").warnings != ()
    none = cael.io.open_log(frame(world), logging="none")
    assert (none.log.propensities, none.warnings) == (None, ())


def test_without_contexts_the_frequencies_are_all_there_is(world):
    table = cael.io.open_log(frame(world)[["action", "reward"]])
    assert "from the frequencies of the actions alone" in table.warnings[0]
    counts = np.bincount(table.log.actions, minlength=10) + 0.5
    assert table_of(table.log.logging, table.log)[0] == pytest.approx(counts / counts.sum())


def test_a_scanned_log_is_told_how_to_estimate_its_logging_policy():
    with pytest.raises(cael.InputError, match=r"takes a log in memory; got ScannedLog.*logging='estimate'"):
        cael.estimate_logging(cael.scan(cael.examples.path()))
