"""MIPS: the posterior, the exact weights, and the peers' mistake."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import cael
from cael import InputError, NeedsError
from cael.estimators.marginal import encoder
from cael.policies.posterior import Dense, RowFeatures, Tabled, _softmax, fit_softmax

RNG = np.random.default_rng(11)


def encoded(embeddings):
    return encoder(embeddings)(embeddings)


def problem(n=400, k=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    mu = 0.8 * rng.dirichlet(np.ones(k), n) + 0.2 / k
    a = np.array([rng.choice(k, p=p) for p in mu])
    return cael.LoggedData(x, a, rng.normal(size=n), logging=mu), rng.dirichlet(np.ones(k), n)


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_the_posterior_is_scikit_learns(C):
    log, _ = problem()
    features = np.hstack([log.contexts, encoded((np.arange(6) % 3)[log.actions][:, None])])
    ours = fit_softmax(log, features, C=C, offset=False, max_iter=5000)
    theirs = LogisticRegression(C=C, max_iter=5000, tol=1e-8).fit(features, log.actions)
    assert ours.converged
    np.testing.assert_allclose(ours.probabilities(features, None), theirs.predict_proba(features), atol=1e-4)


@pytest.mark.parametrize("kind", ["more than rows", "twice the same", "of very different size"])
def test_the_posterior_is_scikit_learns_with_features_that(kind):
    """What is left out of the solver for saying nothing changes nothing; a rare feature beside a huge one says much."""
    log, _ = problem(n=80, k=4)
    rng = np.random.default_rng(5)
    features = {
        "more than rows": rng.normal(size=(80, 200)),
        "twice the same": np.hstack([log.contexts, log.contexts, np.ones((80, 1))]),
        "of very different size": np.column_stack([1e6 * rng.normal(size=80), 0.2 * (log.actions == 2)]),
    }[kind]
    ours = fit_softmax(log, features, C=1.0, offset=False, max_iter=5000)
    theirs = LogisticRegression(C=1.0, max_iter=20_000, tol=1e-9, solver="newton-cholesky").fit(features, log.actions)
    assert ours.converged
    np.testing.assert_allclose(ours.probabilities(features, None), theirs.predict_proba(features), atol=1e-4)


def test_the_posterior_is_the_same_on_any_number_of_threads_and_uses_no_more_than_allowed(monkeypatch):
    world = cael.worlds.PaperWorld(n_actions=8, action_dim=3)
    log = world.sample(3000, seed=0)
    monkeypatch.setattr("cael.policies.posterior.BATCH_BYTES", 200_000)  # several blocks
    found, used = {}, {}
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        seen = set()
        monkeypatch.setattr(
            "cael.policies.posterior._softmax",
            lambda *given, of=seen: of.add(threading.get_ident()) or _softmax(*given),
        )
        found[threads] = fit_softmax(log, log.contexts, C=1.0, offset=False, max_iter=50).weights
        used[threads] = len(seen)
    np.testing.assert_array_equal(found["1"], found["2"])
    np.testing.assert_array_equal(found["1"], found["3"])
    assert used["1"] == 1
    assert 1 < used["3"] <= 3


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 60))
@settings(max_examples=25)
def test_products_by_lines_of_a_table_are_those_by_rows(seed, gap, size):
    """Blocks of rows in which some lines come often and others never; the last line of the table never at all."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 5, 60) * (1 + gap)
    features = RowFeatures(rng.normal(size=(60, 2)), rng.normal(size=(11, 4)), code)
    mean, A = rng.normal(size=6), rng.normal(size=(6, 6))
    lines = features.design(mean, A)
    rows = Dense(features, mean, A)
    assert isinstance(lines, Tabled)
    V, post = rng.normal(size=(6, 3)), rng.normal(size=(60, 3))
    rooms = [each.room(3) for each in (lines, rows)]
    for at in range(0, 60, size):
        part = slice(at, min(60, at + size))
        np.testing.assert_allclose(lines.product(V)(part), rows.product(V)(part), atol=1e-12)
        for each, room in zip((lines, rows), rooms, strict=True):
            each.add(room, part, post[part])
    np.testing.assert_allclose(lines.gathered(rooms[0]), rows.gathered(rooms[1]), atol=1e-11)
    # What is kept of a block, and what is added for it, has its own lines and not all of the table.
    assert all(adding.shape[0] == len(own) <= end - at for (at, end), (own, adding) in lines.adding.items())


