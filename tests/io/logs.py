"""One log and one policy, written in every form that users have; all of them must give the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

LABELS = ("apple", "banana", "cherry", "date", "elder")
N, K = 300, len(LABELS)
ACTIONS = pa.table({"action": LABELS})
"""The actions in the order of the lists: without it, lists of probabilities are refused, as the actions are names."""


def arrays(seed=2):
    """The arrays of the log and of the target policy, of which the greedy action has 0.7."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(N, 3)), 3)
    logging = np.exp(0.4 * x @ rng.normal(size=(3, K)))
    logging = logging / logging.sum(axis=1, keepdims=True)
    actions = (rng.random((N, 1)) > logging.cumsum(axis=1)).sum(axis=1)
    scores = np.round(x @ rng.normal(size=(3, K)), 3)
    target = np.full((N, K), 0.3 / K)
    target[np.arange(N), scores.argmax(axis=1)] += 0.7
    rewards = np.round(0.2 * actions + x[:, 0] + rng.normal(size=N), 3)
    return x, actions, rewards, logging, target, scores


def table(*, text_lists=False, labelled=True):
    """The log as an Arrow table with a column for every form of the policy."""
    x, actions, rewards, logging, target, scores = arrays()
    names = np.array(LABELS) if labelled else np.arange(K)
    order = np.argsort(-target, axis=1, kind="stable")[:, :3]  # the best and two others; the rest is uniform
    every = np.arange(N)
    lists = {
        "x": x.tolist(),
        "pi": target.tolist(),
        "mu": logging.tolist(),
        "scores": scores.tolist(),
        "top": names[order].tolist(),
        "chance": np.take_along_axis(target, order, axis=1).tolist(),
    }
    if text_lists:
        lists = {name: [json.dumps(row) for row in rows] for name, rows in lists.items()}
    columns = {
        "decision_id": [f"d{i}" for i in range(N)],
        "action": names[actions].tolist(),
        "reward": rewards,
        "propensity": logging[every, actions],
        **{f"x_{j}": x[:, j] for j in range(3)},
        **{f"pi_{name}": target[:, j] for j, name in enumerate(names)},
        **{f"mu_{name}": logging[:, j] for j, name in enumerate(names)},
        "p_logged": target[every, actions],
        "best": names[scores.argmax(axis=1)].tolist(),
        "user_id": [f"u{i // 3}" for i in range(N)],
        "country": [("be", "fr", "nl")[i % 3] for i in range(N)],
        "timestamp": np.datetime64("2026-01-01T00:00:00", "us") + np.arange(N).astype("timedelta64[m]"),
        **lists,
    }
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def long_table(values, name="probability"):
    """(decision_id, action, value), in another order than the log, with a decision that the log does not hold."""
    decision = [f"d{i}" for i in range(N) for _ in range(K)]
    rows = pa.table({"decision_id": decision, "action": list(LABELS) * N, name: np.asarray(values).ravel()})
    rows = rows.take(np.random.default_rng(1).permutation(len(rows)))
    extra = pa.table({"decision_id": ["elsewhere"], "action": ["apple"], name: [1.0]})
    return pa.concat_tables([rows, extra])


def write(folder: Path) -> dict[str, object]:
    """The log in every format; format -> what to read."""
    folder.mkdir(exist_ok=True)
    whole, text = table(), table(text_lists=True)
    pq.write_table(whole, folder / "log.parquet", row_group_size=100)
    pa.csv.write_csv(text, folder / "log.csv")
    with pa.CompressedOutputStream(str(folder / "log.csv.gz"), "gzip") as out:
        pa.csv.write_csv(text, out)
    with pa.ipc.new_file(folder / "log.arrow", whole.schema) as out:
        out.write_table(whole, max_chunksize=70)
    with pa.ipc.new_stream(folder / "log.arrows", whole.schema) as out:
        out.write_table(whole)
    (folder / "parts").mkdir(exist_ok=True)
    (folder / "csv").mkdir(exist_ok=True)
    for at in range(3):
        pq.write_table(whole.slice(100 * at, 100), folder / "parts" / f"part-{at}.parquet")
        pa.csv.write_csv(text.slice(100 * at, 100), folder / "csv" / f"part-{at}.csv")
    (folder / "parts" / "_SUCCESS").write_text("")
    pa.csv.write_csv(ACTIONS, folder / "actions.csv")
    names = ("log.parquet", "log.csv", "log.csv.gz", "log.arrow", "log.arrows", "parts", "csv", "csv/part-*.csv")
    return {name: str(folder / name) for name in names}


def write_policies(folder: Path) -> dict[str, str]:
    """Every form of the same policy, as a spec; those in files are written to the folder."""
    target = arrays()[4]
    pq.write_table(long_table(target), folder / "long.parquet")
    pa.csv.write_csv(long_table(target), folder / "long.csv")
    pq.write_table(long_table(np.log(target), "score"), folder / "scores.parquet")
    return {
        "probability": "probability:p_logged",
        "bare": "p_logged",
        "dense list": "dense:pi",
        "dense columns": "dense:pi_*",
        "top-k": "topk:top+chance,rest=uniform",
        "long": f"table:{folder / 'long.parquet'}",
        "long csv": str(folder / "long.csv"),
        "choice": "choice:best,epsilon=0.3",
        "greedy": "greedy:scores,epsilon=0.3",
        "long softmax": f"softmax:{folder / 'scores.parquet'}",
    }
