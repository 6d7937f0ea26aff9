"""Drawn actions: an exact logging policy of the row, whatever was drawn; what is lost, and what J changes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.embedding.exact import codes
from cael.embedding.exact import inputs as action_inputs
from cael.embedding.exact.grid import all_cells, drawn_cells
from cael.embedding.exact.rewards import sparse_rewards
from cael.engine.drawn import sample_in_memory
from cael.policies import draws
from cael.policies.policy import draw, probabilities
from cael.testing import example
from tests.embedding.by_hand import products_of_inputs, weight_path

TINY = cael.Growth(steps=20, hidden=8, penalties=(1.5,), restarts=1)
QUICK = cael.CAEL(growth=TINY)
LOG, POLICY = example()


class Known:
    """A reward model that is told f (k,), with the question that cells ask."""

    def __init__(self, f, slope=0.0):
        self.f, self.slope = np.asarray(f, dtype=float), slope

    def predict(self, fold, batch, actions=None):
        every = self.slope * batch.contexts[:, :1] * self.f + self.f
        return every if actions is None else np.take_along_axis(every, actions, axis=1)


def world(n=4000, k=12, seed=0, f=None, noise=0.3):
    """A log whose rewards are f of the action and noise; logging and target are far apart."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    f = np.linspace(0, 3, k) if f is None else f
    logging = cael.Softmax(-0.25 * np.arange(k))
    a = draw(logging, next(cael.LoggedData(x, [0] * n, x[:, 0], n_actions=k).batches()), rng.random((n, 1)))[:, 0]
    log = cael.LoggedData(x, a, np.asarray(f)[a] + noise * rng.normal(size=n), logging=logging, n_actions=k)
    return log, f


def targets(n, k, seed=1):
    rng = np.random.default_rng(seed)
    lists = np.argsort(rng.random((n, k)), axis=1)[:, :3]
    return {
        "list": cael.TopK(lists, np.tile([0.5, 0.3, 0.2], (n, 1)), k),
        "rest": cael.TopK(lists, np.tile([0.4, 0.2, 0.1], (n, 1)), k, rest="uniform"),
        "dense": cael.Softmax(0.3 * np.arange(k)),
    }


def whole(log):
    return next(log.batches(width=1))


def cells_of(log, policy, model, size, seed=0):
    return drawn_cells(log.logging, policy, model, 0, whole(log), size, seed)


@pytest.mark.parametrize("which", ["list", "rest", "dense"])
@pytest.mark.parametrize("size", [1, 7, 40])
def test_both_policies_are_distributions_on_what_was_drawn(which, size):
    log, f = world(300)
    cells = cells_of(log, targets(300, 12)[which], Known(f, 0.5), size)
    np.testing.assert_allclose(cells.mu.sum(axis=1), 1)
    np.testing.assert_allclose(cells.pi.sum(axis=1), 1)
    np.testing.assert_allclose(cells.logged(cells.f), Known(f, 0.5).predict(0, whole(log))[np.arange(300), log.actions])
    assert (cells.logged(cells.mu) >= 1 / (size + 1) - 1e-12).all()
    np.testing.assert_allclose(cells.logged(cells.ratio), cael.Problem(log, targets(300, 12)[which]).weights)


@pytest.mark.parametrize("which", ["list", "rest", "dense"])
@pytest.mark.parametrize("bandwidth", [0.05, 0.7, 2.5])
def test_the_mean_weight_is_1_less_what_is_lost(which, bandwidth):
    """Within 4 standard errors; the row's own mean under the uniform distribution on S is that to rounding."""
    log, f = world()
    found = cells_of(log, targets(4000, 12)[which], Known(f, 0.5), 6)
    smooth = found.smooth(bandwidth)
    np.testing.assert_allclose((found.mu * smooth.weights).sum(axis=1), 1 - smooth.lost, atol=1e-12)
    apart = found.logged(smooth.weights) - (1 - smooth.lost)
    assert abs(apart.mean()) < 4 * apart.std(ddof=1) / math.sqrt(len(apart))


def test_without_the_logged_action_among_the_drawn_the_mean_weight_is_wrong():
    """The negative control: S is the draws alone, and the logged action an action like any other."""
    log, f = world()
    batch, policy = whole(log), targets(4000, 12)["list"]
    drawn = draw(log.logging, batch, draws.uniforms(0, batch.row_numbers, 6))
    listed = policy.support(batch)
    actions = np.hstack([batch.actions[:, None], drawn, listed.actions])
    mu = np.hstack([np.zeros((4000, 1)), np.full(drawn.shape, 1 / 6), np.zeros(listed.actions.shape)])
    pi = np.hstack([np.zeros((4000, 7)), listed.probabilities])
    distinct, place, (mu, pi) = draws.merged(actions, mu, pi)
    found = codes.rounded(np.asarray(f)[np.maximum(distinct, 0)], mu, pi, 0.7)
    apart = found.weights[np.arange(4000), place[:, 0]] - (1 - found.lost)
    assert abs(apart.mean()) > 4 * apart.std(ddof=1) / math.sqrt(len(apart))


