"""Every exported estimator and policy obeys every law; the suite asserts that it found them all."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import cael
from cael import testing
from cael.common.lazy import exported

LOG, TARGET = testing.example()
N, K = len(LOG), LOG.n_actions
RNG = np.random.default_rng(3)
TABLE = RNG.dirichlet(np.ones(K), N)
LISTS = np.argsort(-TABLE, axis=1)[:, :3]


def three(contexts):
    return np.tanh(contexts[:, :1] + np.arange(3))


def flat(contexts):
    return np.full((len(contexts), K), 1 / K)


QUICK = cael.Training(iterations=12, batch_size=64)
SPARSE = cael.CAEL(growth=cael.Growth(steps=10, penalties=(1.5,), restarts=1))

ESTIMATORS = [
    *cael.panel("all"),
    cael.IPS(clip=2.0),
    cael.IPS(clip=cael.SLOPE([1.0, 2.0, 5.0])),
    cael.SNIPS(clip=2.0),
    cael.SubGaussianIPS(lambda_=cael.SLOPE()),
    cael.DM(cael.Ridge(0.1, "features"), folds=0),
    cael.DM(cael.Boosting(max_iter=2, max_leaf_nodes=4), folds=2),
    cael.DM(cael.SklearnOutcome(DecisionTreeRegressor(max_depth=3)), folds=2),
    cael.DM(cael.FixedOutcome(TABLE)),
    cael.DR(clip=cael.SLOPE()),
    cael.SwitchDR(tau=2.0),
    cael.DRos(lambda_=5.0),
    cael.SubGaussianDR(lambda_=0.1),
    cael.MIPS(offset=True, self_normalised=True),
    cael.MIPS(folds=2),
    cael.MIPS(np.arange(K) // 2, posterior="exact"),
    cael.SLOPE([cael.IPS(), cael.SNIPS(), cael.DR()]),
    cael.MDR(cael.MIPS(np.arange(K) // 2, posterior="exact", self_normalised=True), folds=2),
    cael.OffCEM(np.arange(K) // 3, outcome=cael.Boosting(max_iter=3), folds=2),
    cael.OffCEM("features", 3, self_normalised=True),
    cael.OffCEM("learned", 4, cael.Boosting(max_iter=3), folds=0),
    cael.MetaOPE([cael.SNIPS(), cael.BaselineIPS(), cael.OffCEM()], shrinkage=0.0),
    cael.OPERA([cael.DM(), cael.SNDR(), cael.SwitchDR()], resamples=50, seed=3),
    cael.OCV([cael.IPS(), cael.LoggedMean()], validator=cael.IPS(), splits=4),
    cael.CAELMIPS(training=QUICK),
    cael.CAELMIPS(preset="through-posterior", training=QUICK),
    cael.AELMIPS(),
    cael.NetworkDM(cael.NetworkOutcome(training=QUICK)),
    cael.DR(cael.NetworkOutcome(training=QUICK), folds=2),
    cael.SNDR(cael.Sampled(cael.Boosting(max_iter=5), size=2), folds=2),
    SPARSE,
    cael.Auto(learn=False),
    cael.Auto(cael=SPARSE),
]


def few_of(lists):
    return cael.TopK(lists, np.tile([0.5, 0.3, 0.2], (N, 1)), n_actions=K)


POLICIES = [
    cael.Uniform(K),
    cael.Uniform(),
    cael.Tabular(TABLE),
    cael.Tabular(TABLE[0]),
    cael.Tabular(TABLE.astype(np.float32), copy=False),
    cael.Softmax(RNG.normal(size=K), temperature=0.5),
    cael.Softmax(RNG.normal(size=(N, K))),
    cael.EpsilonGreedy(RNG.normal(size=(N, K)), epsilon=0.1),
    cael.EpsilonGreedy(RNG.normal(size=K), epsilon=0.3),
    cael.TopK(LISTS, np.take_along_axis(TABLE, LISTS, axis=1), n_actions=K, rest="uniform"),
    cael.TopK(LISTS, np.take_along_axis(TABLE, LISTS, axis=1), n_actions=K, rest="renormalise"),
    cael.TopK(LISTS, np.tile([0.5, 0.3, 0.2], (N, 1)), n_actions=K),
    cael.Mixture([cael.Uniform(K), cael.Tabular(TABLE)], [0.2, 0.8]),
    cael.Mixture([cael.Uniform(K), cael.EpsilonGreedy(RNG.normal(size=K), 0.2), few_of(LISTS)], [0.2, 0.3, 0.5]),
    cael.AmongEligible(TABLE),
    cael.AmongEligible(cael.Tabular(np.eye(K)[2])),
    cael.Tabular(np.eye(K)[2]),
    cael.FactorisedSoftmax(RNG.normal(size=(LOG.contexts.shape[1], 3)), RNG.normal(size=(K, 3)), temperature=0.7),
    cael.FactorisedSoftmax(three, RNG.normal(size=(K, 3))),
    cael.FromModel(flat),
    cael.FromModel(LogisticRegression().fit(LOG.contexts, LOG.actions)),
    cael.Choice(TABLE.argmax(axis=1)),
    cael.LoggedOnly(TABLE[:, 0]),
    cael.Mixture([cael.Uniform(K), cael.LoggedOnly(TABLE[:, 0])], [0.5, 0.5]),
    cael.estimate_logging(LOG),
]


def test_all_estimators_are_here():
    assert {type(each) for each in ESTIMATORS} == set(exported(cael.Estimator))


def test_all_policies_are_here():
    assert {type(each) for each in POLICIES} == set(exported(cael.Policy))


def test_all_outcome_models_are_used_somewhere():
    used = {type(each.outcome) for each in ESTIMATORS if hasattr(each, "outcome")}
    assert set(exported(cael.OutcomeModel)) - used == {cael.Logistic}  # needs rewards 0 and 1: tests/test_outcomes.py


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.name)
def test_estimator(estimator):
    testing.check_estimator(estimator, LOG, TARGET)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.name)
def test_estimator_with_clusters(estimator):
    testing.check_estimator(estimator, *testing.example(clusters=True))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_policy(policy):
    testing.check_policy(policy, LOG)


@pytest.mark.parametrize("law", testing.LAWS_OF_ESTIMATORS, ids=lambda law: law.__name__)
def test_each_law_can_be_broken(law):
    """Negative control: a lawless estimator breaks at least the law under test."""
    from tests.laws.lawless import LAWLESS

    log, policy = testing.example()  # a fresh log: one of the lawless changes it
    with pytest.raises((AssertionError, cael.InputError)):
        law(LAWLESS[law.__name__], log, policy)


@pytest.mark.parametrize("law", testing.LAWS_OF_POLICIES, ids=lambda law: law.__name__)
def test_each_law_of_policies_can_be_broken(law):
    from tests.laws.lawless import LAWLESS_POLICIES

    with pytest.raises((AssertionError, cael.PolicyError)):
        law(LAWLESS_POLICIES[law.__name__], LOG)
