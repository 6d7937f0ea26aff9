"""Intervals: each method against what it should be, and against known coverage on small cases."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import cael
from cael import InputError, NeedsError
from cael.inference import intervals as inference
from cael.inference import reach

RNG = np.random.default_rng(0)
Z = RNG.exponential(size=300)


def log_of(rewards, **more):
    n = len(rewards)
    return cael.LoggedData(None, np.arange(n) % 2, rewards, logging=cael.Uniform(2), n_actions=2, **more)


def test_normal_and_t_are_the_textbook_ones():
    se = Z.std(ddof=1) / math.sqrt(len(Z))
    normal, t = inference.interval(Z, 0.9, "normal"), inference.interval(Z, 0.9, "t")
    assert (normal.low, normal.high) == pytest.approx(scipy.stats.norm.interval(0.9, Z.mean(), se))
    assert (t.low, t.high) == pytest.approx(scipy.stats.t.interval(0.9, len(Z) - 1, Z.mean(), se))


def test_bootstrap_intervals_lean_to_the_heavy_side():
    """Exponential contributions are skewed to the right: second-order methods reach further up than down."""
    for method in (inference.studentised, inference.bca):
        found = method(Z, 0.95)
        assert found.high - Z.mean() > Z.mean() - found.low > 0


@given(st.integers(3, 300), st.sampled_from([0.5, 0.9, 0.99]), st.integers(0, 5))
def test_bca_is_that_of_scipy(n, level, seed):
    z = np.random.default_rng(n).exponential(size=n) ** 2
    found = inference.bca(z, level, resamples=300, seed=seed)
    twin = scipy.stats.bootstrap(
        (z,), np.mean, vectorized=True, confidence_level=level, n_resamples=300, rng=np.random.default_rng(seed)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((twin.low, twin.high), rel=1e-12)


def test_bca_refuses_resamples_that_are_all_on_one_side():
    with pytest.raises(InputError, match="all of the 1 resampled means lie on one side"):
        inference.bca(Z, 0.9, resamples=1)


def test_buckets_keep_mean_and_variance():
    z = RNG.exponential(size=123_457)
    grouped = inference.bucketed(z, seed=1)
    assert len(grouped) == inference.BUCKETS
    assert grouped.mean() == pytest.approx(z.mean(), rel=1e-12)
    assert inference.stderr(grouped) == pytest.approx(inference.stderr(z), rel=4 / math.sqrt(2 * len(grouped)))
    assert inference.bucketed(z[:1000], seed=1) is not None
    np.testing.assert_array_equal(inference.bucketed(z[:1000], seed=1), z[:1000])


def test_the_bootstrap_on_buckets_is_the_bootstrap_on_rows():
    z = RNG.exponential(size=4000) ** 2
    grouped = inference.studentised(z, 0.95, resamples=4000)
    drawn = z[RNG.integers(0, len(z), (2000, len(z)))]
    t = (drawn.mean(axis=1) - z.mean()) / (drawn.std(axis=1, ddof=1) / math.sqrt(len(z)))
    low, high = np.quantile(t, [0.975, 0.025])
    se = inference.stderr(z)
    assert grouped.low == pytest.approx(z.mean() - low * se, abs=0.25 * se)
    assert grouped.high == pytest.approx(z.mean() - high * se, abs=0.25 * se)


def test_bernstein_is_the_formula_with_the_a_priori_range():
    y = RNG.random(50)
    found = inference.bernstein(y, 0.9, (0.0, 3.0))
    half = math.sqrt(2 * y.var(ddof=1) * math.log(40) / 50) + 7 * 3 * math.log(40) / (3 * 49)
    assert found.low == pytest.approx(max(0, y.mean() - half))
    assert found.high == pytest.approx(min(3, y.mean() + half))


def slow_betting_excludes(y, m, alpha):
    """The capital process of Waudby-Smith and Ramdas, unit by unit, for the value m."""
    n, mean_sum, var_sum, up, down = len(y), 0.5, 0.25, 1.0, 1.0
    top = 1.0
    for i, yi in enumerate(y, start=1):
        stake = math.sqrt(2 * math.log(2 / alpha) / (n * (var_sum / i)))
        up *= 1 + min(stake, 0.5 / m if m > 0 else math.inf) * (yi - m)
        down *= 1 - min(stake, 0.5 / (1 - m) if m < 1 else math.inf) * (yi - m)
        top = max(top, up, down)
        mean_sum += yi
        var_sum += (yi - mean_sum / (i + 1)) ** 2
    return top >= 2 / alpha


@given(st.integers(0, 10**6), st.floats(0.05, 0.95), st.integers(20, 120))
def test_betting_is_the_capital_process(seed, p, n):
    y = (np.random.default_rng(seed).random(n) < p).astype(float)
    found = inference.betting(y, 0.9, (0.0, 1.0), seed=seed)
    order = np.random.default_rng(seed).permutation(y)
    step = 1e-6
    for inside in (found.low + step, found.high - step):
        if 0 < inside < 1 and abs(inside - y.mean()) > 2 * step:
            assert not slow_betting_excludes(order, inside, 0.1)
    for outside in (found.low - step, found.high + step):
        if 0 < outside < 1 and abs(outside - y.mean()) > 2 * step:
            assert slow_betting_excludes(order, outside, 0.1)


def test_an_interval_holds_its_own_estimate():
    """This sample's capital process excludes the mean of the units from above; the interval is widened to hold it."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 2000)
    r = (rng.random(2000) < 0.1 + 0.05 * a).astype(float)
    found = cael.IPS().estimate(cael.LoggedData(None, a, r, logging=cael.Uniform(4)), [0.1, 0.2, 0.3, 0.4])
    assert found.value in found.interval(method="betting", reward_range=(0, 1))