@pytest.mark.parametrize("which", ["list", "rest", "dense"])
def test_unbiased_where_the_reward_is_a_function_of_the_code(which):
    """Actions in three groups, f the group, a pitch below the distance of groups; nothing is lost with 60 draws."""
    groups = np.arange(12) % 3
    log, _ = world(6000, f=2.0 * groups)
    policy = targets(6000, 12)[which]
    found = cells_of(log, policy, Known(groups * 1.0), 60)
    smooth = found.smooth(0.2)
    assert smooth.lost.max() == 0
    pi = np.concatenate([probabilities(policy, batch) for batch in log.batches(12)])
    apart = found.logged(smooth.weights) * log.rewards - (pi * 2.0 * groups).sum(axis=1)
    assert abs(apart.mean()) < 4 * apart.std(ddof=1) / math.sqrt(len(apart))
    ips = cael.IPS().estimate(log, policy)
    assert apart.std() < 0.9 * ips.contributions.std()  # and with less variance than IPS, which is as unbiased
    # The negative control: the same weights are biased where the reward differs within groups.
    odd = found.logged(smooth.weights) * np.arange(12)[log.actions] - (pi * np.arange(12)).sum(axis=1)
    assert abs(odd.mean()) > 4 * odd.std(ddof=1) / math.sqrt(len(odd))


@pytest.mark.parametrize("which", ["list", "rest", "dense"])
def test_more_draws_come_nearer_to_all_actions(which):
    """Weights of the logged action: the distance from those of all actions falls as 1/sqrt(J)."""
    log, f = world(80)
    policy, model = targets(80, 12)[which], Known(f, 0.3)
    exact = all_cells(log.logging, policy, model, 0, whole(log))
    errors = []
    for size in (200, 3200, 51200):
        found = cells_of(log, policy, model, size)
        one, other = found.smooth(0.8), exact.smooth(0.8)
        errors.append(np.abs(found.logged(one.weights) - exact.logged(other.weights)).mean())
        rough = one.roughness.mean() - other.roughness.mean()
    assert errors[1] < 0.4 * errors[0]
    assert errors[2] < 0.4 * errors[1]  # a quarter is expected
    assert abs(rough) < 0.05


@pytest.mark.parametrize("which", ["list", "rest", "dense"])
def test_second_moments_of_the_plain_weights_are_unbiased(which):
    """Of 200 seeds; exact where the target is a list."""
    log, f = world(60)
    policy = targets(60, 12)[which]
    exact = all_cells(log.logging, policy, Known(f), 0, whole(log)).second
    # Which row was logged is a draw too: average over logs, too.
    found = []
    for seed in range(200):
        other, _ = world(60, seed=seed)
        found.append(cells_of(other, policy, Known(f), 3, seed=seed).second)
    found = np.array(found)
    if which == "list":
        np.testing.assert_allclose(found[0], exact)
        return
    means = found.mean(axis=1)
    assert abs(means.mean() - exact.mean()) < 4 * means.std(ddof=1) / math.sqrt(200)


def test_actions_that_the_logging_policy_never_plays_are_lost_to_the_plain_weights():
    rng = np.random.default_rng(0)
    x, a = rng.random((50, 1)), rng.integers(0, 2, 50)
    log = cael.LoggedData(x, a, x[:, 0], logging=cael.Tabular([0.5, 0.5, 0.0]), n_actions=3)
    found = cells_of(log, cael.Tabular([0.0, 0.4, 0.6]), Known([0.0, 1.0, 1.1]), 5)
    np.testing.assert_allclose(found.lost, 0.6)
    assert found.smooth(0.5).lost.mean() < 0.1  # neighbours carry it


# --- the whole estimator


def test_some_predictions_are_those_of_all():
    rewards = sparse_rewards([LOG], TINY, 3, [0])[0]
    asked = np.random.default_rng(0).integers(0, 8, (len(LOG), 3))
    for each in (rewards, replace(rewards, ridge=(), share=1.0)):
        for fold in range(3):
            every = each.predict(fold, whole(LOG))
            np.testing.assert_allclose(
                each.predict(fold, whole(LOG), asked), np.take_along_axis(every, asked, axis=1), rtol=1e-5
            )


