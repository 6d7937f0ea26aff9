"""Many actions: what carries mass is enough. Equal to the dense way where both can be had, and small where not."""

import itertools
import tracemalloc

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import cael
from cael.engine.asking import as_engine_log, ask
from cael.engine.columns import Surprise
from cael.judging.judge import survey_of
from cael.policies.policy import probabilities

N, K, M = 60, 9, 3
RNG = np.random.default_rng(5)
LISTS = np.argsort(RNG.random((N, K)), axis=1)[:, :M]
HOLES = np.where(RNG.random((N, M)) < 0.3, -1, LISTS)
HOLES[:, 0] = LISTS[:, 0]
P = RNG.dirichlet(np.ones(M), size=N)


def log_of(logging=None, binary=False, features=True):
    x, a = RNG.normal(size=(N, 2)), RNG.integers(0, K, N)
    rewards = x[:, 0] + a / K + 0.1 * RNG.normal(size=N)
    given = {"action_features": RNG.normal(size=(K, 2))} if features else {}
    logging = cael.Uniform(K) if logging is None else logging
    return cael.LoggedData(x, a, (rewards > 0.5) * 1.0 if binary else rewards, logging=logging, n_actions=K, **given)


TARGETS = [
    cael.TopK(LISTS, P, K),
    cael.TopK(HOLES, np.where(HOLES >= 0, 0.2, 0.0), K, rest="renormalise"),
    cael.TopK(HOLES, np.where(HOLES >= 0, 0.2, 0.0), K, rest="uniform"),
    cael.EpsilonGreedy(RNG.normal(size=(N, K)), 0.3),
    cael.EpsilonGreedy(RNG.normal(size=K), 0.0),
    cael.Uniform(K),
    cael.Tabular(np.eye(K)[4]),
    cael.Mixture(
        [cael.Uniform(K), cael.TopK(LISTS, P, K), cael.EpsilonGreedy(RNG.normal(size=K), 0.2)], [0.1, 0.6, 0.3]
    ),
    cael.Mixture([cael.Softmax(RNG.normal(size=K)), cael.TopK(LISTS, P, K)], [0.5, 0.5]),
    cael.Softmax(RNG.normal(size=(N, K))),
    cael.FactorisedSoftmax(RNG.normal(size=(2, 3)), RNG.normal(size=(K, 3))),
]


def dense(policy, log):
    """The same policy as a table of all rows and actions, which has no list."""
    return cael.Tabular(np.concatenate([probabilities(policy, batch) for batch in log.batches(width=K)]))


TREE = cael.SklearnOutcome(DecisionTreeRegressor(max_depth=3, random_state=0))
MODELS = [
    cael.Ridge(),
    cael.Ridge(actions="features"),
    TREE,
    cael.FixedOutcome(RNG.normal(size=K)),
    cael.FixedOutcome(RNG.normal(size=(N, K))),
    cael.FixedOutcome(lambda x: np.tanh(x[:, :1] + np.arange(K))),
    cael.Sampled(TREE, size=K),
]


@pytest.mark.parametrize("policy", TARGETS, ids=repr)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_lists_give_what_tables_give(policy, model):
    log = log_of()
    for estimator in (cael.DM(model, folds=3), cael.SNDR(model, folds=3), cael.DR(model, folds=0)):
        few, all_ = estimator.estimate(log, policy), estimator.estimate(log, dense(policy, log))
        np.testing.assert_allclose(few.contributions, all_.contributions, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("policy", TARGETS, ids=repr)
def test_the_same_of_logistic_regression(policy):
    log = log_of(binary=True)
    few, all_ = (cael.DM(cael.Logistic(), folds=2).estimate(log, each) for each in (policy, dense(policy, log)))
    np.testing.assert_allclose(few.contributions, all_.contributions, rtol=1e-12, atol=1e-12)


LOGGING = [
    cael.Uniform(K),
    cael.Tabular(np.array([0.5, 0.3, 0.2, *np.zeros(K - 3)])),
    cael.TopK(LISTS, P, K),
    cael.EpsilonGreedy(RNG.normal(size=K), 0.0),
    cael.Tabular(np.where(np.arange(K) == RNG.integers(0, K, (N, 1)), 0.0, 1 / (K - 1))),
]


@pytest.mark.parametrize("policy", TARGETS, ids=repr)
@pytest.mark.parametrize("logging", LOGGING, ids=repr)
def test_weights_and_unsupported_mass_are_those_of_tables(policy, logging):
    x = RNG.normal(size=(N, 2))
    mu = np.concatenate(
        [probabilities(logging, b) for b in cael.LoggedData(x, [0] * N, x[:, 0], n_actions=K).batches(K)]
    )
    log = cael.LoggedData(x, mu.argmax(axis=1), x[:, 0], logging=logging, n_actions=K)
    pi = dense(policy, log)
    few, all_ = cael.Problem(log, policy), cael.Problem(log, pi)
    slow = sum(pi.table[i, a] for i in range(N) for a in range(K) if mu[i, a] <= 0) / N
    assert few.unsupported_mass == pytest.approx(slow, abs=1e-12)
    assert all_.unsupported_mass == pytest.approx(slow, abs=1e-12)
    if slow < 1 - 1e-9:
        np.testing.assert_allclose(few.weights, all_.weights, rtol=1e-12)


@pytest.mark.parametrize("logging", [cael.TopK(LISTS, 0.8 * P, K, rest="uniform"), *TARGETS[5:]], ids=repr)
@pytest.mark.parametrize("policy", TARGETS, ids=repr)
def test_a_survey_by_lists_is_that_by_tables(policy, logging):
    x = RNG.normal(size=(N, 2))
    bare = cael.LoggedData(x, [0] * N, x[:, 0], n_actions=K)
    mu = np.concatenate([probabilities(logging, batch) for batch in bare.batches(K)])
    few, all_ = (
        ask(as_engine_log(cael.LoggedData(x, mu.argmax(axis=1), x[:, 0], logging=each, n_actions=K)), {"": target}, [])
        for each, target in ((logging, policy), (cael.Tabular(mu), dense(policy, bare)))
    )
    for name in ("logged", "expected", "variance", "target"):
        pair = [getattr(survey_of(answer, 0), name) for answer in (few, all_)]
        np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-10, err_msg=name)
    for relative in (False, True):
        pair = [answer.single(Surprise(relative)).rows for answer in (few, all_)]
        np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-10)
    assert few.partial.actions.worst == pytest.approx(all_.partial.actions.worst, abs=1e-10)


