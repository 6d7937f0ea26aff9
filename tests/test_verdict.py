"""Verdicts: ok on sound logs, and a sentence with a number on each kind of broken one."""

import dataclasses
import functools
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import cael
from cael import Check, InputError, Thresholds
from cael.engine.asking import as_engine_log, ask
from cael.experiments import broken as experiment
from cael.judging.judge import judge
from cael.judging.survey import depends_on_action
from cael.judging.verdict import verdict_of, worst

WORLD = cael.worlds.PaperWorld(n_actions=10, gamma=0.3)
LOG = WORLD.sample(3000, seed=0)
ANSWER = ask(as_engine_log(LOG), {"": WORLD.target}, [cael.SNDR(), cael.SNIPS()])


@functools.cache
def broken(condition):
    """What a user sees of the log under this condition."""
    log, _ = experiment.CONDITIONS[condition](LOG, np.random.default_rng(0))
    return cael.evaluate(log, WORLD.target)


@functools.cache
def sound():
    return cael.evaluate(LOG, WORLD.target)


def check(found, name):
    return next(each for each in found.verdict.checks if each.name == name)


def printed(thing):
    out = io.StringIO()
    Console(file=out, width=100).print(thing)
    return out.getvalue()


def test_a_sound_log_is_ok():
    for condition in ("sound, logging policy known", "sound, propensities only"):
        found = broken(condition)
        assert found.verdict.level == "ok"
        assert found.verdict.reasons == ()
        assert {each.status for each in found.verdict.checks} == {"pass"}
        assert WORLD.value(WORLD.target) in found.best.interval()


@pytest.mark.parametrize(
    ("condition", "culprit", "levels"),
    [
        ("propensities of another version, whole policy", "frequencies", ("refuse",)),
        ("propensities of another version, logged ones only", "frequencies", ("refuse",)),
        ("actions shuffled, logging policy known", "surprise", ("refuse",)),
        ("actions shuffled, propensities only", "propensity_column", ("caution", "refuse")),
        ("a fifth of the actions lost, logging policy known", "frequencies", ("refuse",)),
        ("a fifth of the actions lost, propensities only", "support", ("refuse",)),
        ("rewards that drift", "drift", ("caution",)),
    ],
)
def test_a_broken_log_is_seen_by_the_check_made_for_it(condition, culprit, levels):
    found = broken(condition)
    assert found.verdict.level in levels
    assert check(found, culprit).status in ("warn", "fail")
    for reason in found.verdict.reasons:
        assert re.search(r"\d", reason), f"no number in: {reason}"
        assert reason.endswith(".")
        assert reason.count(". ") == 0  # one sentence


def test_shuffled_actions_are_seen_even_under_a_uniform_logging_policy():
    world = cael.worlds.PaperWorld(n_actions=10)
    log = world.sample(2000, seed=2)
    assert cael.evaluate(log, world.target, learn=False).verdict.level == "ok"
    assert check(cael.evaluate(log, world.target, learn=False), "action_effect").value < 0.01
    order = np.random.default_rng(0).permutation(2000)
    moved = cael.LoggedData(log.contexts, log.actions[order], log.rewards, logging=log.logging)
    found = cael.evaluate(moved, world.target)
    assert found.verdict.level == "caution"
    assert check(found, "action_effect").status == "warn"


def without_effects(gamma, order=slice(None)):
    """A log whose rewards depend on the contexts alone."""
    world = cael.worlds.PaperWorld(n_actions=10, gamma=gamma)
    log = world.sample(3000, seed=0)
    rewards = log.contexts[:, 0] + np.random.default_rng(1).normal(size=3000)
    logging = np.concatenate([log.logging.probabilities(batch) for batch in log.batches(width=10)])
    return cael.LoggedData(log.contexts, log.actions[order], rewards, logging=logging), world.target


def test_a_policy_that_looks_at_contexts_vouches_for_a_log_without_effects():
    """Nothing to fear from mixed-up columns: shuffled actions would be seen by the check of the surprise."""
    log, target = without_effects(0.3)
    found = cael.evaluate(log, target, learn=False)
    assert (found.verdict.level, check(found, "action_effect").status) == ("ok", "pass")
    assert "a small effect looks like this too" in check(found, "action_effect").sentence
    shuffled, _ = without_effects(0.3, np.random.default_rng(0).permutation(3000))
    assert check(cael.evaluate(shuffled, target, learn=False), "surprise").status == "fail"


