"""Candidates: kinds of policies, each learned without every fold of the rows, and from all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.learning.evidence import Evidence
from cael.learning.likelihood import choices_of, directions
from cael.learning.limits import sharpest
from cael.learning.plays import Play
from cael.learning.rules import Rule
from cael.learning.scorers import ClusterScores, LinearScores, NetworkScores, RidgeScores, SameScores, Scorer
from cael.learning.tree_search import search_of
from cael.outcomes.ridge import Ridge

TOPS, TILTS = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01), (2.0, 1.0, 0.5, 0.25)
"""Shares of the old policy and temperatures that are tried."""
PENALTY = 10.0
"""Of linear scores, in rows."""
CLUSTERS, DOUBT = 8, 100.0
"""At most so many clusters of actions; and the penalty, in rows, of what the model misses of one: little is left, and
with a smaller penalty the correction is noise."""
PROBE = 500
"""Rows by which the spread of scores is measured."""


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A kind of policy. name: of it. scorers: without each fold, then of all rows; or rules, which are played as they
    are. plays: how scores are played. spread: of the scores within a row."""

    name: str
    scorers: tuple[Scorer, ...] = ()
    rules: tuple[Rule, ...] = ()
    plays: tuple[Play, ...] = ()
    spread: float = 1.0


Fit: TypeAlias = Callable[[Evidence, Array | None, int], Candidate]


def best_arm(evidence: Evidence, allowed: Array | None, seed: int) -> Candidate:
    """One order of the actions for all contexts: by their mean gain less its standard error."""
    k, n = evidence.log.n_actions, len(evidence)
    sums = np.zeros((evidence.folds, k))
    for rows, _, _ in evidence.blocks(np.arange(n)):
        hot = np.eye(evidence.folds)[evidence.fold[rows]]
        sums += hot.T @ evidence.gains(rows)
    code = evidence.fold * k + evidence.log.actions
    squares = np.bincount(code, evidence.pull**2, evidence.folds * k).reshape(-1, k)
    sizes = np.bincount(evidence.fold, minlength=evidence.folds)
    values = [
        SameScores((sums[keep].sum(axis=0) - np.sqrt(squares[keep].sum(axis=0))) / max(1, sizes[keep].sum()))
        for keep in without_each(evidence.folds)
    ]
    return Candidate("best arm", tuple(values), plays=plays_for(evidence), spread=float(values[-1].values.std()))


def without_each(folds: int) -> list[Array]:
    """Masks of the folds without each of them, and then of all."""
    return [*(np.arange(folds) != fold for fold in range(folds)), np.ones(folds, dtype=bool)]


def plays_for(evidence: Evidence) -> tuple[Play, ...]:
    """The plays that make a difference among so many actions, one of them as sharp as the certificate allows."""
    k, sharp = evidence.log.n_actions, 1.01 / max(sharpest(evidence.left_out), 1.0)
    shares = [share for share in sorted({*TOPS, sharp}, reverse=True) if 0.5 / k < share <= TOPS[0]]
    return (Play(), *(Play("top", share) for share in shares), *(Play("tilt", t) for t in TILTS))


def scored(name: str, scorers: list[Scorer], evidence: Evidence) -> Candidate:
    """A candidate by its scorers."""
    rows = np.arange(min(PROBE, len(evidence)))
    parts = [scorers[-1].on(batch, evidence.predicted(own)).var(axis=1) for own, batch, _ in evidence.blocks(rows)]
    spread = float(np.sqrt(np.concatenate(parts).mean()))
    return Candidate(name, tuple(scorers), plays=plays_for(evidence), spread=spread)


def network(evidence: Evidence, allowed: Array | None, seed: int) -> Candidate:
    """The reward model of CAEL."""
    every = tuple(range(evidence.folds))
    return scored("CAEL", [NetworkScores(evidence.model, own) for own in (*((j,) for j in every), every)], evidence)


def ridge(evidence: Evidence, allowed: Array | None, seed: int) -> Candidate:
    """Ridge regression, with interactions where they predict better."""
    fitted = evidence.model.ridge or Ridge().fit_without(evidence.log, list(evidence.model.folds), seed)
    models: tuple[Any, ...] = tuple(fitted)
    return scored("ridge", [RidgeScores(own) for own in (*((model,) for model in models), models)], evidence)


