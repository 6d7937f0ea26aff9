"""Weighted likelihood: what it learns, what it does not depend on, and its marginal weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.engine.asking import as_engine_log
from cael.learning.evidence import gathered
from cael.learning.likelihood import ALTERNATIVES, choices_of
from cael.learning.plays import tilted
from cael.policies.policy import probabilities
from cael.worlds import MixedWorld, Play
from tests.learning.conftest import QUICK

ALL = np.ones(2000, dtype=bool)


def evidence_of(k, noise="normal", play="uniform", rows=1500):
    world = MixedWorld("linear", noise, Play(play, 0.8), n_actions=k, context_dim=3, reward_std=0.3, rate=0.2, seed=5)
    log = as_engine_log(world.sample(rows, 3)).log
    return world, gathered(log, log.logging, QUICK, 5, 0, exact=True)


@pytest.mark.parametrize("k", [5, 60])
def test_it_earns_more_than_the_old_policy_with_all_actions_and_with_draws(k):
    world, evidence = evidence_of(k)
    choices = choices_of(evidence, 0)
    assert choices.listed.shape[1] == min(k, ALTERNATIVES)
    scores = choices.fitted(ALL[: len(choices.rows)])
    batch, old = evidence.log.whole, probabilities(evidence.old, evidence.log.whole)
    p = tilted(scores.scores(batch), old, 1.0)
    q = world.q(evidence.log.contexts)
    assert (p * q).sum(axis=1).mean() > (old * q).sum(axis=1).mean() + 0.4


def test_it_does_not_depend_on_the_unit_of_the_rewards_nor_on_a_constant():
    _, evidence = evidence_of(6)
    log = evidence.log
    other = cael.LoggedData(log.contexts, log.actions, 10 * log.rewards + 3, logging=log.logging)
    scaled = replace(evidence, log=other, table=(10 * evidence.table + 3).astype(np.float32))
    keep = ALL[: len(log)]
    one, two = (choices_of(each, 0).fitted(keep) for each in (evidence, scaled))
    np.testing.assert_allclose(one.slope, two.slope, atol=2e-2)
    np.testing.assert_allclose(one.constant, two.constant, atol=2e-2)


def test_where_no_row_earned_more_the_old_policy_is_played():
    _, evidence = evidence_of(5)
    choices = choices_of(evidence, 0)
    scores = choices.fitted(np.zeros(len(choices.rows), dtype=bool))
    assert not scores.slope.any()
    assert not scores.constant.any()


def test_what_is_learned_does_not_look_at_the_rows_that_are_left_out():
    _, evidence = evidence_of(60, "clicks", "popular")
    choices = choices_of(evidence, 0)
    keep = choices.rows % 3 > 0
    gain = np.where(keep, choices.gain, 7.0)
    np.testing.assert_array_equal(choices.fitted(keep).slope, replace(choices, gain=gain).fitted(keep).slope)


def test_marginal_weights_are_one_on_average_and_vary_less_than_those_of_actions():
    _, evidence = evidence_of(60)
    choices = choices_of(evidence, 0)
    scores = choices.fitted(ALL[: len(choices.rows)])
    old = probabilities(evidence.old, evidence.log.whole)
    rows = np.arange(len(evidence.log))
    weights = choices._marginal(scores)
    plain = (
        tilted(scores.scores(evidence.log.whole), old, 1.0)[rows, evidence.log.actions]
        / old[rows, evidence.log.actions]
    )
    assert abs(weights.mean() - 1) < 4 * weights.std() / np.sqrt(len(rows))
    assert (weights**2).mean() < 0.95 * (plain**2).mean()
