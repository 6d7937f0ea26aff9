"""Numbers that nothing else would miss: thresholds, plans, audits and tables against what they are by hand.

`make mutants` changes the source in small ways; these tests are the ones that then fail.
"""

import dataclasses
import html
import json
import math
import re

import numpy as np
import pytest
from scipy import stats

import cael
from cael import Thresholds
from cael.cli import main
from cael.embedding.exact import codes
from cael.engine.asking import as_engine_log, ask
from cael.engine.columns import Reward, Weight
from cael.engine.ids import ids_of
from cael.engine.score import Score
from cael.estimators.marginal import encoder
from cael.estimators.selection import slope
from cael.inference.diagnostics import Diagnostics, TrainingFacts, doubts
from cael.inference.intervals import Interval
from cael.inference.score_range import ScoreRange
from cael.inference.shrinkage import cochran, shrink
from cael.inference.weights import tail_index
from cael.judging.checks import beyond_chance, hidden
from cael.judging.judge import judge
from cael.log.keys import folds_of_keys, mixed, parts_of_keys
from cael.results.calibration import Calibration, CalibrationRow, plant
from cael.results.lifts import within
from cael.results.sheet import number, text_of
from tests.streaming.logs import K, table, write

MU, PI, Q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.3, 0.25, 0.25, 0.2]), np.array([0.0, 0.2, 0.4, 0.8])


def rng():
    return np.random.default_rng(0)


def exact_log(mu=MU, q=Q, n=1000, **changes):
    """Every action as often as its propensity says, and rewards of 1 + q(a) +- 1, as many above as below."""
    actions = np.repeat(np.arange(len(mu)), np.round(mu * n).astype(int))
    rewards = 1 + q[actions] + np.where(np.arange(n) % 2, 1.0, -1.0)
    return cael.LoggedData(None, actions, rewards, n_actions=len(mu), **{"logging": mu, **changes})


LOG = exact_log()
ANSWER = ask(as_engine_log(LOG), {"": PI}, [cael.SNIPS(), cael.LoggedMean()])
SNIPS = ANSWER.of("SNIPS", 0)
W = (PI / MU)[LOG.actions]


def check(checks, name):
    return next(each for each in checks if each.name == name)


def verdict_with(estimate, *others):
    return judge(ANSWER, 0, [estimate, *others], estimate.estimator).checks


def with_diagnostics(**facts):
    return dataclasses.replace(SNIPS, diagnostics=dataclasses.replace(SNIPS.diagnostics, **facts))


# The verdict


HALF = SNIPS.interval(method="normal").width / 2


@pytest.mark.parametrize(
    ("name", "facts", "edges"),
    [
        ("effective_rows", lambda v: {"effective_sample_size": v}, (100.5, 99.5, 20.5, 19.5)),
        ("largest_share", lambda v: {"max_weight": 2 * v * 1000, "mean_weight": 2.0}, (0.099, 0.101, 0.299, 0.301)),
        ("mean_weight", lambda v: {"mean_weight_z": v}, (2.9, 3.1, 4.9, 5.1)),
        ("mean_weight", lambda v: {"mean_weight_z": -v}, (2.9, 3.1, 4.9, 5.1)),
        ("support", lambda v: {"unsupported_mass": v}, (0.0099, 0.0101, 0.099, 0.101)),
    ],
)
def test_where_the_checks_of_the_weights_turn(name, facts, edges):
    statuses = [check(verdict_with(with_diagnostics(**facts(value))), name).status for value in edges]
    assert statuses == ["pass", "warn", "warn", "fail"]


def test_where_the_tail_index_turns():
    """Only logged propensities, none of which is a floor that the weights reach."""
    log = cael.LoggedData(None, LOG.actions, LOG.rewards, rng().random(1000), n_actions=len(MU))
    answer = ask(as_engine_log(log), {"": PI}, [cael.SNIPS()])
    snips = answer.of("SNIPS", 0)
    statuses = []
    for index in (0.69, 0.71, 0.99, 1.01):
        told = dataclasses.replace(snips, diagnostics=dataclasses.replace(snips.diagnostics, tail_index=index))
        statuses.append(check(judge(answer, 0, [told], "SNIPS").checks, "tail_index").status)
    assert statuses == ["pass", "warn", "warn", "fail"]


@pytest.mark.parametrize(("size", "status"), [(1.9, "pass"), (2.1, "warn"), (4.9, "warn"), (5.1, "fail")])
def test_where_the_rows_hide_large_weights(size, status):
    """By both policies the log is worth n / E w^2 rows; the rows show `size` times as many."""
    found = hidden(1000 / float(PI**2 @ (1 / MU)) * size, 1000 / float(PI**2 @ (1 / MU)), cael.Thresholds())
    assert (found.status, found.value) == (status, pytest.approx(size))


def test_effective_rows_are_no_more_than_both_policies_allow():
    """Of the rare action, which the target always plays, two thirds of the rows are missing."""
    mu, n = np.array([0.03, 0.97]), 1000
    actions = (np.arange(n) >= 30).astype(int)
    log = cael.LoggedData(None, actions, np.sin(np.arange(n)), logging=mu)
    few = cael.LoggedData(None, actions[20:], np.sin(np.arange(n - 20)), logging=mu)
    sizes = [check(evaluated(each, [0.5, 0.5]), "effective_rows").value for each in (log, few)]
    known = 1 / (0.25 / 0.03 + 0.25 / 0.97)
    assert sizes == pytest.approx([1000 * known, 980 * known])


@pytest.mark.parametrize(("times", "status"), [(2.9, "pass"), (3.1, "warn"), (1e6, "warn")])
def test_where_the_allowance_for_a_bias_turns(times, status):
    """In half-widths of the interval that decisions rest on, without its allowance."""
    raised = with_diagnostics(bias_bound=times * SNIPS.interval().width / 2 * 1.7, stderr_floor=1.7 * SNIPS.error)
    assert check(verdict_with(raised), "bias").status == status


def arms_log(first, second, high=1.0):
    """Two arms with 500 rows each, and so many rewards that are `high`; the others are 0."""
    order = np.arange(500)
    rewards = high * np.stack([order < first, order < second], axis=1).ravel()
    return cael.LoggedData(None, np.arange(1000) % 2, rewards, logging=[0.5, 0.5])


@pytest.mark.parametrize(("hits", "status"), [(0, "warn"), (4, "warn"), (6, "pass"), (494, "pass"), (496, "warn")])
def test_where_successes_turn(hits, status):
    """Of the target's arm; the other one has as many, so that both say the same of the variance."""
    for high in (1.0, 3.0):
        found = check(evaluated(arms_log(hits, max(hits, 1), high), [1.0, 0.0], headline="SNIPS"), "successes")
        assert found.status == status
        assert found.value == pytest.approx(min(hits, 500 - hits), abs=0.1)
        assert f"the reward {high if hits < 250 else 0:g} about" in found.sentence


def test_without_two_values_successes_are_not_counted():
    assert "successes" not in [each.name for each in evaluated(LOG, PI)]


def test_actions_without_a_row_count_where_chance_does_not_explain_them():
    """k actions, each with two chances of a row: chance leaves some out. Dropped ones are more than that."""
    counts = np.random.default_rng(0).multinomial(400, np.full(200, 1 / 200)).astype(float)
    assert (counts == 0).sum() > 10
    assert beyond_chance(counts) == 0
    assert beyond_chance(np.r_[counts, np.zeros(100)]) == pytest.approx(100 / ((counts == 0).sum() + 100), abs=0.3)
    assert beyond_chance(np.r_[np.full(50, 20.0), np.zeros(3)]) == 1
    assert beyond_chance(np.full(5, 9.0)) == 0


