"""Outcome models: ridge is tested against its twin in oracles; here the others, cross-fitting, and errors."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import cael
from cael import InputError, LogError, testing
from cael.outcomes import outcome_terms
from cael.outcomes.linear import InteractingOutcome
from cael.outcomes.ridge import HALF, WEAKER, Choice, Inputs

RNG = np.random.default_rng(5)


def clicks(n=300, k=5, features=False):
    x, a = RNG.normal(size=(n, 3)), RNG.integers(0, k, n)
    p = 1 / (1 + np.exp(-(x[:, 0] + a - 2)))
    phi = np.arange(k, dtype=float)[:, None] if features else None
    return cael.LoggedData(x, a, (RNG.random(n) < p).astype(float), logging=cael.Uniform(k), action_features=phi)


def grid(log, fitted):
    return np.concatenate([fitted.predict(batch) for batch in log.batches(width=log.n_actions)])


@pytest.mark.parametrize("features", [False, True])
def test_logistic_is_scikit_learns_on_the_full_design(features):
    log = clicks(features=features)
    ours = grid(log, cael.Logistic(C=0.7).fit(log, 0))
    scale = log.contexts.std(axis=0)
    action = np.eye(5) if not features else np.hstack([np.eye(5), (np.arange(5.0)[:, None] - 2) / np.sqrt(2)])
    design = np.hstack([(log.contexts - log.contexts.mean(axis=0)) / scale, action[log.actions]])
    model = LogisticRegression(C=0.7, max_iter=2000).fit(design, log.rewards)
    for b in range(5):
        rows = np.hstack([design[:, :3], np.repeat(action[b : b + 1], len(log), axis=0)])
        np.testing.assert_allclose(ours[:, b], model.predict_proba(rows)[:, 1], atol=2e-3)


@pytest.mark.parametrize(
    "model",
    [
        cael.Logistic(),
        cael.Boosting(max_iter=5),
        cael.SklearnOutcome(DecisionTreeClassifier(max_depth=3)),
        cael.Ridge(),
    ],
)
@pytest.mark.parametrize("features", [False, True])
def test_short_cuts_agree_with_predict(model, features):
    """`logged` and `value` are what `predict` says, for every model."""
    log = clicks(features=features)
    fitted = model.fit(log, 0)
    q = grid(log, fitted)
    p = RNG.dirichlet(np.ones(5), len(log))
    p[:, 0] = 0.0
    p /= p.sum(axis=1, keepdims=True)
    (batch,) = log.batches()
    np.testing.assert_allclose(fitted.logged(batch), q[np.arange(len(log)), log.actions], atol=1e-12)
    np.testing.assert_allclose(fitted.value(batch, p), (p * q).sum(axis=1), atol=1e-12)


def test_any_regressor_sees_context_and_action():
    """With one-hot actions and no noise a linear model recovers an additive reward exactly."""
    x, a = RNG.normal(size=(200, 2)), RNG.integers(0, 4, 200)
    truth = (x @ [1.0, -2.0])[:, None] + np.array([0.0, 3.0, -1.0, 5.0])
    log = cael.LoggedData(x, a, truth[np.arange(200), a], logging=cael.Uniform(4))
    fitted = cael.SklearnOutcome(LinearRegression()).fit(log, 0)
    np.testing.assert_allclose(grid(log, fitted), truth, atol=1e-9)


def test_cross_fitting_predicts_each_row_without_it():
    """A fully grown tree repeats what it has seen: in-sample it is perfect, cross-fitted it is not."""
    log, policy = testing.example()
    tree = cael.SklearnOutcome(DecisionTreeRegressor(random_state=0))
    honest = outcome_terms(log, policy, tree, folds=5, seed=0)
    cheat = outcome_terms(log, policy, tree, folds=0, seed=0)
    assert honest.cross_fitted is True
    assert cheat.cross_fitted is False
    assert np.abs(cheat.q_logged - log.rewards).max() == 0
    assert np.abs(honest.q_logged - log.rewards).mean() > 0.3


@pytest.mark.parametrize("interactions", [False, "auto", True])
def test_rewards_of_a_fold_do_not_reach_its_own_predictions(interactions):
    """Change the rewards of one fold: its predictions stay, the others move."""
    log, policy = testing.example()
    rows = log.folds(5, 0)[2]
    changed = log.rewards.copy()
    changed[rows] += 100.0
    other = cael.LoggedData(
        log.contexts, log.actions, changed, logging=log.logging, n_actions=8, action_features=log.action_features
    )
    ridge = cael.Ridge(interactions=interactions)
    found = [cael.DM(ridge, seed=0).estimate(each, policy).sums for each in (log, other)]
    a, b = (sums.block[np.flatnonzero(sums.coefficients)[0]] for sums in found)  # the predictions alone
    np.testing.assert_allclose(a[rows], b[rows], rtol=1e-6)
    rest = np.setdiff1d(np.arange(len(log)), rows)
    assert (np.abs(a[rest] - b[rest]) > 1).all()


def test_folds_keep_clusters_together():
    log, policy = testing.example(clusters=True)
    rows = log.folds(5, 0)[0]
    assert len(rows) % 4 == 0
    assert cael.DR().estimate(log, policy).diagnostics.cross_fitted


def test_in_sample_models_are_told(log, policy):
    found = cael.DR(folds=0).estimate(log, policy).diagnostics
    assert found.cross_fitted is False
    assert any("trained on the rows it predicts" in warning for warning in found.warnings)
    assert cael.DR(cael.FixedOutcome(np.zeros(8))).estimate(log, policy).diagnostics.cross_fitted is None


def test_fixed_outcomes():
    log = clicks(20, 3)
    q = RNG.random((20, 3))
    assert cael.DM(cael.FixedOutcome(q)).estimate(log, cael.Uniform(3)).value == pytest.approx(q.mean())
    assert cael.DM(cael.FixedOutcome(lambda x: np.ones((len(x), 3)))).estimate(log, cael.Uniform(3)).value == 1
    for bad, match in [
        (np.ones((20, 4)), "has 4 actions"),
        (np.ones((19, 3)), "has 19 rows, fewer"),
        (lambda x: np.ones(3), r"shape \(20, 3\)"),
    ]:
        with pytest.raises(InputError, match=match):
            cael.DM(cael.FixedOutcome(bad)).estimate(log, cael.Uniform(3))
    with pytest.raises(InputError, match="finite predictions"):
        cael.FixedOutcome([np.nan, 1.0])


def test_predictions_follow_taken_rows():
    log = clicks(20, 3)
    q = np.arange(60.0).reshape(20, 3)
    part = log.take([7, 3])
    found = cael.DM(cael.FixedOutcome(q)).estimate(part, cael.Tabular([1.0, 0.0, 0.0]))
    assert found.contributions.tolist() == [21.0, 9.0]


def test_errors(log, policy):
    with pytest.raises(LogError, match=r"Logistic needs rewards that are 0 or 1; row 0"):
        cael.DM(cael.Logistic()).estimate(log, policy)
    with pytest.raises(InputError, match="needs action_features"):
        cael.DM(cael.Ridge(actions="features")).estimate(clicks(20, 3), cael.Uniform(3))
    with pytest.raises(InputError, match="actions must be one of"):
        cael.Ridge(actions="names")
    with pytest.raises(InputError, match="alpha"):
        cael.Ridge(alpha=0)
    with pytest.raises(InputError, match="positive number or 'auto'"):
        cael.Ridge(alpha="best")
    with pytest.raises(InputError, match="C must be"):
        cael.Logistic(C=-1)
    with pytest.raises(InputError, match="fit and predict"):
        cael.SklearnOutcome(3)
    many = cael.LoggedData(None, [0, 299], [1.0, 2.0], [0.5, 0.5], n_actions=300)
    with pytest.raises(InputError, match="300 actions are too many"):
        cael.DM(cael.Boosting(), folds=0).estimate(many, cael.Uniform(300))


def test_ridge_by_itself_is_never_much_worse_than_the_mean():
    """500 actions with 500 features and 1000 rows: a fixed penalty overfits, the chosen one does not."""
    log = cael.worlds.PaperWorld().sample(1000, seed=3)

    def left(model):
        q = cael.estimators.problem.Problem(log, cael.Uniform(500)).outcome(model, 5, 0).q_logged
        return float(((log.rewards - q) ** 2).mean() / log.rewards.var())

    assert left(cael.Ridge()) < 1.05
    assert left(cael.Ridge(1.0)) > 1.5


def squared_errors(world, n, model, logs=6):
    """Of DM, one for each of some logs."""
    truth = world.value(world.target)
    return np.array([(cael.DM(model).estimate(world.sample(n, seed), world.target).value - truth) ** 2
                     for seed in range(logs)])  # fmt: skip


@pytest.mark.parametrize("name", ["personalised", "action features"])
def test_interactions_are_found_where_the_reward_has_them(name):
    """Actions' own slopes with 10 actions, and products with features with 200 of them."""
    world, n = cael.worlds.wide()[name]
    additive, chosen = (squared_errors(world, n, cael.Ridge(interactions=each)) for each in (False, "auto"))
    assert chosen.mean() < 0.05 * additive.mean()


