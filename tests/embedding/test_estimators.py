"""CAELMIPS, AELMIPS and NetworkDM as estimators: readings, diagnostics, bad input, and the claims of the paper."""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.embedding.published.learned import AEL_PRESETS
from cael.embedding.settings import objective
from cael.estimators.problem import Problem
from cael.policies.posterior import fit_softmax
from cael.testing import example
from tests.embedding import slow

torch = pytest.importorskip("torch")

from cael.embedding import training  # noqa: E402
from cael.embedding.network import ActionNetwork  # noqa: E402
from cael.embedding.published import inner  # noqa: E402
from cael.embedding.published import objective as objective_module  # noqa: E402
from cael.embedding.stream import Stream  # noqa: E402
from cael.embedding.tensors import Torch  # noqa: E402

LOG, POLICY = example()
SMALL = cael.NetworkSettings(hidden=16)
QUICK = cael.Training(iterations=15, batch_size=64, check_every=5)


def quick(*, iterations=15, network=SMALL, seed=0, **changes):
    """CAELMIPS of the default preset with changes, trained for a moment."""
    return cael.CAELMIPS(
        objective=objective("constant-posterior", **changes),
        network=network,
        seed=seed,
        training=replace(QUICK, iterations=iterations),
    )


def log_like(log, **changes):
    fields = ("contexts", "actions", "rewards", "logging", "n_actions", "action_features")
    given = {name: getattr(log, name) for name in fields} | changes
    return cael.LoggedData(**given)


@pytest.fixture
def trained(monkeypatch):
    """The parameters of every network that is trained while the test runs."""
    seen, train = [], training.train

    def spy(*arguments, **options):
        found = train(*arguments, **options)
        seen.append(found[0])
        return found

    monkeypatch.setattr(training, "train", spy)
    return seen


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("variance", ["paper", "direct"])
@pytest.mark.parametrize("check_every", [1, 5])
def test_without_gradients_the_two_terms_do_nothing(trained, variance, check_every):
    held = quick(posterior_gradient=False, reward_gradient=False, variance=variance)
    alone = quick(alpha=0.0, beta=0.0)
    for each in (held, alone):
        each = replace(each, training=replace(QUICK, check_every=check_every))
        assert each.estimate(LOG, POLICY).value == each.estimate(LOG, POLICY).value
    held_parameters, _, alone_parameters, _ = trained
    assert equal(held_parameters, alone_parameters)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beta": 1.0},
        {"posterior_gradient": True},
        {"posterior_gradient": True, "bias": "sharp"},
        {"posterior_gradient": True, "variance": "direct"},
        {"variance_n": "batch"},
        {"posterior_gradient": True, "reward_gradient": False},
        {"features": "xe"},
        {"offset": True},
        {"C": 10.0},
    ],
    ids=str,
)
def test_each_reading_is_different(trained, changes):
    base = quick(alpha=0.0, beta=0.0).estimate(LOG, POLICY)
    found = quick(**changes).estimate(LOG, POLICY)
    assert np.isfinite(found.value)
    assert found.value != base.value
    assert not equal(*trained)


def test_alpha_without_a_gradient_through_the_posterior_changes_nothing(trained):
    for alpha in (0.0, 10.0):
        quick(alpha=alpha).estimate(LOG, POLICY)
    assert equal(*trained)


