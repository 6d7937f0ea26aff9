"""A log with the propensity of the logged action alone: the rest of the logging policy is fitted."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
from cael.engine.asking import Asking
from cael.errors import NeedsError
from cael.experiments.broken import rebuilt
from cael.judging.judge import known_by_fit
from cael.log.held import Held
from cael.policies.fitted import fitted_logging, labels_of, with_logged
from cael.policies.label_fit import Basis, Family, LabelModel, _Squares, basis_of
from cael.policies.policy import probabilities
from tests.streaming.logs import write
from tests.streaming.test_one_verdict import ROLES, as_table

WORLD = cael.worlds.PaperWorld(n_actions=8, action_dim=3, gamma=0.3)
LOG = WORLD.sample(1500, seed=3)
PART = rebuilt(LOG)
GROUPS = cael.MIPS(np.arange(8) // 2, posterior="exact")
QUICK = cael.CAEL(growth=cael.Growth(steps=20, penalties=(1.5,)))


def table_of(log):
    return np.concatenate([probabilities(log.logging, batch) for batch in log.batches(width=log.n_actions)])


def fitted(log):
    """The fitted policy on the rows of a log in memory."""
    asking = Asking(Held(log), (), 0.0)
    return asking.fit.attached(log).logging


def distance(p, q):
    """Mean total variation distance of rows."""
    return 0.5 * np.abs(p - q).sum(axis=1).mean()


def softmax_log(n, k, rng, temperature=1.0):
    """Contexts, actions, their propensities and all probabilities of a softmax of linear scores."""
    x = rng.normal(size=(n, 3))
    p = np.exp(temperature * (x @ rng.normal(size=(3, k)) + rng.normal(size=k)))
    p /= p.sum(axis=1, keepdims=True)
    a = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return x, a, p


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        (lambda p: p, 0.01),
        (lambda p: 0.5 * p + 0.5 / p.shape[1], 0.02),
        (lambda p: np.full_like(p, 1 / p.shape[1]), 1e-6),
        (lambda p: np.tile(np.arange(1, p.shape[1] + 1) / np.arange(1, p.shape[1] + 1).sum(), (len(p), 1)), 1e-6),
    ],
    ids=["softmax", "mixed with uniform", "uniform", "without contexts"],
)
def test_policies_of_the_families_are_recovered(policy, most):
    rng = np.random.default_rng(5)
    x, _, p = softmax_log(1500, 7, rng)
    p = policy(p)
    a = np.minimum((p.cumsum(axis=1) < rng.random((1500, 1))).sum(axis=1), 6)
    log = cael.LoggedData(x, a, rng.normal(size=1500), p[np.arange(1500), a], n_actions=7)
    model = fitted(log)
    assert distance(model.modelled(log.whole), p) < most
    assert model.fit.error < 3 * most
    assert np.allclose(model.probabilities(log.whole)[np.arange(1500), a], log.propensities)


def test_propensities_of_other_rows_fit_badly_and_are_not_used():
    rng = np.random.default_rng(4)
    x, a, p = softmax_log(1500, 8, rng, temperature=2.0)
    sound, r = p[np.arange(1500), a], rng.normal(size=1500)
    target = np.full(8, 1 / 8)
    GROUPS.estimate(cael.LoggedData(x, a, r, sound, n_actions=8), target)
    wrong = cael.LoggedData(x, a, r, rng.permutation(sound), n_actions=8)
    with pytest.raises(NeedsError, match=r"MIPS\(exact\) needs all probabilities .* off by \d+% on held-out rows"):
        GROUPS.estimate(wrong, target)


def test_actions_that_are_never_played_get_nothing():
    rng = np.random.default_rng(1)
    a = rng.integers(0, 5, 800)
    log = cael.LoggedData(rng.normal(size=(800, 2)), a, rng.normal(size=800), np.full(800, 0.2), n_actions=9)
    p = fitted(log).modelled(log.whole)
    assert np.allclose(p[:, :5], 0.2) and (p[:, 5:] == 0).all()


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 9), st.floats(0.001, 1.0))
def test_a_logged_propensity_replaces_the_modelled_one(seed, k, logged):
    rng = np.random.default_rng(seed)
    p, a = rng.dirichlet(np.ones(k), 4), rng.integers(0, k, 4)
    table = with_logged(p, a, np.full(4, logged))
    rows = np.arange(4)
    assert np.allclose(table.sum(axis=1), 1) and np.allclose(table[rows, a], logged) and (table >= 0).all()
    others = np.arange(k) != a[:, None]
    shares = np.where(others, p, 0) / (1 - p[rows, a])[:, None]
    assert np.allclose(np.where(others, table, 0), (1 - logged) * shares)


def test_a_model_that_is_certain_leaves_the_rest_to_all_others():
    table = with_logged(np.array([[1.0, 0.0, 0.0]]), np.array([0]), np.array([0.5]))
    assert table.tolist() == [[0.5, 0.25, 0.25]]


@pytest.mark.parametrize("some", [False, True], ids=["all eligible", "some eligible"])
@pytest.mark.parametrize("family", [Family("linear"), Family("products", floor=True), Family("linear", own=False)])
def test_the_gradient_is_that_of_the_loss(family, some):
    rng = np.random.default_rng(2)
    x, a, p = softmax_log(40, 4, rng)
    mask = (rng.random((40, 4)) < 0.5) | np.eye(4, dtype=bool)[a]
    log = cael.LoggedData(
        x,
        a,
        np.zeros(40),
        p[np.arange(40), a],
        action_features=rng.normal(size=(4, 2)),
        eligible=mask if some else None,
    )
    labels = labels_of(log, log.propensities)
    fun = _Squares(labels, family, basis_of(x, family.inputs))
    flat = 0.3 * rng.normal(size=len(fun.start()))
    step = 1e-6 * np.eye(len(flat))
    slopes = np.array([(fun(flat + h)[0] - fun(flat - h)[0]) / 2e-6 for h in step])
    assert np.allclose(fun(flat)[1], slopes, atol=1e-6)


def test_only_eligible_actions_have_probability():
    model = LabelModel(Basis(np.zeros(1), np.ones(1), "linear"), np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]), 0.3)
    eligible = np.array([[True, False, True], [True, True, True]])
    x = np.array([[0.5], [0.5]])
    some, every = model.probabilities(x, eligible), model.probabilities(x)
    assert np.allclose(some.sum(axis=1), 1) and some[0, 1] == 0
    assert np.allclose(some[1], every[1])


def test_every_row_is_predicted_by_a_model_that_did_not_see_it():
    """Other labels on the rows of a fold leave what is predicted there as it was."""
    labels = labels_of(PART, PART.propensities)
    folds = PART.folds(5, 0)
    changed = PART.propensities.copy()
    changed[folds[2]] = np.clip(changed[folds[2]] * 0.9, 0, 1)
    other = labels_of(PART, changed)
    rows = PART.whole.part(folds[2])
    one, two = (fitted_logging(each, folds).modelled(rows) for each in (labels, other))
    assert np.allclose(one, two, atol=1e-4)
    elsewhere = PART.whole.part(folds[1])
    one, two = (fitted_logging(each, folds).modelled(elsewhere) for each in (labels, other))
    assert np.abs(one - two).max() > 1e-3


def test_mips_says_how_good_the_fit_is_and_allows_for_it():
    known, part = GROUPS.estimate(LOG, WORLD.target), GROUPS.estimate(PART, WORLD.target)
    fit = part.diagnostics.logging_fit
    assert known.diagnostics.logging_fit is None and known.diagnostics.bias_bound is None
    assert fit.error < 0.03 and fit.target_error < 0.05
    assert part.diagnostics.bias_bound >= 2 * fit.error * PART.rewards.std() * 0.9
    assert abs(part.value - known.value) < 0.1 * known.stderr
    assert part.interval().width > known.interval().width
    assert any(
        "fitted to the logged propensities; on held-out rows its error is" in w for w in part.diagnostics.warnings
    )
    assert part.to_dict()["diagnostics"]["logging_fit"]["error"] == fit.error


def test_without_propensities_it_is_refused_as_before():
    bare = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, n_actions=8)
    with pytest.raises(NeedsError, match="all probabilities of the logging policy"):
        GROUPS.estimate(bare, WORLD.target)


def test_the_others_and_the_checks_are_those_of_a_log_with_logged_propensities():
    plain = cael.evaluate(PART, WORLD.target, learn=False)
    with_fit = cael.evaluate(PART, WORLD.target, GROUPS, headline=GROUPS, learn=False)
    for estimate in plain:
        assert with_fit[estimate.estimator].value == pytest.approx(estimate.value, rel=1e-12)
        assert with_fit[estimate.estimator].stderr == pytest.approx(estimate.stderr, rel=1e-9)
    names = [check.name for check in with_fit.verdict.checks]
    assert set(names) - {check.name for check in plain.verdict.checks} == {"logging_fit", "bias"}
    assert "surprise" not in names and "propensity_column" in names
    assert not with_fit.controls


@pytest.mark.parametrize(
    "estimator", [GROUPS, cael.MIPS(np.arange(8.0)[:, None], offset=True)], ids=["exact", "offset"]
)
def test_a_log_in_files_gets_the_same(tmp_path, estimator):
    write(tmp_path, as_table(PART, WORLD.target), (500, 900))
    scanned = cael.scan(tmp_path, ROLES, n_actions=8)
    here = cael.read(tmp_path, ROLES, n_actions=8)
    one, two = estimator.estimate(here, "pi"), estimator.estimate(scanned, "pi")
    assert two.value == pytest.approx(one.value, rel=1e-9)
    assert two.stderr == pytest.approx(one.stderr, rel=1e-9)
    assert two.diagnostics.logging_fit.error == pytest.approx(one.diagnostics.logging_fit.error, rel=1e-9)


def test_cael_with_a_fitted_policy_is_cael():
    pytest.importorskip("torch")
    known, part = QUICK.estimate(LOG, WORLD.target), QUICK.estimate(PART, WORLD.target)
    assert abs(part.value - known.value) < 0.1 * known.error
    assert part.error == pytest.approx(known.error, rel=0.05)
    assert part.diagnostics.logging_fit.error < 0.03


CATALOGUE = cael.worlds.CatalogueWorld(n_actions=12, days=5)


def catalogue(n, seed=3):
    """A log of items that come and go, and the same with the propensity of the logged action alone."""
    log = CATALOGUE.sample(n, seed)
    columns = {"contexts": log.contexts, "actions": log.actions, "rewards": log.rewards}
    return log, cael.LoggedData(**columns, propensities=log.propensities, n_actions=12, eligible=log.eligible)


def test_the_fitted_policy_keeps_to_eligible_actions():
    whole, part = catalogue(1500)
    mask, truth = whole.eligible.mask(), table_of(whole)
    policy = fitted(part)
    for p in (policy.modelled(part.whole), policy.probabilities(part.whole)):
        assert (p[~mask] == 0).all() and np.allclose(p.sum(axis=1), 1)
        assert distance(p, truth) < 0.02
    blind = cael.LoggedData(part.contexts, part.actions, part.rewards, part.propensities, n_actions=12)
    assert distance(fitted(blind).modelled(blind.whole), truth) > 0.2  # without the sets it cannot be told


def test_the_rest_of_a_certain_row_goes_to_eligible_actions():
    some = np.array([[True, True, False]])
    assert with_logged(np.array([[1.0, 0.0, 0.0]]), np.array([0]), np.array([0.5]), some).tolist() == [[0.5, 0.5, 0.0]]


def test_cael_with_eligible_sets_is_that_of_the_known_policy():
    whole, part = catalogue(1500)
    known, fit = (QUICK.estimate(log, CATALOGUE.target) for log in (whole, part))
    assert fit.value == pytest.approx(known.value, abs=0.3 * known.error)
    assert fit.diagnostics.logging_fit.error < 0.05


def test_a_good_fit_knows_how_large_the_weights_can_be():
    """As a known policy does: the check of hidden weights does not fall back on the tail of those that were seen."""
    results = [cael.evaluate(log, WORLD.target, QUICK, headline=QUICK, learn=False) for log in (LOG, PART)]
    known, part = ({check.name: check for check in result.verdict.checks} for result in results)
    assert "expected" in known["tail_index"].sentence
    assert "expected" in part["tail_index"].sentence
    assert part["tail_index"].value == pytest.approx(known["tail_index"].value, rel=0.1)
    best, limits = results[1].best, cael.Thresholds()
    poor = replace(best.diagnostics, logging_fit=replace(best.diagnostics.logging_fit, error=0.2))
    assert known_by_fit(SimpleNamespace(kish=best.n), best, limits) == best.n / best.diagnostics.pooled.second
    assert known_by_fit(SimpleNamespace(kish=best.n), replace(best, diagnostics=poor), limits) is None


def test_the_papers_embedding_takes_the_fitted_policy_and_allows_for_its_error():
    pytest.importorskip("torch")
    quick = cael.NetworkSettings(hidden=16), cael.Training(iterations=20, batch_size=64)
    short = cael.CAELMIPS(network=quick[0], training=quick[1])
    known, part = (short.estimate(log, WORLD.target) for log in (LOG, PART))
    assert part.value == pytest.approx(known.value, abs=known.error)
    assert part.diagnostics.logging_fit.error < 0.02
    assert part.interval().width > known.interval().width
    assert known.diagnostics.logging_fit is None
