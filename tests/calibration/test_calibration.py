"""Calibration by simulation: bias, standard errors and coverage on worlds with known truth.

Every test states its Monte Carlo error, allows four of it, and has a negative control that must fail.
"""

import math

import numpy as np
import pytest

import cael
from cael.inference import intervals as inference
from cael.worlds import PaperWorld
from tests.calibration.worlds import CoinWorld, GroupWorld

pytestmark = pytest.mark.slow

TRIALS, ROWS = 2000, 1000
WORLD = PaperWorld(n_actions=10, action_dim=1, epsilon=0.5, gamma=0.1)
TRUTH = WORLD.value(WORLD.target)
COIN = CoinWorld()


def simulate(estimators, world=WORLD, policy=None, trials=TRIALS, change=lambda log: log):
    """Estimates by name, one list of `trials` estimates each."""
    policy = world.target if policy is None else policy
    found = {each.name: [] for each in estimators}
    for seed in range(trials):
        problem = cael.Problem(change(world.sample(ROWS, seed)), policy)
        for each in estimators:
            found[each.name].append(each.solve(problem))
    return found


def bias_in_standard_errors(estimates, truth):
    values = np.array([each.value for each in estimates])
    return float((values.mean() - truth) / (values.std(ddof=1) / math.sqrt(len(values))))


def covers(intervals, truth, level=0.95):
    """(coverage, whether it is within four Monte Carlo standard errors of the level)."""
    hit = np.mean([truth in each for each in intervals])
    return float(hit), abs(hit - level) < 4 * math.sqrt(level * (1 - level) / len(intervals))


@pytest.fixture(scope="module")
def paper():
    panel = [cael.IPS(), cael.SNIPS(), cael.BaselineIPS(), cael.DR(), cael.SNDR(), cael.DM(), cael.IPS(clip=1.0)]
    return simulate(panel)


@pytest.mark.parametrize("name", ["IPS", "SNIPS", "BaselineIPS", "DR", "SNDR"])
def test_unbiased(paper, name):
    assert abs(bias_in_standard_errors(paper[name], TRUTH)) < 4


@pytest.mark.parametrize("name", ["DM", "IPS(clip=1)"])
def test_negative_control_biased_estimators_are_seen_as_biased(paper, name):
    assert abs(bias_in_standard_errors(paper[name], TRUTH)) > 4


def test_negative_control_wrong_propensities_are_seen():
    def wrong(log):
        return cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities * 0.9, n_actions=10)

    found = simulate([cael.IPS()], trials=200, change=wrong)
    assert abs(bias_in_standard_errors(found["IPS"], TRUTH)) > 4


@pytest.mark.parametrize("name", ["IPS", "SNIPS", "BaselineIPS", "DR", "SNDR"])
def test_95_percent_intervals_cover(paper, name):
    coverage, good = covers([each.interval() for each in paper[name]], TRUTH)
    assert good, f"{name} covers {coverage:.3f}"


@pytest.mark.parametrize("name", ["IPS", "SNIPS", "BaselineIPS", "DR", "SNDR"])
def test_standard_errors_are_the_spread_of_the_estimates(paper, name):
    """The mean squared standard error equals the variance over trials, within four standard errors of a variance."""
    values = np.array([each.value for each in paper[name]])
    claimed = np.mean([each.stderr**2 for each in paper[name]])
    assert abs(claimed / values.var(ddof=1) - 1) < 4 * math.sqrt(2 / len(values)) + 0.02


def test_negative_control_narrower_intervals_do_not_cover(paper):
    for name in ("IPS", "SNIPS", "DR", "SNDR"):
        short = [inference.Interval(e.value - 1.6 * e.stderr, e.value + 1.6 * e.stderr, 0.95, "") for e in paper[name]]
        assert not covers(short, TRUTH)[1]


def test_negative_control_a_fixed_normaliser_does_not_give_the_interval_of_snips(paper):
    """Peers bootstrap w r / mean(w) as if mean(w) were known: with an offset in the reward that is far too wide."""
    wide, ratio = [], []
    for seed, right in enumerate(paper["SNIPS"]):
        problem = cael.Problem(WORLD.sample(ROWS, seed), WORLD.target)
        w = problem.weights
        naive = inference.interval(w * problem.log.rewards / w.mean(), 0.95, "normal")
        wide.append(naive)
        ratio.append(naive.width / right.interval().width)
    coverage, good = covers(wide, TRUTH)
    assert not good
    assert coverage > 0.99
    assert np.mean(ratio) > 1.5


def test_negative_control_the_direct_method_does_not_cover(paper):
    assert not covers([each.interval() for each in paper["DM"]], TRUTH)[1]


@pytest.mark.parametrize("method", ["t", "studentised", "bca"])
def test_other_methods_cover(paper, method):
    coverage, good = covers([each.interval(method=method, resamples=499) for each in paper["SNIPS"]], TRUTH)
    assert good, f"{method} covers {coverage:.3f}"


