"""Logs that left out rows by their rewards: with sampling weights, intervals hold the truth; without, they do not."""

import math

import numpy as np
import pytest

import cael
from tests.calibration.kept import kept, truth

pytestmark = pytest.mark.slow

LOGS, ROWS, LEVEL = 400, 6000, 0.95
FIRST = 61_000
LEAST = LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / LOGS)
"""0.906: four Monte Carlo errors below the level."""
QUICK = cael.Growth(steps=60, hidden=16, penalties=(1.5,), restarts=1)


def covers(estimates, value):
    return np.mean([value in estimate.interval(LEVEL) for estimate in estimates])


def test_values_and_lifts_cover_and_without_the_weights_none_does():
    old, new = truth()
    names = {"mean": old, "ips": new, "snips": new, "dr": new, "sndr": new, "lift": new - old, "alike": new}
    found = {name: [] for name in names}
    for seed in range(FIRST, FIRST + LOGS):
        world = kept(ROWS, seed)
        log, target = world.log, world.target
        each = {
            "mean": cael.LoggedMean().estimate(log, target), "ips": cael.IPS().estimate(log, target),
            "snips": cael.SNIPS().estimate(log, target), "dr": cael.DR().estimate(log, target),
            "sndr": cael.SNDR().estimate(log, target), "alike": cael.SNDR().estimate(world.alike, target),
        }  # fmt: skip
        each["lift"] = each["sndr"] - each["mean"]
        for name, estimate in each.items():
            found[name].append(estimate)
    shares = {name: covers(found[name], value) for name, value in names.items()}
    assert shares.pop("alike") == 0.0  # the negative control
    assert min(shares.values()) > LEAST, shares
    for name in ("mean", "ips", "snips", "dr", "sndr"):
        z = np.array([(estimate.value - names[name]) / estimate.error for estimate in found[name]])
        assert abs(z.std() - 1) < 4 / math.sqrt(2 * LOGS), name
        assert abs(z.mean()) < 4 / math.sqrt(LOGS), name


def test_cael_and_the_verdict_take_such_logs():
    _, new = truth()
    logs = 40
    least = LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / logs)
    estimates, refused = [], 0
    for seed in range(FIRST + LOGS, FIRST + LOGS + logs):
        world = kept(ROWS, seed)
        estimates.append(cael.CAEL(growth=QUICK, folds=3).estimate(world.log, world.target))
        refused += cael.evaluate(world.log, world.target, learn=False).verdict.level == "refuse"
    assert covers(estimates, new) > least
    assert refused <= 3
    alike = [cael.CAEL(growth=QUICK, folds=3).estimate(kept(ROWS, FIRST + at).alike, kept(ROWS, FIRST + at).target)
             for at in range(3)]  # fmt: skip
    assert covers(alike, new) == 0.0  # the negative control
