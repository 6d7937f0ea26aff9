"""Was a fitted model trained on this very log? Then it knows the chance in its rewards, which no other policy can.

Of two rows with the same action and nearly the same context, the one with the luckier reward has the larger probability
only if the model saw them. The mean product of the two differences is compared between nearest neighbours and rows
that are further apart: what the model may rightly know of the reward grows with the distance, what it knows of the
chance does not. Growth in proportion to the distance, which steps in the policy and in the reward have together, is
taken off.
"""

from __future__ import annotations

import math

import numpy as np

from cael.common.types import Floats, Ints
from cael.engine.answer import Answer
from cael.engine.drawn import Sample, sample_of
from cael.errors import CaelError
from cael.judging.thresholds import Thresholds
from cael.judging.verdict import Check
from cael.policies.policy import logged_probability

ROWS, CELLS = 6000, 4e8
"""At most so many rows are looked at, and so many squared rows times contexts."""
FURTHER = 10
"""The neighbour that is further apart."""
FEWEST = 200
SHARED = math.sqrt(2)
"""A row is in the pairs of others: by so much the standard error is raised."""


def trained_here(answer: Answer, target: int, limits: Thresholds) -> Check | None:
    """The check, where the policy is a fitted model, the log has contexts, and enough rows are alike."""
    policy = answer.targets[target].policy
    if policy is None or not policy.learned:
        return None
    sample = neighbours_of(answer, target)
    if sample is None:
        return None
    log, piece = sample.log, sample.piece
    p = logged_probability(sample.policy(answer.targets[target]), piece.batch())
    rows = log.rows_alike()
    z = known_chance(log.contexts[rows], log.actions[rows], log.rewards[rows], p[rows])
    if z is None:
        return None
    sentences = (
        f"Nothing shows that the model behind the policy was trained on these rows (z = {z:.1f}).",
        f"The model behind the policy predicts the noise of these rewards (z = {z:.1f}), as if it was trained on these "
        "rows: the estimate is too high. Train it on some rows and evaluate it on others.",
    )
    status = limits.status("trained_here", z)
    return Check("trained_here", status, z, sentences[status != "pass"])


def neighbours_of(answer: Answer, target: int) -> Sample | None:
    """Rows to look at; in a stream a sample takes a pass."""
    log = answer.log
    if log.context_dim == 0 or answer.n < FEWEST:
        return None
    rows = int(min(ROWS, math.sqrt(CELLS / log.context_dim)))
    try:
        return sample_of(log, rows, 0, training=0, more=answer.targets[target].columns)
    except CaelError:
        return None


def known_chance(contexts: Floats, actions: Ints, rewards: Floats, p: Floats) -> float | None:
    """By how many standard errors nearest neighbours agree more than their distance explains; None: too few rows.

    contexts: (n, d). p: (n,) the policy's probabilities of the actions (n,).
    """
    spread = contexts.std(axis=0)
    x = contexts[:, spread > 0] / spread[spread > 0]
    pairs = [_pairs(x[rows], rewards[rows], p[rows]) for rows in _by_action(actions) if x.shape[1]]
    if not pairs:
        return None
    near, far, distance, further = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    if len(near) < FEWEST or further.mean() == 0:
        return None
    score = near - far * (distance.mean() / further.mean())
    error = float(score.std()) / math.sqrt(len(score)) * SHARED
    return float(score.mean()) / error if error > 0 else None


def _by_action(actions: Ints) -> list[Ints]:
    order = np.argsort(actions, kind="stable")
    runs = np.split(order, np.flatnonzero(np.diff(actions[order])) + 1)
    return [rows for rows in runs if len(rows) > FURTHER]


def _pairs(x: Floats, r: Floats, p: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Products of differences with the nearest row and with one further apart, and both distances, (n,) each."""
    from scipy.spatial import cKDTree

    distances, others = cKDTree(x).query(x, k=FURTHER + 1)
    rows = np.arange(len(x))
    itself = others == rows[:, None]
    itself[~itself.any(axis=1), -1] = True  # among rows that are exactly alike, a row need not be its own nearest
    shape = (len(x), FURTHER)
    others, distances = others[~itself].reshape(shape), distances[~itself].reshape(shape)
    near, far = ((p - p[others[:, at]]) * (r - r[others[:, at]]) for at in (0, -1))
    return near, far, distances[:, 0], distances[:, -1]
