"""The paper's synthetic world."""

import numpy as np
import pytest
from scipy.integrate import quad

import cael
from cael.worlds import PaperWorld, World


def greedy_value(k):
    """The value of always playing the best action, cell by cell with adaptive quadrature."""
    edges = [0.0, *((np.arange(1, k) + 0.5) / k), 1.0]
    best = np.arange(1, k + 1) / k
    cells = zip(edges[:-1], edges[1:], best, strict=True)
    return sum(quad(lambda x, a=a: 10 * np.exp(-((x - a) ** 2)), low, high)[0] for low, high, a in cells)


def uniform_value(k):
    return np.mean([quad(lambda x, a=a: 10 * np.exp(-((x - a) ** 2)), 0, 1)[0] for a in np.arange(1, k + 1) / k])


def test_the_default_target_is_worth_what_the_notes_say():
    world = PaperWorld()
    assert world.value(world.target) == pytest.approx(9.72305, abs=5e-6)


@pytest.mark.parametrize("k", [2, 7, 500])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
def test_value_equals_adaptive_quadrature(k, epsilon):
    world = PaperWorld(n_actions=k, epsilon=epsilon)
    expected = (1 - epsilon) * greedy_value(k) + epsilon * uniform_value(k)
    assert world.value(world.target) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("gamma", [-1.0, 0.0, 1.0])
def test_the_mean_reward_of_a_long_log_is_the_value_of_the_logging_policy(gamma):
    world = PaperWorld(n_actions=20, gamma=gamma)
    log = world.sample(200_000, seed=4)
    found = cael.LoggedMean().estimate(log, world.target)
    assert abs(found.value - world.value(world.logging)) < 4 * found.stderr


def test_actions_follow_the_logging_policy():
    world = PaperWorld(n_actions=4, gamma=0.5)
    log = world.sample(100_000, seed=2)
    p = np.concatenate([cael.policies.policy.probabilities(log.logging, b) for b in log.batches(4)])
    counts, expected = np.bincount(log.actions, minlength=4), p.sum(axis=0)
    error = np.sqrt((p * (1 - p)).sum(axis=0))
    assert (np.abs(counts - expected) < 4 * error).all()


def test_logs_are_reproducible_and_differ_by_seed():
    world = PaperWorld(n_actions=10)
    assert world.sample(50, 1).fingerprint == world.sample(50, 1).fingerprint
    assert world.sample(50, 1).fingerprint != world.sample(50, 2).fingerprint
    np.testing.assert_array_equal(world.sample(50, 1).action_features, world.sample(50, 2).action_features)


def test_first_action_component_is_a_over_k():
    world = PaperWorld(n_actions=10)
    np.testing.assert_allclose(world.action_features[:, 0], np.arange(1, 11) / 10)
    assert world.action_features.shape == (10, 10)
    assert PaperWorld(n_actions=10, action_dim=3).action_features.shape == (10, 3)


def test_a_policy_that_looks_at_other_coordinates_is_integrated_too():
    """Plays action 0 if x_2 < 0.5 and action 9 otherwise: half the value of each."""
    world = PaperWorld(n_actions=10)
    both = cael.FromModel(lambda x: np.eye(10)[np.where(x[:, 1] < 0.5, 0, 9)])
    one, nine = (world.value(cael.Tabular(np.eye(10)[a])) for a in (0, 9))
    assert world.value(both) == pytest.approx((one + nine) / 2, abs=0.02)


def test_it_is_a_world():
    assert isinstance(PaperWorld(), World)
    for bad in ({"n_actions": 1}, {"reward_std": -1.0}, {"gamma": np.nan}, {"context_dim": 0}):
        with pytest.raises(cael.InputError):
            PaperWorld(**bad)