@pytest.mark.parametrize("name", ["rare arm", "actions do not matter"])
def test_interactions_cost_little_where_the_reward_has_none(name):
    world, n = cael.worlds.wide()[name]
    additive, chosen, forced = (
        squared_errors(world, n, cael.Ridge(interactions=each), logs=12) for each in (False, "auto", True)
    )
    assert chosen.mean() < 1.1 * additive.mean()
    assert (forced != additive).all()


def test_penalties_of_slopes_are_in_rows_per_action():
    """Twice the rows of an action, with twice the penalty, have the same slopes: the grid is HALF, 0.3, ... of rows."""
    rng, k, n = np.random.default_rng(0), 4, 800
    x, a = rng.normal(size=(n, 1)), rng.integers(0, k, n)
    rewards = x[:, 0] * np.array([1.0, -1.0, 2.0, 0.0])[a] + rng.normal(size=n) / 10
    log = cael.LoggedData(x, a, rewards, logging=cael.Uniform(k))
    model = cael.Ridge()
    parts = model._sums(log, np.arange(n) % 5, 5)
    choice = Choice(model, Inputs.of(model, log), tuple(parts))
    choice.model(frozenset({0}))
    tried = {penalties.slopes for _, penalties in choice.judge.errors}
    assert tried >= {HALF * n / k, WEAKER[0] * n / k}