@pytest.mark.parametrize("preset", ["constant-posterior", "through-posterior"])
def test_literal_form_and_fast_form(monkeypatch, preset):
    """scikit-learn from scratch on every batch, and the warm-started softmax: the same losses, the same estimate."""
    world = cael.worlds.PaperWorld(n_actions=30, action_dim=4)
    log = world.sample(200, seed=3)
    monkeypatch.setattr(objective_module, "sklearn_head", functools.partial(inner.sklearn_head, tolerance=1e-9))
    fit = inner.SoftmaxHead.fit
    monkeypatch.setattr(
        inner.SoftmaxHead,
        "fit",
        lambda self, z, a, log_mu, tolerance=1e-7, max_iter=30: fit(self, z, a, log_mu, min(tolerance, 1e-7), max_iter),
    )
    found = {
        each: cael.CAELMIPS(
            objective=objective(preset, inner=each),
            network=SMALL,
            training=cael.Training(iterations=20, batch_size=64, check_every=1),
        ).estimate(log, world.target)
        for each in ("sklearn", "softmax")
    }
    literal, fast = (found[each].diagnostics.training.history for each in ("sklearn", "softmax"))
    assert literal.keys() == fast.keys() == {"iteration", "total", "reward", "variance", "bias"}
    for name, values in literal.items():
        np.testing.assert_allclose(fast[name][:3], values[:3], rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(fast[name], values, rtol=1e-2, err_msg=name)
    assert found["softmax"].value == pytest.approx(found["sklearn"].value, rel=1e-2)


def test_history_does_not_change_the_training(trained):
    """The losses that are only recorded leave the parameters alone."""
    for check_every in (1, 15):
        estimator = quick(posterior_gradient=False, reward_gradient=False)
        replace(estimator, training=replace(QUICK, check_every=check_every)).estimate(LOG, POLICY)
    assert equal(*trained)


def test_diagnostics():
    found = quick().estimate(LOG, POLICY)
    facts = found.diagnostics.training
    assert facts.iterations == 15
    assert facts.history["iteration"] == (0.0, 5.0, 10.0, 14.0)
    for name in ("total", "reward", "bias", "variance"):
        assert len(facts.history[name]) == 4
        assert np.isfinite(facts.history[name]).all()
    total = [
        r + 10 * b + 0.1 * v
        for r, b, v in zip(*(facts.history[n] for n in ("reward", "bias", "variance")), strict=True)
    ]
    np.testing.assert_allclose(facts.history["total"], total, rtol=1e-5)
    assert not facts.stopped_early
    assert facts.converged
    assert facts.bias_bound > 0
    assert facts.variance_bound > 0
    assert 0 <= facts.renyi_entropy <= np.log(8)
    assert np.exp(facts.renyi_entropy) <= facts.effective_actions <= 8
    assert found.diagnostics.mean_weight > 0
    assert found.diagnostics.effective_sample_size > 1
    assert any("bias of the embedding" in warning for warning in found.diagnostics.warnings)
    json.dumps(found.diagnostics.to_dict())


def test_bound_of_the_bias_by_loops():
    """With C near 0 the posterior is mu(a|x) tilted by intercepts alone, whatever the embedding: it is known."""
    found = quick(offset=True, C=1e-9).estimate(LOG, POLICY).diagnostics
    z = np.random.default_rng(0).normal(size=(len(LOG), 1))
    pi, mu = (cael.policies.policy.probabilities(each, next(LOG.batches(8))) for each in (POLICY, LOG.logging))
    p, w = fit_softmax(LOG, z, C=1e-9, offset=True, max_iter=1000).probabilities(z, mu), pi / mu
    bound = np.mean([slow.pair_sum(a, b) for a, b in zip(p.tolist(), w.tolist(), strict=True)])
    assert found.training.bias_bound == pytest.approx(bound, rel=1e-3)
    assert found.mean_weight == pytest.approx(float((p * w).sum(axis=1).mean()), rel=1e-3)
    entropy = np.mean([slow.renyi(row) for row in p.tolist()])
    assert found.training.renyi_entropy == pytest.approx(entropy, rel=1e-3)
    variance = slow.variance(LOG.rewards, p, w, len(LOG))
    assert found.training.variance_bound == pytest.approx(variance, rel=1e-3)


def test_warning_where_the_mean_weight_is_far_from_one():
    """Half of the target's mass lies on an action that the log does not hold: its weight is lost."""
    rng = np.random.default_rng(0)
    log = cael.LoggedData(rng.random((200, 3)), rng.integers(0, 3, 200), rng.random(200), logging=np.full(4, 0.25))
    target = np.array([0.2, 0.15, 0.15, 0.5])
    for estimator in (quick(), cael.AELMIPS()):
        found = estimator.estimate(log, target).diagnostics
        assert found.mean_weight == pytest.approx(2 / 3, abs=0.1)
        assert any("far from 1" in warning for warning in found.warnings)
    same = quick().estimate(log, np.full(4, 0.25)).diagnostics
    assert same.mean_weight == pytest.approx(1.0)
    assert not any("far from 1" in warning for warning in same.warnings)


def test_unconverged_final_fit_is_said():
    found = replace(quick(), final_iter=1).estimate(LOG, POLICY)
    assert any("final_iter" in warning for warning in found.diagnostics.warnings)


def test_solve_is_solve_many_of_one():
    for estimator in (quick(seed=4), cael.AELMIPS(seed=4), cael.NetworkDM(cael.NetworkOutcome(SMALL, QUICK), seed=4)):
        problem = Problem(LOG, POLICY)
        one, many = estimator.solve(problem), estimator.solve_many([problem], [4])[0]
        assert one.value == many.value
        assert one.diagnostics.warnings == many.diagnostics.warnings


def test_many_problems_at_once():
    """A trial has the numbers that it has alone, but for the rounding of sums."""
    world = cael.worlds.PaperWorld(n_actions=8, action_dim=3, gamma=0.2)
    problems = [Problem(world.sample(120, seed), world.target) for seed in range(5)]
    dm = cael.NetworkDM(cael.NetworkOutcome(SMALL, QUICK))
    through = quick(posterior_gradient=True, iterations=60)
    for estimator in (quick(iterations=60), through, quick(offset=True), cael.AELMIPS(), dm):
        together = estimator.solve_many(problems, [7, 8, 9, 10, 11])
        for seed, problem, each in zip((7, 8, 9, 10, 11), problems, together, strict=True):
            alone = replace(estimator, seed=seed).solve(problem)
            assert each.value == pytest.approx(alone.value, rel=1e-10)


def test_seed_matters():
    assert quick(seed=0).estimate(LOG, POLICY).value != quick(seed=1).estimate(LOG, POLICY).value


def test_names():
    assert cael.CAELMIPS().name == "CAELMIPS"
    assert cael.CAELMIPS("through-posterior").name == "CAELMIPS(through-posterior)"
    assert cael.CAELMIPS(objective=objective("constant-posterior")).name == "CAELMIPS"
    assert quick(alpha=1.0).name == "CAELMIPS(alpha=1)"
    assert cael.AELMIPS().name == "AELMIPS"
    assert cael.AELMIPS("trained", "both").name == "AELMIPS(trained, both)"


def test_ael_schedule():
    """Epochs of whole batches, of the rows that the log has."""
    published = cael.AELMIPS().schedule
    assert (published.steps(1000), published.batch_size, published.learning_rate) == (100 * 15, 64, 1e-4)
    assert published.weight_decay == 1e-2
    trained = cael.AELMIPS("trained").schedule
    assert (trained.steps(1000), trained.batch_size, trained.learning_rate) == (250 * 31, 32, 1e-2)
    assert cael.AELMIPS().schedule.steps(20) == 100


@pytest.mark.parametrize("actions", ["onehot", "features", "both"])
def test_ael_inputs(trained, actions):
    found = cael.AELMIPS(actions=actions).estimate(LOG, POLICY)
    assert np.isfinite(found.value)
    (parameters,) = trained
    assert ("onehot" in parameters) == (actions in ("onehot", "both"))
    assert ("phi" in parameters) == (actions in ("features", "both"))


def test_ael_presets_differ(trained, monkeypatch):
    monkeypatch.setitem(AEL_PRESETS, "trained", replace(AEL_PRESETS["trained"], epochs=30))
    before, after = (cael.AELMIPS(preset).estimate(LOG, POLICY) for preset in ("repository", "trained"))
    assert before.value != after.value
    start = ActionNetwork(5, 8, None, True).init(Stream([0], Torch(torch.device("cpu"))))["onehot"]
    moved = [float((each["onehot"] - start).abs().max()) for each in trained]
    assert moved[0] < 0.05  # the published rate hardly moves the embedding
    assert moved[1] > 0.5


@pytest.mark.parametrize("folds", [0, 2])
def test_network_dm_is_dm_with_the_network(folds):
    outcome = cael.NetworkOutcome(SMALL, QUICK)
    own = cael.NetworkDM(outcome, folds=folds, seed=3).estimate(LOG, POLICY)
    general = cael.DM(outcome, folds=folds, seed=3).estimate(LOG, POLICY)
    assert own.value == general.value
    np.testing.assert_array_equal(own.contributions, general.contributions)
    assert own.diagnostics.warnings == general.diagnostics.warnings
    assert own.diagnostics.cross_fitted == general.diagnostics.cross_fitted == (folds == 2)


def test_network_dm_takes_a_network():
    with pytest.raises(cael.InputError, match="NetworkOutcome"):
        cael.NetworkDM(cael.Ridge())
    with pytest.raises(cael.InputError, match="folds=0"):
        cael.NetworkDM(folds=2).solve_many([Problem(LOG, POLICY)], [0])


EVERY = [quick(), cael.AELMIPS(), cael.NetworkDM(cael.NetworkOutcome(SMALL, QUICK))]


def names(each):
    return each.name


@pytest.mark.parametrize("estimator", EVERY[:2], ids=names)
def test_no_logging_policy(estimator):
    log = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, n_actions=8)
    with pytest.raises(cael.NeedsError, match="logging"):
        estimator.estimate(log, POLICY)


