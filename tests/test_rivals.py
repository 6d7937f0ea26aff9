"""OffCEM, MDR, and the estimators made of others: what their formulas promise, and what happens at the edges."""

import numpy as np
import pytest

import cael
from cael import InputError, NeedsError
from cael.engine.asking import Asking, as_engine_log, ask
from cael.estimators.combined import CONDITION, least, needed
from cael.estimators.grouping import kmeans, profiles, standardised
from tests.streaming.test_equal import same
from tests.streaming.test_marginal import in_memory, scanned

WORLD = cael.worlds.OffCEMWorld(n_actions=60, n_clusters=6, population=50, reward_std=0.5, gamma=0.0)
LOG = WORLD.sample(4000, seed=0)
TRUTH = WORLD.value(WORLD.target)


def residual(contexts):
    """h: right about the differences inside a cluster, and silent about the clusters."""
    return WORLD.q(contexts) - WORLD.effects(contexts)[:, WORLD.clusters]


def between(contexts):
    """g: right about the clusters, and silent about the differences inside of them."""
    return WORLD.effects(contexts)[:, WORLD.clusters]


def test_offcem_is_unbiased_if_the_model_is_right_inside_clusters_and_only_then():
    """h alone is enough, with a smaller error than DR; g alone is not, however right it is about the clusters."""
    right, wrong = (cael.OffCEM(WORLD.clusters, outcome=cael.FixedOutcome(f)) for f in (residual, between))
    robust = cael.DR(cael.FixedOutcome(residual)).estimate(LOG, WORLD.target)
    found = right.estimate(LOG, WORLD.target)
    assert abs(found.value - TRUTH) < 4 * found.stderr
    assert found.stderr < 0.7 * robust.stderr
    biased = wrong.estimate(LOG, WORLD.target)
    assert abs(biased.value - TRUTH) > 10 * biased.stderr


def test_mdr_is_right_about_what_the_embedding_misses():
    """MIPS sees the clusters only and is biased; with h for an outcome model it is not."""
    weights = cael.MIPS(WORLD.clusters, posterior="exact")
    alone = weights.estimate(LOG, WORLD.target)
    found = cael.MDR(weights, cael.FixedOutcome(residual)).estimate(LOG, WORLD.target)
    assert abs(alone.value - TRUTH) > 4 * alone.stderr
    assert abs(found.value - TRUTH) < 4 * found.stderr


def groups_of(estimator, log=LOG, policy=WORLD.target):
    held = as_engine_log(log)
    return estimator.groups(Asking(held, (held.target(policy),), 0.0))


def test_learned_clusters_are_those_of_what_the_model_predicts():
    """An outcome model that knows g finds the clusters of the world; each fold has the clusters of its own model."""
    groups = groups_of(cael.OffCEM(count=6, outcome=cael.FixedOutcome(between)))
    assert groups.shape == (1, 60)
    pairs = set(zip(groups[0].tolist(), WORLD.clusters.tolist(), strict=True))
    assert len(pairs) == 6
    model = cael.Ridge(1.0)
    by_fold = groups_of(cael.OffCEM(count=4, outcome=model, folds=3, seed=2))
    for group, rows in zip(by_fold, LOG.folds(3, 2), strict=True):
        fitted = model.fit(LOG.take(np.setdiff1d(np.arange(len(LOG)), rows)), 2)
        own = kmeans(profiles(fitted, LOG), 4, 2)
        np.testing.assert_array_equal(group[:, None] == group, own[:, None] == own)


def test_rows_are_weighted_by_the_clusters_of_their_own_fold():
    """By hand, from the clusters of the folds; with those of one fold for all the answer is another."""
    estimator = cael.OffCEM(count=4, outcome=cael.Ridge(), folds=3)
    log, policy = cael.testing.example()
    groups, k = groups_of(estimator, log, policy), log.n_actions
    pi, mu = (np.concatenate([each.probabilities(b) for b in log.batches(k)]) for each in (policy, log.logging))
    w, one = np.empty(len(log)), np.empty(len(log))
    for fold, rows in enumerate(log.folds(3, 0)):
        for i in rows:
            for weights, group in ((w, groups[fold]), (one, groups[0])):
                same = group == group[log.actions[i]]
                weights[i] = pi[i, same].sum() / mu[i, same].sum()
    terms = cael.outcomes.outcome_terms(log, policy, cael.Ridge(), 3, 0)
    left = log.rewards - terms.q_logged
    found = estimator.estimate(log, policy).value
    assert found == pytest.approx((terms.q_target + w * left).mean())
    assert found != pytest.approx((terms.q_target + one * left).mean())


