"""CAEL: forms and fixed bandwidths against slow formulas, limits, odd logs, and the paper's world."""

import functools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.embedding.exact import codes, path_part
from cael.embedding.exact.blend import BOUND
from cael.embedding.exact.flagship import BANDWIDTHS, FORMS
from cael.embedding.exact.rewards import SparseRewards, blocks, sparse_rewards
from cael.estimators.problem import Problem
from cael.estimators.selection import slope
from cael.inference import intervals as inference
from cael.testing import example
from cael.worlds import DeficientWorld, EmbeddingWorld, PaperWorld
from tests.embedding.by_hand import WeightPath, contributions, estimate_from, weight_path

TINY = cael.Growth(steps=20, hidden=8, penalties=(1.5,), restarts=1)
QUICK = cael.CAEL(growth=TINY)
LOG, POLICY = example()


def log_of(n=200, k=4, contexts=2, **given):
    rng = np.random.default_rng(0)
    a = rng.integers(0, k, n)
    rewards = given.pop("rewards", a / k + 0.3 * rng.normal(size=n))
    given = {"logging": cael.Uniform(k), "n_actions": k} | given
    return cael.LoggedData(rng.random((n, contexts)) if contexts else None, a, rewards, **given)


def target(k):
    return np.arange(1, k + 1) / np.arange(1, k + 1).sum()


# --- forms and bandwidths, from a path made by hand


def known(log, policy, f, bandwidths):
    """The weight path of a known f (n, k), row by row, and a reward model that explains nothing by itself."""
    n, k = len(log), log.n_actions
    mu = np.concatenate([cael.policies.policy.probabilities(log.logging, batch) for batch in log.batches(width=k)])
    pi = np.concatenate([cael.policies.policy.probabilities(policy, batch) for batch in log.batches(width=k)])
    shape = (len(bandwidths), n)
    weights, second, cross, rough, smoothed = (np.zeros(shape) for _ in range(5))
    lost, placed = np.zeros((2, len(bandwidths)))
    for j, i in np.ndindex(shape):
        of_row = (mu[i : i + 1], pi[i : i + 1])
        found = codes.rounded(f[i : i + 1], *of_row, bandwidths[j]) if bandwidths[j] else codes.sharp(*of_row)
        w = found.weights[0]
        weights[j, i] = w[log.actions[i]]
        second[j, i] = sum(mu[i, a] * w[a] ** 2 for a in range(k))
        cross[j, i] = sum(pi[i, a] * w[a] for a in range(k) if mu[i, a] > 0)
        smoothed[j, i] = sum(mu[i, a] * w[a] * f[i, a] for a in range(k))
        rough[j, i] = found.roughness[0]
        lost[j] += found.lost[0] / n
        placed[j] += sum(mu[i, a] * w[a] * (pi[i, a] / mu[i, a]) ** 0.25 for a in range(k) if mu[i, a] > 0) / n
    own = f[np.arange(n), log.actions]
    means = smoothed, own, (pi * f).sum(axis=1), placed
    path = WeightPath(np.array(bandwidths), 1.0, weights, second, cross, rough, lost, *means)
    return path, SparseRewards((np.arange(n),), ((),), np.ones((1, 1)), 1.0, 0, *np.zeros((2, 2)), 0.0, 1.0, n)


@functools.cache
def by_hand():
    log = log_of(120)
    f = np.random.default_rng(1).normal(size=(120, 4)) * 0.3
    policy = cael.Tabular(target(4))
    return (Problem(log, policy), *known(log, policy, f, (0.0, 0.4, np.inf)))


def slow_form(form, w, r, f, dm):
    n = len(r)
    if form == "plain":
        return sum(w[i] * r[i] for i in range(n)) / n
    if form == "self_normalised":
        return sum(w[i] * r[i] for i in range(n)) / sum(w)
    residual = sum(w[i] * (r[i] - f[i]) for i in range(n))
    return sum(dm) / n + residual / (n if form == "doubly_robust" else sum(w))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_fixed_bandwidths_are_the_formulas(form, at):
    problem, path, rewards = by_hand()
    found = estimate_from("it", problem, path, rewards, form, float(path.bandwidths[at]))
    expected = slow_form(form, path.weights[at], problem.log.rewards, path.f_logged, path.f_target)
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert found.contributions.mean() == pytest.approx(found.value, rel=1e-12)
    assert found.diagnostics.embedding.bandwidth == path.bandwidths[at]
    assert found.diagnostics.embedding.sharp_share == float(at == 0)


