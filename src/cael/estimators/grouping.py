"""Clusters of actions, by k-means: of their features, or of what a model predicts for them."""

from __future__ import annotations

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.log.logged import LoggedData
from cael.outcomes.outcome_model import FittedOutcome

RESTARTS = 4
PROFILE_ROWS = 200
"""Contexts at which the predictions for two actions are compared."""
PROFILE_CELLS = 2**22


def kmeans(points: Array, count: int, seed: int) -> Ints:
    """(k,) the cluster of each of the points (k, m); at most `count`, and no more than there are distinct points."""
    from sklearn.cluster import KMeans

    count = min(count, len(np.unique(points, axis=0)))
    if count < 2:
        return np.zeros(len(points), dtype=np.intp)
    return np.asarray(KMeans(count, n_init=RESTARTS, random_state=seed).fit_predict(points), dtype=np.intp)


def standardised(features: Array) -> Floats:
    """Features (k, m) with mean 0 and spread 1; those that are the same for all actions are 0."""
    apart = features - features.mean(axis=0)
    scale = apart.std(axis=0)
    return np.asarray(apart / np.where(scale > 0, scale, 1.0))


def profiles(model: FittedOutcome, log: LoggedData) -> Floats:
    """(k, m) predictions for the actions at m contexts of the log, evenly spaced among its rows."""
    most = min(PROFILE_ROWS, len(log), max(1, PROFILE_CELLS // log.n_actions))
    rows = np.linspace(0, len(log) - 1, most).astype(np.intp)
    return np.asarray(model.predict(log.whole.part(rows))).T
