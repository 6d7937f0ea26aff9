"""Weight transforms and what is read off them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cael.inference import weights as W
from cael.inference.weight_rules import Clip, Shrink, SubGaussian, Switch
from tests.oracles.twins import best_baseline

positive = arrays(np.float64, st.integers(1, 50), elements=st.floats(0, 1e6))


@given(positive)
def test_effective_sample_size_is_between_one_and_n(w):
    ess = W.effective_sample_size(w)
    assert ess == 0 if not w.any() else 1 - 1e-9 <= ess <= len(w) + 1e-6


def test_effective_sample_size_of_equal_weights_is_n():
    assert W.effective_sample_size(np.full(7, 3.0)) == pytest.approx(7)
    assert W.effective_sample_size(np.array([0.0, 0.0, 5.0])) == pytest.approx(1)


@given(positive, st.floats(0.01, 100))
def test_no_transform_makes_a_weight_larger(w, x):
    for rule in (Clip(x), Switch(x), Shrink(x)):
        changed = rule(w, w)
        assert (changed >= 0).all()
        assert (changed <= w + 1e-9).all()
    assert (Shrink(x)(w, w) <= math.sqrt(x) / 2 + 1e-9).all()
    assert (SubGaussian(min(1.0, x))(w, w) <= 1 / min(1.0, x) + 1e-9).all()


@pytest.mark.parametrize("k", [0.1, 0.5, 1.0])
def test_tail_index_finds_the_tail(k):
    """Pareto weights with tail index k, 200 samples of 4000: the mean of the estimates is near k."""
    rng = np.random.default_rng(1)
    found = np.array([W.tail_index((1 - rng.random(4000)) ** -k) for _ in range(200)])
    assert np.isnan(found).mean() < 0.1  # light tails sometimes look like a ceiling; heavy ones do not
    assert k < 0.5 or not np.isnan(found).any()
    found = found[~np.isnan(found)]
    spread = np.std(found) / math.sqrt(len(found))
    # The prior draws k towards 0.5 by 10 in ~190 observations; allow that and four standard errors.
    assert abs(np.mean(found) - k) < 4 * spread + 0.08 * abs(0.5 - k) + 0.02


def test_tail_index_of_a_million_weights_overflows_nowhere():
    """Warnings are errors in this suite: the profile likelihood of many weights spans hundreds of logarithms."""
    w = np.exp(2 * np.random.default_rng(0).standard_normal(1_000_000))
    assert 0 < W.tail_index(w) < 1


def test_tail_index_of_weights_with_a_ceiling_is_not_a_number():
    rng = np.random.default_rng(2)
    two_valued = np.where(rng.random(1000) < 0.05, 400.0, 0.2)
    assert math.isnan(W.tail_index(two_valued))
    assert math.isnan(W.tail_index(np.ones(1000)))
    assert math.isnan(W.tail_index(np.arange(9.0)))


def test_best_baseline_of_constant_weights_is_zero():
    assert best_baseline(np.ones(5), np.arange(5.0)) == 0.0


def test_best_baseline_is_the_formula():
    rng = np.random.default_rng(3)
    w, r = rng.exponential(size=200_000), rng.normal(3.0, 1.0, 200_000)
    assert best_baseline(w, r) == pytest.approx(np.mean((w**2 - w) * r) / np.mean(w**2 - w), rel=0.02)


def test_subgaussian_lambda():
    assert W.lambda_of(4.0, 100) == pytest.approx(math.sqrt(2 * math.log(20) / (3 * 100 * 4)))
    assert W.lambda_of(1e-6, 2) == 1.0
    assert W.lambda_of(0.0, 3) == 0.0
