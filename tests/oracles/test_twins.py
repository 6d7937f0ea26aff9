"""The library equals its slow twins on random problems."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
from cael.outcomes.ridge import ALPHAS, ONEHOT_ALPHAS
from tests.oracles import twins


def problem(seed, n=40, k=6):
    rng = np.random.default_rng(seed)
    mu, pi = rng.dirichlet(np.ones(k), n) * 0.9 + 0.1 / k, rng.dirichlet(np.full(k, 0.3), n)
    a = np.array([rng.choice(k, p=row) for row in mu])
    r = rng.normal(2.0, 3.0, n)
    q = rng.normal(2.0, 1.0, (n, k))
    log = cael.LoggedData(rng.normal(size=(n, 2)), a, r, logging=mu)
    w = pi[np.arange(n), a] / mu[np.arange(n), a]
    return log, pi, mu, q, w


seeds = st.integers(0, 10_000)


@given(seeds, st.floats(0.1, 20), st.floats(0.01, 0.99))
def test_closed_forms(seed, level, share):
    log, pi, _, q, w = problem(seed)
    a, r, fixed = log.actions, log.rewards, cael.FixedOutcome(q)

    def value(estimator):
        return estimator.estimate(log, pi).value

    assert value(cael.IPS()) == pytest.approx(twins.ips(w, r))
    assert value(cael.IPS(clip=level)) == pytest.approx(twins.ips(w, r, level))
    assert value(cael.SNIPS()) == pytest.approx(twins.snips(w, r))
    assert value(cael.DM(fixed)) == pytest.approx(twins.dm(pi, q))
    assert value(cael.DR(fixed)) == pytest.approx(twins.dr(pi, q, a, w, r))
    assert value(cael.SNDR(fixed)) == pytest.approx(twins.sndr(pi, q, a, w, r))
    assert value(cael.SwitchDR(fixed, tau=level)) == pytest.approx(twins.dr(pi, q, a, twins.switch(w, level), r))
    assert value(cael.DRos(fixed, lambda_=level)) == pytest.approx(twins.dr(pi, q, a, twins.shrink(w, level), r))
    assert value(cael.SubGaussianIPS(share)) == pytest.approx(twins.ips(twins.subgaussian(w, share), r))
    assert value(cael.SubGaussianDR(fixed, share)) == pytest.approx(twins.dr(pi, q, a, twins.subgaussian(w, share), r))


@given(seeds)
def test_exact_mips_by_groups(seed):
    log, pi, mu, _, _ = problem(seed)
    group = np.random.default_rng(seed).integers(0, 3, log.n_actions)
    ours = cael.MIPS(group, posterior="exact").estimate(log, pi).value
    assert ours == pytest.approx(twins.mips_by_groups(pi, mu, group, log.actions, log.rewards))


@given(seeds)
def test_exact_mips_is_a_mixture_of_products(seed):
    log, pi, mu, _, _ = problem(seed)
    rng = np.random.default_rng(seed)
    density = [rng.dirichlet(np.ones(m), log.n_actions) for m in (3, 2)]
    e = np.stack([[rng.choice(p.shape[1], p=p[a]) for a in log.actions] for p in density], axis=1)
    ours = cael.MIPS(row_embeddings=e, density=density, posterior="exact").estimate(log, pi).value
    assert ours == pytest.approx(twins.mips_mixture(pi, mu, density, e, log.rewards))


@given(seeds)
def test_slope_is_the_step_by_step_choice(seed):
    log, pi, _, _, _ = problem(seed)
    candidates = [cael.IPS(clip=c) for c in (0.5, 1.0, 2.0, 8.0)] + [cael.SNIPS(), cael.LoggedMean()]
    path = cael.SLOPE(candidates).estimate(log, pi).diagnostics.path
    chosen = next(i for i, each in enumerate(path) if each.chosen)
    assert chosen == twins.slope([each.value for each in path], [each.width for each in path])


@given(seeds, st.integers(2, 12))
def test_cluster_standard_error(seed, size):
    log, pi, mu, _, _ = problem(seed)
    clusters = np.arange(len(log)) // size
    grouped = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=mu, clusters=clusters)
    found = cael.SNIPS().estimate(grouped, pi)
    assert found.stderr == pytest.approx(twins.cluster_stderr(found.contributions, clusters))


@given(seeds, st.sampled_from(["onehot", "features", "both"]), st.floats(0.01, 100), st.sampled_from([2, 9, 40]))
def test_ridge_from_sums_is_ridge_from_the_design_matrix(seed, actions, alpha, features):
    """Also with more features than actions, of which two have the same."""
    log, pi, mu, _, _ = problem(seed, n=60)
    phi = np.random.default_rng(seed).normal(5.0, 2.0, (log.n_actions, features))
    phi[1] = phi[0]
    log = cael.LoggedData(log.contexts * 3 + 100, log.actions, log.rewards + 50, logging=mu, action_features=phi)
    table = phi if actions != "onehot" else np.empty((log.n_actions, 0))
    for folds in (0, 3):
        ours = cael.DM(cael.Ridge(alpha, actions), folds=folds).estimate(log, pi).contributions
        parts = log.folds(3) if folds else (np.arange(len(log)),)
        for rows in parts:
            train = np.setdiff1d(np.arange(len(log)), rows) if folds else rows
            x, a, r = log.contexts[train], log.actions[train], log.rewards[train]
            predict = twins.ridge(x, a, r, table, alpha, actions != "features")
            for i in rows:
                q = predict(np.repeat(log.contexts[i : i + 1], log.n_actions, axis=0), np.arange(log.n_actions))
                assert ours[i] == pytest.approx(pi[i] @ q, rel=1e-6)


@given(seeds, st.sampled_from(["onehot", "features", "both"]))
@settings(max_examples=10)
def test_ridge_takes_the_penalties_that_predict_the_held_out_folds_best(seed, actions):
    """By brute force: the models of every pair of penalties, judged row by row, for the rows outside fold 0."""
    log, pi, mu, _, _ = problem(seed, n=60)
    phi = np.random.default_rng(seed).normal(5.0, 2.0, (log.n_actions, 2))
    log = cael.LoggedData(log.contexts * 3 + 100, log.actions, log.rewards + 50, logging=mu, action_features=phi)
    table = phi if actions != "onehot" else np.empty((log.n_actions, 0))
    folds = log.folds(3, 0)

    def model(train, alpha, onehot):
        x, a, r = log.contexts[train], log.actions[train], log.rewards[train]
        return twins.ridge(x, a, r, table, alpha, actions != "features", onehot_alpha=onehot)

    def loss(pair):
        total = 0.0
        for judge, train in ((folds[1], folds[2]), (folds[2], folds[1])):
            q = model(np.sort(train), *pair)(log.contexts[judge], log.actions[judge])
            total += ((log.rewards[judge] - q) ** 2).sum()
        return total

    pairs = [(a, o) for o in (ONEHOT_ALPHAS if actions != "features" else (1.0,)) for a in ALPHAS]
    best = min(pairs, key=loss)
    q = model(np.sort(np.concatenate(folds[1:])), *best)
    ours = cael.DM(cael.Ridge("auto", actions), folds=3).estimate(log, pi).contributions
    for i in folds[0]:
        every = q(np.repeat(log.contexts[i : i + 1], log.n_actions, axis=0), np.arange(log.n_actions))
        assert ours[i] == pytest.approx(pi[i] @ every, rel=1e-6)
