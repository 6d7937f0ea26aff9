"""Every world of the suite: truth against brute force, logs that follow it, and what each world is there for."""

import pickle
from itertools import product

import numpy as np
import pytest

import cael
from cael.policies.policy import probabilities
from cael.worlds import (
    ClassificationWorld,
    DeficientWorld,
    DenseWorld,
    EmbeddingWorld,
    IndependentWorld,
    OffCEMWorld,
    World,
    suite,
)

SMALL = {
    "linear": EmbeddingWorld(n_actions=6, context_dim=3, dims=2, categories=3, population=40, gamma=-0.5),
    "logistic": EmbeddingWorld(n_actions=6, context_dim=3, dims=2, categories=3, population=40, reward="logistic"),
    "sparse": EmbeddingWorld(n_actions=6, context_dim=3, dims=2, categories=3, population=40, reward="sparse"),
    "drawn": EmbeddingWorld(n_actions=6, context_dim=3, dims=2, categories=3, population=40, drawn=True, hidden=1),
    "drawn-logistic": EmbeddingWorld(
        n_actions=6, context_dim=3, dims=2, categories=3, population=40, drawn=True, reward="logistic", gamma=1.0
    ),
    "defects": EmbeddingWorld(n_actions=6, context_dim=3, dims=2, categories=3, population=40, obp_defects=True),
    "independent": IndependentWorld(n_actions=7, population=40, gamma=0.3),
    "dense": DenseWorld(n_actions=7, context_dim=3, feature_dim=4, population=40, gamma=0.4),
    "offcem": OffCEMWorld(n_actions=9, context_dim=6, n_clusters=3, dims=2, categories=3, population=40, gamma=0.1),
    "digits": ClassificationWorld(),
    "deficient": DeficientWorld(n_actions=12, action_dim=3),
}


def contexts_of(world):
    """The population, found by sampling so much that every member appears."""
    return np.unique(world.sample(4000, seed=9).contexts, axis=0)


def brute_force(world, policy, contexts):
    """The value by plain loops over contexts and actions."""
    total = 0.0
    for x in contexts:
        log = cael.LoggedData(np.stack([x, x]), [0, 0], [0.0, 0.0], [1.0, 1.0], n_actions=world.n_actions)
        (batch,) = log.batches()
        p, q = probabilities(policy, batch)[0], world.q(x[None])[0]
        for a in range(world.n_actions):
            total += p[a] * q[a]
    return total / len(contexts)


@pytest.mark.parametrize(
    "name", ["linear", "logistic", "sparse", "drawn", "drawn-logistic", "independent", "dense", "offcem"]
)
def test_value_is_the_sum_over_contexts_and_actions(name):
    world = SMALL[name]
    contexts = contexts_of(world)
    assert len(contexts) == 40
    for policy in (world.target, world.logging):
        assert world.value(policy) == pytest.approx(brute_force(world, policy, contexts), rel=1e-12)