def test_under_a_uniform_policy_nothing_vouches_for_a_log_without_effects():
    log, target = without_effects(0.0)
    found = check(cael.evaluate(log, target, learn=False), "action_effect")
    assert (found.status, "effects are small, or" in found.sentence) == ("warn", True)
    few = cael.evaluate(log.take(np.arange(600)), target, learn=False)  # too few rows to see a small effect
    assert check(few, "action_effect").status == "pass"
    same = cael.evaluate(log, cael.Uniform(10), learn=False)  # no effect could change this answer
    assert check(same, "action_effect").status == "pass"


def test_a_lift_shows_that_rewards_and_actions_belong_together():
    """An effect that is the policy's alone, spread over many actions, which no action shows by itself."""
    rng = np.random.default_rng(5)
    n, k = 3000, 500
    actions, good = rng.integers(0, k, n), np.arange(k) < k // 2
    rewards = rng.normal(size=n) + 0.12 * good[actions]
    log = cael.LoggedData(rng.normal(size=(n, 2)), actions, rewards, logging=cael.Uniform(k))
    found = check(cael.evaluate(log, cael.Tabular(2 * good / k), learn=False), "action_effect")
    assert depends_on_action(rewards, log) > 0.05
    assert (found.status, found.value < 0.05) == ("pass", True)
    mixed = cael.LoggedData(log.contexts, rng.permutation(actions), rewards, logging=cael.Uniform(k))
    assert check(cael.evaluate(mixed, cael.Tabular(2 * good / k), learn=False), "action_effect").status == "warn"


def test_the_lift_does_not_make_the_check_reject_more_often_than_it_says():
    """200 logs without effects: the lesser of two p-values counts, doubled."""
    rng, rejected, logs = np.random.default_rng(6), 0, 200
    for _ in range(logs):
        actions = rng.integers(0, 5, 600)
        log = cael.LoggedData(rng.normal(size=(600, 2)), actions, rng.normal(size=600), logging=cael.Uniform(5))
        found = cael.evaluate(log, cael.Tabular([0.6, 0.1, 0.1, 0.1, 0.1]), learn=False)
        rejected += check(found, "action_effect").value <= 0.05
    assert rejected / logs < 0.05 + 4 * np.sqrt(0.05 * 0.95 / logs)


def test_weights_that_do_not_average_one_are_no_second_witness():
    """Propensities that are twice too large: the weights are refused, and no estimator by weights is asked."""
    log = WORLD.sample(2000, seed=0)
    wrong = cael.LoggedData(
        log.contexts, log.actions, log.rewards, np.minimum(2 * log.propensities, 1.0), n_actions=log.n_actions
    )
    found = cael.evaluate(wrong, WORLD.target, learn=False)
    assert check(found, "mean_weight").status == "fail"
    assert check(found, "disagreement").status == "unknown"


def test_rewards_without_a_variance_are_a_caution():
    """The tail index of amounts with P(R > r) = 1 / r^1.5 is 0.67; that of normal noise is below 0."""
    rng = np.random.default_rng(0)
    for amounts, status in ((rng.pareto(1.5, 3000), "warn"), (rng.normal(size=3000), "pass")):
        log = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards + amounts, logging=LOG.logging)
        assert check(cael.evaluate(log, WORLD.target, learn=False), "reward_tail").status == status


def test_amounts_with_a_light_tail_are_no_doubt_in_a_small_log():
    """Exponential amounts have the tail index 0; of 40 logs of 100 rows more than 6 warned by chance, had they 10%."""
    rng, warned = np.random.default_rng(1), 0
    policy = cael.Tabular([0.6, 0.4])
    for _ in range(40):
        log = cael.LoggedData(None, rng.integers(0, 2, 100), rng.exponential(size=100), logging=cael.Uniform(2))
        warned += check(cael.evaluate(log, policy, learn=False), "reward_tail").status != "pass"
    assert warned <= 6
    beyond = cael.LoggedData(None, np.arange(400) % 2, rng.pareto(0.5, 400), logging=cael.Uniform(2))
    assert check(cael.evaluate(beyond, policy, learn=False), "reward_tail").status == "fail"  # no mean at all
    debts = cael.LoggedData(None, np.arange(400) % 2, -rng.pareto(0.5, 400), logging=cael.Uniform(2))
    assert check(cael.evaluate(debts, policy, learn=False), "reward_tail").status == "fail"


def test_a_logging_policy_that_learns_is_no_drift_of_the_rewards():
    """Its rewards rise as it learns. Those for given contexts and actions do not, unless they drift besides."""
    world, n = cael.worlds.wide()["learning policy"]
    log = world.sample(n, seed=6301)
    logged = cael.evaluate(log, world.target, headline="LoggedMean", learn=False)
    assert check(logged, "drift").status == "warn"
    assert check(cael.evaluate(log, world.target, learn=False), "drift").status == "pass"
    rising, _ = experiment.CONDITIONS["rewards that drift"](log, np.random.default_rng(0))
    found = check(cael.evaluate(rising, world.target, learn=False), "drift")
    assert found.status == "warn"


