"""segments: they add up to the whole, their intervals hold together, and shrinkage pays."""

import functools
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import cael
from cael import InputError
from cael.inference.shrinkage import between_variance, cochran, shrink
from cael.results.sheet import signed
from cael.worlds import MixedWorld

WORLD = cael.worlds.PaperWorld(n_actions=10, gamma=0.3)
LOG = WORLD.sample(3000, seed=0)
LABELS = np.array(["north", "south", "east", "west", "<b>x</b>"])[(LOG.contexts[:, 1] * 5).astype(int)]


@functools.cache
def shown():
    """What a user sees."""
    return cael.segments(LOG, WORLD.target, LABELS)


@pytest.mark.parametrize("estimator", [None, cael.SNDR(), cael.SNIPS(), cael.DR(), cael.IPS()])
def test_segments_add_up_to_the_whole(estimator):
    found = shown() if estimator is None else cael.segments(LOG, WORLD.target, LABELS, estimator=estimator)
    whole = (estimator or cael.Auto()).estimate(LOG, WORLD.target)
    assert found.estimator == whole.estimator
    assert sum(row.rows for row in found) == len(LOG)
    assert sum(row.rows * row.value for row in found) / len(LOG) == pytest.approx(whole.value)
    assert sum(row.rows * row.baseline for row in found) / len(LOG) == pytest.approx(LOG.rewards.mean())


def test_errors_are_those_of_the_rows_of_a_segment():
    for estimator in (cael.DM(), cael.SNDR()):
        found = cael.segments(LOG, WORLD.target, LABELS, estimator=estimator)
        z = cael.compare(LOG, {"target": WORLD.target}, estimator)["target"].lift.contributions
        for row in found:
            own = z[row.label == LABELS]
            alone = own.std(ddof=1) / np.sqrt(len(own))
            if estimator == cael.DM():
                assert row.stderr == pytest.approx(alone)
            else:  # few of its rows match: the weights of the whole log say that its own show too little
                assert alone * (1 - 1e-9) <= row.stderr < 1.2 * alone
            assert row.interval.width == pytest.approx(2 * found.factor * row.stderr)
    for row in shown():  # Auto's interval allows for its bias
        assert row.interval.width > 2 * shown().factor * row.stderr


def test_clusters_are_respected():
    four = np.repeat(np.arange(750), 4)
    log = LOG.take(four)
    repeated = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities, clusters=four)
    rows = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities)
    policy = cael.EpsilonGreedy(WORLD.q, 0.2)
    for estimator in (cael.LoggedMean(), cael.SNIPS()):
        alone, together = (cael.segments(x, policy, LABELS[four], estimator=estimator) for x in (rows, repeated))
        for row in together:  # a floor of the error is believed more where a quarter of the rows is independent
            assert row.stderr >= 2 * alone[row.label].stderr * 0.99
            assert row.stderr <= 2 * alone[row.label].stderr * (1.25 if estimator == cael.SNIPS() else 1.01)


@pytest.mark.slow
def test_joint_intervals_hold_together_and_single_ones_do_not():
    """CoinWorld-like: five actions without contexts, eight segments that all have the same true lift."""
    mu, pi, q = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.3, 0.4]), np.array([0.2, 0.4, 0.6])
    truth = float((pi - mu) @ q)
    joint, single = [], []
    labels = np.arange(1600) % 8
    for seed in range(400):
        rng = np.random.default_rng(seed)
        a = rng.choice(3, size=1600, p=mu)
        log = cael.LoggedData(None, a, (rng.random(1600) < q[a]).astype(float), logging=mu)
        found = cael.segments(log, pi, labels, estimator=cael.SNIPS())
        joint.append(all(truth in row.interval for row in found))
        single.append(all(abs(row.lift - truth) < 1.96 * row.stderr for row in found))
    error = np.sqrt(0.95 * 0.05 / 400)
    assert abs(np.mean(joint) - 0.95) < 4 * error
    assert np.mean(single) < 0.95 - 4 * error  # negative control


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_shrinkage_lowers_the_error_and_its_intervals_cover(spread):
    rng = np.random.default_rng(1)
    covered, own, raw = [], [], []
    for _ in range(1000):
        error = rng.uniform(0.3, 1.2, 10)
        truth = rng.normal(0.5, spread, 10)
        seen = truth + error * rng.standard_normal(10)
        guess, posterior, _ = shrink(seen, error)
        covered.append(np.mean(np.abs(guess - truth) < 1.96 * posterior))
        own.append(np.mean((guess - truth) ** 2))
        raw.append(np.mean((seen - truth) ** 2))
    assert np.mean(own) < 0.95 * np.mean(raw)
    assert np.mean(covered) > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 10_000)


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=9), st.floats(0.1, 3))
def test_shrunk_values_lie_between_their_own_and_the_mean(values, error):
    v, s = np.array(values), np.full(len(values), error)
    guess, posterior, spread = shrink(v, s)
    assert (np.abs(guess - v.mean()) <= np.abs(v - v.mean()) + 1e-9).all()
    assert (posterior > 0).all()
    assert spread >= 0


