"""What is kept of rows merges: in any order, in any grouping, with nothing lost."""

import itertools
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
from cael.engine.asking import ask
from cael.engine.moments import BUCKETS, Combination, buckets_at, grouped, moments_by, products, runs_of, together
from cael.engine.passes import in_order
from cael.engine.tally import Tallying, most_top
from cael.inference import weights as W
from cael.inference.weight_rules import Clip, Raw, Shrink, SubGaussian, Switch
from tests.streaming.logs import K, table, write

arrays = st.lists(st.floats(0, 1e6, allow_nan=False, allow_subnormal=False), min_size=1, max_size=300).map(np.array)


def block_of(features, first):
    width = -(-(first + features.shape[1]) // BUCKETS) * BUCKETS
    block = np.zeros((len(features), width))
    block[:, first : first + features.shape[1]] = features
    return block


@given(n=st.integers(1, 3000), first=st.integers(0, BUCKETS - 1), seed=st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_rows_in_turn_fall_into_the_buckets_of_their_places(n, first, seed):
    features = np.random.default_rng(seed).normal(5, 2, size=(3, n))
    rows, sums = buckets_at(block_of(features, first), first, n)
    slow = moments_by(features, (first + np.arange(n)) % BUCKETS)
    assert np.array_equal(rows, slow.bucket_rows)
    assert np.allclose(sums, slow.bucket_sums, atol=1e-9)


@given(n=st.integers(1, 400), size=st.integers(1, 500), offset=st.sampled_from([0.0, 3.0, 40.0, 1e4, -1e8]))
@settings(max_examples=40, deadline=None)
def test_stretches_of_any_size_make_the_same_whole_and_lose_no_digits_to_an_offset(n, size, offset):
    rng = np.random.default_rng(n)
    features = np.stack([rng.normal(size=n) + offset, rng.normal(size=n), np.full(n, offset)])
    sums = features.sum(axis=1, keepdims=True)
    found = together(runs_of(features, [*range(size, n, size), n], sums), np.array([float(n)]), sums)
    exact = features.astype(np.longdouble)
    centred = exact - exact.mean(axis=1, keepdims=True)
    assert found.n == n
    assert np.allclose(found.mean, exact.mean(axis=1).astype(float), rtol=1e-14, atol=1e-14)
    scale = 1e-12 * n * (1 + abs(offset) * 1e-4)  # the mean itself is known to 16 digits
    assert np.allclose(found.comoment, (centred @ centred.T).astype(float), rtol=1e-11, atol=scale)


@given(st.integers(1, 6), st.integers(0, 9))
@settings(max_examples=15, deadline=None)
def test_products_are_those_of_a_matrix_with_its_transpose(p, seed):
    rows = np.random.default_rng(seed).normal(size=(p, 50))
    assert np.allclose(products(rows), rows @ rows.T)


@given(st.integers(2, 400), st.lists(st.integers(1, 399), max_size=5), st.floats(-1e8, 1e8))
@settings(max_examples=25, deadline=None)
def test_moments_of_parts_merge_into_those_of_the_whole_without_losing_digits(n, cuts, offset):
    rng = np.random.default_rng(n)
    features = rng.normal(size=(2, n)) + offset
    bucket = rng.integers(0, BUCKETS, n)
    ends = sorted({0, n, *(min(cut, n) for cut in cuts)})
    parts = [moments_by(features[:, a:b], bucket[a:b]) for a, b in itertools.pairwise(ends)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    backwards = parts[-1]
    for part in parts[-2::-1]:
        backwards = backwards.merge(part)
    c = np.array([1.0, -0.5])
    z = c @ features
    for each in (merged, backwards):
        found = Combination(0.0, c, each)
        assert found.value == pytest.approx(z.mean(), rel=1e-12, abs=1e-12)
        assert found.stderr == pytest.approx(z.std(ddof=1) / math.sqrt(n), rel=1e-6)
        assert found.buckets.mean() == pytest.approx(z.mean(), rel=1e-12, abs=1e-6)


@given(arrays, st.integers(1, 7), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_a_tally_knows_the_largest_weights_and_counts_all(w, parts, most):
    pieces = np.array_split(w, parts)
    tallies = []
    for each in pieces:
        tallying = Tallying(most)
        for half in np.array_split(each, 2):
            tallying.add(half)
        tallies.append(tallying.done())
    merged = tallies[0]
    for each in tallies[1:]:
        merged = merged.merge(each)
    assert sorted(merged.top) == sorted(np.sort(w)[-most:])
    assert merged.counts.sum() == len(w)
    assert merged.sums.sum() == pytest.approx(w.sum())
    assert merged.zeros == (w == 0).sum()
    assert merged.largest == w.max()


def test_a_weight_of_minus_zero_is_a_weight_of_zero():
    tallying = Tallying(4)
    tallying.add(np.array([-0.0, 0.0, 2.0]))
    found = tallying.done()
    assert (found.zeros, found.counts.tolist(), found.sums.tolist()) == (2, [2, 1], [0.0, 2.0])


def test_the_tail_index_of_a_tally_is_that_of_all_weights():
    w = np.random.default_rng(0).pareto(1.3, 20_000)
    tallying = Tallying(most_top(len(w)))
    for part in np.array_split(w, 13):
        tallying.add(part)
    assert tallying.done().tail_index(len(w)) == pytest.approx(W.tail_index(w), rel=1e-12)
    assert Tallying(10).done().tail_index(0) is None


def test_clusters_are_summed_by_key_however_they_come():
    rng = np.random.default_rng(0)
    keys, sums = rng.integers(0, 20, 300).astype(np.uint64), rng.normal(size=(300, 2))
    whole = grouped(keys, np.ones(300), sums)
    parts = [grouped(keys[at : at + 50], np.ones(50), sums[at : at + 50]) for at in range(0, 300, 50)]
    merged = parts[3]
    for at in (0, 5, 1, 4, 2):
        merged = merged.merge(parts[at])
    assert np.array_equal(whole.keys, merged.keys)
    assert np.array_equal(whole.rows, merged.rows)
    assert np.allclose(whole.sums, merged.sums)


def test_results_are_taken_in_the_order_of_the_tasks():
    assert list(in_order(iter([(2, "c"), (0, "a"), (1, "b")]))) == ["a", "b", "c"]


@pytest.fixture(scope="module")
def partials():
    """The partial results of each task of a log in many files, and how to answer from all."""
    from cael.engine import gathering

    with tempfile.TemporaryDirectory() as folder:
        log = cael.scan(write(Path(folder), table(500, clusters=30), [100, 220, 230, 400], 60), n_actions=K)
        kept = []

        def catch(function, work, log):
            kept.append([function(work, task) for task in log.tasks])
            found = kept[-1][0]
            for each in kept[-1][1:]:
                found = found.merge(each)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gathering, "reduced", catch)
            ask(log, {"": "pi"}, [cael.SNIPS(), cael.IPS(clip=2.0)], segments=("part",))
        yield kept[-1]


@given(st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_partial_results_merge_in_any_order_and_grouping(partials, random):
    def fields(partial):
        return {
            "rows": partial.rows, "mean": partial.moments.mean, "comoment": partial.moments.comoment,
            "sums": partial.moments.bucket_sums, "actions": partial.actions.inverse, "mass": partial.masses[0],
            "top": np.sort(partial.tallies[0].top), "counts": partial.tallies[0].counts,
            "changed": partial.changed[-1].rows, "clusters": partial.clusters.sums,
            "segment": partial.segments[0]["north"].mean, "read": [partial.read[at] for at in sorted(partial.read)],
            "stretches": [each.place for each in partial.stretches], "low": [each.low for each in partial.ranges],
        }  # fmt: skip

    straight = partials[0]
    for each in partials[1:]:
        straight = straight.merge(each)
    left = list(partials)
    random.shuffle(left)
    while len(left) > 1:
        at = random.randrange(len(left) - 1)
        left[at : at + 2] = [left[at].merge(left[at + 1])]
    for name, value in fields(straight).items():
        assert np.allclose(value, fields(left[0])[name], atol=1e-10), name


def test_rules_are_what_they_say():
    w, mu = np.array([0.5, 1.0, 4.0]), np.array([0.2, 0.1, 0.05])
    assert Raw()(w, mu) is w
    assert np.array_equal(Clip(2.0)(w, mu), [0.5, 1.0, 2.0])
    assert np.array_equal(Switch(2.0)(w, mu), [0.5, 1.0, 0.0])
    assert np.allclose(Shrink(3.0)(w, mu), [3 * x / (x * x + 3) for x in w], rtol=1e-15)
    assert np.array_equal(Shrink(np.inf)(w, mu), w)
    assert np.allclose(SubGaussian(0.2)(w, mu), [x / (0.8 + 0.2 * x) for x in w], rtol=1e-15)
    for rule in (Clip(2.0), Switch(2.0), Shrink(3.0), SubGaussian(0.2)):
        assert rule(np.geomspace(1e-3, 1e6, 2000), np.ones(2000)).max() <= rule.ceiling * (1 + 1e-12)
