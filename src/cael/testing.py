"""Laws that every estimator and every policy obeys; run them on your own with `check_estimator` and `check_policy`.

Each law is a function that raises AssertionError with what is broken; two tuples at the end list them.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from cael.errors import NeedsError
from cael.estimators import Estimator
from cael.inference.estimate import Estimate
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.policies.policy import LoggedOnly, Policy, draw, logged_probability, probabilities, probability_of, support
from cael.policies.scored import EpsilonGreedy
from cael.worlds import PaperWorld


def example(n: int = 240, *, clusters: bool = False) -> tuple[LoggedData, Policy]:
    """A small log of the paper's world (8 actions, softmax logging) and a target, for trying things out."""
    world = PaperWorld(n_actions=8, action_dim=3, gamma=0.2)
    log = world.sample(n, seed=7)
    if clusters:
        log = LoggedData(
            log.contexts, log.actions, log.rewards, logging=log.logging, n_actions=8,
            action_features=log.action_features, clusters=np.arange(n) // 4,
        )  # fmt: skip
    return log, EpsilonGreedy(world.q, 0.5)


def check_estimator(estimator: Estimator, log: LoggedData | None = None, policy: Policy | None = None) -> None:
    """Check every law of estimators on a log and a policy (an example by default)."""
    if (log is None) != (policy is None):
        raise ValueError("check_estimator takes a log and a policy, or neither.")
    default_log, default_policy = example()
    log, policy = log or default_log, policy or default_policy
    for law in LAWS_OF_ESTIMATORS:
        law(estimator, log, policy)


def check_policy(policy: Policy, log: LoggedData) -> None:
    """Check every law of policies on the log that the policy is aligned with."""
    for law in LAWS_OF_POLICIES:
        law(policy, log)


def _holds(truth: bool | np.bool_, law: str, thing: object) -> None:
    if not truth:
        raise AssertionError(f"{thing!r} breaks a law: {law}")


def _equal(a: Estimate, b: Estimate) -> bool:
    return a.value == b.value and a.stderr == b.stderr and np.array_equal(a.contributions, b.contributions)


