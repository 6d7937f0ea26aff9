"""Damaged logs end in one error text, read into memory or scanned: the same rows are counted, by their numbers."""

import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import cael
from cael.log import budget
from cael.log.flaws import Flaws
from tests.streaming.logs import K, table, write

N = 60
ROLES = {"id": "decision", "cluster": "user", "timestamp": "time"}
DAMAGE = {
    "action": [None, K + 3, -1],
    "reward": [None, float("nan"), float("inf"), 1e38],
    "propensity": [None, 0.0, -0.5, 1.5, 1e-40],
    "x_1": [None, float("inf"), -1e38],
    "user": [None],
    "time": [None],
    "decision": [None, 0, 1],
}
cells = st.sampled_from([(name, at) for name, values in DAMAGE.items() for at in range(len(values))])
damages = st.lists(st.tuples(cells, st.integers(0, N - 1)), min_size=1, max_size=12)


def whole():
    log = table(N, clusters=20)
    log = log.append_column("decision", pa.array([str(number) for number in range(N)]))
    return log.append_column("time", pa.array(np.arange(N) * 60))


def damaged(marks):
    log = whole()
    for (name, number), row in marks:
        values = log[name].to_pylist()
        value = DAMAGE[name][number]
        values[row] = str(value) if name == "decision" and value is not None else value
        log = log.set_column(log.column_names.index(name), name, pa.array(values, log[name].type))
    return log


def texts(where, **options):
    """What `read` and `scan` say about a log; None where nothing."""

    def text(evaluated):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                evaluated()
        except cael.LogError as error:
            return str(error)
        return None

    memory = text(lambda: cael.read(where, ROLES, n_actions=K, **options))
    scanned = cael.scan(where, ROLES, n_actions=K, **options)
    return memory, text(lambda: cael.evaluate(scanned, "pi", learn=False))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(marks=damages, cut=st.integers(1, N - 1))
def test_damage_is_told_in_the_same_words_in_memory_and_in_a_pass(marks, cut, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 17)
    where = tmp_path / "log"
    for old in where.glob("*") if where.exists() else ():
        old.unlink()
    memory, scanned = texts(write(where, damaged(marks), [cut], 20))
    assert memory == scanned
    if any(name != "decision" or DAMAGE[name][number] is None for (name, number), _ in marks):
        assert "rows are invalid: column" in memory


def test_many_flaws_are_sorted_by_column_and_counted_once_for_each_row(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 17)
    marks = [(("reward", 0), 50), (("propensity", 1), 40), (("reward", 0), 40), (("action", 1), 45), (("reward", 2), 3)]
    marks += [(("decision", 1), 20), (("decision", 1), 21), (("x_1", 1), 59)]
    memory, scanned = texts(write(tmp_path / "log", damaged(marks), [30], 20))
    assert memory == scanned
    assert "7 of 60 rows are invalid: column 'action' is not in 0..5, such as 9" in memory
    assert re.search(r"'reward' is infinite, such as inf, in 1 row \(row 3 .*'reward' is missing in 2 rows", memory)
    assert "'decision' repeats the id of an earlier decision in 2 rows (rows 20 (part-00.parquet: 20), 21" in memory


def test_a_first_decision_that_is_invalid_leaves_its_id_to_the_next(tmp_path):
    marks = [(("reward", 0), 0), (("decision", 1), 10)]  # rows 0 and 10 have the id "0"
    memory, scanned = texts(write(tmp_path / "log", damaged(marks), [30]))
    assert memory == scanned
    assert "1 of 60 rows are invalid" in memory
    assert "repeats" not in memory


def test_repeats_are_never_left_out(tmp_path):
    where = write(tmp_path / "log", damaged([(("decision", 1), 10), (("reward", 0), 4)]), [30])
    memory, scanned = texts(where, drop_invalid=True)
    assert memory == scanned
    assert re.search(r"repeats the id .* in 1 row \(row 10 .*which of two such rows is right", memory)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(marks=[(("x_1", 1), 7)], cut=30)