def test_few_effective_rows_are_refused():
    world = cael.worlds.PaperWorld(n_actions=200, gamma=-0.3)
    log = world.sample(1000, seed=0)
    found = cael.evaluate(log, world.target, learn=False)
    assert found.verdict.level == "refuse"
    assert check(found, "effective_rows").status == "fail"
    assert check(found, "largest_share").status == "fail"
    assert check(found, "mean_weight").status == check(found, "disagreement").status == "unknown"


def test_where_the_model_carries_the_number_the_verdict_says_what_the_log_alone_is_worth():
    world = cael.worlds.PaperWorld(n_actions=200, gamma=-0.3)
    found = cael.evaluate(world.sample(1000, seed=0), world.target)
    alone = check(found, "unsmoothed_rows")
    assert (found.headline, alone.status) == ("Auto", "warn")
    assert alone.value < 20 < check(found, "effective_rows").value
    assert "rests mostly on the model" in alone.sentence
    assert found.verdict.level == "caution"


def test_what_the_log_alone_is_worth_counts_where_only_logged_propensities_are_known():
    """An arm that is played in 1.2% of 500 rows: the smoothed weights are worth 100 rows, the log's own about 7."""
    rng, arms = np.random.default_rng(2), 20
    x = rng.normal(size=(500, 2))
    effects = np.repeat(rng.normal(size=2), arms // 2)
    p = np.full((500, arms), 0.25 / arms)
    p[:, 0] += 0.75
    actions = np.where(rng.random(500) < 0.75, 0, rng.integers(0, arms, 500))
    log = cael.LoggedData(x, actions, effects[actions] + x[:, 0] + 0.1 * rng.normal(size=500),
                          p[np.arange(500), actions], n_actions=arms)  # fmt: skip
    found = cael.evaluate(log, cael.Tabular(np.eye(arms)[5]), budget=1.0)
    alone = check(found, "unsmoothed_rows")
    assert (found.headline, alone.status, found.verdict.level) == ("Auto", "warn", "caution")
    assert alone.value == pytest.approx(cael.SNIPS().estimate(log, np.eye(arms)[5]).diagnostics.effective_sample_size)


def test_without_propensities_a_number_is_refused(log, policy):
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=8)
    found = cael.evaluate(bare, policy)
    assert (found.headline, found.verdict.level, found.overlap) == ("DM", "refuse", None)
    assert "which this log cannot check" in found.verdict.reasons[0]


def test_unsupported_mass_is_a_caution_and_then_a_refusal():
    rng = np.random.default_rng(0)
    log = cael.LoggedData(None, rng.integers(0, 2, 2000), rng.normal(size=2000), logging=[0.5, 0.5, 0.0])
    for missing, status in ((0.02, "warn"), (0.2, "fail"), (0.0, "pass")):
        target = [0.5 - missing / 2, 0.5 - missing / 2, missing]
        assert check(cael.evaluate(log, target, learn=False), "support").status == status


def test_estimators_that_should_agree_and_do_not():
    sndr, snips = ANSWER.of("SNDR", 0), ANSWER.of("SNIPS", 0)
    away = dataclasses.replace(snips, value=snips.value + 1, contributions=snips.contributions + 1, sums=None)
    found = judge(ANSWER, 0, [sndr, away], "SNDR")
    assert next(each for each in found.checks if each.name == "disagreement").status == "fail"
    assert found.level == "refuse"


@pytest.mark.parametrize(("times", "status"), [(2.0, "pass"), (4.0, "warn"), (90.0, "warn")])
def test_a_bound_on_the_bias_is_measured_against_the_noise_and_never_refuses(times, status):
    estimate = ANSWER.of("SNDR", 0)
    half = estimate.interval().width / 2
    bounded = dataclasses.replace(
        estimate, diagnostics=dataclasses.replace(estimate.diagnostics, bias_bound=times * half)
    )
    found = judge(ANSWER, 0, [bounded], "SNDR")
    assert next(each for each in found.checks if each.name == "bias").status == status
    unbounded = judge(ANSWER, 0, [estimate], "SNDR")
    assert all(each.name != "bias" for each in unbounded.checks)