def same_answer_twice(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    first, second = estimator.estimate(log, policy), estimator.estimate(log, policy)
    _holds(_equal(first, second), "the same question has the same answer, bit for bit", estimator)


def settings_are_frozen(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    for setting in fields(estimator):  # type: ignore[arg-type]
        try:
            setattr(estimator, setting.name, None)
        except AttributeError:
            continue
        raise AssertionError(f"{estimator!r} breaks a law: settings cannot be changed ({setting.name} could)")


def pickles(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    try:
        copy = pickle.loads(pickle.dumps(estimator))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(f"{estimator!r} breaks a law: an estimator can be pickled ({error})") from error
    estimate = estimator.estimate(log, policy)
    _holds(_equal(copy.estimate(log, policy), estimate), "a pickled estimator gives the same answer", estimator)
    back = pickle.loads(pickle.dumps(estimate))
    _holds(_equal(back, estimate) and repr(back) == repr(estimate), "an estimate survives pickling", estimator)
    _holds(not back.contributions.flags.writeable, "a pickled estimate is still read-only", estimator)


def log_is_not_changed(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    twin = pickle.loads(pickle.dumps(log))
    estimator.estimate(log, policy)
    _holds(twin.fingerprint == pickle.loads(pickle.dumps(log)).fingerprint, "the log is not changed", estimator)


def contributions_average_to_the_value(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    e = estimator.estimate(log, policy)
    _holds(e.contributions.shape == (len(log),), "one contribution per row", estimator)
    scale = 1 + np.abs(e.contributions).max()
    _holds(abs(e.contributions.mean() - e.value) <= 1e-9 * scale, "contributions average to the value", estimator)
    _holds(not e.contributions.flags.writeable, "contributions are read-only", estimator)


def minus_itself_is_zero(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    e = estimator.estimate(log, policy)
    nothing = e - e
    _holds(nothing.value == 0 and nothing.stderr == 0, "e - e is 0 with standard error 0", estimator)


def intervals_nest(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    e = estimator.estimate(log, policy)
    for method in ("normal", "t"):
        narrow, wide = e.interval(0.8, method), e.interval(0.99, method)
        inside = wide.low <= narrow.low <= e.value <= narrow.high <= wide.high
        _holds(inside, f"a {method} interval of a higher level holds that of a lower level", estimator)


def prints(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    e = estimator.estimate(log, policy)
    _holds("\n" not in repr(e) and e.estimator in repr(e), "the repr is one line with the name", estimator)
    _holds(e.estimator == estimator.name, "the estimate bears the estimator's name", estimator)
    json.dumps(e.to_dict(), allow_nan=False)
    _holds(f"{e.value:.6g}" in e._repr_html_(), "the HTML shows the value", estimator)
    e.sheet().markdown()


def singleton_clusters_change_nothing(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    if log.clusters is not None:
        return
    alone = LoggedData(
        log.contexts, log.actions, log.rewards, log.propensities, logging=log.logging, n_actions=log.n_actions,
        action_features=log.action_features, clusters=np.arange(len(log)), eligible=log.eligible,
    )  # fmt: skip
    a, b = estimator.estimate(log, policy), estimator.estimate(alone, policy)
    same = np.isclose(a.value, b.value, rtol=1e-9) and np.isclose(a.stderr, b.stderr, rtol=1e-6)
    _holds(same, "clusters of one row each change nothing", estimator)


def needs_are_honest(estimator: Estimator, log: LoggedData, policy: Policy) -> None:
    """With only the logged action's probability, the estimator works or refuses, as its needs say."""
    p = np.concatenate([logged_probability(policy, batch) for batch in log.batches(width=log.n_actions)])
    try:
        less = estimator.estimate(log, LoggedOnly(p))
    except NeedsError:
        _holds("probabilities" in estimator.needs, "an estimator that refuses says so in its needs", estimator)
        return
    _holds("probabilities" not in estimator.needs, "an estimator that needs all probabilities refuses", estimator)
    full = estimator.estimate(log, policy)
    # One that chooses may have had fewer candidates to choose from, and then says so.
    same = np.isclose(less.value, full.value) or less.diagnostics.choices < full.diagnostics.choices
    _holds(same, "the logged action's probability is enough, as needs says", estimator)


LAWS_OF_ESTIMATORS: tuple[Callable[[Estimator, LoggedData, Policy], None], ...] = (
    same_answer_twice,
    settings_are_frozen,
    pickles,
    log_is_not_changed,
    contributions_average_to_the_value,
    minus_itself_is_zero,
    intervals_nest,
    prints,
    singleton_clusters_change_nothing,
    needs_are_honest,
)


def rows_are_distributions(policy: Policy, log: LoggedData) -> None:
    if not policy.complete:
        return
    for batch in log.batches(width=log.n_actions):
        p = probabilities(policy, batch)
        _holds(p.shape == (len(batch), log.n_actions), "one column per action", policy)
        _holds((p >= 0).all() and np.allclose(p.sum(axis=1), 1, atol=1e-5), "rows are distributions", policy)


def logged_probability_is_an_entry(policy: Policy, log: LoggedData) -> None:
    for batch in log.batches(width=log.n_actions):
        logged = logged_probability(policy, batch)
        _holds(logged.shape == (len(batch),), "one logged probability per row", policy)
        if policy.complete:
            entry = probabilities(policy, batch)[np.arange(len(batch)), batch.actions]
            _holds(
                np.allclose(logged, entry, atol=1e-12),
                "logged_probability is the entry of probabilities",
                policy,
            )


def _rows_with_tables(policy: Policy, log: LoggedData) -> Iterator[tuple[Batch, np.ndarray]]:
    """Batches and their (b, k) probabilities, where all are known."""
    for batch in log.batches(width=log.n_actions) if policy.complete else ():
        yield batch, probabilities(policy, batch)


def probability_of_is_an_entry(policy: Policy, log: LoggedData) -> None:
    rng = np.random.default_rng(0)
    for batch, table in _rows_with_tables(policy, log):
        asked = rng.integers(-1, log.n_actions, (len(batch), 5))
        entry = np.where(asked >= 0, np.take_along_axis(table, np.maximum(asked, 0), axis=1), 0.0)
        same = np.allclose(probability_of(policy, batch, asked), entry, rtol=1e-9, atol=1e-12)
        _holds(same, "probability_of is the entry of probabilities, and 0 for -1", policy)


def fixed_is_every_row(policy: Policy, log: LoggedData) -> None:
    fixed = None if log.eligible is not None else policy.fixed
    for _, table in _rows_with_tables(policy, log):
        same = fixed is None or np.allclose(table, fixed, atol=1e-12)
        _holds(same, "fixed are the probabilities of every row", policy)


def support_is_the_table(policy: Policy, log: LoggedData) -> None:
    for batch, table in _rows_with_tables(policy, log):
        listed = support(policy, batch)
        if listed is not None:
            every = np.tile(np.arange(log.n_actions), (len(batch), 1))
            same = np.allclose(listed.probability_of(every), table, atol=1e-12)
            _holds(same, "support, with its rest, is the row of probabilities", policy)


def draws_follow_the_probabilities(policy: Policy, log: LoggedData, size: int = 4096) -> None:
    """Counts of actions drawn with `size` evenly spaced numbers are within five binomial standard deviations."""
    some = log.take(np.arange(min(8, len(log))))
    for batch, p in _rows_with_tables(policy, some):
        drawn = draw(policy, batch, np.tile((np.arange(size) + 0.5) / size, (len(batch), 1)))
        counts = np.stack([np.bincount(row, minlength=log.n_actions) for row in drawn])
        near = np.abs(counts - size * p) <= 5 * np.sqrt(size * p * (1 - p)) + 5
        _holds((near & ((p > 0) | (counts == 0))).all(), "draws follow the probabilities", policy)


def _all(policy: Policy, log: LoggedData, bytes_each: int) -> np.ndarray:
    ask = probabilities if policy.complete else logged_probability
    return np.concatenate([ask(policy, batch) for batch in log.batches(width=8, bytes_each=bytes_each)])


def batches_do_not_matter(policy: Policy, log: LoggedData) -> None:
    whole, small = _all(policy, log, 2**20), _all(policy, log, 8 * 8 * 3)
    _holds(np.allclose(whole, small, atol=1e-12), "the size of the batches does not matter", policy)


def taken_rows_stay_aligned(policy: Policy, log: LoggedData) -> None:
    rows = np.random.default_rng(0).permutation(len(log))[: max(2, len(log) // 2)]
    some = _all(policy, log.take(rows), 2**20)
    _holds(np.allclose(some, _all(policy, log, 2**20)[rows], atol=1e-12), "take(rows) keeps rows aligned", policy)


def bounds_hold(policy: Policy, log: LoggedData) -> None:
    if log.eligible is not None:  # the bounds are those of rows on which every action is eligible
        return
    p = _all(policy, log, 2**20)
    _holds(policy.least is None or p.min() >= policy.least - 1e-12, "no probability is below `least`", policy)
    _holds(policy.most is None or p.max() <= policy.most + 1e-12, "no probability is above `most`", policy)


def policy_pickles(policy: Policy, log: LoggedData) -> None:
    try:
        data = pickle.dumps(policy)
    except (pickle.PicklingError, AttributeError):  # a lambda inside: the user's choice
        return
    _holds(
        np.array_equal(_all(pickle.loads(data), log, 2**20), _all(policy, log, 2**20)),
        "it survives pickling",
        policy,
    )


LAWS_OF_POLICIES: tuple[Callable[[Policy, LoggedData], None], ...] = (
    rows_are_distributions,
    logged_probability_is_an_entry,
    probability_of_is_an_entry,
    fixed_is_every_row,
    support_is_the_table,
    draws_follow_the_probabilities,
    batches_do_not_matter,
    taken_rows_stay_aligned,
    bounds_hold,
    policy_pickles,
)