@example(marks=[(("propensity", 2), 7), (("time", 0), 30)], cut=30)
@given(marks=damages, cut=st.integers(1, N - 1))
def test_the_same_rows_are_left_out_in_memory_and_in_every_pass(marks, cut, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 17)
    where = tmp_path / "log"
    for old in where.glob("*") if where.exists() else ():
        old.unlink()
    write(where, damaged(marks), [cut], 20)
    memory, scanned = texts(where, drop_invalid=True)
    assert memory == scanned
    if memory is not None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        log = cael.read(where, ROLES, n_actions=K, drop_invalid=True)
    stream = cael.scan(where, ROLES, n_actions=K, drop_invalid=True)
    for estimator in (cael.SNIPS(), cael.DM(), cael.SNDR()):  # without contexts, without propensities, with both
        here, there = estimator.estimate(log, "pi"), estimator.estimate(stream, "pi")
        assert here.n == there.n
        assert there.value == pytest.approx(here.value, rel=1e-9, abs=1e-9), estimator
        assert there.error == pytest.approx(here.error, rel=1e-9, abs=1e-9), estimator


def test_a_log_without_a_sound_row_is_told_alike(tmp_path):
    memory, scanned = texts(
        write(tmp_path / "log", damaged([(("reward", 0), row) for row in range(N)])), drop_invalid=True
    )
    assert memory == scanned
    assert "every one of the 60 rows is invalid: column 'reward' is missing in 60 rows" in memory


def test_the_first_places_of_a_flaw_are_the_same_in_whatever_order_parts_come():
    early, late = (Flaws("x", "is missing", 3, tuple((file, row) for row in (1, 4, 9))) for file in (0, 1))
    assert early.merge(late).places == late.merge(early).places == ((0, 1), (0, 4), (0, 9), (1, 1), (1, 4))


def test_a_flaw_in_a_context_that_nobody_needs_is_refused(tmp_path):
    where = write(tmp_path / "log", damaged([(("x_1", 1), 7)]), [30])
    scanned = cael.scan(where, ROLES, n_actions=K)
    with pytest.raises(cael.LogError, match="'x_1' is infinite"):
        cael.SNIPS().estimate(scanned, "probability:p")


@pytest.mark.parametrize("value", [0.9, 0.0])
@pytest.mark.parametrize("drop", [False, True])
def test_a_logging_policy_that_the_log_contradicts_is_told_with_all_its_rows(value, drop, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 17)
    rng = np.random.default_rng(0)
    mu = rng.dirichlet(np.full(K, 4.0), N)
    log = whole()
    actions = log["action"].to_numpy()
    log = log.set_column(2, "propensity", pa.array(mu[np.arange(N), actions]))
    wrong = mu.copy()
    for row in (5, 33, 51):
        wrong[row] = (1 - value) / (K - 1)
        wrong[row, actions[row]] = value
    log = log.append_column("mu", pa.array(list(wrong), pa.list_(pa.float64())))
    if drop:
        rewards = log["reward"].to_pylist()
        rewards[2] = None
        log = log.set_column(1, "reward", pa.array(rewards))
    memory, scanned = texts(write(tmp_path / "log", log, [30], 20), logging="dense:mu", drop_invalid=drop)
    assert memory == scanned
    assert ("disagree on 3 rows: row 5 (part-00" if value else "row 5 (part-00.parquet: 5) has 0.0 (3 such") in memory


def test_text_that_is_no_number_is_told_alike_in_csv_files(tmp_path):
    log = whole().select(["action", "reward", "propensity", "x_0", "p"])
    rows = [",".join(log.column_names)]
    rows += [",".join(map(str, row.values())) for row in log.to_pylist()]
    rows[40] = rows[40].replace(rows[40].split(",")[1], "much")
    rows[50] = rows[50].replace(rows[50].split(",")[1], "")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(rows) + "\n", "utf-8")
    with pytest.raises(cael.LogError) as memory:
        cael.read(path, n_actions=K)
    with pytest.raises(cael.LogError) as scanned:
        cael.evaluate(cael.scan(path, n_actions=K), "p", learn=False)
    assert str(memory.value) == str(scanned.value)
    assert "such as 'much', in 1 row (row 39)" in str(memory.value)


def test_parquet_of_one_file_names_rows_alone(tmp_path):
    pq.write_table(damaged([(("reward", 0), 7)]), tmp_path / "log.parquet")
    memory, scanned = texts(tmp_path / "log.parquet")
    assert memory == scanned
    assert "in 1 row (row 7)" in memory
