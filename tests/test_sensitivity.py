"""Without propensities: what an error of the estimated ones could do to a lift."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import cael
from cael.engine.asking import as_engine_log
from cael.judging.sensitivity import Sensitivity, Weighted, sensitivity_of
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


def by_linear_program(y, w, factor):
    """The same as a linear program (Charnes and Cooper): u = w t / sum(w t), s = 1 / sum(w t)."""
    n = len(y)
    ends = np.block([[np.eye(n), -factor * w[:, None]], [-np.eye(n), w[:, None] / factor]])
    ones = np.append(np.ones(n), 0.0)[None]
    found = linprog(-np.append(y, 0.0), A_ub=ends, b_ub=np.zeros(2 * n), A_eq=ones, b_eq=[1.0], bounds=(0, None))
    assert found.success
    return -found.fun


def intervals(low=0.0, high=0.0):
    return cael.Interval(low, high, 0.95, "normal"), cael.Interval(low, high, 0.95, "normal")


def bound_of(y, w, low=0.0, high=0.0):
    mean = np.average(y, weights=w)
    spread = math.sqrt(np.average((y - mean) ** 2, weights=w))
    part = Weighted(1.0, spread, float(np.average(np.abs(y - mean), weights=w)))
    return Sensitivity("SNIPS", (part,), *intervals(low, high))


@pytest.mark.parametrize(("kind", "sharp"), [("normal", 1.35), ("coin", 1.05), ("clicks", 3.0)])
@pytest.mark.parametrize("factor", [1.1, 1.3, 2.0])
def test_the_bound_is_above_the_linear_program_and_not_far(kind, sharp, factor):
    """How far depends on the rewards: a coin's reach it for small factors, of rare clicks it is loose downwards."""
    rng = np.random.default_rng(5)
    y = {"normal": rng.normal(size=60), "coin": rng.random(60) < 0.5, "clicks": rng.random(60) < 0.15}[kind] * 1.0
    w = rng.exponential(size=60)
    mean = np.average(y, weights=w)
    up, down = by_linear_program(y, w, factor) - mean, by_linear_program(-y, w, factor) + mean
    assert up == pytest.approx(extreme(y, w, factor) - mean, abs=1e-7)
    shift = bound_of(y, w).shift(factor)
    assert max(up, down) <= shift * (1 + 1e-7)
    assert shift <= sharp * max(1.0, factor / 1.3) * max(up, down)


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
    found = Sensitivity("SNDR", (Weighted(1.0, spread, distance),), *intervals(low, low + width))
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


def replace_logging(log):
    columns = {"n_actions": log.n_actions, "action_features": log.action_features}
    fitted = cael.estimate_logging(log)
    return cael.LoggedData(log.contexts, log.actions, log.rewards, logging=fitted, **columns)


def answered(log, policy):
    return cael.evaluate(replace_logging(log), policy, learn=False)


def test_where_something_is_hidden_the_bound_holds_the_truth():
    """Propensities 0.5 +- 0.1 and estimates of 0.5: off by a factor of up to 1.25."""
    missed = 0
    for seed in range(20):
        log = hidden_log(np.random.default_rng(seed), 3000, 0.2)
        evaluation, truth = answered(log, np.array([0.0, 1.0])), 1.25
        bound = evaluation.sensitivity
        missed += truth not in evaluation.interval
        assert (bound.estimator, bound.value) == (evaluation.headline, evaluation.interval)
        assert truth in bound.value_at(1.26)
        assert truth - 0.5 * (0.4 * 0.75 + 0.6 * 1.75) in bound.lift_at(1.26)
        assert evaluation.verdict.level == "caution"
        check = next(check for check in evaluation.verdict.checks if check.name == "sensitivity")
        assert check.status == "warn" and check.value == bound.factor
        assert "the lift stays above 0 if the propensities are off by a factor of up to" in check.sentence
    assert missed >= 15  # negative control: without the bound, the truth is missed


@pytest.mark.parametrize("learned", [cael.CAEL(growth=cael.Growth(steps=30, restarts=1, penalties=(1.0,)))])
def test_the_bound_of_cael_holds_for_every_change_of_its_weights(learned):
    log = cael.worlds.PaperWorld(n_actions=20, gamma=0.5).sample(600, seed=2)
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=20, action_features=log.action_features)
    estimated = replace_logging(bare)
    policy = cael.Softmax(log.action_features @ np.ones(log.action_features.shape[1]), 0.5)
    answer = asked_about(as_engine_log(estimated), {"": policy}, learned, False).answer
    estimate = answer.of(learned.name, 0)
    bound = sensitivity_of(answer, 0, [estimate, answer.of("LoggedMean", 0)], learned.name, 0.95)
    facts, path = estimate.diagnostics.embedding, answer.part(learned.name, 0).path
    rows = {number: answer.partial.block[answer.index[column]] for number, column in enumerate(path.columns)}
    count, at = len(path.bandwidths), int(np.flatnonzero(path.bandwidths == facts.bandwidth)[0])
    left = rows[len(path.columns) - 4]
    shares = (1 - facts.sharp_share, facts.sharp_share)
    for factor in (1.2, 2.0):
        moved = 0.0
        for share, w in zip(shares, (rows[1 + at], rows[1]), strict=True):
            moved += share * (extreme(left, w, factor) - np.average(left, weights=w))
        assert 0 < moved <= bound.shift(factor)
        assert bound.shift(factor) < 4 * moved
    assert len(bound.parts) == 2
    assert sum(part.share for part in bound.parts) == pytest.approx(1.0)
    assert count > 1


def test_the_result_the_json_and_the_verdict_say_the_same():
    rng = np.random.default_rng(0)
    estimated = replace_logging(hidden_log(rng, 2000, 0.2))
    evaluation = cael.evaluate(estimated, np.array([0.0, 1.0]), learn=False)
    bound, check = evaluation.sensitivity, {check.name: check for check in evaluation.verdict.checks}["sensitivity"]
    assert (check.value, check.sentence) == (bound.factor, bound.sentence)
    assert evaluation.to_dict()["sensitivity"] == bound.to_dict()
    assert bound.to_dict()["lift"]["low"] == bound.lift_at(1.5).low < bound.lift.low
    assert bound.sentence in evaluation.verdict.reasons
    assert bound.shift(1.0) == 0
    with pytest.raises(cael.InputError, match=r"factor must be a number >= 1; got 0\.9"):
        bound.shift(0.9)


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
