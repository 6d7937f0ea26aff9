"""The log of a command: in memory, or streamed where it does not fit into the memory budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from cael.cli.options import Reading
from cael.cli.output import Facts, facts_in_memory, facts_streamed
from cael.io.roles import Columns

if TYPE_CHECKING:
    from cael.engine.answer import Answer
    from cael.io import LogTable
    from cael.io.files import File
    from cael.judging.thresholds import Thresholds
    from cael.log.held import EngineLog
    from cael.log.scanned import ScannedLog
    from cael.results.question import Asked

IN_MEMORY = 4
"""A log in memory takes so many times the size of its columns: as read, as arrays, as weights and contributions."""


@Parameter(name="*", group="Large logs")
@dataclass(frozen=True)
class Large:
    """Logs larger than memory."""

    memory: str | None = None
    "What the program may take, such as 2GiB (default: half of what is free). A log that needs more is streamed."
    dask: str | None = None
    "Address of a Dask scheduler; its workers stream the files, which they must see under the same names."
    predictions: str | None = None
    "Columns of reward predictions for DM, DR, SNDR: LOGGED+TARGET, a pattern or a column of lists. Streams the log."


@dataclass(frozen=True)
class Opened:
    """A log that a command reads: in memory with its table, or in files (None). segments: names of their columns.
    cuts: what `ask` is told of segments and windows; those of a log in memory are with its rows."""

    log: EngineLog
    table: LogTable | None
    segments: tuple[str, ...]
    windows: bool
    cuts: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> Any:
        """The log as the library takes it."""
        return self.log if self.table is None else self.table.log

    def policy(self, spec: str) -> Any:
        """The policy of a spec, made once; on a log in files the engine makes it batch by batch."""
        return spec if self.table is None else self.table.policy(spec)

    def facts(self, answer: Answer) -> Facts:
        return facts_streamed(answer) if self.table is None else facts_in_memory(self.table)

    def parts(self, asked: Asked, name: str, level: float, seed: int, limits: Thresholds) -> dict[str, Any]:
        """The segments by column, and by time."""
        from cael.results.segmentation import segments_of

        lifts = [
            segments_of(asked, at, name, level, seed, windows=at == len(self.segments), thresholds=limits)
            for at in range(len(self.segments) + self.windows)
        ]
        by_column = dict(zip(self.segments, lifts, strict=False))
        return ({"segments": by_column} if by_column else {}) | ({"windows": lifts[-1]} if self.windows else {})


def open_large(
    log: str, columns: Columns | None, reading: Reading, large: Large, policies: Sequence[str],
    windows: int | None = None,
) -> Opened:  # fmt: skip
    """The log in memory, or scanned where that would take too much."""
    from cael import scan
    from cael.errors import InputError
    from cael.io.policy_columns import columns_named
    from cael.io.reading import found_files
    from cael.io.reading import opened as opened_files
    from cael.io.roles import resolve
    from cael.io.sources import TooLarge, open_source
    from cael.log.budget import PROGRAM, bytes_of, shown

    budget = bytes_of(large.memory)
    if large.dask == "":
        raise InputError("--dask is empty: give the address of a scheduler, or leave it out.")
    why = "as --dask asks" if large.dask else "as --predictions asks" if large.predictions is not None else ""
    asked = reading.source(log)
    if Path(log).suffix == ".npz" and isinstance(asked, str):
        if why:
            raise InputError(f"{log}: an .npz log is read whole; --dask and --predictions need files of columns.")
        return in_memory(opened(log, columns, reading), windows)
    files, name = found_files(asked)
    source, used = None, set[str]()
    if files[0].format == "parquet":
        source = opened_files(files, name)
        used = set(resolve(source, columns or Columns()).listed())
        used |= {column for spec in specs_in(policies, reading) for column in columns_named(spec, source)}
    need = PROGRAM + IN_MEMORY * sum(stored(file, used) for file in files)
    if not why and need <= budget:
        try:
            room = (budget - PROGRAM) / IN_MEMORY
            whole = replace(open_source(source or asked), room=room)
            return in_memory(opened(whole, columns, reading, policies), windows)
        except TooLarge:
            why = f"as it takes more in memory than the {shown(budget)} that may be used (--memory)"
    why = why or f"as it would take about {shown(need)} in memory and {shown(budget)} may be used (--memory)"
    scanned = scan(
        source or asked, columns, actions=reading.actions, n_actions=reading.n_actions, predictions=large.predictions,
        logging=reading.logging, drop_invalid=reading.drop_invalid, memory=budget, client=large.dask,
    )  # fmt: skip
    return in_files(replace(scanned, notes=(f"The log was streamed, {why}.", *scanned.notes)), windows)


def specs_in(policies: Sequence[str], reading: Reading) -> list[str]:
    """The specs of policies, and that of the logging policy."""
    from cael.io.specs import named

    return [*(named(policy)[1] for policy in policies), *([reading.logging] if reading.logging else [])]


def stored(file: File, columns: set[str]) -> float:
    """About how many bytes these columns of a Parquet file take when they are decoded; the size of other files.

    Lists and text are taken for all that is in their row groups, beside numbers. What a footer says of single columns
    is not asked: of a damaged one, Arrow's answer ends the process.
    """
    from cael.io.kinds import kind_of

    if file.format != "parquet":
        return float(file.path.stat().st_size)
    schema = file.schema()
    numbers = {name for name in schema.names if kind_of(schema.field(name).type) == "number"}
    groups = [file.footer.row_group(number) for number in range(file.footer.num_row_groups)]
    size = sum(8.0 * max(0, group.num_rows) * len(columns) for group in groups)
    if columns <= numbers:
        return size
    return size + sum(max(0.0, group.total_byte_size - 8.0 * group.num_rows * len(numbers)) for group in groups)


def opened(source: Any, columns: Columns | None, reading: Reading, policies: Sequence[str] = ()) -> LogTable:
    """The log, read and checked, and the columns of these policies along with it."""
    from cael.errors import positive_int
    from cael.io import open_log
    from cael.io.policy_columns import columns_named
    from cael.io.sources import open_source

    positive_int("seed", reading.seed, least=0)
    if not str(source).endswith(".npz"):
        source = open_source(reading.source(source) if isinstance(source, str) else source)
        for spec in specs_in(policies, reading):
            source.expect(columns_named(spec, source))
    return open_log(
        source, columns, actions=reading.actions, n_actions=reading.n_actions, logging=reading.logging,
        drop_invalid=reading.drop_invalid, seed=reading.seed,
    )  # fmt: skip


def in_memory(table: LogTable, windows: int | None) -> Opened:
    from cael.log.held import Held
    from cael.results.segmentation import by_label, by_time

    cuts = [by_label(table.log, labels) for _, labels in table.segments]
    if windows is not None:
        cuts.append(by_time(table.log, windows))
    names = tuple(name for name, _ in table.segments)
    return Opened(Held(table.log, tuple(cuts)), table, names, windows is not None)


def in_files(log: ScannedLog, windows: int | None) -> Opened:
    from cael.engine.windows import windows_of

    segments = tuple(log.columns.segment or ())
    cuts = {"segments": segments, "windows": None if windows is None else windows_of(log, windows)}
    return Opened(log, None, segments, windows is not None, cuts)