def test_the_ends_of_the_path_are_old_friends():
    problem, path, rewards = by_hand()
    log, policy = problem.log, problem.policy

    def value(form, bandwidth):
        return estimate_from("it", problem, path, rewards, form, bandwidth)

    for form, friend in (("plain", cael.IPS()), ("self_normalised", cael.SNIPS())):
        same = friend.estimate(log, policy)
        assert value(form, 0.0).value == pytest.approx(same.value)
        assert value(form, 0.0).stderr == pytest.approx(same.stderr)
        assert value(form, math.inf).value == pytest.approx(log.rewards.mean())
    for form in FORMS[2:]:
        mean_residual = (log.rewards - path.f_logged).mean()
        assert value(form, math.inf).value == pytest.approx(path.f_target.mean() + mean_residual)


@pytest.mark.parametrize("form", FORMS)
def test_contributions_are_the_influence_function(form):
    """Leaving out row i moves the estimate by -(z_i - V) / (n - 1), up to terms of order 1/n^2."""
    _, path, _ = by_hand()
    r = by_hand()[0].log.rewards
    z = contributions(path, r, form)
    n = len(r)
    for j in range(3):
        every = [path.weights[j], r, path.f_logged, path.f_target]
        whole = slow_form(form, *every)
        for i in range(0, n, 17):
            without = slow_form(form, *(np.delete(each, i) for each in every))
            assert (n - 1) * (whole - without) == pytest.approx(z[j, i] - whole, abs=0.15)


