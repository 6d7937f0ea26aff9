"""Worlds and conditions on which verdicts are judged: sound logs, and logs that somebody broke."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

import cael
from cael.common.types import Floats
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, probabilities
from cael.worlds import PaperWorld, suite
from cael.worlds.world import draw_actions, unlogged

DRIFT = 0.5
"""Change of the reward over the whole log, in standard deviations of the reward."""


@final
@dataclass(frozen=True)
class ClickWorld:
    """Ten banners, two features of a visitor, clicks of a few percent; logging softmax, target a sharper softmax."""

    def q(self, contexts: Floats) -> Floats:
        angle = np.arange(10) * 2 * np.pi / 10
        taste = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return 0.08 / (1 + np.exp(1.0 - contexts @ taste.T))

    def scores(self, contexts: Floats) -> Floats:
        return 12 * self.q(contexts)

    @property
    def target(self) -> Policy:
        return cael.Softmax(self.scores, temperature=0.2)

    def sample(self, n: int, seed: int) -> LoggedData:
        rng = np.random.default_rng([seed, 0xC11C])
        x = rng.normal(size=(n, 2))
        p = np.exp(self.scores(x))
        p /= p.sum(axis=1, keepdims=True)
        a = draw_actions(p, rng)
        r = (rng.random(n) < self.q(x)[np.arange(n), a]).astype(float)
        return LoggedData(x, a, r, logging=cael.Softmax(self.scores), n_actions=10)

    def value(self, policy: Policy) -> float:
        """By Gauss-Hermite quadrature over the two features."""
        node, weight = np.polynomial.hermite_e.hermegauss(60)
        x = np.stack(np.meshgrid(node, node), axis=-1).reshape(-1, 2)
        w = np.outer(weight, weight).ravel() / (2 * np.pi)
        return sum(
            float(w[part.rows] @ (probabilities(policy, part) * self.q(part.contexts)).sum(axis=1))
            for part in unlogged(x, 10).parts()
        )


def worlds() -> dict[str, tuple[Any, int]]:
    """The suite of worlds, and four with the overlap that a careful experimenter would have."""
    return {
        **suite(),
        "paper, 10 actions": (PaperWorld(n_actions=10, gamma=0.3), 2000),
        "paper, 50 actions": (PaperWorld(n_actions=50, gamma=0.3), 5000),
        "clicks": (ClickWorld(), 10_000),
        "uniform logging": (PaperWorld(n_actions=10), 2000),
    }


def table_of(log: LoggedData) -> Floats:
    """All probabilities of the logging policy, (n, k)."""
    assert log.logging is not None
    return np.concatenate([probabilities(log.logging, batch) for batch in log.batches(width=log.n_actions)])


def rebuilt(log: LoggedData, rows: Any = slice(None), **columns: Any) -> LoggedData:
    """These rows as somebody else would have written them down. columns: what is exchanged, for all rows of the log;
    by default only the propensities are told."""
    if not columns.keys() & {"propensities", "logging"}:
        columns["propensities"] = log.propensities
    arrays = {"contexts": log.contexts, "actions": log.actions, "rewards": log.rewards, **columns}
    exchanged: dict[str, Any] = {
        name: array if isinstance(array, Policy) else array[rows] for name, array in arrays.items()
    }
    return LoggedData(**exchanged, n_actions=log.n_actions, action_features=log.action_features)


def tilted(log: LoggedData, rng: np.random.Generator) -> Floats:
    """The logging policy's table of another version of it: every action's odds times exp(0.5 N(0, 1))."""
    p = table_of(log) * np.exp(0.5 * rng.standard_normal(log.n_actions))
    return p / p.sum(axis=1, keepdims=True)


def noisy(log: LoggedData, rng: np.random.Generator) -> Floats:
    """The logged propensities times exp(0.5 N(0, 1))."""
    return np.minimum(1.0, np.asarray(log.propensities) * np.exp(0.5 * rng.standard_normal(len(log))))


def left(log: LoggedData, rng: np.random.Generator) -> Any:
    """The rows that are left when those of a fifth of the actions are lost."""
    gone = rng.permutation(log.n_actions)[: max(1, log.n_actions // 5)]
    return np.flatnonzero(~np.isin(log.actions, gone))


def rise(log: LoggedData) -> float:
    return DRIFT * float(log.rewards.std())


def drifted(log: LoggedData, rng: np.random.Generator) -> LoggedData:
    """Rewards that rise over the rows; the truth that counts is that of the last one."""
    return rebuilt(log, rewards=log.rewards + rise(log) * np.linspace(0, 1, len(log)), logging=log.logging)


BREAKS: dict[str, Callable[[LoggedData, np.random.Generator], LoggedData]] = {
    "sound, logging policy known": lambda log, rng: log,
    "sound, propensities only": lambda log, rng: rebuilt(log),
    "propensities of another version, whole policy": lambda log, rng: rebuilt(log, logging=tilted(log, rng)),
    "propensities of another version, logged ones only": lambda log, rng: rebuilt(
        log, propensities=tilted(log, rng)[np.arange(len(log)), log.actions]
    ),
    "propensities with noise": lambda log, rng: rebuilt(log, propensities=noisy(log, rng)),
    "actions shuffled, logging policy known": lambda log, rng: rebuilt(
        log, actions=rng.permutation(log.actions), logging=table_of(log)
    ),
    "actions shuffled, propensities only": lambda log, rng: rebuilt(log, actions=rng.permutation(log.actions)),
    "a fifth of the actions lost, logging policy known": lambda log, rng: rebuilt(
        log, left(log, rng), logging=table_of(log)
    ),
    "a fifth of the actions lost, propensities only": lambda log, rng: rebuilt(log, left(log, rng)),
    "rewards that drift": drifted,
}


def broken(name: str, log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    """The log under a condition, and by how much the truth is higher there."""
    return BREAKS[name](log, rng), rise(log) if BREAKS[name] is drifted else 0.0


CONDITIONS = {name: partial(broken, name) for name in BREAKS}
