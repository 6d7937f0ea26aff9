"""How often a policy is shipped where none is better than the old one: at most one time in twenty."""

from __future__ import annotations

import math

import pytest

import cael
from cael.learning import learner, split
from cael.log.held import Held
from cael.worlds import MixedWorld, Play

LOGS, ERROR = 60, 0.05
MOST = ERROR + 4 * math.sqrt(ERROR * (1 - ERROR) / LOGS)
WORLDS = {
    "normal": MixedWorld("none", "normal", Play("uniform"), n_actions=30, context_dim=3, context_share=0.5, seed=8),
    "clicks": MixedWorld("none", "clicks", Play("popular", 0.8), n_actions=10, context_dim=3, rate=0.1, seed=8),
}


def shipped(world, first):
    """The share of logs in which a bound is above 0, and in which a policy is shipped."""
    learned = [
        cael.learn(world.sample(600, first + t), candidates=["best_arm", "linear", "ridge"]) for t in range(LOGS)
    ]
    return sum(one.bound > 0 for one in learned) / LOGS, sum(one.ships for one in learned) / LOGS


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_harm_is_rare_and_certifying_on_the_rows_that_learned_would_not_be(name, monkeypatch):
    above, ships = shipped(WORLDS[name], 9000)
    assert ships <= above <= MOST
    monkeypatch.setattr(split, "others", lambda log, limit, seed: Held(learned_rows(log, seed)))
    assert shipped(WORLDS[name], 9000)[0] > MOST + 0.1


def learned_rows(log, seed):
    """The negative control: the rows that learned and chose."""
    return split.sample_in_memory(log.log, round((1 - learner.CERTIFY) * len(log.log)), seed).log
