"""The paper's propositions on exact discrete problems: what holds, what is corrected, what each assumption is for."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cael import theory
from cael.errors import InputError, SupportError
from cael.theory import DiscreteProblem


def chances(draw, shape, least=0):
    """Probabilities from small integers, so that zeros, ties and Dirac rows come up often."""
    counts = draw(arrays(np.int64, shape, elements=st.integers(least, 6))).astype(float)
    counts[counts.sum(axis=-1) == 0] = 1.0
    return counts / counts.sum(axis=-1, keepdims=True)


@st.composite
def problems(draw, direct=True):
    """Up to 3 contexts, 5 actions, 4 embeddings, with common support; direct=False: rewards depend on (x, e) alone."""
    x, k, m = draw(st.integers(1, 3)), draw(st.integers(2, 5)), draw(st.integers(1, 4))
    rewards = (x, k if direct else 1, m)
    q = draw(arrays(np.float64, rewards, elements=st.integers(-5, 5)))
    noise = draw(arrays(np.float64, rewards, elements=st.integers(0, 4)))
    return DiscreteProblem(
        chances(draw, (1, x))[0],
        chances(draw, (x, k), least=1),
        chances(draw, (x, k)),
        chances(draw, (x, k, m)),
        np.broadcast_to(q, (x, k, m)),
        np.broadcast_to(noise, (x, k, m)),
    )


def one(mu, pi, p_e, q, noise=None):
    """A problem with a single context."""
    return DiscreteProblem([1.0], [mu], [pi], [p_e], [q], [np.zeros_like(q) if noise is None else noise])


def greedy(k, epsilon=0.2):
    """Uniform logging, an epsilon-greedy target, one embedding for all actions, reward 1 for the greedy action."""
    best = np.eye(k)[0]
    return one(np.full(k, 1 / k), (1 - epsilon) * best + epsilon / k, np.ones((k, 1)), best[:, None])


def below(a, b):
    return a <= b + 1e-9 * (1 + abs(b))


def same(a, b):
    return a == pytest.approx(b, rel=1e-9, abs=1e-9)


def cells(problem):
    """(chance, posterior row, q row, weights row) of each (x, e), by loops from the definitions."""
    x, k, m = problem.p_e.shape
    for i, e in itertools.product(range(x), range(m)):
        joint = [problem.mu[i, a] * problem.p_e[i, a, e] for a in range(k)]
        if sum(joint) > 0:
            weights = [problem.pi[i, a] / problem.mu[i, a] for a in range(k)]
            yield problem.p_x[i] * sum(joint), [j / sum(joint) for j in joint], problem.q[i, :, e], weights


def slow_half_gini(p, w):
    return sum(p[a] * p[b] * abs(w[a] - w[b]) for a, b in itertools.combinations(range(len(p)), 2))


def slow_moments(problem, weight):
    """E[weight R] and E[weight^2 R^2] over all (x, a, e), with weight(x, a, e)."""
    first = second = 0.0
    for i, a, e in itertools.product(*map(range, problem.p_e.shape)):
        chance = problem.p_x[i] * problem.mu[i, a] * problem.p_e[i, a, e]
        if chance > 0:
            first += chance * weight(i, a, e) * problem.q[i, a, e]
            second += chance * weight(i, a, e) ** 2 * (problem.q[i, a, e] ** 2 + problem.noise[i, a, e])
    return first, second


# Identities


@given(problems())
def test_posterior_and_marginal_weight_agree(problem):
    assert np.allclose(problem.posterior.sum(axis=-1), 1)
    average = np.einsum("xea,xa->xe", problem.posterior, problem.w)
    assert np.allclose(np.where(problem.marginal(problem.mu) > 0, average, 0), problem.rho)
    assert same(problem.expect(problem.rho), 1)


@given(problems())
def test_the_three_forms_of_the_bias_are_one_number(problem):
    bias = theory.mips_bias(problem)
    assert same(theory.pairwise_bias(problem), bias)
    assert same(theory.covariance_bias(problem), bias)
    loop = 0.0
    for chance, p, q, w in cells(problem):
        pairs = itertools.combinations(range(len(p)), 2)
        loop += chance * sum(p[a] * p[b] * (q[a] - q[b]) * (w[b] - w[a]) for a, b in pairs)
    assert same(loop, bias)


@given(problems())
def test_moments_by_loops(problem):
    first, second = slow_moments(problem, lambda i, a, e: problem.rho[i, e])
    assert same(first - problem.value, theory.mips_bias(problem))
    assert same(second - first**2, theory.mips_variance(problem))
    first, second = slow_moments(problem, lambda i, a, e: problem.pi[i, a] / problem.mu[i, a])
    assert same(first, problem.value)
    assert same(second - first**2, theory.ips_variance(problem))


@given(problems())
def test_half_gini_equals_the_loop_over_pairs(problem):
    loop = sum(chance * slow_half_gini(p, w) for chance, p, _, w in cells(problem))
    assert same(theory.bias_loss(problem), loop**2)


@given(problems())
def test_half_gini_is_between_the_half_deviation_and_its_double(problem):
    for _, p, _, w in cells(problem):
        d, g = float(theory.half_deviation(np.array(p), np.array(w))), slow_half_gini(p, w)
        assert below(d, g)
        assert below(g, 2 * d)


@given(problems(direct=False))
def test_without_direct_effect_the_bias_is_zero_and_the_variance_falls_as_stated(problem):
    """eq. mips-var0."""
    assert problem.no_direct_effect
    assert theory.mips_bias(problem) == pytest.approx(0, abs=1e-9)
    fall = theory.ips_variance(problem) - theory.mips_variance(problem)
    assert same(theory.variance_reduction(problem), fall)


# Propositions


@given(problems())
def test_proposition_1_and_the_sharp_bound(problem):
    squared = theory.mips_bias(problem) ** 2
    assert below(squared, theory.sharp_bias_bound(problem))
    assert below(theory.sharp_bias_bound(problem), theory.bias_bound(problem))


@given(problems())
def test_the_sharp_bound_is_attained(problem):
    """By q = 1{w > rho}, so that no smaller multiple of it is a bound."""
    worst = (problem.w[:, :, None] > problem.rho[:, None, :]).astype(float)
    assume(np.ptp(worst) == 1)
    worst = replace(problem, q=worst)
    assert same(theory.mips_bias(worst) ** 2, theory.sharp_bias_bound(worst))


@given(problems())
def test_the_expression_of_proposition_2_by_loops(problem):
    rows, least = [], np.inf
    for i, e in itertools.product(range(problem.p_e.shape[0]), range(problem.p_e.shape[2])):
        joint = problem.p_x[i] * problem.mu[i] * problem.p_e[i, :, e]
        if joint.sum() > 0:
            p = joint / joint.sum()
            mean = sum(p * problem.q[i, :, e])
            least = min(least, sum(p * (problem.q[i, :, e] ** 2 + problem.noise[i, :, e])) - mean**2)
            rows.append((joint.sum(), mean, sum(p**2) * sum((problem.pi[i] / problem.mu[i]) ** 2)))
    added = sum(chance * (least + mean**2) * squares for chance, mean, squares in rows)
    assert same(theory.variance_bound(problem), theory.ips_variance(problem) + added)


@given(problems(direct=False))
def test_proposition_2_without_direct_effect(problem):
    assert below(theory.mips_variance(problem), theory.ips_variance(problem))  # so the proposition adds nothing
    assert below(theory.ips_variance(problem), theory.variance_bound(problem))


@given(problems())
def test_the_direct_variance_bound_allows_a_direct_effect(problem):
    assert below(theory.mips_variance(problem), theory.direct_variance_bound(problem))


@given(problems())
def test_proposition_3(problem):
    found = theory.entropy_bias_bound(problem)
    assert below(found.loss, found.entropy)
    assert below(found.entropy, found.actions)
    assert below(found.actions, found.printed)
    assert below(found.entropy, found.linear_squared)
    assert below(found.linear_squared, found.linear)
    assert below(found.loss, found.spread)
    assert below(found.spread, found.actions)  # equal for two actions


@given(problems())
def test_the_bias_loss_is_at_most_one(problem):
    """Whatever the weights: G <= rho, and E[rho] = 1."""
    for _, p, _, w in cells(problem):
        assert below(slow_half_gini(p, w), np.dot(p, w))
    assert below(theory.bias_loss(problem), 1)


@given(problems())
def test_an_embedding_cannot_make_the_posterior_flatter_than_the_logging_policy(problem):
    """E[e^-H2] >= E[sum_a mu(a|X)^2] >= 1/k: the posteriors of a context average to mu."""
    collision = problem.expect(np.exp(-theory.renyi2(problem.posterior)))
    prior = float(problem.p_x @ (problem.mu**2).sum(axis=1))
    assert below(prior, collision)
    assert below(1 / problem.n_actions, prior)


@given(problems(), st.integers(1, 100))
def test_proposition_4(problem, n):
    found = theory.entropy_variance(problem, n)
    loop = sum(chance * np.dot(p, q) ** 2 * sum(np.square(p)) * sum(np.square(w)) for chance, p, q, w in cells(problem))
    assert same(found.loss, loop / n)
    assert same(found.by_entropy, found.loss)
    assert below(found.loss, found.dirac)
    assert below(found.uniform, found.loss)


# What each assumption and each factor is for


def test_proposition_1_needs_the_range_of_the_rewards():
    problem = greedy(2)
    wide = replace(problem, q=3 * problem.q)
    assert theory.mips_bias(wide) ** 2 > theory.bias_loss(wide)
    assert same(theory.mips_bias(wide) ** 2, theory.bias_bound(wide))  # two actions: attained


def test_proposition_1_needs_common_support():
    """The paper asks only that every embedding is seen. Here it is, but the target's action is not."""
    problem = one([1.0, 0.0], [0.0, 1.0], [[1.0], [1.0]], [[0.0], [1.0]])
    assert not problem.common_support
    assert theory.mips_bias(problem) == -1
    assert theory.pairwise_bias(problem) == theory.bias_bound(problem) == 0


