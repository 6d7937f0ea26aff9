"""Databases: the same log as the same rows in Parquet, once and read-only, and no credential is shown."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
from cael.cli import app
from cael.errors import InputError
from cael.io.databases import masked, secrets_in
from tests.io.postgres import server

ROWS = 3000


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({
        "at": np.datetime64("2026-01-01T00:00:00", "us") + np.arange(ROWS) * np.timedelta64(1, "s"),
        "action": np.array(["a", "b", "007"])[rng.integers(0, 3, ROWS)], "reward": rng.random(ROWS).round(6),
        "propensity": np.full(ROWS, 1 / 3), "x_age": rng.integers(0, 9, ROWS),
        "user_id": [f"u{at % 500}" for at in range(ROWS)],
    })  # fmt: skip


ROLES = {"timestamp": "at", "contexts": ["x_age"]}


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "log.parquet"
    pq.write_table(table(), path)
    return path


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with server() as url:
        driver = pytest.importorskip("adbc_driver_postgresql.dbapi")
        with driver.connect(url) as connection:
            with connection.cursor() as cursor:
                cursor.adbc_ingest("clicks", table())
                cursor.execute(
                    "alter table clicks add column exact numeric(9,6), add column spent interval, add column key uuid"
                )
                cursor.execute("update clicks set exact = reward, spent = '1 day', key = gen_random_uuid()")
            connection.commit()
        yield url


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    path = tmp_path / "log.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "create table clicks (at text, action text, reward real, propensity real, x_age int, user_id text)"
        )
        rows = [tuple(row.values()) for row in table().set_column(0, "at", table()["at"].cast(pa.string())).to_pylist()]
        connection.executemany("insert into clicks values (?, ?, ?, ?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{path}"


def same(source: Any, parquet: Path) -> None:
    """The same log, in memory and scanned."""
    ours, theirs = cael.io.open_log(source, ROLES), cael.io.open_log(parquet, ROLES)
    assert ours.log.fingerprint == theirs.log.fingerprint
    assert ours.actions == ("007", "a", "b")
    scanned = cael.evaluate(cael.scan(source, ROLES), "uniform", learn=False)
    assert [row.value for row in scanned] == [
        row.value for row in cael.evaluate(cael.scan(parquet, ROLES), "uniform", learn=False)
    ]


def test_postgresql(postgres: str, parquet: Path) -> None:
    same(cael.io.Query(postgres, "select * from clicks order by 1"), parquet)


def test_types_of_postgresql(postgres: str) -> None:
    """Exact decimals are numbers; intervals and ids are text."""
    log = cael.read(cael.io.Query(postgres, "select * from clicks order by 1"), {"reward": "exact", **ROLES})
    assert log.rewards == pytest.approx(table()["reward"].to_numpy())


def test_sqlite(sqlite: str, parquet: Path) -> None:
    same(cael.io.Query(sqlite, "select * from clicks order by 1"), parquet)


def test_duckdb(tmp_path: Path, parquet: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "log.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create table clicks as from '{parquet}'")
    same(cael.io.Query(str(path), table="clicks"), parquet)
    same(cael.io.Query(f"duckdb:///{path}", "from clicks order by 1"), parquet)
    with pytest.raises(InputError, match="--query"):
        cael.read(path)


def test_the_command_reads_it(sqlite: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["evaluate", sqlite, "--policy", "uniform", "--no-learn"],
        ["audit", sqlite],
        ["plan", sqlite, "--policy", "uniform"],
    ):
        app([*words, "--table", "clicks", "--timestamp", "at"], result_action="return_value")
        assert "The query has no ORDER BY" in " ".join(capsys.readouterr().out.split())


def test_the_row_order_is_asked_for(sqlite: str) -> None:
    ordered = cael.io.open_log(cael.io.Query(sqlite, "select * from clicks order\n by at"))
    assert not any("ORDER BY" in note for note in ordered.notes)


WRONG = [
    "select nope from clicks",
    "drop table clicks",
    "insert into clicks (reward) values (1)",
    "select 1; select 2",
    "delete from clicks",
]


@pytest.mark.parametrize("sql", WRONG)
def test_errors_and_writes_end_in_a_sentence(postgres: str, sqlite: str, sql: str) -> None:
    for url in (postgres, sqlite):
        password = re.search(r":(\w{16})@", url)
        with pytest.raises(InputError) as error:
            cael.read(cael.io.Query(url, sql))
        assert password is None or password[1] not in str(error.value)
        assert len(cael.read(cael.io.Query(url, "select * from clicks"))) == ROWS


SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@nowhere.invalid:1/logs", f"postgresql://me:{SECRET}@/logs?host=/nowhere",
        f"postgresql://me@/logs?host=/nowhere&password={SECRET}", f"postgresql://me:{SECRET}/x@nowhere.invalid:99999/logs",
        f"postgresql://me:%68unter2@nowhere.invalid:port/logs?password={SECRET}", f"postgresql://{SECRET}@x@nowhere.invalid/",
    ],
)  # fmt: skip
def test_no_credential_is_shown(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = cael.io.Query(url, "select 1")
    with pytest.raises(InputError) as error:
        cael.read(query)
    with pytest.raises(InputError) as bare:
        cael.read(url)
    with pytest.raises(SystemExit):
        cael.cli.main(["evaluate", url, "--query", "select 1"])
    shown = [str(error.value), str(bare.value), repr(query), str(query), capsys.readouterr().err, masked(url)]
    assert not any(SECRET in text or "%68unter2" in text for text in shown), shown


def test_the_answer_shows_no_credential(postgres: str, tmp_path: Path) -> None:
    password = re.search(r":(\w{16})@", postgres)
    assert password is not None
    done = [
        subprocess.run(
            [sys.executable, "-c", "from cael.cli import main; main()", "evaluate", postgres, "--query",
            "select * from clicks order by at",
             "--policy", "uniform", "--no-learn", "--timestamp", "at", "--format", format, "--out",
             str(tmp_path / f"{format}.html")],
            capture_output=True, text=True, check=True,
        )
        for format in ("table", "json", "markdown")
    ]  # fmt: skip
    texts = [text for run in done for text in (run.stdout, run.stderr)] + [
        p.read_text() for p in tmp_path.glob("*.html")
    ]
    assert len(texts) == 9
    assert not any(password[1] in text for text in texts)


def test_negative_control_the_secrets_are_known() -> None:
    assert SECRET in secrets_in(f"postgresql://me:{SECRET}@nowhere.invalid/logs")
    assert masked(f"postgresql://me:{SECRET}@nowhere.invalid:5/logs?x=1") == "postgresql://nowhere.invalid:5/logs"


@pytest.mark.parametrize(
    "url", ["mysql://localhost/x", "https://example.invalid/log.parquet", "log.parquet", "s3://bucket/log"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InputError, match="postgresql://"):
        cael.io.Query(url, "select 1")
    if "://" in url:
        with pytest.raises(InputError, match="a database or an address"):
            cael.read(url)


def test_a_query_or_a_table(sqlite: str) -> None:
    for sql, name in ((None, None), ("select 1", "clicks")):
        with pytest.raises(InputError, match="--query"):
            cael.io.Query(sqlite, sql, name)
    with pytest.raises(InputError, match="no such table"):
        cael.read(cael.io.Query(sqlite, table='clicks"; drop table clicks; --'))


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/no.db", f"{tmp_path}/no.duckdb"):
        with pytest.raises(InputError, match="there is no file"):
            cael.read(cael.io.Query(url, "select 1"))
    assert list(tmp_path.iterdir()) == []


def test_a_column_of_mixed_types_is_said(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("create table t (action, reward real)")
        connection.executemany("insert into t values (?, ?)", [(1, 0.5)] * 2000 + [("x", 0.5)])
    connection.close()
    with pytest.raises(InputError, match="Type mismatch in column 0"):
        cael.read(cael.io.Query(f"sqlite:///{tmp_path / 'log.db'}", table="t"))


def test_two_columns_of_one_name(sqlite: str) -> None:
    with pytest.raises(InputError, match="two columns named 'reward'"):
        cael.read(cael.io.Query(sqlite, "select action, reward, reward from clicks"))


@pytest.mark.long
def test_the_temporary_file_goes_when_the_process_is_ended(postgres: str, tmp_path: Path) -> None:
    rows = "i % 3 as action, random() as reward, 1/3.0::float8 as propensity from generate_series(1, 100000000) i"
    words = [
        sys.executable,
        "-c",
        "from cael.cli import main; main()",
        "evaluate",
        postgres,
        "--query",
        f"select {rows}",
    ]
    process = subprocess.Popen(
        words, env={"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("query")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(list(tmp_path.glob("cael-*"))) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
