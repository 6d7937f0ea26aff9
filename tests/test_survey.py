"""The counts behind verdicts and audits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import cael
from cael.engine.asking import as_engine_log, ask
from cael.engine.columns import Surprise
from cael.judging.judge import survey_of
from cael.judging.likely import likeliness, moments_of, without_skew
from cael.judging.survey import (
    action_matters,
    count_p_values,
    depends_on_action,
    depends_on_contexts,
    drift_of,
    evenly,
    holm,
    inverse_means,
    permuted,
    time_blocks,
)
from cael.policies.policy import probabilities


def counted(log, policy=None):
    """The answer of a pass that only counts."""
    return ask(as_engine_log(log), {} if policy is None else {"": policy}, [])


def survey(log, policy=None):
    return survey_of(counted(log, policy), None if policy is None else 0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_step_down_procedure(values):
    p = np.array(values)
    adjusted = holm(p)
    order = sorted(range(len(p)), key=lambda i: p[i])
    running = 0.0
    for step, i in enumerate(order):
        running = max(running, (len(p) - step) * p[i])
        assert adjusted[i] == pytest.approx(min(1.0, running))
    assert (adjusted >= p - 1e-15).all()


def test_counts_are_compared_by_binomial_tails_when_few_and_by_z_when_many():
    p = count_p_values(np.array([4.0, 600.0]), np.array([0.5, 500.0]), np.array([0.4998, 450.0]), 5000)
    exact = 2 * stats.binom.sf(3, 5000, 0.5 / 5000)
    assert p[0] == pytest.approx(exact)
    assert p[1] == pytest.approx(2 * stats.norm.sf(100 / np.sqrt(450)))


def test_the_survey_agrees_with_a_dense_twin(log, policy):
    found = survey(log, policy)
    p = np.concatenate([log.logging.probabilities(b) for b in log.batches(width=8)])
    q = np.concatenate([policy.probabilities(b) for b in log.batches(width=8)])
    assert np.allclose(found.expected, p.sum(axis=0))
    assert np.allclose(found.variance, (p * (1 - p)).sum(axis=0))
    assert np.allclose(found.target, q.mean(axis=0))
    score = np.log(p[np.arange(len(log)), log.actions]) + stats.entropy(p, axis=1)
    answer = counted(log)
    assert np.allclose(answer.single(Surprise(relative=False)).rows, score)
    mean = np.log((p.sum(axis=0) + 1 / 8) / (len(log) + 1))
    assert np.allclose(answer.single(Surprise(relative=True)).rows, score - mean[log.actions] + p @ mean)
    only = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities, n_actions=8)
    bare = survey(only, cael.LoggedOnly(np.full(len(log), 0.2)))
    assert bare.expected is bare.target is None
    assert bare.logged.sum() == len(log)


def test_scores_average_zero_under_the_logging_policy_and_not_under_another():
    world = cael.worlds.IndependentWorld()
    sound, moved = [], []
    for seed in range(60):
        log = world.sample(1500, seed)
        order = np.random.default_rng(seed).permutation(1500)
        shuffled = cael.LoggedData(
            log.contexts, log.actions[order], log.rewards, logging=log.logging, n_actions=log.n_actions
        )
        sound.append(likeliness(counted(log))[1])
        moved.append(likeliness(counted(shuffled))[1])
    assert np.mean(np.array(sound) < 0.05) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 60)
    assert np.mean(np.array(moved) < 0.001) > 0.95
    only = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities)
    assert likeliness(counted(only)) is None


def test_few_rows_of_a_careful_policy_are_not_unlikely():
    """Epsilon-greedy with 5%: one log of 50 rows in ten explores nowhere, which the rows alone take for impossible."""
    rng, p = np.random.default_rng(3), np.append(0.955, np.full(9, 0.005))
    sound = [cael.LoggedData(None, rng.choice(10, 50, p=p), rng.random(50), logging=p) for _ in range(150)]
    assert sum(len(np.unique(log.actions)) == 1 for log in sound) > 5
    assert min(likeliness(counted(log))[1] for log in sound) > 0.01
    other = cael.LoggedData(None, rng.integers(0, 10, 50), rng.random(50), logging=p)
    assert likeliness(counted(other))[1] < 1e-6


def test_moments_of_surprises_are_those_of_many_draws(log):
    answer = counted(log)
    p = np.concatenate([probabilities(log.logging, batch) for batch in log.batches(width=log.n_actions)])
    score = np.log(p) + stats.entropy(p, axis=1)[:, None]
    popular = np.log((p.sum(axis=0) + 1 / log.n_actions) / (len(log) + 1))
    rest = score - popular + (p @ popular)[:, None]
    expected = [[(p * each**power).sum(axis=1).mean() for power in (2, 3)] for each in (score, rest)]
    np.testing.assert_allclose(moments_of(answer), expected, rtol=1e-9)


def test_a_skewed_quantile_is_taken_for_a_nearer_normal_one():
    assert without_skew(3.0, 0.0) == 3.0
    f = without_skew(3.0, 0.6)
    assert f + 0.6 * (f**2 - 1) / 6 == pytest.approx(3.0) and f < 3.0
    assert without_skew(0.5, 0.6) == 0.5


def test_clusters_widen_what_counts_may_vary_by(log):
    alone = survey(log).variance
    together = cael.LoggedData(
        log.contexts, log.actions, log.rewards, logging=log.logging, clusters=np.arange(len(log)) // 4
    )
    assert np.allclose(survey(together).variance, 4 * alone)


def means(log):
    answer = counted(log)
    sums = answer.partial.actions
    mean, _, error = inverse_means(sums.inverse, sums.squares, sums.eligible, answer.n, answer.cluster_effect)
    return mean, error


def test_inverse_means_are_one_where_the_propensities_are_right():
    log = cael.worlds.PaperWorld(n_actions=6, gamma=0.2).sample(20_000, seed=0)
    mean, error = means(log)
    assert (np.abs(mean - 1) < 4.5 * error).all()
    halved = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities / 2)
    assert np.allclose(means(halved)[0], 2 * mean)


def test_time_blocks_follow_the_timestamps():
    log = cael.LoggedData(None, [0] * 6, np.arange(6.0), [0.5] * 6, timestamps=[6, 5, 4, 3, 2, 1])
    assert time_blocks(log, 3).tolist() == [2, 2, 1, 1, 0, 0]


NOISES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "rare": lambda rng, n: (rng.random(n) < 0.01).astype(float),
    "heavy": lambda rng, n: rng.standard_t(2, n),
    "revenue": lambda rng, n: (rng.random(n) < 0.05) * np.exp(1.5 * rng.normal(size=n)),
}


def no_more_than(p, level):
    """Whether p-values reject as often as their level says, within four Monte Carlo errors."""
    return (np.array(p) <= level).mean() < level + 4 * np.sqrt(level * (1 - level) / len(p))


def drift(values):
    """Of 1000 values in 200 stretches and ten blocks."""
    return drift_of(np.full(200, 5.0), values.reshape(200, 5).mean(axis=1), np.arange(200) // 20)


@pytest.mark.parametrize("noise", NOISES)
def test_drift_keeps_its_level_whatever_the_tails(noise):
    rng = np.random.default_rng(0)
    p = [drift(NOISES[noise](rng, 1000))[1] for _ in range(300)]
    assert no_more_than(p, 0.05)
    assert no_more_than(p, 0.005)


def test_drift_sees_a_trend_and_a_stretch_that_is_off():
    rng = np.random.default_rng(0)
    change, p = drift(rng.normal(size=1000) + np.linspace(0, 0.6, 1000))
    assert p < 1e-3
    assert 0 < change < 0.6
    off = rng.normal(size=1000)
    off[400:500] += 1
    assert drift(off)[1] < 0.01
    assert drift_of(np.full(200, 5.0), off.reshape(200, 5).mean(axis=1), np.arange(200) // 20, factor=100.0)[1] > 0.01


def test_a_p_value_is_the_rank_of_the_first():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(200, 3))
    scaled = ((draws - draws.mean(axis=0)) / draws.std(axis=0)).max(axis=1)
    assert permuted(draws) == pytest.approx((scaled >= scaled[0]).mean())
    assert permuted(np.ones((200, 3))) == 1.0  # nothing varies
    draws[0, 1] = 50.0
    assert 0 < permuted(draws) < 1e-4 < 1 / 200


def shuffled_log(rng, noise, n=2000, k=10):
    """Rewards that depend on the contexts and not on the actions."""
    x = rng.normal(size=(n, 3))
    rewards = NOISES[noise](rng, n) * np.exp(0.5 * x[:, 0])
    return cael.LoggedData(x, rng.integers(0, k, n), rewards, np.full(n, 1 / k), n_actions=k)


@pytest.mark.parametrize("noise", NOISES)
def test_rewards_that_do_not_depend_on_actions_are_said_to_at_the_level(noise):
    rng = np.random.default_rng(1)
    p = []
    for _ in range(150):
        log = shuffled_log(rng, noise)
        p.append(depends_on_action(log.rewards, log))
    assert no_more_than(p, 0.05)


def test_z_of_each_action_alone_would_not_keep_the_level():
    """The negative control: self-normalised sums reject nearly every log of rare rewards."""
    rng, rejected = np.random.default_rng(1), []
    for _ in range(50):
        r, a = NOISES["rare"](rng, 2000), rng.integers(0, 10, 2000)
        sums, squares = (np.bincount(a, weights=(r - r.mean()) ** power, minlength=10) for power in (1, 2))
        rejected.append(stats.chi2.sf((sums**2 / squares).sum(), 10) <= 0.05)
    assert np.mean(rejected) > 0.3


@pytest.mark.parametrize("noise", NOISES)
def test_rewards_that_depend_on_actions_are_seen_whatever_their_noise(noise):
    rng = np.random.default_rng(2)
    log = shuffled_log(rng, noise, k=4)
    better = np.where((log.actions == 0) & (rng.random(2000) < 0.3), np.abs(log.rewards) + 1, log.rewards)
    assert depends_on_action(better, log) < 1e-3
    only = better * np.sign(log.contexts[:, 1]) if noise == "normal" else better  # the effect has another sign
    assert depends_on_action(only, log) < 1e-3


def test_rewards_need_rows_and_actions():
    log = cael.worlds.PaperWorld(n_actions=10).sample(2000, seed=3)
    assert depends_on_action(log.rewards, log) < 1e-6
    bare = cael.LoggedData(None, log.actions, log.actions % 2 + 0.0, log.propensities)
    assert depends_on_action(bare.rewards, bare) < 1e-6
    assert depends_on_action(log.rewards, log.take(np.arange(100))) is None
    single = cael.LoggedData(None, np.zeros(1000, int), np.arange(1000.0), np.full(1000, 0.5), n_actions=2)
    assert depends_on_action(single.rewards, single) is None
    exact = cael.LoggedData(log.contexts, log.actions, log.contexts[:, 0] + 1, log.propensities)
    assert depends_on_action(exact.rewards, exact) == 1.0  # contexts explain all


def test_dependence_on_contexts_is_seen_in_means_and_in_squares():
    rng = np.random.default_rng(0)
    log = shuffled_log(rng, "normal")
    assert depends_on_contexts(log.contexts[:, 1] ** 2 + rng.normal(size=2000), log) < 1e-6
    assert no_more_than([depends_on_contexts(NOISES["revenue"](rng, 2000), log) for _ in range(200)], 0.05)
    assert depends_on_contexts(log.rewards, cael.LoggedData(None, log.actions, log.rewards, log.propensities)) == 1.0


def test_some_rows_stand_for_many():
    assert evenly(5, 10).tolist() == [0, 1, 2, 3, 4]
    assert evenly(1000, 3).tolist() == [0, 499, 999]


def test_propensities_that_belong_to_other_rows_are_seen():
    log = cael.worlds.PaperWorld(n_actions=10, gamma=0.3).sample(2000, seed=3)
    assert action_matters(log) < 1e-6
    order = np.random.default_rng(0).permutation(2000)
    moved = cael.LoggedData(log.contexts, log.actions[order], log.rewards, log.propensities, n_actions=10)
    assert action_matters(moved) > 0.01
    assert action_matters(cael.worlds.PaperWorld(n_actions=10).sample(2000, seed=3)) is None  # uniform: nothing to see
