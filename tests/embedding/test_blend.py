"""The blend of a smoothed and the sharp estimate: limits, bounds, and what moves its share which way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cael.embedding.exact.blend import (
    BOUND,
    CAUTION,
    EVIDENT,
    FEW,
    MISCALIBRATION,
    SURPRISE,
    TRUST,
    PathFacts,
    blend,
    prior_of,
)
from cael.inference.reach import reach

BANDWIDTHS = np.array([0.0, 0.1, 0.5, 2.0, np.inf])
ROUGH = np.array([0.0, 0.2, 0.5, 0.7, 0.8])


N = 1000


def facts(*, difference=0.0, noise=1.0, rows=50.0, **changes):
    """A plain case: the sharp estimate is worth `rows`, the smoothed ones thousands; noise scales all variances. What
    the rows show is what the second moments imply, unless `noise` of what is weighted is changed."""
    given = {
        "bandwidths": BANDWIDTHS,
        "values": 3.0 + np.append(0.0, np.broadcast_to(difference, 4)),
        "sharp": 3.0,
        "seen": noise * np.array([1 / rows, 5e-3, 2e-3, 1e-3, 1e-3]),
        "apart": noise * np.array([0.0, 0.5, 0.8, 0.9, 1.0]) / rows,
        "sharp_seen": noise / rows,
        "second": N * np.array([1 / rows, 5e-3, 2e-3, 1e-3, 1e-3]),
        "cross": np.ones(5),
        "n": N,
        "roughness": ROUGH,
        "shift": np.zeros(5),
        "residual": 1.0,
        "reward": 4.0,
        "noise": 0.0,
        "kurtosis": 3.0,
        "explained": 0.75,
        "explained_of_actions": 0.75,
        "hole": 0.0,
        "slope": (0.0, 0.0),
        "placed": -ROUGH,
    } | changes
    return PathFacts(**given)


def with_rows(told, rows):
    """The same with another worth of the sharp estimate, and no other variance."""
    return replace(told, second=np.append(N / rows, told.second[1:]))


def slow(told, j):
    """(share, estimated error, prior variance) at bandwidth j > 0, from the text of the module."""
    surprise, rows = 0.0, told.n / told.second[0]
    for i in range(j, len(told.values)):
        d, gap = told.values[i] - told.sharp, told.apart[i] + told.hole
        surprise = max(surprise, (d**2 - SURPRISE * (1 + FEW / rows) * gap) / told.roughness[i] ** 2)
    explained = min(told.explained, told.explained_of_actions)
    left = (told.residual * (1 - explained) ** TRUST + surprise) / 2
    s = told.bandwidths[j]
    fade = 1.0 if np.isinf(s) else s / (1 + s)
    tau = told.roughness[j] ** 2 * (left + MISCALIBRATION * told.explained * told.reward * fade**2) + told.shift[j] ** 2
    slope, error = told.slope
    if abs(slope) > EVIDENT * error:
        tau += (slope**2 - EVIDENT**2 * error**2) * told.placed[j] ** 2
    k = tau / (tau + told.apart[j] + told.hole)
    noise = max((1 - k) * told.seen[j] + k * told.sharp_seen - k * (1 - k) * told.apart[j], 0.0)
    return k, noise + (1 - k) ** 2 * tau + k**2 * told.hole, tau


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
        explained_of_actions=draw(st.floats(0, 1)),
        hole=draw(st.sampled_from([0.0, 1e-3, 1.0])),
        slope=(draw(st.sampled_from([0.0, 0.3])) * rng.normal(), draw(st.floats(0, 0.2))),
    )


@given(any_facts())
def test_shares_errors_and_bounds_are_what_they_say(told):
    found = blend(told)
    assert ((found.shares >= 0) & (found.shares <= 1)).all()
    assert found.index == found.errors.argmin()
    assert found.shares[found.index] <= found.share <= 1
    assert found.bias_bound >= 0
    assert found.shares[0] == 1
    for j in range(1, 5):
        assert (found.shares[j], found.errors[j], found.prior[j]) == pytest.approx(slow(told, j), rel=1e-6)


@given(any_facts())
def test_the_bias_is_allowed_for_once(told):
    """That of the blend is (1 - kappa) times that of the smoothed estimate, and kappa times that of the sharp one."""
    found = blend(told)
    kappa, prior = found.share, prior_of(told, CAUTION)
    allowed = (1 - kappa) * np.sqrt(prior[found.index]) + kappa * np.sqrt(told.hole)
    assert (prior >= found.prior).all()
    assert found.bias_bound == pytest.approx(BOUND * allowed, rel=1e-9, abs=1e-12)


@given(any_facts())
def test_the_interval_is_never_longer_than_that_of_the_sharp_estimate(told):
    found = blend(told)
    length = reach(np.sqrt(found.variance), found.bias_bound, None, 1.96)[0]
    sharp = reach(np.sqrt(told.sharp_seen), BOUND * np.sqrt(told.hole), None, 1.96)[0]
    assert length <= sharp * (1 + 1e-9) or found.share == 1


def test_at_bandwidth_0_the_bound_is_that_of_the_hole():
    told = facts(seen=np.array([0.02, 1e3, 1e3, 1e3, 1e3]), hole=0.3)
    found = blend(told)
    assert found.index == 0
    assert found.share == 1
    assert found.bias_bound == pytest.approx(BOUND * np.sqrt(told.hole))


def test_a_model_that_explains_the_context_alone_explains_nothing():
    """A reward that the context explains, and actions that the model knows nothing of."""
    blind, seeing = facts(explained=0.9, explained_of_actions=0.0), facts(explained=0.9, explained_of_actions=0.9)
    assert (blend(blind).prior[1:] > 3 * blend(seeing).prior[1:]).all()


def test_few_rows_that_agree_by_chance_are_not_believed():
    """Contributions without spread: the variances are raised towards what the weights imply."""
    quiet = facts(rows=5.0, noise=1e-6)
    raised = replace(quiet, noise=1.0)
    assert (raised.gap[1:] > 100 * quiet.gap[1:]).all()
    assert blend(raised).variance > 100 * blend(quiet).variance


@pytest.mark.parametrize("rows", [1e3, 1e5])
def test_where_nothing_is_explained_and_rows_are_many_it_is_nearly_the_sharp_estimate(rows):
    found = blend(facts(explained=0.0, explained_of_actions=0.0, residual=4.0, reward=4.0, noise=4.0, rows=rows))
    # Where smoothing is rough. At a small roughness little can be wrong, and smoothing is allowed.
    assert (found.shares[2:] > 1 - 10 / rows).all()


def test_where_nothing_is_explained_and_rows_are_few_neither_end_is_trusted():
    found = blend(facts(explained=0.0, explained_of_actions=0.0, residual=4.0, reward=4.0, noise=4.0, rows=5.0))
    assert 0.2 < found.shares[-1] < 0.8
    assert found.bias_bound > 0.3


@pytest.mark.parametrize("z", [0.0, 1.0, 1.5])
def test_where_much_is_explained_and_the_difference_is_noise_it_is_nearly_the_smoothed_estimate(z):
    told = facts(explained=0.95, explained_of_actions=0.95, residual=0.2, rows=5.0, noise=1.0)
    found = blend(replace(told, values=told.sharp + z * np.sqrt(told.apart)))
    assert found.index > 0
    assert found.share < 0.15


@pytest.mark.parametrize("explained", [0.0, 0.5, 0.99])
def test_a_huge_difference_on_many_rows_gives_the_sharp_estimate(explained):
    found = blend(facts(difference=3.0, rows=2000.0, explained=explained, explained_of_actions=explained))
    assert (found.shares[1:] > 0.98).all()
    near = blend(facts(difference=0.01, rows=2000.0, explained=0.99, explained_of_actions=0.99))
    assert near.shares[1] < 0.1  # negative control: without the difference it is not


@given(any_facts(), st.floats(1, 10))
def test_a_larger_difference_never_lowers_the_sharp_share(told, factor):
    wider = replace(told, values=told.sharp + factor * (told.values - told.sharp))
    assert (blend(wider).shares >= blend(told).shares - 1e-12).all()


@given(any_facts(), st.floats(1, 10))
def test_a_noisier_difference_never_raises_the_sharp_share(told, factor):
    noisier = replace(told, apart=told.apart * factor)
    assert (blend(noisier).shares <= blend(told).shares + 1e-12).all()


@given(any_facts(), st.floats(1, 10))
def test_more_rows_with_the_same_variances_never_lower_the_sharp_share(told, factor):
    assert (blend(with_rows(told, told.rows * factor)).shares >= blend(told).shares - 1e-12).all()


@given(any_facts(), st.floats(0, 5))
def test_a_hole_in_the_sharp_estimate_never_raises_its_share(told, hole):
    found, worse = blend(told), blend(replace(told, hole=told.hole + hole))
    assert (worse.shares <= found.shares + 1e-12).all()


@given(any_facts(), st.floats(1, 10))
def test_more_unexplained_reward_never_lowers_the_sharp_share(told, factor):
    assert (blend(replace(told, residual=told.residual * factor)).shares >= blend(told).shares - 1e-12).all()


@given(any_facts(), st.floats(0.01, 100))
def test_the_unit_of_the_reward_does_not_matter(told, unit):
    names = ("seen", "apart", "sharp_seen", "residual", "reward", "noise", "hole")
    squared = {name: getattr(told, name) * unit**2 for name in names}
    linear = {name: getattr(told, name) * unit for name in ("values", "sharp", "shift")}
    linear["slope"] = tuple(part * unit for part in told.slope)
    found, scaled = blend(told), blend(replace(told, **squared, **linear))
    np.testing.assert_allclose(scaled.shares, found.shares, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scaled.errors, unit**2 * found.errors, rtol=1e-6)


def test_a_difference_says_nothing_about_larger_bandwidths():
    """A surprise at the smallest bandwidth alone, where the roughness is tiny."""
    told = facts(difference=0.0, rows=2000.0, explained=0.9, explained_of_actions=0.9)
    odd = replace(told, values=told.values + np.array([0.0, 5.0, 0.0, 0.0, 0.0]))
    assert blend(odd).shares[1] > 0.9
    np.testing.assert_array_equal(blend(odd).shares[2:], blend(told).shares[2:])


def test_a_bias_that_the_model_predicts_raises_the_share():
    shifted = blend(facts(shift=np.array([0.0, 0.5, 0.5, 0.5, 0.5])))
    assert (shifted.shares[1:] > blend(facts()).shares[1:]).all()


def test_a_slope_of_what_the_model_leaves_raises_the_share_only_beyond_chance():
    told = facts(explained=0.9, explained_of_actions=0.9)
    seen, chance = replace(told, slope=(0.5, 0.05)), replace(told, slope=(0.5, 0.3))
    assert (blend(seen).shares[1:] > 1.5 * blend(told).shares[1:]).all()
    assert blend(seen).bias_bound > blend(told).bias_bound
    np.testing.assert_array_equal(blend(chance).shares, blend(told).shares)
