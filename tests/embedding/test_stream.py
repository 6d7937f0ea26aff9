"""Random streams: a number depends on its seed and its place alone, and the numbers look random."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cael.embedding.stream import Stream  # noqa: E402

CPU = torch.device("cpu")
SEEDS = [0, 1, 2, 12345, 2**40 + 7]


def test_a_stream_does_not_depend_on_its_neighbours():
    together = Stream(SEEDS, CPU)
    first, second = together.uniform(3, 4), together.uniform(11)
    for t, seed in enumerate(SEEDS):
        alone = Stream([seed], CPU)
        assert torch.equal(alone.uniform(3, 4)[0], first[t])
        assert torch.equal(alone.uniform(11)[0], second[t])


def test_a_number_depends_on_its_place_and_not_on_the_calls_before():
    whole = Stream([5], CPU).uniform(100)[0]
    piecewise = Stream([5], CPU)
    parts = torch.cat([piecewise.uniform(size)[0] for size in (1, 9, 40, 50)])
    assert torch.equal(whole, parts)


def test_known_numbers():
    """SplitMix64 of the seed 1234567 begins with 6457827717110365317 (its authors' reference implementation)."""
    stream = Stream([0], CPU)
    stream.keys = torch.tensor([1234567])
    assert stream.bits(2)[0].tolist() == [6457827717110365317, 3203168211198807973]


def test_different_seeds_differ():
    drawn = Stream(list(range(1000)), CPU).bits(4)
    assert len(torch.unique(drawn)) == drawn.numel()


def test_uniform_in_the_unit_interval():
    u = Stream(SEEDS, CPU).uniform(100_000)
    assert u.dtype == torch.float32
    assert u.shape == (5, 100_000)
    assert float(u.min()) >= 0
    assert float(u.max()) < 1


def test_moments_and_lag_correlations():
    n = 200_000
    for u in Stream(SEEDS, CPU).uniform(n).double().numpy():
        z = (u - 0.5) * np.sqrt(12)  # mean 0, variance 1, kurtosis 1.8
        assert abs(z.mean()) < 4 / np.sqrt(n)
        assert abs((z**2).mean() - 1) < 4 * np.sqrt(0.8 / n)
        for lag in (1, 2, 3, 7, 64, 256):
            assert abs((z[lag:] * z[:-lag]).mean()) < 4 / np.sqrt(n - lag), lag


def test_streams_of_neighbouring_seeds_are_uncorrelated():
    n = 100_000
    z = (Stream(list(range(6)), CPU).uniform(n).double().numpy() - 0.5) * np.sqrt(12)
    correlations = (z @ z.T / n)[np.triu_indices(6, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(n)


def test_shuffled_rows_are_permutations():
    rows = [torch.arange(10), torch.arange(100, 110), torch.arange(5)]
    stream = Stream([1, 2, 3], CPU)
    mixed = [stream.shuffled(each, t) for t, each in enumerate(rows)]
    for before, after in zip(rows, mixed, strict=True):
        assert torch.equal(torch.sort(after).values, before)
    assert not torch.equal(mixed[0], rows[0])


def test_shuffles_are_uniform():
    """Each element is equally often in each place: 6 elements, 6000 shuffles, expected 1000 in each cell."""
    found = Stream(list(range(6000)), CPU).shuffled_together(
        torch.arange(6).expand(6000, 6), torch.full((6000,), 6), torch.arange(6000)
    )
    for place in range(6):
        counts = torch.bincount(found[:, place], minlength=6).double().numpy()
        assert np.abs(counts - 1000).max() < 4 * np.sqrt(6000 * (1 / 6) * (5 / 6)) + 1


def test_shuffles_do_not_depend_on_neighbours():
    rows = torch.arange(20).expand(3, 20)
    together = Stream([4, 5, 6], CPU).shuffled_together(rows, torch.full((3,), 20), torch.arange(3))
    one_by_one = Stream([4, 5, 6], CPU)
    for t, seed in enumerate([4, 5, 6]):
        assert torch.equal(Stream([seed], CPU).shuffled(rows[0], 0), together[t])
        assert torch.equal(one_by_one.shuffled(rows[t], t), together[t])


def test_a_trial_that_draws_moves_no_other_stream():
    lonely, pair = Stream([8], CPU), Stream([7, 8], CPU)
    pair.shuffled(torch.arange(50), 0)
    assert torch.equal(pair.uniform(4)[1], lonely.uniform(4)[0])


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.75])
def test_kept_is_false_at_the_rate_and_one_by_one_as_together(rate):
    kept = Stream([1, 2], CPU).kept(rate, 3, 20_001)
    assert kept.shape == (2, 3, 20_001) and kept.dtype == torch.bool
    share = 1 - float(kept.double().mean())
    assert abs(share - rate) <= 4 * (rate * (1 - rate) / kept.numel()) ** 0.5
    assert torch.equal(Stream([2], CPU).kept(rate, 3, 20_001)[0], kept[1])
    assert rate == 0 or not torch.equal(kept[0], kept[1])