@pytest.mark.parametrize("estimator", EVERY[:2], ids=names)
def test_a_fitted_logging_policy(estimator):
    log = cael.LoggedData(
        LOG.contexts, LOG.actions, LOG.rewards, LOG.propensities, n_actions=8, action_features=LOG.action_features
    )
    known, found = estimator.estimate(LOG, POLICY), estimator.estimate(log, POLICY)
    assert found.diagnostics.logging_fit.error < 0.05
    assert found.diagnostics.bias_bound > 0
    assert found.fingerprint == log.fingerprint
    assert abs(found.value - known.value) < 0.5 * known.stderr


@pytest.mark.parametrize("estimator", EVERY, ids=names)
def test_more_actions_than_rows(estimator):
    world = cael.worlds.PaperWorld(n_actions=60, action_dim=3)
    found = estimator.estimate(world.sample(20, seed=0), world.target)
    assert np.isfinite(found.value)
    assert np.isfinite(found.stderr)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("estimator", EVERY, ids=names)
def test_constant_reward(estimator, value):
    found = estimator.estimate(log_like(LOG, rewards=np.full(len(LOG), value)), POLICY)
    assert np.isfinite(found.value)
    assert np.isfinite(found.contributions).all()


@pytest.mark.parametrize("estimator", EVERY, ids=names)
def test_no_contexts(estimator):
    log = cael.LoggedData(None, LOG.actions, LOG.rewards, logging=np.full(8, 0.125))
    with pytest.raises(cael.InputError, match="no contexts"):
        estimator.estimate(log, np.full(8, 0.125))