def test_features_find_clusters_that_they_show_whatever_their_units():
    features = np.column_stack([1e6 * WORLD.clusters, np.random.default_rng(0).normal(size=60), np.ones(60)])
    groups = kmeans(standardised(np.eye(6)[WORLD.clusters] * 1e3), 6, 0)
    assert len(set(zip(groups.tolist(), WORLD.clusters.tolist(), strict=True))) == 6
    assert np.abs(standardised(features)).max() < 5
    assert set(kmeans(np.ones((5, 2)), 3, 0)) == {0}
    assert sorted(kmeans(np.array([[0.0], [1.0], [1.0]]), 3, 0)) in ([0, 0, 1], [0, 1, 1])


def test_names_say_what_is_not_usual():
    assert cael.OffCEM().name == "OffCEM"
    assert cael.OffCEM([0, 1], self_normalised=True).name == "SNOffCEM(given)"
    assert cael.OffCEM("features", 5, cael.Boosting()).name.startswith("OffCEM(features, 5, Boosting(")
    assert cael.MDR(cael.MIPS(posterior="exact", self_normalised=True)).name == "SNMDR(exact)"
    assert cael.MetaOPE().name == "MetaOPE" and cael.OPERA(seed=3).name == "OPERA(seed=3)"
    assert cael.OCV([cael.IPS(), cael.DM()], cael.IPS(), 4).name == "OCV(IPS, DM, validator=IPS, splits=4)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cael.OffCEM("best"), "clusters must be one of"),
        (lambda: cael.OffCEM([0.5, 1.0]), "clusters must be whole numbers"),
        (lambda: cael.OffCEM(count=0), "count"),
        (lambda: cael.OffCEM([0, 1]).estimate(LOG, WORLD.target), "one entry per action, 60; got 2"),
        (lambda: cael.MetaOPE([cael.IPS()]), "at least two candidate"),
        (lambda: cael.OPERA([cael.IPS(), 3]), "at least two candidate"),
        (lambda: cael.MetaOPE(shrinkage=1.5), "shrinkage must be in"),
        (lambda: cael.OPERA(resamples=1), "resamples"),
        (lambda: cael.OCV(splits=1), "splits"),
    ],
)
def test_wrong_settings_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_clusters_of_features_need_features():
    log = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, logging=LOG.logging)
    with pytest.raises(InputError, match="needs action_features in the log"):
        cael.OffCEM("features").estimate(log, WORLD.target)
    with pytest.raises(NeedsError, match="all probabilities of the logging policy"):
        cael.OffCEM().estimate(cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards), WORLD.target)


def test_the_least_variance_is_that_of_no_other_weights():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    errors = root @ root.T
    shares = least(errors)
    assert shares.sum() == pytest.approx(1)
    for _ in range(50):
        other = shares + (move := rng.normal(size=4)) - move.mean()
        assert other @ errors @ other > shares @ errors @ shares


def test_shrinkage_ends_at_weights_by_inverse_variance_and_starts_where_the_matrix_is_singular():
    errors = np.array([[4.0, 1.9], [1.9, 1.0]])
    np.testing.assert_allclose(least(errors, 1.0), [0.2, 0.8])
    assert needed(np.eye(3)) == 0
    singular = np.ones((3, 3))
    share = needed(singular)
    low, high = np.linalg.eigvalsh((1 - share) * singular + share * np.eye(3))[[0, -1]]
    assert low / high == pytest.approx(CONDITION, rel=1e-3)
    np.testing.assert_allclose(least(singular), np.full(3, 1 / 3))
    np.testing.assert_allclose(least(np.diag([0.0, 2.0, 0.0])), [0.5, 0.0, 0.5])


def test_without_shrinkage_no_candidate_has_a_smaller_standard_error():
    log, policy = cael.testing.example()
    meta = cael.MetaOPE(shrinkage=0.0).estimate(log, policy)
    assert meta.stderr <= min(each.estimate(log, policy).stderr for each in cael.MetaOPE().candidates)
    assert meta.error >= meta.diagnostics.stderr_floor > meta.stderr  # it is too good to be true, and the floor says so
    assert "takes these weights as fixed" in meta.diagnostics.warnings[-1]


