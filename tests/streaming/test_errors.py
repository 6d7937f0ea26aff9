"""What is wrong is said in one sentence that names the file, with exit code 1; nothing is dropped silently."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import cael
from cael.cli import main
from cael.log import budget
from tests.streaming.logs import K, table, write


def spoilt(log, column, rows, value):
    values = log[column].to_pylist()
    for row in rows:
        values[row] = value
    return log.set_column(log.column_names.index(column), column, pa.array(values))


def test_every_flaw_is_counted_with_row_numbers_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 50)
    log = spoilt(spoilt(table(400), "reward", [3, 170, 250, 251, 252, 253, 399], None), "propensity", [9, 300], 0.0)
    log = spoilt(log, "action", [120], 17)
    where = write(tmp_path / "log", log, [150, 300], 40)
    with pytest.raises(cael.LogError) as caught:
        cael.evaluate(cael.scan(where, n_actions=K), "p")
    told = str(caught.value)
    assert "10 of 400 rows are invalid" in told
    assert "column 'reward' is missing in 7 rows (rows 3 (part-00.parquet: 3), 170 (part-01.parquet: 20), 250" in told
    assert "column 'propensity' is not above 0, such as 0.0, in 2 rows" in told
    assert "(row 120 (part-00.parquet: 120))" in told
    with pytest.warns(UserWarning, match="10 of 400 rows were left out because they are invalid"):
        found = cael.evaluate(cael.scan(where, n_actions=K, drop_invalid=True), "p")
    kept = cael.io.open_log(log, n_actions=K, drop_invalid=True)
    twin = cael.SNIPS().estimate(kept.log, kept.policy("p"))
    assert found["SNIPS"].value == pytest.approx(twin.value, rel=1e-12)
    assert found["SNIPS"].n == 390


def test_a_wrong_row_of_a_policy_is_refused_with_its_file(tmp_path):
    log = spoilt(table(400), "p", [333], 1.5)
    where = write(tmp_path / "log", log, [150])
    with pytest.raises(cael.PolicyError, match=r"'p' is not in \[0, 1\], such as 1.5, in 1 row .*part-01.parquet"):
        cael.evaluate(cael.scan(where, n_actions=K, drop_invalid=True), "p")
    bad = spoilt(table(400), "pi", [200], [0.5] * K)
    where = write(tmp_path / "bad", bad, [150])
    with pytest.raises(cael.PolicyError, match=r"must sum to 1 .* Found in .*part-01.parquet at rows"):
        cael.evaluate(cael.scan(where, n_actions=K), "pi")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (cael.LoggedOnly(np.full(100, 0.5)), "aligned with the rows of a log in memory"),
        (np.full((100, K), 1 / K), "aligned with the rows of a log in memory"),
        (cael.Mixture([cael.Uniform(K), cael.Tabular(np.full((100, K), 1 / K))], [0.5, 0.5]), "aligned with the rows"),
        (cael.Softmax(np.zeros((100, K))), "aligned with the rows"),
        (cael.Uniform(K + 1), f"has {K + 1} actions, but the log has {K}"),
        ("nowhere", "neither a column of"),
        ("logging", "known on logged actions alone"),
    ],
    ids=str,
)
def test_policies_that_cannot_be_streamed_are_refused(policy, said, tmp_path):
    log = cael.scan(write(tmp_path / "log", table(100)), n_actions=K)
    with pytest.raises(cael.PolicyError, match=re.escape(said)):
        cael.evaluate(log, policy)


def test_a_long_table_of_decisions_is_refused_and_one_for_all_is_not(tmp_path):
    where = write(tmp_path / "log", table(100).append_column("decision_id", pa.array(range(100))))
    log = cael.scan(where, n_actions=K)
    pq.write_table(
        pa.table({"decision_id": [1], "action": [0], "probability": [1.0]}), tmp_path / "by_decision.parquet"
    )
    with pytest.raises(cael.PolicyError, match="joining them needs the log in memory"):
        cael.evaluate(log, f"table:{tmp_path}/by_decision.parquet")
    pq.write_table(pa.table({"action": range(K), "probability": np.full(K, 1 / K)}), tmp_path / "for_all.parquet")
    found = cael.evaluate(log, f"table:{tmp_path}/for_all.parquet")
    assert found["SNIPS"].value == pytest.approx(cael.evaluate(log, "uniform")["SNIPS"].value)


def test_estimators_that_need_the_log_in_memory_are_skipped_or_refused(tmp_path):
    log = cael.scan(write(tmp_path / "log", table(200)), n_actions=K)
    found = cael.evaluate(log, "p")
    assert "probabilities of all actions" in dict(found.skipped)["DR"]
    for estimator in (
        cael.MIPS(),
        cael.CAELMIPS(),
    ):
        with pytest.raises(cael.NeedsError):
            cael.evaluate(log, "pi", estimator)


def test_a_log_without_propensities_has_no_weights(tmp_path):
    log = cael.scan(write(tmp_path / "log", table(200).drop(["propensity"])), n_actions=K, logging="none")
    found = cael.evaluate(log, "pi")
    assert [each.estimator for each in found] == ["LoggedMean", "DM"]
    assert "logged propensities" in dict(found.skipped)["SNIPS"]
    assert found.verdict.level == "refuse"


def test_no_support_and_constant_rewards_are_what_they_are_in_memory(tmp_path):
    log = spoilt(table(60), "p", range(60), 0.0)
    found = cael.evaluate(cael.scan(write(tmp_path / "a", log), n_actions=K, predictions="q_logged+q_target"), "p")
    assert "no support at all" in dict(found.skipped)["IPS"]
    with pytest.raises(cael.SupportError):
        cael.evaluate(cael.scan(tmp_path / "a", n_actions=K), "p", cael.IPS())
    with pytest.raises(cael.LogError, match="every one of the 60 rewards is 2"):
        cael.evaluate(cael.scan(write(tmp_path / "b", spoilt(table(60), "reward", range(60), 2.0)), n_actions=K), "p")


def said(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(each) for each in arguments])
    out = capsys.readouterr()
    return stop.value.code, out.err


@pytest.fixture
def tight(monkeypatch):
    """A machine on which every log is too large."""
    from cael.cli import large

    monkeypatch.setattr(large, "IN_MEMORY", 1e9)


def test_a_truncated_file_is_named(tmp_path, capsys, tight):
    where = write(tmp_path / "log", table(400), [200])
    last = where / "part-01.parquet"
    last.write_bytes(last.read_bytes()[:-100])
    code, told = said(capsys, "evaluate", where, "--policy", "p", "--out", tmp_path / "r.html")
    assert code == 1
    assert told.startswith("error: ")
    assert "part-01.parquet cannot be read" in told
    assert told.count("\n") == 1
    assert not list(tmp_path.glob("*.html*"))


def test_a_file_that_is_broken_in_the_middle_is_named(tmp_path, capsys, tight):
    where = write(tmp_path / "log", table(4000), [2000])
    last = where / "part-01.parquet"
    data = bytearray(last.read_bytes())
    data[4:6000] = bytes(5996)
    last.write_bytes(bytes(data))
    code, told = said(capsys, "evaluate", where, "--policy", "p", "--n-actions", K)
    assert code == 1
    assert "part-01.parquet cannot be read" in told


@pytest.mark.parametrize("change", ["missing", "besides", "kind"])
def test_a_file_with_another_schema_is_named(change, tmp_path, capsys, tight):
    where = write(tmp_path / "log", table(400), [200])
    other = pq.read_table(where / "part-01.parquet")
    if change == "missing":
        other, told = other.drop(["propensity"]), "has no column 'propensity'"
    elif change == "besides":
        other, told = other.append_column("more", other["reward"]), "has an extra column 'more'"
    else:
        text = pa.array(map(str, other["reward"].to_pylist()))
        other, told = other.set_column(1, "reward", text), "has text and not number in column 'reward'"
    pq.write_table(other, where / "part-01.parquet")
    code, err = said(capsys, "evaluate", where, "--policy", "p")
    assert code == 1
    assert f"part-01.parquet {told}" in err


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_vanishes_in_the_middle_is_named(workers, tmp_path):
    where = write(tmp_path / "log", table(400), [100, 200, 300])
    log = cael.scan(where, n_actions=K, workers=workers)

    def removes(contexts):
        (where / "part-03.parquet").unlink(missing_ok=True)
        return np.full((len(contexts), K), 1 / K)

    with pytest.raises(cael.InputError, match=r"part-03.parquet is gone"):
        cael.evaluate(log, removes)


def test_a_file_that_changes_in_the_middle_is_named(tmp_path):
    where = write(tmp_path / "log", table(400), [100, 200, 300])
    log = cael.scan(where, n_actions=K, workers=1)

    def changes(contexts):
        pq.write_table(table(7), where / "part-03.parquet")
        return np.full((len(contexts), K), 1 / K)

    with pytest.raises(cael.InputError, match=r"part-03.parquet changed while the log was read"):
        cael.evaluate(log, changes)


def test_csv_columns_that_change_their_kind_are_named(tmp_path):
    log = table(300).select(["action", "reward", "propensity", "p"])
    pa.csv.write_csv(log, tmp_path / "a.csv")
    text = (tmp_path / "a.csv").read_text().split("\n")
    (tmp_path / "a.csv").write_text("\n".join([*text[:200], "1,many,0.5,0.5", *text[200:]]))
    with pytest.raises(cael.InputError, match=r"a.csv"):
        cael.evaluate(cael.scan(tmp_path / "a.csv", n_actions=K), "p")


FULL = """
import resource, sys
from cael.cli import large, main
large.IN_MEMORY = float(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
main(sys.argv[2:])
"""


@pytest.mark.parametrize("factor", ["1e9", "1"], ids=["streamed", "in memory"])
def test_a_full_disk_leaves_no_report(factor, tmp_path):
    where, out = write(tmp_path / "log", table(400), [200]), tmp_path / "report.html"
    arguments = ["evaluate", str(where), "--policy", "p", "--no-learn", "--out", str(out)]
    done = subprocess.run([sys.executable, "-c", FULL, factor, *arguments], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{out} could not be written: File too large" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_an_old_report_survives_a_failed_one(tmp_path, monkeypatch):
    from cael import report

    found = cael.evaluate(cael.scan(write(tmp_path / "log", table(100)), n_actions=K), "p")
    out = tmp_path / "report.html"
    out.write_text("old")

    def fails(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(cael.InputError, match="No space left on device"):
        report.save(out, found)
    assert out.read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "report.html"]


def test_scan_refuses_what_it_cannot_read(tmp_path):
    with pytest.raises(cael.InputError, match="scan reads files"):
        cael.scan(table(10))
    with pytest.raises(cael.InputError, match="npz log is read whole"):
        cael.scan("log.npz")
    with pytest.raises(cael.InputError, match="there is no file"):
        cael.scan(tmp_path / "nothing.parquet")
    with pytest.raises(cael.InputError, match="memory must be a size such as 2GiB"):
        cael.scan(write(tmp_path / "log", table(10)), memory="much")
    with pytest.raises(cael.InputError, match="memory must be at least 384 MiB"):
        cael.scan(tmp_path / "log", memory="10MB")
    with pytest.raises(cael.LogError, match="has no rows"):
        pq.write_table(table(5).slice(0, 0), tmp_path / "empty.parquet")
        cael.scan(tmp_path / "empty.parquet", n_actions=K)