def test_no_contexts_with_an_intercept():
    log = cael.LoggedData(None, LOG.actions, LOG.rewards, logging=np.full(8, 0.125))
    found = quick(network=replace(SMALL, intercept=True)).estimate(log, np.full(8, 0.125))
    assert found.value == pytest.approx(LOG.rewards.mean())  # target = logging: every weight is 1


@pytest.mark.parametrize("actions", ["features", "both"])
def test_no_action_features(actions):
    log = log_like(LOG, action_features=None)
    for estimator in (quick(network=replace(SMALL, actions=actions)), cael.AELMIPS(actions=actions)):
        with pytest.raises(cael.InputError, match="action_features"):
            estimator.estimate(log, POLICY)
    assert np.isfinite(quick().estimate(log, POLICY).value)  # "auto" falls back on the action's number


@pytest.mark.parametrize(
    ("make", "allowed"),
    [
        (lambda: cael.CAELMIPS("papre"), ("constant-posterior", "through-posterior", "offset", "literal")),
        (lambda: cael.AELMIPS("papre"), ("repository", "trained")),
        (lambda: cael.AELMIPS(actions="auto"), ("onehot", "features", "both")),
        (lambda: cael.NetworkSettings(actions="one-hot"), ("auto", "onehot", "features", "both")),
        (lambda: cael.Objective(bias="tight"), ("gini", "sharp")),
        (lambda: cael.Objective(variance="exact"), ("paper", "direct")),
        (lambda: cael.Objective(variance_n="n"), ("dataset", "batch")),
        (lambda: cael.Objective(features="x"), ("e", "xe")),
        (lambda: cael.Objective(inner="lbfgs"), ("softmax", "sklearn")),
        (lambda: cael.Training(device="gpu"), ("cpu", "cuda", "auto")),
    ],
)
def test_unknown_options_list_the_allowed_ones(make, allowed):
    with pytest.raises(cael.InputError) as error:
        make()
    for each in allowed:
        assert repr(each) in str(error.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: cael.Objective(alpha=-1.0),
        lambda: cael.Objective(beta=float("nan")),
        lambda: cael.Objective(alpha=float("inf")),
        lambda: cael.Objective(C=0.0),
        lambda: cael.Objective(offset=True, inner="sklearn"),
        lambda: cael.NetworkSettings(dropout=1.0),
        lambda: cael.NetworkSettings(hidden=0),
        lambda: cael.NetworkSettings(embedding_dim=0),
        lambda: cael.Training(iterations=-1),
        lambda: cael.Training(learning_rate=0.0),
        lambda: cael.Training(patience=3),
        lambda: cael.Training(holdout=1.0),
        lambda: cael.Training(check_every=0),
    ],
)
def test_impossible_settings(make):
    with pytest.raises(cael.InputError):
        make()


def test_nan_in_action_features():
    features = np.array(LOG.action_features)
    features[2, 1] = np.nan
    with pytest.raises(cael.LogError, match="action_features must be finite"):
        log_like(LOG, action_features=features)


@pytest.mark.slow
def test_claims_of_the_first_figure():
    """PaperWorld, n = 1000, k = 500: MSE of CAEL < AEL < IPS, and the network's DM is the most biased of the three."""
    world, trials = cael.worlds.PaperWorld(), 8
    problems = [Problem(world.sample(1000, seed), world.target) for seed in range(trials)]
    truth = world.value(world.target)
    error = {}
    for estimator in (cael.CAELMIPS(), cael.AELMIPS(), cael.NetworkDM()):
        found = estimator.solve_many(problems, list(range(trials)))
        error[estimator.name] = np.array([each.value for each in found]) - truth
    error["IPS"] = np.array([cael.IPS().solve(problem).value for problem in problems]) - truth
    mse = {name: float((each**2).mean()) for name, each in error.items()}
    assert mse["CAELMIPS"] < mse["AELMIPS"] < mse["IPS"], mse
    bias = {name: float(error[name].mean()) for name in ("CAELMIPS", "AELMIPS", "NetworkDM")}
    assert min(bias, key=bias.get) == "NetworkDM", bias
