"""The interval of a blend is never wider than that of its unbiased end: values and lifts, at every level."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

import cael
from cael.inference.reach import ASSUMPTION, no_wider
from cael.inference.shares import relative_interval
from cael.report.method import method_of
from cael.results.lifts import Lifted
from cael.testing import example
from cael.worlds import MixedWorld
from cael.worlds.mixed import Play
from tests.streaming.test_one_verdict import as_table, both

LEVELS = (0.1, 0.5, 0.8, 0.95, 0.999)
TINY = cael.CAEL(growth=cael.Growth(steps=20, hidden=8, penalties=(1.5,), restarts=1))
AUTO = cael.Auto(cael=TINY)
ROUNDING = 1 + 1e-9
WORLDS = [("heavy", 2), ("counts", 2), ("clicks", 3)]
"""Seeds at which the interval of a lift was wider than that of the unbiased end before it was capped."""


def world_and_log(noise, seed):
    world = MixedWorld("sparse", noise, n_actions=6, target_play=Play("greedy", 0.3), population=2000, seed=seed)
    return world, world.sample(600, seed)


def widths(estimate):
    return np.array([sum(estimate.reach(cael.inference.intervals.quantile(level))) for level in LEVELS])


def never_wider(estimate):
    """That it is nowhere wider than the wider of SNIPS and SNDR, nor than the unbiased end of CAEL."""
    most = np.max([widths(replace(other, unbiased=())) for other in estimate.unbiased], axis=0)
    assert (widths(estimate) <= ROUNDING * most).all()
    assert (widths(estimate) <= ROUNDING * widths(end_of(estimate))).all()


def end_of(estimate):
    """The unbiased end of CAEL, which the candidates of Auto know."""
    ends = [end for other in estimate.unbiased for end in other.unbiased]
    assert len(ends) == 2  # SNIPS and SNDR
    return ends[0]


def was_capped(estimate):
    return (widths(replace(estimate, unbiased=())) > 1.001 * widths(end_of(estimate))).any()


@pytest.mark.parametrize(("noise", "seed"), WORLDS)
def test_in_memory_and_streamed(tmp_path, noise, seed):
    world, log = world_and_log(noise, seed)
    pq.write_table(as_table(log, world.target), tmp_path / "log.parquet")
    for given in both(tmp_path / "log.parquet", as_table(log, world.target), log.n_actions):
        found = cael.evaluate(given, "pi", AUTO, headline=AUTO.name)
        never_wider(found.best)
        never_wider(found.lift)
        assert was_capped(found.lift)  # or this test could not fail
        assert found.lift_interval.width == pytest.approx(sum(found.lift.reach(1.959964)), rel=1e-6)


def test_cael_alone_knows_its_unbiased_end():
    world, log = world_and_log("heavy", 2)
    found = TINY.estimate(log, world.target)
    (end,) = found.unbiased
    assert (widths(found) <= ROUNDING * widths(end)).all()
    assert (widths(replace(found, unbiased=())) > widths(end)).any()
    sharp = cael.CAEL(growth=TINY.growth, selector=0.0).estimate(log, world.target)
    snips = cael.SNIPS().estimate(log, world.target)
    assert any(end.value == pytest.approx(one.value, rel=1e-9) for one in (sharp, snips))


def test_the_relative_interval_still_says_what_the_lift_says():
    """Fieller's interval goes through `moved`, which takes the unbiased ends along."""
    world, log = world_and_log("counts", 2)
    found = cael.evaluate(log, world.target, AUTO, headline=AUTO.name)
    lifted = Lifted(found.best, found.baseline, found.controls)
    capped = relative_interval(lifted.lift, lifted.baseline, 1.959964, 0.95)
    free = relative_interval(replace(lifted.lift, unbiased=()), lifted.baseline, 1.959964, 0.95)
    assert capped.width < free.width and capped.low > free.low


def test_every_surface_says_what_the_interval_assumes():
    """Once, and in the same words; nothing is said where the interval allows for no bias."""
    world, log = world_and_log("heavy", 2)
    labels = np.arange(len(log)) % 2
    found = cael.evaluate(log, world.target, AUTO, headline=AUTO.name)
    results = [
        found, found.best, cael.compare(log, {"a": world.target, "b": cael.Uniform(6)}, AUTO),
        cael.segments(log, world.target, labels, estimator=AUTO),
    ]  # fmt: skip
    for result in results:
        for text in (result.sheet().markdown(), result.sheet().html(), json.dumps(result.to_dict())):
            assert ASSUMPTION in text, type(result)
    assert [ASSUMPTION in sentence for sentence in method_of(found)[1]].count(True) == 1
    for result in (found["SNDR"], cael.segments(log, world.target, labels, estimator=cael.SNDR())):
        assert ASSUMPTION not in json.dumps(result.to_dict())


def test_what_makes_no_blend_knows_none():
    log, policy = example()
    for estimator in (cael.SNDR(), cael.SNIPS(), cael.Auto(learn=False)):
        assert estimator.estimate(log, policy).unbiased == ()
    at_the_end = cael.CAEL(growth=TINY.growth, selector=0.0).estimate(log, policy)
    assert at_the_end.unbiased == ()


def test_both_sides_are_shortened_alike():
    assert no_wider((1.0, 3.0), [(1.0, 1.0), (0.5, 0.5)]) == (0.5, 1.5)
    assert no_wider((1.0, 3.0), [(3.0, 2.0)]) == no_wider((1.0, 3.0), []) == (1.0, 3.0)


def test_a_lift_of_one_blend_over_another_knows_the_ends_of_both():
    """Pairs of one kind: an end stands beside an end."""
    world, log = world_and_log("counts", 2)
    a, b = (TINY.estimate(log, policy) for policy in (world.target, cael.Uniform(6)))
    (end,) = (a - b).unbiased
    mine, other = a.unbiased or (a,), b.unbiased or (b,)
    assert end.value == pytest.approx(mine[0].value - other[0].value)
    assert (widths(a - b) <= ROUNDING * widths(end)).all()
