"""Shared fixtures and the Hypothesis profile."""

import pytest
from hypothesis import HealthCheck, settings

import cael
from cael.testing import example

settings.register_profile("cael", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cael")
# `evaluate` leaves Auto, which trains networks for seconds, out unless a test asks for it with learn=True.
cael.evaluation.LEARN = False


@pytest.fixture
def log() -> cael.LoggedData:
    return example()[0]


@pytest.fixture
def policy() -> cael.Policy:
    return example()[1]