def test_weights_that_reach_a_ceiling_have_no_tail():
    """Under an epsilon-greedy policy many rows have the smallest propensity, and no weight can be above its inverse."""
    n, draw = 2000, rng()
    greedy = draw.random(n) < 0.9
    actions = np.where(greedy, 0, draw.integers(1, 10, n))
    policy = cael.LoggedOnly(np.where(draw.random(n) < 0.3, 0.9, 0.1))
    for floor, status in ((np.full(n, 0.01), "pass"), (0.01 * draw.random(n) ** 2, "fail")):
        log = cael.LoggedData(None, actions, np.sin(np.arange(n)), np.where(greedy, 0.9, floor), n_actions=10)
        answer = ask(as_engine_log(log), {"": policy}, [cael.SNIPS()])
        snips = answer.of("SNIPS", 0)
        told = dataclasses.replace(snips, diagnostics=dataclasses.replace(snips.diagnostics, tail_index=1.5))
        assert check(judge(answer, 0, [told], "SNIPS").checks, "tail_index").status == status


@pytest.mark.parametrize(("hits", "status"), [(14, "warn"), (18, "pass")])
def test_where_skewness_turns_without_a_raised_standard_error(hits, status):
    """Clicks: 1 in `hits` of 1000 rows has the skewness (1 - 2p) / sqrt(p (1 - p)), about sqrt(n / hits)."""
    z = (np.arange(1000) < hits).astype(float)
    clicks = dataclasses.replace(with_diagnostics(stderr_floor=None), contributions=z, value=z.mean(), sums=None)
    found = check(verdict_with(clicks), "skewness")
    p = hits / 1000
    assert found.value == pytest.approx((1 - 2 * p) / math.sqrt(p * (1 - p)) / math.sqrt(1000))
    assert found.status == status


@pytest.mark.parametrize(("z", "status"), [(3.4, "pass"), (3.6, "warn"), (5.9, "warn"), (6.1, "fail")])
def test_where_disagreement_turns(z, status):
    """The other estimator is z standard errors of the paired difference below this one; a third one agrees."""
    gap = 3 * np.where(np.arange(1000) % 2, 1.0, -1.0)
    gap += z * gap.std(ddof=1) / math.sqrt(1000)
    found = check(disagreeing(gap), "disagreement")
    assert found.value == pytest.approx(z)
    assert found.status == status


def disagreeing(gap):
    """The checks of an estimate without a floor from which another one is `gap` (n,) apart, and a third one is not."""
    bare, values = with_diagnostics(stderr_floor=None), SNIPS.contributions
    return verdict_with(*(
        dataclasses.replace(bare, estimator=name, contributions=part.copy(), value=part.mean(), sums=None)
        for name, part in (("SNDR", values), ("IPS", values - gap), ("DR", values + 0.01 * rng().normal(size=1000)))
    ))  # fmt: skip


@pytest.mark.parametrize(("size", "status"), [(0.49, "pass"), (0.51, "warn"), (0.99, "warn"), (1.01, "fail")])
def test_estimators_that_differ_by_many_standard_errors_and_little_do_not_disagree(size, status):
    """By 100 standard errors of the difference, and by `size` half-widths of the interval."""
    gap = size * HALF * (1 + np.where(np.arange(1000) % 2, 1.0, -1.0) * math.sqrt(999) / 100)
    assert check(disagreeing(gap), "disagreement").status == status


def evaluated(log, policy, **settings):
    return cael.evaluate(log, policy, learn=False, **settings).verdict.checks


def counts_log(counts, logging):
    actions = np.repeat(np.arange(len(counts)), counts)
    return cael.LoggedData(None, actions, np.sin(np.arange(len(actions))), logging=logging)


@pytest.mark.parametrize(("off", "status"), [(0.0049, "pass"), (0.0051, "warn"), (0.0499, "warn"), (0.0501, "fail")])
def test_where_misplaced_rows_turn(off, status):
    n = 200_000
    first = round((0.5 + off) * n)
    found = check(evaluated(counts_log([first, n - first], [0.5, 0.5]), [0.5, 0.5], headline="SNIPS"), "frequencies")
    assert found.status == status
    if status != "pass":
        assert found.value == pytest.approx(off)


@pytest.mark.parametrize(("extra", "off"), [(172, False), (176, True)])
def test_chance_ends_at_one_in_a_thousand_for_all_actions_together(extra, off):
    """Two actions, z = extra / 50: by Holm twice its two-sided p-value is compared with 0.001."""
    assert (2 * 2 * stats.norm.sf(extra / 50) < 0.001) == off
    found = check(evaluated(counts_log([5000 + extra, 5000 - extra], [0.5, 0.5]), [0.5, 0.5]), "frequencies")
    assert (found.status != "pass") == off


@pytest.mark.parametrize(
    ("nats", "status"),
    [(-0.0045, "pass"), (-0.0055, "warn"), (-0.045, "warn"), (-0.055, "fail"), (0.0045, "pass"), (0.0055, "warn")],
)
def test_where_surprise_turns(nats, status):
    """Two kinds of row, each with a likely action: log mu falls by log(p / (1 - p)) where the other one was taken."""
    p, n = 0.998, 100_000
    kind = np.arange(n) % 2
    others = round((1 - p - nats / math.log(p / (1 - p))) * n)
    actions = kind.copy()
    actions[np.linspace(0, n - 1, others).astype(int)] ^= 1
    logging = np.where(kind[:, None] == np.arange(2), p, 1 - p)
    log = cael.LoggedData(None, actions, np.sin(np.arange(n)), logging=logging)
    found = check(evaluated(log, [0.5, 0.5], headline="LoggedMean"), "surprise")
    assert found.value == pytest.approx(nats, rel=0.02)
    assert found.status == status
    assert status == "pass" or ("less" if nats < 0 else "more") in found.sentence
    audit = cael.audit(log)["surprise"]
    assert (audit.status, audit.value) == (status, pytest.approx(found.value, rel=1e-3))


