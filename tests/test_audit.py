"""audit: sound logs pass, and each fault is found by the check that is named after it."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import cael
from cael import InputError
from cael.experiments import verdicts as experiment
from cael.judging.survey import action_drift, row_keys

WORLD = cael.worlds.PaperWorld(n_actions=20, gamma=0.3)
LOG = WORLD.sample(3000, seed=0)


def rebuilt(log=LOG, **changes):
    parts = {
        "contexts": log.contexts, "actions": log.actions, "rewards": log.rewards, "propensities": log.propensities,
        "n_actions": log.n_actions, **changes,
    }  # fmt: skip
    return cael.LoggedData(**parts)


def broken(condition):
    return cael.audit(experiment.CONDITIONS[condition](LOG, np.random.default_rng(0))[0])


def test_a_sound_log_passes():
    for log in (LOG, rebuilt()):
        assert cael.audit(log).status == "pass"


def test_false_alarms_are_rare():
    """Each family of tests keeps its level; with p_value = 0.001 and about ten families, about one log in a hundred."""
    flagged = [
        cael.audit(log).status != "pass"
        for seed in range(100)
        for whole in (WORLD.sample(1000, seed),)
        for log in (whole, rebuilt(whole))
    ]
    assert sum(flagged) <= 6  # Poisson(2) exceeds 6 once in 200 runs, and the seeds are fixed


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("propensities of another version, whole policy", "frequencies"),
        ("propensities of another version, whole policy", "calibration"),
        ("propensities of another version, logged ones only", "frequencies"),
        ("actions shuffled, logging policy known", "calibration"),
        ("actions shuffled, logging policy known", "surprise"),
        ("actions shuffled, propensities only", "propensity_column"),
        ("a fifth of the actions lost, logging policy known", "frequencies"),
        ("actions shuffled, propensities only", "action_effect"),
        ("rewards that drift", "reward_drift"),
    ],
)
def test_each_fault_is_named(condition, name):
    found = broken(condition)
    assert found[name].status in ("warn", "fail")
    assert found.status in ("warn", "fail")


def test_rounded_propensities():
    assert cael.audit(rebuilt(propensities=np.round(LOG.propensities, 2)))["rounding"].status == "fail"
    assert cael.audit(rebuilt(propensities=np.round(LOG.propensities, 3)))["rounding"].status == "warn"
    assert cael.audit(rebuilt(propensities=np.round(LOG.propensities, 5)))["rounding"].status == "pass"


def test_propensities_that_are_too_small_or_too_large():
    assert cael.audit(rebuilt(propensities=LOG.propensities / 2))["sums"].status == "fail"
    assert cael.audit(rebuilt(propensities=LOG.propensities * 2))["sums"].status == "warn"


def test_copied_rows_are_seen_and_returning_visitors_are_not():
    twice = np.r_[np.arange(3000), np.arange(300)]
    copied = rebuilt(LOG.take(twice))
    assert cael.audit(copied)["duplicates"].status == "fail"
    rng = np.random.default_rng(0)
    visitors = rng.integers(0, 2, size=(3000, 3)).astype(float)  # eight kinds of visitor, clicks of 0 and 1
    again = cael.LoggedData(visitors, rng.integers(0, 5, 3000), rng.integers(0, 2, 3000), np.full(3000, 0.2))
    assert cael.audit(again)["duplicates"].status == "pass"
    assert cael.audit(cael.LoggedData(None, again.actions, again.rewards, again.propensities))["duplicates"].status == (
        "unknown"
    )


def test_row_keys_are_equal_exactly_where_rows_are():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 4, size=(2000, 4)).astype(float)
    keys = row_keys([table[:, j] for j in range(4)])
    assert len(np.unique(keys)) == len(np.unique(table, axis=0))
    assert row_keys([np.array([0.0])]) == row_keys([np.array([-0.0])])


def test_drift_of_the_actions_and_of_the_propensities_over_time():
    late = np.arange(3000) >= 1500
    changed = rebuilt(actions=np.where(late & (LOG.actions == 3), 4, LOG.actions))
    assert cael.audit(changed)["action_drift"].value > 0.01
    assert cael.audit(LOG)["action_drift"].status == "pass"
    wrong_late = rebuilt(propensities=np.where(late, LOG.propensities / 2, LOG.propensities))
    periods = cael.audit(wrong_late)
    assert periods["periods"].status == "warn"
    assert all(abs(each.z) < 4 for each in periods.periods[:5])
    assert action_drift(np.zeros(100, dtype=int), np.arange(100) // 10, 1) == (0.0, 1.0)


def test_deciles_hold_all_rows():
    found = cael.audit(LOG)
    assert sum(each.observed for each in found.deciles) == len(LOG)
    assert sum(each.expected for each in found.deciles) == pytest.approx(len(LOG))
    assert sum(each.rows for each in found.periods) == len(LOG)
    assert cael.audit(rebuilt()).deciles == ()


def test_a_log_without_exploration_and_one_without_propensities():
    certain = rebuilt(propensities=np.ones(3000))
    assert cael.audit(certain)["support"].status == "fail"
    bare = cael.audit(rebuilt(propensities=None))
    assert bare["propensities"].status == "fail"
    assert bare["frequencies"].status == "unknown"
    assert cael.audit(rebuilt(rewards=np.ones(3000)))["rewards"].status == "fail"
    with pytest.raises(KeyError, match="no check named"):
        bare["nothing"]


def test_it_prints_and_serialises():
    found = broken("propensities of another version, whole policy")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["status"] == "fail"
    assert len(data["actions"]) == 20
    out = io.StringIO()
    Console(file=out, width=100).print(found)
    assert "audit: fail" in out.getvalue()
    assert "<table>" in found._repr_html_()
    assert repr(found).startswith("Audit(fail")


def test_bad_arguments():
    with pytest.raises(InputError, match=r"expected a cael\.LoggedData"):
        cael.audit([1, 2])
    with pytest.raises(InputError, match="blocks"):
        cael.audit(LOG, blocks=1)
    with pytest.raises(InputError, match=r"needs at least 20 rows.*smaller blocks"):
        cael.audit(LOG.take(np.arange(10)))
