"""calibrate: the planted truth is exact, sound estimators cover it, and unsound ones are exposed."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import cael
from cael import InputError, NeedsError
from cael.results.calibration import KINDS, plant

WORLD = cael.worlds.PaperWorld(n_actions=8, gamma=0.3)
LOG = WORLD.sample(1500, seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_planted_truth_is_what_a_million_draws_say(kind):
    """IPS on planted logs is unbiased for the stated truth."""
    rng = np.random.default_rng(3)
    reward_seed = 11
    errors = []
    for _ in range(150):
        state = np.random.default_rng(reward_seed)
        planted, truth = plant(LOG, WORLD.target, kind, state, redraw=True)
        again = planted.take(rng.permutation(len(planted)))
        errors.append(cael.SNIPS().estimate(again, WORLD.target).value - truth)
        reward_seed += 1
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(len(errors))


def test_planted_rewards_look_like_the_real_ones():
    planted, _ = plant(LOG, WORLD.target, "interaction", np.random.default_rng(0), redraw=True)
    assert len(planted) == len(LOG)
    assert planted.rewards.mean() == pytest.approx(LOG.rewards.mean(), abs=0.2)
    assert planted.rewards.std() == pytest.approx(LOG.rewards.std(), rel=0.15)
    clicks = cael.LoggedData(LOG.contexts, LOG.actions, (LOG.rewards > 10).astype(float), logging=LOG.logging)
    binary, truth = plant(clicks, WORLD.target, "additive", np.random.default_rng(0), redraw=True)
    assert set(np.unique(binary.rewards)) <= {0.0, 1.0}
    assert 0 < truth < 1


def test_kept_actions_stay_as_they_are():
    planted, _ = plant(LOG, WORLD.target, "additive", np.random.default_rng(0), redraw=False)
    assert np.array_equal(planted.actions, LOG.actions)
    assert np.array_equal(planted.propensities, LOG.propensities)
    assert not np.array_equal(planted.rewards, LOG.rewards)


def test_sound_estimators_cover_and_unsound_ones_are_exposed():
    found = cael.calibrate(LOG, WORLD.target, repeats=40)
    trials = 40 * len(KINDS)
    for name in ("SNIPS", "DR", "SNDR"):
        assert abs(found[name].coverage - 0.95) < 4 * np.sqrt(0.95 * 0.05 / trials)
        assert found.check(name).status == "pass"
    assert found["LoggedMean"].coverage < 0.8  # negative control: the old policy's value is not the new one's
    assert found.check("LoggedMean").status == "fail"
    assert found["DM"].coverage < 0.8
    assert found.best in ("SNIPS", "DR", "SNDR")
    assert [row.rmse for row in found] == sorted(row.rmse for row in found)


def test_without_the_logging_policy_the_actions_are_kept():
    only = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, LOG.propensities, n_actions=8)
    found = cael.calibrate(only, WORLD.target, repeats=30)
    assert not found.redrawn
    assert found.kinds == KINDS[:3]
    assert found["SNDR"].coverage > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 90)
    assert "the logged actions kept" in found.sentence()


def test_row_aligned_policies_and_the_seed():
    table = np.concatenate([WORLD.target.probabilities(b) for b in LOG.batches(width=8)])
    logging = np.concatenate([LOG.logging.probabilities(b) for b in LOG.batches(width=8)])
    aligned = cael.LoggedData(
        LOG.contexts, LOG.actions, LOG.rewards, logging=logging, action_features=LOG.action_features
    )
    a, b = (cael.calibrate(aligned, table, [cael.SNIPS()], repeats=3, rows=500) for _ in range(2))
    assert a.to_dict() == b.to_dict()
    assert a.n == 500
    function = cael.calibrate(LOG, WORLD.target, [cael.SNIPS()], repeats=3, rows=500)
    assert function["SNIPS"].rmse == pytest.approx(a["SNIPS"].rmse)
    assert cael.calibrate(LOG, WORLD.target, [cael.SNIPS()], repeats=3, seed=1)["SNIPS"].rmse != function["SNIPS"].rmse


def test_it_prints_and_serialises():
    found = cael.calibrate(LOG, WORLD.target, [cael.SNIPS(), cael.LoggedMean()], repeats=2)
    json.dumps(found.to_dict(), allow_nan=False)
    out = io.StringIO()
    Console(file=out, width=80).print(found)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert "SNIPS" in found._repr_html_()
    assert "SNIPS" in repr(found)
    with pytest.raises(KeyError, match="no estimator named"):
        found["DR"]


def test_bad_arguments():
    with pytest.raises(NeedsError, match="probabilities of all actions"):
        cael.calibrate(LOG, cael.LoggedOnly(np.full(1500, 0.1)))
    with pytest.raises(NeedsError, match="propensities"):
        cael.calibrate(cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, n_actions=8), WORLD.target)
    with pytest.raises(InputError, match="repeats"):
        cael.calibrate(LOG, WORLD.target, repeats=1)
    with pytest.raises(InputError, match="must be cael estimators"):
        cael.calibrate(LOG, WORLD.target, ["IPS"])


def test_clusters_and_estimators_that_fail_do_not_stop_it():
    clustered = cael.LoggedData(
        LOG.contexts[:40], LOG.actions[:40], LOG.rewards[:40], logging=LOG.logging, clusters=np.arange(40) % 8
    )
    found = cael.calibrate(clustered, WORLD.target, [cael.SNIPS(), cael.MIPS(folds=60)], repeats=3)
    assert found["MIPS"].failed == 12
    assert found["MIPS"].coverage == 0
    assert found.rows[-1].estimator == "MIPS"
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["rows"][-1]["rmse"] is None


def test_replanted_rows_are_checked():
    with pytest.raises(cael.LogError, match=r"actions must be in 0\.\.7"):
        LOG.replanted(np.full(1500, 8), LOG.rewards, LOG.propensities)
    with pytest.raises(cael.LogError, match="lengths differ"):
        LOG.replanted(LOG.actions[:5], LOG.rewards, LOG.propensities)


def test_an_estimator_is_judged_by_the_interval_that_is_shown(monkeypatch):
    """Not by the normal one: SNIPS has a floor of its error, which a calibration counts."""
    from cael.results import calibration

    log, policy = cael.testing.example()
    shown = cael.calibrate(log, policy, [cael.SNIPS()], repeats=4)["SNIPS"]
    monkeypatch.setattr(cael.Estimate, "error", property(lambda estimate: 2 * estimate.stderr))
    wider = cael.calibrate(log, policy, [cael.SNIPS()], repeats=4)["SNIPS"]
    assert wider.width > 1.5 * shown.width
    found = cael.SNIPS().estimate(log, policy)
    assert calibration._outcome(found, 0.0, 0.9)[2] == found.interval(0.9).width
