"""What an estimate's interval and diagnostics need is made when it is first asked for, and says the same."""

import copy
import pickle

import numpy as np
import pytest

import cael
from cael.engine import columns
from cael.inference.diagnostics import Diagnostics, contrast_floor
from cael.policies import expectations

K, N = 7, 900
rng = np.random.default_rng(0)
MU, PI = (rng.dirichlet(np.full(K, 1.0), N) * 0.9 + 0.1 / K for _ in range(2))
X = rng.normal(size=(N, 2))
ACTIONS = np.array([rng.choice(K, p=row) for row in MU])
REWARDS = (rng.random(N) < 0.2 + 0.05 * ACTIONS).astype(float)
USERS = rng.integers(0, 90, N)


def log(clusters=None):
    return cael.LoggedData(X, ACTIONS, REWARDS, logging=MU, n_actions=K, clusters=clusters)


def facts(estimate):
    d = estimate.diagnostics
    return [
        estimate.value, estimate.stderr, estimate.error, *estimate.interval(0.9).to_dict().values(), d.stderr_floor,
        d.mean_weight_z, d.warnings, d.proportion, d.pooled,
    ]  # fmt: skip


@pytest.fixture
def counted(monkeypatch):
    """How many batches E w^2 was computed of, over all actions."""
    calls, whole = [], columns.second_moments
    monkeypatch.setattr(columns, "second_moments", lambda *given: calls.append(1) or whole(*given))
    return calls


@pytest.mark.parametrize(
    "estimator",
    [cael.IPS(), cael.SNIPS(), cael.IPS(clip=3.0), cael.BaselineIPS(), cael.SubGaussianIPS(), cael.DR(), cael.SNDR()],
    ids=lambda estimator: estimator.name,
)
@pytest.mark.parametrize("clusters", [None, USERS])
def test_sums_over_all_actions_wait_until_they_are_asked_for_and_are_those_of_the_panel(estimator, clusters, counted):
    given = log(clusters)
    panel = cael.evaluate(given, PI, [estimator], learn=False)[estimator.name]
    counted.clear()
    alone = estimator.estimate(given, PI)
    assert alone.value == pytest.approx(panel.value, rel=1e-12)
    assert not counted
    assert alone.interval(0.9).low == pytest.approx(panel.interval(0.9).low, rel=1e-9)
    assert len(counted) == 1
    assert alone.diagnostics.mean_weight_z == pytest.approx(panel.diagnostics.mean_weight_z, rel=1e-9)
    assert alone.diagnostics.warnings == panel.diagnostics.warnings
    assert alone.error == pytest.approx(panel.error, rel=1e-9)
    assert len(counted) == 1


def test_what_is_asked_later_is_what_the_logs_of_both_policies_say():
    estimate = cael.IPS().estimate(log(), PI)
    second = float((PI**2 / MU).sum(axis=1).mean())
    seen = float(np.mean((PI[np.arange(N), ACTIONS] / MU[np.arange(N), ACTIONS]) ** 2))
    assert estimate.diagnostics.pooled.second == pytest.approx(max(second, seen), rel=1e-6)


@pytest.mark.parametrize("kept", [copy.copy, copy.deepcopy, lambda estimate: pickle.loads(pickle.dumps(estimate))])
@pytest.mark.parametrize("asked", [False, True])
def test_a_copy_says_the_same_whether_it_was_asked_before_or_not(kept, asked):
    estimate = cael.SNDR().estimate(log(), PI)
    if asked:
        estimate.interval()
    again = kept(estimate)
    assert isinstance(again.__dict__["diagnostics"], Diagnostics)  # it does not take the log with it
    assert facts(again) == facts(estimate)


def test_a_contrast_says_the_same_whether_its_parts_were_asked_before_or_not():
    parts = [cael.SNIPS().estimate(log(), PI), cael.LoggedMean().estimate(log(), PI)]
    first = parts[0] - parts[1]
    asked = [cael.SNIPS().estimate(log(), PI), cael.LoggedMean().estimate(log(), PI)]
    for each in asked:
        each.interval()
    assert facts(first) == facts(asked[0] - asked[1])
    assert first.diagnostics.stderr_floor == pytest.approx(
        contrast_floor(
            (parts[0].stderr, parts[1].stderr, first.stderr), tuple(each.diagnostics.stderr_floor for each in parts)
        )
    )
    assert (parts[0] - parts[0]).diagnostics.stderr_floor == 0


def test_an_estimate_cannot_be_changed():
    estimate = cael.SNIPS().estimate(log(), PI)
    with pytest.raises(AttributeError):
        estimate.diagnostics = None
    estimate.interval()
    with pytest.raises(AttributeError):
        estimate.diagnostics = None


def test_a_function_is_asked_once_for_each_row(monkeypatch):
    """Its probabilities would have to be asked for again: they are not put off."""
    rows = []

    def policy(contexts):
        rows.append(len(contexts))
        return np.full((len(contexts), K), 1 / K)

    estimate = cael.SNIPS().estimate(log(), policy)
    before = sum(rows)
    monkeypatch.setattr(expectations, "second_moments", None)
    assert estimate.interval().low < estimate.value
    assert sum(rows) == before
