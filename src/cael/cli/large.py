"""The log of a command: in memory, or streamed where it does not fit into the memory budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from cael.cli.options import Reading, opened
from cael.cli.output import Facts
from cael.io.roles import Columns

if TYPE_CHECKING:
    from cael.engine.answer import Answer
    from cael.io import LogTable
    from cael.judging.thresholds import Thresholds
    from cael.log.held import EngineLog
    from cael.log.scanned import ScannedLog
    from cael.results.segmentation import Segments

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


def streamed(
    log: str, columns: Columns | None, reading: Reading, large: Large, policies: Sequence[str]
) -> ScannedLog | None:
    """The scanned log where it is to be streamed, else None."""
    from cael.errors import InputError
    from cael.log.budget import bytes_of, shown

    budget = bytes_of(large.memory)
    if Path(log).suffix == ".npz":
        if large.dask is not None or large.predictions is not None:
            raise InputError(f"{log}: an .npz log is read whole; --dask and --predictions need files of columns.")
        return None
    need = needed(log, columns, [*policies, reading.logging or ""])
    why = "as --dask asks" if large.dask else "as --predictions asks" if large.predictions else ""
    if not why and need <= budget:
        return None
    why = why or f"as it would take about {shown(need)} in memory and {shown(budget)} may be used (--memory)"
    from cael import scan

    found = scan(
        log, columns, actions=reading.actions, n_actions=reading.n_actions, predictions=large.predictions,
        logging=reading.logging, drop_invalid=reading.drop_invalid,
        memory=budget, client=large.dask,
    )  # fmt: skip
    return replace(found, notes=(f"The log was streamed, {why}.", *found.notes))


def needed(log: str, columns: Columns | None, policies: Sequence[str]) -> float:
    """Bytes that the log and these policies would take in memory, from the sizes that the files state."""
    from cael.io.reading import found_files
    from cael.io.reading import opened as opened_files
    from cael.io.roles import resolve
    from cael.log.budget import PROGRAM

    files, name = found_files(log)
    if files[0].format != "parquet":
        return PROGRAM + IN_MEMORY * float(sum(file.path.stat().st_size for file in files))
    source = opened_files(files, name)
    roles = resolve(source, columns or Columns())
    used = {each for role in vars(roles).values() if role for each in ((role,) if isinstance(role, str) else role)}
    text = " ".join(policies)
    wanted = {column for column in source.names if column in used or column.rstrip("0123456789") in text}
    return PROGRAM + IN_MEMORY * sum(stored(file.path, wanted) for file in files)


def stored(path: Path, wanted: set[str]) -> float:
    """Bytes of these columns of a Parquet file when they are decoded: at least 8 for each row."""
    import pyarrow.parquet as pq

    from cael.io.files import readable

    total = 0.0
    with readable(path), pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            for at in range(group.num_columns):
                chunk = group.column(at)
                if chunk.path_in_schema.split(".")[0] in wanted:
                    total += max(8.0 * chunk.num_values, float(chunk.total_uncompressed_size))
    return total


def facts_of(answer: Answer) -> Facts:
    """What the outputs say about a log that was streamed."""
    log: Any = answer.log
    return Facts(
        source=log.source.name, rows_read=answer.read, rows=answer.n, dropped=answer.dropped, n_actions=log.n_actions,
        context_dim=len(log.columns.contexts or ()), columns=log.columns, notes=log.notes, warnings=answer.warnings,
        actions=log.actions.labels,
    )  # fmt: skip


@dataclass(frozen=True)
class Opened:
    """A log that a command reads: in memory with its table, or in files (None). windows: of time, how many."""

    log: EngineLog
    table: LogTable | None
    segments: tuple[str, ...]
    windows: int | None

    def cuts(self) -> dict[str, Any]:
        """What `ask` is told of segments and windows; those of a log in memory are with its rows."""
        if self.table is not None:
            return {}
        from cael.engine.windows import windows_of

        return {
            "segments": self.segments,
            "windows": None if self.windows is None else windows_of(self.log, self.windows),
        }

    def facts(self, answer: Answer) -> LogTable | Facts:
        return self.table if self.table is not None else facts_of(answer)

    def parts(self, answer: Answer, name: str, level: float, seed: int, limits: Thresholds) -> dict[str, Any]:
        """The segments by column, and by time."""
        from cael.results.segmentation import segments_of

        def part(at: int, *, windows: bool = False) -> Segments:
            return replace(segments_of(answer, at, name, level, seed, windows=windows), thresholds=limits)

        more: dict[str, Any] = {}
        if self.segments:
            more["segments"] = {column: part(at) for at, column in enumerate(self.segments)}
        if self.windows is not None:
            more["windows"] = part(len(self.segments), windows=True)
        return more


def open_large(
    log: str, columns: Columns | None, reading: Reading, large: Large, policies: Sequence[str],
    windows: int | None = None,
) -> Opened:  # fmt: skip
    """The log in memory, or scanned where that would take too much."""
    from cael.log.held import Held
    from cael.results.segmentation import by_label, by_time

    scanned = streamed(log, columns, reading, large, policies)
    if scanned is not None:
        return Opened(scanned, None, tuple(scanned.columns.segment or ()), windows)
    table = opened(log, columns, reading)
    cuts = [by_label(table.log, labels) for _, labels in table.segments]
    if windows is not None:
        cuts.append(by_time(table.log, windows))
    return Opened(Held(table.log, tuple(cuts)), table, tuple(name for name, _ in table.segments), windows)
