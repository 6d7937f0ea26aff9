"""The memory budget: a log that does not fit is streamed by itself, says so, and stays within it."""

import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
from cael.cli import main
from cael.log.budget import Budget, bytes_of, shown
from tests.streaming.logs import K, table, write

ROWS = 3_000_000


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """A log of 3 million rows with a target and predictions."""
    path = tmp_path_factory.mktemp("long") / "log.parquet"
    rng = np.random.default_rng(0)
    writer = None
    for _ in range(3):
        n = ROWS // 3
        mu = rng.uniform(0.1, 0.5, n)
        columns = {
            "action": rng.integers(0, 5, n), "reward": rng.random(n), "propensity": mu,
            "target": np.minimum(1.0, mu * rng.exponential(size=n)), "q_a": rng.random(n), "q_pi": rng.random(n),
        }  # fmt: skip
        part = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    writer.close()
    return path


MEASURE = """
import atexit, pathlib, sys
from cael.cli import main
atexit.register(lambda: pathlib.Path(sys.argv[1]).write_text(pathlib.Path("/proc/self/status").read_text()))
main(sys.argv[2:])
"""


def peak(place, *arguments):
    """Exit code, standard output and peak resident memory in bytes of `cael ...` in a process of its own."""
    told = place / "status"
    command = [sys.executable, "-c", MEASURE, str(told), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, int(re.search(r"VmHWM:\s+(\d+) kB", told.read_text())[1]) * 1024


@pytest.mark.long
def test_a_log_that_does_not_fit_is_streamed_within_the_budget(long_log, tmp_path):
    options = (
        "evaluate",
        long_log,
        "--policy",
        "probability:target",
        "--n-actions",
        5,
        "--format",
        "json",
        "--no-learn",
    )
    code, out, taken = peak(tmp_path, *options, "--memory", "384MiB")
    assert code in (0, 3)
    told = json.loads(out)
    assert told["reading"]["rows"] == ROWS
    assert any(note.startswith("The log was streamed, as it would take about") for note in told["reading"]["notes"])
    assert taken < 384 * 2**20
    code, out, alone = peak(tmp_path, *options, "--memory", "100GiB")
    assert code in (0, 3)
    assert not any("streamed" in note for note in json.loads(out)["reading"]["notes"])
    assert alone > 384 * 2**20  # in memory it does not fit
    kept = {each["estimator"]: each for each in json.loads(out)["estimates"]}
    for each in told["estimates"]:
        if each["estimator"] in kept:
            assert each["value"] == pytest.approx(kept[each["estimator"]]["value"], rel=1e-9)
            assert each["stderr"] == pytest.approx(kept[each["estimator"]]["stderr"], rel=1e-9)


def test_many_clusters_are_summed_into_buckets_and_it_is_said(tmp_path, monkeypatch):
    log = table(3000, 1, clusters=700)
    where = write(tmp_path / "log", log, [1000], 400)
    kept = cael.io.open_log(log, {"cluster": "user"}, n_actions=K)
    twin = cael.SNIPS().estimate(kept.log, kept.policy("pi"))
    monkeypatch.setattr(Budget, "most_clusters", lambda *_: 100)
    with pytest.warns(UserWarning, match="more clusters than the memory budget holds"):
        found = cael.evaluate(cael.scan(where, {"cluster": "user"}, n_actions=K), "pi", learn=False)["SNIPS"]
    assert found.value == pytest.approx(twin.value, rel=1e-9)
    assert found.stderr == pytest.approx(twin.stderr, rel=0.15)
    assert found.stderr != twin.stderr


def test_sizes_are_read_and_written():
    assert bytes_of("2GiB") == 2 * 2**30
    assert bytes_of("500 MB") == 500 * 10**6
    assert bytes_of(10**9) == 10**9
    assert bytes_of(None) >= 384 * 2**20
    assert shown(384 * 2**20) == "384 MiB"
    assert shown(1.5 * 2**30) == "1.5 GiB"


def test_wide_rows_make_short_batches_and_too_wide_ones_are_refused():
    assert Budget(2**30, 2).batch_rows(100) == 2**16
    assert Budget(2**29, 2).batch_rows(2000) < Budget(2**29, 1).batch_rows(2000) < 2**16
    with pytest.raises(cael.InputError, match="too little for rows of 1,000,000 bytes: expected at least"):
        Budget(2**29, 2).batch_rows(1e6)


def call(capsys, *arguments):
    code = 0
    try:
        main([str(each) for each in arguments])
    except SystemExit as stop:
        code = stop.code or 0
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture
def tight(monkeypatch):
    from cael.cli import large

    monkeypatch.setattr(large, "IN_MEMORY", 1e9)


def test_the_command_line_streams_with_segments_and_a_report(tmp_path, capsys, tight):
    pytest.importorskip("jsonschema")
    from jsonschema import validate

    from cael.cli.schema import schema_of

    where, out = write(tmp_path / "log", table(900, 2), [300]), tmp_path / "report.html"
    options = ("evaluate", where, "--policy", "new=pi", "--segment", "part", "--n-actions", K)
    code, text, _ = call(capsys, *options, "--format", "json", "--out", out)
    told = json.loads(text)
    validate(told, schema_of("evaluation"))
    assert code == 0
    assert told["policy"] == "new"
    assert told["headline"] == "Auto"
    assert {row["label"] for row in told["segments"]["part"]["rows"]} == {"north", "south", "west"}
    page = out.read_text()
    assert "The log was streamed" in page
    assert "<h2>Audit of the log: " in page  # as that of a log in memory has it
    assert len(page) < 300 * 1024
    code, text, _ = call(capsys, *options)
    assert "The log was streamed, as it would take about" in text
    code, text, _ = call(capsys, *options, "--format", "markdown")
    assert "The log was streamed" in text


def test_the_command_line_compares_in_a_stream(tmp_path, capsys, tight):
    where = write(tmp_path / "log", table(900, 2), [300])
    options = ("compare", where, "--policy", "new=pi", "--policy", "choice:best,epsilon=0.5", "--n-actions", K)
    code, text, _ = call(capsys, *options, "--format", "json", "--estimator", "SNIPS")
    assert code in (0, 3)
    streamed = json.loads(text)
    assert streamed["reading"]["rows_read"] == 900
    from cael.cli import large

    large.IN_MEMORY = 1
    kept = json.loads(call(capsys, *options, "--format", "json", "--estimator", "SNIPS")[1])
    for a, b in zip(streamed["policies"], kept["policies"], strict=True):
        assert a["name"] == b["name"]
        assert a["lift"] == pytest.approx(b["lift"], rel=1e-9)
        assert a["lift_error"] == pytest.approx(b["lift_error"], rel=1e-9)


def test_calibrate_on_the_command_line(tmp_path, capsys, tight):
    where = write(tmp_path / "log", table(300), [70])
    options = ("evaluate", where, "--policy", "dense:pi", "--calibrate", "--no-learn", "--format", "json")
    told = json.loads(call(capsys, *options)[1])["calibration"]
    assert told["n"] == 300
    assert {"SNIPS", "SNDR"} <= {row["estimator"] for row in told["rows"]}


def test_windows_on_the_command_line(tmp_path, capsys, tight):
    where = write(tmp_path / "log", table(300), [70])
    _code, text, _ = call(
        capsys, "evaluate", where, "--policy", "p", "--windows", "3", "--format", "json", "--no-learn"
    )
    told = json.loads(text)["windows"]["rows"]
    assert [each["label"] for each in told] == ["1: from row 0", "2: from row 100", "3: from row 200"]


def test_an_npz_log_is_never_streamed(tmp_path, capsys):
    call(capsys, "simulate", tmp_path / "log.npz", "--actions", "5", "--rows", "100")
    code, _, err = call(capsys, "evaluate", tmp_path / "log.npz", "--dask", "tcp://nowhere:1")
    assert code == 1
    assert "an .npz log is read whole" in err


def test_predictions_on_the_command_line(tmp_path, capsys):
    where = write(tmp_path / "log", table(300, 2), [100])
    options = ("--policy", "probability:p", "--predictions", "q_logged+q_target", "--n-actions", K, "--format", "json")
    _code, text, _ = call(capsys, "evaluate", where, *options)
    told = json.loads(text)
    assert told["headline"] == "Auto"
    assert "The log was streamed, as --predictions asks." in told["reading"]["notes"]