def test_surprise_sees_actions_of_other_rows_that_frequencies_do_not():
    """Two kinds of row, of which a tenth more have each other's actions, so that all counts are right."""
    n = 4000
    kind = np.arange(n) % 2
    p = np.where(kind[:, None] == np.arange(2), 0.9, 0.1)
    actions = np.where((np.arange(n) // 2) % 10 == 0, 1 - kind, kind)
    swapped = np.where((np.arange(n) // 2) % 10 < 2, 1 - kind, kind)
    rewards = rng().normal(size=n)
    for taken, status in ((actions, "pass"), (swapped, "fail")):
        log = cael.LoggedData(kind[:, None].astype(float), taken, rewards, logging=p)
        checks = evaluated(log, p)
        assert check(checks, "surprise").status == status
        assert check(checks, "frequencies").status == "pass"


def test_drift_compares_the_last_fifth_with_the_rest():
    r = rng().normal(size=1000)
    r[800:] += 2
    r[500:800] -= 1
    log = cael.LoggedData(None, np.arange(1000) % 2, r, logging=[0.5, 0.5])
    apart = r[800:].mean() - r[:800].mean()
    found = check(evaluated(log, [0.5, 0.5], headline="LoggedMean"), "drift")
    assert (found.status, found.value) == ("warn", pytest.approx(apart))
    half = cael.LoggedMean().estimate(log, [0.5, 0.5]).interval().width / 2
    assert f"{apart / half:.1f} times" in found.sentence
    assert cael.audit(log)["reward_drift"].value == pytest.approx(apart)


def test_drift_of_the_new_policys_value_alone_is_seen():
    """The reward of each action changes over time, and their sum over the logging policy does not."""
    n = 2000
    a, late = np.arange(n) % 2, np.arange(n) >= 1600
    r = np.where(late, np.where(a == 0, 1.0, -1.0), np.where(a == 0, -0.3, 0.3)) + 0.3 * rng().normal(size=n)
    log = cael.LoggedData(None, a, r, logging=[0.5, 0.5])
    found = check(evaluated(log, [0.9, 0.1]), "drift")
    assert found.status == "warn"
    assert "new policy's value" in found.sentence
    assert check(evaluated(log, [0.5, 0.5]), "drift").status == "pass"


def test_the_checks_of_a_verdict_are_all_there():
    world = cael.worlds.PaperWorld(n_actions=6, gamma=0.3)
    log = world.sample(600, 0)
    both = {
        "evidence", "effective_rows", "largest_share", "skewness", "reward_tail", "tail_index", "mean_weight",
        "support", "disagreement", "frequencies", "action_effect", "drift", "bias",
    }  # fmt: skip
    whole = evaluated(log, world.target, estimators=cael.Auto(learn=False), headline="Auto(learn=False)")
    assert {each.name for each in whole} == both | {"surprise"}
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities, n_actions=6)
    logged = evaluated(bare, world.target, estimators=cael.Auto(learn=False), headline="Auto(learn=False)")
    assert {each.name for each in logged} == both | {"propensity_column"}


@pytest.mark.parametrize(("rows", "status"), [(49, "pass"), (50, "warn")])
def test_an_action_needs_50_rows_to_be_tested(rows, status):
    """Only logged propensities; those of the second action are ten times too large, which the mean weight refuses."""
    n = 600
    actions = (np.arange(n) < rows).astype(int)
    p = np.where(actions == 1, 10 * rows / n, 1 - rows / n)
    p = np.clip(p * (1 + 0.02 * np.sin(np.arange(n))), 0, 1)
    log = cael.LoggedData(None, actions, rng().normal(size=n), p, n_actions=2)
    checks = evaluated(log, [0.5, 0.5], headline="SNIPS")
    assert check(checks, "frequencies").status == status
    assert check(checks, "mean_weight").status == "fail"


def test_weights_that_are_all_alike_must_be_one():
    alike = [with_diagnostics(mean_weight=mean, mean_weight_z=None) for mean in (1.5, 1.0005)]
    assert check(verdict_with(alike[0]), "mean_weight").status == "fail"
    assert "mean_weight" not in {each.name for each in verdict_with(alike[1])}


def test_only_actions_beyond_chance_are_misplaced():
    """800 rows too many, 700 and 100 too few; a hundred rows more or less are chance."""
    found = check(evaluated(counts_log([40_800, 29_900, 29_300], [0.4, 0.3, 0.3]), [0.4, 0.3, 0.3]), "frequencies")
    assert found.value == pytest.approx((800 + 700) / 2 / 100_000)
    assert "2 of 3 actions" in found.sentence


def test_surprise_looks_at_probabilities_relative_to_popularity():
    """The two rare actions are exchanged, and the popular one is more frequent by just as much as hides it."""
    n = 10_000
    counts = [7405, 865, 1730]
    actions = np.concatenate([np.repeat([0, 1, 2], counts), np.repeat([0, 2, 1], counts)])
    p = np.repeat([[0.7, 0.2, 0.1], [0.7, 0.1, 0.2]], n, axis=0)
    own, popular = np.log(p), np.log(p.mean(axis=0))
    rows = np.arange(2 * n)
    plain = own[rows, actions] - (p * own).sum(axis=1)
    assert abs(plain.mean()) < 1e-3
    relative = plain - (popular[actions] - p @ popular)
    mixed_up = rng().permutation(2 * n)
    log = cael.LoggedData(p[mixed_up, 1:2], actions[mixed_up], rng().normal(size=2 * n), logging=p[mixed_up])
    found = check(evaluated(log, [0.5, 0.3, 0.2], headline="LoggedMean"), "surprise")
    assert (found.status, found.value) == ("fail", pytest.approx(relative.mean(), rel=0.01))


def test_means_of_inverse_propensities_and_their_errors():
    """Where only logged propensities are known: 1{a} / mu averages 1, and tells how many rows an action should have."""
    log = cael.worlds.PaperWorld(n_actions=4, gamma=0.2).sample(500, 0)
    wrong = cael.LoggedData(log.contexts, log.actions, log.rewards, 0.9 * log.propensities, n_actions=4)
    z = (wrong.actions[:, None] == np.arange(4)) / wrong.propensities[:, None]
    found = cael.audit(wrong).actions
    expected = {str(a): (wrong.actions == a).sum() / z[:, a].mean() for a in range(4)}
    assert {each.label: each.expected for each in found} == pytest.approx(expected)
    p = 2 * stats.norm.sf(np.abs(z.mean(axis=0) - 1) / (z.std(axis=0, ddof=1) / math.sqrt(500)))
    assert min(each.p_value for each in found) == pytest.approx(4 * p.min())


# Warnings of an estimate


def facts(**changed):
    plain = {"effective_sample_size": 900.0, "max_weight": 5.0, "mean_weight": 1.0, "mean_weight_z": 0.0}
    return Diagnostics(**{"n": 1000, "tail_index": 0.5, "unsupported_mass": 0.0, **plain, **changed})


TRAINED = TrainingFacts(1, {}, False, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, True)


@pytest.mark.parametrize(
    ("silent", "spoken", "part"),
    [
        ({"effective_sample_size": 100.5}, {"effective_sample_size": 99.5}, "about 100 (effective"),
        ({"n": 50_000, "effective_sample_size": 501.0}, {"n": 50_000, "effective_sample_size": 499.0}, "about 499 "),
        ({"max_weight": 99.0}, {"max_weight": 101.0}, "One row carries 10% of all the weight"),
        ({"mean_weight_z": -2.9}, {"mean_weight_z": -3.1}, "-3.1 standard errors"),
        ({"tail_index": 0.69}, {"tail_index": 0.71}, "k = 0.71"),
        ({"unsupported_mass": 0.009}, {"unsupported_mass": 0.011}, "1.1% of the target's probability"),
        ({"training": TRAINED, "mean_weight": 0.81}, {"training": TRAINED, "mean_weight": 0.79}, "is 0.79, far"),
        ({"cross_fitted": True}, {"cross_fitted": False}, "was trained on the rows it predicts"),
    ],
)
def test_where_warnings_begin(silent, spoken, part):
    """The table of the quickstart."""
    assert doubts(facts(**silent), Thresholds()) == ()
    (sentence,) = doubts(facts(**spoken), Thresholds())
    assert part in sentence


def test_diagnostics_are_those_of_the_weights():
    d = SNIPS.diagnostics
    assert d.effective_sample_size == pytest.approx(W.sum() ** 2 / (W**2).sum())
    assert (d.max_weight, d.mean_weight) == (pytest.approx(W.max()), pytest.approx(W.mean()))
    moved = cael.IPS().estimate(exact_log(mu=MU, n=1000), PI[::-1]).diagnostics
    w = (PI[::-1] / MU)[LOG.actions]
    assert moved.mean_weight_z == pytest.approx((w.mean() - 1) / (w.std(ddof=1) / math.sqrt(1000)), abs=1e-9)
    halved = cael.LoggedData(None, LOG.actions, LOG.rewards, LOG.propensities / 2, n_actions=4)
    found = cael.IPS(clip=2.5).estimate(halved, PI).diagnostics
    assert found.mean_weight_z == pytest.approx((2 * W.mean() - 1) / (2 * W.std(ddof=1) / math.sqrt(1000)))
    assert found.clipped_share == pytest.approx((2 * W > 2.5).mean())
    assert found.max_weight == 2.5


def test_a_contrast_has_the_weaker_of_two_diagnostics():
    weak, strong = facts(effective_sample_size=40.0, max_weight=9.0), facts(tail_index=0.9, unsupported_mass=0.3)
    a, b = (dataclasses.replace(SNIPS, diagnostics=each) for each in (weak, strong))
    told = (a - b).diagnostics
    assert (told.effective_sample_size, told.max_weight) == (40.0, 9.0)
    assert (told.tail_index, told.unsupported_mass) == (0.9, 0.3)


# Plans


def by_hand(mu, share):
    """Var of a row's contribution: residuals have variance 1, and (pi - mu)^2 / m adds up over the actions."""
    m = (1 - share) * mu + share / len(mu)
    return lambda pi: math.sqrt(((pi - mu) ** 2 / m).sum())


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_a_plan_is_the_textbook_sample_size(share):
    found = cael.plan(LOG, PI, lift=0.2, relative=False, exploration=[share], outcome=cael.FixedOutcome(1 + Q))
    option = next(each for each in found.options if each.exploration == share)
    factor = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert option.spread == pytest.approx(by_hand(MU, share)(PI))
    assert option.rows == math.ceil((factor * option.spread / 0.2) ** 2)
    assert option.cost == pytest.approx(share * (MU @ Q - Q.mean()))
    assert found.detectable == pytest.approx(factor * by_hand(MU, 0)(PI) / math.sqrt(1000))


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_plan_counts_what_the_old_policy_never_plays(share):
    mu, pi, q = np.array([0.5, 0.5, 0.0]), np.array([0.3, 0.3, 0.4]), np.zeros(3)
    log = exact_log(mu, q)
    found = cael.plan(log, pi, lift=0.2, relative=False, exploration=[share], outcome=cael.FixedOutcome(1 + q))
    assert found.options[1].spread == pytest.approx(by_hand(mu, share)(pi))
    assert found.rows_needed is None
    assert found.options[1].cost is None  # what an action without a row earns is not known
    assert check(found.checks, "support").value == pytest.approx(0.4)


def test_a_plan_without_the_whole_logging_policy():
    """The contribution of compare is q(pi) + w (r - q) - r; without a model, w (r - V) - (r - V)."""
    r, value = LOG.rewards, LOG.rewards.mean()
    bare = cael.LoggedData(None, LOG.actions, r, LOG.propensities, n_actions=4)
    q = 1 + 2 * Q
    z = PI @ q + W * (r - q[LOG.actions]) - r
    assert cael.plan(bare, PI, outcome=cael.FixedOutcome(q)).options[0].spread == pytest.approx(z.std())
    z = (W - 1) * (r - value)
    assert cael.plan(bare, cael.LoggedOnly(PI[LOG.actions])).options[0].spread == pytest.approx(z.std())


def test_the_least_exploration_that_is_enough_and_what_a_plan_says():
    rare = np.array([0.97, 0.01, 0.01, 0.01])
    log = exact_log(rare, Q, 2000)
    shares = [0.01, 0.1, 0.5]
    target = [0.0, 0.0, 0.0, 1.0]
    model = cael.FixedOutcome(1 + Q)
    rows = [o.rows for o in cael.plan(log, target, lift=0.1, relative=False, exploration=shares, outcome=model).options]
    assert rows == sorted(rows, reverse=True)
    settings = {"lift": 0.1, "relative": False, "exploration": shares, "outcome": model}
    assert cael.plan(log, target, rows=rows[2], **settings).enough == 0.1
    assert cael.plan(log, target, rows=rows[2] - 1, **settings).enough == 0.5
    assert cael.plan(log, target, rows=rows[3] - 1, **settings).enough is None
    found = cael.plan(log, target, **settings)
    assert found.more_rows == rows[0] - 2000
    assert check(found.checks, "effective_rows").value == pytest.approx(20)
    assert cael.plan(LOG, PI, lift=0.5).lift == pytest.approx(0.5 * LOG.rewards.mean())


def test_a_lift_in_percent(files, capsys):
    plan = ("plan", files / "sound.npz", "--policy", files / "good.npy", "--format", "json", "--lift")
    assert exit_code(*plan, "5%") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["lift"] == pytest.approx(0.05 * abs(told["baseline"]))
    assert exit_code(*plan, "0.05") == 0
    assert json.loads(capsys.readouterr().out)["lift"] == 0.05


# Calibration


def test_planted_rewards_explain_three_tenths_of_the_variance():
    n = 6000
    x, a = rng().normal(size=(n, 3)), rng().integers(0, 4, n)
    log = cael.LoggedData(x, a, 5 + 2 * rng().normal(size=n), logging=cael.Uniform(4))
    planted, _ = plant(log, cael.Uniform(4), "additive", np.random.default_rng(1), redraw=False)
    design = np.column_stack([x, np.eye(4)[a]])
    fitted = design @ np.linalg.lstsq(design, planted.rewards, rcond=None)[0]
    explained = 1 - ((planted.rewards - fitted) ** 2).mean() / planted.rewards.var()
    assert explained == pytest.approx(0.3, abs=0.04)
    assert planted.rewards.std() == pytest.approx(log.rewards.std(), rel=0.04)
    assert planted.rewards.mean() == pytest.approx(log.rewards.mean(), abs=0.2)


@pytest.mark.parametrize(("below", "status"), [(2.9, "pass"), (3.1, "warn"), (8.9, "warn"), (9.1, "fail")])
def test_where_coverage_turns(below, status):
    """40 repeats of 4 kinds at level 0.9: the Monte Carlo error is sqrt(0.9 0.1 / 160)."""
    coverage = 0.9 - below * math.sqrt(0.9 * 0.1 / 160)
    row = CalibrationRow("SNDR", 0.1, 0.0, coverage, 0.02, 0.9, "target", 0.4, 0)
    found = Calibration((row,), ("additive", "interaction", "target", "fitted"), 40, 1000, 0.9, True)
    assert found.check("SNDR").status == status


def test_a_row_of_a_calibration_adds_up():
    log = cael.worlds.PaperWorld(n_actions=5, gamma=0.3).sample(300, 0)
    wrong = cael.DM(cael.FixedOutcome(np.full(5, 100.0)))
    found = cael.calibrate(log, cael.Uniform(5), [cael.SNIPS(), wrong], repeats=4)
    assert found[wrong.name].bias == pytest.approx(100 - log.rewards.mean(), abs=2)
    for row in found:
        assert row.rmse >= abs(row.bias)
        assert (row.coverage * 16) % 1 == pytest.approx(0)
        spread = max(row.coverage * (1 - row.coverage), 1 / 16)
        assert row.coverage_error == pytest.approx(math.sqrt(spread / 16))
        assert row.worst_coverage <= row.coverage
        assert row.failed == 0
    assert found["SNIPS"].width > 0
    assert cael.calibrate(log, cael.Uniform(5), [cael.SNIPS()], repeats=4, level=0.5)["SNIPS"].width < (
        0.5 * found["SNIPS"].width
    )


def test_the_planted_truth_is_the_targets_mean_reward():
    log = cael.LoggedData(rng().normal(size=(50, 2)), np.arange(50) % 2, 1000 + rng().normal(size=50), np.full(50, 0.5))
    _, truth = plant(log, cael.Uniform(2), "additive", np.random.default_rng(0), redraw=False)
    assert truth == pytest.approx(1000, abs=5)


def test_replanted_actions_follow_the_logging_policy():
    mu = np.array([0.7, 0.2, 0.1])
    log = cael.LoggedData(None, np.zeros(5000, int), rng().normal(size=5000), logging=mu)
    planted, _ = plant(log, cael.Uniform(3), "additive", np.random.default_rng(0), redraw=True)
    counts = np.bincount(planted.actions, minlength=3)
    assert (np.abs(counts - 5000 * mu) < 4 * np.sqrt(5000 * mu * (1 - mu))).all()
    assert np.array_equal(planted.propensities, mu[planted.actions])


# Comparisons, segments


def test_joint_intervals_are_as_wide_as_their_factor_says():
    policies = {"pi": PI, "other": PI[::-1], "uniform": np.full(4, 0.25)}
    found = cael.compare(LOG, policies, cael.SNIPS(), level=0.9)
    assert stats.norm.ppf(0.95) + 0.05 < found.factor < stats.norm.ppf(1 - 0.05 / 3) + 0.1
    values = [row.estimate.value for row in found]
    assert values == sorted(values, reverse=True)
    for row in found:
        half = found.factor * row.lift.stderr
        tail = row.lift.stderr * row.lift.skew * (2 * found.factor**2 + 1) / 6  # longer on the side of the long tail
        ends = row.lift.value - half + min(tail, 0.0), row.lift.value + half + max(tail, 0.0)
        assert (row.interval.low, row.interval.high) == pytest.approx(ends)
        assert row.direction == (
            "better" if row.lift.value > half else "worse" if row.lift.value < -half else "no difference shown"
        )
    assert {row.direction for row in found} == {"better"}
    assert found["other"].estimate.value == pytest.approx(1 + PI[::-1] @ Q)
    assert found.relative_lift == pytest.approx(found.rows[0].lift.value / LOG.rewards.mean())
    auto = cael.compare(LOG, policies, cael.Auto(learn=False), level=0.9)
    for row in auto:
        # without a bias bound to speak of, choices and floors of the error still count
        joint = 2 * stats.norm.cdf(auto.factor) - 1
        assert row.interval.width == pytest.approx(row.lift.interval(joint, "bias_aware").width)


def test_a_joint_interval_allows_for_a_bias():
    lift = cael.compare(LOG, {"pi": PI}, cael.SNIPS())["pi"].lift
    biased = dataclasses.replace(lift, diagnostics=dataclasses.replace(lift.diagnostics, bias_bound=0.3))
    plain, wider = within(lift, 2.5, 0.9), within(biased, 2.5, 0.9)
    assert plain.low - wider.low > 0.29
    assert wider.high - plain.high > 0.29


def test_the_lift_of_an_evaluation_has_its_direction_and_its_share():
    found = cael.evaluate(LOG, PI[::-1], learn=False, headline="SNIPS")
    assert found.lift.value == pytest.approx((PI[::-1] - MU) @ Q, abs=0.1)
    assert found.direction == "better"
    assert found.relative_lift == pytest.approx(found.lift.value / LOG.rewards.mean())
    negative = cael.LoggedData(None, LOG.actions, LOG.rewards - 5, logging=MU)
    worse = cael.evaluate(negative, np.array([1.0, 0, 0, 0]), learn=False, headline="SNIPS")
    assert worse.direction == "worse"
    assert worse.relative_lift == pytest.approx(worse.lift.value / abs((LOG.rewards - 5).mean()))
    assert worse.relative_lift < 0


def test_an_interval_that_holds_0_shows_no_difference():
    equal = np.array([0.45, 0.2, 0.25, 0.1])
    assert equal @ Q == pytest.approx(MU @ Q)
    assert cael.compare(LOG, {"equal": equal}, cael.SNIPS())["equal"].direction == "no difference shown"
    assert cael.evaluate(LOG, equal, learn=False, headline="SNIPS").direction == "no difference shown"


def test_a_segment_has_the_effective_rows_of_its_rows():
    labels = np.where(np.arange(1000) % 3, "b", "a")
    found = cael.segments(LOG, PI, labels, estimator=cael.SNIPS())
    for row in found:
        w = W[labels == row.label]
        assert row.effective_rows == pytest.approx(w.sum() ** 2 / (w**2).sum())
        assert row.baseline == pytest.approx(LOG.rewards[labels == row.label].mean())
        assert row.interval.width == pytest.approx(2 * found.factor * row.stderr)
    bounded = cael.segments(LOG, PI, labels, estimator=cael.Auto(learn=False))
    assert all(row.shrunk_interval.width == pytest.approx(2 * 1.95996 * row.stderr, rel=1e-3) for row in bounded)


def test_segments_are_said_to_differ_below_one_percent():
    rows = cael.segments(LOG, PI, np.arange(1000) % 2, estimator=cael.SNIPS())
    said = ["beyond chance" in dataclasses.replace(rows, differ=p).sentence() for p in (0.0099, 0.0101)]
    assert said == [True, False]


def test_shrinkage_is_that_of_morris_where_all_errors_are_equal():
    v, s = np.array([1.0, 2.0, 4.0, 7.0, 3.0]), 1.2
    g, mean, t = 5, v.mean(), v.var(ddof=1) - s**2
    keep = (g - 3) / (g - 1) * s**2 / (s**2 + t)
    guess, posterior, spread = shrink(v, np.full(5, s))
    assert spread == pytest.approx(math.sqrt(t))
    assert guess == pytest.approx(v - keep * (v - mean))
    doubt = 2 / (g - 3) * keep**2 * (v - mean) ** 2
    assert posterior**2 == pytest.approx(s**2 * (1 - keep * (1 - 1 / g)) + doubt)


def test_cochran_is_a_chi_square_test():
    v, s = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 0.8])
    q, p = cochran(v, s)
    mean = np.average(v, weights=1 / s**2)
    assert q == pytest.approx((((v - mean) / s) ** 2).sum())
    assert p == pytest.approx(stats.chi2.sf(q, 2))


def deficient():
    world = cael.worlds.DeficientWorld(n_actions=20, action_dim=2)
    return world.sample(300, 0), world.target


def test_segments_allow_for_the_bias_of_their_estimator():
    """The half-width covers a normal estimate whose bias is the bound, as often as the joint factor does without."""
    log, target = deficient()
    auto = cael.Auto(learn=False)
    bound = auto.estimate(log, target).diagnostics.bias_bound
    found = cael.segments(log, target, np.arange(300) % 2, estimator=auto)
    for row in found:
        half, bias = row.interval.width / 2 / row.stderr, bound / row.stderr
        covered = stats.norm.cdf(half - bias) - stats.norm.cdf(-half - bias)
        assert covered == pytest.approx(2 * stats.norm.cdf(found.factor) - 1, abs=1e-6)


def test_a_lift_has_the_bias_bound_of_its_estimate():
    log, target = deficient()
    found = cael.evaluate(log, target, cael.Auto(learn=False), headline="Auto(learn=False)", learn=False)
    assert found.lift.diagnostics.bias_bound == found.best.diagnostics.bias_bound > 0


def test_sndr_is_the_headline_without_learning():
    assert cael.evaluate(LOG, PI, learn=False).headline == "SNDR"


# Overlap, and what a report says of it


def uneven():
    """1000 rows whose propensities are a fifth too small: weights 0, 0.625, 1.6 and 50."""
    counts = [300, 500, 190, 10]
    actions = np.repeat(np.arange(4), counts)
    rewards = np.cos(np.arange(1000.0))
    mu = np.array([0.3, 0.5, 0.19, 0.01])
    log = cael.LoggedData(None, actions, rewards, 0.8 * mu[actions], n_actions=6)
    return log, np.array([0.0, 0.25, 0.25, 0.4, 0.1, 0.0]), actions


def test_overlap_is_what_the_weights_say():
    log, pi, actions = uneven()
    w = pi[actions] / log.propensities
    found = cael.evaluate(log, pi, learn=False).overlap
    assert (found.n, found.n_actions, found.never_logged) == (1000, 6, 2)
    assert found.mean_weight == pytest.approx(w.mean())
    assert found.max_weight == pytest.approx(w.max())
    assert found.effective_rows == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert found.zero_share == pytest.approx(0.3)
    assert found.largest_share == pytest.approx(w.max() / w.sum())
    assert found.top_share == pytest.approx(np.sort(w)[-10:].sum() / w.sum())
    assert found.never_logged_mass == pytest.approx(0.1)
    counts = np.histogram(w[w > 0], found.edges)[0]
    assert list(found.counts) == counts.tolist()
    sums = np.histogram(w[w > 0], found.edges, weights=w[w > 0])[0]
    assert list(found.shares) == pytest.approx((sums / w.sum()).tolist())
    ratio = np.array(found.edges[1:]) / np.array(found.edges[:-1])
    assert ratio == pytest.approx(10**0.25)
    assert [each.action for each in found.actions][:4] == [3, 1, 2, 4]
    assert [each.logged for each in found.actions][:4] == [10, 500, 190, 0]
    assert [each.target for each in found.actions][:4] == pytest.approx([0.4, 0.25, 0.25, 0.1])
    whole = cael.LoggedData(None, actions, log.rewards, logging=[0.25, 0.45, 0.2, 0.05, 0.05, 0.0])
    expected = {each.action: each.expected for each in cael.evaluate(whole, pi, learn=False).overlap.actions}
    assert expected == pytest.approx({0: 250, 1: 450, 2: 200, 3: 50, 4: 50, 5: 0})


def test_the_top_share_takes_a_part_of_a_bin_and_one_row_of_a_short_log():
    log = cael.LoggedData(None, [0, 1] * 250, np.sin(np.arange(500.0)), [0.5, 0.5] * 250)
    found = cael.evaluate(log, [0.9, 0.1], learn=False).overlap
    assert found.top_share == pytest.approx(5 * 1.8 / 500)
    short = cael.LoggedData(None, [0, 1] * 20, np.sin(np.arange(40.0)), [0.5, 0.5] * 20)
    assert cael.evaluate(short, [0.9, 0.1], learn=False).overlap.top_share == pytest.approx(1.8 / 40)


def words(page):
    """The text of a page."""
    without_style = re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", without_style)))


def test_the_report_has_the_numbers_of_the_weights():
    log, pi, actions = uneven()
    w = pi[actions] / log.propensities
    found = cael.evaluate(log, pi, learn=False)
    text = words(cael.report.render(found))
    size, lift = w.sum() ** 2 / (w**2).sum(), found.lift
    for line in (
        "Rows 1,000",
        f"Effective sample size {size:,.0f} rows ({size / 1000:.1%})",
        f"Mean weight (should be 1) {w.mean():.3f}",
        f"Largest weight {w.max():.5g}",
        "Rows with weight 0 30.0%",
        f"Weight on the heaviest row {w.max() / w.sum():.1%}",
        f"Weight on the heaviest 1% of rows {np.sort(w)[-10:].sum() / w.sum():.1%}",
        "Actions without a row 2 of 6",
        "Probability of these under the new policy 10.0%",
        f"SNDR {found.best.value:.5g} ",
        f"LoggedMean {log.rewards.mean():.5g} ",
        f"Lift over the logging policy per decision {lift.value:+.3g} 95% interval {found.lift_interval.low:.5f} to ",
        "3 10 1.0% 40.0%",
    ):
        assert line in text, line
    assert w.mean() == pytest.approx(1.125)
    assert re.search(r"95% interval \S+ to \S+: not to be relied on", text)
    assert found.verdict.level == "refuse"


def test_numbers_are_written_with_five_digits():
    assert number(123456.7) == "123,457"
    assert number(99999.0) == "99999"
    assert number(0.000123456) == "0.00012346"
    assert number(2e15) == "2e+15"
    assert number(-3.14159265, "+") == "-3.1416"
    interval = Interval(1.0, 2.5, 0.95, "normal")
    assert [text_of(kind, interval) for kind in ("interval", "lift interval")] == ["[1, 2.5]", "[+1, +2.5]"]


# Audits


def audited(name, log):
    return cael.audit(log)[name]


@pytest.mark.parametrize(("least", "status"), [(0.26, "pass"), (0.24, "warn"), (0.03, "warn"), (0.02, "fail")])
def test_where_rounding_turns(least, status):
    """Two decimals: the smallest propensity is off by up to 0.005."""
    p = np.r_[np.full(100, least), np.full(400, 0.31), np.full(500, 0.37)]
    log = cael.LoggedData(None, np.arange(1000) % 3, rng().normal(size=1000), p)
    found = audited("rounding", log)
    assert (found.status, found.value) == (status, pytest.approx(0.005 / least))


@pytest.mark.parametrize(("certain", "status"), [(499, "pass"), (501, "fail")])
def test_where_certain_rows_turn(certain, status):
    p = np.where(np.arange(1000) < certain, 1.0, 0.5)
    assert audited("support", cael.LoggedData(None, np.arange(1000) % 2, rng().normal(size=1000), p)).status == status


@pytest.mark.parametrize(("rows", "few", "status"), [(10, 2, "pass"), (9, 2, "pass"), (9, 3, "warn"), (10, 3, "pass")])
def test_where_thin_support_turns(rows, few, status):
    """20 actions, of which a few have so many rows: fewer than 10 are thin, and a tenth of the actions may be."""
    counts = [rows] * few + [100] * (20 - few)
    actions = np.repeat(np.arange(20), counts)
    log = cael.LoggedData(None, actions, rng().normal(size=len(actions)), np.full(len(actions), 0.05), n_actions=20)
    assert audited("support", log).status == status


@pytest.mark.parametrize(("copies", "status"), [(10, "pass"), (12, "warn"), (525, "warn"), (530, "fail")])
def test_where_copies_turn(copies, status):
    """Of 10,000 rows and their copies; no context comes again but in a copy."""
    rows = np.r_[np.arange(10_000), np.arange(copies)]
    x, r = np.arange(10_000.0)[:, None], rng().normal(size=10_000)
    log = cael.LoggedData(x[rows], rows % 10, r[rows], np.full(len(rows), 0.1))
    found = audited("duplicates", log)
    assert found.value == pytest.approx(copies / len(rows))
    assert found.status == status


@pytest.mark.parametrize(("z", "status"), [(3.9, "pass"), (4.1, "fail"), (-4.1, "warn"), (-3.9, "pass")])
def test_where_sums_of_propensities_turn(z, status):
    """1 / propensity averages 2, the number of actions, but for z standard errors."""
    spread = np.where(np.arange(1000) % 2, 0.5, -0.5)
    inverse = 2 + spread + z * spread.std(ddof=1) / math.sqrt(1000)
    found = audited("sums", cael.LoggedData(None, np.arange(1000) % 2, rng().normal(size=1000), 1 / inverse))
    assert found.status == status
    assert found.value == pytest.approx(inverse.mean() / 2)


def test_a_change_of_the_actions_is_measured_between_the_two_halves():
    actions = np.r_[np.arange(500) % 2, np.arange(500) % 4 == 0].astype(int)
    log = cael.LoggedData(None, actions, rng().normal(size=1000), np.full(1000, 0.5), n_actions=2)
    found = audited("action_drift", log)
    assert (found.status, found.value) == ("warn", pytest.approx(0.25))


def test_deciles_are_off_by_the_share_of_what_was_stated():
    """Rows of two kinds say 0.9 and 0.1; the likely action is taken on 80% of them."""
    n = 4000
    kind = np.arange(n) % 2
    p = np.where(kind[:, None] == np.arange(2), 0.9, 0.1)
    actions = np.where((np.arange(n) // 2) % 5 == 0, 1 - kind, kind)
    found = cael.audit(cael.LoggedData(kind[:, None], actions, rng().normal(size=n), logging=p))
    assert [each.expected for each in found.deciles] == pytest.approx([400, 3600])
    assert [each.observed for each in found.deciles] == [800, 3200]
    assert found["calibration"].value == pytest.approx(1.0)  # twice as many as stated
    assert found["frequencies"].status == "pass"
    period = found.periods[0]
    score = np.log(p[np.arange(n), actions]) + stats.entropy(p, axis=1)
    assert period.z == pytest.approx(score[:400].mean() / (score.std(ddof=1) / math.sqrt(400)))


def test_an_audit_counts_a_misplaced_row_once():
    found = audited("frequencies", counts_log([2200, 1800], [0.5, 0.5]))
    assert (found.status, found.value) == ("warn", pytest.approx(0.05))


def test_the_variance_of_a_range_of_probabilities_is_that_of_a_coin():
    n = 4000
    kind = np.arange(n) % 2
    p = np.where(kind[:, None] == np.arange(2), 0.9, 0.1)
    likely = np.isin(np.arange(n), np.linspace(0, n - 1, 3660).astype(int))
    found = cael.audit(
        cael.LoggedData(kind[:, None], np.where(likely, kind, 1 - kind), rng().normal(size=n), logging=p)
    )
    assert [each.observed for each in found.deciles] == [340, 3660]
    assert found.deciles[1].p_value == pytest.approx(2 * 2 * stats.norm.sf(60 / math.sqrt(n * 0.9 * 0.1)))


@pytest.mark.parametrize(("never", "status"), [(2, "pass"), (3, "warn")])
def test_an_action_without_a_row_is_thin(never, status):
    actions = np.arange(2000) % (20 - never)
    log = cael.LoggedData(None, actions, rng().normal(size=2000), np.full(2000, 0.05), n_actions=20)
    assert audited("support", log).status == status


def test_the_skewness_of_rewards_in_an_audit():
    r = rng().exponential(size=1000) ** 2
    found = audited("rewards", cael.LoggedData(None, np.arange(1000) % 2, r, np.full(1000, 0.5)))
    assert found.value == pytest.approx(stats.skew(r) / math.sqrt(1000))


# Weights and scores


def slow_tail_index(w):
    """Zhang and Stephens (2009) with the prior of Vehtari et al. (2024), in loops."""
    tail = sorted(w)[-int(min(len(w) / 5, 3 * math.sqrt(len(w)))) - 1 :]
    x = [value - tail[0] for value in tail[1:]]
    n = len(x)
    grid = [1 / x[-1] + (1 - math.sqrt((30 + int(math.sqrt(n))) / (j - 0.5))) / (3 * x[int(n / 4 + 0.5) - 1])
            for j in range(1, 31 + int(math.sqrt(n)))]  # fmt: skip

    def shape(b):
        return sum(math.log1p(-b * value) for value in x) / n

    likelihood = [n * (math.log(-b / shape(b)) - shape(b) - 1) for b in grid]
    weights = [math.exp(each - max(likelihood)) for each in likelihood]
    b = sum(w * b for w, b in zip(weights, grid, strict=True)) / sum(weights)
    return (n * shape(b) + 10 * 0.5) / (n + 10)


def test_the_tail_index_is_drawn_towards_a_half():
    w = rng().pareto(1.5, 2000)
    assert tail_index(w) == pytest.approx(slow_tail_index(w))


def test_the_error_of_a_ratio_is_that_of_its_influence():
    value = (W * LOG.rewards).sum() / W.sum()
    z = value + W * (LOG.rewards - value) / W.mean()
    assert SNIPS.value == pytest.approx(value)
    assert SNIPS.stderr == pytest.approx(z.std(ddof=1) / math.sqrt(1000))


def test_a_blend_of_scores_is_a_blend_of_contributions():
    a, b, columns = Score(1.0, np.array([1.0, 2.0])), Score(3.0, np.array([0.0, -1.0])), np.array([5.0, 7.0])
    assert a.blended(b, 0.25).mean(columns) == pytest.approx(0.75 * a.mean(columns) + 0.25 * b.mean(columns))
    assert a.minus(b).mean(columns) == a.mean(columns) - b.mean(columns)


def test_the_range_of_a_doubly_robust_contribution():
    """q and r in [-1, 2], weights up to 4: q(x, pi) + w (r - q) is lowest at -1 + 4 (-1 - 2)."""
    assert ScoreRange("doubly_robust", 4.0).bounds((-1.0, 2.0), None) == (-13.0, 14.0)
    assert ScoreRange("weighted", 4.0).bounds((-1.0, 2.0), None) == (-4.0, 8.0)
    assert ScoreRange("weighted", 4.0).bounds((1.0, 2.0), 3.0) == (0.0, 6.0)
    assert ScoreRange("mean", 4.0).bounds((-1.0, 2.0), None) == (-1.0, 2.0)


def test_the_baseline_of_a_fold_is_that_of_the_others():
    found = cael.BaselineIPS().estimate(LOG, PI)
    expected = np.empty(1000)
    for rows in LOG.folds(5, 0):
        others = np.setdiff1d(np.arange(1000), rows)
        w, r = W[others], LOG.rewards[others]
        b = np.cov(w * r, w)[0, 1] / w.var(ddof=1)
        expected[rows] = b + W[rows] * (LOG.rewards[rows] - b)
    assert found.contributions == pytest.approx(expected)


@pytest.mark.parametrize(("gap", "accepted"), [(3.89, [0, 1]), (3.91, [0])])
def test_slope_allows_for_both_widths(gap, accepted):
    """The widths 2 and 1: 1 + (sqrt(6) - 1) 2 = 3.899."""
    assert slope(np.array([0.0, gap]), np.array([2.0, 1.0])) == accepted
    path = cael.SLOPE([cael.IPS(), cael.SNIPS()], delta=0.2).estimate(LOG, PI).diagnostics.path
    width = {each.name: each.width for each in path}
    assert width["SNIPS"] == pytest.approx(stats.t.ppf(0.8, 999) * SNIPS.stderr)


def test_whole_numbers_are_categories_without_the_first():
    table = np.array([[3, 0], [5, 1], [4, 0]])
    assert encoder(table)(table).tolist() == [[0, 0, 0], [0, 1, 1], [1, 0, 0]]
    numbers = np.array([[1.0], [2.0], [6.0]])
    mean, spread = 2.75, math.sqrt(np.average((numbers[:, 0] - 2.75) ** 2, weights=[1, 2, 1]))
    assert encoder(numbers, np.array([1, 2, 1]))(numbers)[:, 0] == pytest.approx((numbers[:, 0] - mean) / spread)


def test_the_average_prediction_is_that_over_the_actions():
    log = cael.worlds.PaperWorld(n_actions=4, gamma=0.2).sample(200, 0)
    (batch,) = log.batches()
    model = cael.Ridge(interactions=False).fit(log, 0)
    assert model.average(batch) == pytest.approx(model.predict(batch).mean(axis=1))


def test_one_code_for_all_actions_is_as_rough_as_the_policies_are_apart():
    mu, pi = np.array([[0.5, 0.5, 0.0]]), np.array([[0.1, 0.3, 0.6]])
    one, apart = codes.flat(mu, pi), codes.sharp(mu, pi)
    assert (one.weights[0], one.lost[0], one.roughness[0]) == (pytest.approx([1, 1, 1]), 0, pytest.approx(0.6))
    assert (apart.weights[0], apart.lost[0]) == (pytest.approx([0.2, 0.6, 0]), pytest.approx(0.6))
    assert apart.roughness[0] == 0


# Folds, scores, policies


def test_keys_are_mixed_as_by_splitmix64():
    """The first number of the published generator with the states 0 and 1234567."""
    found = mixed(np.array([0, 1234567], dtype=np.uint64))
    assert found.tolist() == [0xE220A8397B1DCDAF, 6457827717110365317]


def test_folds_are_even_and_halves_are_parts_of_them():
    keys = np.arange(30_000, dtype=np.uint64)
    fold, part = folds_of_keys(keys, 3, 7), parts_of_keys(keys, 3, 2, 7)
    assert np.array_equal(part // 2, fold)
    assert np.bincount(part, minlength=6) == pytest.approx(5000, abs=6 * math.sqrt(5000))
    other = folds_of_keys(keys, 3, 8)
    assert (fold == other).mean() == pytest.approx(1 / 3, abs=0.02)
    assert not folds_of_keys(keys, 1, 7).any()


def test_the_first_row_of_a_window_is_in_it(tmp_path):
    """200 rows in 3 windows: row 66 is in the first (66 * 3 = 198 < 200), row 67 in the second."""
    log = cael.scan(write(tmp_path / "log", table(200)), n_actions=K)
    found = cael.segments(log, "p", windows=3, estimator=cael.SNIPS())
    assert [row.label for row in found] == ["1: from row 0", "2: from row 67", "3: from row 134"]
    assert [row.rows for row in found] == [67, 67, 66]


def test_a_repeated_id_is_named_by_its_second_row():
    found = ids_of(np.array([5, 3, 5, 3], dtype=np.uint64), np.array([10, 11, 12, 13]))
    assert (found.repeats, found.again) == (2, (12, 13))
    assert (found.keys.tolist(), found.places.tolist()) == ([3, 5], [11, 10])


def test_a_propensity_of_zero_and_an_action_out_of_range_are_refused():
    with pytest.raises(cael.LogError, match=r"must be in \(0, 1\]; row 1 has 0"):
        cael.LoggedData(None, [0, 1], [1.0, 2.0], [0.5, 0.0])
    with pytest.raises(cael.LogError, match=r"actions must be in 0\.\.1 \(2 actions\); row 1 has 2"):
        cael.LoggedData(None, [0, 2], [1.0, 2.0], [0.5, 0.5], n_actions=2)
    assert cael.LoggedData(None, [0, 1], [1.0, 2.0], [0.5, 1.0], n_actions=2).n_actions == 2


def test_lists_share_what_they_leave():
    lists = cael.TopK([[2, 0], [1, -1]], [[0.5, 0.2], [0.4, 0.0]], n_actions=5, rest="uniform")
    log = cael.LoggedData(None, [2, 3], [1.0, 1.0], np.full(2, 0.2), n_actions=5)
    (batch,) = log.batches()
    table = np.array([[0.2, 0.1, 0.5, 0.1, 0.1], [0.15, 0.4, 0.15, 0.15, 0.15]])
    assert lists.probabilities(batch) == pytest.approx(table)
    assert lists.logged_probability(batch) == pytest.approx([0.5, 0.15])
    both = cael.Mixture([lists, cael.Tabular([1.0, 0, 0, 0, 0])], [0.7, 0.3])
    blended = 0.7 * table + 0.3 * np.eye(5)[[0, 0]]
    assert both.probabilities(batch) == pytest.approx(blended)
    assert both.logged_probability(batch) == pytest.approx(blended[[0, 1], [2, 3]])
    assert (both.least, both.most) == pytest.approx((0.0, 1.0))
    floor = cael.Mixture([cael.Uniform(5), cael.Tabular([0.6, 0.1, 0.1, 0.1, 0.1])], [0.4, 0.6])
    assert (floor.least, floor.most) == pytest.approx((0.4 * 0.2 + 0.6 * 0.1, 0.4 * 0.2 + 0.6 * 0.6))


def test_estimated_frequencies_have_half_a_row_more_each():
    log = cael.LoggedData(None, [0, 0, 0, 1], [1.0, 2.0, 3.0, 4.0], n_actions=3)
    (batch,) = log.batches()
    found = cael.estimate_logging(log, folds=2)
    assert found.probabilities(batch) == pytest.approx(np.tile(np.array([3.5, 1.5, 0.5]) / 5.5, (4, 1)))
    assert found.loss == pytest.approx(-(3 * math.log(3.5 / 5.5) + math.log(1.5 / 5.5)) / 4)


def test_clusters_widen_counts_by_their_sizes():
    sizes = np.r_[np.full(100, 6), np.full(400, 1)]
    clusters = np.repeat(np.arange(500), sizes)
    log = cael.LoggedData(None, np.arange(1000) % 2, rng().normal(size=1000), logging=[0.5, 0.5], clusters=clusters)
    answer = ask(as_engine_log(log), {"": [0.5, 0.5]}, [cael.SNIPS()])
    effect = (sizes**2).sum() / 1000
    assert answer.cluster_effect == pytest.approx(effect)
    more = (np.arange(1000) < 560).astype(int)
    skewed = cael.LoggedData(None, more, log.rewards, logging=[0.5, 0.5], clusters=clusters)
    assert check(evaluated(skewed, [0.5, 0.5]), "frequencies").value == 0  # z = 60 / sqrt(250), and 2 with the effect
    found = cael.audit(skewed).actions
    assert [each.p_value for each in found] == pytest.approx([2 * 2 * stats.norm.sf(60 / math.sqrt(250 * effect))] * 2)


def test_clusters_are_the_units_of_covariances():
    clusters = np.repeat(np.arange(50), np.r_[np.full(25, 30), np.full(25, 10)])
    log = exact_log(clusters=rng().permutation(clusters))
    answer = ask(as_engine_log(log), {"": PI}, [cael.SNIPS()])
    parts = [(W - W.mean()), (log.rewards - log.rewards.mean())]
    weights, rewards = (np.bincount(log.clusters, weights=part) for part in parts)
    found = answer.single(Weight(0)).covariance(answer.single(Reward()))
    assert found == pytest.approx(weights @ rewards)


def test_buckets_of_rows_are_units():
    """10,000 rows in 997 buckets: the standard error of the mean of the buckets is about that of the rows."""
    log = cael.LoggedData(None, np.arange(10_000) % 2, rng().normal(size=10_000), logging=[0.5, 0.5])
    found = cael.SNIPS().estimate(log, [0.7, 0.3])
    assert len(found.groups) == 997
    assert found.groups.mean() == pytest.approx(found.value, abs=0.1 * found.stderr)
    assert found.groups.std(ddof=1) / math.sqrt(997) == pytest.approx(found.stderr, rel=5 / math.sqrt(2 * 997))


# Exit codes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A log whose second action is better, with sound propensities, and with wrong ones."""
    folder = tmp_path_factory.mktemp("files")
    draws = np.random.default_rng(3)
    n = 800
    x, a = draws.normal(size=(n, 1)), draws.integers(0, 2, n)
    r = a + draws.normal(size=n)
    parts = {"contexts": x, "actions": a, "rewards": r, "good": np.array([0.1, 0.9]), "bad": np.array([0.9, 0.1])}
    np.savez(folder / "sound.npz", logging=np.array([0.5, 0.5]), **parts)
    np.savez(folder / "wrong.npz", logging=np.array([0.3, 0.7]), **parts)
    for name in ("good", "bad"):
        np.save(folder / f"{name}.npy", parts[name])
    return folder


def exit_code(*arguments):
    try:
        main([str(each) for each in arguments])
    except SystemExit as stop:
        return stop.code or 0
    return 0


def test_exit_codes(files, capsys):
    sound, wrong = files / "sound.npz", files / "wrong.npz"
    good, bad = ("--policy", files / "good.npy"), ("--policy", files / "bad.npy")
    for command in ("evaluate", "compare"):
        assert exit_code(command, sound, *good, "--no-learn", "--gate") == 0
        assert exit_code(command, sound, *bad, "--no-learn") == 0
        assert exit_code(command, sound, *bad, "--no-learn", "--gate") == 4
        assert exit_code(command, wrong, *bad, "--no-learn", "--gate") == 3  # never "worse" by a number without trust
    assert exit_code("compare", sound, *good, *bad, "--no-learn", "--gate") == 4  # one of the policies is enough
    assert exit_code("audit", sound) == 0
    assert exit_code("audit", wrong) == 3
    assert exit_code("plan", sound, *good) == 0
    assert exit_code("plan", sound, *good, "--threshold", "effective_rows=1e9,1e8") == 3
    assert exit_code("audit", files / "none.npz") == 1
    assert exit_code("audit", sound, "--bogus") == 2
    capsys.readouterr()


def test_a_policy_without_support_is_named_among_others():
    log = cael.LoggedData(None, np.arange(60) % 3, np.arange(60) % 2 * 1.0, logging=[0.3, 0.3, 0.3, 0.1])
    with pytest.raises(cael.SupportError, match=r"policy never: .* Leave it out to compare the others"):
        cael.compare(log, {"first": np.eye(4)[0], "never": np.eye(4)[3]}, learn=False)
    with pytest.raises(cael.SupportError, match=r"^SNDR is undefined"):
        cael.evaluate(log, np.eye(4)[3], learn=False, estimators=cael.SNDR())
