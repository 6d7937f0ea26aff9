"""Shared fixtures and the Hypothesis profile."""

import os

import pytest
from hypothesis import HealthCheck, settings

import cael
import cael.results.evaluate
from cael.testing import example

# The same examples each time, so that a commit passes or fails for good; `make fuzz` looks for new ones.
FUZZ = "CAEL_FUZZ" in os.environ
settings.register_profile(
    "cael",
    deadline=None,
    max_examples=300 if FUZZ else 60,
    derandomize=not FUZZ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cael")
# `evaluate` leaves Auto, which trains networks for seconds, out unless a test asks for it with learn=True.
cael.results.evaluate.LEARN = False


@pytest.fixture
def log() -> cael.LoggedData:
    return example()[0]


@pytest.fixture
def policy() -> cael.Policy:
    return example()[1]
