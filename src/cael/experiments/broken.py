"""Worlds and conditions on which verdicts are judged: sound logs, and logs that somebody broke."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

import cael
from cael.common.types import Floats
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, probabilities
from cael.worlds import PaperWorld, suite

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

    def contexts(self, n: int, rng: np.random.Generator) -> Floats:
        return rng.normal(size=(n, 2))

    def sample(self, n: int, seed: int) -> LoggedData:
        from cael.worlds.world import draw_actions

        rng = np.random.default_rng([seed, 0xC11C])
        x = self.contexts(n, rng)
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
        log = LoggedData(x, np.zeros(len(x), int), np.zeros(len(x)), n_actions=10)
        total, at = 0.0, 0
        for batch in log.batches(width=10):
            p = probabilities(policy, batch)
            total += float(w[at : at + len(batch)] @ (p * self.q(batch.contexts)).sum(axis=1))
            at += len(batch)
        return total


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


def rebuilt(
    log: LoggedData,
    rows: Any,
    *,
    actions: Any = None,
    rewards: Any = None,
    propensities: Any = None,
    logging: Any = None,
) -> LoggedData:
    """The log of these rows with some columns exchanged, as somebody else would have written it down."""
    return LoggedData(
        log.contexts[rows],
        log.actions[rows] if actions is None else actions,
        log.rewards[rows] if rewards is None else rewards,
        propensities,
        logging=logging,
        n_actions=log.n_actions,
        action_features=log.action_features,
    )


def sound(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    return log, 0.0


def sound_propensities(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    return rebuilt(log, slice(None), propensities=log.propensities), 0.0


def tilted(log: LoggedData, rng: np.random.Generator) -> Floats:
    """The logging policy's table as of another version of it: every action's odds times exp(0.5 N(0, 1))."""
    p = table_of(log) * np.exp(0.5 * rng.standard_normal(log.n_actions))
    return p / p.sum(axis=1, keepdims=True)


def wrong_logging(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    return rebuilt(log, slice(None), logging=tilted(log, rng)), 0.0


def wrong_propensities(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    wrong = tilted(log, rng)[np.arange(len(log)), log.actions]
    return rebuilt(log, slice(None), propensities=wrong), 0.0


def noisy_propensities(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    assert log.propensities is not None
    noise = np.exp(0.5 * rng.standard_normal(len(log)))
    return rebuilt(log, slice(None), propensities=np.minimum(1.0, log.propensities * noise)), 0.0


def shuffled(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    order = rng.permutation(len(log))
    return rebuilt(log, slice(None), actions=log.actions[order], propensities=log.propensities), 0.0


def shuffled_logging(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    order = rng.permutation(len(log))
    return rebuilt(log, slice(None), actions=log.actions[order], logging=table_of(log)), 0.0


def lost(log: LoggedData, rng: np.random.Generator) -> Any:
    """The rows that are left when those of a fifth of the actions are lost."""
    gone = rng.permutation(log.n_actions)[: max(1, log.n_actions // 5)]
    return np.flatnonzero(~np.isin(log.actions, gone))


def missing_actions(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    rows = lost(log, rng)
    assert log.propensities is not None
    return rebuilt(log, rows, propensities=log.propensities[rows]), 0.0


def missing_actions_logging(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    rows = lost(log, rng)
    return rebuilt(log, rows, logging=table_of(log)[rows]), 0.0


def drifted(log: LoggedData, rng: np.random.Generator) -> tuple[LoggedData, float]:
    """Rewards that rise over the rows; the truth that counts is that of the last one."""
    rise = DRIFT * float(log.rewards.std())
    r = log.rewards + rise * np.linspace(0, 1, len(log))
    return rebuilt(log, slice(None), rewards=r, logging=log.logging), rise


Condition = Callable[[LoggedData, np.random.Generator], tuple[LoggedData, float]]
CONDITIONS: dict[str, Condition] = {
    "sound, logging policy known": sound,
    "sound, propensities only": sound_propensities,
    "propensities of another version, whole policy": wrong_logging,
    "propensities of another version, logged ones only": wrong_propensities,
    "propensities with noise": noisy_propensities,
    "actions shuffled, logging policy known": shuffled_logging,
    "actions shuffled, propensities only": shuffled,
    "a fifth of the actions lost, logging policy known": missing_actions_logging,
    "a fifth of the actions lost, propensities only": missing_actions,
    "rewards that drift": drifted,
}
