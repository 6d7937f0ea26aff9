"""DM's interval holds the error of the ridge model's coefficients, and what the penalties took off them."""

import numpy as np
import pytest

import cael
from cael.outcomes.ridge import Ridge

N, K = 400, 10
RNG = np.random.default_rng(3)
SLOPE, EFFECT, LEAN = 0.2 * RNG.standard_normal(3), 0.5 * RNG.standard_normal(K), RNG.standard_normal((3, K))


def softmax(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


LOGGING = cael.FromModel(lambda x: softmax(0.5 * x @ LEAN))
TARGET = cael.FromModel(lambda x: softmax(2 * EFFECT - x @ LEAN))
POPULATION = RNG.standard_normal((50_000, 3))
TRUTH = float((POPULATION @ SLOPE + softmax(2 * EFFECT - POPULATION @ LEAN) @ EFFECT).mean())


def linear_log(seed, n=N):
    """Rewards of a linear model: Ridge is right."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3))
    a = (softmax(0.5 * x @ LEAN).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return cael.LoggedData(x, a, x @ SLOPE + EFFECT[a] + rng.standard_normal(n), logging=LOGGING)


@pytest.mark.parametrize("interactions", [False, True])
@pytest.mark.parametrize("actions", ["onehot", "both", "features"])
def test_the_influence_of_a_row_is_what_its_reward_moves(actions, interactions):
    """v_i / n is the derivative of the in-sample mean prediction by the reward of row i."""
    features = RNG.standard_normal((K, 2))
    log = linear_log(0, 60)
    arrays = {"logging": LOGGING, "action_features": features}
    estimator = cael.DM(Ridge(alpha=2.0, actions=actions, interactions=interactions), folds=0)
    plain = cael.LoggedData(log.contexts, log.actions, log.rewards, **arrays)
    found = estimator.estimate(plain, TARGET)
    for row in (0, 7, 59):
        moved = log.rewards.copy()
        moved[row] += 1e-3
        other = estimator.estimate(cael.LoggedData(log.contexts, log.actions, moved, **arrays), TARGET)
        slope = (other.value - found.value) / 1e-3
        balance = by_hand(plain, estimator.outcome)[row]
        assert balance / len(log) == pytest.approx(slope, rel=1e-6)


def by_hand(log, model):
    """(n,) by which residuals count, from the parts of the engine."""
    from cael.engine import ridge_pass
    from cael.log.held import Held

    held = Held(log)
    sums = ridge_pass.ridge_sums(held, 1, 1, 0, by_action=model.interactions is True)
    found = ridge_pass.balanced(model, sums, held, held.target(TARGET), interacting=model.interactions is True)
    return found.logged(log.whole)


def test_the_value_is_the_mean_prediction_as_before():
    log = linear_log(1)
    found = cael.DM(Ridge(alpha=2.0), folds=0).estimate(log, TARGET)
    model = Ridge(alpha=2.0).fit(log, 0)
    p = np.concatenate([cael.policies.policy.probabilities(TARGET, batch) for batch in log.batches(width=K)])
    predicted = model.value(log.whole, p)
    assert found.value == pytest.approx(predicted.mean(), rel=1e-12)
    assert found.contributions.mean() == pytest.approx(found.value, rel=1e-12)
    assert found.stderr > 1.5 * predicted.std() / np.sqrt(N)


def test_other_models_say_that_their_training_is_not_counted():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LinearRegression

    log = linear_log(2)
    told = " ".join(cael.DM(cael.SklearnOutcome(LinearRegression())).estimate(log, TARGET).diagnostics.warnings)
    assert "neither the error of its training nor a bias" in told
    assert "neither" not in " ".join(cael.DM().estimate(log, TARGET).diagnostics.warnings)


def test_the_interval_covers_where_the_model_is_right():
    """100 logs; the predictions alone, as a negative control, have intervals that are far too short."""
    covered, alone = [], []
    for seed in range(100):
        found = cael.DM().estimate(linear_log(100 + seed), TARGET)
        covered.append(TRUTH in found.interval())
        predicted = found.sums.block[np.flatnonzero(found.sums.coefficients)[0]]
        alone.append(abs(found.value - TRUTH) < 1.96 * predicted.std() / np.sqrt(N))
    error = np.sqrt(0.95 * 0.05 / 100)
    assert np.mean(covered) > 0.95 - 3 * error
    assert np.mean(alone) < 0.95 - 5 * error
