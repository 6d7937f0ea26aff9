"""Guardrails: a policy that breaks one is not shipped, one that keeps it is; in memory and in files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
from cael.errors import InputError
from cael.learning.guardrails import guards_of
from cael.policies.policy import Uniform, probabilities
from cael.results.metric import Metric

N, K = 1500, 4


def made(seed=3):
    """Action 3 earns most; "slow" rises with the action that is taken, "steady" depends on nothing."""
    rng = np.random.default_rng(seed)
    x, a = rng.standard_normal((N, 2)), rng.integers(0, K, N)
    reward = 0.5 * a + x[:, 0] * (a == 1) + 0.5 * rng.standard_normal(N)
    return x, a, reward, {"slow": 10.0 + a + 0.2 * rng.standard_normal(N), "steady": 5 + 0.1 * rng.standard_normal(N)}


@pytest.fixture(scope="module")
def log():
    x, a, reward, metrics = made()
    return cael.LoggedData(x, a, reward, logging=Uniform(K), n_actions=K, metrics=metrics)


def learned(log, *guardrails, **options):
    return cael.learn(log, candidates=["best_arm", "linear"], guardrails=guardrails, **options)


def test_a_guardrail_that_is_not_touched_is_within_its_bound(log):
    one = learned(log, "steady:min:+2%")
    assert one.decision == "ship"
    assert [row.status for row in one.guarded] == ["within"]
    assert one.to_dict()["guardrails"][0]["status"] == "within"
    assert "guardrail steady (+2%)" in str(one.sheet().summary)
    assert one.bound == pytest.approx(learned(log).bound)  # the same policy, whose lift is not corrected for guardrails


def test_who_would_break_a_guardrail_plays_less_or_is_not_shipped(log):
    free, tight = learned(log), learned(log, "slow:min:limit=11.65")
    assert free.ships
    slow = np.asarray([10.0, 11.0, 12.0, 13.0])
    value = [(probabilities(one.policy, log.whole) @ slow).mean() for one in (free, tight)]
    assert value[0] > 12
    assert not tight.ships or value[1] < 11.65
    assert tight.chosen.share < 1
    impossible = learned(log, "slow:min:limit=9")
    assert impossible.decision == "keep"
    assert "slow (at most 9) is not shown to be within its bound" in " ".join(impossible.reasons)


def test_less_of_the_rule_is_shipped_where_that_is_within_the_bound(log):
    one = learned(log, "slow:min:+6%")
    assert one.decision == "ship"
    assert 0 < one.chosen.share < 1
    assert one.guarded[0].excess.high < 0


@pytest.mark.parametrize(
    ("text", "sign", "room"),
    [
        ("slow:min:+10%", -1, 0.1),
        ("slow:-2", 1, None),
        ("slow:min:limit=12", -1, None),
        ("slow/steady:min:+5%", -1, 0.05),
    ],
)
def test_the_room_of_a_guardrail(log, text, sign, room):
    guard = guards_of([Metric.of(text)], log, "reward")[0]
    slow, steady = (dict(log.metrics)[name] for name in ("slow", "steady"))
    mean = slow.mean() / steady.mean() if "/" in text else slow.mean()
    expected = {"slow:-2": 2.0, "slow:min:limit=12": 12 - mean}.get(text, (room or 0) * mean)
    assert guard.room == pytest.approx(expected)
    assert guard.left.mean() == pytest.approx(0, abs=1e-9)
    assert np.sign(np.corrcoef(guard.left, slow)[0, 1]) == sign


def test_in_files_it_is_the_same_question(tmp_path):
    x, a, reward, metrics = made()
    columns = {"x0": x[:, 0], "x1": x[:, 1], "action": a, "reward": reward, "propensity": np.full(N, 1 / K), **metrics}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    scanned = cael.scan(tmp_path / "log.parquet", columns={"metric": ["slow", "steady"], "contexts": ["x0", "x1"]})
    assert learned(scanned, "steady:min:+2%").decision == "ship"
    kept = learned(scanned, "slow:min:limit=9")
    assert kept.decision == "keep"
    assert kept.guarded[0].status == "beyond"


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (["nothing:min:+2%"], "not a metric of this log"),
        ("slow", "must be a list"),
        (["slow", "slow:-1"], "named twice"),
    ],
)
def test_guardrails_that_cannot_be_are_refused(log, given, match):
    with pytest.raises(InputError, match=match):
        cael.learn(log, candidates=["best_arm"], guardrails=given)
