"""Eligible actions: sets against masks, policies that keep to them, and every number against a log that needs none."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
import cael.io
from cael.judging import judge as judging
from cael.judging.thresholds import DEFAULT
from cael.log.eligible import Eligible, joined, of_mask, sets_of
from cael.policies.policy import draw, probabilities, probability_of, support
from cael.results.calibration import plant
from tests.test_survey import counted

WORLD = cael.worlds.CatalogueWorld(n_actions=12, days=5, population=10)
K = 12


def masked(n, k=K, seed=0, share=0.4):
    """A log in which nearly every row has a set of its own, its mask, and scores (n, k)."""
    rng = np.random.default_rng(seed)
    mask, actions = rng.random((n, k)) < share, rng.integers(0, k, n)
    mask[np.arange(n), actions] = True
    log = cael.LoggedData(
        rng.random((n, 2)), actions, rng.random(n), 1 / mask.sum(axis=1), eligible=mask, n_actions=k
    )  # fmt: skip
    return log, mask, rng.random((n, k))


def lists_of(mask):
    return [np.flatnonzero(row).tolist() for row in mask]


# Sets


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40),
    k=st.integers(1, 9),
    share=st.floats(0.05, 1),
    distinct=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_sets_are_the_mask(n, k, share, distinct, seed):
    rng = np.random.default_rng(seed)
    few = rng.random((distinct, k)) < share
    few[:, 0] |= ~few.any(axis=1)
    mask = few[rng.integers(0, distinct, n)]
    eligible, flaws, _ = sets_of(*of_mask(mask), k)
    assert not any(bad.any() for bad in flaws.values())
    assert len(eligible.sets) == len(np.unique(mask, axis=0))  # equal sets are kept once
    assert (eligible.mask() == mask).all()
    assert (eligible.mask(slice(1, 3)) == mask[:, 1:3]).all()
    assert (eligible.sizes == mask.sum(axis=1)).all()
    every = np.tile(np.arange(k), (n, 1))
    assert (eligible.holds(every) == mask).all()
    assert not eligible.holds(np.full((n, 1), -1)).any()
    values = rng.normal(size=(k, 2))
    assert np.allclose(eligible.sums(values), mask @ values)
    assert np.allclose(eligible.spread(values[0, 0] + np.arange(n)), (values[0, 0] + np.arange(n)) @ mask)
    places = eligible.places(every)
    assert (places == np.where(mask, mask.cumsum(axis=1) - 1, -1)).all()
    assert (eligible.at(places) == np.where(mask, every, -1)).all()
    rows = rng.integers(0, n, 2 * n)
    assert (eligible.part(rows).mask() == mask[rows]).all()
    halves = [sets_of(*of_mask(part), k)[0] for part in np.array_split(mask, 3) if len(part)]
    assert (joined(halves).mask() == mask).all()
    assert len(joined(halves).sets) == len(eligible.sets)


def test_a_log_is_the_same_by_lists_by_a_mask_and_by_periods():
    log, mask, _ = masked(60)
    shuffled = [np.random.default_rng(1).permutation(row) for row in lists_of(mask)]
    by_period = Eligible.by_period(np.arange(60), dict(enumerate(lists_of(mask))), K)
    columns = (log.contexts, log.actions, log.rewards, log.propensities)
    for given_as in (shuffled, lists_of(mask), by_period):
        again = cael.LoggedData(*columns, eligible=given_as, n_actions=K)
        assert again.fingerprint == log.fingerprint
    other = mask.copy()
    other[7] = True
    assert cael.LoggedData(*columns, eligible=other, n_actions=K).fingerprint != log.fingerprint
    assert cael.LoggedData(*columns, n_actions=K).fingerprint != log.fingerprint


def test_rows_that_are_taken_pickled_and_saved_keep_their_sets(tmp_path):
    log, mask, _ = masked(50)
    rows = np.array([3, 3, 49, 0])
    assert (log.take(rows).eligible.mask() == mask[rows]).all()
    assert pickle.loads(pickle.dumps(log)).fingerprint == log.fingerprint
    assert all((batch.eligible.mask() == mask[batch.rows]).all() for batch in log.batches(width=2**16))
    cael.io.save_log(tmp_path / "log.npz", log)
    assert cael.io.load_log(tmp_path / "log.npz").fingerprint == log.fingerprint
    with pytest.raises(ValueError, match="read-only"):
        log.eligible.codes[0] = 1


def test_sets_stay_small_where_days_share_them():
    world = cael.worlds.CatalogueWorld(n_actions=300, days=30, population=2)
    log = world.sample(5000, 0)
    assert len(log.eligible.sets) == 30
    assert log.eligible.sets.actions.size < 30 * 300


# Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda lists: lists[4].remove(lists.actions[4]),
            r"row does not list the logged action as eligible.*row 4 has",
        ),
        (lambda lists: lists[4].clear(), r"row has an empty list of eligible actions; row 4"),
        (lambda lists: lists.__setitem__(4, None), r"row has no list of eligible actions; row 4"),
        (lambda lists: lists[4].append(K), r"not one of the log's; an entry is shown; row 4 has 12"),
        (lambda lists: lists[4].append(-1), r"not one of the log's; an entry is shown; row 4 has -1"),
        (lambda lists: lists[4].append(lists[4][0]), r"lists an eligible action twice.*row 4 has"),
    ],
)
def test_lists_that_are_wrong_are_refused_with_counts_and_rows(change, message):
    log, mask, _ = masked(30)

    class Lists(list):
        actions = log.actions

    lists = Lists(lists_of(mask))
    change(lists)
    with pytest.raises(cael.LogError, match=message):
        cael.LoggedData(log.contexts, log.actions, log.rewards, eligible=lists, n_actions=K)
    lists = Lists(lists_of(mask))
    lists[9], lists[4] = [], []
    with pytest.raises(cael.LogError, match=r"empty list.*\(2 such rows: 4, 9\)"):
        cael.LoggedData(log.contexts, log.actions, log.rewards, eligible=lists, n_actions=K)


def test_other_forms_that_are_wrong_are_refused():
    columns = (None, [0, 1, 0], [0.0, 1.0, 2.0])
    for given_as, message in [
        (np.ones((3, 5), dtype=bool), "must have 2 columns"),
        ([[0], [1]], "rewards has 3 rows, eligible has 2"),
        (3, "eligible must be a list"),
        ([["a"], ["b"], ["a"]], "Map action names to numbers"),
        (Eligible.by_period([0, 0, 0], {0: [0, 1, 2]}, 3), "contradictory: n_actions says 2, eligible says 3"),
    ]:
        with pytest.raises(cael.LogError, match=message):
            cael.LoggedData(*columns, eligible=given_as, n_actions=2)
    with pytest.raises(cael.LogError, match="row 2 has 9"):
        Eligible.by_period([0, 0, 9], {0: [0, 1]}, 2)
    with pytest.raises(cael.LogError, match=r"the period 1 has an empty list .*\(2 of 3 periods are wrong in this way"):
        Eligible.by_period([0, 1], {0: [0], 1: [], 2: []}, 2)
    with pytest.raises(cael.LogError, match=r"not one of the log's, such as 9 \(1 of 2 periods.*actions are 0 to 1\)"):
        Eligible.by_period([0, 1], {0: [0], 1: [1, 9]}, 2)
    with pytest.raises(cael.LogError, match=r"the period 1 lists an eligible action twice"):
        Eligible.by_period([0, 1], {0: [0, 1], 1: [0, 0]}, 2)


def test_masks_and_periods_without_the_logged_action_are_refused_with_counts_and_rows():
    """In `LoggedData` and in a dictionary of obp alike."""
    log, mask, _ = masked(30)
    rows, other = np.array([4, 9]), (log.actions[[4, 9]] + 1) % K
    without, empty = mask.copy(), mask.copy()
    without[rows, other], without[rows, log.actions[rows]], empty[rows] = True, False, False
    for wrong, what in [(without, "does not list the logged action as eligible"), (empty, "has an empty list")]:
        for form in (wrong, lists_of(wrong)):
            feedback = {
                "action": log.actions,
                "reward": log.rewards,
                "pscore": log.propensities,
                "context": log.contexts,
            }
            with pytest.raises(cael.LogError, match=rf"{what}.*\(2 such rows: 4, 9\)"):
                cael.io.from_obp({**feedback, "eligible": form, "n_actions": K})
            with pytest.raises(cael.LogError, match=rf"{what}.*\(2 such rows: 4, 9\)"):
                cael.LoggedData(log.contexts, log.actions, log.rewards, eligible=form, n_actions=K)
    periods = np.arange(3) // 2
    with pytest.raises(cael.LogError, match=r"does not list the logged action as eligible.*row 2 has 1"):
        sets = Eligible.by_period(periods, {0: [0, 1], 1: [0]}, 2)
        cael.LoggedData(None, [0, 1, 1], np.zeros(3), eligible=sets, n_actions=2)


def test_a_dictionary_of_obp_may_have_them():
    log, mask, _ = masked(20)
    feedback = {"action": log.actions, "reward": log.rewards, "pscore": log.propensities, "context": log.contexts}
    for given_as in (mask, lists_of(mask)):
        assert cael.io.from_obp({**feedback, "eligible": given_as, "n_actions": K}).fingerprint == log.fingerprint
    assert cael.io.from_obp({**feedback, "n_actions": K}).eligible is None


# Policies


def keepers(log, scores):
    rng = np.random.default_rng(3)
    few = np.array([np.resize(np.flatnonzero(row)[:2], 2) for row in log.eligible.mask()])
    few[few[:, 0] == few[:, 1], 1] = -1
    shares = np.where(few >= 0, 0.3, 0.0)
    shares[log.eligible.sizes <= 2, 0] += 1 - shares[log.eligible.sizes <= 2].sum(axis=1)
    return [
        cael.Uniform(K), cael.Uniform(), cael.Softmax(scores, 0.5), cael.Softmax(scores[0]),
        cael.Softmax(lambda x: x @ np.ones((2, K)) * np.arange(K)), cael.EpsilonGreedy(scores, 0.2),
        cael.EpsilonGreedy(scores[0], 0.2), cael.TopK(few, shares, K, rest="uniform"),
        cael.FactorisedSoftmax(rng.random((2, 3)), rng.random((K, 3))),
        cael.Mixture([cael.Uniform(K), cael.EpsilonGreedy(scores, 0.1)], [0.3, 0.7]),
        cael.AmongEligible(cael.Tabular(np.full(K, 1 / K))),
        cael.AmongEligible(cael.Tabular(scores / scores.sum(axis=1, keepdims=True))),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(12))
def test_policies_keep_to_what_is_eligible(number):
    log, mask, scores = masked(120)
    policy = keepers(log, scores)[number]
    cael.testing.check_policy(policy, log)
    p = probabilities(policy, log.whole)
    assert (p[~mask] == 0).all()
    assert np.allclose(p.sum(axis=1), 1)
    assert (p[mask] > 0).all() or not isinstance(policy, cael.Uniform | cael.Softmax)
    every = np.tile(np.arange(K), (len(log), 1))
    assert np.allclose(probability_of(policy, log.whole, every), p)
    drawn = draw(policy, log.whole, np.random.default_rng(0).random((len(log), 20)))
    assert log.eligible.holds(drawn).all()


def test_policies_of_scores_are_those_of_the_eligible_actions_alone():
    """Row by row: the scores of the eligible actions as a problem of their own."""
    log, mask, scores = masked(40)
    for kind, settings_ in ((cael.Softmax, {"temperature": 0.3}), (cael.EpsilonGreedy, {"epsilon": 0.2})):
        p = probabilities(kind(scores, **settings_), log.whole)
        for i in range(len(log)):
            alone = cael.LoggedData(None, [0, 0], [0.0, 0.0], n_actions=int(mask[i].sum()))
            own = probabilities(kind(scores[i, mask[i]], **settings_), alone.whole)[0]
            assert np.allclose(p[i, mask[i]], own)


def test_a_blocked_factorised_policy_keeps_to_them_too(monkeypatch):
    log, mask, _ = masked(30)
    rng = np.random.default_rng(0)
    policy = cael.FactorisedSoftmax(rng.random((2, 3)), rng.random((K, 3)))
    whole = probability_of(policy, log.whole, np.tile(np.arange(K), (30, 1)))
    monkeypatch.setattr("cael.policies.factorised.BLOCK", 5)
    assert np.allclose(probability_of(policy, log.whole, np.tile(np.arange(K), (30, 1))), whole)
    assert (whole[~mask] == 0).all()
    assert log.eligible.holds(draw(policy, log.whole, rng.random((30, 50)))).all()


def test_what_a_list_leaves_is_shared_by_the_eligible_rest():
    log = cael.LoggedData(None, [0, 2], [0.0, 1.0], [0.5, 0.5], eligible=[[0, 1, 3], [0, 2]], n_actions=5)
    listed = cael.TopK([[0], [2]], [[0.4], [1.0]], 5, rest="uniform")
    assert np.allclose(probabilities(listed, log.whole), [[0.4, 0.3, 0, 0.3, 0], [0, 0, 1, 0, 0]])
    with pytest.raises(cael.PolicyError, match="no eligible action can take the rest"):
        probabilities(cael.TopK([[0, 1, 3], [2, -1, -1]], [[0.3, 0.2, 0.1], [1.0, 0, 0]], 5, rest="uniform"), log.whole)


EXPLICIT = [
    cael.Tabular(np.full(K, 1 / K)), cael.Tabular(np.full((300, K), 1 / K)), lambda x: np.full((len(x), K), 1 / K),
    cael.TopK(np.arange(300)[:, None] % K, np.ones((300, 1)), K),
    cael.Mixture([cael.Uniform(K), cael.Tabular(np.full(K, 1 / K))], [0.5, 0.5]),
]  # fmt: skip


@pytest.mark.parametrize("policy", EXPLICIT)
@pytest.mark.parametrize("estimator", [cael.IPS(), cael.DM(), cael.SNDR()])
def test_explicit_probabilities_of_other_actions_are_refused_and_not_scaled(policy, estimator):
    log, _, _ = masked(300)
    with pytest.raises(
        cael.PolicyError, match=r"plays actions that are not eligible in \d+ of 300 rows looked at"
    ) as e:
        estimator.estimate(log, policy)
    assert "AmongEligible" in str(e.value)
    estimator.estimate(cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities, n_actions=K), policy)


def test_the_error_counts_the_rows():
    log = cael.LoggedData(
        None, [0, 1, 0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.5], eligible=[[0, 1], [0, 1, 2], [0, 2]], n_actions=3
    )
    message = r"in 2 of 3 rows looked at \(rows 0, 2\): row 0 gives 0.2 to such actions, action 2 among them"
    with pytest.raises(cael.PolicyError, match=message):
        cael.IPS().estimate(log, [0.5, 0.3, 0.2])


def test_a_list_may_name_other_actions_without_probability():
    log = cael.LoggedData(None, [0, 1], [0.0, 1.0], [0.5, 0.5], eligible=[[0], [1]])
    listed = support(cael.TopK([[0, 1], [0, 1]], [[1.0, 0.0], [0.0, 1.0]], 2), log.whole)
    assert (listed.actions == [[0, -1], [-1, 1]]).all()


# Every number against a log that needs no sets: the same probabilities, with zeros, as explicit tables


ESTIMATORS = [
    *cael.panel(),
    cael.SubGaussianDR(), cael.SwitchDR(), cael.DRos(), cael.BaselineIPS(), cael.MIPS(embeddings=np.arange(K) % 4),
    cael.DM(cael.Logistic()), cael.DM(cael.Sampled(cael.Logistic(), 4)),
]  # fmt: skip


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("uniform", [False, True])
def test_estimates_are_those_of_explicit_tables(estimator, uniform):
    log = WORLD.sample(400, 1)
    policy = cael.Uniform(K) if uniform else WORLD.target
    mu, pi = (probabilities(each, log.whole) for each in (log.logging, policy))
    plain = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=mu, timestamps=log.timestamps)
    mine, other = estimator.estimate(log, policy), estimator.estimate(plain, pi)
    if isinstance(getattr(estimator, "outcome", None), cael.Sampled) and uniform:  # other draws of the same mean
        assert abs(mine.value - other.value) < 3 * mine.stderr
        return
    assert np.isclose(mine.value, other.value, rtol=1e-9, atol=1e-12)
    assert np.isclose(mine.stderr, other.stderr, rtol=1e-9, atol=1e-12)
    assert np.allclose(mine.contributions, other.contributions, rtol=1e-7, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("candidates", ["all", 4])
def test_cael_is_that_of_explicit_tables(candidates):
    pytest.importorskip("torch")
    log = WORLD.sample(400, 1)
    quick = cael.CAEL(growth=cael.Growth(steps=20, penalties=(1.5,)), candidates=candidates)
    mu, pi = (probabilities(each, log.whole) for each in (log.logging, WORLD.target))
    plain = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=mu, timestamps=log.timestamps)
    mine, other = quick.estimate(log, WORLD.target), quick.estimate(plain, pi)
    assert np.isclose(mine.value, other.value, rtol=1e-6)
    assert np.isclose(mine.stderr, other.stderr, rtol=1e-6)
    listed = quick.estimate(log, cael.Uniform(K))  # what has a rest is drawn among the eligible actions
    assert abs(listed.value - cael.SNDR().estimate(log, cael.Uniform(K)).value) < 5 * listed.error


def test_a_plan_is_that_of_the_places_in_the_sets():
    """Sets of one size: actions numbered within them make a log of so many actions."""
    rng = np.random.default_rng(0)
    n, k, size = 2000, 7, 3
    sets = np.array([np.sort(rng.permutation(k)[:size]) for _ in range(n)])
    place = rng.integers(0, size, n)
    mu, rewards = rng.dirichlet([3.0, 2.0, 1.0], n)[np.arange(n), place], rng.random(n) + place
    log = cael.LoggedData(None, sets[np.arange(n), place], rewards, mu, eligible=sets, n_actions=k)
    within = cael.LoggedData(None, place, rewards, mu, n_actions=size)
    target = cael.LoggedOnly(rng.random(n))
    mine, other = cael.plan(log, target, lift=0.1), cael.plan(within, target, lift=0.1)
    assert [option.rows for option in mine.options] == [option.rows for option in other.options]
    assert np.allclose([option.cost for option in mine.options], [option.cost for option in other.options])
    wrong = cael.plan(cael.LoggedData(None, log.actions, rewards, mu, n_actions=k), target, lift=0.1)
    assert [option.rows for option in mine.options] != [option.rows for option in wrong.options]


def test_a_plan_counts_what_is_never_played_by_the_sets():
    """The unseen term counts each row by the number of its eligible actions."""
    log = WORLD.sample(300, 0)
    top = probabilities(cael.EpsilonGreedy(WORLD.z, 0.0), log.whole)
    uniform = log.eligible.mask() / log.eligible.sizes[:, None]
    spared = np.where(top > 0, 0.0, uniform)
    spared[spared.sum(axis=1) == 0] = uniform[spared.sum(axis=1) == 0]
    spared /= spared.sum(axis=1, keepdims=True)
    kept = np.flatnonzero(spared[np.arange(300), log.actions] > 0)
    part = log.take(kept)
    barred = cael.LoggedData(part.contexts, part.actions, part.rewards, logging=spared[kept], eligible=part.eligible)
    from cael.estimators.problem import Problem
    from cael.results.planning import _unseen

    policy = cael.Tabular(probabilities(WORLD.target, barred.whole))
    pi, never = probabilities(policy, barred.whole), spared[kept] <= 0
    expected = (np.where(never, pi**2, 0.0).sum(axis=1) * barred.eligible.sizes).mean()
    assert np.isclose(_unseen(Problem(barred, policy)), expected)


# Checks


def logs(gamma, n, **settings_):
    """A catalogue log with its sets, the same with logged propensities alone, and without the sets; and the world."""
    world = cael.worlds.CatalogueWorld(gamma=gamma, **settings_)
    log = world.sample(n, 2)
    columns = (log.contexts, log.actions, log.rewards, log.propensities)
    only = cael.LoggedData(*columns, timestamps=log.timestamps, eligible=log.eligible)
    without = cael.LoggedData(*columns, timestamps=log.timestamps, n_actions=log.n_actions)
    return world, log, only, without


def passes(world, log):
    """The audit passes, the verdict is ok, and the interval holds the truth."""
    audit = cael.audit(log)
    assert audit.status == "pass", audit
    evaluation = cael.evaluate(log, world.target, learn=False)
    assert evaluation.verdict.level == "ok", evaluation.verdict
    assert world.value(world.target) in evaluation[evaluation.headline].interval(0.99)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_a_catalogue_log_passes_with_its_sets_and_says_what_is_missing_without(gamma):
    world, log, only, without = logs(gamma, 8000, n_actions=20, days=10)
    for each in (log, only):
        passes(world, each)
    audit = cael.audit(without)
    assert audit.status == "fail"
    for sentence in (audit["frequencies"].sentence, verdict_sentence(without, world, "frequencies")):
        assert "come and go" in sentence
        assert "--eligible" in sentence
    assert "the role eligible" in audit["sums"].sentence
    assert cael.evaluate(without, cael.AmongEligible(world.target), learn=False).verdict.level == "refuse"


def test_actions_that_are_hardly_ever_played_elsewhere_are_no_refusal():
    """Propensities of 0.002 on half of the rows: no such row shows the action, and the log is sound."""
    rng, n = np.random.default_rng(4), 500
    left = rng.random(n) < 0.5
    first = np.where(left, 0.9, 0.0005)
    actions = np.where(rng.random(n) < first, 0, 1 + (rng.random(n) < 0.5))
    propensities = np.where(actions == 0, first, (1 - first) / 2)
    assert (left | (actions > 0)).all()
    log = cael.LoggedData(left[:, None] * 1.0, actions, rng.random(n), propensities, n_actions=3)
    near = np.stack([0.98 * first, *2 * [(1 - 0.98 * first) / 2]], axis=1)
    verdict = cael.evaluate(log, cael.Tabular(near), learn=False).verdict
    found = next(check for check in verdict.checks if check.name == "frequencies")
    assert found.status == "warn" and "hardly ever played" in found.sentence
    halved = cael.LoggedData(log.contexts, actions, log.rewards, propensities / 2, n_actions=3)
    wrong = cael.evaluate(halved, cael.Tabular(near), learn=False).verdict
    assert next(check for check in wrong.checks if check.name == "frequencies").status == "fail"


def verdict_sentence(log, world, name):
    verdict = cael.evaluate(log, world.target, learn=False).verdict
    return next(check.sentence for check in verdict.checks if check.name == name)


@pytest.mark.long
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_the_catalogue_log_of_the_issue(gamma):
    world, log, only, without = logs(gamma, 60_000)
    for each in (log, only):
        passes(world, each)
    assert "come and go" in cael.audit(without)["frequencies"].sentence
    assert cael.evaluate(without, world.target, learn=False).verdict.level == "refuse"


def test_propensities_that_are_wrong_are_still_seen_and_not_blamed_on_the_sets():
    _, log, _, _ = logs(1.0, 8000, n_actions=20, days=10)
    swapped = np.random.default_rng(0).permutation(log.propensities)
    wrong = cael.LoggedData(log.contexts, log.actions, log.rewards, swapped, eligible=log.eligible)
    assert cael.audit(wrong).status == "fail"
    assert "come and go" not in cael.audit(wrong)["frequencies"].sentence
    small = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities / 4, n_actions=20)
    assert cael.audit(small)["frequencies"].status == "fail"  # too many rows of each action, not too few
    assert "come and go" not in cael.audit(small)["frequencies"].sentence


def test_rounded_propensities_of_even_sets_pass():
    """1 / propensity is nearly the size of the set: what is left is rounding, however small its spread."""
    _, _, only, _ = logs(0.0, 8000, n_actions=20, days=10)
    columns = (only.contexts, only.actions, only.rewards)
    for digits, passes_ in ((5, True), (4, True), (1, False)):
        rounded = np.round(only.propensities, digits)
        audit = cael.audit(cael.LoggedData(*columns, rounded, eligible=only.eligible, timestamps=only.timestamps))
        assert (audit["sums"].status == "pass") == passes_, audit["sums"]
        assert (audit["periods"].status == "pass") == passes_, audit["periods"]


def test_inverse_propensities_average_the_share_of_rows_on_which_an_action_was_eligible():
    """The test of each action is calibrated: p-values are uniform where the propensities are right."""
    world, p_values = cael.worlds.CatalogueWorld(n_actions=10, days=6, population=5), []
    for seed in range(40):
        log = world.sample(1500, seed)
        answer = counted(cael.LoggedData(None, log.actions, log.rewards, log.propensities, eligible=log.eligible))
        actions = judging.tested_actions(answer, judging.survey_of(answer), DEFAULT)
        p_values += actions.p_values[actions.tested].tolist()
        assert np.allclose(answer.partial.actions.eligible, log.eligible.mask().sum(axis=0))
        assert not judging.setless(answer)
    share = np.mean(np.array(p_values) < 0.1)
    assert len(p_values) > 300
    assert abs(share - 0.1) < 4 * np.sqrt(0.1 * 0.9 / len(p_values))


def test_planted_logs_keep_their_sets():
    log = WORLD.sample(400, 0)
    for kind in ("additive", "fitted"):
        planted, truth = plant(log, WORLD.target, kind, np.random.default_rng(0), redraw=True)
        assert planted.eligible.holds(planted.actions[:, None]).all()
        assert np.isfinite(truth)
    result = cael.calibrate(log, WORLD.target, [cael.SNIPS()], repeats=5)
    assert result.redrawn
    odd = (log.actions + 1) % K
    with pytest.raises(cael.LogError, match="does not list the logged action"):
        log.replanted(odd, log.rewards, np.full(400, 0.5))


def test_an_estimated_logging_policy_keeps_to_the_sets_and_is_nearer_to_the_truth():
    world = cael.worlds.CatalogueWorld(n_actions=12, days=5, population=10, gamma=2.0)
    log = world.sample(3000, 1)
    mask, mu = log.eligible.mask(), probabilities(log.logging, log.whole)
    p = probabilities(cael.estimate_logging(log), log.whole)
    assert (p[~mask] == 0).all()
    plain = cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=12)
    blind = probabilities(cael.estimate_logging(plain), plain.whole)
    assert np.abs(p - mu)[mask].mean() < 0.3 * np.abs(blind - mu)[mask].mean()
    bare = cael.LoggedData(None, log.actions, log.rewards, eligible=log.eligible, n_actions=12)
    assert (probabilities(cael.estimate_logging(bare), bare.whole)[~mask] == 0).all()


def test_a_logging_policy_that_disagrees_mentions_the_sets():
    log = WORLD.sample(300, 0)
    with pytest.raises(cael.LogError, match=r"say which were eligible \(eligible=, --eligible\)"):
        cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities, logging=log.logging, n_actions=K)


def test_a_guarantee_allows_for_small_sets():
    """A uniform target plays a small set with more than 1 / k: the largest weight possible is not that of k actions."""
    log = WORLD.sample(300, 0)
    mixed = cael.Mixture([cael.Uniform(K), WORLD.logging], [0.5, 0.5])
    chosen = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=mixed, eligible=log.eligible)
    most = cael.IPS().estimate(chosen, cael.Uniform(K)).score_range.max_weight
    assert most >= (1 / log.eligible.sizes / chosen.propensities).max()
