"""learn: what ships, what is kept, what the certificate rests on, and what a policy keeps to."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.engine.asking import as_engine_log
from cael.errors import InputError, LogError, NeedsError
from cael.learning import learner, split
from cael.learning.evidence import most_rows
from cael.learning.limits import Limits
from cael.learning.rules import KEEP, TreeRule
from cael.policies.policy import Uniform, probabilities
from cael.worlds import MixedWorld, Play

EVERY = np.arange(1200)


def parts(log, seed=0):
    """Rows that learn, and rows that certify."""
    cut = split.split_of(as_engine_log(log), learner.CERTIFY, most_rows(log.n_actions, cael.Growth()), seed)
    return cut.learn.row_numbers, cut.certificate.log.row_numbers


def with_rewards(log, rewards):
    return cael.LoggedData(log.contexts, log.actions, rewards, logging=log.logging, n_actions=log.n_actions)


def same(one, other, log):
    return np.array_equal(probabilities(one.policy, log.whole), probabilities(other.policy, log.whole))


@pytest.fixture(scope="module")
def shipped(log):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "Growth", lambda budget=None: cael.Growth(steps=30, penalties=(1.5,), restarts=1))
        return cael.learn(log)


def test_a_better_policy_is_shipped_and_is_better(world, log, shipped):
    old = world.value(world.logging)
    assert shipped.decision == "ship"
    assert shipped.ships
    assert shipped.reasons == ()
    assert world.value(shipped.policy) > old + 0.3
    assert shipped.bound > 0
    assert shipped.bound == shipped.evaluation.lift.interval(0.9).low
    assert abs(world.value(shipped.policy) - old - shipped.lift.value) < 4 * shipped.lift.error


def test_rows_that_learn_and_rows_that_certify_are_all_rows_once(log, shipped):
    learn, certify = parts(log)
    assert np.array_equal(np.sort(np.concatenate([learn, certify])), EVERY)
    assert shipped.rows == len(learn)
    assert shipped.evaluation.best.n == len(certify)


def test_rewards_of_the_certificate_change_the_certificate_alone(log):
    learn, certify = parts(log)
    rng = np.random.default_rng(0)
    first = cael.learn(log)
    for rows, alike in ((certify, True), (learn, False)):
        rewards = log.rewards.copy()
        rewards[rows] = rng.permutation(rewards[rows])
        other = cael.learn(with_rewards(log, rewards))
        assert same(first, other, log) == alike
        assert first.lift.value != other.lift.value
        assert (first.path == other.path) == alike


def test_the_same_seed_gives_the_same_answer_and_another_seed_another_one(log):
    first, again, other = (cael.learn(log, seed=seed) for seed in (0, 0, 1))
    assert first.to_json() == again.to_json()
    assert same(first, again, log)
    assert first.lift.value != other.lift.value


def test_what_is_learned_pickles(log, shipped):
    copy = pickle.loads(pickle.dumps(shipped))
    assert copy.to_json() == shipped.to_json()
    assert same(copy, shipped, log)


def test_where_nothing_is_better_the_old_policy_is_kept_with_reasons():
    world = MixedWorld("none", "normal", Play("uniform"), n_actions=6, context_dim=3, context_share=0.5, seed=4)
    learned = cael.learn(world.sample(800, 2))
    assert learned.decision == "keep"
    assert learned.reasons
    assert "Keep the old policy" in learned.sentence()


def test_a_floor_of_the_lift_is_what_the_bound_must_exceed(log, shipped):
    between = (shipped.evaluation.lift.value - shipped.bound) / 2
    assert between > 0
    below, above = (cael.learn(log, min_lift=shipped.bound + step) for step in (-0.2, between))
    assert below.decision == "ship"
    assert above.decision == "keep"
    assert "lower bound" in " ".join(above.reasons)
    assert above.plan is None or above.plan.lift > 0


@pytest.mark.parametrize("most", [0.1, 0.4])
def test_no_more_decisions_change_than_may(log, most):
    learned = cael.learn(log, max_changed=most)
    new, old = probabilities(learned.policy, log.whole), probabilities(log.logging, log.whole)
    changed = np.maximum(new - old, 0).sum(axis=1)[parts(log)[1]].mean()
    assert most / 2 < changed <= most
    assert learned.changed <= most


def test_exploration_is_kept_for_every_action(log):
    learned = cael.learn(log, explore=0.2)
    assert probabilities(learned.policy, log.whole).min() >= 0.2 / log.n_actions - 1e-12
    both = cael.learn(log, explore=0.1, max_changed=0.3)
    p = probabilities(both.policy, log.whole)
    assert p.min() >= 0.1 / log.n_actions - 1e-12
    assert np.maximum(p - probabilities(log.logging, log.whole), 0).sum(axis=1).mean() <= 0.3


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_actions_are_advised_than_may(log, most):
    learned = cael.learn(log, max_actions=most)
    assert len(np.flatnonzero(probabilities(learned.policy, log.whole).sum(axis=0))) <= most


def test_only_eligible_actions_are_played():
    rng = np.random.default_rng(5)
    mask = rng.random((900, 6)) < 0.6
    mask[np.arange(900), rng.integers(0, 6, 900)] = True
    actions = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
    x = rng.standard_normal((900, 2))
    rewards = x[:, 0] * (actions < 3) + 0.3 * rng.standard_normal(900)
    log = cael.LoggedData(x, actions, rewards, logging=Uniform(6), n_actions=6, eligible=mask)
    learned = cael.learn(log, explore=0.1)
    p = probabilities(learned.policy, log.whole)
    assert p[~mask].max() == 0
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_logged_propensities_are_enough(world, log):
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, log.propensities, n_actions=log.n_actions)
    learned = cael.learn(bare)
    assert learned.decision == "ship"
    assert world.value(learned.policy) > world.value(world.logging) + 0.3
    assert any("fitted" in note for note in learned.notes)


def test_without_propensities_it_says_what_to_do_and_with_estimated_ones_that_they_are(log):
    bare = cael.LoggedData(log.contexts, log.actions, log.rewards, n_actions=log.n_actions)
    with pytest.raises(NeedsError, match="logging='estimate'"):
        cael.learn(bare)
    known = bare.with_logging(cael.estimate_logging(bare))
    estimated = cael.LoggedData(bare.contexts, bare.actions, bare.rewards, logging=known.logging)
    learned = cael.learn(estimated)
    assert any("estimated" in note for note in learned.notes)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"candidates": []}, "at least one kind"),
        ({"candidates": ["forest"]}, "candidates must be one of"),
        ({"certify": 0.99}, "certify"),
        ({"max_changed": 0.0}, "max_changed"),
        ({"explore": 1.0}, "explore"),
        ({"min_lift": -1.0}, "min_lift"),
        ({"level": 0.4}, "level"),
        ({"max_actions": 0}, "max_actions"),
        ({"depth": 0}, "depth"),
    ],
)
def test_options_that_cannot_be_are_refused(log, options, match):
    with pytest.raises(InputError, match=match):
        cael.learn(log, **options)


def test_exploration_that_changes_more_than_may_is_refused():
    with pytest.raises(InputError, match="Explore less"):
        Limits(explore=0.9, max_changed=0.05).share(0.5, 0.5, 100)


def test_a_log_that_is_too_short_is_refused():
    log, _ = cael.testing.example()
    with pytest.raises(LogError, match="at least 40"):
        cael.learn(log.take(np.arange(70)))


def test_a_tree_says_in_words_what_it_does(log):
    learned = cael.learn(log, candidates=["tree"])
    rule = learned.policy.rule
    assert isinstance(rule, TreeRule)
    assert rule.depth <= 2
    text = learned.explain()
    assert text.count("of the rows;") == rule.count
    shares = [int(part.split("%")[0]) for part in text.split("  (")[1:]]
    assert abs(sum(shares) - 100) <= 2
    assert all(f"action {action}" in text for action in rule.action if action != KEEP)


def test_the_dictionary_holds_the_decision_and_its_certificate(shipped):
    facts = shipped.to_dict()
    assert facts["decision"] == "ship"
    assert facts["certificate"]["lift"]["interval"]["low"] == facts["bound"]
    assert sum(point["chosen"] for point in facts["path"]) == 1
    assert facts["rows_certified"] == shipped.evaluation.best.n


def test_it_prints_as_a_sheet(shipped):
    assert "Ship it" in shipped._repr_html_()
    assert "ship" in repr(shipped)
    assert len(shipped.to_frame()) == len(shipped.sheet().rows)


def test_learned_names_its_candidate(shipped):
    assert replace(shipped.chosen, play="").named == shipped.chosen.candidate
