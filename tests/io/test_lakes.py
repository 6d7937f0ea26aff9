"""Delta and Iceberg tables: their present rows, or a sentence; never their files as if they were all rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cael
from cael.errors import InputError
from cael.io.lakes import newest_metadata

TABLE = pa.table(
    {"action": [0, 1, 2] * 100, "reward": [0.1, 0.2, 0.3] * 100, "propensity": [1 / 3] * 300, "x_day": [1, 2, 3] * 100}
)


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """300 rows, of which those of day 1 and one version were deleted: 200 are left."""
    deltalake = pytest.importorskip("deltalake")
    folder = tmp_path / "delta"
    deltalake.write_deltalake(str(folder), TABLE.slice(0, 30), partition_by=["x_day"])
    deltalake.write_deltalake(str(folder), TABLE, mode="overwrite")
    deltalake.DeltaTable(str(folder)).delete("x_day = 1")
    return folder


@pytest.fixture
def iceberg(tmp_path: Path) -> Path:
    """300 rows of which 100 are left, and a column with another name than in the files."""
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("c", warehouse=(tmp_path / "ice").as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.log", schema=TABLE.rename_columns(["action", "r", "propensity", "x_day"]).schema)
    table.append(TABLE.rename_columns(["action", "r", "propensity", "x_day"]))
    table.delete("x_day > 1")
    with table.update_schema() as update:
        update.rename_column("r", "reward")
    return tmp_path / "ice" / "n" / "log"


def test_delta_has_its_present_rows(delta: Path) -> None:
    log = cael.read(delta)
    assert (len(log), sorted(set(log.actions.tolist()))) == (200, [0, 1])
    assert log.contexts[:, 0].sum() == 500  # days 2 and 3, as numbers
    assert cael.scan(delta).rows == 200


@pytest.mark.filterwarnings("ignore::Warning")
def test_iceberg_has_its_present_rows(iceberg: Path) -> None:
    log = cael.read(iceberg)
    assert (len(log), log.rewards.sum()) == (100, pytest.approx(10.0))


@pytest.mark.parametrize("pattern", ["x_day=2", "*/*.parquet", "x_day=*/part*.parquet", ".."])
def test_files_of_delta_are_no_table(delta: Path, pattern: str) -> None:
    with pytest.raises(InputError, match="belongs to the Delta table"):
        cael.read(delta / pattern)


def test_files_of_iceberg_are_no_table(iceberg: Path) -> None:
    for path in (iceberg / "data", iceberg.parent, iceberg / "data" / "*.parquet"):
        with pytest.raises(InputError, match="belongs to the Iceberg table"):
            cael.read(path)


def test_the_extra_is_asked_for(delta: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(InputError, match=r"pip install 'cael\[delta\]'"):
        cael.read(delta)


def test_the_extra_for_iceberg_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    with pytest.raises(InputError, match=r"pip install 'cael\[iceberg\]'"):
        cael.read(tmp_path)


def test_deletion_vectors_are_refused(delta: Path) -> None:
    import deltalake

    deltalake.DeltaTable(str(delta)).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    with pytest.raises(InputError, match=r"eletionVectors.*PURGE"):
        cael.read(delta)


def test_two_descriptions_of_one_number_are_refused(iceberg: Path) -> None:
    newest = max((iceberg / "metadata").glob("*.metadata.json"))
    newest.with_name(newest.name[:5] + "-other.metadata.json").write_text(newest.read_text())
    with pytest.raises(InputError, match="which description"):
        cael.read(iceberg)


def test_hudi_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").mkdir()
    with pytest.raises(InputError, match="Hudi"):
        cael.read(tmp_path)


def test_a_broken_delta_log_is_a_sentence(delta: Path) -> None:
    for path in (delta / "_delta_log").glob("*.json"):
        path.write_text("{broken")
    with pytest.raises(InputError, match="cannot be read as a Delta table"):
        cael.read(delta)


def described(folder: Path, change: Any) -> Path:
    """The newest description of an Iceberg table, changed."""
    path = newest_metadata(folder)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("place", ["s3://bucket/x.avro", "http://127.0.0.1:9/x", "gs://b/x", "hdfs://127.0.0.1:9/x"])
def test_iceberg_asks_no_other_machine(iceberg: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    described(iceberg, lambda document: [s.update({"manifest-list": place}) for s in document["snapshots"]])
    monkeypatch.setattr("pyiceberg.table.StaticTable.from_metadata", None)
    with pytest.raises(InputError, match="has files elsewhere, such as"):
        cael.read(iceberg)


@pytest.mark.filterwarnings("ignore::Warning")
def test_files_of_iceberg_on_other_machines_are_not_asked_for(iceberg: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import ManifestFile

    monkeypatch.setattr(ManifestFile, "manifest_path", property(lambda _: "s3://bucket/manifest.avro"))
    with pytest.raises(InputError, match=r"has files elsewhere, such as s3://bucket/manifest\.avro"):
        cael.read(iceberg)


@pytest.mark.filterwarnings("ignore::Warning")
def test_iceberg_imports_no_code(iceberg: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owned.py").write_text("raise SystemExit(99)")
    monkeypatch.syspath_prepend(str(tmp_path))
    described(iceberg, lambda document: document.setdefault("properties", {}).update({"py-io-impl": "owned.IO"}))
    with pytest.raises(InputError, match=r"names code to read the table with \(py-io-impl\)"):
        cael.read(iceberg)
    assert "owned" not in sys.modules


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_file_that_is_gone_is_named_with_its_table(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    for path in folder.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(InputError, match=f"cannot be read as an? {kind.capitalize()} table"):
        cael.read(folder)
