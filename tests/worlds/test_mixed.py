"""Worlds put together from parts: every part against brute force and long logs, and the random population."""

import pickle
from collections import Counter

import numpy as np
import pytest

import cael
from cael.policies.policy import logged_probability, probabilities
from cael.worlds import LearningWorld, MixedWorld, Play, World, random_world, wide
from cael.worlds.mixed import NOISES, PLAYS, SHAPES

SMALL = {
    **{shape: MixedWorld(shape, n_actions=7, population=40, feature_dim=8, context_share=0.4) for shape in SHAPES},
    **{noise: MixedWorld("items", noise, n_actions=6, population=40, rate=0.3) for noise in NOISES},
    **{
        f"from {kind}": MixedWorld(n_actions=6, population=40, logging_play=Play(kind, 0.4, 0.5))
        for kind in PLAYS
        if kind != "near"
    },
    **{f"to {kind}": MixedWorld(n_actions=6, population=40, target_play=Play(kind, 0.4, -0.5)) for kind in PLAYS},
}


def everyone(world):
    """The population as a batch, by sampling so much that every member appears."""
    contexts = np.unique(world.sample(4000, seed=9).contexts, axis=0)
    (batch,) = cael.LoggedData(contexts, np.zeros(40), np.zeros(40), np.ones(40), n_actions=world.n_actions).batches()
    return batch


def weights(log, policy):
    return np.concatenate([logged_probability(policy, rows) / rows.propensities for rows in log.batches()])


@pytest.mark.parametrize("name", SMALL)
def test_value_is_the_mean_over_the_population(name):
    world = SMALL[name]
    batch = everyone(world)
    assert len(batch) == 40
    for policy in (world.target, world.logging):
        expected = (probabilities(policy, batch) * world.q(batch.contexts)).sum(axis=1).mean()
        assert world.value(policy) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", SMALL)
def test_a_long_log_agrees_with_the_truth(name):
    world = SMALL[name]
    log = world.sample(40_000, seed=3)
    mean, weighted = cael.LoggedMean().estimate(log, world.target), cael.IPS().estimate(log, world.target)
    assert abs(mean.value - world.value(world.logging)) < 4 * mean.stderr
    assert abs(weighted.value - world.value(world.target)) < 4 * weighted.stderr
    assert abs(weighted.value - world.value(world.target) - 0.5) > 4 * weighted.stderr  # what a wrong truth looks like


@pytest.mark.parametrize("name", SMALL)
def test_logs_are_reproducible_and_pickle(name):
    world = SMALL[name]
    before = world.sample(50, 1).fingerprint
    again = pickle.loads(pickle.dumps(world))
    assert isinstance(world, World) and again == world
    assert again.sample(50, 1).fingerprint == before != world.sample(50, 2).fingerprint


@pytest.mark.parametrize("shape", SHAPES)
def test_each_part_of_the_score_is_standardised(shape):
    tables = {}
    for share in (0.0, 0.4, 1.0):
        world = MixedWorld(shape, n_actions=30, population=1000, context_share=share)
        tables[share] = world.scores(world._population.contexts)
    action, context = tables[0.0], tables[1.0]
    np.testing.assert_allclose([action.mean(), action.var()], [0, shape != "none"], atol=1e-12)
    np.testing.assert_allclose([context.mean(), context.std(axis=1).max()], [0, 0], atol=0.1)
    assert context.var() == pytest.approx(1, abs=0.15)
    np.testing.assert_allclose(tables[0.4], np.sqrt(0.6) * action + np.sqrt(0.4) * context, atol=1e-12)


def test_sight_is_the_correlation_with_the_true_score():
    world = MixedWorld("linear", n_actions=200, population=500)
    contexts = world._population.contexts
    true = world.scores(contexts).ravel()
    for sight in (-1.0, 0.0, 0.5, 1.0):
        seen = world.scores(contexts, sight).ravel()
        assert np.corrcoef(true, seen)[0, 1] == pytest.approx(sight, abs=0.1)


@pytest.mark.parametrize(("noise", "values"), [("clicks", "in {0, 1}"), ("revenue", "mostly 0"), ("counts", "whole")])
def test_rewards_are_of_their_kind(noise, values):
    rewards = MixedWorld("items", noise, population=50, rate=0.05).sample(3000, 0).rewards
    assert {
        "in {0, 1}": set(rewards) == {0.0, 1.0},
        "mostly 0": 0.9 < (rewards == 0).mean() < 0.97 and len(set(rewards)) > 50,
        "whole": (rewards == rewards.round()).all() and rewards.max() > 1,
    }[values]


