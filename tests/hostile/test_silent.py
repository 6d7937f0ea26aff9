"""No silent wrong number: each of these gave one, and gives the right one now, or an error."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
from cael.cli import main
from cael.io import cells as io_cells
from cael.io import csv_files
from cael.io.kinds import without
from cael.log.keys import distinct_keys, label_array, label_keys
from tests.hostile.cases import N, columns, one, parquet, text

CHANGED = r"log\.\w+ changed while the log was read"


def rewritten(path, **changes):
    """The file anew: another file of the same name, as programs write."""
    path = Path(path)
    other = path.with_suffix(".new")
    (parquet if path.suffix == ".parquet" else text)(path.parent, **changes)
    path.replace(other)
    other.replace(path)
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("make", [parquet, text], ids=["parquet", "text"])
def test_a_log_in_memory_notices_that_its_file_changed(tmp_path, make):
    path = make(tmp_path)
    table = cael.io.open_log(path)
    rewritten(path, best=(np.arange(N) + 2) % 3)
    if make is text:  # its content was copied when it was opened, and is the old one; labels are read again
        with pytest.raises(cael.InputError, match=CHANGED):
            table.policy("choice:best")
        assert table.policy("dense:pi").n_actions == 3
        return
    with pytest.raises(cael.InputError, match=CHANGED):
        table.policy("choice:best")


@pytest.mark.parametrize("make", [parquet, text], ids=["parquet", "text"])
def test_a_scanned_log_notices_a_file_of_the_same_size(tmp_path, make):
    path = Path(make(tmp_path))
    log = cael.scan(path, n_actions=3)
    cael.evaluate(log, "choice:best", learn=False)
    content = path.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    with pytest.raises(cael.InputError, match=CHANGED):
        cael.evaluate(log, "choice:best", learn=False)


def test_a_file_that_changes_during_a_pass_is_noticed(tmp_path):
    path = Path(parquet(tmp_path))
    log = cael.scan(path, n_actions=3)

    def policy(contexts):
        os.utime(path, ns=(1, 1))
        return np.full((len(contexts), 3), 1 / 3)

    with pytest.raises(cael.InputError, match=CHANGED):
        cael.evaluate(log, cael.FromModel(policy), learn=False)


def test_a_file_as_another_machine_sees_it_may_have_another_identity(tmp_path):
    from cael.io.files import find

    (file,) = find(parquet(tmp_path))
    other = tmp_path / "copy"
    other.write_bytes(file.path.read_bytes())
    os.utime(other, ns=(file.stamp[1], file.stamp[1]))
    other.replace(file.path)
    with pytest.raises(cael.InputError, match=CHANGED):
        list(file.batches(["action"]))
    assert sum(batch.num_rows for batch in file.anywhere().batches(["action"])) == N


USERS = {
    "whole numbers": (["17", "18", "19", "20"], 4),
    "leading zeros": (["0017", "17", "017", "20"], 4),
    "fractions of zero": (["1", "1.0", "1.00", "2"], 4),
    "exponents": (["10", "1e1", "1E1", "2"], 4),
    "spaces": (["1", " 1", "1 ", "2"], 4),
    "truth": (["true", "TRUE", "True", "false"], 4),
    "16 digits beside a fraction": (["9007199254740992", "9007199254740993", "2.0", "3"], 4),
    "20 digits": ([str(10**19 + at) for at in range(4)], 4),
    "text": (["a", "A", "a ", "b"], 4),
}


@pytest.mark.parametrize("kind", USERS)
def test_labels_of_text_files_stay_as_they_are_written(tmp_path, kind):
    """In memory and in a stream alike: as many clusters as there are texts, and the same answer."""
    users, count = USERS[kind]
    path = text(tmp_path, user=[users[at % 4] for at in range(N)])
    kept, scanned = cael.read(path), cael.scan(path, n_actions=3)
    assert len(np.unique(kept.clusters)) == count
    twin = cael.read(pa.table(columns(user=[f"u{at % 4}" for at in range(N)])))
    here, there, expected = (
        cael.evaluate(log, "choice:best,epsilon=0.5", learn=False)["SNIPS"] for log in (kept, scanned, twin)
    )
    assert here.stderr == pytest.approx(expected.stderr, rel=1e-9)
    assert there.stderr == pytest.approx(expected.stderr, rel=1e-9)


def test_whole_numbers_in_text_stay_whole_numbers(tmp_path):
    assert cael.io.open_log(text(tmp_path)).actions == (0, 1, 2)
    assert cael.scan(text(tmp_path)).actions.labels == (0, 1, 2)


def test_a_stream_refuses_a_label_that_is_no_whole_number_later_on(tmp_path, monkeypatch):
    from cael.io import files

    monkeypatch.setattr(files, "CSV_BLOCK", 700)
    users = [str(at // 2) for at in range(N - 1)] + ["007"]
    path = text(tmp_path, user=users, pi=...)
    assert len(np.unique(cael.read(path).clusters)) == len(set(users))
    with pytest.raises(
        cael.InputError, match=r"column 'user' holds whole numbers .* and '007' in row 59, which is not"
    ):
        cael.evaluate(cael.scan(path, n_actions=3), "choice:best", learn=False)


def test_keys_tell_wide_whole_numbers_apart_in_memory_and_in_a_stream():
    for labels in ([2**63, 2**63 + 1], [-1, 5], [10**25, 10**25 + 1], [-1, 2**63], ["1", "01"]):
        keys = distinct_keys(labels)
        assert len(set(keys.tolist())) == 2
        if labels != [-1, 2**63]:
            assert label_keys(label_array(labels)).tolist() == keys.tolist()


def test_lists_are_refused_where_nobody_said_in_which_order_the_actions_are(tmp_path):
    names = [f"a{10 if at % 3 == 1 else at % 3}" for at in range(N)]  # in the order of text: a0, a10, a2
    path = parquet(tmp_path, action=names, best=names)
    kept = cael.io.open_log(path)
    for spec in ("dense:pi", "softmax:pi", "greedy:pi"):
        with pytest.raises(cael.PolicyError, match="by position, and the actions are names, of which the log says no"):
            kept.policy(spec)
    for log in (cael.scan(path),):
        with pytest.raises(cael.PolicyError, match="by position"):
            cael.evaluate(log, "dense:pi", learn=False)
        with pytest.raises(cael.PolicyError, match="by position"):
            cael.scan(path, predictions="pi")
    table = cael.io.open_log(path, actions=pa.table({"action": ["a2", "a10", "a0"]}))
    batch = next(table.log.batches(width=3))
    p = table.policy("dense:pi").probabilities(batch)[0]
    assert dict(zip(table.actions, p, strict=True)) == pytest.approx({"a2": 0.2, "a10": 0.3, "a0": 0.5})


def test_predictions_by_a_pattern_follow_the_labels_and_not_the_order_of_the_columns(tmp_path):
    k = 11
    given = {f"q_{a}": np.full(N, float(a)) for a in sorted(range(k), key=str)}  # q_0, q_1, q_10, q_2, ...
    path = parquet(tmp_path, action=np.arange(N) % k, propensity=np.full(N, 1 / k), best=np.full(N, 2), pi=..., **given)
    found = cael.evaluate(cael.scan(path, n_actions=k, predictions="q_*"), "choice:best", learn=False)["DM"]
    assert found.value == pytest.approx(2.0)


def test_damage_in_one_cell_of_lists_moves_no_other(tmp_path):
    """Two cells that are whole lists together, and none alone."""
    cells = ["[0.2,0.3,0.5]"] * N
    cells[3], cells[4], cells[5] = "[0.2,0.3,0.5],[0.1,0.1", "0.8]", "[1,0,0]"
    path = text(tmp_path, pi=cells)
    with pytest.raises(cael.InputError, match=r"'pi' must hold lists; .*row 3"):
        cael.io.open_log(path).policy("dense:pi")


@pytest.mark.parametrize("how", ["read", "scan"])
def test_a_repeated_id_is_refused_in_memory_and_in_a_stream(tmp_path, how):
    path = parquet(tmp_path, decision_id=[*range(N - 1), 4])
    with pytest.raises(cael.LogError, match=r"repeats the id of an earlier decision.* in 1 row"):
        log = cael.read(path) if how == "read" else cael.scan(path, n_actions=3)
        cael.evaluate(log, "uniform", learn=False)


def test_a_policy_cannot_end_the_process(tmp_path, capsys):
    class Ends(cael.Policy):
        def probabilities(self, batch):
            raise SystemExit(0)

    log = cael.read(pa.table(columns()))
    with pytest.raises(cael.PolicyError, match="tried to end the process, with exit code 0"):
        cael.evaluate(log, Ends(), learn=False)
    with pytest.raises(cael.PolicyError, match="tried to end the process"):
        cael.evaluate(cael.scan(parquet(tmp_path), n_actions=3), Ends(), learn=False)


def test_text_with_underscores_and_times_are_no_numbers(tmp_path):
    with pytest.raises(cael.LogError, match="'reward' is not a number, such as '1_0'"):
        cael.read(text(tmp_path, **one("reward", "1_0")))
    with pytest.raises(cael.LogError, match="rewards must be numbers; got datetime64"):
        cael.LoggedData(None, [0, 1], np.array(["2026-01-01", "2026-01-02"], "M8[D]"), [0.5, 0.5])


def test_blocks_of_text_without_rows_are_left_where_they_are():
    """A large file ended in a traceback: Arrow leaves such blocks out of its answer."""
    blocks = pa.chunked_array([[], ["17", "NA", "a"], [], ["18"], []], pa.string())
    assert csv_files._present(blocks).to_pylist() == ["17", None, "a", "18"]


FOOTERS = """
import sys
from pathlib import Path
import cael
from cael.cli.large import stored
from cael.io.files import find
from cael.io.reading import tasks_of
path, good, seen = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes(), 0
for place, value in eval(sys.argv[3]):
    content = bytearray(good)
    content[place] = value
    path.write_bytes(content)
    try:
        (file,) = find(path)
        stored(file, {"action", "pi"}), tasks_of((file,)), list(file.batches(["action", "reward", "pi"]))
    except cael.InputError:
        seen += 1
