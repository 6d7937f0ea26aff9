"""Random streams: a number depends on its seed and its place alone, and the numbers look random."""

import numpy as np
import pytest

from cael.embedding.arrays import NUMPY
from cael.embedding.stream import Stream

SEEDS = [0, 1, 2, 12345, 2**40 + 7]


def test_a_stream_does_not_depend_on_its_neighbours():
    together = Stream(SEEDS, NUMPY)
    first, second = together.uniform(3, 4), together.uniform(11)
    for t, seed in enumerate(SEEDS):
        alone = Stream([seed], NUMPY)
        assert np.array_equal(alone.uniform(3, 4)[0], first[t])
        assert np.array_equal(alone.uniform(11)[0], second[t])


def test_a_number_depends_on_its_place_and_not_on_the_calls_before():
    whole = Stream([5], NUMPY).uniform(100)[0]
    piecewise = Stream([5], NUMPY)
    parts = np.concatenate([piecewise.uniform(size)[0] for size in (1, 9, 40, 50)])
    assert np.array_equal(whole, parts)


def test_known_numbers():
    """SplitMix64 of the seed 1234567 begins with 6457827717110365317 (its authors' reference implementation)."""
    stream = Stream([0], NUMPY)
    stream.keys = np.array([1234567])
    assert stream.bits(2)[0].tolist() == [6457827717110365317, 3203168211198807973]


def test_different_seeds_differ():
    drawn = Stream(list(range(1000)), NUMPY).bits(4)
    assert len(np.unique(drawn)) == drawn.size


def test_uniform_in_the_unit_interval():
    u = Stream(SEEDS, NUMPY).uniform(100_000)
    assert u.dtype == np.float32
    assert u.shape == (5, 100_000)
    assert float(u.min()) >= 0
    assert float(u.max()) < 1


def test_moments_and_lag_correlations():
    n = 200_000
    for u in Stream(SEEDS, NUMPY).uniform(n).astype(float):
        z = (u - 0.5) * np.sqrt(12)  # mean 0, variance 1, kurtosis 1.8
        assert abs(z.mean()) < 4 / np.sqrt(n)
        assert abs((z**2).mean() - 1) < 4 * np.sqrt(0.8 / n)
        for lag in (1, 2, 3, 7, 64, 256):
            assert abs((z[lag:] * z[:-lag]).mean()) < 4 / np.sqrt(n - lag), lag


def test_streams_of_neighbouring_seeds_are_uncorrelated():
    n = 100_000
    z = (Stream(list(range(6)), NUMPY).uniform(n).astype(float) - 0.5) * np.sqrt(12)
    correlations = (z @ z.T / n)[np.triu_indices(6, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(n)


def test_shuffled_rows_are_permutations():
    rows = [np.arange(10), np.arange(100, 110), np.arange(5)]
    stream = Stream([1, 2, 3], NUMPY)
    mixed = [stream.shuffled(each, t) for t, each in enumerate(rows)]
    for before, after in zip(rows, mixed, strict=True):
        assert np.array_equal(np.sort(after), before)
    assert not np.array_equal(mixed[0], rows[0])


def test_shuffles_are_uniform():
    """Each element is equally often in each place: 6 elements, 6000 shuffles, expected 1000 in each cell."""
    found = Stream(list(range(6000)), NUMPY).shuffled_together(
        np.tile(np.arange(6), (6000, 1)), np.full(6000, 6), np.arange(6000)
    )
    for place in range(6):
        counts = np.bincount(found[:, place], minlength=6)
        assert np.abs(counts - 1000).max() < 4 * np.sqrt(6000 * (1 / 6) * (5 / 6)) + 1


def test_shuffles_do_not_depend_on_neighbours():
    rows = np.tile(np.arange(20), (3, 1))
    together = Stream([4, 5, 6], NUMPY).shuffled_together(rows, np.full(3, 20), np.arange(3))
    one_by_one = Stream([4, 5, 6], NUMPY)
    for t, seed in enumerate([4, 5, 6]):
        assert np.array_equal(Stream([seed], NUMPY).shuffled(rows[0], 0), together[t])
        assert np.array_equal(one_by_one.shuffled(rows[t], t), together[t])


def test_a_trial_that_draws_moves_no_other_stream():
    lonely, pair = Stream([8], NUMPY), Stream([7, 8], NUMPY)
    pair.shuffled(np.arange(50), 0)
    assert np.array_equal(pair.uniform(4)[1], lonely.uniform(4)[0])


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.75])
def test_kept_is_false_at_the_rate_and_one_by_one_as_together(rate):
    kept = Stream([1, 2], NUMPY).kept(rate, 3, 20_001)
    assert kept.shape == (2, 3, 20_001) and kept.dtype == bool
    share = 1 - kept.mean()
    assert abs(share - rate) <= 4 * (rate * (1 - rate) / kept.size) ** 0.5
    assert np.array_equal(Stream([2], NUMPY).kept(rate, 3, 20_001)[0], kept[1])
    assert rate == 0 or not np.array_equal(kept[0], kept[1])