@pytest.mark.parametrize("k", [2, 3, 5, 50])
def test_proposition_1_loses_a_factor_that_tends_to_four(k):
    """Weights 0, 1, ..., 1, 2: those at the mean count in pairs with the others, but do not deviate."""
    weights = np.ones(k)
    weights[[0, -1]] = 0, 2
    problem = one(np.full(k, 1 / k), weights / k, np.ones((k, 1)), np.eye(k)[:, :1])
    ratio = theory.bias_bound(problem) / theory.sharp_bias_bound(problem)
    assert ratio == pytest.approx((2 - 2 / k) ** 2)


def test_proposition_2_needs_no_direct_effect():
    """A noisy action that the target avoids: IPS gives it weight 0, MIPS the weight of its embedding."""
    p_e = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    noise = np.array([100.0, 0.0, 0.0])[:, None] * np.ones(2)
    problem = one(np.full(3, 1 / 3), [0.0, 0.5, 0.5], p_e, np.zeros((3, 2)), noise)
    assert not problem.no_direct_effect
    assert theory.mips_variance(problem) == pytest.approx(100 / 3 * (3 / 4) ** 2)
    assert theory.variance_bound(problem) == theory.ips_variance(problem) == 0
    assert theory.direct_variance_bound(problem) >= theory.mips_variance(problem)


