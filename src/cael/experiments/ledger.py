"""The rows of one experiment: which are there, which are awaited. Every row is in the file as soon as it comes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from cael.common.whole import not_written, write_whole
from cael.errors import InputError
from cael.experiments import trial
from cael.experiments.spec import Spec


@final
class Ledger:
    """Rows by key. tasks: all that the experiment wants. awaited: keys of tasks that are still to be run."""

    def __init__(self, spec: Spec, folder: Path, tasks: list[trial.Task]) -> None:
        self.spec, self.folder, self.tasks = spec, folder, tasks
        self.path = folder / "trials.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        named = [(key, name) for task in tasks for key, name in zip(task.keys, task.names, strict=True)]
        self.names = dict(named)
        kept = read_rows(self.path).items()
        self.rows = {key: row for key, row in kept if "error" not in row}  # what failed is tried again
        self.pending = [task for task in tasks if not all(key in self.rows for key in task.keys)]
        self.awaited = {key for task in self.pending for key in task.keys}
        self.closed = False

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Write what is awaited here; another experiment may call the same estimator by another name."""
        mine = [{**row, "estimator": self.names[row["key"]]} for row in rows if row["key"] in self.awaited]
        self.awaited -= {row["key"] for row in mine}
        fresh = [row for row in mine if row["key"] not in self.rows]
        self.rows.update({row["key"]: row for row in fresh})
        append(self.path, fresh)

    def close(self, order: list[str]) -> list[dict[str, Any]]:
        """The rows in the given order of keys, which is then also that of the file; rows of other settings follow."""
        ordered = [self.rows[key] for key in order]
        others = [self.rows[key] for key in sorted(set(self.rows) - set(self.names))]
        write_whole(self.path, "".join(trial.canonical(row) + "\n" for row in [*ordered, *others]))
        self.closed = True
        return ordered


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Rows by key."""
    try:
        return {row["key"]: row for row in read_lines(path)}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a file of trials ({error}). Move it away, or choose another --out.") from error


def read_lines(path: Path) -> list[Any]:
    """What each line of a file holds. A line that was cut off in the middle by a kill is taken out of the file."""
    data = path.read_bytes() if path.exists() else b""
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        write_whole(path, whole)
    return [json.loads(line) for line in whole.splitlines()]


def read_json(path: Path, otherwise: Any) -> Any:
    """What a JSON file holds, or something else where there is none."""
    try:
        return json.loads(path.read_text("utf-8")) if path.exists() else otherwise
    except ValueError as error:
        raise InputError(f"{path} is not a JSON file ({error}). Move it away, or choose another --out.") from error


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Whole lines or none: a disk that is full may take half of one."""
    before = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write("".join(trial.canonical(row) + "\n" for row in rows).encode())
    except OSError as error:
        with suppress(OSError):
            os.truncate(path, before)
        raise not_written(path, error) from error


def in_parallel(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], jobs: int, *, ordered: bool = False, ahead: int = 2
) -> Iterator[Any]:
    """What a function returns for each of many arguments, from several processes: as they end, or in their order.

    ahead: calls for each process that are taken from `calls` before the first has ended."""
    from joblib import Parallel, delayed

    kind = "generator" if ordered else "generator_unordered"
    pool = Parallel(n_jobs=jobs, return_as=kind, pre_dispatch=f"{ahead}*n_jobs", batch_size=1 if ahead == 1 else "auto")
    results: Iterator[Any] = pool(delayed(function)(*call) for call in calls)
    return results