def test_betting_is_tighter_than_bernstein_and_both_hold_the_mean():
    y = RNG.beta(2, 20, size=400)
    bet, bernstein = inference.betting(y, 0.95, (0, 1)), inference.bernstein(y, 0.95, (0, 1))
    assert bet.width < bernstein.width
    assert y.mean() in bet
    assert y.mean() in bernstein


def test_the_range_is_never_taken_from_the_sample():
    log = log_of(RNG.random(40))
    ips = cael.IPS().estimate(log, cael.Uniform(2))
    with pytest.raises(InputError, match="reward_range"):
        ips.interval(method="betting")
    free = cael.LoggedData(None, np.arange(40) % 2, RNG.random(40), np.full(40, 0.5))
    with pytest.raises(InputError, match="largest possible weight is not known beforehand"):
        cael.IPS().estimate(free, cael.Uniform(2)).interval(method="bernstein", reward_range=(0, 1))
    stated = cael.IPS().estimate(free, cael.Uniform(2))
    assert stated.interval(method="bernstein", reward_range=(0, 1), max_weight=2.0).width > 0
    with pytest.raises(InputError, match="outside the a-priori range"):
        stated.interval(method="betting", reward_range=(0, 0.1), max_weight=1.0)
    with pytest.raises(InputError, match="low < high"):
        stated.interval(method="betting", reward_range=(1, 0), max_weight=1.0)


def test_policies_supply_the_largest_weight():
    log = cael.LoggedData(None, [0, 1, 2, 3] * 5, RNG.random(20), logging=cael.Uniform(4))
    greedy, tabular = cael.EpsilonGreedy([0.0, 0.0, 1.0, 0.0], epsilon=0.2), cael.Tabular([0.1, 0.2, 0.3, 0.4])
    for policy, clip, most in ((greedy, None, 4.0), (tabular, None, 1.6), (tabular, 1.2, 1.2)):
        assert cael.IPS(clip=clip).estimate(log, policy).score_range.max_weight == pytest.approx(most)
    assert cael.IPS(clip=1.2).solve(cael.Problem(log, tabular)).score_range.max_weight == pytest.approx(1.2)


