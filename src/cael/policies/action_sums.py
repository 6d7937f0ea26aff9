"""Sums over rows of what a policy gives to each action, for policies that have lists or are the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cael.common.types import Floats
from cael.log.logged import FEW, Batch, LoggedData
from cael.policies.policy import Policy, logged_probability, support
from cael.policies.support import Support


def is_short(log: LoggedData, policy: Policy) -> bool:
    """Whether the sums below can be had without a visit to every action of every row."""
    return policy.fixed is not None or support(policy, next(log.take(np.arange(1)).batches())) is not None


def _lists(log: LoggedData, policy: Policy) -> Iterator[tuple[slice, Batch, Support]]:
    at = 0
    for batch in log.batches(width=FEW):
        listed = support(policy, batch)
        assert listed is not None
        yield slice(at, at + len(batch)), batch, listed
        at += len(batch)


def totals(log: LoggedData, policy: Policy) -> tuple[Floats, Floats]:
    """sum_i p(a|x_i) and sum_i p (1 - p), each (k,)."""
    k, fixed = log.n_actions, policy.fixed
    if fixed is not None:
        return len(log) * fixed, len(log) * fixed * (1 - fixed)
    first, second = np.zeros(k), np.zeros(k)
    for _, _, listed in _lists(log, policy):
        at, rest = np.maximum(listed.actions, 0).ravel(), listed.rest[:, None]
        p = np.where(listed.actions >= 0, listed.probabilities, rest)
        first += np.bincount(at, (p - rest).ravel(), k) + rest.sum()
        second += np.bincount(at, (p * (1 - p) - rest * (1 - rest)).ravel(), k) + (rest * (1 - rest)).sum()
    return np.maximum(first, 0.0), np.maximum(second, 0.0)


def means(log: LoggedData, policy: Policy, values: Floats) -> Floats:
    """sum over a of p(a|x_i) values[a], (n,)."""
    if policy.fixed is not None:
        return np.full(len(log), policy.fixed @ values)
    found, total = np.empty(len(log)), float(values.sum())
    for rows, _, listed in _lists(log, policy):
        some = values[np.maximum(listed.actions, 0)]
        found[rows] = np.einsum("ij,ij->i", listed.excess(), some) + listed.rest * total
    return found


def surprise(log: LoggedData, policy: Policy) -> tuple[Floats, float]:
    """log p(a_i|x_i) - sum_a p log p, (n,), and the largest distance of a row's probabilities from a sum of one."""
    found, fixed = np.empty(len(log)), policy.fixed
    at, worst = 0, 0.0 if fixed is None else abs(float(fixed.sum()) - 1)
    for batch in log.batches(width=FEW):
        found[at : at + len(batch)] = np.log(np.maximum(logged_probability(policy, batch), 1e-300))
        at += len(batch)
    if fixed is not None:
        return found - _entropy(fixed), worst
    for rows, batch, listed in _lists(log, policy):
        others = batch.n_actions - (listed.actions >= 0).sum(axis=1)
        found[rows] -= _entropy(listed.probabilities) + others * _entropy(listed.rest[:, None])
        total = listed.probabilities.sum(axis=1) + others * listed.rest
        worst = max(worst, float(np.abs(total - 1).max()))
    return found, worst


def _entropy(p: Floats) -> Floats:
    """sum p log p over the last axis."""
    found: Floats = (p * np.log(np.maximum(p, 1e-300))).sum(axis=-1)
    return found
