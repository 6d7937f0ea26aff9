"""Shared fixtures and the Hypothesis profile."""

import importlib.util
import os

# Before anything loads numpy or torch: two processes of many threads each would wait for one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

import pytest
from hypothesis import HealthCheck, settings

import cael
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


@pytest.fixture
def log() -> cael.LoggedData:
    return example()[0]


@pytest.fixture
def policy() -> cael.Policy:
    return example()[1]


WITHOUT_TORCH = importlib.util.find_spec("torch") is None
"""As in `make oldest` and `make pythons`; never in the environment of `make test`."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Where torch is not installed, a test that asks for it is left out."""
    try:
        return (yield)
    except (ImportError, cael.NeedsError) as error:
        if WITHOUT_TORCH and "torch" in str(error):
            pytest.skip(str(error))
        raise
