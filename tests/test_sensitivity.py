"""Without propensities: what an error of the estimated ones could do to a lift."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
from cael.engine.asking import as_engine_log
from cael.judging.sensitivity import Sensitivity, sensitivity_of
from cael.results.evaluate import asked_about
from tests.streaming.logs import write
from tests.streaming.test_one_verdict import ROLES, as_table, same_evaluation


def extreme(y, w, factor):
    """The largest normalised mean over weights w t with 1/factor <= t <= factor: t is at its ends, and rises in y."""
    order = np.argsort(y)
    return max(
        float(np.average(y[order], weights=w[order] * np.where(np.arange(len(y)) < cut, 1 / factor, factor)))
        for cut in range(len(y) + 1)
    )


def bound_of(y, w, low=0.0, high=0.0):
    mean = np.average(y, weights=w)
    spread = math.sqrt(np.average((y - mean) ** 2, weights=w))
    return Sensitivity("SNIPS", spread, float(np.average(np.abs(y - mean), weights=w)), low, high)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(1.0, 4.0), st.sampled_from(["normal", "clicks", "heavy"]))
def test_no_weights_move_the_mean_by_more_than_the_bound(seed, factor, kind):
    rng = np.random.default_rng(seed)
    y = {"normal": rng.normal(size=40), "clicks": rng.random(40) < 0.1, "heavy": rng.standard_cauchy(40)}[kind] * 1.0
    w = rng.exponential(size=40)
    moved = max(extreme(y, w, factor) - np.average(y, weights=w), extreme(-y, w, factor) + np.average(y, weights=w))
    assert moved <= bound_of(y, w).shift(factor) * (1 + 1e-9) + 1e-12


def test_the_bound_is_reached_by_two_equally_likely_values():
    y, w = np.repeat([-1.0, 1.0], 500), np.ones(1000)
    moved = extreme(y, w, 1.2)
    # c = (G^2 - 1) / (G^2 + 1) here; the bound is c / sqrt(1 - c^2), the same up to a second order.
    assert moved < bound_of(y, w).shift(1.2) < 1.02 * moved


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.floats(-5, 5), st.floats(0.01, 2))
def test_at_the_factor_the_interval_reaches_zero(spread, distance, low, width):
    found = Sensitivity("SNDR", spread, distance, low, low + width)
    margin = max(low, -(low + width), 0.0)
    assert found.shift(found.factor) == pytest.approx(margin, rel=1e-6, abs=1e-9) or found.factor == 1e3
    assert found.factor >= 1
    holds_zero = low <= 0 <= low + width
    assert found.factor == 1 if margin == 0 else found.factor > 1 or margin < 1e-9
    assert ("stays" not in found.sentence) == holds_zero


def hidden_log(rng, n, strength):
    """Rewards and actions that both depend on a hidden coin u; the value of always playing action 1 is 1.25."""
    x, u = rng.normal(size=(n, 1)), rng.integers(0, 2, n)
    p = 0.5 + strength * (u - 0.5)
    a = (rng.random(n) < p).astype(int)
    r = a * (0.75 + u) + 0.3 * rng.normal(size=n)
    return cael.LoggedData(x, a, r, n_actions=2)


def answered(log, policy):
    estimated = cael.LoggedData(
        log.contexts, log.actions, log.rewards, logging=cael.estimate_logging(log), n_actions=log.n_actions
    )
    answer, _ = asked_about(as_engine_log(estimated), {"": policy}, None, False)
    estimates, _ = answer.estimates(0)
    return estimates, sensitivity_of(answer, 0, estimates, 0.95), cael.evaluate(estimated, policy, learn=False)


def test_where_something_is_hidden_the_bound_holds_the_truth():
    """Propensities 0.5 +- 0.1 and estimates of 0.5: off by a factor of up to 1.25."""
    missed = 0
    for seed in range(20):
        log = hidden_log(np.random.default_rng(seed), 3000, 0.2)
        estimates, bound, evaluation = answered(log, np.array([0.0, 1.0]))
        best = next(each for each in estimates if each.estimator == bound.estimator)
        interval, truth = best.interval(), 1.25
        missed += not interval.low <= truth <= interval.high
        shift = bound.shift(1.26)
        assert interval.low - shift <= truth <= interval.high + shift
        assert evaluation.verdict.level == "caution"
        check = next(check for check in evaluation.verdict.checks if check.name == "sensitivity")
        assert check.status == "warn" and check.value == bound.factor
        assert "the lift stays above 0 if the propensities are off by a factor of up to" in check.sentence
    assert missed >= 15  # negative control: without the bound, the truth is missed


def test_known_propensities_have_no_such_doubt():
    log, policy = cael.testing.example()
    assert "sensitivity" not in {check.name for check in cael.evaluate(log, policy, learn=False).verdict.checks}


@pytest.mark.filterwarnings("ignore:There are no logged propensities")
def test_a_log_in_files_has_the_same_bound(tmp_path):
    world = cael.worlds.PaperWorld(n_actions=8, action_dim=2, gamma=0.3)
    log = world.sample(1200, seed=1)
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=8)
    write(tmp_path, as_table(bare, world.target), (300, 700))
    here = cael.evaluate(cael.read(tmp_path, ROLES, n_actions=8), "pi", learn=False)
    there = cael.evaluate(cael.scan(tmp_path, ROLES, n_actions=8), "pi", learn=False)
    same_evaluation(here, there)
    assert any(check.name == "sensitivity" for check in there.verdict.checks)