# --- a sample of the actions


def many(n=400, k=200, seed=0):
    rng = np.random.default_rng(seed)
    x, a = rng.normal(size=(n, 2)), rng.integers(0, k, n)
    phi = rng.normal(size=(k, 2))
    log = cael.LoggedData(x, a, (x * phi[a]).sum(1) + rng.normal(size=n), logging=cael.Uniform(k), action_features=phi)
    return log, cael.FixedOutcome(lambda contexts: np.tanh(contexts @ phi.T) + phi[:, 0])


@pytest.mark.parametrize("which", ["dense", "rest"])
def test_the_mean_over_sampled_actions_is_unbiased(which):
    """100 seeds: their mean is within 4 standard errors of the exact value, and not of another policy's."""
    log, model = many()
    rng = np.random.default_rng(1)
    policy = {
        "dense": cael.FactorisedSoftmax(rng.normal(size=(2, 2)), log.action_features),
        "rest": cael.EpsilonGreedy(rng.normal(size=200), 0.8),
    }[which]
    exact, other = (cael.DM(model).estimate(log, each).value for each in (policy, cael.Uniform(200)))
    found = np.array([cael.DM(cael.Sampled(model, 2), seed=s).estimate(log, policy).value for s in range(100)])
    error = found.std(ddof=1) / 10
    assert error > 0
    assert abs(found.mean() - exact) < 4 * error
    assert abs(found.mean() - other) > 4 * error


def test_more_draws_are_nearer_to_the_exact_value():
    log, model = many()
    policy = cael.FactorisedSoftmax(np.eye(2), log.action_features)
    exact = cael.DM(model).estimate(log, policy).contributions
    errors = [
        np.abs(cael.DM(cael.Sampled(model, size)).estimate(log, policy).contributions - exact).mean()
        for size in (2, 8, 32, 128)
    ]
    assert all(later < 0.7 * earlier for earlier, later in itertools.pairwise(errors))  # a half is expected


def test_a_sample_larger_than_the_actions_is_exact():
    log, model = many()
    policy = cael.FactorisedSoftmax(np.eye(2), log.action_features)
    exact, sampled = cael.DM(model), cael.DM(cael.Sampled(model, 200))
    np.testing.assert_array_equal(
        exact.estimate(log, policy).contributions, sampled.estimate(log, policy).contributions
    )


# --- memory


@pytest.mark.long
def test_no_array_of_rows_times_actions_is_made():
    """2000 rows and 100,000 actions: a table of them has 1.6 GB; what is needed stays below 100 MB."""
    n, k, m = 2000, 100_000, 20
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(k, 4))
    x, a = rng.normal(size=(n, 3)), rng.integers(0, k, n)
    shares = rng.dirichlet(np.ones(k))
    lists = rng.integers(0, k // m, (n, m)) + np.arange(m) * (k // m)
    lists[np.arange(100), a[:100] // (k // m)] = a[:100]  # some rows match
    top = cael.TopK(lists, np.full((n, m), 1 / m), k)
    spread = cael.TopK(lists, np.full((n, m), 0.9 / m), k, rest="uniform")
    logs = [
        cael.LoggedData(x, a, rng.normal(size=n), logging=logging, action_features=phi)
        for logging in (cael.Uniform(k), cael.Tabular(shares), cael.Mixture([cael.Uniform(k), spread], [0.5, 0.5]))
    ]
    tracemalloc.start()
    for log in logs:
        for policy in (top, spread, cael.Mixture([cael.Uniform(k), top], [0.1, 0.9])):
            problem = cael.Problem(log, policy)
            for estimator in (cael.IPS(), cael.SNIPS(), cael.DM(), cael.DR(), cael.SNDR(), cael.SwitchDR()):
                estimator.solve(problem)
    boosted = cael.SNDR(cael.Boosting(max_iter=3), folds=2)
    boosted.estimate(logs[0], top)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