def test_proposition_3_is_attained_with_the_square_and_loose_as_printed():
    """Two actions, one embedding: no smaller constant and no higher power is a bound."""
    found = theory.entropy_bias_bound(greedy(2, epsilon=0.0))  # weights 2 and 0, C = 2
    assert found.loss == found.entropy == found.actions == found.spread == pytest.approx(1 / 4)
    assert found.printed == pytest.approx(1 / 2)
    assert found.loss > 0.99 * found.entropy
    assert found.loss > (2**2 / 4) * (1 - 1 / 2) ** 3


def test_the_range_alone_bounds_the_loss_better_than_the_number_of_actions():
    two, many = theory.entropy_bias_bound(greedy(2)), theory.entropy_bias_bound(greedy(50))
    assert two.spread == pytest.approx(two.actions)
    assert many.spread < 0.27 * many.actions


@pytest.mark.parametrize("k", [2, 10, 100])
def test_for_an_epsilon_greedy_target_the_bounds_grow_like_the_square_of_the_actions(k):
    """C = (1 - epsilon) k, so the bound is not the 1 - 1/k that the paper reads off; and L_var is not linear in k."""
    problem, epsilon = greedy(k), 0.2
    assert theory.weight_range(problem) == pytest.approx((1 - epsilon) * k)
    found = theory.entropy_bias_bound(problem)
    assert found.actions == pytest.approx((1 - epsilon) ** 2 * (k - 1) ** 2 / 4)
    total = (1 - epsilon) ** 2 * k**2 + 2 * (1 - epsilon) * epsilon * k + epsilon**2 * k
    assert (problem.w**2).sum() == pytest.approx(total)
    flat = theory.entropy_variance(replace(problem, q=np.ones((1, k, 1))))
    assert flat.dirac == pytest.approx(total)


