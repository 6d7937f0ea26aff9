"""Rewards of two values: the interval that decisions rest on lies between them, whatever the estimator."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import ndtri

import cael
from cael.engine.asking import as_engine_log, ask
from cael.estimators.estimator import Estimator, mean_of
from cael.inference.diagnostics import Diagnostics
from cael.inference.ratio import ratio_of
from tests.streaming.logs import write

N, K = 300, 6
BOOSTED = cael.DM(cael.Boosting())
CHOICE = cael.SLOPE([cael.IPS(), cael.IPS(clip=2)])
WIDE = [*cael.panel("all"), BOOSTED, cael.OffCEM("features", 3), CHOICE]
KINDS = {"0/1": (0.0, 1.0, 0.3), "rare": (0.0, 1.0, 0.015), "2/5": (2.0, 5.0, 0.015)}
"""Two rewards, and the share of the larger one."""


def rewards_of(kind):
    low, high, share = KINDS[kind]
    return np.where(np.random.default_rng(5).permutation(N) < share * N, high, low)


def table_of(rewards, rng):
    """A log with these rewards, and a target that goes where few rows are."""
    mu, pi = rng.dirichlet(np.full(K, 1.0), N) * 0.9 + 0.1 / K, rng.dirichlet(np.full(K, 0.3), N)
    actions = np.array([rng.choice(K, p=row) for row in mu])
    x = rng.normal(size=(N, 2))
    return pa.table({
        "action": actions, "reward": rewards, "propensity": mu[np.arange(N), actions], "x_0": x[:, 0], "x_1": x[:, 1],
        "mu": pa.array(list(mu), pa.list_(pa.float64())), "pi": pa.array(list(pi), pa.list_(pa.float64())),
    })  # fmt: skip


ACTIONS = pa.table({"action": np.arange(K), "f_0": np.arange(K) % 3 * 1.0, "f_1": np.arange(K) * 0.1})


def opened(folder, rewards, rng, door):
    write(folder / "log", table_of(rewards, rng), [130])
    return door(folder / "log", {"contexts": ["x_*"]}, actions=ACTIONS, logging="dense:mu")


def estimates_of(folder, rewards, seed, door):
    """Of every estimator, by name."""
    log = opened(folder, rewards, np.random.default_rng(seed), door)
    return {each.estimator: each for each in cael.evaluate(log, "dense:pi", WIDE, learn=False)}


def check_inside(estimate, low, high):
    for level in (0.8, 0.95, 0.999):
        for interval in (estimate.interval(level), estimate.interval(level, estimate.method)):
            assert low <= interval.low <= interval.high <= high, estimate
            assert min(max(estimate.value, low), high) in interval, estimate


@pytest.mark.parametrize("door", [cael.read, cael.scan], ids=["memory", "stream"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_interval_leaves_the_rewards(tmp_path, kind, door):
    """Turned round, too: there the upper end counts."""
    low, high, share = KINDS[kind]
    rewards, reaching = rewards_of(kind), set()
    for turned in (False, True):
        there = low + high - rewards if turned else rewards
        estimates = estimates_of(tmp_path / str(turned), there, 6, door)
        assert {each.name for each in WIDE} <= set(estimates)
        for name, estimate in estimates.items():
            check_inside(estimate, low, high)
            below, above = estimate.reach(3.3)
            if estimate.value - below < low or estimate.value + above > high:
                reaching.add(name)
    if share < 0.1:  # without the cut these would leave
        assert {"DM", "OPERA", "MetaOPE", "OCV"} <= reaching
    if kind == "rare":
        assert BOOSTED.name in reaching


def test_memory_and_stream_are_cut_alike(tmp_path):
    kept, there = (
        estimates_of(tmp_path / door.__name__, rewards_of("rare"), 6, door) for door in (cael.read, cael.scan)
    )
    for name in ("DM", "OPERA", "MetaOPE", "OCV", "SNIPS"):
        assert kept[name].ends == there[name].ends == (0.0, 1.0)
        assert tuple(there[name].interval()) == pytest.approx(tuple(kept[name].interval()), rel=1e-8, abs=1e-10), name


def test_three_rewards_are_not_cut(tmp_path):
    """One row of another reward says that nothing is known of the ends."""
    rewards = rewards_of("rare")
    rewards[0] = 0.5
    estimates = estimates_of(tmp_path, rewards, 6, cael.read)
    assert {each.ends for each in estimates.values()} == {None}
    assert min(each.interval(0.999).low for each in estimates.values()) < 0


def test_a_contrast_and_a_normal_interval_by_name_are_not_cut(tmp_path):
    estimates = estimates_of(tmp_path, rewards_of("rare"), 6, cael.read)
    a, b = estimates["DM"], estimates["SNIPS"]
    for contrast in (a - b, b - a):
        assert contrast.ends is None
        below, above = contrast.reach(float(ndtri(0.975)))
        assert tuple(contrast.interval()) == pytest.approx((contrast.value - below, contrast.value + above))
    assert (a - b).interval().low < 0 or (b - a).interval().low < 0
    assert a.method != "normal" and a.interval(0.999, "normal").low < 0 == a.interval(0.999).low


def test_a_value_beyond_the_rewards_has_an_interval_that_ends_at_them():
    """IPS of weights that are too large: the value is 1.6, and no mean of these rewards is."""
    rewards = np.tile([1.0, 1.0, 1.0, 0.0], 15)
    log = cael.LoggedData(None, np.tile([0, 1], 30), rewards, propensities=np.full(60, 0.25), n_actions=2)
    for estimator in (cael.IPS(), cael.OPERA([cael.IPS(), cael.IPS(clip=3.9)])):
        estimate = estimator.estimate(log, cael.Tabular([0.5, 0.5]))
        assert estimate.value > 1 and 0 <= estimate.interval().low <= estimate.interval().high == 1


@final
@dataclass(frozen=True)
class Whole(Estimator):
    """An estimator of all rows at once, by `mean_of`."""

    needs: ClassVar[tuple[str, ...]] = ()
    panel: ClassVar[str] = ""

    def solve(self, problem):
        log = problem.log
        return mean_of("Whole", problem, log.rewards + np.cos(np.arange(len(log))), Diagnostics(len(log)))


@pytest.mark.parametrize(
    ("rewards", "clusters", "ends"),
    [
        (np.arange(40) % 10 == 0, None, (0.0, 1.0)),
        (np.arange(40) % 3, None, None),
        (np.ones(40), None, None),
        (np.arange(19) % 2, None, None),
        (np.repeat([0.0, 1.0, 1.0, 0.0], 20), np.repeat(np.arange(4), 20), None),
    ],
    ids=["two", "three", "one", "few rows", "few clusters"],
)
def test_what_is_known_of_the_ends(rewards, clusters, ends):
    """Of an estimate of all rows at once, and of one pass; 80 rows in four clusters of one reward are four rows."""
    n = len(rewards)
    log = cael.LoggedData(
        None, np.arange(n) % 2, rewards.astype(float), logging=cael.Uniform(2), n_actions=2, clusters=clusters
    )
    whole, passed = (each.estimate(log, cael.Uniform(2)) for each in (Whole(), cael.LoggedMean()))
    assert whole.ends == passed.ends == ends
    if ends:
        check_inside(whole, *ends)
        assert whole.value - whole.reach(3.3)[0] < 0


def test_a_ratio_of_metrics_is_not_cut():
    """What is divided is 0 or 1, and the ratio is 2."""
    rng = np.random.default_rng(0)
    opens = rng.random(400) < 0.9
    log = cael.LoggedData(None, np.arange(400) % 2, opens.astype(float), logging=cael.Uniform(2), n_actions=2)
    answer = ask(as_engine_log(log), {"": cael.Uniform(2)}, [cael.SNIPS()], asked=("SNIPS",), controls=None)
    top = answer.of("SNIPS", 0)
    bottom = replace(top, value=top.value / 2, contributions=top.contributions / 2, sums=replace(
        top.sums, constant=top.sums.constant / 2, coefficients=top.sums.coefficients / 2))  # fmt: skip
    ratio = ratio_of(top, bottom, "opens per click")
    assert top.ends == (0.0, 1.0) and ratio.ends is None
    assert ratio.value == pytest.approx(2) and ratio.interval().high > 1
