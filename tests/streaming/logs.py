"""Logs for the tests of streaming, as tables and as files."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

K = 6


def table(n: int, seed: int = 0, *, offset: float = 0.0, clusters: int | None = None) -> pa.Table:
    """A log whose target and predictions are columns, in every form."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    mu = rng.dirichlet(np.full(K, 4.0), n)
    a = np.array([rng.choice(K, p=row) for row in mu]) if n else np.empty(0, int)
    pi = rng.dirichlet(np.full(K, 1.0), n)
    q = offset + x[:, :1] + np.arange(K) / K
    rows = np.arange(n)
    top = np.argsort(-pi, axis=1)[:, :3]
    columns = {
        "action": a,
        "reward": q[rows, a] + rng.normal(size=n),
        "propensity": mu[rows, a],
        "x_0": x[:, 0],
        "x_1": x[:, 1],
        "p": pi[rows, a],
        "pi": pa.array(list(pi), pa.list_(pa.float64())),
        **{f"pi_{j}": pi[:, j] for j in range(K)},
        "items": pa.array(list(top), pa.list_(pa.int64())),
        "chances": pa.array(list(np.take_along_axis(pi, top, axis=1)), pa.list_(pa.float64())),
        "best": pi.argmax(axis=1),
        "q": pa.array(list(q), pa.list_(pa.float64())),
        "q_logged": q[rows, a],
        "q_target": (pi * q).sum(axis=1),
        "part": rng.choice(["north", "south", "west"], n),
    }
    if clusters is not None:
        columns["user"] = [f"u{each}" for each in rng.integers(0, clusters, n)]
    return pa.table(columns)


def write(folder: Path, log: pa.Table, cuts: list[int] | None = None, group: int = 1000) -> Path:
    """The rows in files that end at these cuts."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = sorted({0, log.num_rows, *(min(log.num_rows, cut) for cut in cuts or ())})
    for number, (start, stop) in enumerate(itertools.pairwise(ends)):
        pq.write_table(log.slice(start, stop - start), folder / f"part-{number:02}.parquet", row_group_size=group)
    return folder
