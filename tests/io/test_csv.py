"""CSV in blocks: the same table as by reading it whole, wherever a value is that changes a type, and little memory."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv

import cael
from cael import InputError
from cael.io.csv_files import copied

VALUES = st.sampled_from(
    ["", "1", "0", "-7", "2.5", "true", "x", "2026-01-31", "10:30:00", "2026-01-31 10:30:00", "2026-01-31T10:30:00.25",
     "2026-01-31T10:30:00Z", "nan", "1e3", "9" * 25, '"quoted, with a comma"', '""', "\udcff"]
)  # fmt: skip
KINDS = st.lists(VALUES, min_size=1, max_size=3)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), columns=st.lists(KINDS, min_size=2, max_size=4), small=st.sampled_from([0, 2**20]))
def test_the_table_is_that_of_reading_it_whole(tmp_path, data, columns, small):
    rows = [[data.draw(st.sampled_from(kind)) for kind in columns] for _ in range(data.draw(st.integers(1, 30)))]
    text = "\n".join([",".join(f"c{at}" for at in range(len(columns))), *map(",".join, rows)]) + "\n"
    path = tmp_path / "log.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    whole = csv.read_csv(
        path, parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(quoted_strings_can_be_null=False),
    )  # fmt: skip
    copy = copied(path, small=small, block=160)
    found = pa.Table.from_batches(copy.batches(None), copy.schema)
    assert found.schema == whole.schema
    assert found.equals(whole) or str(found.to_pydict()) == str(whole.to_pydict())  # nan is not equal to nan


def test_a_row_that_is_wrong_is_named_wherever_it_is(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("action,reward\n" + "1,2\n" * 5000 + "1,2,3\n")
    with pytest.raises(pa.ArrowInvalid, match="Row #5002: Expected 2 columns, got 3"):
        copied(path, block=1000)
    with pytest.raises(InputError, match=r"log.csv cannot be read: .*Row #5002"):
        cael.read(path)


def test_a_large_file_takes_little_memory_and_leaves_nothing_behind(tmp_path):
    path, room = tmp_path / "log.csv", tmp_path / "room"
    room.mkdir()
    path.write_text("a,b,c\n" + "0.123456789,some text of a log,7\n" * 2_000_000)
    code = (
        "import sys, pyarrow as pa; from pathlib import Path; from cael.io.csv_files import copied;"
        "pa.set_cpu_count(2); found = copied(Path(sys.argv[1]), small=0, block=2**18);"
        "rows = sum(batch.num_rows for batch in found.batches(None));"
        "print(rows, pa.default_memory_pool().max_memory(), len(list(Path(sys.argv[2]).iterdir())))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, path, room], capture_output=True, text=True, check=True,
        env={**os.environ, "TMPDIR": str(room)},
    ).stdout  # fmt: skip
    rows, most, folders = map(int, out.split())
    assert rows == 2_000_000
    assert most < path.stat().st_size / 4
    assert folders == 1
    assert list(room.iterdir()) == []


def test_no_room_for_a_copy_is_said(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    path.write_text("a,b\n1,2\n")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(InputError, match=r"log.csv: no temporary copy could be written to .*missing.*Set TMPDIR"):
        copied(path, small=0)
