"""Exact stochastic embeddings: what METHODS promises of the weights W = K w, against codes and kernels written out.

Slow twins build, for one row, the code P (k, m) with python loops, and K = P diag(1/p_mu) P' diag(mu) from it.
"""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cael.embedding.exact import codes

TIGHT = {"rtol": 1e-9, "atol": 1e-9}


def distribution(rng, k, zeros=0):
    p = rng.dirichlet(np.full(k, 0.7)) + 1e-3
    p[rng.permutation(k)[:zeros]] = 0.0
    return p / p.sum()


@st.composite
def policies(draw, zeros=False):
    """A seed's generator, and mu and pi (k,); with `zeros`, some actions are never logged."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k = draw(st.integers(2, 7))
    missing = draw(st.integers(1, k - 1)) if zeros else 0
    return rng, distribution(rng, k, missing), distribution(rng, k)


def random_code(rng, k, m):
    """A row-stochastic P (k, m) with some entries 0."""
    p = rng.dirichlet(np.full(m, 0.5), size=k) * (rng.random((k, m)) < 0.8)
    p[np.arange(k), rng.integers(0, m, k)] += 0.1
    return p / p.sum(axis=1, keepdims=True)


def rounding_code(f, pitch, shifts=4):
    """Stochastic rounding as an explicit P (k, m): f lies between two points of each of the shifted grids."""
    k = len(f)
    columns = {}
    for place in range(shifts):
        for a in range(k):
            at = (f[a] - min(f)) / pitch + (place + 0.5) / shifts
            lower = math.floor(at)
            for point, share in ((lower, 1 - (at - lower)), (lower + 1, at - lower)):
                columns.setdefault((place, point), np.zeros(k))[a] += share / shifts
    return np.stack(list(columns.values()), axis=1)


def gaussian_code(f, scale, points=1001):
    """E = f + scale z on a fine grid of codes, as an explicit P (k, m)."""
    e = np.linspace(min(f) - 9 * scale, max(f) + 9 * scale, points)
    p = np.exp(-0.5 * ((e[None] - np.asarray(f)[:, None]) / scale) ** 2)
    return p / p.sum(axis=1, keepdims=True)


def kernel(p, mu):
    """K(a -> b) = sum_e P(e|a) post(b|e), by loops over actions and codes."""
    k, m = p.shape
    p_mu = [sum(mu[a] * p[a, e] for a in range(k)) for e in range(m)]
    found = np.zeros((k, k))
    for a, b, e in product(range(k), range(k), range(m)):
        if p_mu[e] > 0:
            found[a, b] += p[a, e] * mu[b] * p[b, e] / p_mu[e]
    return found


def ratios(p, mu, pi):
    """(p_mu, p_pi, rho) of each code; rho is 0 where mu never goes."""
    p_mu, p_pi = mu @ p, pi @ p
    return p_mu, p_pi, np.array([b / a if a > 0 else 0.0 for a, b in zip(p_mu, p_pi, strict=True)])


def slow(p, mu, pi):
    """W, lost mass and roughness of one row, from the definitions."""
    k, m = p.shape
    p_mu, p_pi, rho = ratios(p, mu, pi)
    weights = [sum(p[a, e] * rho[e] for e in range(m)) for a in range(k)]
    lost = sum(p_pi[e] for e in range(m) if p_mu[e] == 0)
    rough = 0.0
    for a, e in product(range(k), range(m)):
        # post(a|e) |w_a - rho| p_mu(e) = p(e|a) |pi_a - mu_a rho|, which also holds where mu_a = 0 and w_a is infinite.
        rough += 0.5 * p[a, e] * abs(pi[a] - mu[a] * rho[e])
    return np.array(weights), lost, rough


def one(found):
    return found.weights[0], float(found.lost[0]), float(found.roughness[0])


def by_discrete(p, mu, pi):
    return one(codes.discrete(p, mu[None], pi[None]))


def by_rounding(f, mu, pi, pitch):
    return one(codes.rounded(f[None], mu[None], pi[None], pitch))


def by_gaussian(f, mu, pi, scale, nodes=24):
    return one(codes.gaussian(f[None], mu[None], pi[None], scale, nodes))


def close(a, b, **tolerance):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, **(tolerance or TIGHT))


@given(policies(), st.integers(1, 6))
def test_discrete_is_the_definition(some, m):
    rng, mu, pi = some
    p = random_code(rng, len(mu), m)
    close(by_discrete(p, mu, pi), slow(p, mu, pi))


@given(policies(zeros=True), st.integers(1, 6))
def test_discrete_is_the_definition_with_unsupported_actions(some, m):
    rng, mu, pi = some
    p = random_code(rng, len(mu), m)
    close(by_discrete(p, mu, pi), slow(p, mu, pi))


@given(policies(), st.floats(0.05, 5))
def test_rounding_is_a_discrete_code(some, pitch):
    rng, mu, pi = some
    f = rng.normal(size=len(mu))
    close(by_rounding(f, mu, pi, pitch), by_discrete(rounding_code(f, pitch), mu, pi))


@given(policies(zeros=True), st.floats(0.05, 5), st.integers(1, 6))
def test_rounding_is_a_discrete_code_with_unsupported_actions_and_any_number_of_shifts(some, pitch, shifts):
    rng, mu, pi = some
    f = rng.normal(size=len(mu))
    found = one(codes.rounded(f[None], mu[None], pi[None], pitch, shifts))
    close(found, by_discrete(rounding_code(f, pitch, shifts), mu, pi))


@given(policies(), st.floats(0.5, 4))
def test_gaussian_is_a_fine_discrete_code(some, scale):
    """To the error of the quadrature: rho(f + scale z) is smooth in z but no polynomial."""
    rng, mu, pi = some
    f = rng.uniform(-1, 1, size=len(mu))
    close(by_gaussian(f, mu, pi, scale, nodes=60)[:2], slow(gaussian_code(f, scale), mu, pi)[:2], rtol=1e-4, atol=1e-4)


@given(policies(), st.floats(0.5, 4))
def test_gaussian_roughness_is_that_of_a_fine_discrete_code(some, scale):
    """|w - rho| has kinks, which a quadrature of 60 nodes sees to two digits."""
    rng, mu, pi = some
    f = rng.uniform(-1, 1, size=len(mu))
    found, expected = by_gaussian(f, mu, pi, scale, nodes=60)[2], slow(gaussian_code(f, scale), mu, pi)[2]
    assert found == pytest.approx(expected, abs=0.01)


@given(policies(), st.integers(1, 6))
def test_the_mean_weight_is_one(some, m):
    rng, mu, pi = some
    weights, lost, _ = by_discrete(random_code(rng, len(mu), m), mu, pi)
    assert lost == 0
    assert mu @ weights == pytest.approx(1, abs=1e-12)


@given(policies(), st.floats(0.01, 100))
def test_the_mean_weight_of_rounding_is_one(some, pitch):
    rng, mu, pi = some
    weights, lost, _ = by_rounding(rng.normal(size=len(mu)), mu, pi, pitch)
    assert lost == 0
    assert mu @ weights == pytest.approx(1, abs=1e-12)


@given(policies(), st.floats(0.3, 10))
def test_the_mean_weight_of_gaussian_is_one_to_the_error_of_the_quadrature(some, scale):
    rng, mu, pi = some
    weights, _, _ = by_gaussian(rng.uniform(-0.5, 0.5, len(mu)), mu, pi, scale)
    assert mu @ weights == pytest.approx(1, abs=2e-3)


@given(policies(zeros=True), st.integers(1, 5))
def test_no_target_mass_is_lost_on_unsupported_actions_with_supported_codes(some, m):
    """Every code is reached by every action: what the target puts on actions that mu never plays is kept."""
    rng, mu, pi = some
    weights, lost, _ = by_discrete(rng.dirichlet(np.ones(m), size=len(mu)) * 0.9 + 0.1 / m, mu, pi)
    assert lost == 0
    assert mu @ weights == pytest.approx(1, abs=1e-12)
    assert pi[mu == 0].sum() > 0  # which the plain ratio loses
    assert mu @ codes.sharp(mu[None], pi[None]).weights[0] == pytest.approx(1 - pi[mu == 0].sum())


@given(policies(zeros=True), st.floats(0.05, 20))
def test_lost_mass_is_what_is_missing_from_the_mean_weight(some, pitch):
    rng, mu, pi = some
    f = rng.normal(size=len(mu))
    for found in (by_rounding(f, mu, pi, pitch), by_discrete(random_code(rng, len(mu), 4), mu, pi)):
        assert mu @ found[0] + found[1] == pytest.approx(1, abs=1e-12)
    sharp = one(codes.sharp(mu[None], pi[None]))
    assert mu @ sharp[0] + sharp[1] == pytest.approx(1, abs=1e-12)


@given(policies(), st.integers(1, 6))
def test_the_kernel_is_row_stochastic_reversible_and_positive(some, m):
    rng, mu, _ = some
    k_ab = kernel(random_code(rng, len(mu), m), mu)
    np.testing.assert_allclose(k_ab.sum(axis=1), 1, **TIGHT)
    flow = mu[:, None] * k_ab
    np.testing.assert_allclose(flow, flow.T, **TIGHT)
    root = np.sqrt(mu)
    spectrum = np.linalg.eigvalsh(root[:, None] * k_ab / root[None])
    assert spectrum.min() > -1e-12
    assert spectrum.max() == pytest.approx(1, abs=1e-12)


@given(policies(), st.integers(1, 6))
def test_weights_are_the_kernel_on_the_ratios(some, m):
    rng, mu, pi = some
    p = random_code(rng, len(mu), m)
    np.testing.assert_allclose(by_discrete(p, mu, pi)[0], kernel(p, mu) @ (pi / mu), **TIGHT)


def covariance(p, mu, pi, q):
    """E over codes of Cov_post(w, q)."""
    p_mu, _, rho = ratios(p, mu, pi)
    total = 0.0
    for e in np.flatnonzero(p_mu > 0):
        post = mu * p[:, e] / p_mu[e]
        total += p_mu[e] * float(post @ ((pi / mu - rho[e]) * (q - post @ q)))
    return total


@given(policies(), st.integers(1, 6))
def test_the_bias_is_minus_the_covariance_of_weight_and_reward(some, m):
    rng, mu, pi = some
    p, q = random_code(rng, len(mu), m), rng.normal(size=len(mu))
    bias = mu @ (by_discrete(p, mu, pi)[0] * q) - pi @ q
    assert bias == pytest.approx(-covariance(p, mu, pi, q), abs=1e-10)
    assert bias == pytest.approx(pi @ (kernel(p, mu) @ q - q), abs=1e-10)


@given(policies(), st.floats(0.05, 5))
def test_the_bias_identity_holds_for_rounding(some, pitch):
    rng, mu, pi = some
    f, q = rng.normal(size=len(mu)), rng.normal(size=len(mu))
    bias = mu @ (by_rounding(f, mu, pi, pitch)[0] * q) - pi @ q
    assert bias == pytest.approx(-covariance(rounding_code(f, pitch), mu, pi, q), abs=1e-10)


@given(policies(), st.floats(0.5, 4))
def test_the_bias_identity_holds_for_gaussian_to_the_error_of_the_quadrature(some, scale):
    rng, mu, pi = some
    f, q = rng.uniform(-1, 1, len(mu)), rng.normal(size=len(mu))
    bias = mu @ (by_gaussian(f, mu, pi, scale, nodes=60)[0] * q) - pi @ q
    assert bias == pytest.approx(-covariance(gaussian_code(f, scale), mu, pi, q), abs=1e-3)


@given(policies(), st.integers(1, 6), st.floats(0.05, 5))
def test_roughness_bounds_the_bias(some, m, pitch):
    rng, mu, pi = some
    f = rng.normal(size=len(mu))
    for weights, _, rough in (
        by_discrete(random_code(rng, len(mu), m), mu, pi),
        by_rounding(f, mu, pi, pitch),
        one(codes.flat(mu[None], pi[None])),
        one(codes.sharp(mu[None], pi[None])),
    ):
        for q in (rng.normal(size=len(mu)), (rng.random(len(mu)) < 0.5).astype(float), f):
            assert abs(mu @ (weights * q) - pi @ q) <= rough * (q.max() - q.min()) + 1e-10
        assert 0 <= rough <= 1


@given(policies(), st.floats(1, 4))
def test_roughness_of_gaussian_bounds_the_bias_to_the_error_of_the_quadrature(some, scale):
    rng, mu, pi = some
    f = rng.uniform(-1, 1, len(mu))
    weights, _, rough = by_gaussian(f, mu, pi, scale, nodes=60)
    for q in (rng.normal(size=len(mu)), f):
        assert abs(mu @ (weights * q) - pi @ q) <= (rough + 0.01) * (q.max() - q.min())


@given(policies(zeros=True), st.integers(1, 5))
def test_roughness_bounds_the_bias_of_unsupported_actions_whose_codes_are_supported(some, m):
    rng, mu, pi = some
    p = rng.dirichlet(np.ones(m), size=len(mu)) * 0.9 + 0.1 / m
    weights, _, rough = by_discrete(p, mu, pi)
    q = rng.normal(size=len(mu))
    assert abs(mu @ (weights * q) - pi @ q) <= rough * (q.max() - q.min()) + 1e-10


@given(policies())
def test_with_one_code_some_reward_of_0_and_1_attains_the_bound(some):
    _, mu, pi = some
    weights, _, rough = by_discrete(np.ones((len(mu), 1)), mu, pi)
    largest = max(abs(mu @ (weights * np.array(q)) - pi @ np.array(q)) for q in product((0.0, 1.0), repeat=len(mu)))
    assert largest == pytest.approx(rough, abs=1e-12)


@given(policies(), st.integers(1, 6))
def test_second_moments_fall_from_the_ratio_to_the_code_to_its_mean(some, m):
    """E W^2 <= E rho^2 <= E w^2: each is a conditional mean of the next."""
    rng, mu, pi = some
    p = random_code(rng, len(mu), m)
    p_mu, _, rho = ratios(p, mu, pi)
    mean, code, plain = mu @ by_discrete(p, mu, pi)[0] ** 2, p_mu @ rho**2, mu @ (pi / mu) ** 2
    assert 1 - 1e-12 <= mean <= code + 1e-12
    assert code <= plain + 1e-12
    assert code == pytest.approx(pi @ by_discrete(p, mu, pi)[0], rel=1e-9)  # E rho^2 = E_pi W


@given(policies(), st.floats(0.05, 5))
def test_second_moments_of_rounding_fall_too(some, pitch):
    rng, mu, pi = some
    weights = by_rounding(rng.normal(size=len(mu)), mu, pi, pitch)[0]
    assert 1 - 1e-12 <= mu @ weights**2 <= pi @ weights + 1e-12
    assert pi @ weights <= mu @ (pi / mu) ** 2 + 1e-12


@given(policies())
def test_identity_is_ips_and_one_code_is_the_mean(some):
    _, mu, pi = some
    k = len(mu)
    close(by_discrete(np.eye(k), mu, pi), (pi / mu, 0.0, 0.0))
    close(by_discrete(np.ones((k, 1)), mu, pi), one(codes.flat(mu[None], pi[None])))
    np.testing.assert_array_equal(codes.flat(mu[None], pi[None]).weights, np.ones((1, k)))


@given(policies(zeros=True))
def test_the_identity_loses_what_the_sharp_weights_lose(some):
    _, mu, pi = some
    weights, lost, _ = by_discrete(np.eye(len(mu)), mu, pi)
    sharp = one(codes.sharp(mu[None], pi[None]))
    np.testing.assert_allclose(weights, sharp[0], **TIGHT)
    assert lost == pytest.approx(sharp[1])
    assert sharp[1] == pytest.approx(pi[mu == 0].sum())


@given(policies(zeros=True))
def test_a_small_pitch_is_sharp_and_a_large_one_flat(some):
    rng, mu, pi = some
    f = rng.permutation(len(mu)) + 0.5 * rng.random(len(mu))  # no two closer than 1/2
    small = by_rounding(f, mu, pi, 0.1)
    sharp = one(codes.sharp(mu[None], pi[None]))
    np.testing.assert_allclose(small[0][mu > 0], sharp[0][mu > 0], **TIGHT)
    assert small[1] == pytest.approx(sharp[1])
    large, flat = by_rounding(f, mu, pi, 1e9), one(codes.flat(mu[None], pi[None]))
    close(large, flat, atol=1e-6)
    close(by_rounding(f, mu, pi, np.inf), flat)


@given(policies())
def test_gaussian_has_the_same_limits(some):
    rng, mu, pi = some
    f = np.arange(len(mu)) + 0.5 * rng.random(len(mu))
    close(by_gaussian(f, mu, pi, 0.01), (pi / mu, 0.0, 0.0), atol=1e-6)
    close(by_gaussian(f, mu, pi, 1e6), one(codes.flat(mu[None], pi[None])), atol=1e-4)


@given(policies(zeros=True), st.floats(0.05, 5), st.floats(-100, 100))
def test_neither_the_order_of_actions_nor_an_offset_of_f_matters(some, pitch, offset):
    rng, mu, pi = some
    f = rng.integers(-40, 40, len(mu)) / 8.0  # sums with the offset below are exact, and so is the floor
    order = rng.permutation(len(mu))
    weights, lost, rough = by_rounding(f, mu, pi, pitch)
    close(by_rounding(f[order], mu[order], pi[order], pitch), (weights[order], lost, rough))
    close(by_rounding(f + round(offset), mu, pi, pitch), (weights, lost, rough))
    weights, lost, rough = by_gaussian(f, mu, pi, pitch)
    close(by_gaussian(f[order], mu[order], pi[order], pitch), (weights[order], lost, rough))
    close(by_gaussian(f + round(offset), mu, pi, pitch), (weights, lost, rough))


@given(policies(), st.floats(0.05, 5))
def test_rows_do_not_see_each_other(some, pitch):
    rng, _, _ = some
    k = 5
    f, mu, pi = rng.normal(size=(3, k)), rng.dirichlet(np.ones(k), 3), rng.dirichlet(np.ones(k), 3)
    f[1] *= 40  # a row with many more cells than the others
    p = rng.dirichlet(np.ones(4), size=(3, k))
    found = codes.rounded(f, mu, pi, pitch), codes.gaussian(f, mu, pi, pitch), codes.discrete(p, mu, pi)
    for i in range(3):
        close(by_rounding(f[i], mu[i], pi[i], pitch), [getattr(found[0], x)[i] for x in FIELDS])
        close(by_gaussian(f[i], mu[i], pi[i], pitch), [getattr(found[1], x)[i] for x in FIELDS])
        close(by_discrete(p[i], mu[i], pi[i]), [getattr(found[2], x)[i] for x in FIELDS])


FIELDS = ("weights", "lost", "roughness")


@given(policies(), st.floats(0.05, 5))
def test_the_target_that_is_the_logging_policy_needs_no_weight(some, pitch):
    rng, mu, _ = some
    weights, lost, rough = by_rounding(rng.normal(size=len(mu)), mu, mu, pitch)
    np.testing.assert_allclose(weights, 1, **TIGHT)
    assert (lost, rough) == pytest.approx((0, 0), abs=1e-12)


@given(policies(zeros=True), st.floats(1e-3, 0.05))
def test_empty_cells_cost_nothing_and_change_nothing(some, pitch):
    """Far more cells than actions; some actions close together."""
    rng, mu, pi = some
    f = np.repeat(rng.normal(size=len(mu)), 2)[: len(mu)] + 0.5 * pitch * rng.random(len(mu))
    close(by_rounding(f, mu, pi, pitch), by_discrete(rounding_code(f, pitch), mu, pi))


def test_the_memory_is_bounded_by_the_actions_and_not_by_the_range_of_f():
    mu, pi = np.array([[0.5, 0.25, 0.25]]), np.array([[0.1, 0.2, 0.7]])
    found = codes.rounded(np.array([[0.0, 1.0, 2.0]]), mu, pi, 1e-12)  # of cells there would be 10^12
    np.testing.assert_allclose(found.weights, pi / mu)


def test_probabilities_next_to_0_do_not_overflow():
    mu, pi, f = np.array([1.0, 1e-310]), np.array([0.1, 0.9]), np.array([0.0, 2.0])
    assert one(codes.sharp(mu[None], pi[None]))[:2] == (pytest.approx([0.1, 0.0]), 0.9)
    for found in (by_rounding(f, mu, pi, 0.1), by_discrete(np.eye(2), mu, pi)):
        assert found[:2] == (pytest.approx([0.1, 0.0]), pytest.approx(0.9))
    assert np.isfinite(by_gaussian(f, np.array([1.0, 0.0]), pi, 2 / 37.8)[0]).all()


@given(policies(), st.integers(1, 6))
def test_sampled_codes_average_to_the_weight(some, m):
    """Rao and Blackwell: W(a) is the mean of rho(E) over codes drawn for a."""
    rng, mu, pi = some
    p = random_code(rng, len(mu), m)
    rho = ratios(p, mu, pi)[2]
    assume(rho.max() < 50)
    drawn = rho[rng.choice(m, size=4000, p=p[0])]
    error = drawn.std() / math.sqrt(len(drawn))
    assert abs(drawn.mean() - by_discrete(p, mu, pi)[0][0]) <= 6 * error + 1e-9