def test_between_variance_solves_its_equation():
    v, s = np.array([0.0, 3.0, -2.0, 5.0]), np.array([0.5, 1.0, 0.7, 0.4])
    t = between_variance(v, s)
    w = 1 / (s**2 + t)
    assert (w * (v - (w @ v) / w.sum()) ** 2).sum() == pytest.approx(3)
    assert between_variance(np.zeros(4), s) == 0
    assert cochran(np.zeros(4), s) == (0.0, 1.0)


def test_few_segments_are_not_shrunk():
    found = cael.segments(LOG, WORLD.target, LABELS == "north", learn=False)
    assert all(row.shrunk == row.lift for row in found)


def test_windows_follow_time():
    times = np.datetime64("2026-03-01") + np.arange(3000)[::-1].astype("m8[m]")
    log = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, LOG.propensities, timestamps=times)
    policy = cael.EpsilonGreedy(WORLD.q, 0.2)
    found = cael.segments(log, policy, windows=4, learn=False)
    assert [row.rows for row in found] == [750] * 4
    assert found.rows[0].label == "1: 2026-03-01 00:00"
    last_rows = cael.SNDR().estimate(log, policy).contributions[2250:]
    assert found.rows[0].value == pytest.approx(last_rows.mean())
    assert cael.segments(LOG, policy, windows=3, learn=False).rows[1].label == "2: from row 1,000"
    out = io.StringIO()
    Console(file=out, width=80).print(found)
    lines = out.getvalue().splitlines()
    for row in found:  # names and numbers are whole at 80 columns; the shrunk lift goes where there is no room for it
        ends = f"[{signed(row.interval.low)}, {signed(row.interval.high)}]"
        assert any(row.label in line and f"{signed(row.lift)}  " in line and ends in line for line in lines)
    assert "shrunk" not in out.getvalue() and "…" not in out.getvalue()
    wide = io.StringIO()
    Console(file=wide, width=160).print(found)
    assert "shrunk lift" in wide.getvalue()


def test_segments_that_differ_are_said_to():
    better = np.where(LOG.contexts[:, 0] < 0.5, "low", "high")
    rewards = LOG.rewards + np.where(better == "low", 2.0, 0.0) * (LOG.actions == WORLD.q(LOG.contexts).argmax(axis=1))
    log = cael.LoggedData(LOG.contexts, LOG.actions, rewards, logging=LOG.logging)
    found = cael.segments(log, WORLD.target, better, learn=False)
    assert found.differ < 1e-6
    assert found.rows[0].label == "low"
    assert "differ beyond chance" in found.sentence()
    assert "no more than chance" in cael.segments(LOG, WORLD.target, np.arange(3000) % 4, learn=False).sentence()


def test_it_prints_serialises_and_escapes():
    found = shown()
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["rows"][0]["direction"] == "better"
    assert "<b>x" not in found._repr_html_()
    for width in (80, 130):
        out = io.StringIO()
        Console(file=out, width=width).print(found)
        assert max(map(len, out.getvalue().splitlines())) <= width
        assert "<b>x</b>" in out.getvalue()
    with pytest.raises(KeyError, match="no segment named"):
        found["nowhere"]


def test_bad_arguments():
    with pytest.raises(InputError, match="got both or none"):
        cael.segments(LOG, WORLD.target)
    with pytest.raises(InputError, match="one entry per row"):
        cael.segments(LOG, WORLD.target, ["a", "b"], learn=False)
    with pytest.raises(InputError, match="must not be missing; row 0"):
        cael.segments(LOG, WORLD.target, np.array([None, *LABELS[1:]], dtype=object), learn=False)
    with pytest.raises(InputError, match="at least 20 rows; too few: odd"):
        cael.segments(LOG, WORLD.target, np.where(np.arange(3000) < 5, "odd", "rest"), learn=False)
    with pytest.raises(InputError, match="more than 1000"):
        cael.segments(LOG, WORLD.target, np.arange(3000), learn=False)
    with pytest.raises(InputError, match="needs at least 4000 rows"):
        cael.segments(LOG, WORLD.target, windows=200, learn=False)


def test_a_segment_without_a_success_shows_no_difference():
    """Ten arms with one small success rate: a part of the log may hold no success, and so no variance of its own."""
    world = MixedWorld("none", "clicks", n_actions=10, rate=0.005, effect=0.0)
    shown, empty = 0, 0
    for seed in range(1000, 1012):
        log = world.sample(2000, seed)
        labels = np.random.default_rng(seed).integers(0, 10, len(log)).astype(str)
        found = cael.segments(log, cael.Tabular(np.eye(10)[0]), labels, learn=False)
        none = {label for label in set(labels) if log.rewards[labels == label].sum() == 0}
        empty += len(none)
        shown += sum(row.direction != "no difference shown" for row in found if row.label in none)
        assert all(row.stderr > 1e-4 for row in found)
    assert empty > 20
    assert shown == 0
