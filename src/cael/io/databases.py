"""Logs in databases: a URL or a DuckDB file, and a query, run once. Nothing is written there; credentials are not
shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from urllib.parse import parse_qsl, unquote, urlsplit

from cael.errors import InputError
from cael.io.database_types import plain_schema, plainly
from cael.io.extras import extra
from cael.io.files import File, format_of, readable
from cael.io.spool import spooled, temporary

ROWS = 2**16
POSTGRES = ("postgresql", "postgres")
SECRETS = ("password", "passfile", "sslpassword", "user", "token")
"""Parameters of a URL that are not shown."""


@final
@dataclass(frozen=True, repr=False)
class Query:
    """Rows of a database: `Query("postgresql://localhost/logs", "select ...")`, in place of a path.

    url : postgresql://..., sqlite:///file.db, or the path of a DuckDB file.
    sql : a query, which is run once, in a transaction that may only read. table : a table, in place of a query.
    The rows go to a temporary file, so a log is the same rows however often it is read. Their order counts, for drift
    and for folds: say `order by`.

    >>> Query("postgresql://me:secret@localhost/logs", table="clicks")
    Query('postgresql://localhost/logs', 'select * from "clicks"')
    """

    url: str
    sql: str | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        if (self.sql is None) == (self.table is None):
            raise InputError(
                f"{masked(self.url)}: say which rows, with a query (--query) or a table (--table), and not both."
            )
        if kind_of(self.url) is None:
            raise InputError(
                f"{masked(self.url)}: a query goes to postgresql://..., sqlite:///FILE or a DuckDB file (.duckdb, "
                ".ddb). Of "
                "another database, export the rows to Parquet, or read them with its ADBC driver: cael.read takes "
                "readers "
                "of Arrow."
            )

    def __repr__(self) -> str:
        return f"Query({masked(self.url)!r}, {self.text!r})"

    def __str__(self) -> str:
        return masked(self.url)

    @property
    def text(self) -> str:
        """The SQL."""
        if self.sql is not None:
            return self.sql
        return "select * from " + ".".join('"' + part.replace('"', '""') + '"' for part in str(self.table).split("."))


def is_url(text: str) -> bool:
    return re.match(r"[A-Za-z][\w+.-]*://", text) is not None


def kind_of(url: str) -> str | None:
    """ "postgresql", "sqlite" or "duckdb"; None for what is none of them."""
    scheme = url.partition("://")[0].lower() if is_url(url) else ""
    if scheme in POSTGRES:
        return "postgresql"
    if scheme in ("sqlite", "duckdb"):
        return scheme
    return "duckdb" if not scheme and format_of(url) == "duckdb" else None


def masked(url: str) -> str:
    """The URL without user, password and parameters."""
    if not is_url(url):
        return url
    scheme, _, rest = url.partition("://")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = place.partition("/")
    if "@" in path:  # a slash in the password
        host, _, after = place.rpartition("@")
        host, slash, path = after.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def secrets_in(url: str) -> list[str]:
    """What must not be shown of a URL, longest first."""
    if not is_url(url):
        return []
    rest = url.partition("://")[2]
    login = re.split(r"[?#]", rest, maxsplit=1)[0].rpartition("@")[0]
    values = [login, *login.split(":", 1)[1:]]
    values += [value for name, value in parse_qsl(urlsplit(url).query) if name.lower() in SECRETS]
    values += [
        part for value in values for part in re.split("[:/@?#&=]", value) if len(part) > 3
    ]  # as a driver may split it
    both = {url, *values, *map(unquote, values)}
    return sorted((value for value in both if value), key=len, reverse=True)


@contextmanager
def _said(query: Query) -> Iterator[None]:
    """Turns what a driver raises into one sentence without credentials."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # each driver has its own
        reason = " ".join(str(error).split())
        for secret in secrets_in(query.url):
            reason = reason.replace(secret, "***")
        raise InputError(
            f"{query}: the database says: {reason[:400].rstrip('.')}. The query was: {query.text[:200]}"
        ) from None


def read_query(query: Query) -> tuple[File, ...]:
    """The rows of the query, as a temporary Parquet file."""
    held = temporary(str(query))
    with _said(query), OPENERS[str(kind_of(query.url))](query) as reader:
        schema = plain_schema(reader.schema, str(query))
        batches = (plainly(batch, schema) for batch in _watched(reader, query))
        return (spooled(held, "query", schema, batches, source=str(query), notes=_notes(query)),)


def _watched(reader: Any, query: Query) -> Iterator[Any]:
    with _said(query):
        yield from reader


def _notes(query: Query) -> tuple[str, ...]:
    if re.search(r"\border\s+by\b", query.text, re.IGNORECASE):
        return ()
    return (
        "The query has no ORDER BY, so its rows may come in another order next time, and folds, drift and time periods "
        "follow their order: add one.",
    )


@contextmanager
def _postgresql(query: Query) -> Iterator[Any]:
    driver = extra("adbc_driver_postgresql.dbapi", "sql", f"{query} is a PostgreSQL database")
    with closing(driver.connect(query.url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("set transaction read only")
        cursor.execute(query.text)
        yield cursor.fetch_record_batch()


@contextmanager
def _sqlite(query: Query) -> Iterator[Any]:
    driver = extra("adbc_driver_sqlite.dbapi", "sql", f"{query} is an SQLite database")
    path = Path(unquote(query.url.partition("://")[2].partition("?")[0].removeprefix("/")))
    if not path.is_file():
        raise InputError(
            f"{query}: there is no file {path}. sqlite:///log.db is in this folder, sqlite:////data/log.db in /data."
        )
    with (
        closing(driver.connect(f"{path.resolve().as_uri()}?mode=ro")) as connection,
        closing(connection.cursor()) as cursor,
    ):
        cursor.execute(query.text)
        yield cursor.fetch_record_batch()


@contextmanager
def _duckdb(query: Query) -> Iterator[Any]:
    driver = extra("duckdb", "duckdb", f"{query} is a DuckDB database")
    path = Path(query.url.partition("://")[2].removeprefix("/") if is_url(query.url) else query.url)
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    with readable(path), closing(driver.connect(str(path), read_only=True)) as connection:
        rows = connection.sql(query.text)
        if rows is None:
            raise InputError(f"{query}: the query gives no rows: expected a select. It was: {query.text[:200]}")
        yield rows.to_arrow_reader(ROWS) if hasattr(rows, "to_arrow_reader") else rows.fetch_arrow_reader(ROWS)


OPENERS: dict[str, Callable[[Query], Any]] = {"postgresql": _postgresql, "sqlite": _sqlite, "duckdb": _duckdb}
