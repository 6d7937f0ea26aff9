"""The decisions of a learned policy as a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from cael.common.types import Floats, Ints
from cael.common.whole import write_whole
from cael.errors import InputError
from cael.learning.learned_policy import LearnedPolicy
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.policies.policy import probabilities

COLUMNS = ("row", "action", "probability", "logged_action")


def decisions_of(policy: LearnedPolicy, log: LoggedData) -> list[list[Any]]:
    """For every row of a log its number, the most probable action with its probability, and the logged action."""
    parts = [best_of(policy, batch) for batch in log.batches(width=log.n_actions)]
    actions, chances = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    named = [policy.labels[a] for a in actions] if policy.labels else actions.tolist()
    logged = [policy.labels[a] for a in log.actions] if policy.labels else log.actions.tolist()
    return [list(range(len(log))), named, chances.tolist(), logged]


def best_of(policy: LearnedPolicy, batch: Batch) -> tuple[Ints, Floats]:
    """(b,) the most probable action of each row, and its probability."""
    p = probabilities(policy, batch)
    action = p.argmax(axis=1)
    return action, p[np.arange(len(p)), action]


def write_decisions(policy: LearnedPolicy, log: LoggedData, path: str | Path) -> Path:
    """Write them to a CSV or Parquet file."""
    path, columns = Path(path), decisions_of(policy, log)
    if path.suffix.lower() == ".csv":
        text = io.StringIO()
        csv.writer(text).writerows([COLUMNS, *zip(*columns, strict=True)])
        write_whole(path, text.getvalue())
    elif path.suffix.lower() == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(dict(zip(COLUMNS, columns, strict=True))), sink)
        write_whole(path, sink.getvalue().to_pybytes())
    else:
        raise InputError(f"decisions are written to a file that ends in .csv or .parquet; got {str(path)!r}.")
    return path