def test_interactions_are_left_out_where_they_take_too_many_sums():
    assert cael.Ridge().sums_by_action(5, 300, 10)
    assert not cael.Ridge().sums_by_action(5, 20_000, 20)
    assert not cael.Ridge(1.0).sums_by_action(5, 300, 10)
    assert not cael.Ridge(interactions=False).sums_by_action(5, 300, 10)
    assert not cael.Ridge(interactions=True).sums_by_action(5, 1, 10)
    with pytest.raises(InputError, match="takes 40000000 sums for 20000 actions, 20 contexts and 5 parts"):
        cael.Ridge(interactions=True).sums_by_action(5, 20_000, 20)
    with pytest.raises(InputError, match="interactions must be True, False or 'auto'; got 'yes'"):
        cael.Ridge(interactions="yes")


def test_a_linear_model_answers_each_question_alike():
    """For some actions, for all, their mean, and under a policy: from lists, from tables, and from what is fixed."""
    rng, k = np.random.default_rng(0), 40
    model = InteractingOutcome(rng.normal(size=k), rng.normal(size=(k, 3)), rng.normal(size=3))
    log = cael.LoggedData(rng.normal(size=(50, 3)), rng.integers(0, k, 50), rng.normal(size=50), n_actions=k)
    batch = log.whole
    q = np.array([[model.effect[a] + (x - model.centre) @ model.slope[a] for a in range(k)] for x in log.contexts])
    np.testing.assert_allclose(model.predict(batch), q)
    np.testing.assert_allclose(model.average(batch), q.mean(axis=1))
    for m in (1, 5, 30):
        actions = rng.integers(0, k, (50, m))
        np.testing.assert_allclose(model.at(batch, actions), np.take_along_axis(q, actions, axis=1))
    assert np.isfinite(model.at(batch, np.full((50, 2), -1))).all()
    table = rng.dirichlet(np.ones(k), 50)
    for policy in (
        cael.Tabular(table),
        cael.Uniform(k),
        cael.Tabular(table[0]),
        cael.Softmax(lambda x: x @ np.ones((3, k))),
    ):
        np.testing.assert_allclose(model.expected(batch, policy), (policy.probabilities(batch) * q).sum(axis=1))


def test_a_context_that_is_constant_without_its_fold_is_no_input():
    """Rounding is not spread: a row with the only other value is not predicted to be a million off."""
    rng = np.random.default_rng(0)
    x, a = np.repeat(rng.normal(size=(1, 20)), 400, axis=0), rng.integers(0, 3, 400)
    x[:, 0], x[7, 1:] = rng.normal(size=400), x[7, 1:] + 5.0
    log = cael.LoggedData(x, a, 10 * x[:, 0] * (1 + a) + rng.normal(size=400), np.full(400, 1 / 3), n_actions=3)
    for interactions in (False, "auto", True):
        found = cael.DM(cael.Ridge(interactions=interactions)).estimate(log, cael.Uniform(3))
        assert found.contributions[7] == pytest.approx(20 * x[7, 0], abs=3)


@pytest.mark.parametrize("folds", [0, 2, 3])
def test_ridge_chooses_its_penalties_for_any_number_of_folds_and_clusters(folds):
    log, policy = testing.example(clusters=True)
    assert np.isfinite(cael.DR(cael.Ridge(), folds=folds).estimate(log, policy).value)


def test_no_clicks_at_all_is_a_small_rate_and_not_an_error():
    log = cael.LoggedData(RNG.normal(size=(40, 1)), RNG.integers(0, 2, 40), np.zeros(40), np.full(40, 0.5), n_actions=2)
    assert 0 < cael.DM(cael.Logistic()).estimate(log, cael.Uniform(2)).value < 0.05
    with pytest.raises(LogError, match="all rewards of a training fold are 0"):
        cael.DM(cael.SklearnOutcome(DecisionTreeClassifier())).estimate(log, cael.Uniform(2))


def test_boosting_learns_what_ridge_cannot():
    """q = 10 exp(-(x - a)^2) is not additive: boosting on action features is nearer to the truth than such a ridge."""
    world = cael.worlds.PaperWorld(n_actions=20, action_dim=1, reward_std=0.3)
    log = world.sample(3000, seed=0)
    truth = world.value(world.target)
    error = {model: abs(cael.DM(model, folds=2).estimate(log, world.target).value - truth)
             for model in (cael.Ridge(interactions=False), cael.Boosting(max_iter=60))}  # fmt: skip
    assert error[cael.Boosting(max_iter=60)] < 0.15 * error[cael.Ridge(interactions=False)]