@pytest.mark.parametrize(
    "estimator", [cael.SNIPS(), cael.SNDR(), cael.DR(), cael.DM(), cael.SLOPE([cael.IPS(), cael.IPS(clip=1)])]
)
def test_no_guarantee_where_there_is_none(estimator, log, policy):
    with pytest.raises(NeedsError, match="independent contributions with a known range"):
        estimator.estimate(log, policy).interval(method="betting", reward_range=(0, 1))


def test_dr_with_injected_predictions_has_a_range():
    log = log_of(RNG.random(60))
    found = cael.DR(cael.FixedOutcome([0.4, 0.6])).estimate(log, cael.Uniform(2))
    assert found.interval(method="bernstein", reward_range=(0, 1)).low <= found.value


EXACT = tuple(method for method in inference.METHODS if method not in ("steadied", "bias_aware"))


@pytest.mark.parametrize("method", EXACT)
def test_clusters_widen_what_rows_hide(method):
    """Every row copied four times, the copies in one cluster: the same interval as without the copies."""
    rewards = RNG.random(150)
    plain = cael.IPS().estimate(log_of(rewards), cael.Uniform(2))
    n = len(rewards)
    copied = cael.LoggedData(
        None, np.tile(np.arange(n) % 2, 4), np.tile(rewards, 4), logging=cael.Uniform(2), n_actions=2,
        clusters=np.tile(np.arange(n), 4),
    )  # fmt: skip
    grouped = cael.IPS().estimate(copied, cael.Uniform(2))
    kwargs = {"reward_range": (0, 1)} if method in ("bernstein", "betting") else {}
    a, b = plain.interval(method=method, **kwargs), grouped.interval(method=method, **kwargs)
    assert (b.low, b.high) == pytest.approx((a.low, a.high), rel=1e-9)
    assert grouped.stderr == pytest.approx(plain.stderr)


def test_an_interval_is_longer_on_the_side_of_the_long_tail():
    """By the first term of the Edgeworth expansion; of rewards that are turned round it is the mirror image."""
    rewards = np.random.default_rng(3).exponential(size=80) ** 2
    log, turned = (cael.LoggedData(None, np.arange(80) % 2, r, logging=cael.Uniform(2)) for r in (rewards, -rewards))
    policy, factor = cael.Tabular([0.4, 0.6]), float(scipy.stats.norm.ppf(0.975))
    found, mirrored = (cael.SNIPS().estimate(data, policy) for data in (log, turned))
    below, above = found.reach(factor)
    centred = found.contributions - found.value
    skew = (centred**3).mean() / (centred**2).mean() ** 1.5 / np.sqrt(80)
    assert skew > 0
    assert found.skew == pytest.approx(skew)
    assert below == pytest.approx(factor * found.error)
    assert above == pytest.approx(below + min(skew, 0.25) * (2 * factor**2 + 1) / 6 * found.error)
    assert mirrored.reach(factor) == pytest.approx((above, below))
    assert reach.lacking(9.0, 30, factor) == reach.lacking(0.25, 30, factor) > 0 == reach.lacking(0.25, 29, factor)


def test_of_skewed_amounts_it_covers_more_than_the_normal_one():
    """300 samples of 100 amounts of which nine in ten are 0."""
    rng, rows = np.random.default_rng(0), 300
    misses = {"normal": 0, None: 0}
    truth = 0.1 * np.exp(0.5)
    for _ in range(rows):
        rewards = np.where(rng.random(100) < 0.1, np.exp(rng.normal(size=100)), 0.0)
        found = cael.LoggedMean().estimate(cael.LoggedData(None, np.zeros(100, int), rewards), cael.Uniform(1))
        for method in misses:
            interval = found.interval(method=method)
            misses[method] += not interval.low <= truth <= interval.high
    assert misses[None] < 0.75 * misses["normal"]


