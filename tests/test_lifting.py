"""The lift: a paired contrast that loses the chance of the logged actions, and nothing else."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cael
from cael.engine import asking
from cael.engine.asking import as_engine_log, ask
from cael.inference.diagnostics import contrast_floor
from cael.inference.lift import lift_of
from cael.results.lifts import controls_for, outcome_of

WORLD = cael.worlds.IndependentWorld(n_actions=8, population=2000)
LOG = WORLD.sample(800, seed=0)
NEAR = cael.Mixture([WORLD.logging, WORLD.target], [0.8, 0.2])
SNDR = cael.SNDR()
PLAIN = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, LOG.propensities, n_actions=8)


def parts(log, policy, estimator=SNDR):
    answer = ask(as_engine_log(log), {"": policy}, [estimator, cael.LoggedMean()], controls=[outcome_of(estimator)])
    return answer.of(estimator.name, 0), answer.of("LoggedMean", 0), controls_for(answer, estimator.name)


@pytest.mark.parametrize("estimator", [cael.SNDR(), cael.DR(), cael.SNIPS()])
def test_the_logging_policy_has_no_lift_over_itself(estimator):
    found = lift_of(*parts(LOG, WORLD.logging, estimator))
    assert abs(found.value) < 1e-9
    assert found.stderr < 1e-9


def test_it_is_the_doubly_robust_estimator_applied_to_both_policies_up_to_the_slope():
    mine = lift_of(*parts(LOG, NEAR))
    twice = cael.SNDR().estimate(LOG, NEAR) - cael.SNDR().estimate(LOG, WORLD.logging)
    plain = cael.SNDR().estimate(LOG, NEAR) - cael.LoggedMean().estimate(LOG, NEAR)
    assert mine.value == pytest.approx(twice.value, abs=0.3 * twice.stderr)
    assert mine.stderr <= twice.stderr < 0.6 * plain.stderr


def test_without_the_whole_logging_policy_it_is_the_plain_difference():
    estimate, base, none = parts(PLAIN, NEAR)
    assert none == ()
    assert lift_of(estimate, base, none).value == estimate.value - base.value
    guessed = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, logging=cael.estimate_logging(PLAIN), n_actions=8)
    assert parts(guessed, NEAR)[2] == ()  # an estimated logging policy does not make the mean of the control 0
    assert not cael.evaluate(PLAIN, NEAR, learn=False).to_dict()["lift"]["adjusted"]
    assert cael.evaluate(LOG, NEAR, learn=False).to_dict()["lift"]["adjusted"]


def test_controls_that_say_the_same_count_as_one():
    estimate, base, (control,) = parts(LOG, NEAR)
    alone, twice = lift_of(estimate, base, (control,)), lift_of(estimate, base, (control, control))
    assert twice.value == pytest.approx(alone.value, rel=1e-9)
    assert twice.stderr == pytest.approx(alone.stderr, rel=1e-9)


def test_the_lift_of_cael_uses_the_model_that_it_learned():
    """Beside the ridge model, which cannot see what the network sees: the error falls, near the logging policy far."""
    world = cael.worlds.PaperWorld(n_actions=20)
    log = world.sample(1000, seed=3)
    near = cael.Mixture([world.logging, world.target], [0.9, 0.1])
    evaluation = cael.evaluate(log, near, headline="CAEL", estimators=cael.CAEL())
    assert len(evaluation.controls) == 2
    by_ridge = lift_of(evaluation.best, evaluation.baseline, evaluation.controls[1:])
    assert evaluation.lift.stderr < 0.6 * by_ridge.stderr
    truth = world.value(near) - world.value(world.logging)
    assert truth in evaluation.lift_interval


def test_a_model_that_saw_its_rows_is_not_used():
    assert parts(LOG, NEAR, cael.DR(folds=0))[2] == ()


def test_the_control_has_mean_0_even_for_a_wrong_model():
    wrong = cael.SNDR(cael.FixedOutcome(np.arange(8.0)))
    found = np.array([parts(WORLD.sample(400, seed), NEAR, wrong)[2][0].value for seed in range(60)])
    assert abs(found.mean()) < 4 * found.std() / np.sqrt(60)
    assert found.std() > 0


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_it_never_has_a_larger_error_than_the_plain_difference(seed, clustered):
    rng = np.random.default_rng(seed)
    log = cael.LoggedData(
        LOG.contexts, LOG.actions, LOG.rewards, logging=LOG.logging, n_actions=8,
        clusters=rng.integers(0, 100, len(LOG)) if clustered else None,
    )  # fmt: skip
    wrong = cael.SNDR(cael.FixedOutcome(rng.standard_normal(8) * rng.exponential()))
    estimate, base, controls = parts(log, NEAR, wrong)
    found = lift_of(estimate, base, controls)
    assert found.stderr <= (estimate - base).stderr * (1 + 1e-12)
    assert found.contributions.mean() == pytest.approx(found.value)


def test_compare_counts_the_bias_of_an_estimator_that_bounds_it():
    auto = cael.Auto(learn=False)
    row = cael.compare(LOG, {"near": NEAR}, auto)["near"]
    assert row.lift.diagnostics.bias_bound is not None
    biased = dataclasses.replace(row.lift.diagnostics, bias_bound=1.0)
    assert dataclasses.replace(row.lift, diagnostics=biased).interval(0.95, "bias_aware").width > 2.0
    assert row.interval.width >= row.lift.interval(0.95, "bias_aware").width * 0.9


def test_compare_trains_an_outcome_model_once_for_all_policies(monkeypatch):
    calls = []
    fit = asking.ridge_sums
    monkeypatch.setattr(asking, "ridge_sums", lambda *given, **more: calls.append(1) or fit(*given, **more))
    cael.compare(LOG, {"near": NEAR, "target": WORLD.target, "uniform": cael.Uniform(8)}, learn=False)
    assert len(calls) == 1


def test_the_floor_of_a_contrast_keeps_the_correlation_of_the_rows():
    assert contrast_floor((1.0, 1.0, 0.0), (3.0, 3.0)) == 0.0  # a - a
    assert contrast_floor((1.0, 1.0, 2**0.5), (3.0, 4.0)) == pytest.approx(5.0)  # independent
    assert contrast_floor((3.0, 4.0, 2.0), (1.0, None)) == pytest.approx(2.0)  # no floor binds: the error itself
    assert contrast_floor((1.0, 1.0, 0.5), (None, None)) is None
    assert contrast_floor((0.0, 1.0, 1.0), (2.0, None)) == pytest.approx(5**0.5)
    # Rows that show almost none of an error, all of it shared, say nothing of the rest: nearly independent, not 2 - 1.
    assert contrast_floor((1e-3, 1.0, 0.999), (2.0, 1.0)) == pytest.approx(5**0.5, rel=1e-3)
    assert contrast_floor((1e-3, 1.0, 1.001), (2.0, 1.0)) == pytest.approx(3.0, rel=1e-3)  # the other way: all of it


def test_an_arm_without_a_success_is_not_worse_by_the_model_that_it_is_blended_with():
    """Ten equal arms: CAEL leaves a little of the mean reward in its estimate, which is all that its rows show."""
    world = cael.worlds.MixedWorld("none", "clicks", n_actions=10, rate=0.02, effect=0.0)
    log = world.sample(2000, 203)
    assert log.rewards[log.actions == 9].sum() == 0
    evaluation = cael.evaluate(log, np.eye(10)[9])
    lifts = [lift_of(evaluation[name], evaluation.baseline, evaluation.controls) for name in ("Auto", "SNDR")]
    assert lifts[0].error == pytest.approx(lifts[1].error, rel=0.1)
    assert lifts[0].interval().width == pytest.approx(lifts[1].interval().width, rel=0.1)


def test_an_estimate_with_a_floor_minus_itself_is_0_without_doubt():
    found = cael.Auto(learn=False).estimate(LOG, WORLD.target)
    assert found.diagnostics.stderr_floor > 0
    assert (found - found).interval(method="bias_aware").width == pytest.approx(4 * found.diagnostics.bias_bound)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_its_intervals_cover_the_true_lift(share):
    """On a world where the model is good: the error of a near policy's lift falls to less than half."""
    world, trials = cael.worlds.IndependentWorld(), 200
    policy = cael.Mixture([world.logging, world.target], [1 - share, share])
    truth = world.value(policy) - world.value(world.logging)
    found = [parts(world.sample(1500, 7000 + t), policy) for t in range(trials)]
    lifts = [lift_of(*each) for each in found]
    covered = np.mean([truth in each.interval() for each in lifts])
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / trials)
    plain = np.mean([(estimate - base).stderr for estimate, base, _ in found])
    assert np.mean([each.stderr for each in lifts]) < (0.5 if share == 0.2 else 1.0) * plain
    half = np.mean([truth in each.interval(0.67) for each in lifts])  # half as wide: the negative control
    assert half < 0.95 - 4 * np.sqrt(0.95 * 0.05 / trials)


