"""Calibration of CAEL on the paper's world: its bias-aware interval covers the value, not only its own expectation."""

import functools
import math

import numpy as np
import pytest

import cael
from cael.worlds import PaperWorld

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

TRIALS, ROWS, LEVEL = 30, 400, 0.95
WORLD = PaperWorld(n_actions=50, action_dim=5)
TRUTH = WORLD.value(WORLD.target)
LEAST = LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / TRIALS)
"""A bound on the bias makes intervals that cover at least at the level: only the lower side is tested."""


@functools.cache
def estimates(**changes):
    """CAEL on all logs, their networks trained at once; changes are of its settings."""
    growth = cael.Growth(steps=120, hidden=16, penalties=(1.5,), restarts=1)
    problems = [cael.Problem(WORLD.sample(ROWS, 1000 + seed), WORLD.target) for seed in range(TRIALS)]
    return cael.CAEL(growth=growth, folds=3, **changes).solve_many(problems, list(range(TRIALS)))


def coverage(found, method):
    return np.mean([TRUTH in each.interval(LEVEL, method) for each in found])


def errors(found):
    return np.array([each.value for each in found]) - TRUTH


def biased():
    """The mean logged reward: smoothing over all actions."""
    return estimates(form="self_normalised", selector=math.inf)


def test_the_bias_aware_interval_covers_the_value():
    found = estimates()
    assert coverage(found, "bias_aware") > LEAST
    widths = [each.interval(LEVEL, "bias_aware").width for each in found]
    wide = [cael.SNIPS().solve(cael.Problem(WORLD.sample(ROWS, 1000 + seed), WORLD.target)) for seed in range(TRIALS)]
    assert np.mean(widths) < np.mean([each.interval(LEVEL).width for each in wide])  # and says more than SNIPS


def test_negative_control_the_normal_interval_of_a_biased_estimator_does_not_cover():
    assert coverage(biased(), "normal") < LEAST
    assert coverage(biased(), "bias_aware") > LEAST


def test_smaller_errors_than_snips_and_than_the_mean():
    snips = [cael.SNIPS().solve(cael.Problem(WORLD.sample(ROWS, 1000 + seed), WORLD.target)) for seed in range(TRIALS)]
    mse = {name: (errors(each) ** 2).mean() for name, each in (("cael", estimates()), ("snips", snips))}
    assert mse["cael"] < 0.5 * mse["snips"]
    assert (errors(biased()) ** 2).mean() > 10 * mse["cael"]


def test_the_mean_weight_is_1_in_every_run():
    z = np.array([each.diagnostics.mean_weight_z for each in estimates()])
    assert np.abs(z).max() < 4
    assert abs(z.mean()) < 4 / math.sqrt(TRIALS)