def test_few_clusters_have_the_quantiles_of_student():
    rewards = RNG.random(60) + np.repeat(RNG.random(4), 15)
    few = cael.LoggedData(None, np.arange(60) % 2, rewards, logging=cael.Uniform(2), clusters=np.repeat(range(4), 15))
    for estimator in (cael.LoggedMean(), cael.SNIPS(), cael.IPS()):
        found = estimator.estimate(few, cael.Tabular([0.4, 0.6]))
        factor = float(scipy.stats.t.ppf(0.975, 3))
        assert found.interval().width == pytest.approx(2 * factor * found.error)
        assert found.error >= found.stderr
        assert any("only 4 clusters" in warning for warning in found.diagnostics.warnings)
    rows = cael.LoggedData(None, few.actions, rewards, logging=cael.Uniform(2))
    plain = cael.LoggedMean().estimate(rows, cael.Uniform(2))
    longer = abs(reach.lacking(plain.skew, 60, 1.959964))
    assert plain.interval().width == pytest.approx((2 * 1.959964 + longer) * plain.error)  # of rows it is normal
    assert not plain.diagnostics.warnings


def test_constant_contributions_give_a_point():
    log = log_of(np.full(30, 2.0))
    snips = cael.SNIPS().estimate(log, cael.Tabular([0.9, 0.1]))
    for method in ("normal", "t", "studentised", "bca"):
        found = snips.interval(method=method)
        assert found.low == pytest.approx(2.0, abs=1e-12)
        assert found.high == pytest.approx(2.0, abs=1e-12)


def test_bad_options():
    snips = cael.SNIPS().estimate(log_of(RNG.random(9)), cael.Uniform(2))
    with pytest.raises(InputError, match=r"method must be one of 'normal'.*'bias_aware'"):
        snips.interval(method="magic")
    for level in (0, 1, 95):
        with pytest.raises(InputError, match="level must be between 0 and 1"):
            snips.interval(level)
    with pytest.raises(InputError, match="resamples"):
        snips.interval(method="bca", resamples=0)


def test_max_t_is_between_one_interval_and_bonferroni():
    columns = RNG.standard_normal((800, 5))
    factor = inference.max_t(columns, 0.95, resamples=20_000)
    assert scipy.stats.norm.ppf(0.975) < factor < scipy.stats.norm.ppf(1 - 0.025 / 5) + 0.05
    same = inference.max_t(np.repeat(columns[:, :1], 5, axis=1), 0.95, resamples=20_000)
    assert same == pytest.approx(scipy.stats.norm.ppf(0.975), abs=0.05)


def test_max_t_counts_columns_whose_noise_the_units_do_not_show():
    """An arm without a success has no variance, and might have had one: nine of ten columns without spread."""
    columns = np.zeros((800, 10))
    columns[:, 0] = RNG.standard_normal(800)
    hidden = np.append(0.0, np.ones(9))
    assert inference.max_t(columns, 0.95, resamples=20_000) == pytest.approx(scipy.stats.norm.ppf(0.975), abs=0.05)
    independent = scipy.stats.norm.ppf((1 + 0.95 ** (1 / 10)) / 2)
    assert inference.max_t(columns, 0.95, hidden=hidden, resamples=20_000) == pytest.approx(independent, abs=0.05)
    same = np.repeat(columns[:, :1], 10, axis=1)
    half = inference.max_t(same, 0.95, hidden=np.full(10, 0.5), resamples=20_000)
    assert scipy.stats.norm.ppf(0.975) + 0.2 < half < independent - 0.02
    assert inference.hidden_share(0.6, 1.0) == pytest.approx(0.64)
    assert inference.hidden_share(1.0, 1.0) == inference.hidden_share(0.0, 0.0) == 0


def test_seeds_make_the_bootstrap_repeatable():
    snips = cael.SNIPS().estimate(log_of(RNG.random(50)), cael.Tabular([0.7, 0.3]))
    for method in ("studentised", "bca"):
        assert snips.interval(method=method, seed=3) == snips.interval(method=method, seed=3)
        assert snips.interval(method=method, seed=3) != snips.interval(method=method, seed=4)


def cover(ratio, bias, factor):
    """P(|Z + bias| <= factor) for a standard normal Z, all in standard errors."""
    assert abs(bias) <= ratio
    return scipy.stats.norm.cdf(factor - bias) - scipy.stats.norm.cdf(-factor - bias)


