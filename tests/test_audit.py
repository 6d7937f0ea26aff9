"""audit: sound logs pass, and each fault is found by the check that is named after it."""

import io
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from rich.console import Console

import cael
from cael import InputError
from cael.experiments import broken as experiment
from cael.judging.survey import action_drift, row_keys
from tests.streaming.logs import K, table, write

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


COLUMNS = {"contexts": "x_*", "propensity": "propensity"}


def stream_and_memory(folder, rows, **options):
    where = write(folder, rows, [700], 90)
    return cael.scan(where, COLUMNS, n_actions=K, **options), cael.read(where, COLUMNS, n_actions=K, **options)


def same(streamed, kept):
    """Equal audits, but for the names of the logs and the last digits."""
    a, b = ({**each.to_dict(), "log": "", "fingerprint": ""} for each in (streamed, kept))
    for name in ("actions", "deciles", "periods", "checks"):
        for one, other in zip(a.pop(name), b.pop(name), strict=True):
            for key, value in one.items():
                assert value == (pytest.approx(other[key], rel=1e-9) if isinstance(value, float) else other[key]), name
    assert a == b


@pytest.mark.parametrize("options", [{}, {"logging": "dense:mu_*"}], ids=["propensities", "logging"])
@pytest.mark.parametrize("broken", [False, True])
def test_the_audit_of_a_log_in_files_is_that_of_the_log_in_memory(tmp_path, options, broken):
    rows = table(1200)
    rng = np.random.default_rng(0)
    mu = rng.dirichlet(np.full(K, 4.0), 1200)
    for action in range(K):
        rows = rows.append_column(f"mu_{action}", pa.array(mu[:, action]))
    actions = np.array([rng.choice(K, p=row) for row in (mu[::-1] if broken else mu)])
    rows = rows.set_column(rows.column_names.index("action"), "action", pa.array(actions))
    rows = rows.set_column(rows.column_names.index("propensity"), "propensity", pa.array(mu[np.arange(1200), actions]))
    streamed, kept = (cael.audit(log) for log in stream_and_memory(tmp_path, rows, **options))
    same(streamed, kept)
    assert streamed.status == ("fail" if broken else kept.status)
    assert streamed.log.startswith("ScannedLog(n=1200")


def test_times_count_in_files_as_in_memory_and_their_disorder_is_said(tmp_path):
    rows = table(1200, clusters=100)
    at = np.arange(1200) + np.datetime64("2026-01-01", "s")
    for name, times, status in (("order", at, "pass"), ("disorder", at[::-1], "unknown")):
        where = write(tmp_path / name, rows.append_column("time", pa.array(times)), [700], 90)
        columns = {**COLUMNS, "timestamp": "time", "cluster": "user"}
        found = cael.audit(cael.scan(where, columns, n_actions=K))
        assert [found[check].status for check in ("reward_drift", "action_drift")] == [status, status]
        if name == "order":
            same(found, cael.audit(cael.read(where, columns, n_actions=K)))
        assert ("periods" in [check.name for check in found.checks]) == (name == "order")


def test_text_files_whose_rows_are_not_counted_may_be_too_short_for_periods(tmp_path):
    rows = table(300).select(["action", "reward", "propensity", "x_0", "x_1"])
    csv.write_csv(rows, tmp_path / "log.csv")
    found = cael.audit(cael.scan(tmp_path / "log.csv", COLUMNS, n_actions=K))
    assert found["reward_drift"].status == found["action_drift"].status == "unknown"
    assert found["reward_drift"].sentence == "300 rows are too few to look for changes over time."
    assert found.periods == ()


def test_copies_are_not_looked_for_in_a_part_of_a_log(tmp_path, monkeypatch):
    monkeypatch.setattr(cael.engine.nuisances.in_memory, "__defaults__", (300,))
    there, kept = stream_and_memory(tmp_path, table(1200))
    found, whole = cael.audit(there), cael.audit(kept)
    assert found["duplicates"].status == "unknown"
    assert "of 1,200 rows stand for this log" in found["duplicates"].sentence
    for check in ("sums", "frequencies", "reward_drift"):
        assert found[check].value == pytest.approx(whole[check].value, rel=1e-9)


def test_bad_arguments():
    with pytest.raises(InputError, match=r"expected a cael\.LoggedData"):
        cael.audit([1, 2])
    with pytest.raises(InputError, match="blocks"):
        cael.audit(LOG, blocks=1)
    with pytest.raises(InputError, match=r"needs at least 20 rows.*smaller blocks"):
        cael.audit(LOG.take(np.arange(10)))


def test_fixed_shares_are_not_rounded_and_others_are():
    rng, shares = np.random.default_rng(3), np.array([0.4, 0.3, 0.2, 0.1])
    actions = rng.choice(4, 2000, p=shares)
    trial = cael.LoggedData(None, actions, rng.random(2000), shares[actions])
    assert next(each for each in cael.audit(trial).checks if each.name == "rounding").status == "pass"
    moving = cael.LoggedData(None, actions, rng.random(2000), np.where(rng.random(2000) < 0.5, 0.1, shares[actions]))
    assert next(each for each in cael.audit(moving).checks if each.name == "rounding").status == "fail"
