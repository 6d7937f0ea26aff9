"""Sums over all actions of a row, or over rows for each action, from lists where policies have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cael.common.types import Floats
from cael.policies import draws
from cael.policies.policy import Policy, fixed_on, logged_probability, probabilities, probability_of, support
from cael.policies.support import Support

if TYPE_CHECKING:
    from cael.log.batch import Batch

TINY = 1e-300
ROUNDING = 1e-12
"""What is left of the surprise of an even distribution is no more."""


def unsupported(logging: Policy, policy: Policy, batch: Batch) -> Floats:
    """The target's probability (b,) of actions that the logging policy never plays, from whichever has a list."""
    if logging.least or logging.positive:
        return np.zeros(len(batch))
    target, logged = support(policy, batch), support(logging, batch)
    if target is not None and not target.rest.any():
        never = probability_of(logging, batch, target.actions) <= 0
        return np.where(never, target.probabilities, 0.0).sum(axis=1)
    if logged is not None:
        p = probability_of(policy, batch, logged.actions)
        listed = np.where(logged.probabilities > 0, 0.0, p).sum(axis=1)
        return np.where(logged.rest > 0, listed, listed + np.maximum(1 - p.sum(axis=1), 0.0))
    return batch.in_parts(
        lambda part, _: np.where(probabilities(logging, part) <= 0, probabilities(policy, part), 0.0).sum(axis=1)
    )


def second_moments(logging: Policy, policy: Policy, batch: Batch) -> Floats:
    """sum_a pi^2 / mu (b,); from lists alone where both policies have one, or the target has one without a rest."""
    target, logged = support(policy, batch), support(logging, batch)
    if target is not None and not target.rest.any():
        return _square_sums(target.probabilities, probability_of(logging, batch, target.actions))
    if target is not None and logged is not None:
        return _listed_second_moments(logging, target, logged, batch)
    return batch.in_parts(lambda part, _: _square_sums(probabilities(policy, part), probabilities(logging, part)))


def _listed_second_moments(logging: Policy, target: Support, logged: Support, batch: Batch) -> Floats:
    if target.actions.shape[1] + logged.actions.shape[1] == 0:
        return target.others(batch.n_actions) * _squares(target.rest, logged.rest)
    both, _, (extra,) = draws.merged(
        np.hstack([target.actions, logged.actions]), np.hstack([target.excess(), np.zeros(logged.actions.shape)])
    )
    pi = np.where(both >= 0, extra + target.rest[:, None], 0.0)
    listed = _squares(pi, probability_of(logging, batch, both)).sum(axis=1)
    others = target.others(batch.n_actions) + (target.actions >= 0).sum(axis=1) - (both >= 0).sum(axis=1)
    return listed + others * _squares(target.rest, logged.rest)


def _square_sums(pi: Floats, mu: Floats) -> Floats:
    """The sum of `_squares` over the last axis; where every mu is positive, with one array of their size."""
    if mu.size == 0 or mu.min() <= 0:
        sums: Floats = _squares(pi, mu).sum(axis=1)
    else:
        sums = np.einsum("ij,ij->i", pi, pi / mu)
    return sums


def _squares(pi: Floats, mu: Floats) -> Floats:
    return np.divide(pi**2, mu, out=np.zeros_like(pi), where=mu > 0)


def totals(
    policy: Policy, batch: Batch, of: Callable[[Floats], Floats] = lambda p: p, sampling: Floats | None = None
) -> Floats:
    """The sum over rows of a function of the policy's probability of each action, (k,); by default of itself. sampling:
    (b,) weights of the rows."""
    fixed = fixed_on(policy, batch)
    if fixed is not None:
        return (len(batch) if sampling is None else float(sampling.sum())) * of(fixed)
    listed = support(policy, batch)
    s = np.ones(len(batch)) if sampling is None else sampling
    if listed is None:
        sums, at = np.zeros(batch.n_actions), 0
        for part in batch.parts():
            p, at = of(probabilities(policy, part)), at + len(part)
            sums += p.sum(axis=0) if sampling is None else s[at - len(part) : at] @ p
        return sums
    rest = listed.rest[:, None]
    there = listed.actions >= 0
    more = np.where(there, of(np.where(there, listed.probabilities, rest)) - of(rest), 0.0) * s[:, None]
    named = np.bincount(np.maximum(listed.actions, 0).ravel(), more.ravel(), batch.n_actions)
    every = of(listed.rest) * s
    others = float(every.sum()) if listed.eligible is None else listed.eligible.spread(every)
    return np.maximum(named + others, 0.0)


def squares(p: Floats) -> Floats:
    """p^2."""
    return p * p


def variances(p: Floats) -> Floats:
    """p (1 - p): the variance of whether an action is drawn."""
    return p * (1 - p)


def spread_seen(policy: Policy, batch: Batch, square: Floats) -> Floats:
    """(k,) sums over rows of s^2 (1{a_i = a} - p_a)^2, from the squares (b,) of their sampling weights."""
    logged = logged_probability(policy, batch)
    own = np.bincount(batch.actions, weights=square * (1 - 2 * logged), minlength=batch.n_actions)
    return np.maximum(totals(policy, batch, squares, square) + own, 0.0)


def surprises(policy: Policy, batch: Batch, popularity: Floats) -> tuple[Floats, Floats]:
    """(b,) log p(a_i) - sum_a p log p, and the same of p / popularity; popularity: (k,) log of any distribution."""
    logged = np.log(np.maximum(logged_probability(policy, batch), TINY))
    popular = popularity[batch.actions]
    fixed = fixed_on(policy, batch)
    if fixed is not None:
        surprise = logged - _entropy(fixed)
        return surprise, surprise - (popular - fixed @ popularity)
    listed = support(policy, batch)
    if listed is None:
        entropy, mean = batch.in_parts(lambda part, _: _sums(probabilities(policy, part), popularity)).T
    else:
        others = listed.others(batch.n_actions)
        entropy = _entropy(listed.probabilities) + others * _entropy(listed.rest[:, None])
        mean = (listed.excess() * popularity[np.maximum(listed.actions, 0)]).sum(axis=1)
        mean = mean + listed.rest_sums(popularity)
    surprise = logged - entropy
    surprise[np.abs(surprise) < ROUNDING] = 0.0
    return surprise, surprise - (popular - mean)


def _sums(p: Floats, popularity: Floats) -> Floats:
    """(b, 2) sum_a p log p, and sum_a p popularity."""
    return np.stack([_entropy(p), p @ popularity], axis=1)


def _entropy(p: Floats) -> Floats:
    """sum p log p over the last axis."""
    sums: Floats = np.einsum("...j,...j->...", p, np.log(np.maximum(p, TINY)))
    return sums


def worst_sum(policy: Policy, batch: Batch) -> float:
    """The largest distance of a row's probabilities from a sum of one."""
    fixed = fixed_on(policy, batch)
    if fixed is not None:
        return abs(float(fixed.sum()) - 1)
    listed = support(policy, batch)
    if listed is None:
        sums = batch.in_parts(lambda part, _: probabilities(policy, part).sum(axis=1))
    else:
        others = listed.others(batch.n_actions)
        sums = listed.probabilities.sum(axis=1) + others * listed.rest
    return float(np.abs(sums - 1).max(initial=0.0))