LEVELS = st.floats(0.5, 0.999)


@given(st.floats(-5, 5), st.floats(1e-3, 10), LEVELS)
def test_bias_aware_without_bias_is_the_interval_without_bias(value, error, level):
    found = inference.bias_aware(value, error, 0.0, level)
    assert (found.low, found.high) == pytest.approx(scipy.stats.norm.interval(level, value, error), rel=1e-7, abs=1e-9)


@given(st.floats(0, 100), LEVELS, st.floats(0, 1))
def test_bias_aware_covers_exactly_at_the_worst_bias_and_more_at_a_smaller_one(ratio, level, share):
    factor = inference.bias_aware(0.0, 1.0, ratio, level).high
    assert cover(ratio, ratio, factor) == pytest.approx(level, abs=1e-6)
    assert cover(ratio, -ratio, factor) == pytest.approx(level, abs=1e-6)
    assert cover(ratio, share * ratio, factor) >= level - 1e-6


@given(st.floats(0, 60), st.floats(1e-3, 10), LEVELS)
def test_bias_aware_widens_with_the_bound_and_with_the_level(ratio, more, level):
    found = inference.bias_aware(0.0, 1.0, ratio, level)
    assert inference.bias_aware(0.0, 1.0, ratio + more, level).high > found.high
    assert inference.bias_aware(0.0, 1.0, ratio, level + (1 - level) / 2).high > found.high
    assert max(ratio, scipy.stats.norm.ppf(0.5 + level / 2)) - 1e-7 <= found.high
    assert found.high <= ratio + scipy.stats.norm.ppf(0.5 + level / 2) + 1e-7  # the sum is always enough


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_bias_aware_has_no_jump_where_the_formula_changes(level):
    below, above = (inference.bias_aware(0.0, 1.0, ratio, level).high for ratio in (30 - 1e-9, 30.0))
    assert above == pytest.approx(below, abs=1e-7)


def test_bias_aware_without_noise_is_the_bound():
    found = inference.bias_aware(2.0, 0.0, 0.5, 0.95)
    assert (found.low, found.high) == (1.5, 2.5)


def biased(**known):
    """An estimate whose diagnostics say this."""
    found = cael.SNIPS().estimate(log_of(RNG.random(80)), cael.Tabular([0.7, 0.3]))
    return dataclasses.replace(found, diagnostics=dataclasses.replace(found.diagnostics, **known))


def test_bias_aware_needs_a_bound():
    snips = biased()
    with pytest.raises(NeedsError, match=r"needs an allowance for a bias.*SNIPS has 'steadied'"):
        snips.interval(method="bias_aware")
    assert snips.to_dict()["interval_without_bias"] is None
    assert biased(bias_bound=0.0).to_dict()["interval_without_bias"] is None
    for level in (0, 1, 95):
        with pytest.raises(InputError, match="level must be between 0 and 1"):
            biased(bias_bound=0.1).interval(level, "bias_aware")


def test_bias_aware_takes_the_bound_and_the_larger_error():
    plain = biased(bias_bound=0.02, stderr_floor=None)
    se = plain.stderr

    def expected(error, level=0.95):
        return inference.bias_aware(plain.value, error, 0.02, level).width

    assert plain.interval(method="bias_aware").width == pytest.approx(expected(se))
    low = dataclasses.replace(plain, diagnostics=dataclasses.replace(plain.diagnostics, stderr_floor=se / 2))
    factor = scipy.stats.norm.ppf(0.975)
    longer = abs(reach.lacking(plain.skew, plain.independent, factor))  # where there is a floor
    assert low.interval(method="bias_aware").width == pytest.approx(expected(se) + longer * se)
    high = dataclasses.replace(plain, diagnostics=dataclasses.replace(plain.diagnostics, stderr_floor=2 * se))
    assert high.interval(method="bias_aware").width == pytest.approx(expected(2 * se) + longer * 2 * se)
    found = plain.interval(0.9, "bias_aware")
    assert found.width == pytest.approx(expected(se, 0.9))
    assert (found.level, found.method) == (0.9, "bias_aware")
    told = plain.to_dict(0.9)
    assert told["interval"] == {"low": found.low, "high": found.high, "level": 0.9, "method": "bias_aware"}
    assert told["interval_without_bias"] == plain.interval(0.9, "normal").to_dict()
    assert plain.interval(0.9) == found


