"""Logs that do not fit into the memory budget: when `evaluate` and `compare` stream, and what they then do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from cael.cli.options import Reading
from cael.cli.output import Facts
from cael.io.columns import Columns

if TYPE_CHECKING:
    from cael.engine.asking import Answer
    from cael.estimators import Estimator
    from cael.log.scanned import ScannedLog
    from cael.results.comparison import Comparison
    from cael.results.evaluation import Evaluation

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
    from cael.io.columns import resolve
    from cael.io.reading import found_files, opened
    from cael.log.budget import PROGRAM

    files, name = found_files(log)
    if files[0].format != "parquet":
        return PROGRAM + IN_MEMORY * float(sum(file.path.stat().st_size for file in files))
    source = opened(files, name)
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
    log = answer.log
    return Facts(
        source=log.source.name, rows_read=answer.read, rows=answer.n, dropped=answer.dropped, n_actions=log.n_actions,
        context_dim=len(log.columns.contexts or ()), columns=log.columns, notes=log.notes, warnings=answer.warnings,
        actions=log.actions.labels,
    )  # fmt: skip


def evaluate(
    log: ScannedLog, policy: str, estimators: Sequence[Estimator], *, level: float, headline: str | None, learn: bool,
    windows: int | None, seed: int,
) -> tuple[Evaluation, dict[str, Any], Facts]:  # fmt: skip
    """The evaluation, the segments by column and by time, and what was read; all from one pass."""
    from cael.engine.asking import ask
    from cael.engine.stream_results import default_estimator, evaluation_of, segments_of
    from cael.engine.windows import windows_of
    from cael.io.specs import named
    from cael.results.evaluation import panel_with

    name, spec = named(policy)
    wanted, asked = panel_with(estimators, None if learn else False)
    columns = log.columns.segment or ()
    cut = None if windows is None else windows_of(log, windows)
    answer = ask(log, {name: spec}, list(wanted.values()), asked=asked, segments=tuple(columns), windows=cut)
    found = evaluation_of(answer, asked, level, headline, None)
    chosen = default_estimator(log, [answer.targets[0].complete])
    parts = {column: segments_of(answer, at, chosen, level, seed) for at, column in enumerate(columns)}
    more: dict[str, Any] = {"segments": parts} if parts else {}
    if cut is not None:
        more["windows"] = segments_of(answer, len(columns), chosen, level, seed, cut)
    return replace(found, policy=name), more, facts_of(answer)


def compare(
    log: ScannedLog, policies: Sequence[str], estimator: Estimator | None, *, level: float, seed: int
) -> tuple[Comparison, Facts]:
    """The comparison, and what was read."""
    from cael.cli.options import specs_of
    from cael.engine.stream_results import ask_to_compare, comparison_of

    answer, chosen = ask_to_compare(log, specs_of(policies), estimator)
    return comparison_of(answer, chosen, level, seed, None), facts_of(answer)