def scores_of(estimator, log, policy):
    answer = ask(as_engine_log(log), {"": policy}, [estimator], controls=None)
    return estimator.scores(answer.parts[0].looked(answer))


def test_ocv_avoids_a_biased_candidate_where_the_validator_can_tell():
    """The mean of the log is far off; the unbiased candidate is taken, and a note shows what was compared."""
    ocv = cael.OCV([cael.LoggedMean(), cael.SNIPS()], validator=cael.IPS())
    chosen = ocv.estimate(LOG, WORLD.target)
    assert chosen.value == cael.SNIPS().estimate(LOG, WORLD.target).value
    assert chosen.diagnostics.choices == 2
    biased, unbiased = scores_of(ocv, LOG, WORLD.target)
    assert biased > 4 * unbiased
    assert f"LoggedMean {biased**0.5:.3g}, SNIPS {unbiased**0.5:.3g}" in chosen.diagnostics.warnings[-1]
    # control: where the target is the logging policy the two are the same, but for the rounding of the sizes of parts
    biased, unbiased = scores_of(ocv, LOG, LOG.logging)
    assert biased == pytest.approx(unbiased, rel=0.2)


def test_clusters_of_rows_are_resampled_whole():
    """Each row three times over, as a cluster: the bootstrap must see the variance of a third of the rows."""
    log, policy = cael.testing.example()
    rows = np.repeat(np.arange(len(log)), 3)
    tripled = cael.LoggedData(
        log.contexts[rows], log.actions[rows], log.rewards[rows], log.propensities[rows], clusters=rows,
        logging=cael.Tabular(np.concatenate([log.logging.probabilities(b) for b in log.batches(8)])[rows]),
    )  # fmt: skip
    target = np.concatenate([policy.probabilities(b) for b in log.batches(8)])[rows]
    for estimator in (cael.MetaOPE([cael.IPS(), cael.SNIPS()]), cael.OPERA([cael.IPS(), cael.SNIPS()])):
        once, thrice = estimator.estimate(log, policy), estimator.estimate(tripled, target)
        assert thrice.stderr == pytest.approx(once.stderr, rel=0.05)


@pytest.mark.parametrize("estimator", [cael.OffCEM(), cael.MDR(), cael.MetaOPE(), cael.OPERA(), cael.OCV()])
def test_they_stand_in_segments_and_comparisons(estimator):
    """Segments have the mean of the rows in them, and a policy has no lift over itself."""
    log, policy = cael.testing.example()
    labels = np.where(log.contexts[:, 0] > 0.5, "high", "low")
    found = cael.segments(log, policy, labels, estimator=estimator)
    whole = estimator.estimate(log, policy)
    shares = np.array([row.rows for row in found.rows]) / len(log)
    assert shares @ [row.value for row in found.rows] == pytest.approx(whole.value, rel=1e-6)
    compared = cael.compare(log, {"target": policy, "again": policy}, estimator)
    assert compared["target"].estimate.value == compared["again"].estimate.value == pytest.approx(whole.value)


GROUPS = np.arange(20) % 4
RIVALS = [
    cael.OffCEM(GROUPS), cael.OffCEM(count=3), cael.OffCEM("features", 3, self_normalised=True),
    cael.MDR(cael.MIPS(GROUPS, posterior="exact")), cael.MetaOPE(), cael.OPERA(), cael.OCV(),
]  # fmt: skip


@pytest.mark.parametrize(("n", "clusters"), [(600, None), (1500, None), (600, 90)])
def test_a_log_in_files_has_the_answer_of_memory(tmp_path, n, clusters):
    """More rows than buckets, too, and clusters."""
    there, _, _ = scanned(tmp_path, n, clusters=clusters)
    found = cael.evaluate(there, "dense:pi", RIVALS, learn=False)
    for estimator in RIVALS:
        kept = estimator.estimate(in_memory(tmp_path, clusters), "dense:pi")
        same(found[estimator.name], kept)
        floor = kept.diagnostics.stderr_floor
        assert found[estimator.name].diagnostics.stderr_floor == pytest.approx(floor, rel=1e-6)
