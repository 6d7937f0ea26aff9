"""JSON lines: the same log as the same table in Parquet; every broken line is named."""

from __future__ import annotations

import gc
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
from cael.errors import InputError, LogError

GOOD = '{"action": 1, "reward": 0.5, "propensity": 0.5}\n{"action": 0, "reward": 1, "propensity": 0.5}\n'


def rows(n: int = 300) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "action": ["7", "007", "b"][row % 3], "reward": float(rng.random()) if row else 1, "propensity": 1 / 3,
            "context": {"age": int(rng.integers(9)), "device": {"kind": "x" if row % 2 else "y"}},
            "top": ["b", "7", "007"], "chance": [0.5, 0.25, 0.25],
            "at": f"2026-01-01T00:{row // 60:02d}:{row % 60:02d}Z",
        }
        for row in range(n)
    ]  # fmt: skip


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def as_parquet(path: Path, lines: list[dict[str, Any]]) -> Path:
    flat = [
        {k: v for k, v in line.items() if k != "context"}
        | {"context_age": line["context"]["age"], "context_device_kind": line["context"]["device"]["kind"]}
        for line in lines
    ]
    pq.write_table(pa.Table.from_pylist(flat), path)
    return path


ROLES = {"contexts": ["context_age"], "timestamp": "at"}


@pytest.mark.parametrize("name", ["log.jsonl", "log.ndjson", "log.jsonl.gz", "log.json"])
def test_the_same_log_as_in_parquet(tmp_path: Path, name: str) -> None:
    ours = cael.io.open_log(written(tmp_path / name, rows()), ROLES)
    theirs = cael.io.open_log(as_parquet(tmp_path / "log.parquet", rows()), ROLES)
    assert ours.actions == ("007", "7", "b")
    assert ours.log.fingerprint == theirs.log.fingerprint
    policy = "topk:top+chance"
    assert (
        cael.IPS().estimate(ours.log, ours.policy(policy)).value
        == cael.IPS().estimate(theirs.log, theirs.policy(policy)).value
    )


def test_a_scan_gives_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", rows())
    scanned = cael.evaluate(cael.scan(path, ROLES), "topk:top+chance", learn=False)
    table = cael.io.open_log(path, ROLES)
    held = cael.evaluate(table.log, table.policy("topk:top+chance"), learn=False)
    assert [row.value for row in scanned] == pytest.approx([row.value for row in held], rel=1e-9)


def test_types_fit_all_lines_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is whole in the first block, a number in the next file, and missing in a third."""
    monkeypatch.setattr("cael.io.json_lines.BLOCK", 64)
    lines = [{"action": 0, "reward": 1, "propensity": 0.5, "x_a": 1}] * 5
    written(tmp_path / "a.jsonl", lines)
    written(tmp_path / "b.jsonl", [{**lines[0], "reward": 0.25, "x_a": None}, *lines, {**lines[0], "action": 1}])
    table = cael.io.open_log(tmp_path, {"contexts": ["x_a"]})
    assert table.log.rewards.tolist() == [1.0] * 5 + [0.25] + [1.0] * 6
    assert table.log.contexts[:, 0].tolist() == [1.0] * 12  # the missing one is the median
    assert any("x_a" in note for note in (*table.notes, *table.warnings) if "missing" in note)


def test_time_as_text_is_a_time(tmp_path: Path) -> None:
    log = cael.read(written(tmp_path / "log.jsonl", rows(20)), ROLES)
    assert str(log.timestamps[-1]) == "2026-01-01T00:00:19.000000"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('{"action": 1, "reward":}\n', "line 3 is not JSON"),
        ('\n\n{"action": "1", "reward": 1}\n', "line 5: 'action' is text, and a number in the lines before"),
        ('{"action": true, "reward": 1}\n', "line 3: 'action' is true or false"),
        ("[1, 2]\n", "line 3 is a list: expected JSON lines"),
        ("7\n", "line 3 is a number: expected JSON lines"),
        ('{"a": ' + "[" * 10**5 + "]" * 10**5 + "}\n", "line 3 nests lists and objects more than 64 deep"),
        ('{"a": ' + "[" * 10**5 + "\n", "line 3 nests"),
        ('{"a": ' + '{"a":' * 70 + "1" + "}" * 71 + "\n", "line 3 nests"),
        ('{"action": 1, "action": 2, "reward": 1}\n', "line 3 has the name 'action' twice"),
        ('{"action": 1, "reward": 1e400}\n', "line 3: 'reward' is a number too large"),
        ('{"context": {"a": 1}, "context_a": 2}\n', "two columns named 'context_a'"),
        (f'{{"action": {10**50}, "reward": 1, "propensity": 0.5}}\n', "cannot tell whole numbers"),
        ('{"action": null, "reward": 1, "propensity": 0.5}\n', "column 'action' is missing in 1 row (row 2)"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, more: str, said: str) -> None:
    (tmp_path / "log.jsonl").write_text(GOOD + more)
    with pytest.raises(InputError) as error:
        cael.read(tmp_path / "log.jsonl")
    assert said in str(error.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(GOOD.encode() + b'{"action": "\xff"}\n')
    with pytest.raises(InputError, match="line 3"):
        cael.read(tmp_path / "log.jsonl")


def test_brackets_in_text_are_no_depth(tmp_path: Path) -> None:
    lines = [{"action": row % 2, "reward": 1.0, "propensity": 0.5, "note": "[" * 200} for row in range(4)]
    assert len(cael.read(written(tmp_path / "log.jsonl", lines))) == 4


def test_a_file_without_lines_has_no_log(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match="no column for the action"):
        cael.read(tmp_path / "log.jsonl")


def test_lists_of_objects_are_left_out_and_said(tmp_path: Path) -> None:
    lines = [
        {"action": row % 2, "reward": 1.0, "propensity": 0.5, "items": [{"k": 1}], "e": {}, "l": []} for row in range(4)
    ]
    table = cael.io.open_log(written(tmp_path / "log.jsonl", lines))
    assert any("'items'" in note for note in table.notes)


def test_the_temporary_copy_goes_and_has_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    (tmp_path / "spool").mkdir()
    path = written(tmp_path / "log.jsonl", rows())
    table: Any = cael.io.open_log(path, ROLES)
    assert len(list((tmp_path / "spool").iterdir())) == 1
    del table
    gc.collect()  # a log knows its table, and the table its log
    assert list((tmp_path / "spool").iterdir()) == []
    monkeypatch.setenv("CAEL_SPOOL", "1KiB")
    with pytest.raises(InputError, match="CAEL_SPOOL"):
        cael.read(path, ROLES)
    assert list((tmp_path / "spool").iterdir()) == []


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises((LogError, InputError), match="empty"):
        cael.read(tmp_path / "log.jsonl")


def test_ids_of_more_than_63_bits_stay_apart(tmp_path: Path) -> None:
    """Hashes, say; small and wide ones, in any line."""
    wide = [{**row, "user": 2**63 + at if at % 2 else at} for at, row in enumerate(rows(40))]
    path = written(tmp_path / "log.jsonl", wide)
    assert len(set(cael.read(path, ROLES).clusters.tolist())) == 40
    kept, scanned = (cael.evaluate(log, "uniform", learn=False)["IPS"] for log in (cael.read(path), cael.scan(path)))
    assert scanned.stderr == pytest.approx(kept.stderr, rel=1e-9)


def test_a_packed_file_that_is_cut_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(GOOD.encode() * 50)[:-20])
    with pytest.raises(InputError, match=r"log.jsonl.gz cannot be read: Truncated compressed stream"):
        cael.read(tmp_path / "log.jsonl.gz")
