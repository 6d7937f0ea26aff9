"""The paper's estimators on logs in files and on long logs: a sample trains, all rows are weighed."""

from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.embedding.published import weighing
from tests.streaming.test_learned import close, twins

torch = pytest.importorskip("torch")

SMALL = cael.NetworkSettings(hidden=16)
SHORT = cael.Training(iterations=20, batch_size=64)
ESTIMATORS = [
    cael.CAELMIPS(network=SMALL, training=SHORT),
    cael.CAELMIPS("offset", network=SMALL, training=SHORT),
    cael.CAELMIPS(objective=cael.Objective(posterior_gradient=True, features="xe"), network=SMALL, training=SHORT),
    cael.AELMIPS("trained", offset=True),
    cael.NetworkDM(cael.NetworkOutcome(SMALL, SHORT)),
    cael.NetworkDM(cael.NetworkOutcome(SMALL, SHORT), folds=3),
]


def named(estimator):
    return f"{estimator.name}-{getattr(estimator, 'folds', 0)}"


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=named)
def test_with_the_whole_log_as_its_sample_it_is_the_estimate_in_memory(estimator, tmp_path, monkeypatch):
    scanned, log, policy = twins(tmp_path, monkeypatch, cuts=[100, 350], group=70, batch=97, n=500)
    found = cael.evaluate(scanned, "pi", estimator, learn=False)[estimator.name]
    kept = estimator.estimate(log, policy)
    assert close(found.value, kept.value) and close(found.stderr, kept.stderr)
    mine, twin = found.diagnostics, kept.diagnostics
    assert mine.warnings == twin.warnings
    assert mine.mean_weight == twin.mean_weight or close(mine.mean_weight, twin.mean_weight)


def test_two_processes_weigh_as_one_does(tmp_path, monkeypatch):
    scanned, log, policy = twins(tmp_path, monkeypatch, cuts=[100, 350], group=70, batch=97, n=500, workers=2)
    found = cael.evaluate(scanned, "pi", ESTIMATORS[0], learn=False)[ESTIMATORS[0].name]
    assert close(found.value, ESTIMATORS[0].estimate(log, policy).value)


def test_a_long_log_in_memory_trains_on_a_sample_and_weighs_every_row(tmp_path, monkeypatch):
    """Its contributions are those of all rows; the sample is that of a log in files."""
    monkeypatch.setattr(weighing, "MOST_ROWS", 300)
    scanned, log, policy = twins(tmp_path, monkeypatch, cuts=[100, 350], group=70, batch=97, n=500)
    for estimator in ESTIMATORS[:4]:
        found = estimator.estimate(log, policy)
        assert len(found.contributions) == len(log)
        assert close(found.value, cael.evaluate(scanned, "pi", estimator, learn=False)[estimator.name].value)
        many = estimator.solve_many([cael.estimators.problem.Problem(log, policy)] * 2, [0, 1])
        assert many[0].value == found.value != many[1].value
    monkeypatch.setattr(weighing, "MOST_ROWS", 500)
    assert ESTIMATORS[0].estimate(log, policy).value != replace(ESTIMATORS[0], seed=1).estimate(log, policy).value
    assert ESTIMATORS[0].estimate(log, policy).diagnostics.training is not None


def test_rows_of_the_sample():
    assert weighing.sample_rows(10) == weighing.MOST_ROWS == 100_000
    assert weighing.sample_rows(5000) == weighing.MOST_CELLS // 5000
    assert weighing.sample_rows(10**6) == weighing.LEAST_ROWS


def test_more_actions_than_rows_need_no_table_of_both():
    """20,000 actions: the posterior is of those that were played."""
    world = cael.worlds.PaperWorld(n_actions=20_000, action_dim=2)
    log = world.sample(150, 0)
    found = cael.CAELMIPS(network=SMALL, training=cael.Training(iterations=5, batch_size=32)).estimate(
        log, world.target
    )
    assert np.isfinite(found.value)
    assert found.diagnostics.training.effective_actions <= len(np.unique(log.actions))