def test_a_table_with_more_lines_than_rows_would_need_is_taken_row_by_row():
    features = RowFeatures(np.zeros((30, 1)), np.eye(300), np.arange(30))
    assert isinstance(features.design(np.zeros(301), np.eye(301)), Tabled)  # 30 of 300 lines occur
    features = RowFeatures(np.zeros((300, 1)), np.ones((300, 2)), np.arange(300))
    assert isinstance(features.design(np.zeros(3), np.eye(3)), Dense)


def test_actions_that_never_occur_get_no_logit_without_offset_and_the_logging_policys_with_one():
    log, _ = problem()
    keep = log.take(log.actions != 3)
    features = keep.contexts
    assert 3 not in fit_softmax(keep, features, C=1.0, offset=False, max_iter=1000).classes
    mu = np.concatenate([cael.policies.policy.probabilities(keep.logging, b) for b in keep.batches(6)])
    withit = fit_softmax(keep, 0 * features, C=1.0, offset=True, max_iter=1000)
    post = withit.probabilities(0 * features, mu)
    assert post[:, 3].max() < 0.02  # the intercept has learned that it never occurs
    assert not np.allclose(post[:, :3].std(axis=0), 0)  # and the rest follows mu row by row


def test_with_an_offset_and_an_uninformative_embedding_the_weight_is_one():
    """e says nothing: mu(a|x, e) = mu(a|x), so rho = sum_a mu w = 1; a posterior without offset must learn that."""
    log, pi = problem(n=4000, k=4)
    constant = np.zeros(4, dtype=int)
    free = cael.LoggedData(np.zeros((4000, 1)), log.actions, log.rewards, logging=log.logging)
    offset = cael.MIPS(constant, offset=True).estimate(free, pi)
    plain = cael.MIPS(constant).estimate(free, pi)
    assert abs(offset.diagnostics.mean_weight - 1) < 0.02
    assert offset.diagnostics.max_weight < 1.5
    assert plain.diagnostics.max_weight > 2 * offset.diagnostics.max_weight


def test_logistic_mips_approaches_the_exact_one_when_contexts_say_nothing():
    """One logging distribution for all contexts, a categorical embedding: the logistic posterior is well specified."""
    rng = np.random.default_rng(3)
    n, k = 20_000, 6
    mu, pi = rng.dirichlet(np.ones(k)) * 0.7 + 0.05, rng.dirichlet(np.ones(k))
    a = rng.choice(k, size=n, p=mu)
    group = np.arange(k) // 2
    log = cael.LoggedData(None, a, group[a] + rng.normal(size=n), logging=mu)
    exact = cael.MIPS(group, posterior="exact").estimate(log, pi)
    fitted = cael.MIPS(group, C=1e4).estimate(log, pi)
    assert fitted.value == pytest.approx(exact.value, abs=0.01)


def test_product_of_marginals_is_wrong():
    """The counterexample: two actions with perfectly correlated embedding columns.

    Under mu each action has probability 1/2, under pi (0.9, 0.1). Action 0 always shows e = (0, 0), action 1 (1, 1).
    The right weight at (0, 0) is 0.9 / 0.5 = 1.8; the product of the marginals says (0.9 / 0.5)^2 = 3.24.
    """
    density = [np.eye(2), np.eye(2)]
    e = np.array([[0, 0], [1, 1], [0, 0], [1, 1]])
    log = cael.LoggedData(None, [0, 1, 0, 1], [1.0, 0.0, 1.0, 0.0], logging=[0.5, 0.5])
    found = cael.MIPS(row_embeddings=e, density=density, posterior="exact").estimate(log, [0.9, 0.1])
    assert found.diagnostics.max_weight == pytest.approx(1.8)
    assert found.diagnostics.mean_weight == pytest.approx(1.0)
    assert found.value == pytest.approx(0.9)
    product = np.prod([0.9 / 0.5, 0.9 / 0.5])
    assert product == pytest.approx(3.24)


