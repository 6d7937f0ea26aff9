"""Experiments of many logs, one line a log: they stop in time and go on where they were."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cael.common.whole import write_whole
from cael.errors import InputError
from cael.experiments.ledger import append, in_parallel, read_lines


@final
@dataclass(frozen=True)
class LogTask:
    """A log of a world: its name, and the seed."""

    world: str
    seed: int


Lines = Sequence[dict[str, Any]]
"""What was found, a dictionary a log."""


def until(calls: Iterable[tuple[Any, ...]], seconds: float) -> Iterator[tuple[Any, ...]]:
    """These calls, but none after so many seconds."""
    end = time.monotonic() + seconds
    for call in calls:
        if time.monotonic() > end:
            return
        yield call


def run_logs(
    row: Callable[[LogTask], dict[str, Any]], tasks: Sequence[LogTask], rows: Path, jobs: int, seconds: float
) -> list[dict[str, Any]]:
    """The lines of the tasks that are done, after those that were missing were run, for so long. rows: the file."""
    rows.parent.mkdir(parents=True, exist_ok=True)
    done = {LogTask(line["world"], line["seed"]): line for line in read_lines(rows)}
    missing = [task for task in tasks if task not in done]
    for count, line in enumerate(in_parallel(row, until(((task,) for task in missing), seconds), jobs), start=1):
        done[LogTask(line["world"], line["seed"])] = line
        append(rows, [line])
        print(f"{count} of {len(missing)}: {line['world']} {line['seed']}", file=sys.stderr, flush=True)
    return [done[task] for task in tasks if task in done]


def parser_of(text: str | None, rows: str) -> argparse.ArgumentParser:
    """The options of such an experiment. rows: where logs are kept by default."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a .json file; the table is written beside it (.inc)")
    parser.add_argument("--rows", type=Path, default=Path(rows), help="where logs are kept")
    parser.add_argument("--only", nargs="*", default=(), help="names of worlds; all by default")
    parser.add_argument("--logs", type=int, default=30, help="of each world")
    parser.add_argument("--seeds", type=int, default=7000, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no log after so many seconds")
    return parser


def asked_tasks(options: Any, worlds: Sequence[str], default: Sequence[str]) -> list[LogTask]:
    """Log by log, all worlds: a run that ends early has about as many of each."""
    unknown = [name for name in options.only if name not in worlds]
    if unknown:
        raise InputError(f"there is no world {unknown[0]!r}; there are: {', '.join(worlds)}.")
    return [LogTask(name, options.seeds + t) for t in range(options.logs) for name in options.only or default]


def write(out: Path, facts: dict[str, Any], table: str) -> None:
    """The facts, and the table of the documentation beside them."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, json.dumps(facts, indent=1) + "\n")
    write_whole(out.with_suffix(".inc"), table)


def told(lines: Lines, tasks: Sequence[LogTask]) -> None:
    """Whether all was run."""
    if len(lines) < len(tasks):
        print(f"{len(lines)} of {len(tasks)} logs are done; run the same command again to go on.", file=sys.stderr)