@given(st.lists(st.sampled_from(["pass", "unknown", "warn", "fail"]), min_size=1))
def test_the_worst_check_decides(statuses):
    checks = [Check(str(i), status, None, "x") for i, status in enumerate(statuses)]
    level = verdict_of("E", checks).level
    assert level == ("refuse" if "fail" in statuses else "caution" if "warn" in statuses else "ok")
    assert worst(checks) in ("pass", "warn", "fail")


def test_thresholds_are_checked_and_can_be_moved():
    with pytest.raises(InputError, match="must not come before"):
        Thresholds(effective_rows=(10, 100))
    with pytest.raises(InputError, match="must not come before"):
        Thresholds(tail_index=(1.0, 0.5))
    with pytest.raises(InputError, match="two numbers"):
        Thresholds(drift=(1.0, "x"))
    with pytest.raises(InputError, match="p_value"):
        Thresholds(p_value=2)
    strict = cael.evaluate(LOG, WORLD.target, thresholds=Thresholds(effective_rows=(10_000, 1000)), learn=False)
    assert strict.verdict.level == "refuse"
    compared = cael.compare(LOG, {"a": WORLD.target}, thresholds=Thresholds(effective_rows=(10_000, 1000)), learn=False)
    assert compared.verdict.level == "refuse"


def test_the_headline_can_be_chosen():
    found = cael.evaluate(LOG, WORLD.target, headline="SNIPS", learn=False)
    assert found.best.value == found["SNIPS"].value
    assert found.lift.value == pytest.approx(found["SNIPS"].value - LOG.rewards.mean(), abs=found.lift.stderr)
    assert found.verdict.estimator == "SNIPS"
    assert cael.evaluate(LOG, WORLD.target, cael.MIPS(), headline=cael.MIPS(), learn=False).headline == "MIPS"
    with pytest.raises(InputError, match="no estimate named 'XYZ'"):
        cael.evaluate(LOG, WORLD.target, headline="XYZ", learn=False)


def test_direction_and_lift():
    found = sound()
    assert (found.headline, found.direction) == ("Auto", "better")
    assert cael.evaluate(LOG, cael.Uniform(10), learn=False).direction == "worse"
    data = json.loads(found.to_json())
    assert data["lift"]["relative"] == pytest.approx(found.lift.value / found.baseline.value)
    assert data["verdict"]["level"] == "ok"
    assert data["overlap"]["counts"]
    assert data["fingerprint"] == LOG.fingerprint


def test_comparison_carries_a_verdict_for_each_policy():
    found = cael.compare(LOG, {"new": WORLD.target, "uniform": cael.Uniform(10)})
    assert found.verdict is found["new"].verdict
    assert {row.verdict.level for row in found} == {"ok"}
    data = found.to_dict()["policies"][0]
    assert (data["direction"], data["verdict"]["level"]) == ("better", "ok")
    hard = cael.worlds.PaperWorld(n_actions=200, gamma=-0.3)
    doubtful = cael.compare(hard.sample(1000, seed=0), {"new": hard.target}, learn=False)
    assert doubtful.verdict.level == "refuse"
    assert "carry the information of" in printed(doubtful)
    assert "carry the information of" in doubtful._repr_html_()


def test_compare_and_segments_take_policies_known_on_logged_actions_alone():
    only = cael.LoggedOnly(np.concatenate([WORLD.target.logged_probability(b) for b in LOG.batches(width=10)]))
    snips = cael.SNIPS().estimate(LOG, WORLD.target).value
    for learn, estimator in ((None, "Auto"), (False, "SNIPS")):  # Auto has SNIPS alone to choose from
        found = cael.compare(LOG, {"new": only}, learn=learn)
        assert (found.estimator, found["new"].estimate.value) == (estimator, snips)
        assert cael.segments(LOG, only, np.arange(3000) % 3, learn=learn).estimator == estimator
    with pytest.raises(cael.NeedsError, match="SNDR"):
        cael.compare(LOG, {"new": only}, cael.SNDR())


def test_verdicts_print():
    found = broken("rewards that drift")
    assert "verdict: caution" in printed(found)
    assert "describes the past" in printed(found.verdict).replace("\n", " ")
    assert "verdict: caution" in found._repr_html_()
    assert "caution" in repr(found.verdict)


def test_overlap_adds_up():
    found = sound().overlap
    assert sum(found.counts) == len(LOG)
    assert sum(found.shares) == pytest.approx(1)
    assert len(found.edges) == len(found.counts) + 1
    assert sum(each.target for each in found.actions) == pytest.approx(1)
    some_zero = cael.evaluate(LOG, cael.EpsilonGreedy(WORLD.q, 0.0), learn=False).overlap
    assert sum(some_zero.counts) + round(some_zero.zero_share * len(LOG)) == len(LOG)