def test_exact_mips_keeps_unsupported_actions_whose_embedding_is_supported():
    """The logging policy never plays action 1, but plays action 0 with the same embedding: nothing is lost."""
    log = cael.LoggedData(None, [0, 2] * 50, [2.0, 0.0] * 50, logging=[0.5, 0.0, 0.5])
    ips = cael.IPS().estimate(log, [0.25, 0.5, 0.25])
    mips = cael.MIPS([0, 0, 1], posterior="exact").estimate(log, [0.25, 0.5, 0.25])
    assert ips.value == pytest.approx(0.5)
    assert ips.diagnostics.unsupported_mass == pytest.approx(0.5)
    assert mips.value == pytest.approx(1.5)
    assert mips.diagnostics.mean_weight == pytest.approx(1.0)


def test_continuous_embeddings():
    log, pi = problem()
    found = cael.MIPS(RNG.normal(size=(6, 2)), C=1.0).estimate(log, pi)
    assert np.isfinite(found.value)
    assert encoded(np.array([[1.0], [3.0]])).ravel().tolist() == [-1.0, 1.0]


def test_cross_fitted_posterior_and_self_normalisation():
    log, pi = problem()
    group = np.arange(6) // 2
    assert cael.MIPS(group, folds=3).estimate(log, pi).diagnostics.cross_fitted is True
    plain, normalised = (cael.MIPS(group, self_normalised=s).estimate(log, pi) for s in (False, True))
    assert normalised.value == pytest.approx(plain.value / plain.diagnostics.mean_weight)
    assert normalised.estimator == "SNMIPS"


def test_errors():
    log, pi = problem()
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=6)
    with pytest.raises(NeedsError, match=r"MIPS needs all probabilities of the logging policy \(LoggedData\(logging="):
        cael.MIPS(np.arange(6)).estimate(bare, pi)
    with pytest.raises(InputError, match="MIPS needs embeddings"):
        cael.MIPS().estimate(log, pi)
    with pytest.raises(InputError, match="one row per action, 6; got 5"):
        cael.MIPS(np.arange(5)).estimate(log, pi)
    with pytest.raises(InputError, match="not both"):
        cael.MIPS([0], row_embeddings=[0])
    with pytest.raises(InputError, match="needs density"):
        cael.MIPS(row_embeddings=[0], posterior="exact")
    with pytest.raises(InputError, match=r"density\[0\] must have shape"):
        cael.MIPS(row_embeddings=[0], density=[np.ones((2, 2))], posterior="exact")
    with pytest.raises(InputError, match="one column for each array"):
        cael.MIPS(
            row_embeddings=np.zeros((400, 2), dtype=int), density=np.full((6, 2), 0.5), posterior="exact"
        ).estimate(log, pi)
    with pytest.raises(InputError, match="cannot occur under the logging policy"):
        impossible = np.tile([1.0, 0.0], (6, 1))
        cael.MIPS(row_embeddings=np.ones(400, dtype=int), density=impossible, posterior="exact").estimate(log, pi)
    with pytest.raises(InputError, match="embeddings must be numbers"):
        cael.MIPS([["red"], ["blue"]])


def test_a_solver_that_stops_early_says_so():
    log, pi = problem()
    found = cael.MIPS(np.arange(6) // 2, max_iter=1).estimate(log, pi)
    assert any("before it converged" in warning for warning in found.diagnostics.warnings)