def test_the_path_of_a_network_is_that_of_its_predictions():
    """Row by row and fold by fold, against the predictions of the networks that did not see the row."""
    rewards = sparse_rewards([LOG], TINY, 3, [0])[0]
    f = np.empty((len(LOG), 8))
    for fold, rows in enumerate(rewards.folds):
        for batch, some in blocks(LOG, rows, width=1):
            f[some] = rewards.predict(fold, batch)
    path = weight_path(LOG, POLICY, rewards, np.array([0.0, 0.3, np.inf]))
    slow, _ = known(LOG, POLICY, f, (0.0, 0.3 * path.unit, np.inf))
    for name in ("weights", "second", "roughness", "lost", "smoothed", "f_logged", "f_target"):
        np.testing.assert_allclose(getattr(path, name), getattr(slow, name), rtol=1e-4, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(path.weights[0], Problem(LOG, POLICY).weights)
    np.testing.assert_array_equal(path.weights[-1], 1.0)
    mu = np.concatenate([cael.policies.policy.probabilities(LOG.logging, batch) for batch in LOG.batches(width=8)])
    centred = f - (mu * f).sum(axis=1, keepdims=True)
    assert path.unit == pytest.approx(math.sqrt((mu * centred**2).sum(axis=1).mean()), rel=1e-4)


# --- bounds on the bias


def test_a_fixed_bandwidth_of_0_has_the_bias_of_the_hole_alone():
    problem, path, rewards = by_hand()
    assert estimate_from("it", problem, path, rewards, "plain", 0.0).diagnostics.bias_bound == 0
    holed = replace(path, lost=path.lost + 0.3)
    spread = float(problem.log.rewards.std())
    found = estimate_from("it", problem, holed, rewards, "plain", 0.0).diagnostics.bias_bound
    assert found == pytest.approx(BOUND * 0.3 * spread)


@pytest.mark.parametrize("form", FORMS)
def test_the_bound_of_a_fixed_bandwidth_holds_the_bias_that_the_log_shows(form):
    """A constant f says nothing; at infinity the estimate is the mean reward, and many rows show how wrong that is."""
    n, k = 3000, 4
    rng = np.random.default_rng(0)
    a = rng.integers(0, k, n)
    log = cael.LoggedData(None, a, 3.0 * a + 0.1 * rng.normal(size=n), logging=cael.Uniform(k))
    policy = cael.Tabular([0.0, 0.1, 0.1, 0.8])
    path, rewards = known(log, policy, np.zeros((n, k)), (0.0, np.inf))
    found = estimate_from("it", Problem(log, policy), path, rewards, form, math.inf)
    assert abs(found.value - 8.1) > 3  # the truth is 0.1 * 3 + 0.1 * 6 + 0.8 * 9
    assert 8.1 in found.interval(method="bias_aware")
    assert 8.1 not in found.interval(method="normal")
    blended = estimate_from("it", Problem(log, policy), path, rewards, form, "blend")
    assert 8.1 in blended.interval(0.99, "bias_aware")  # of this log the plain form is 2.2 standard errors off
    assert blended.value == pytest.approx(8.1, abs=0.5)


def test_the_blend_is_between_its_two_parts():
    found = QUICK.estimate(LOG, POLICY)
    d = found.diagnostics
    chosen = next(each for each in d.path if each.chosen)
    # For the interval more of the sharp estimate can be taken than has the least error, which is on the path.
    assert min(chosen.value, d.path[0].value) - 1e-9 <= found.value <= max(chosen.value, d.path[0].value) + 1e-9
    assert [each.name for each in d.path] == [f"bandwidth={b:g}" for b in (0.0, *BANDWIDTHS, math.inf)]
    assert chosen.width == min(each.width for each in d.path)
    assert 0 <= d.embedding.sharp_share <= 1
    assert d.bias_bound >= 0
    assert d.stderr_floor > 0
    assert found.interval().width > found.interval(method="normal").width


def test_slope_takes_the_narrowest_that_agrees_with_all_wider_ones():
    falling = np.array([4.0, 2.0, 1.0, 0.5])
    assert slope(np.array([0.0, 0.1, 0.0, 0.05]), falling)[-1] == 3
    assert slope(np.array([0.0, 0.1, 9.0, 9.0]), falling)[-1] == 1
    assert slope(np.array([9.0, 0.0, 0.1, 0.0]), np.roll(falling, 1))[-1] == 3  # in the order of the widths
    assert QUICK.estimate(LOG, POLICY).value != replace(QUICK, selector="slope").estimate(LOG, POLICY).value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("selector", ["blend", "slope", 0.0, 0.5, math.inf])
def test_every_form_and_selector_gives_an_estimate(form, selector):
    found = replace(QUICK, form=form, selector=selector, folds=2).estimate(LOG, POLICY)
    assert abs(found.value - 9.4) < 1.5
    json.dumps(found.to_dict(), allow_nan=False)


# --- worlds


@pytest.mark.parametrize(
    "world",
    [
        PaperWorld(n_actions=20, action_dim=4, gamma=0.3),
        PaperWorld(n_actions=50, action_dim=2, epsilon=0.5),
        EmbeddingWorld(n_actions=40),
    ],
    ids=lambda world: type(world).__name__,
)
def test_the_mean_weight_is_1_at_every_bandwidth(world):
    """Cross-fitted f, exact weights: within four standard errors."""
    log = world.sample(400, 1)
    rewards = sparse_rewards([log], TINY, 3, [0])[0]
    path = weight_path(log, world.target, rewards, np.array([0.0, 0.1, 0.5, 2.0, np.inf]))
    for w, second in zip(path.weights[:-1], path.second, strict=False):
        # The second moment is known, where the weights of few rows that match show far less.
        assert abs(w.mean() - 1) < 4 * math.sqrt((second.mean() - 1) / len(w)) + 1e-12  # all equal: rounding is left
    assert abs(replace(QUICK, folds=3).estimate(log, world.target).diagnostics.mean_weight_z) < 4


def test_nothing_to_learn_falls_back_on_the_mean_and_says_so():
    rng = np.random.default_rng(0)
    log = log_of(300, rewards=rng.normal(size=300))
    found = replace(QUICK, growth=replace(TINY, penalties=(0.0,), steps=60)).estimate(log, target(4))
    facts = found.diagnostics.embedding
    assert facts.explained == 0
    assert min(min(row) for row in facts.losses) >= 1
    assert facts.unit == 1.0
    snips = cael.SNIPS().estimate(log, target(4))
    assert abs(found.value - snips.value) < snips.stderr
    assert facts.roughness == pytest.approx(0.5 * np.abs(target(4) - 0.25).sum())  # a constant f: flat, or sharp
    assert 0.0 in found.interval(method="bias_aware")
    assert dict(found.facts())["reward explained, held out"].startswith("nothing")
    assert "bandwidth" not in dict(found.facts())  # every one of them gives the same
    assert any("nothing was learned" in each for each in found.diagnostics.warnings)


def test_target_mass_on_actions_that_are_never_logged_is_carried_by_their_neighbours():
    world = DeficientWorld(n_actions=20, action_dim=2)
    log = world.sample(400, 0)
    rewards = sparse_rewards([log], replace(TINY, steps=60), 3, [0])[0]
    path = weight_path(log, world.target, rewards, np.array([0.0, 0.5, np.inf]))
    assert path.lost[0] > 0.1
    assert path.lost[1] < path.lost[0]
    assert path.lost[2] == 0
    found = replace(QUICK, growth=replace(TINY, steps=60)).estimate(log, world.target)
    assert found.diagnostics.embedding.lost_mass < 0.1
    assert any("never plays" in each for each in found.diagnostics.warnings)
    assert world.value(world.target) in found.interval(method="bias_aware")


@functools.cache
def paper_world():
    world = PaperWorld(n_actions=100)
    log = world.sample(600, 11)
    return world, log, cael.CAEL(growth=cael.Growth(steps=150)).estimate(log, world.target)


def test_the_papers_world_at_a_small_size():
    world, log, found = paper_world()
    truth = world.value(world.target)
    assert abs(found.value - truth) < cael.SNIPS().estimate(log, world.target).stderr
    assert truth in found.interval(method="bias_aware")
    assert found.stderr < 0.5 * cael.SNIPS().estimate(log, world.target).stderr
    facts = found.diagnostics.embedding
    assert 0.5 < facts.explained < 0.75  # 0.68 is what q explains
    assert facts.inputs <= 16  # of 200


def test_problems_solved_together_are_as_solved_alone():
    """Not bit by bit: a batched product of float32 adds in another order. 1e-3 standard errors is far above that."""
    world = PaperWorld(n_actions=8, action_dim=3, gamma=0.2)
    problems = [Problem(world.sample(120, seed), POLICY) for seed in range(2)]
    quick = cael.CAEL(growth=replace(TINY, patience=10), folds=2)
    together = quick.solve_many(problems, [5, 6])
    for problem, seed, found in zip(problems, (5, 6), together, strict=True):
        alone = replace(quick, seed=seed).solve(problem)
        assert found.value == pytest.approx(alone.value, abs=1e-3 * alone.stderr)
        assert found.stderr == pytest.approx(alone.stderr, rel=1e-3)
        assert found.fingerprint == problem.log.fingerprint
    other = Problem(PaperWorld(n_actions=8, action_dim=3, gamma=0.2, seed=9).sample(120, 0), POLICY)
    with pytest.raises(cael.InputError, match="same action_features"):
        quick.solve_many([problems[0], other], [0, 1])


def test_the_seed_decides_and_nothing_else():
    first, again = (QUICK.estimate(LOG, POLICY) for _ in range(2))
    np.testing.assert_array_equal(first.contributions, again.contributions)
    assert replace(QUICK, seed=1).estimate(LOG, POLICY).value != first.value


# --- odd logs and wrong settings


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (log_of(k=2), "two actions"),
        (log_of(contexts=0), "no contexts"),
        (log_of(contexts=0, k=2), "no contexts and two actions"),
        (log_of(action_features=np.ones((4, 2))), "constant action features"),
        (log_of(n=60, k=150), "more actions than rows"),
        (log_of(n=60, k=150, action_features=np.arange(150)[:, None]), "the same with features"),
        (log_of(n=10), "ten rows"),
        (log_of(clusters=np.repeat(np.arange(10), 20)), "clusters"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_odd_logs_give_sane_estimates(log, why):
    k = log.n_actions
    found = QUICK.estimate(log, target(k))
    truth = float(target(k) @ np.arange(k)) / k
    assert found.contributions.mean() == pytest.approx(found.value)
    assert truth in found.interval(0.999, "bias_aware"), why
    assert found.stderr < 0.5
    assert log.rewards.min() < found.value < log.rewards.max()


def with_context(column, effect=0.0):
    """The estimate on a log with a third context, which moves the rewards of the last action by so much."""
    log = log_of()
    contexts = log.contexts if column is None else np.column_stack([log.contexts, column])
    rewards = log.rewards + effect * (log.actions == 3)
    return QUICK.estimate(cael.LoggedData(contexts, log.actions, rewards, logging=cael.Uniform(4)), target(4))


def test_a_constant_context_changes_nothing():
    """Its column is 0 once standardised; one input more moves the estimate by less than a hundredth of its error."""
    without, zeros, sevens = (with_context(column) for column in (None, np.zeros(200), np.full(200, 7.0)))
    assert (sevens.value, sevens.stderr) == (zeros.value, zeros.stderr)
    assert abs(sevens.value - without.value) < 0.01 * without.stderr
    assert sevens.stderr == pytest.approx(without.stderr, rel=0.01)


def test_negative_control_a_context_that_matters_changes_the_estimate():
    moved = []
    for seed in (5, 6, 7):
        sign = np.random.default_rng(seed).choice([-1.0, 1.0], 200)
        without, known = with_context(None, sign), with_context(sign, sign)
        moved.append(abs(known.value - without.value) / without.stderr)
        assert known.stderr < 0.8 * without.stderr
    assert max(moved) > 0.5


def test_what_cannot_be_done_is_refused_in_words():
    with pytest.raises(cael.NeedsError, match="rewards that are not all equal"):
        QUICK.estimate(log_of(rewards=np.ones(200)), target(4))
    with pytest.raises(cael.LogError, match="rewards"):
        log_of(rewards=np.append(np.zeros(199), np.nan))
    with pytest.raises(cael.NeedsError, match="all probabilities of the logging policy"):
        QUICK.estimate(log_of(logging=None), target(4))
    with pytest.raises(cael.NeedsError, match="probabilities of all actions"):
        QUICK.estimate(log_of(), cael.LoggedOnly(np.full(200, 0.3)))
    with pytest.raises(cael.LogError, match="cannot split 3 rows into 5 folds"):
        QUICK.estimate(log_of(n=3), target(4))
    holes = cael.LoggedData(None, [0, 1] * 50, np.arange(100.0), logging=[0.5, 0.5, 0.0])
    with pytest.raises(cael.SupportError, match="no support at all"):
        QUICK.estimate(holes, [0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    "wrong",
    [{"form": "robust"}, {"selector": "lasso"}, {"selector": -1.0}, {"selector": math.nan}, {"folds": 1}],
    ids=str,
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(cael.InputError):
        cael.CAEL(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"hidden": 0},
        {"penalties": ()},
        {"penalties": (-1.0,)},
        {"penalties": (math.inf,)},
        {"restarts": 0},
        {"patience": 0},
        {"batch_size": 1},
        {"learning_rate": 0.0},
        {"device": "tpu"},
    ],
    ids=str,
)
def test_wrong_growth_is_refused(wrong):
    with pytest.raises(cael.InputError):
        cael.Growth(**wrong)


def test_it_prints_what_it_learned():
    found = QUICK.estimate(LOG, POLICY)
    told = dict(found.facts())
    assert "of the sharp estimate" in told["bandwidth"]
    assert "action inputs" in told["reward explained, held out"]
    assert "bias-aware 95% interval" in told
    wide = replace(QUICK, selector=math.inf).estimate(LOG, POLICY)
    assert dict(wide.facts())["bandwidth"].startswith("infinite")
    assert wide.to_dict()["diagnostics"]["embedding"]["bandwidth"] is None


@pytest.mark.parametrize("clusters", [None, np.arange(240) // 3])
def test_the_slope_of_what_the_model_leaves_is_that_of_least_squares(monkeypatch, clusters):
    """Its standard error is that of no slope, as the question is whether there is one."""
    kept, choose = [], path_part.choose_bandwidth

    def watched(name, rows, *rest):
        kept.append(rows)
        return choose(name, rows, *rest)

    monkeypatch.setattr(path_part, "choose_bandwidth", watched)
    QUICK.estimate(log_of(240, clusters=clusters), target(4))
    answer = kept[0].answer
    *_, left, _, place, _ = answer.work.groups[0][0].columns
    e, x = answer.single(left).rows, answer.single(place).rows
    pull = (x - x.mean()) * (e - e.mean())
    error = inference.stderr(inference.units(pull - pull.mean(), clusters)) / x.var()
    assert kept[0].slope == pytest.approx((np.polyfit(x, e, 1)[0], error), rel=1e-9)