def tables():
    """Probabilities (n, k) in 64 and in 32 bits, and a log whose rewards lie far from 0."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((600, 3))
    scores = np.exp(x @ rng.standard_normal((3, 12)))
    wide = scores / scores.sum(axis=1, keepdims=True)
    a = (wide.cumsum(axis=1) > rng.random((600, 1))).argmax(axis=1)
    return x, a, 1000.0 + 0.1 * a + rng.standard_normal(600), wide, wide.astype(np.float32)


@pytest.mark.parametrize("estimator", [cael.SNDR(), cael.SNIPS(), cael.DR()])
@pytest.mark.parametrize("kinds", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_policy_in_32_bits_is_no_better_than_itself_in_64(estimator, kinds):
    x, a, r, *both = tables()
    log = cael.LoggedData(x, a, r, logging=both[kinds[0]])
    found = cael.compare(log, {"same": both[kinds[1]]}, estimator)["same"]
    assert found.direction == "no difference shown"
    assert found.lift.value == 0
    assert found.interval.width == 0


def test_a_small_lift_is_no_rounding():
    x, a, r, wide, _ = tables()
    log = cael.LoggedData(x, a, r, logging=wide)
    near = wide + 1e-4 * (np.eye(12)[a] - wide)  # another policy, by a little
    found = cael.compare(log, {"near": near}, cael.SNDR())["near"]
    assert found.lift.value != 0
    assert found.interval.width > 0


def test_rows_of_a_function_in_32_bits_add_up_to_one():
    x, a, r, wide, narrow = tables()
    batch = cael.LoggedData(x, a, r, logging=wide).whole
    for policy in (cael.FromModel(lambda contexts: narrow[: len(contexts)]), cael.Tabular(narrow)):
        assert np.abs(cael.policies.policy.probabilities(policy, batch).sum(axis=1) - 1).max() < 1e-12
    assert np.abs(narrow.astype(float).sum(axis=1) - 1).max() > 1e-9  # as they were
