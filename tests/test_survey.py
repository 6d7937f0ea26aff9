"""The counts behind verdicts and audits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import cael
from cael.engine.asking import as_engine_log, ask
from cael.engine.columns import Surprise
from cael.judging.judge import likeliness, survey_of
from cael.judging.survey import (
    action_matters,
    count_p_values,
    depends_on_action,
    drift_of,
    evenly,
    holm,
    inverse_means,
    time_blocks,
)


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


def test_clusters_widen_what_counts_may_vary_by(log):
    alone = survey(log).variance
    together = cael.LoggedData(
        log.contexts, log.actions, log.rewards, logging=log.logging, clusters=np.arange(len(log)) // 4
    )
    assert np.allclose(survey(together).variance, 4 * alone)


def means(log):
    answer = counted(log)
    sums = answer.partial.actions
    return inverse_means(sums.inverse, sums.squares, answer.n, answer.cluster_effect)


def test_inverse_means_are_one_where_the_propensities_are_right():
    log = cael.worlds.PaperWorld(n_actions=6, gamma=0.2).sample(20_000, seed=0)
    mean, error = means(log)
    assert (np.abs(mean - 1) < 4.5 * error).all()
    halved = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities / 2)
    assert np.allclose(means(halved)[0], 2 * mean)


def test_time_blocks_follow_the_timestamps():
    log = cael.LoggedData(None, [0] * 6, np.arange(6.0), [0.5] * 6, timestamps=[6, 5, 4, 3, 2, 1])
    assert time_blocks(log, 3).tolist() == [2, 2, 1, 1, 0, 0]


def test_drift_sees_a_trend_and_keeps_its_level():
    rng = np.random.default_rng(0)

    def drift(values):
        blocks = values.reshape(10, 100)
        return drift_of(np.full(10, 100.0), blocks.mean(axis=1), blocks.var(axis=1, ddof=1) / 100)

    p = np.array([drift(rng.exponential(size=1000))[1] for _ in range(1000)])
    assert abs((p < 0.05).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1000)
    change, found = drift(rng.normal(size=1000) + np.linspace(0, 0.6, 1000))
    assert found < 1e-3
    assert 0 < change < 0.6


def test_rewards_that_do_not_depend_on_actions():
    log = cael.worlds.PaperWorld(n_actions=10).sample(2000, seed=3)
    assert depends_on_action(log.rewards, log) < 1e-6
    rng = np.random.default_rng(0)
    p = np.array([depends_on_action(rng.exponential(size=2000), log) for _ in range(300)])
    assert (p < 0.05).mean() < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 300)
    only = cael.LoggedData(None, log.actions, log.actions + rng.normal(size=2000), log.propensities)
    assert depends_on_action(only.rewards, only) < 1e-6
    assert depends_on_action(log.rewards, log.take(np.arange(100))) is None


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
