"""Whatever is handed in, the answer is a log, a policy, or an error of cael's own; what is written is read again."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import cael
from cael.io import open_log
from cael.io.specs import KINDS, PolicySpec, named, parse
from tests.io import logs

ROOT = Path(__file__).resolve().parents[2]
NO_LABELS = ("nan", "na", "null", "none", "inf", "infinity", "true", "false")  # CSV files mean something else by these
LABELS = st.text(st.characters(categories=("Lu", "Ll")), min_size=1, max_size=8).filter(
    lambda text: text.lower() not in NO_LABELS
)
HEADERS = st.lists(
    st.sampled_from(["action", "reward", "propensity", "x_0", "time", "user_id"]), min_size=1, max_size=6
)
CELLS = st.lists(st.sampled_from(["0", "1", "-1", "0.5", "a", "", "nan", "inf", "1e400", "[1]", "é"]), max_size=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@given(content=st.binary(max_size=300), ending=st.sampled_from(["csv", "parquet", "arrow", "csv.gz", "npz"]))
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(folder, content, ending):
    path = folder / f"any.{ending}"
    path.write_bytes(content)
    with pytest.raises(cael.CaelError) as found:
        open_log(path)
    assert str(path) in str(found.value)


@given(header=HEADERS, cells=CELLS)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_table(folder, header, cells):
    """Every row ends in the log, among those left out, or in an error that names the file."""
    width = len(header)
    rows = [cells[at : at + width] for at in range(0, len(cells) - width + 1, width)]
    path = folder / "any_table.csv"
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n", encoding="utf-8")
    try:
        found = open_log(path, drop_invalid=True, logging=None if "propensity" in header else "none")
    except cael.CaelError as error:
        assert "any_table.csv" in str(error)
    else:
        assert len(found.log) + (found.rows_read - len(found.log)) == found.rows_read
        assert (found.dropped == ()) == (len(found.log) == found.rows_read)
        assert np.isfinite(found.log.rewards).all()


@given(text=st.text(max_size=30))
def test_any_text_is_a_policy_or_an_error(text):
    try:
        assert isinstance(parse(text), PolicySpec | str)
        assert all(isinstance(part, str) for part in named(text))
    except cael.CaelError as error:
        assert str(error)


@given(kind=st.sampled_from(sorted(KINDS)), what=st.text(max_size=12), option=st.text(max_size=12))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_policy_of_a_kind(table, kind, what, option):
    if kind == "python":
        return  # it would import what the text names
    try:
        policy = table.policy(f"{kind}:{what},{option}")
    except cael.CaelError as error:
        assert str(error)
    else:
        assert isinstance(policy, cael.Policy)


@pytest.fixture(scope="module")
def table():
    return open_log(logs.table())


rows_of = st.lists(
    st.tuples(LABELS, st.floats(-1e6, 1e6), st.floats(1e-6, 1.0), st.floats(-1e3, 1e3)), min_size=2, max_size=30
)


@given(rows=rows_of)
@example(rows=[("A", 0.0, 1.0, 0.0), ("A", 0.0, 1.0, -0.0)])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_whatever_the_format(folder, rows):
    names, rewards, propensities, x = zip(*rows, strict=True)
    frame = pa.table({"action": names, "reward": rewards, "propensity": propensities, "x_0": x})
    pq.write_table(frame, folder / "t.parquet")
    pa.csv.write_csv(frame, folder / "t.csv")
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, frame.schema) as out:
        out.write_table(frame)
    (folder / "t.arrow").write_bytes(sink.getvalue())
    found = [open_log(source) for source in (frame, folder / "t.parquet", folder / "t.csv", folder / "t.arrow")]
    assert len({each.log.fingerprint for each in found}) == 1
    assert list(np.array(found[0].actions)[found[0].log.actions]) == list(names)
    assert list(found[0].log.rewards) == list(rewards)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "arrows"])
def test_damaged_files_are_read_or_refused(folder, ending):
    """Never a crash: an Arrow file is mapped memory, and wrong offsets in it would end the process."""
    logs.write(folder)
    found = subprocess.run(
        [sys.executable, "-m", "tests.io.mutate", str(folder / f"log.{ending}"), "0", "60"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    tried, refused = map(int, found.stdout.split())
    assert tried == 60
    assert refused > 10