@pytest.mark.parametrize("name", ["linear", "logistic", "drawn", "drawn-logistic"])
def test_the_mean_reward_of_an_action_sums_over_all_its_embeddings(name):
    world = SMALL[name]
    x = contexts_of(world)[:5]
    expected = np.zeros((5, 6))
    for a, codes in product(range(6), product(range(3), repeat=2)):
        chance = world.density[a, 0, codes[0]] * world.density[a, 1, codes[1]]
        score = world.scores(x)[:, 0, codes[0]] + world.scores(x)[:, 1, codes[1]]
        expected[:, a] += chance * (1 / (1 + np.exp(-score)) if world.reward == "logistic" else score)
    np.testing.assert_allclose(world.q(x), expected, rtol=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_a_long_log_agrees_with_the_truth(name):
    """The mean reward is the logging policy's value, and the weighted one the target's where it has support."""
    world = SMALL[name]
    log = world.sample(60_000, seed=3)
    mean = cael.LoggedMean().estimate(log, world.target)
    weighted = cael.IPS().estimate(log, world.target)
    assert abs(mean.value - world.value(world.logging)) < 4 * mean.stderr
    if name != "deficient":
        assert abs(weighted.value - world.value(world.target)) < 4 * weighted.stderr


@pytest.mark.parametrize("name", SMALL)
def test_logs_are_reproducible_pickle_and_differ_by_seed(name):
    world = SMALL[name]
    again = pickle.loads(pickle.dumps(world))
    assert isinstance(world, World) and again == world
    assert world.sample(50, 1).fingerprint == again.sample(50, 1).fingerprint != world.sample(50, 2).fingerprint


def test_scores_are_standardised_over_the_population():
    world = EmbeddingWorld(n_actions=6, population=300)
    scores = world.scores(contexts_of(world)) / world._made.importance[:, None]
    np.testing.assert_allclose(scores.mean(axis=(0, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(scores.std(axis=(0, 2)), 1, rtol=1e-12)


def test_the_defects_of_obp_are_there_when_asked_for():
    """Scores are off their scale, and two logs of a uniform policy hold the same actions."""
    world = EmbeddingWorld(n_actions=6, population=300, obp_defects=True, gamma=0.0, drawn=True)
    scores = world.scores(contexts_of(world)) / world._made.importance[:, None]
    assert np.abs(scores.std(axis=(0, 2)) - 1).max() > 0.05
    (one, e_one), (two, e_two) = world.sample_embeddings(200, 1), world.sample_embeddings(200, 2)
    np.testing.assert_array_equal(one.actions, two.actions)
    np.testing.assert_array_equal(e_one, e_two)
    assert not np.array_equal(one.contexts, two.contexts)
    right = EmbeddingWorld(n_actions=6, population=300, gamma=0.0)
    assert not np.array_equal(right.sample(200, 1).actions, right.sample(200, 2).actions)


def test_true_marginal_weights_are_unbiased_on_drawn_embeddings():
    """MIPS with the world's own p(e|a) hits the truth, since the reward depends on the action through e alone."""
    world = EmbeddingWorld(n_actions=30, population=200, drawn=True, gamma=0.0, epsilon=0.3)
    log, codes = world.sample_embeddings(60_000, seed=1)
    density = [world.density[:, d] for d in range(world.dims)]
    found = cael.MIPS(row_embeddings=codes, density=density, posterior="exact").estimate(log, world.target)
    assert abs(found.value - world.value(world.target)) < 4 * found.stderr
    assert found.stderr < cael.IPS().estimate(log, world.target).stderr


def test_hidden_dimensions_are_not_in_the_features():
    shown = EmbeddingWorld(n_actions=6, dims=3, categories=4, population=20).action_features
    part = EmbeddingWorld(n_actions=6, dims=3, categories=4, population=20, hidden=1).action_features
    np.testing.assert_array_equal(part, shown[:, :8])


def test_the_actions_of_a_cluster_differ_by_a_residual_that_is_linear_in_the_context():
    """Of all that is not linear, they share one function; the others have another."""
    world = OffCEMWorld(n_actions=30, n_clusters=3, population=150)
    x = contexts_of(world)
    q, linear = world.q(x), np.column_stack([np.ones(150), x])
    bent = q - linear @ np.linalg.lstsq(linear, q, rcond=None)[0]
    for cluster in range(3):
        members = world.clusters == cluster
        residual = q[:, members] - world.effects(x)[:, [cluster]]
        assert residual.mean() == pytest.approx(0, abs=1e-9) and residual.std() == pytest.approx(1)
        np.testing.assert_allclose(bent[:, members] - bent[:, members][:, :1], 0, atol=1e-9)
    first = [np.flatnonzero(world.clusters == cluster)[0] for cluster in range(3)]
    assert np.abs(bent[:, first[0]] - bent[:, first[1]]).max() > 0.1


def test_the_effect_of_a_cluster_is_a_cubic_polynomial_and_four_steps():
    """The steps by loops, from the authors' definition; the monomials are scikit-learn's, whose effect has spread 3."""
    from sklearn.preprocessing import PolynomialFeatures

    from cael.worlds.clustered import polynomial

    world = OffCEMWorld(n_actions=30, n_clusters=4, population=150)
    x, (a, b, c, d) = contexts_of(world), world._made.steps
    np.testing.assert_allclose(polynomial(x), PolynomialFeatures(3).fit_transform(x), rtol=1e-12)
    steps = [
        a * (1 / row[:3].mean() < 1.5) + b * (1 / row[2:8].mean() < -0.5) + c * (row[1:3].mean() > 3)
        + d * (row[5:].mean() < 1)
        for row in x
    ]  # fmt: skip
    smooth = world.effects(x) - np.array(steps)[:, None]
    assert smooth.mean() == pytest.approx(0, abs=1e-9) and smooth.std() == pytest.approx(3)
    np.testing.assert_allclose(smooth, PolynomialFeatures(3).fit_transform(x) @ world._made.effect, atol=1e-9)


def test_the_clusters_of_the_offcem_world_are_of_all_sizes_and_none_is_left_out():
    world = OffCEMWorld(n_actions=400, n_clusters=20, population=10)
    assert set(world.clusters) == set(range(20)) and np.bincount(world.clusters).max() < 60
    assert set(OffCEMWorld(n_actions=5, n_clusters=1, population=10).clusters) == {0}


def test_missing_actions_are_never_logged_and_the_target_plays_them():
    world = SMALL["deficient"]
    log = world.sample(3000, seed=0)
    assert set(log.actions) == set(np.flatnonzero(world.supported)) and (~world.supported).sum() == 3
    assert cael.IPS().estimate(log, world.target).diagnostics.unsupported_mass > 0.1
    assert world.value(world.target) == pytest.approx(world._whole.value(world.target))


def test_classes_are_right_or_wrong():
    world = ClassificationWorld(flip=0.0, epsilon=0.0)
    log = world.sample(20_000, seed=0)
    assert set(np.unique(log.rewards)) == {0.0, 1.0}
    assert log.n_actions == 10 and len(world.labels) == 899
    assert world.value(world.logging) < world.value(world.target) < 1
    assert world.value(cael.Uniform(10)) == pytest.approx(0.1)
    flipped = ClassificationWorld(flip=0.2, epsilon=0.0)
    assert flipped.value(flipped.target) == pytest.approx(0.2 + 0.6 * world.value(world.target))


def test_the_suite_is_what_it_says():
    names = {"paper", "embedding-linear", "embedding-logistic", "embedding-sparse", "embedding-drawn", "independent"}
    assert set(suite()) == names | {"digits", "deficient", "dense"}
    assert set(suite(fetched=True)) - set(suite()) == {"letter", "penbased", "satimage", "optdigits"}


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (EmbeddingWorld, {"reward": "cubic"}),
        (EmbeddingWorld, {"hidden": 3}),
        (EmbeddingWorld, {"gamma": np.inf}),
        (EmbeddingWorld, {"reward_std": -1.0}),
        (IndependentWorld, {"epsilon": 1.5}),
        (DenseWorld, {"feature_dim": 0}),
        (OffCEMWorld, {"context_dim": 5}),
        (OffCEMWorld, {"n_clusters": 0}),
        (DeficientWorld, {"missing": 0.0}),
        (DeficientWorld, {"n_actions": 3, "missing": 0.01}),
        (ClassificationWorld, {"data": "mnist"}),
        (ClassificationWorld, {"logging_epsilon": 0.0}),
        (ClassificationWorld, {"weak": 0.0}),
    ],
)
def test_wrong_settings_are_refused(kind, bad):
    with pytest.raises(cael.InputError):
        kind(**bad)
