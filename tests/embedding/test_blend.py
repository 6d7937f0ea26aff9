"""The blend of a smoothed and the sharp estimate: limits, bounds, and what moves its share which way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cael.embedding.exact.blend import BOUND, FEW, MISCALIBRATION, SURPRISE, TRUST, PathFacts, blend

BANDWIDTHS = np.array([0.0, 0.1, 0.5, 2.0, np.inf])
ROUGH = np.array([0.0, 0.2, 0.5, 0.7, 0.8])


def facts(*, difference=0.0, noise=1.0, **changes):
    """A plain case: the sharp estimate is worth `rows`, the smoothed ones thousands; noise scales all variances."""
    rows = changes.get("rows", 50.0)
    given = {
        "bandwidths": BANDWIDTHS,
        "values": 3.0 + np.append(0.0, np.broadcast_to(difference, 4)),
        "sharp": 3.0,
        "variance": noise * np.array([1 / rows, 5e-3, 2e-3, 1e-3, 1e-3]),
        "gap": noise * np.array([0.0, 0.5, 0.8, 0.9, 1.0]) / rows,
        "roughness": ROUGH,
        "shift": np.zeros(5),
        "rows": rows,
        "residual": 1.0,
        "reward": 4.0,
        "explained": 0.75,
        "hole": 0.0,
    } | changes
    return PathFacts(**given)


def slow(told, j):
    """(share, estimated error) at bandwidth j > 0, from the text of the module."""
    surprise = 0.0
    for i in range(j, len(told.values)):
        d, gap = told.values[i] - told.sharp, told.gap[i] + told.hole
        surprise = max(surprise, (d**2 - SURPRISE * (1 + FEW / told.rows) * gap) / told.roughness[i] ** 2)
    left = (told.residual * (1 - told.explained) ** TRUST + surprise) / 2
    s = told.bandwidths[j]
    fade = 1.0 if np.isinf(s) else s / (1 + s)
    tau = told.roughness[j] ** 2 * (left + MISCALIBRATION * told.explained * told.reward * fade**2) + told.shift[j] ** 2
    gap = told.gap[j] + told.hole
    return tau / (tau + gap), told.variance[j] + tau * gap / (tau + gap)


positive = st.floats(1e-4, 10)


@st.composite
def any_facts(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return facts(
        difference=rng.normal(0, draw(positive), 4),
        noise=draw(positive),
        rows=draw(st.floats(0.5, 1e5)),
        roughness=np.append(0.0, np.sort(rng.uniform(0.01, 1, 4))),
        shift=draw(st.sampled_from([0.0, 0.3])) * rng.normal(size=5),
        residual=draw(positive),
        reward=draw(positive),
        explained=draw(st.floats(0, 1)),
        hole=draw(st.sampled_from([0.0, 1e-3, 1.0])),
    )


@given(any_facts())
def test_shares_errors_and_bounds_are_what_they_say(told):
    found = blend(told)
    assert ((found.shares >= 0) & (found.shares <= 1)).all()
    assert (found.errors >= told.variance).all()
    assert found.index == found.errors.argmin()
    assert found.share == found.shares[found.index]
    assert found.bias_bound >= 0
    assert found.shares[0] == 1
    for j in range(1, 5):
        assert (found.shares[j], found.errors[j]) == pytest.approx(slow(told, j), rel=1e-6)


@given(any_facts())
def test_the_bias_that_is_left_is_less_than_what_the_sharp_estimate_cannot_see(told):
    """The posterior variance of a bias is below the variance of the difference that measures it."""
    found = blend(told)
    assert (found.errors[1:] - told.variance[1:] <= (told.gap[1:] + told.hole) * (1 + 1e-9) + 1e-12).all()
    spread = found.errors[found.index] - told.variance[found.index]
    assert found.bias_bound == pytest.approx(BOUND * np.sqrt(max(spread, 0)), rel=1e-4, abs=1e-6)


@given(any_facts())
def test_at_bandwidth_0_the_bound_is_that_of_the_hole(told):
    found = blend(replace(told, variance=np.append(0.0, told.variance[1:] + 1e3)))
    assert found.index == 0
    assert found.share == 1
    assert found.bias_bound == pytest.approx(BOUND * np.sqrt(told.hole))


@pytest.mark.parametrize("rows", [1e3, 1e5])
def test_where_nothing_is_explained_and_rows_are_many_it_is_nearly_the_sharp_estimate(rows):
    found = blend(facts(explained=0.0, residual=4.0, reward=4.0, noise=4.0, rows=rows))
    # Where smoothing is rough. At a small roughness little can be wrong, and smoothing is allowed.
    assert (found.shares[2:] > 1 - 10 / rows).all()


def test_where_nothing_is_explained_and_rows_are_few_neither_end_is_trusted():
    found = blend(facts(explained=0.0, residual=4.0, reward=4.0, noise=4.0, rows=5.0))
    assert 0.2 < found.shares[-1] < 0.8
    assert found.bias_bound > 0.3


@pytest.mark.parametrize("z", [0.0, 1.0, 1.5])
def test_where_much_is_explained_and_the_difference_is_noise_it_is_nearly_the_smoothed_estimate(z):
    told = facts(explained=0.95, residual=0.2, rows=5.0, noise=1.0)
    found = blend(replace(told, values=told.sharp + z * np.sqrt(told.gap)))
    assert found.index > 0
    assert found.share < 0.15


@pytest.mark.parametrize("explained", [0.0, 0.5, 0.99])
def test_a_huge_difference_on_many_rows_gives_the_sharp_estimate(explained):
    found = blend(facts(difference=3.0, rows=2000.0, explained=explained))
    assert (found.shares[1:] > 0.98).all()
    near = blend(facts(difference=0.01, rows=2000.0, explained=0.99))
    assert near.shares[1] < 0.1  # negative control: without the difference it is not


@given(any_facts(), st.floats(1, 10))
def test_a_larger_difference_never_lowers_the_sharp_share(told, factor):
    wider = replace(told, values=told.sharp + factor * (told.values - told.sharp))
    assert (blend(wider).shares >= blend(told).shares - 1e-12).all()


@given(any_facts(), st.floats(1, 10))
def test_a_noisier_difference_never_raises_the_sharp_share(told, factor):
    noisier = replace(told, gap=told.gap * factor)
    assert (blend(noisier).shares <= blend(told).shares + 1e-12).all()


@given(any_facts(), st.floats(1, 10))
def test_more_rows_with_the_same_variances_never_lower_the_sharp_share(told, factor):
    assert (blend(replace(told, rows=told.rows * factor)).shares >= blend(told).shares - 1e-12).all()


@given(any_facts(), st.floats(0, 5))
def test_a_hole_in_the_sharp_estimate_never_raises_its_share(told, hole):
    found, worse = blend(told), blend(replace(told, hole=told.hole + hole))
    assert (worse.shares <= found.shares + 1e-12).all()


@given(any_facts(), st.floats(1, 10))
def test_more_unexplained_reward_never_lowers_the_sharp_share(told, factor):
    assert (blend(replace(told, residual=told.residual * factor)).shares >= blend(told).shares - 1e-12).all()


@given(any_facts(), st.floats(0.01, 100))
def test_the_unit_of_the_reward_does_not_matter(told, unit):
    squared = {name: getattr(told, name) * unit**2 for name in ("variance", "gap", "residual", "reward", "hole")}
    linear = {name: getattr(told, name) * unit for name in ("values", "sharp", "shift")}
    found, scaled = blend(told), blend(replace(told, **squared, **linear))
    np.testing.assert_allclose(scaled.shares, found.shares, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scaled.errors, unit**2 * found.errors, rtol=1e-6)


def test_a_difference_says_nothing_about_larger_bandwidths():
    """A surprise at the smallest bandwidth alone, where the roughness is tiny."""
    told = facts(difference=0.0, rows=2000.0, explained=0.9)
    odd = replace(told, values=told.values + np.array([0.0, 5.0, 0.0, 0.0, 0.0]))
    assert blend(odd).shares[1] > 0.9
    np.testing.assert_array_equal(blend(odd).shares[2:], blend(told).shares[2:])


def test_a_bias_that_the_model_predicts_raises_the_share():
    shifted = blend(facts(shift=np.array([0.0, 0.5, 0.5, 0.5, 0.5])))
    assert (shifted.shares[1:] > blend(facts()).shares[1:]).all()