@pytest.mark.parametrize("method", ["bernstein", "betting"])
def test_finite_sample_methods_cover_at_least(method):
    """A guarantee is one-sided: coverage may exceed the level and must not fall short of it."""
    truth = COIN.value(COIN.pi)
    found = simulate([cael.IPS()], COIN, cael.Tabular(COIN.pi), trials=1000)["IPS"]
    intervals = [each.interval(method=method, reward_range=(0, 1)) for each in found]
    assert covers(intervals, truth)[0] > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 1000)
    assert np.mean([each.width for each in intervals]) < 0.5  # and says something


def test_negative_control_a_guarantee_from_the_samples_own_range_is_none():
    """Rewards of 0 save once in a hundred rows: bounded by the sample's maximum, the interval collapses and misses."""
    rng = np.random.default_rng(0)
    samples = [(rng.random(100) < 0.01).astype(float) for _ in range(1000)]
    honest = [inference.bernstein(z, 0.95, (0.0, 1.0)) for z in samples]
    false = [inference.bernstein(z, 0.95, (0.0, float(z.max()))) for z in samples]
    assert covers(honest, 0.01)[0] > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 1000)
    assert covers(false, 0.01)[0] < 0.8


class UserWorld:
    """Users of five rows: the same context and action in all of them, and a user effect of standard deviation 2."""

    target = WORLD.target

    def __init__(self, told):
        self.told = told

    def sample(self, n, seed):
        users, rng = n // 5, np.random.default_rng([seed, 79])
        log = WORLD.sample(users, seed)
        of = np.repeat(np.arange(users), 5)
        mean = WORLD.q(log.contexts)[np.arange(users), log.actions] + rng.normal(0, 2, users)
        return cael.LoggedData(
            log.contexts[of], log.actions[of], mean[of] + rng.standard_normal(n), logging=WORLD.logging, n_actions=10,
            clusters=of if self.told else None,
        )  # fmt: skip


def test_clustered_logs_need_clusters():
    told = simulate([cael.SNIPS()], UserWorld(told=True), trials=1000)["SNIPS"]
    untold = simulate([cael.SNIPS()], UserWorld(told=False), trials=1000)["SNIPS"]
    coverage, good = covers([each.interval(method="t") for each in told], TRUTH)
    assert good, f"with clusters {coverage:.3f}"
    assert covers([each.interval(method="t") for each in untold], TRUTH)[0] < 0.8  # negative control


def test_simultaneous_intervals_cover_together():
    policies = {
        "a": cael.Tabular(COIN.pi),
        "b": cael.Tabular([0.2] * 5),
        "c": cael.Tabular([0.1, 0.1, 0.1, 0.1, 0.6]),
        "d": cael.Tabular([0.6, 0.1, 0.1, 0.1, 0.1]),
    }
    base = COIN.value(COIN.mu)
    truth = {name: COIN.value(policy.table) - base for name, policy in policies.items()}
    together, alone = [], []
    for seed in range(1000):
        found = cael.compare(COIN.sample(ROWS, seed), policies, cael.SNIPS())
        together.append(all(truth[row.name] in row.interval for row in found))
        alone.append(all(truth[row.name] in row.lift.interval() for row in found))
    error = math.sqrt(0.95 * 0.05 / 1000)
    assert abs(np.mean(together) - 0.95) < 4 * error
    assert np.mean(alone) < 0.95 - 4 * error  # negative control: separate intervals do not cover together


def test_exact_mips_is_unbiased_without_a_direct_effect_and_steadier_than_ips():
    world = GroupWorld()
    pi = cael.Tabular(world.policies()[1])
    mips = cael.MIPS(world.group, posterior="exact")
    wrong = cael.MIPS(np.arange(world.k) // (world.k // 2), posterior="exact")
    found = simulate([mips, cael.IPS()], world, pi, trials=1000)
    assert abs(bias_in_standard_errors(found[mips.name], world.value())) < 4
    spread = {name: np.std([each.value for each in estimates]) for name, estimates in found.items()}
    assert spread[mips.name] < 0.7 * spread["IPS"]
    biased = simulate([wrong], world, pi, trials=300)[wrong.name]
    assert abs(bias_in_standard_errors(biased, world.value())) > 4  # negative control: the wrong grouping


def test_mean_weight_z_is_standard_normal_when_propensities_are_right(paper):
    z = np.array([each.diagnostics.mean_weight_z for each in paper["IPS"]])
    assert abs(z.mean()) < 4 / math.sqrt(len(z)) + 0.1  # skewed weights shift it a little
    assert abs((np.abs(z) > 1.96).mean() - 0.05) < 4 * math.sqrt(0.05 * 0.95 / len(z))