def test_the_path_of_many_draws_is_that_of_all_actions():
    rewards = sparse_rewards([LOG], TINY, 3, [0])[0]
    bandwidths = np.array([0.0, 0.5, 2.0, np.inf])
    exact = weight_path(LOG, POLICY, rewards, bandwidths)
    found = weight_path(LOG, POLICY, rewards, bandwidths, 20_000, 0)
    assert found.drawn == 20_000
    assert found.unit == pytest.approx(exact.unit, rel=0.02)
    for name in ("weights", "second", "cross", "smoothed", "f_logged", "f_target"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=0.25, atol=0.1, err_msg=name)
    np.testing.assert_allclose(found.roughness.mean(axis=1), exact.roughness.mean(axis=1), atol=0.05)
    np.testing.assert_allclose(found.lost, exact.lost, atol=1e-3)


def test_cael_with_drawn_actions_is_near_to_cael_with_all():
    exact, found = (replace(QUICK, candidates=each).estimate(LOG, POLICY) for each in ("all", 200))
    assert abs(found.value - exact.value) < exact.stderr
    assert found.diagnostics.embedding.candidates == 200
    assert exact.diagnostics.embedding.candidates is None
    assert ("actions", "200 drawn a row; 0.0% of the target near none of them") in found.diagnostics.embedding.facts()
    json.dumps(found.to_dict(), allow_nan=False)
    few = replace(QUICK, candidates=2, selector=0.3).estimate(LOG, POLICY)
    assert few.diagnostics.embedding.lost_mass > 0.1
    assert not any("mean weight" in each for each in few.diagnostics.warnings)  # what we lose is not the log's fault


def test_large_problems_draw_by_themselves(monkeypatch):
    assert QUICK.estimate(LOG, POLICY).diagnostics.embedding.candidates is None
    monkeypatch.setattr("cael.embedding.exact.flagship.MOST_CELLS", 1000)
    assert QUICK.estimate(LOG, POLICY).diagnostics.embedding.candidates == 64
    assert replace(QUICK, candidates="all").estimate(LOG, POLICY).diagnostics.embedding.candidates is None
    told = cael.Auto(cael=QUICK).estimate(LOG, POLICY).diagnostics
    assert told.choices == 3  # CAEL is not left out


@pytest.mark.parametrize("wrong", [0, -3, 1.5, "some"])
def test_wrong_numbers_of_candidates_are_refused(wrong):
    with pytest.raises(cael.InputError, match="candidates"):
        cael.CAEL(candidates=wrong)


# --- a sample of the rows


def test_training_rows_are_whole_clusters_and_folds_stay_apart():
    log = example(clusters=True)[0]
    sample = sample_in_memory(log, 90, 0)
    part, inside = sample.log, sample.folds(3, 0)
    assert 80 < len(part) <= 90
    sizes = np.unique(part.clusters, return_counts=True)[1]
    assert set(sizes) == {4}
    for fold, rows in zip(log.folds(3, 0), inside, strict=True):
        assert set(np.asarray(part.rows)[rows]) <= set(fold)
    assert sum(len(rows) for rows in inside) == len(part)


def test_a_longer_log_trains_on_a_sample_and_says_so():
    small = replace(QUICK, growth=replace(TINY, rows=100))
    found = small.estimate(LOG, POLICY)
    assert found.diagnostics.embedding.trained_rows == 100
    assert QUICK.estimate(LOG, POLICY).diagnostics.embedding.trained_rows == len(LOG)
    assert len(found.contributions) == len(LOG)
    assert found.value != QUICK.estimate(LOG, POLICY).value
    assert found.value == small.estimate(LOG, POLICY).value
    with pytest.raises(cael.LogError, match="cannot split 4 rows into 5 folds"):
        replace(QUICK, growth=replace(TINY, rows=4)).estimate(LOG, POLICY)


def test_norms_of_the_inputs_are_those_of_their_products(monkeypatch):
    rng = np.random.default_rng(0)
    inputs = action_inputs.ActionInputs(rng.normal(size=(9, 2)), rng.random((5, 9)))
    delta, a = rng.normal(size=(5, 30, 4)), rng.integers(0, 7, (5, 30))
    slow = np.linalg.norm(products_of_inputs(inputs, delta, a), axis=2)
    np.testing.assert_allclose(inputs.norms(delta, a), slow)
    monkeypatch.setattr(action_inputs, "SUMS", 60)
    np.testing.assert_allclose(inputs.norms(delta, a), slow)
