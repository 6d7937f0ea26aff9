"""A world with rare clicks whose log keeps all clicks and a tenth of the other rows."""

from dataclasses import dataclass

import numpy as np

import cael

K, SHARE = 6, 0.1
TASTES = np.random.default_rng(99).normal(size=(K, 2))


@dataclass(frozen=True)
class Kept:
    """A log without the rows that were left out. log, alike: with and without sampling weights. target: (n, k)."""

    log: cael.LoggedData
    alike: cael.LoggedData
    target: np.ndarray


def chances(x):
    """(n, k) of a click, of the logging policy and of the target."""
    likes = x @ TASTES.T
    clicks = 0.03 + 0.05 / (1 + np.exp(-1.5 * likes - 0.3 * np.arange(K) + 1))
    logging = np.exp(0.5 * likes)
    target = np.full(likes.shape, 0.02)
    target[np.arange(len(x)), likes.argmax(axis=1)] += 1 - 0.02 * K
    return clicks, logging / logging.sum(axis=1, keepdims=True), target


def grid():
    """The contexts of this world, all with the same probability, so that its truth is a mean."""
    ends = np.linspace(-2, 2, 9)
    return np.array([(a, b) for a in ends for b in ends])


def truth():
    """(value of the logging policy, value of the target)."""
    clicks, logging, target = chances(grid())
    return float((logging * clicks).sum(axis=1).mean()), float((target * clicks).sum(axis=1).mean())


def everything(n, seed):
    """Contexts, actions, rewards and both policies of n rows, none left out."""
    rng = np.random.default_rng(seed)
    x = grid()[rng.integers(0, len(grid()), n)]
    clicks, logging, target = chances(x)
    actions = (np.cumsum(logging, axis=1) < rng.random((n, 1))).sum(axis=1)
    rewards = (rng.random(n) < clicks[np.arange(n), actions]).astype(float)
    return x, actions, rewards, logging, target


def kept(n, seed, known=True):
    """The log of n rows without nine tenths of those without a click. known: whether the logging policy is."""
    x, actions, rewards, logging, target = everything(n, seed)
    rows = (rewards == 1) | (np.random.default_rng([seed, 1]).random(n) < SHARE)
    weights = np.where(rewards == 1, 1.0, 1 / SHARE)[rows]
    policy = {"logging": logging[rows]} if known else {"propensities": logging[np.arange(n), actions][rows]}
    given = {"n_actions": K, **policy}
    log = cael.LoggedData(x[rows], actions[rows], rewards[rows], sampling_weights=weights, **given)
    return Kept(log, cael.LoggedData(x[rows], actions[rows], rewards[rows], **given), target[rows])
