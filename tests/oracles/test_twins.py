"""The library equals its slow twins on random problems."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
from cael.engine.asking import as_engine_log, ask
from cael.outcomes.ridge import ALPHAS, HALF, ONEHOT_ALPHAS, PRODUCT_ALPHAS, STRONGER, WEAKER
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


@given(
    seeds, st.sampled_from(["onehot", "features", "both"]), st.floats(0.01, 100), st.sampled_from([2, 9, 40]),
    st.booleans(),
)  # fmt: skip
def test_ridge_from_sums_is_ridge_from_the_design_matrix(seed, actions, alpha, features, interactions):
    """Also with more features than actions, of which two have the same; and contexts times actions and features."""
    log, pi, mu, _, _ = problem(seed, n=60)
    phi = np.random.default_rng(seed).normal(5.0, 2.0, (log.n_actions, features))
    phi[1] = phi[0]
    log = cael.LoggedData(log.contexts * 3 + 100, log.actions, log.rewards + 50, logging=mu, action_features=phi)
    table = phi if actions != "onehot" else np.empty((log.n_actions, 0))
    more = {
        "products": alpha if interactions and actions != "onehot" else None,
        "slopes": alpha if interactions and actions != "features" else None,
    }
    for folds in (0, 3):
        model = cael.Ridge(alpha, actions, interactions=interactions)
        ours = predictions_of(cael.DM(model, folds=folds).estimate(log, pi))
        parts = log.folds(3) if folds else (np.arange(len(log)),)
        for rows in parts:
            train = np.setdiff1d(np.arange(len(log)), rows) if folds else rows
            x, a, r = log.contexts[train], log.actions[train], log.rewards[train]
            predict = twins.ridge(x, a, r, table, alpha, actions != "features", **more)
            for i in rows:
                q = predict(np.repeat(log.contexts[i : i + 1], log.n_actions, axis=0), np.arange(log.n_actions))
                assert ours[i] == pytest.approx(pi[i] @ q, rel=1e-6)


def predictions_of(estimate):
    """(n,) q(x_i, pi), the first column of a DM; the other one is the influence of the training rows."""
    return estimate.sums.block[np.flatnonzero(estimate.sums.coefficients)[0]]


def best_by_brute_force(loss, actions, count, interactions):
    """Penalties (dense, one-hot, products, slopes) by the errors (n,) of models on held-out rows: those of the additive
    model, then of products, then of slopes, from half of them on for as long as it gets better."""
    onehot = actions != "features"
    best = min(((a, o, None, None) for o in (ONEHOT_ALPHAS if onehot else (None,)) for a in ALPHAS), key=loss)
    if not interactions:
        return best
    if actions != "onehot":
        best = min([best, *((*best[:2], alpha, None) for alpha in PRODUCT_ALPHAS)], key=loss)
    if not onehot or loss((*best[:3], HALF * count)) >= loss(best):
        return best
    half = (*best[:3], HALF * count)
    for walk in (WEAKER, STRONGER):
        best = half
        for alpha in walk:
            if loss((*best[:3], alpha * count)) >= loss(best):
                break
            best = (*best[:3], alpha * count)
        if best != half:
            return best
    return half


@given(seeds, st.sampled_from(["onehot", "features", "both"]), st.booleans(), st.sampled_from([0.0, 2.0]))
@settings(max_examples=12, deadline=None)
def test_ridge_takes_the_penalties_that_predict_the_held_out_folds_best(seed, actions, interactions, strength):
    """By brute force: the models of all penalties, judged row by row, for the rows outside fold 0."""
    log, pi, mu, _, _ = problem(seed, n=90)
    phi = np.random.default_rng(seed).normal(5.0, 2.0, (log.n_actions, 2))
    rewards = log.rewards + 50 + strength * log.contexts[:, 0] * (phi[log.actions, 0] - 5)
    log = cael.LoggedData(log.contexts * 3 + 100, log.actions, rewards, logging=mu, action_features=phi)
    table = phi if actions != "onehot" else np.empty((log.n_actions, 0))
    folds = log.folds(3, 0)

    def model(train, penalties):
        x, a, r = log.contexts[train], log.actions[train], log.rewards[train]
        dense, *others = penalties
        return twins.ridge(x, a, r, table, dense, actions != "features", *others)

    def loss(penalties):
        total = 0.0
        for judge, train in ((folds[1], folds[2]), (folds[2], folds[1])):
            q = model(np.sort(train), penalties)(log.contexts[judge], log.actions[judge])
            total += ((log.rewards[judge] - q) ** 2).sum()
        return total

    best = best_by_brute_force(loss, actions, len(log) / log.n_actions, interactions)
    assert interactions or best[2:] == (None, None)
    q = model(np.sort(np.concatenate(folds[1:])), best)
    ridge = cael.Ridge("auto", actions, "auto" if interactions else False)
    ours = predictions_of(cael.DM(ridge, folds=3).estimate(log, pi))
    for i in folds[0]:
        every = q(np.repeat(log.contexts[i : i + 1], log.n_actions, axis=0), np.arange(log.n_actions))
        assert ours[i] == pytest.approx(pi[i] @ every, rel=1e-6)


@given(seeds, st.booleans())
def test_offcem_and_mdr_by_groups(seed, ratio):
    log, pi, mu, q, _ = problem(seed)
    group, fixed = np.random.default_rng(seed).integers(0, 3, log.n_actions), cael.FixedOutcome(q)
    expected = pytest.approx(twins.offcem(pi, mu, group, q, log.actions, log.rewards, ratio))
    weights = cael.MIPS(group, posterior="exact", self_normalised=ratio)
    assert cael.OffCEM(group, outcome=fixed, self_normalised=ratio).estimate(log, pi).value == expected
    assert cael.MDR(weights, fixed).estimate(log, pi).value == expected


def four(q):
    fixed = cael.FixedOutcome(q)
    return [cael.IPS(), cael.SNIPS(), cael.DR(fixed), cael.SNDR(fixed)]


@given(seeds, st.floats(0.01, 1.0))
def test_least_variance_combination(seed, shrinkage):
    log, pi, _, q, w = problem(seed)
    z = twins.contributions(pi, q, log.actions, w, log.rewards)
    shares = twins.least_variance(np.cov(z), shrinkage)
    ours = cael.MetaOPE(four(q), shrinkage).estimate(log, pi)
    assert ours.value == pytest.approx(shares @ z.mean(axis=1), rel=1e-6)
    assert ours.stderr == pytest.approx((shares @ z).std(ddof=1) / np.sqrt(len(log)), rel=1e-5)
    np.testing.assert_allclose(ours.contributions, shares @ z, rtol=1e-5, atol=1e-6)


@given(seeds, st.floats(0.01, 1.0))
@settings(max_examples=20)
def test_opera_resamples_rows(seed, shrinkage):
    log, pi, _, q, w = problem(seed)
    counts = np.random.default_rng(seed).multinomial(len(log), np.full(len(log), 1 / len(log)), 30)
    errors = twins.bootstrapped_errors(pi, q, log.actions, w, log.rewards, counts)
    shares = twins.least_variance(errors, shrinkage)
    ours = cael.OPERA(four(q), 30, shrinkage, seed).estimate(log, pi)
    assert ours.value == pytest.approx(shares @ twins.four(pi, q, log.actions, w, log.rewards), rel=1e-6)


@given(seeds)
@settings(max_examples=20)
def test_ocv_is_the_choice_by_loops(seed):
    log, pi, _, q, w = problem(seed)
    orders = np.random.default_rng(seed).permuted(np.tile(np.arange(len(log)), (7, 1)), axis=1)
    best, scores = twins.cross_validated(pi, q, log.actions, w, log.rewards, orders)
    ours = cael.OCV(four(q), cael.DR(cael.FixedOutcome(q)), 7, seed)
    assert ours.estimate(log, pi).value == pytest.approx(twins.four(pi, q, log.actions, w, log.rewards)[best])
    answer = ask(as_engine_log(log), {"": pi}, [ours], controls=None)
    np.testing.assert_allclose(ours.scores(answer.parts[0].looked(answer)), scores, rtol=1e-9)