print(seen)
"""


@pytest.mark.long
def test_a_flipped_byte_in_a_footer_ends_in_an_error(tmp_path):
    """What a footer says of columns ended the process: sizes of histograms that are not those of the levels."""
    good, n = tmp_path / "good.parquet", 40
    table = {"action": np.arange(n) % 3, "reward": np.arange(n) / n, "pi": [[0.2, 0.3, 0.5]] * n}
    pq.write_table(pa.table(table), good, row_group_size=20)
    content = good.read_bytes()
    size = struct.unpack("<i", content[-8:-4])[0]
    start = len(content) - 8 - size
    flips = [(at, content[at] ^ (1 << bit)) for at in range(start, start + size, 3) for bit in range(8)]
    done = subprocess.run(
        [sys.executable, "-c", FOOTERS, tmp_path / "bad.parquet", good, repr(flips)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > len(flips) / 20


def test_the_exit_code_of_a_policy_is_not_that_of_the_gate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "silent_exit.py").write_text("import sys\ndef policy(x): sys.exit(0)\n")
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", parquet(tmp_path), "--policy", "python:silent_exit:policy", "--gate", "--no-learn"])
    assert stop.value.code == 1


@pytest.mark.parametrize("make", [lambda x: x, lambda x: pa.chunked_array([x])], ids=["array", "chunks"])
def test_labels_of_slices_are_those_of_their_rows(make):
    """`pc.if_else` gave the labels of other rows before pyarrow 25, and text that was none."""
    rng = np.random.default_rng(0)
    cells = [["sport", "", None, "n", "a long label"][code] for code in rng.integers(0, 5, 300)]
    for start, end in [(0, 300), (7, 61), (50, 100), (299, 300), (123, 123)]:
        part = pa.array(cells, pa.string()).slice(start, end - start)
        gone = pa.array([cell == "" for cell in cells], pa.bool_()).slice(start, end - start)
        text = without(make(part), make(gone))
        assert text.to_pylist() == [cell or None for cell in cells[start:end]]
        floats = pa.array([float(len(cell or "")) for cell in cells]).slice(start, end - start)
        for column, expected in ((part, [cell or None for cell in cells[start:end]]), (floats, floats.to_pylist())):
            codes, distinct, _ = io_cells.labels("x", [column])
            assert [distinct[code] if code >= 0 else None for code in codes] == expected
