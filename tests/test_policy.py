"""Policies: what they compute, and what they refuse."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import cael
from cael import InputError, NeedsError, PolicyError
from cael.policies.given import as_policy
from cael.policies.policy import logged_probability, probabilities

LOG = cael.LoggedData([[0.0], [1.0], [2.0]], [0, 1, 2], [1.0, 2.0, 3.0], logging=np.full((3, 3), 1 / 3))


def table(policy, log=LOG):
    (batch,) = log.batches()
    return probabilities(policy, batch)


def test_softmax():
    scores = np.array([[0.0, 1.0, 2.0], [1000.0, 1001.0, 1002.0], [-5.0, -5.0, -5.0]])
    p = table(cael.Softmax(scores, temperature=0.5))
    expected = np.exp([0.0, 2.0, 4.0]) / np.exp([0.0, 2.0, 4.0]).sum()
    np.testing.assert_allclose(p, [expected, expected, [1 / 3] * 3])


def test_softmax_does_not_change_its_scores():
    def scores(contexts):
        return kept

    kept = np.array([[0.0, 1.0, 2.0]] * 3)
    policy = cael.Softmax(scores)
    np.testing.assert_array_equal(table(policy), table(policy))
    np.testing.assert_array_equal(kept, [[0.0, 1.0, 2.0]] * 3)


def test_epsilon_greedy_ties_go_to_the_first():
    p = table(cael.EpsilonGreedy([[0.0, 5.0, 1.0], [2.0, 2.0, 2.0], [0.0, 0.0, 1.0]], epsilon=0.3))
    np.testing.assert_allclose(p, [[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])


def test_top_k_rest_rules():
    lists, listed = [[0, 1], [2, -1], [1, 2]], [[0.5, 0.3], [0.4, 0.0], [0.6, 0.4]]
    with pytest.raises(PolicyError, match=r"must sum to 1; row 0 has 0.8 \(2 such rows: 0, 1\).*rest='uniform'"):
        cael.TopK(lists, listed, n_actions=3)
    spread = table(cael.TopK(lists, listed, n_actions=3, rest="uniform"))
    np.testing.assert_allclose(spread, [[0.5, 0.3, 0.2], [0.3, 0.3, 0.4], [0, 0.6, 0.4]], atol=1e-12)
    scaled = table(cael.TopK(lists, listed, n_actions=3, rest="renormalise"))
    np.testing.assert_allclose(scaled, [[0.625, 0.375, 0], [0, 0, 1], [0, 0.6, 0.4]], atol=1e-12)


@pytest.mark.parametrize(
    ("lists", "listed", "rest", "match"),
    [
        ([[0, 3]], [[0.5, 0.5]], "error", r"actions must be in 0..2"),
        ([[0, 0]], [[0.5, 0.5]], "error", r"listed twice; row 0"),
        ([[0, 1]], [[0.9, 0.9]], "uniform", r"sum to more than 1; row 0"),
        ([[0, 1]], [[-0.1, 0.9]], "uniform", r"must be in \[0, 1\]"),
        ([[0, 1, 2]], [[0.1, 0.1, 0.1]], "uniform", r"no unlisted action"),
        ([[-1]], [[0.0]], "renormalise", r"cannot renormalise"),
        ([0, 1], [0.5, 0.5], "error", r"shape \(n, m\)"),
    ],
)
def test_top_k_refuses(lists, listed, rest, match):
    with pytest.raises(PolicyError, match=match):
        cael.TopK(lists, listed, n_actions=3, rest=rest)


def test_a_bad_option_lists_the_allowed_ones():
    with pytest.raises(InputError, match="rest must be one of 'error', 'uniform', 'renormalise'; got 'drop'"):
        cael.TopK([[0]], [[1.0]], n_actions=3, rest="drop")


def test_mixture():
    p = table(cael.Mixture([cael.Uniform(3), cael.Tabular([1.0, 0.0, 0.0])], [0.3, 0.7]))
    np.testing.assert_allclose(p, [[0.8, 0.1, 0.1]] * 3)
    with pytest.raises(PolicyError, match=r"weights must be >= 0 and sum to 1"):
        cael.Mixture([cael.Uniform(3)], [0.5])
    with pytest.raises(PolicyError, match="differ in their number of actions"):
        cael.Mixture([cael.Uniform(3), cael.Uniform(4)], [0.5, 0.5])


def test_from_model_maps_classes_to_actions():
    model = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 2, 0, 2])
    p = table(cael.FromModel(model))
    np.testing.assert_array_equal(p[:, 1], 0)
    np.testing.assert_allclose(p[:, [0, 2]], model.predict_proba(LOG.contexts))
    names = LogisticRegression().fit([[0.0], [1.0]], ["a", "b"])
    with pytest.raises(
        PolicyError, match=r"classes of the model: expected actions of the log, 0, 1, 2 .*such as 'a', 'b'"
    ):
        table(cael.FromModel(names))
    with pytest.raises(InputError, match="is a int: expected a function"):
        cael.FromModel(3)


def test_rows_that_are_no_distribution_are_refused_with_row_numbers():
    with pytest.raises(PolicyError, match=r"sum to 1 .*; row 1 has 0.9 \(2 such rows: 1, 2\)"):
        cael.Tabular([[0.5, 0.5], [0.5, 0.4], [0.9, 0.0]])
    with pytest.raises(PolicyError, match=r">= 0 and not NaN; row 0 has -0.5"):
        cael.Tabular([[1.5, -0.5]])
    with pytest.raises(PolicyError, match=r"not NaN; row 0"):
        cael.Tabular([[np.nan, 1.0]])
    bad = cael.FromModel(lambda x: np.where(x > 0.5, 0.2, 1 / 3) * np.ones(3))
    with pytest.raises(PolicyError, match=r"row 1 has 0.6.* \(2 such rows: 1, 2\)"):
        table(bad)
    with pytest.raises(PolicyError, match=r"expected probabilities of shape \(3, 3\)"):
        table(cael.FromModel(lambda x: np.ones((len(x), 1))))


def test_row_numbers_in_errors_are_those_of_the_whole_log():
    bad = cael.FromModel(lambda x: np.where(x > 1.5, 0.2, 1 / 3) * np.ones(3))
    with pytest.raises(PolicyError, match="row 2 has"):
        table(bad, LOG.take([2]))


def test_a_row_aligned_policy_of_another_log_is_refused():
    with pytest.raises(PolicyError, match="has 2 rows, but the log asks for row 2"):
        table(cael.Tabular(np.full((2, 3), 1 / 3)))
    with pytest.raises(PolicyError, match="has 4 actions, but the log has 3"):
        cael.IPS().estimate(LOG, cael.Uniform(4))
    with pytest.raises(PolicyError, match="has 2 rows"):
        cael.IPS().estimate(LOG, cael.LoggedOnly([0.5, 0.5]))


def test_a_policy_that_knows_only_the_logged_action_says_so():
    partial = cael.LoggedOnly([0.5, 0.5, 0.5])
    assert cael.IPS().estimate(LOG, partial).value == pytest.approx(1.5 * 2)
    with pytest.raises(NeedsError, match=r"DR needs the target's probabilities of all actions"):
        cael.DR().estimate(LOG, partial)
    with pytest.raises(NeedsError, match=r"only the probability of the logged action.*use an estimator"):
        table(partial)
    mixed = cael.Mixture([partial, cael.Uniform(3)], [0.5, 0.5])
    assert not mixed.complete
    (batch,) = LOG.batches()
    np.testing.assert_allclose(logged_probability(mixed, batch), 0.5 * 0.5 + 0.5 / 3)


def test_as_policy():
    assert isinstance(as_policy([0.5, 0.5]), cael.Tabular)
    assert isinstance(as_policy(lambda x: x), cael.FromModel)
    assert isinstance(as_policy(cael.Uniform(2)), cael.Uniform)
    assert as_policy(np.full((3, 2, 1), 0.5)).n_actions == 2  # obp's action_dist


def test_tabular_copies_unless_told_not_to():
    source = np.full((3, 3), 1 / 3)
    kept, shared = cael.Tabular(source), cael.Tabular(source, copy=False)
    source[0] = [1.0, 0.0, 0.0]
    assert table(kept)[0, 0] == pytest.approx(1 / 3)
    assert table(shared)[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        shared.table[0] = 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: cael.Softmax([0.0, np.nan]),
        lambda: cael.Softmax([0.0, 1.0], temperature=0.0),
        lambda: cael.EpsilonGreedy([0.0, 1.0], epsilon=1.5),
        lambda: cael.Softmax(np.zeros((2, 2, 2))),
        lambda: cael.Tabular(np.zeros((0, 3))),
        lambda: cael.Tabular([["a", "b"]]),
        lambda: cael.LoggedOnly([[0.5]]),
        lambda: cael.LoggedOnly([1.5]),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(PolicyError):
        make()


def test_scores_from_a_function_are_checked():
    with pytest.raises(PolicyError, match=r"scores must have shape \(3, 3\)"):
        table(cael.Softmax(lambda x: x))
    with pytest.raises(PolicyError, match="scores must be finite; row 0"):
        table(cael.EpsilonGreedy(lambda x: np.full((3, 3), np.nan)))