def linear(evidence: Evidence, allowed: Array | None, seed: int) -> Candidate:
    """Linear scores of each action, by least squares on the doubly robust gains of all actions."""
    x = np.column_stack([np.ones(len(evidence)), evidence.log.contexts])
    centre, scale = x[:, 1:].mean(axis=0), x[:, 1:].std(axis=0)
    x[:, 1:] = (x[:, 1:] - centre) / np.where(scale > 1e-12 * (1 + np.abs(centre)), scale, np.inf)
    d, k = x.shape[1], evidence.log.n_actions
    products, sums = np.zeros((evidence.folds, d, d)), np.zeros((evidence.folds, d, k))
    for rows, _, _ in evidence.blocks(np.arange(len(evidence))):
        gains = evidence.gains(rows)
        for fold in range(evidence.folds):
            own = evidence.fold[rows] == fold
            products[fold] += x[rows[own]].T @ x[rows[own]]
            sums[fold] += x[rows[own]].T @ gains[own]
    scorers = [
        _linear(products[keep].sum(axis=0), sums[keep].sum(axis=0), centre, scale)
        for keep in without_each(evidence.folds)
    ]
    return scored("linear", list(scorers), evidence)


def _linear(products: Floats, sums: Floats, centre: Floats, scale: Floats) -> LinearScores:
    penalty = np.full(len(products), PENALTY)
    penalty[0] = 1e-9
    table = np.linalg.solve(products + np.diag(penalty), sums)
    slope = (table[1:] / np.where(scale > 1e-12 * (1 + np.abs(centre)), scale, np.inf)[:, None]).T
    return LinearScores(np.ascontiguousarray(slope), table[0] - slope @ centre)


def clusters(evidence: Evidence, allowed: Array | None, seed: int) -> Candidate:
    """POTEC's two stages (Saito, Yao and Joachims 2025) by regression: what CAEL's model misses of each cluster of
    actions is a linear function of the context, which is added to it; actions are alike where the model says so."""
    cluster = clusters_of(evidence)
    base = network(evidence, allowed, seed).scorers
    which = cluster[evidence.log.actions]
    scorers = [
        ClusterScores(model, cluster, *missed(evidence, which, np.isin(evidence.fold, np.flatnonzero(keep))))
        for model, keep in zip(base, without_each(evidence.folds), strict=True)
    ]
    return scored("clusters", list(scorers), evidence)


def clusters_of(evidence: Evidence) -> Ints:
    """(k,) clusters of actions of about the same size, along the direction in which what the model predicts for them
    on some rows differs most."""
    along = directions(evidence, 1)[:, 0]
    place = np.argsort(np.argsort(along, kind="stable"), kind="stable")
    return np.asarray(place * CLUSTERS // len(place), dtype=np.intp)


def missed(evidence: Evidence, which: Ints, keep: Array) -> tuple[Floats, Floats]:
    """(c, d) slopes and (c,) constants of the residual in each cluster, shrunk by DOUBT rows."""
    x = np.column_stack([np.ones(len(evidence)), evidence.log.contexts])
    count, pull = int(which.max()) + 1, np.diag(np.full(x.shape[1], DOUBT))
    table = np.zeros((CLUSTERS, x.shape[1]))
    for cluster in range(count):
        rows = np.flatnonzero(keep & (which == cluster))
        table[cluster] = np.linalg.solve(x[rows].T @ x[rows] + pull, x[rows].T @ evidence.left[rows])
    return table[:, 1:], table[:, 0]


def likelihood(evidence: Evidence, allowed: Array | None, seed: int) -> Candidate:
    """A softmax policy of largest weighted likelihood, as its scores."""
    choices = choices_of(evidence, seed)
    fold = evidence.fold[choices.rows]
    scorers = [choices.fitted(keep[fold]) for keep in without_each(evidence.folds)]
    return scored("weighted likelihood", list(scorers), evidence)


def tree_of(depth: int) -> Fit:
    def tree(evidence: Evidence, allowed: Array | None, seed: int) -> Candidate:
        search = search_of(evidence, allowed)
        parts = [np.flatnonzero(evidence.fold != fold) for fold in range(evidence.folds)]
        rules = [search.grown(rows, depth) for rows in (*parts, np.arange(len(evidence)))]
        return Candidate(f"tree of depth {depth}", rules=tuple(rules))

    return tree


KINDS: dict[str, Callable[[int], Fit]] = {
    "best_arm": lambda depth: best_arm,
    "linear": lambda depth: linear,
    "ridge": lambda depth: ridge,
    "cael": lambda depth: network,
    "clusters": lambda depth: clusters,
    "likelihood": lambda depth: likelihood,
    "tree": tree_of,
}
"""The kinds by name; each takes the depth of a tree."""
