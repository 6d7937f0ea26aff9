"""Logs and what is learned from them, with networks that are trained quickly."""

from __future__ import annotations

import pytest

import cael
from cael.learning import learner
from cael.worlds import MixedWorld, Play

QUICK = cael.Growth(steps=30, penalties=(1.5,), restarts=1, hidden=8, patience=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Networks of eight units, trained in a moment: what is tested here does not depend on how good they are."""
    monkeypatch.setattr(learner, "Growth", lambda budget=None: QUICK)


@pytest.fixture(scope="session")
def world():
    return MixedWorld("tree", "normal", Play("uniform"), n_actions=5, context_dim=3, reward_std=0.5, seed=11)


@pytest.fixture(scope="session")
def log(world):
    return world.sample(1200, 3)
