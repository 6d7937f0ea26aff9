"""Draws belong to rows; lists with a rest; entries that name an action twice; the gates of policies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cael
from cael.policies import draws, factorised
from cael.policies.policy import draw, probabilities, probability_of, support

K = 7


def log_of(n, k=K, contexts=2, seed=0, **given):
    rng = np.random.default_rng(seed)
    given = {"logging": cael.Uniform(k), "n_actions": k} | given
    return cael.LoggedData(rng.normal(size=(n, contexts)), rng.integers(0, k, n), rng.normal(size=n), **given)


def whole(log):
    return next(log.batches(width=1))


def test_the_numbers_of_a_row_do_not_depend_on_its_neighbours():
    every = draws.uniforms(3, np.arange(50), 9)
    some = np.array([41, 7, 7, 0])
    np.testing.assert_array_equal(draws.uniforms(3, some, 9), every[some])
    np.testing.assert_array_equal(draws.uniforms(3, some, 4), every[some, :4])
    assert (draws.uniforms(4, some, 9) != every[some]).all()


def test_the_numbers_are_uniform_and_rows_places_and_seeds_are_unrelated():
    """Kolmogorov-Smirnov at 1e-4, and correlations of 100,000 pairs within 5 standard errors."""
    from scipy.stats import kstest

    u = draws.uniforms(0, np.arange(20_000), 6)
    assert ((u >= 0) & (u < 1)).all()
    assert kstest(u.ravel(), "uniform").pvalue > 1e-4
    for other in (np.roll(u, 1, axis=0), np.roll(u, 1, axis=1), draws.uniforms(1, np.arange(20_000), 6)):
        assert abs(np.corrcoef(u.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(u.size)
    assert kstest(draws.uniforms(0, np.arange(100_000), 1).ravel(), "uniform").pvalue > 1e-4


@given(st.lists(st.integers(-1, K - 1), min_size=0, max_size=K, unique=True), st.integers(0, K - 1))
def test_the_unlisted_are_counted_without_the_listed(listed, rank):
    others = [a for a in range(K) if a not in listed]
    if rank < len(others):
        found = draws.unlisted(np.array([listed], dtype=np.intp).reshape(1, -1), np.array([[rank]]))
        assert found[0, 0] == others[rank]


@given(st.lists(st.lists(st.integers(-1, 4), min_size=6, max_size=6), min_size=1, max_size=5), st.integers(0, 99))
def test_merged_entries_are_sums_over_each_action(rows, seed):
    actions = np.array(rows, dtype=np.intp)
    mass = np.where(actions >= 0, np.random.default_rng(seed).random(actions.shape), 0.0)
    distinct, place, (summed,) = draws.merged(actions, mass)
    np.testing.assert_array_equal(np.take_along_axis(distinct, place, axis=1), actions)
    for i, row in enumerate(rows):
        used = [a for a in distinct[i] if a >= 0]
        assert sorted(used) == sorted({a for a in row if a >= 0})
        for a in used:
            there = int(np.flatnonzero(distinct[i] == a)[0])
            assert summed[i, there] == pytest.approx(sum(m for b, m in zip(row, mass[i], strict=True) if b == a))


def test_extreme_numbers_never_draw_an_action_without_mass():
    almost = np.array([[0.0, 0.5, 1 - 2.0**-53]])
    p = np.array([[0.0, 0.3, 0.0, 0.7 - 1e-6, 0.0]])  # sums to one only within the tolerance
    assert set(draws.from_table(p, almost)[0]) <= {1, 3}
    listed = draws.from_list(np.array([[4, -1, 2]]), np.array([[0.4, 0.0, 0.6]]), np.zeros(1), 5, almost)
    assert set(listed[0]) <= {4, 2}
    spread = draws.from_list(np.array([[1, 3]]), np.array([[0.0, 0.2]]), np.array([0.8 / 3]), 5, almost)
    assert set(spread[0]) <= {0, 2, 3, 4}


def test_blocks_of_actions_do_not_matter(monkeypatch):
    log = log_of(40)
    rng = np.random.default_rng(1)
    policy = cael.FactorisedSoftmax(rng.normal(size=(2, 3)), rng.normal(size=(K, 3)), 0.5)
    batch = whole(log)
    asked, u = rng.integers(-1, K, (40, 4)), rng.random((40, 200))
    before = probability_of(policy, batch, asked), draw(policy, batch, u)
    monkeypatch.setattr(factorised, "BLOCK", 2)
    np.testing.assert_allclose(probability_of(policy, batch, asked), before[0], rtol=1e-12)
    assert (draw(policy, batch, u) == before[1]).mean() > 0.999  # rounding may move a number over an edge
    table = draws.from_table(probabilities(policy, batch), u)
    assert (draw(policy, batch, u) == table).mean() > 0.999


def test_large_scores_do_not_overflow():
    log = log_of(5)
    policy = cael.FactorisedSoftmax(lambda x: 1e4 * x, np.arange(2 * K).reshape(K, 2))
    batch = whole(log)
    every = np.tile(np.arange(K), (5, 1))
    np.testing.assert_allclose(probability_of(policy, batch, every), probabilities(policy, batch), atol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: cael.FactorisedSoftmax([[1.0]], [[1.0]], 0.0), "temperature must be a positive number"),
        (lambda: cael.FactorisedSoftmax([[1.0]], [1.0]), r"shape \(k, f\); got \(1,\)"),
        (lambda: cael.FactorisedSoftmax([[1.0, 2.0]], [[1.0]]), r"shape \(context dim, 1\); got \(1, 2\)"),
    ],
)
def test_wrong_factors_are_refused(given, message):
    with pytest.raises(cael.PolicyError, match=message):
        given()


def test_factors_that_do_not_fit_the_log_are_refused():
    batch = whole(log_of(5))
    with pytest.raises(cael.PolicyError, match="u has 3 context columns; the log has 2"):
        probability_of(cael.FactorisedSoftmax(np.ones((3, 1)), np.ones((K, 1))), batch, np.zeros((5, 1), np.intp))
    with pytest.raises(cael.PolicyError, match=r"finite numbers of shape \(5, 1\)"):
        draw(cael.FactorisedSoftmax(lambda x: x, np.ones((K, 1))), batch, np.zeros((5, 1)))


class Strange(cael.Policy):
    """Answers the few-action questions with what it was given; the gate must catch it."""

    def __init__(self, **answers):
        self.answers = answers

    def probabilities(self, batch):
        return np.full((len(batch), K), 1 / K)

    def support(self, batch):
        return self.answers.get("support")

    def probability_of(self, batch, actions):
        return self.answers["probability_of"]

    def draw(self, batch, u):
        return self.answers["draw"]


def listed(actions, p, rest):
    return cael.Support(np.array(actions, dtype=np.intp), np.array(p, dtype=float), np.array(rest, dtype=float))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (listed([[0], [K]], [[1.0], [1.0]], [0, 0]), "in 0..6.*row 1"),
        (listed([[1, 1], [0, 2]], [[0.5, 0.5], [0.5, 0.5]], [0, 0]), "listed twice; row 0"),
        (listed([[1, -1], [0, 2]], [[0.5, 0.5], [0.5, 0.5]], [0, 0]), "0 in empty places.*row 0"),
        (listed([[1, 2], [0, 2]], [[1.5, -0.5], [0.5, 0.5]], [0, 0]), ">= 0.*row 0"),
        (listed([[1], [0]], [[1.0], [0.4]], [0, 0.05]), "must sum to 1.*row 1"),
        (listed([[1]], [[1.0]], [0]), r"one shape \(2, m\)"),
    ],
)
def test_the_gate_of_lists(answer, message):
    with pytest.raises(cael.PolicyError, match=message):
        support(Strange(support=answer), whole(log_of(2)))


def test_the_gates_of_probabilities_and_draws():
    batch = whole(log_of(2))
    asked = np.zeros((2, 3), dtype=np.intp)
    with pytest.raises(cael.PolicyError, match=r"shape \(2, 2\); expected \(2, 3\)"):
        probability_of(Strange(probability_of=np.zeros((2, 2))), batch, asked)
    with pytest.raises(cael.PolicyError, match=r"in \[0, 1\]; row 1 has 1.5"):
        probability_of(Strange(probability_of=np.array([[0.0] * 3, [0.2, 1.5, 0.1]])), batch, asked)
    with pytest.raises(cael.PolicyError, match="action numbers of shape"):
        draw(Strange(draw=np.zeros((2, 3))), batch, np.zeros((2, 3)))
    with pytest.raises(cael.PolicyError, match=r"drawn actions must be in 0\.\.6"):
        draw(Strange(draw=asked + K), batch, np.zeros((2, 3)))
    with pytest.raises(cael.NeedsError, match="only the probability of the logged action"):
        draw(cael.LoggedOnly([0.5, 0.5]), batch, np.zeros((2, 3)))