def test_features_say_what_lies_behind_the_reward_or_nothing():
    """Least squares of an action's mean scores on its features: right for clusters, no better than chance for items."""
    explained = {}
    for shape in ("clusters", "items"):
        world = MixedWorld(shape, n_actions=200, population=200, feature_dim=8)
        table = world.scores(world._population.contexts)
        centred = (table - table.mean(axis=1, keepdims=True)).T
        design = np.column_stack([world.action_features, np.ones(200)])
        left = centred - design @ np.linalg.lstsq(design, centred, rcond=None)[0]
        explained[shape] = 1 - left.var() / centred.var()
    assert explained["clusters"] > 0.15 > 0.1 > explained["items"]


def test_a_learning_policy_learns_and_its_log_is_honest():
    world = LearningWorld(MixedWorld("items", n_actions=5, population=50, context_share=0.2))
    log = world.sample(20_000, seed=1)
    table = np.asarray(log.logging.table)
    np.testing.assert_allclose(table.sum(axis=1), 1)
    assert (table[:2000] == 0.2).all() and (table >= 0.1 / 5 - 1e-12).all()
    assert log.rewards[-2000:].mean() > log.rewards[:2000].mean() + 0.3
    counts, expected = np.bincount(log.actions, minlength=5), table.sum(axis=0)
    assert (np.abs(counts - expected) < 4 * np.sqrt((table * (1 - table)).sum(axis=0))).all()
    found = cael.IPS().estimate(log, world.target)
    assert abs(found.value - world.value(world.target)) < 4 * found.stderr
    assert log.fingerprint == world.sample(20_000, seed=1).fingerprint != world.sample(20_000, seed=2).fingerprint


def test_the_list_has_what_the_issue_asks_for():
    names = {"rare arm", "rare clicks, equal arms", "revenue", "A/B test", "A/B test, 100,000 rows", "learning policy"}
    names |= {"near the logging policy", "epsilon-greedy, 5%", "actions do not matter", "1,000 clustered actions"}
    names |= {"3 of 50 features", "item effects, n about k", "independent linear", "action features", "personalised"}
    assert names <= set(wide())


def test_rare_worlds_are_rare():
    world, rows = wide()["rare clicks, equal arms"]
    assert world.value(world.target) == pytest.approx(0.005) == world.value(world.logging)
    world, rows = wide()["revenue"]
    assert 0.93 < (world.sample(rows, 0).rewards == 0).mean() < 0.97
    world, rows = wide()["rare arm"]
    log = world.sample(rows, 0)
    assert (log.actions == log.n_actions - 1).mean() == pytest.approx(0.01, abs=0.01)
    assert 10 < rows / (weights(log, world.target) ** 2).mean() < 40


def test_the_population_is_varied():
    """Seven shapes and four of each other kind at least, and every class of overlap."""
    drawn = [random_world(seed) for seed in range(120)]
    assert drawn == [random_world(seed) for seed in range(120)]
    worlds = [world for world, _ in drawn]
    assert len({world.shape for world in worlds}) >= 7 and len({world.noise for world in worlds}) >= 4
    assert len({world.logging_play.kind for world in worlds}) >= 4
    assert len({world.target_play.kind for world in worlds}) >= 4
    assert {world.feature_dim > 0 for world in worlds} == {True, False}
    assert min(rows for _, rows in drawn) < 800 < 4000 < max(rows for _, rows in drawn)
    sizes = [rows / (weights(world.sample(rows, 0), world.target) ** 2).mean() for world, rows in drawn]
    classes = Counter(np.digitize(sizes, [10, 100]))
    assert min(classes[0], classes[1], classes[2]) >= 4, classes


@pytest.mark.parametrize(
    "settings",
    [
        {"shape": "cubic"},
        {"noise": "loud"},
        {"context_share": 1.5},
        {"logging_play": Play("near", 0.1)},
        {"reward_std": -1.0},
    ],
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(cael.InputError):
        MixedWorld(**settings)


def test_a_wrong_play_is_refused():
    with pytest.raises(cael.InputError):
        Play("best")
    with pytest.raises(cael.InputError):
        Play("greedy", 0.1, sight=2.0)