def test_the_printed_interval_is_the_one_that_decisions_rest_on():
    plain, careful = biased(), biased(bias_bound=0.02)
    assert plain.interval() == plain.interval(method="steadied")
    assert biased(stderr_floor=2 * plain.stderr).interval().width > plain.interval(method="normal").width
    assert f'95% interval</td><td style="text-align:left">{plain.interval()}' in plain._repr_html_()
    assert f"(bias-aware 95% {careful.interval()})" in repr(careful)
    assert dict(careful.facts())["bias-aware 95% interval"] == str(careful.interval())
    assert str(careful.interval(method="normal")) not in repr(careful) + careful._repr_html_()


def test_bounds_of_a_contrast_add_and_its_choices_multiply():
    a = biased(bias_bound=0.02, stderr_floor=0.3, choices=3)
    b = dataclasses.replace(
        a, diagnostics=dataclasses.replace(a.diagnostics, bias_bound=0.05, stderr_floor=0.4, choices=2)
    )
    told = (a - b).diagnostics
    assert told.bias_bound == pytest.approx(0.07)
    assert told.stderr_floor == pytest.approx(0.1)  # one and the same sample: the errors are wholly correlated
    assert told.choices == 6  # each pair of candidates could have been the one
    silent = dataclasses.replace(b, diagnostics=dataclasses.replace(b.diagnostics, bias_bound=None))
    assert (a - silent).diagnostics.bias_bound is None


def skewed(seed, n=60, k=10):
    """A log of skewed rewards, and a policy that prefers the first arm; its value."""
    rng = np.random.default_rng(seed)
    a, q = rng.integers(0, k, n), np.linspace(1, 3, k)
    policy = np.r_[0.8, np.full(k - 1, 0.2 / (k - 1))]
    return cael.LoggedData(None, a, rng.exponential(q[a]), np.full(n, 1 / k), n_actions=k), policy, float(policy @ q)


@pytest.mark.parametrize("method", ["studentised", "bca"])
def test_bootstraps_of_a_ratio_resample_both_of_its_parts(method):
    """With few rows the linear form has too little coverage; resampled, numerator and denominator move together."""
    together, linear = [], []
    for seed in range(120):
        log, policy, truth = skewed(seed)
        found = cael.SNIPS().estimate(log, policy)
        together.append(truth in found.interval(method=method, resamples=399))
        linear.append(truth in dataclasses.replace(found, ratio=None).interval(method=method, resamples=399))
    assert np.mean(together) > np.mean(linear) + 0.03
    assert np.mean(together) > 0.85


@pytest.mark.parametrize("method", ["studentised", "bca"])
def test_equal_weights_make_the_bootstrap_of_a_ratio_that_of_a_mean(method):
    log = log_of(RNG.random(80))
    ratio, mean = cael.SNIPS().estimate(log, cael.Uniform(2)), cael.LoggedMean().estimate(log, cael.Uniform(2))
    assert ratio.ratio is not None
    assert mean.ratio is None
    a, b = ratio.interval(method=method), mean.interval(method=method)
    assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-9)


def test_the_parts_of_a_ratio_make_its_contributions():
    log, policy, _ = skewed(0)
    for estimator in (cael.SNIPS(), cael.SNDR()):
        found = estimator.estimate(log, policy)
        ratios = found.ratios
        np.testing.assert_allclose(ratios.influence, found.contributions - found.value, atol=1e-12)
        np.testing.assert_allclose(ratios.denominators.mean(axis=1), 1)
        np.testing.assert_allclose(ratios.numerators.sum(axis=1), 0, atol=1e-9)
        assert ratios.stderr == pytest.approx(found.stderr)
