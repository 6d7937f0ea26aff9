"""Calibration of CAEL on the paper's world: its bias-aware interval covers the value, not only its own expectation."""

import functools
import math

import numpy as np
import pytest

import cael
from cael.worlds import PaperWorld

pytestmark = pytest.mark.slow

TRIALS, ROWS, LEVEL = 200, 400, 0.95
FIRST_SEED = 73_000_000
"""The logs' seeds from here on are used nowhere else in this repository: nothing was tuned on them."""
WORLD = PaperWorld(n_actions=50, action_dim=5)
TRUTH = WORLD.value(WORLD.target)
LEAST = LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / TRIALS)
"""0.888: four Monte Carlo errors below the level. An interval that allows for the largest bias covers at least at the
level, so there is no upper side; that it says something is tested by its width."""


@functools.cache
def problems():
    return [cael.Problem(WORLD.sample(ROWS, FIRST_SEED + trial), WORLD.target) for trial in range(TRIALS)]


@functools.cache
def snips():
    return [cael.SNIPS().solve(problem) for problem in problems()]


@functools.cache
def estimates(**changes):
    """CAEL on all logs, their networks trained at once; changes are of its settings."""
    growth = cael.Growth(steps=120, hidden=16, penalties=(1.5,), restarts=1)
    return cael.CAEL(growth=growth, folds=3, **changes).solve_many(problems(), list(range(TRIALS)))


def coverage(results, method):
    return np.mean([TRUTH in estimate.interval(LEVEL, method) for estimate in results])


def width(results, method=None):
    return np.mean([estimate.interval(LEVEL, method).width for estimate in results])


def errors(results):
    return np.array([estimate.value for estimate in results]) - TRUTH


def biased():
    """The mean logged reward: smoothing over all actions."""
    return estimates(form="self_normalised", selector=math.inf)


def test_the_bias_aware_interval_covers_the_value():
    assert coverage(estimates(), "bias_aware") > LEAST
    assert width(estimates(), "bias_aware") < width(snips())  # and says more than SNIPS


def test_negative_control_without_the_allowance_for_bias_it_does_not_cover():
    """The same estimates with 1.96 standard errors, which say how far they are from their own expectation."""
    assert 0.5 < coverage(estimates(), "normal") < LEAST


def test_negative_control_the_interval_without_bias_of_a_biased_estimator_does_not_cover():
    assert coverage(biased(), "normal") < LEAST
    assert coverage(biased(), "bias_aware") > LEAST


def test_smaller_errors_than_snips_and_than_the_mean():
    mse = {name: (errors(results) ** 2).mean() for name, results in (("cael", estimates()), ("snips", snips()))}
    assert mse["cael"] < 0.5 * mse["snips"]
    assert (errors(biased()) ** 2).mean() > 10 * mse["cael"]


def test_the_mean_weight_is_1_in_every_run():
    z = np.array([each.diagnostics.mean_weight_z for each in estimates()])
    assert np.abs(z).max() < 4
    assert abs(z.mean()) < 4 / math.sqrt(TRIALS)
