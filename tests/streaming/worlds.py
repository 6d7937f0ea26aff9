"""Logs of the paper's world as tables, with both policies as columns."""

import functools

import numpy as np
import pyarrow as pa

import cael
from cael.worlds import PaperWorld

COLUMNS = {"contexts": ["x_*"]}


def _lists(values: np.ndarray) -> pa.Array:
    return pa.array(list(values), pa.list_(pa.float64()))


@functools.cache
def paper(n: int, k: int = 20, seed: int = 0, clusters: int | None = None) -> tuple[pa.Table, pa.Table, PaperWorld]:
    """A log, the table of its actions, and the world."""
    world = PaperWorld(n_actions=k, action_dim=2)
    log = world.sample(n, seed)

    def all_of(policy):
        return np.concatenate([cael.policies.policy.probabilities(policy, batch) for batch in log.batches(width=k)])

    columns = {
        "action": log.actions,
        "reward": log.rewards,
        "propensity": log.propensities,
        **{f"x_{j}": log.contexts[:, j] for j in range(log.contexts.shape[1])},
        "mu": _lists(all_of(log.logging)),
        "pi": _lists(all_of(world.target)),
    }
    if clusters is not None:
        columns["user"] = [f"u{each}" for each in np.random.default_rng(1).integers(0, clusters, n)]
    features = {f"f_{j}": log.action_features[:, j] for j in range(log.action_features.shape[1])}
    return pa.table(columns), pa.table({"action": np.arange(k), **features}), world
