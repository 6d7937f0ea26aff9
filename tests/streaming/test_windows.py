"""Windows of time of a scanned log: those of a log in memory where its rows are in order, and an error where not."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
import cael.io
from cael.log import budget
from tests.streaming.logs import K, table, write

DAY = np.datetime64("2026-01-01T00:00", "s")
TIMED = {"timestamp": "when"}


def timed(n, times=None, **more):
    when = DAY + np.sort(np.random.default_rng(1).integers(0, 300_000, n)).astype("timedelta64[s]")
    return table(n, **more).append_column("when", pa.array(when if times is None else times))


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(80, 700),
    cuts=st.lists(st.integers(1, 700), max_size=4),
    batch=st.integers(10, 300),
    windows=st.integers(2, 4),
    with_times=st.booleans(),
    clusters=st.sampled_from([None, 60]),
)
def test_windows_are_those_of_a_log_in_memory(n, cuts, batch, windows, with_times, clusters):
    log = timed(n, clusters=clusters)
    columns = {**(TIMED if with_times else {"timestamp": None}), "cluster": None if clusters is None else "user"}
    kept = cael.io.open_log(log, columns, n_actions=K)
    twin = cael.segments(kept.log, kept.policy("p"), windows=windows)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "MOST_ROWS", batch)
        scanned = cael.scan(write(Path(folder) / "log", log, cuts, 90), columns, n_actions=K)
        found = cael.segments(scanned, "p", windows=windows)
    assert [each.label for each in found] == [each.label for each in twin]
    assert [each.rows for each in found] == [each.rows for each in twin]
    for name in ("value", "baseline", "lift"):
        mine, theirs = ([getattr(each, name) for each in of] for of in (found, twin))
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    if clusters is None:
        np.testing.assert_allclose([each.stderr for each in found], [each.stderr for each in twin], rtol=1e-9)


@pytest.mark.parametrize("disorder", ["within a batch", "between batches", "between files"])
def test_rows_that_are_not_in_the_order_of_time_are_refused(tmp_path, monkeypatch, disorder):
    monkeypatch.setattr(budget, "MOST_ROWS", 50)
    when = DAY + np.arange(200).astype("timedelta64[s]")
    first, second = {"within a batch": (10, 12), "between batches": (49, 50), "between files": (99, 100)}[disorder]
    when[[first, second]] = when[[second, first]]
    scanned = cael.scan(write(tmp_path / "log", timed(200, when), [100], 100), TIMED, n_actions=K)
    with pytest.raises(cael.InputError, match="not in order"):
        cael.segments(scanned, "p", windows=2)


def test_other_refusals(tmp_path):
    log = table(100).select(["action", "reward", "propensity", "p"])
    pyarrow.csv.write_csv(log, tmp_path / "log.csv")
    with pytest.raises(cael.InputError, match="number of rows beforehand, which text files do not state"):
        cael.segments(cael.scan(tmp_path / "log.csv", n_actions=K), "p", windows=2)
    scanned = cael.scan(write(tmp_path / "log", log), n_actions=K)
    with pytest.raises(cael.InputError, match="windows=30 needs at least 600 rows; the log has 100"):
        cael.segments(scanned, "p", windows=30)
    for given_ in ({}, {"labels": "p", "windows": 2}, {"labels": [1, 2]}):
        with pytest.raises(cael.InputError, match="by the name of a column"):
            cael.segments(scanned, "p", **given_)
