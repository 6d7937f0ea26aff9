"""Identities and limits that hold for every log: Hypothesis looks for one that breaks them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import cael


@st.composite
def problems(draw, n=30):
    """A log with its logging policy, a target with full support, and predictions."""
    k = draw(st.integers(2, 6))
    seed = draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    mu = 0.8 * rng.dirichlet(np.ones(k), n) + 0.2 / k
    pi = 0.9 * rng.dirichlet(np.full(k, 0.5), n) + 0.1 / k
    actions = (np.cumsum(mu, axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    rewards = draw(arrays(np.float64, n, elements=st.floats(-100, 100, allow_subnormal=False)))
    q = rng.normal(0, 10, (n, k))
    return cael.LoggedData(rng.normal(size=(n, 2)), actions, rewards, logging=mu), pi, q


def value(estimator, log, policy):
    return estimator.estimate(log, policy).value


def same(a, b):
    return a == pytest.approx(b, rel=1e-8, abs=1e-8)


@given(problems())
def test_dr_without_a_model_is_ips(problem):
    log, pi, q = problem
    zero = cael.FixedOutcome(0 * q)
    assert same(value(cael.DR(zero), log, pi), value(cael.IPS(), log, pi))
    assert same(value(cael.SNDR(zero), log, pi), value(cael.SNIPS(), log, pi))
    assert same(value(cael.DR(zero, clip=2.0), log, pi), value(cael.IPS(clip=2.0), log, pi))


@given(problems())
def test_limits_of_the_hyperparameters(problem):
    log, pi, q = problem
    model = cael.FixedOutcome(q)
    dm, dr = value(cael.DM(model), log, pi), value(cael.DR(model), log, pi)
    assert same(value(cael.SwitchDR(model, tau=1e-9), log, pi), dm)
    assert same(value(cael.SwitchDR(model, tau=math.inf), log, pi), dr)
    assert same(value(cael.DRos(model, lambda_=math.inf), log, pi), dr)
    assert value(cael.DRos(model, lambda_=1e-12), log, pi) == pytest.approx(dm, rel=1e-6, abs=1e-6)
    assert value(cael.DRos(model, lambda_=1e12), log, pi) == pytest.approx(dr, rel=1e-6, abs=1e-6)
    assert same(value(cael.SubGaussianDR(model, 0.0), log, pi), dr)
    assert same(value(cael.SubGaussianIPS(0.0), log, pi), value(cael.IPS(), log, pi))
    assert same(value(cael.SubGaussianIPS(1.0), log, pi), value(cael.LoggedMean(), log, pi))
    assert same(value(cael.IPS(clip=math.inf), log, pi), value(cael.IPS(), log, pi))


@given(problems())
def test_on_policy_the_weights_are_one(problem):
    log, _, _ = problem
    mean = value(cael.LoggedMean(), log, log.logging)
    for estimator in (cael.IPS(), cael.SNIPS(), cael.BaselineIPS(), cael.SubGaussianIPS(0.3)):
        assert same(value(estimator, log, log.logging), mean)
    assert same(value(cael.MIPS(np.arange(log.n_actions) % 2, posterior="exact"), log, log.logging), mean)


@given(problems(), st.floats(-50, 50))
def test_self_normalised_estimates_move_with_the_reward(problem, shift):
    log, pi, q = problem
    moved = cael.LoggedData(log.contexts, log.actions, log.rewards + shift, logging=log.logging)
    model = cael.FixedOutcome(q)
    for estimator in (cael.SNIPS(), cael.SNDR(model), cael.LoggedMean(), cael.DM(), cael.SNDR()):
        a, b = estimator.estimate(log, pi), estimator.estimate(moved, pi)
        assert b.value - a.value == pytest.approx(shift, rel=1e-6, abs=1e-6)
        assert b.stderr == pytest.approx(a.stderr, rel=1e-5, abs=1e-6)


@given(problems(), st.floats(0.1, 50))
def test_estimates_scale_with_the_reward(problem, factor):
    log, pi, _ = problem
    scaled = cael.LoggedData(log.contexts, log.actions, log.rewards * factor, logging=log.logging)
    for estimator in (cael.IPS(), cael.SNIPS(), cael.BaselineIPS(), cael.DR(), cael.SubGaussianIPS()):
        a, b = estimator.estimate(log, pi), estimator.estimate(scaled, pi)
        assert b.value == pytest.approx(factor * a.value, rel=1e-6, abs=1e-6)
        assert b.stderr == pytest.approx(factor * a.stderr, rel=1e-6, abs=1e-6)


@given(problems())
def test_a_perfect_model_leaves_dr_no_residual(problem):
    """Rewards that are exactly q: DM, DR, SNDR and Switch-DR agree whatever the weights are."""
    log, pi, q = problem
    exact = cael.LoggedData(
        log.contexts, log.actions, q[np.arange(len(log)), log.actions], logging=log.logging, n_actions=log.n_actions
    )
    model = cael.FixedOutcome(q)
    dm = value(cael.DM(model), exact, pi)
    for estimator in (cael.DR(model), cael.SNDR(model), cael.SwitchDR(model, tau=1.0), cael.DRos(model, lambda_=1.0)):
        assert same(value(estimator, exact, pi), dm)


@given(problems())
def test_mips_between_ips_and_the_mean(problem):
    """The identity embedding is IPS; an embedding that is the same for all actions is the mean reward."""
    log, pi, _ = problem
    identity = cael.MIPS(np.arange(log.n_actions), posterior="exact")
    constant = cael.MIPS(np.zeros(log.n_actions, dtype=int), posterior="exact")
    assert same(value(identity, log, pi), value(cael.IPS(), log, pi))
    assert same(value(constant, log, pi), value(cael.LoggedMean(), log, pi))


@given(problems(), st.integers(1, 5))
def test_exact_marginal_weights_average_to_one_under_the_logging_policy(problem, groups):
    """sum_a mu(a|x) rho(x, e(a)) = 1 in every context, for any grouping of the actions."""
    log, pi, _ = problem
    n, k = pi.shape
    group = np.random.default_rng(groups).integers(0, groups, k)
    mu = np.concatenate([cael.policies.policy.probabilities(log.logging, batch) for batch in log.batches(k)])
    every = cael.LoggedData(
        np.repeat(log.contexts, k, axis=0), np.tile(np.arange(k), n), np.ones(n * k), logging=np.repeat(mu, k, axis=0)
    )
    found = cael.MIPS(group, posterior="exact").estimate(every, np.repeat(pi, k, axis=0))
    rho = found.contributions.reshape(n, k)  # all rewards are 1
    np.testing.assert_allclose((mu * rho).sum(axis=1), 1, atol=1e-9)


@given(problems())
def test_contrast_is_paired(problem):
    """a - b has the standard error of the row-wise differences, not that of independent estimates."""
    log, pi, _ = problem
    a, b = cael.IPS().estimate(log, pi), cael.SNIPS().estimate(log, pi)
    difference = a - b
    expected = (a.contributions - b.contributions).std(ddof=1) / math.sqrt(len(log))
    assert same(difference.value, a.value - b.value)
    assert same(difference.stderr, expected)


@given(problems(), st.integers(1, 9))
def test_the_order_of_batches_does_not_matter(problem, rows):
    log, pi, q = problem
    import cael.log.logged as module

    before = module.LoggedData.batches.__kwdefaults__["bytes_each"]
    try:
        whole = value(cael.DR(cael.FixedOutcome(q)), log, pi)
        module.LoggedData.batches.__kwdefaults__["bytes_each"] = 8 * log.n_actions * rows
        assert same(value(cael.DR(cael.FixedOutcome(q)), log, pi), whole)
        assert same(value(cael.DR(), log, pi), value(cael.DR(), log, pi))
    finally:
        module.LoggedData.batches.__kwdefaults__["bytes_each"] = before


@given(problems())
def test_baseline_has_less_variance_than_ips_with_the_best_constant(problem):
    """In-sample, no constant b gives b + w (r - b) a smaller variance than best_baseline."""
    from tests.oracles.twins import best_baseline

    log, pi, _ = problem
    w, r = cael.Problem(log, pi).weights, log.rewards
    b = best_baseline(w, r)

    def variance(c):
        return (c + w * (r - c)).var()

    scale = variance(b) + 1e-9 + 1e-9 * variance(0.0)
    assert all(variance(b) <= variance(b + step) + 1e-6 * scale for step in (-10, -1, -0.1, 0.1, 1, 10))


@given(problems())
def test_offcem_between_dr_and_the_model_with_the_mean_residual(problem):
    """A cluster for each action is DR; one cluster for all is DM and the mean of what f misses; f = 0 is MIPS."""
    log, pi, q = problem
    model, zero, k = cael.FixedOutcome(q), cael.FixedOutcome(0 * q), log.n_actions
    missed = (log.rewards - q[np.arange(len(log)), log.actions]).mean()
    assert same(value(cael.OffCEM(np.arange(k), outcome=model), log, pi), value(cael.DR(model), log, pi))
    together = value(cael.OffCEM(np.zeros(k, dtype=int), outcome=model), log, pi)
    assert same(together, value(cael.DM(model), log, pi) + missed)
    pairs = np.arange(k) // 2
    weights = cael.MIPS(pairs, posterior="exact")
    assert same(value(cael.OffCEM(pairs, outcome=zero), log, pi), value(weights, log, pi))
    assert same(value(cael.MDR(weights, zero), log, pi), value(weights, log, pi))
    assert same(
        value(cael.OffCEM(np.arange(k), outcome=model, self_normalised=True), log, pi), value(cael.SNDR(model), log, pi)
    )


@given(problems())
def test_a_combination_of_one_and_the_same_is_itself(problem):
    log, pi, _ = problem
    alone = cael.SNIPS().estimate(log, pi)
    for kind in (cael.MetaOPE, cael.OPERA):
        both = kind([cael.SNIPS(), cael.SNIPS()]).estimate(log, pi)
        assert same(both.value, alone.value)
        assert both.stderr == pytest.approx(alone.stderr, rel=1e-6, abs=1e-9)
        assert both.error == pytest.approx(alone.error, rel=1e-6, abs=1e-9)


@given(problems(), st.floats(-50, 50))
def test_combinations_of_what_moves_with_the_reward_do(problem, shift):
    """Their weights sum to one. (OCV may choose another: its validator's noise moves.)"""
    log, pi, q = problem
    moved = cael.LoggedData(log.contexts, log.actions, log.rewards + shift, logging=log.logging)
    candidates = [cael.SNIPS(), cael.SNDR(cael.FixedOutcome(q))]
    for estimator in (cael.MetaOPE(candidates), cael.OPERA(candidates)):
        assert value(estimator, moved, pi) - value(estimator, log, pi) == pytest.approx(shift, rel=1e-4, abs=1e-4)