@pytest.mark.parametrize("k", [2, 10, 100])
def test_for_an_epsilon_greedy_target_the_loss_itself_stays_bounded(k):
    """p_g (1 - p_g) (w_g - w_0) = (1 - 1/k) (1 - epsilon): the growth is the bound's, not the loss's."""
    assert theory.bias_loss(greedy(k)) == pytest.approx(((1 - 1 / k) * 0.8) ** 2)


def test_the_bias_loss_comes_as_close_to_one_as_one_likes():
    assert theory.bias_loss(greedy(1000, epsilon=0.0)) > 0.99


def test_the_variance_loss_of_a_uniform_posterior_is_not_zero():
    problem = replace(greedy(4), q=np.ones((1, 4, 1)))
    found = theory.entropy_variance(problem)
    assert found.loss == pytest.approx(found.uniform)
    assert found.loss > 1
    assert problem.posterior.sum(axis=-1)[0, 0] != pytest.approx(np.exp(-theory.renyi2(problem.posterior))[0, 0])


def test_a_dirac_posterior_has_no_bias_and_the_largest_variance_loss():
    k = 4
    problem = one(np.full(k, 1 / k), [0.7, 0.1, 0.1, 0.1], np.eye(k), np.arange(16.0).reshape(k, k))
    assert theory.mean_entropy(problem) == 0
    assert theory.mips_bias(problem) == pytest.approx(0, abs=1e-12)
    assert theory.bias_bound(problem) == 0
    assert theory.mips_variance(problem) == pytest.approx(theory.ips_variance(problem))
    found = theory.entropy_variance(problem)
    assert found.loss == pytest.approx(found.dirac)


@given(problems(), st.integers(2, 50))
def test_the_three_terms_of_the_ips_variance_are_all_divided_by_n(problem, n):
    """As printed only the noise is, which is too much whenever the other two terms are not 0."""
    q = (problem.p_e * problem.q).sum(axis=-1)
    noise = (problem.p_e * (problem.q**2 + problem.noise)).sum(axis=-1) - q**2
    noisy = float(problem.p_x @ (problem.mu * problem.w**2 * noise).sum(axis=-1))
    means = (problem.mu * problem.w * q).sum(axis=-1)
    between = float(problem.p_x @ means**2 - (problem.p_x @ means) ** 2)
    within = float(problem.p_x @ ((problem.mu * (problem.w * q) ** 2).sum(axis=-1) - means**2))
    exact = theory.ips_variance(problem) / n
    assert same((noisy + between + within) / n, exact)
    printed = noisy / n + between + within
    assert printed > exact or same(between + within, 0)


def draw_log(problem, n, rng):
    """Columns x, a, e, r of n rows; the reward is normal."""

    def pick(p):
        return (np.cumsum(p, axis=-1) < rng.random((n, 1))).sum(axis=-1).clip(0, p.shape[-1] - 1)

    x = pick(np.broadcast_to(problem.p_x, (n, len(problem.p_x))))
    a = pick(problem.mu[x])
    e = pick(problem.p_e[x, a])
    r = problem.q[x, a, e] + np.sqrt(problem.noise[x, a, e]) * rng.standard_normal(n)
    return x, a, e, r


def test_exact_mean_and_variance_agree_with_sampling():
    rng = np.random.default_rng(3)
    x, k, m, n = 3, 4, 3, 200_000
    problem = DiscreteProblem(
        rng.dirichlet(np.ones(x)),
        rng.dirichlet(np.ones(k), x) * 0.8 + 0.2 / k,
        rng.dirichlet(np.ones(k), x),
        rng.dirichlet(np.ones(m), (x, k)),
        rng.normal(2, 2, (x, k, m)),
        rng.random((x, k, m)),
    )
    context, action, embedding, r = draw_log(problem, n, rng)
    exact = (
        (problem.rho[context, embedding], theory.mips_mean(problem), theory.mips_variance(problem)),
        (problem.w[context, action], problem.value, theory.ips_variance(problem)),
    )
    for weight, mean, variance in exact:
        terms = weight * r
        assert abs(terms.mean() - mean) < 4 * np.sqrt(variance / n)
        squares = (terms - mean) ** 2
        assert abs(squares.mean() - variance) < 4 * squares.std() / np.sqrt(n)
    assert abs(theory.mips_bias(problem)) > 10 * np.sqrt(theory.mips_variance(problem) / n)  # the check sees the bias


