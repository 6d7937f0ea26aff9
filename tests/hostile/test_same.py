"""A log in memory and the same log in a stream give the same answer, whatever its columns hold, or both refuse it."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import cael
from tests.hostile.cases import N, columns, one, parquet, text
from tests.hostile.more_cases import KINDS, LABELS

CODE = np.arange(N) % 3
ESTIMATORS = ("LoggedMean", "IPS", "SNIPS", "DM", "DR")


def logs():
    """(what is written by, columns that are changed, policy) by name."""
    best = {"policy": "choice:best,epsilon=0.5"}
    cases = {}
    for name, three in LABELS.items():
        for write in (text, parquet):
            users = [three[at % 3] for at in range(N)]
            cases[f"users {name}, {write.__name__}"] = (write, {"user": users, "pi": ...}, best)
    for name, made in KINDS.items():
        for role in ("user", "reward", "decision_id"):
            cases[f"{role} of {name}"] = (parquet, {role: made(CODE if role != "decision_id" else np.arange(N))}, best)
    for name, value in {"missing": None, "negative": -1, "new": 3, "wide": 2**62}.items():
        cases[f"an action that is {name}"] = (parquet, one("action", value), best)
    rewards = columns()["reward"]
    for name, given in {
        "tiny": rewards * 1e-310, "large": rewards * 1e36, "negative": -rewards, "true or false": rewards > 0.5,
        "halves": rewards.astype(np.float16), "decimals": [Decimal(str(r)) for r in rewards],
        "text": rewards.astype(str),
        "a dictionary": pa.array(rewards).dictionary_encode(), "one missing": [None, *rewards[1:]],
    }.items():  # fmt: skip
        cases[f"rewards that are {name}"] = (parquet, {"reward": given}, best)
    for name, given in {
        "floats of 32 bits": pa.array([[0.2, 0.3, 0.5]] * N, pa.list_(pa.float32())),
        "of one length": pa.array([[0.2, 0.3, 0.5]] * N, pa.list_(pa.float64(), 3)),
        "whole numbers": [[1, 0, 0]] * N, "text": ["[0.2, 0.3, 0.5]"] * N, "text in lists": [["0.2", "0.3", "0.5"]] * N,
        "minus zero": [[-0.0, 0.5, 0.5]] * N, "not quite 1": [[0.2, 0.3, 0.5 + 1e-7]] * N, "too long": [[0.25] * 4] * N,
        "one missing": [None, *[[0.2, 0.3, 0.5]] * (N - 1)], "nested": [[[0.2], [0.3], [0.5]]] * N,
    }.items():  # fmt: skip
        cases[f"lists: {name}"] = (parquet, {"pi": given}, {"policy": "dense:pi"})
    for scale in (1e4, 1e308):
        cases[f"scores of {scale:g}"] = (parquet, {"pi": [[scale, -scale, 0.0]] * N}, {"policy": "softmax:pi"})
    return cases


LOGS = logs()


def answer(read, policy):
    """Values and standard errors, or the sentence of an error."""
    try:
        found = cael.evaluate(read(), policy, learn=False)
    except cael.InputError as error:
        return str(error)
    return [(found[name].value, found[name].stderr) for name in ESTIMATORS]


@pytest.mark.parametrize("name", LOGS)
def test_memory_and_a_stream_agree(name, tmp_path):
    write, changes, asked = LOGS[name]
    path = write(tmp_path, **changes)
    here, there = (answer(lambda read=read: read(path), asked["policy"]) for read in (cael.read, cael.scan))
    assert isinstance(here, str) == isinstance(there, str), (here, there)
    if not isinstance(here, str):
        assert np.array(there) == pytest.approx(np.array(here), rel=1e-9)
