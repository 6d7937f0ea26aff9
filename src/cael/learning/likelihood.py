"""Weighted likelihood: a softmax policy, fitted to logged actions by how much more they earned than the old policy.

The policy is pi(a|x) = mu(a|x) exp(x'W phi(a)) / sum, with what the reward model predicts for an action as its features
phi. It maximises sum_i w_i (r_i - v_i)+ log pi(a_i|x_i): reward-weighted regression, which does not stall where many
actions leave the gradient of an importance-weighted value without a signal. w_i is CAEL's marginal weight of the policy
of the round before (1 in the first): that of an action's code, not of the action, which varies less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats, Ints
from cael.embedding.exact.codes import rounded
from cael.learning.evidence import Evidence
from cael.learning.plays import tilted
from cael.learning.scorers import LinearScores
from cael.policies.draws import from_table, uniforms

ROUNDS = 3
PENALTY = 3.0
"""Of the coefficients, in rows."""
FEATURES = 8
"""Features of an action, where there are more actions."""
ALTERNATIVES = 32
"""Of more actions, so many draws from the old policy stand beside the logged one."""
PITCH = 0.3
"""Width of a code, in standard deviations of the predictions within a row."""
MOST_CELLS = 2**20
"""Rows times actions that are looked at, at most; of more an even part."""
STEPS = 30


@final
@dataclass(frozen=True, eq=False)
class Choices:
    """What the old policy could have done on some rows. rows: (m,). x: (m, d) a constant and the contexts, standardised
    by centre and scale (d - 1,). features: (k, q) of the actions. listed: (m, s) actions. offset: (m, s) log of their
    probabilities, or 0 where they were drawn. at: (m,) which of them is the logged one. gain: (m,) of its reward."""

    evidence: Evidence
    rows: Ints
    x: Floats
    centre: Floats
    scale: Floats
    features: Floats
    listed: Ints
    offset: Floats
    at: Ints
    gain: Floats

    def scores(self, table: Floats) -> LinearScores:
        """Linear scores of all actions, from the coefficients (d, q)."""
        slope = (table[1:] / self.scale[:, None]).dot(self.features.T).T
        return LinearScores(np.ascontiguousarray(slope), self.features @ table[0] - slope @ self.centre)

    def fitted(self, keep: Ints) -> LinearScores:
        """The scores that are learned from some of the rows, (m,) a mask."""
        table, weight = np.zeros((self.x.shape[1], self.features.shape[1])), np.ones(len(self.rows))
        for number in range(ROUNDS):
            weight = self._marginal(self.scores(table)) if number else weight
            worth = np.where(keep, weight * self.gain, 0.0)
            total = worth.sum()
            if not total > 0:
                break
            table = self._likeliest(worth * (keep.sum() / total), table)
        return self.scores(table)

    def _likeliest(self, worth: Floats, start: Floats) -> Floats:
        """The coefficients of largest penalised likelihood. worth: (m,) weights of the rows."""
        from scipy.optimize import minimize

        own = np.flatnonzero(worth > 0)
        x, offset, worth = self.x[own], self.offset[own], worth[own]
        features, logged = self.features[self.listed[own]], (np.arange(len(own)), self.at[own])

        def loss(flat: Floats) -> tuple[float, Floats]:
            table = flat.reshape(start.shape)
            score = np.matmul(features, (x @ table)[:, :, None])[:, :, 0] + offset
            score -= score.max(axis=1, keepdims=True)
            p = np.exp(score)
            total = p.sum(axis=1, keepdims=True)
            value = worth @ (np.log(total[:, 0]) - score[logged]) + PENALTY / 2 * flat @ flat
            p /= total
            p[logged] -= 1
            slope = x.T @ (worth[:, None] * np.matmul(p[:, None], features)[:, 0]) + PENALTY * table
            return float(value), slope.ravel()

        done = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
        return np.asarray(done.x).reshape(start.shape)

    def _marginal(self, scores: LinearScores) -> Floats:
        """(m,) CAEL's marginal weight of the policy that these scores make."""
        weights = np.empty(len(self.rows))
        place = {int(row): at for at, row in enumerate(self.rows)}
        for rows, batch, old in self.evidence.blocks(self.rows):
            f = self.evidence.predicted(rows)
            spread = float(f.std(axis=1).mean())
            policy = tilted(np.where(old > 0, scores.scores(batch), -np.inf), old, 1.0)
            smooth = rounded(f, old, policy, PITCH * spread if spread > 0 else np.inf)
            own = [place[int(row)] for row in rows]
            weights[own] = smooth.weights[np.arange(len(rows)), self.evidence.log.actions[rows]]
        return weights


def choices_of(evidence: Evidence, seed: int) -> Choices:
    """What the old policy could have done on the rows, or on an even part of them."""
    log, k = evidence.log, evidence.log.n_actions
    rows = np.linspace(0, len(log) - 1, min(len(log), max(2000, MOST_CELLS // k))).astype(np.intp)
    contexts = log.contexts[rows]
    centre, spread = contexts.mean(axis=0), contexts.std(axis=0)
    scale = np.where(spread > 1e-12 * (1 + np.abs(centre)), spread, np.inf)
    x = np.column_stack([np.ones(len(rows)), (contexts - centre) / scale])
    listed, offset = alternatives(evidence, rows, seed)
    at = (listed == log.actions[rows][:, None]).argmax(axis=1)
    gain = np.maximum(log.rewards[rows] - evidence.usual[rows], 0.0)
    return Choices(evidence, rows, x, centre, scale, features_of(evidence), listed, offset, at, gain)


def alternatives(evidence: Evidence, rows: Ints, seed: int) -> tuple[Ints, Floats]:
    """(m, s) actions and the logs of their probabilities: all of them; or the logged one and draws from the old policy,
    of which it is one, so that all of them are alike."""
    actions, k = evidence.log.actions, evidence.log.n_actions
    parts = []
    for own, _, old in evidence.blocks(rows):
        if k <= ALTERNATIVES:
            with np.errstate(divide="ignore"):
                parts.append((np.broadcast_to(np.arange(k), old.shape), np.log(old)))
        else:
            drawn = from_table(old, uniforms(seed, own, ALTERNATIVES - 1))
            listed = np.column_stack([actions[own], drawn])
            parts.append((listed, np.zeros(listed.shape)))
    listed, offset = (np.concatenate(part) for part in zip(*parts, strict=True))
    return listed, offset


def features_of(evidence: Evidence) -> Floats:
    """(k, q) features of the actions: themselves, or the directions in which what the model predicts for them differs
    most."""
    k = evidence.log.n_actions
    if k <= ALTERNATIVES:
        return np.eye(k)
    return directions(evidence, FEATURES) * np.sqrt(k)


def directions(evidence: Evidence, most: int) -> Floats:
    """(k, most) orthonormal directions in which what the model predicts for the actions on some rows differs most."""
    rows = np.linspace(0, len(evidence) - 1, min(64, len(evidence))).astype(np.intp)
    profile = evidence.predicted(rows).T
    profile -= profile.mean(axis=0)
    left, size, _ = np.linalg.svd(profile, full_matrices=False)
    return np.asarray((left * (size > 1e-9 * max(size[0], 1e-300)))[:, :most])