# Input


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"p_e": np.ones((2, 1))}, "three axes"),
        ({"mu": np.full((1, 3), 1 / 3)}, "mu must have shape"),
        ({"pi": [[0.5, 0.6]]}, "pi must sum to 1"),
        ({"pi": [[1.5, -0.5]]}, "pi must be finite and >= 0"),
        ({"q": [[[np.nan], [0.0]]]}, "q must be finite"),
        ({"noise": [[[-1.0], [0.0]]]}, "noise must be finite and >= 0"),
    ],
)
def test_wrong_input_is_refused(change, text):
    with pytest.raises(InputError, match=text):
        replace(greedy(2), **change)


def test_an_embedding_that_is_never_logged_is_refused():
    with pytest.raises(SupportError, match="never shows"):
        one([1.0, 0.0], [0.0, 1.0], np.eye(2), np.zeros((2, 2)))


# Deficient support


@st.composite
def deficient(draw):
    """Problems in which the logging policy leaves out actions of the target; one embedding shows them all."""
    x, k = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    q = draw(arrays(np.float64, (x, k, 1), elements=st.integers(-5, 5)))
    return DiscreteProblem(
        chances(draw, (1, x))[0],
        chances(draw, (x, k)),
        chances(draw, (x, k)),
        np.ones((x, k, 1)),
        q,
        np.zeros((x, k, 1)),
    )


@given(deficient())
def test_the_bias_of_ips_without_common_support_is_the_value_of_what_is_never_logged(problem):
    assert same(theory.ips_bias(problem), theory.unsupported_bias(problem))
    if problem.common_support:
        assert same(theory.ips_bias(problem), 0.0)


def test_the_printed_bias_of_ips_lacks_its_bars_and_a_sum_over_actions_lacks_none():
    """Never logged: an action with reward -2. Printed: E[sum_U pi q] = -1, which is no absolute value."""
    problem = one([1.0, 0.0], [0.5, 0.5], np.ones((2, 1)), np.array([[1.0], [-2.0]]))
    assert theory.unsupported_bias(problem) == 1.0 == theory.ips_bias(problem) and not problem.common_support
    printed = -theory.unsupported_bias(problem)
    assert printed != abs(theory.ips_bias(problem))
    positive = one([1.0, 0.0], [0.5, 0.5], np.ones((2, 1)), np.array([[1.0], [2.0]]))
    assert -theory.unsupported_bias(positive) == abs(theory.ips_bias(positive)) == 1.0


# Trust


@given(problems(), st.integers(0, 2**32 - 1))
def test_the_bias_of_the_robust_form_is_bounded_by_roughness_times_what_the_model_misses(problem, seed):
    f = np.random.default_rng(seed).normal(size=problem.mu.shape)
    bias = theory.robust_bias(problem, f)
    assert same(bias, theory.covariance_bias(theory.missed(problem, f)))
    assert below(abs(bias), theory.within_context(problem, f) * theory.roughness(problem))
    assert -1e-12 <= theory.roughness(problem) <= 1 + 1e-12


def test_a_model_that_is_right_has_no_bias_and_an_action_that_is_never_seen_has_any():
    """The counterexample: the log shows nothing of what is missed, and the bias has the size of what is missed."""
    problem = one([0.9, 0.1], [0.0, 1.0], np.ones((2, 1)), np.array([[0.0], [3.0]]))
    assert same(theory.robust_bias(problem, problem.q[:, :, 0]), 0.0)
    assert theory.robust_bias(problem, np.zeros((1, 2))) < -2.5


@given(st.floats(-3, 3), st.floats(0.05, 2), st.floats(0, 3))
def test_an_interval_covers_as_promised_up_to_the_bias_that_it_allows_for(bias, error, allowed):
    covered = theory.coverage(bias, error, allowed)
    assert (
        covered >= 0.95 - 1e-6 if abs(bias) <= allowed else covered <= theory.coverage(allowed, error, allowed) + 1e-9
    )
    assert covered == pytest.approx(theory.coverage(-bias, error, allowed), abs=1e-12)


def test_negative_control_a_bias_beyond_what_is_allowed_is_not_covered():
    assert theory.coverage(1.0, 0.1, 0.5) < 0.01 < 0.94 < theory.coverage(0.5, 0.1, 0.5)
