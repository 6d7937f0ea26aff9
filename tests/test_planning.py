"""plan: the power that it promises is the power that simulation finds."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

import cael
from cael import InputError, NeedsError
from tests.streaming.logs import write
from tests.streaming.worlds import COLUMNS, paper

MU = np.array([0.4, 0.3, 0.2, 0.1])
PI = np.array([0.3, 0.25, 0.25, 0.2])
Q = np.array([0.0, 0.2, 0.4, 0.8])


def sample(n, seed, mu=MU):
    rng = np.random.default_rng([seed, 5])
    actions = rng.choice(4, size=n, p=mu)
    return cael.LoggedData(None, actions, 1 + Q[actions] + rng.normal(size=n), logging=mu)


def power(rows, mu, trials=400):
    """Share of logs of the mixed policy whose interval of V(PI) - V(MU) excludes 0."""
    seen = 0
    for seed in range(trials):
        log = sample(rows, seed, mu)
        outcome = cael.FixedOutcome(1 + Q)
        gain = cael.SNDR(outcome).estimate(log, PI) - cael.SNDR(outcome).estimate(log, MU)
        seen += 0 not in gain.interval()
    return seen / trials


@pytest.mark.long
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_power_is_as_promised(share):
    lift = float((PI - MU) @ Q)
    found = cael.plan(
        sample(20_000, 99), PI, lift=lift, relative=False, exploration=[share], outcome=cael.FixedOutcome(1 + Q)
    )
    option = next(each for each in found.options if each.exploration == share)
    mu = MU if share == 0 else (1 - share) * MU + share / 4
    error = np.sqrt(0.8 * 0.2 / 400)
    assert abs(power(option.rows, mu) - 0.8) < 4 * error
    assert power(option.rows // 4, mu) < 0.8 - 4 * error  # negative control: a quarter of the rows is not enough


@pytest.mark.slow
def test_a_model_that_gets_better_with_rows_errs_on_the_safe_side():
    world = cael.worlds.PaperWorld(n_actions=10, gamma=0.3)
    policy = cael.Mixture([world.target, world.logging], [0.03, 0.97])
    lift = world.value(policy) - world.value(world.logging)
    needed = [cael.plan(world.sample(1500, seed), policy, lift=lift, relative=False).rows_needed for seed in range(8)]
    rows = int(np.median(needed))
    seen = [
        0 not in cael.compare(world.sample(rows, 100 + s), {"p": policy}, learn=False)["p"].lift.interval()
        for s in range(150)
    ]
    assert np.mean(seen) > 0.8 - 4 * np.sqrt(0.8 * 0.2 / 150)


def test_rows_follow_the_square_of_the_lift():
    log = sample(2000, 0)
    wide, narrow = (cael.plan(log, PI, lift=lift, relative=False) for lift in (0.1, 0.01))
    assert narrow.rows_needed == pytest.approx(100 * wide.rows_needed, rel=0.05)
    assert narrow.more_rows == narrow.rows_needed - 2000
    assert wide.detectable == narrow.detectable
    same = cael.plan(log, PI, lift=0.1 / log.rewards.mean())
    assert same.rows_needed == wide.rows_needed
    at_its_limit = cael.plan(log, PI, lift=wide.detectable, relative=False)
    assert at_its_limit.rows_needed == pytest.approx(2000, abs=1)


def test_more_power_and_a_higher_level_take_more_rows():
    log = sample(2000, 0)
    base = cael.plan(log, PI).rows_needed
    assert cael.plan(log, PI, power=0.95).rows_needed > base
    assert cael.plan(log, PI, level=0.99).rows_needed > base


def test_exploration_helps_where_the_old_policy_hardly_plays_what_is_asked_about():
    rare = np.array([0.97, 0.01, 0.01, 0.01])
    log = sample(20_000, 1, rare)
    needed = [each.rows for each in cael.plan(log, [0.0, 0.0, 0.0, 1.0], lift=0.1, relative=False).options]
    assert needed[0] > 2 * min(needed)
    found = cael.plan(log, [0.0, 0.0, 0.0, 1.0], lift=0.1, relative=False, rows=needed[0] // 2)
    assert 0 < found.enough < 1
    assert next(each.rows for each in found.options if each.exploration == found.enough) <= needed[0] // 2
    assert found.options[-1].cost == pytest.approx(1 + rare @ Q - (1 + Q.mean()), abs=0.1)


def test_no_number_of_rows_helps_without_support():
    rng = np.random.default_rng(0)
    log = cael.LoggedData(None, rng.integers(0, 2, 500), rng.normal(1, 1, 500), logging=[0.5, 0.5, 0.0])
    found = cael.plan(log, [0.3, 0.3, 0.4], lift=0.2, relative=False)
    assert found.rows_needed is None
    assert found.more_rows is None
    assert found.detectable is None
    assert found.options[-1].rows is not None
    assert "never plays what is asked about" in " ".join(found.sentences())
    assert found.status == "fail"


def test_a_policy_known_on_logged_actions_alone_is_enough():
    log = sample(2000, 0)
    only = cael.plan(log, cael.LoggedOnly(PI[log.actions]), lift=0.1, relative=False)
    assert only.rows_needed > 0


def test_clusters_take_more_rows():
    log = sample(1000, 0)
    four = np.repeat(np.arange(1000), 4)
    repeated = cael.LoggedData(None, log.actions[four], log.rewards[four], logging=MU, clusters=four)
    plain = cael.LoggedData(None, log.actions[four], log.rewards[four], logging=MU)
    outcome = cael.FixedOutcome(1 + Q)
    ratio = cael.plan(repeated, PI, outcome=outcome).rows_needed / cael.plan(plain, PI, outcome=outcome).rows_needed
    assert ratio == pytest.approx(4, rel=0.01)


def test_it_prints_and_serialises():
    found = cael.plan(sample(500, 0), PI)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["rows_needed"] == found.rows_needed
    out = io.StringIO()
    Console(file=out, width=90).print(found)
    assert "rows needed" in out.getvalue()
    assert "<table>" in found._repr_html_()
    assert repr(found).startswith("Plan(")


@pytest.mark.parametrize("options", [{}, {"logging": "dense:mu"}], ids=["propensities", "logging"])
def test_the_plan_of_a_log_in_files_is_that_of_the_log_in_memory(tmp_path, options):
    rows, actions, _ = paper(500)
    where = write(tmp_path / "log", rows, [200])
    logs = [read(where, COLUMNS, actions=actions, **options) for read in (cael.scan, cael.read)]
    streamed, kept = (cael.plan(log, "dense:pi", lift=0.1).to_dict() for log in logs)
    for plan in (streamed, kept):
        plan["policy"] = ""
    assert streamed == kept


def test_bad_arguments():
    log = sample(200, 0)
    for bad in (0, -0.1, float("nan"), "1%"):
        with pytest.raises(InputError, match="lift must be a positive number"):
            cael.plan(log, PI, lift=bad)
    with pytest.raises(InputError, match="exploration"):
        cael.plan(log, PI, exploration=[2.0])
    with pytest.raises(InputError, match="level"):
        cael.plan(log, PI, power=1.0)
    with pytest.raises(NeedsError, match="propensities"):
        cael.plan(cael.LoggedData(None, log.actions, log.rewards), PI)
    centred = cael.LoggedData(None, [0, 1, 0, 1], [1.0, 1.0, -1.0, -1.0], logging=[0.5, 0.5])
    with pytest.raises(InputError, match="relative=False"):
        cael.plan(centred, [0.4, 0.6])
