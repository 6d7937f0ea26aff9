"""A pass that looks at every row of a log whose rows are not all sound, so that one message says what is wrong."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np

from cael.engine.ids import Ids, ids_of
from cael.engine.partial import merged, united
from cael.engine.passes import pieces, reduced
from cael.errors import InputError, LogError
from cael.log.flaws import REPEATS, Flaws, RowReport, contradiction, counted
from cael.log.keys import FILE_BITS
from cael.log.pieces import Piece, Reading, flaws_of
from cael.log.row_checks import contradictions
from cael.log.targets import Target
from cael.policies.policy import logged_probability

if TYPE_CHECKING:
    from cael.log.scanned import ScannedLog


@final
@dataclass(frozen=True, eq=False)
class RowWork:
    """logging: the logging policy, where it is known."""

    reading: Reading
    logging: Target | None


@final
@dataclass(frozen=True, eq=False)
class RowSums:
    """read: rows, by file. rows: of them without a flaw. ids: of these. against: what the logging policy says of them
    that cannot be."""

    read: dict[int, int]
    rows: int = 0
    flaws: dict[tuple[str, str], Flaws] = field(default_factory=dict)
    against: dict[tuple[str, str], Flaws] = field(default_factory=dict)
    ids: Ids | None = None

    def merge(self, later: RowSums) -> RowSums:
        ids = self.ids if later.ids is None else later.ids if self.ids is None else self.ids.merge(later.ids)
        return RowSums(
            united(self.read, later.read, operator.add), self.rows + later.rows, merged(self.flaws, later.flaws),
            merged(self.against, later.against), ids,
        )  # fmt: skip


def look_at(work: RowWork, task: Any) -> RowSums:
    """What is wrong with the rows of one task."""
    sums = RowSums({task.number: 0})
    for at, piece in pieces(work.reading, task):
        ids = None if piece.ids is None else ids_of(piece.ids, piece.places)
        flaws, against = flaws_of(piece, task.number, at), against_logging(work, piece, task.number, at)
        sums = sums.merge(RowSums({task.number: piece.read}, len(piece), flaws, against, ids))
    return sums


def against_logging(work: RowWork, piece: Piece, file: int, first: int) -> dict[tuple[str, str], Flaws]:
    if work.logging is None or len(piece) == 0:
        return {}
    logged = logged_probability(work.logging.on(piece), piece.batch())
    rows = np.arange(piece.read)[piece.kept]
    flaws = [replace(flaw, rows=rows[flaw.rows]) for flaw in contradictions(logged, piece.propensities)]
    return counted(flaws, file, first)


def refuse_rows_of(log: ScannedLog) -> NoReturn:
    """The error that `cael.read` raises about such a log: all columns are looked at, and all rows counted."""
    report = settle_rows_of(log)
    against = {} if log.estimates_logging else looked_at(log, log.logging).against
    if against:
        raise LogError(f"{log.source.name}: {contradiction(against.values(), report.rows)}")
    raise InputError(f"{log.source.name} changed while the log was read. Nothing may write to its files.")


def settle_rows_of(log: ScannedLog) -> RowReport:
    """What is wrong with the rows; an error where that was not allowed, or where no row is left."""
    sums = looked_at(log, None)
    twice = repeated(log, sums.ids)
    flaws = sums.flaws | {(flaw.column, flaw.what): flaw for flaw in twice}
    report = log.report(replace(sums, rows=sums.rows - sum(flaw.count for flaw in twice), flaws=flaws))
    report.settled(log.drop_invalid)
    return report


def looked_at(log: ScannedLog, logging: Target | None) -> RowSums:
    """The sums of a pass over all rows, with or without a look at the logging policy."""
    columns = () if logging is None else logging.columns
    return reduced(
        look_at, RowWork(log.reading(contexts=log.numeric_contexts, columns=columns, ids=True), logging), log
    )


def repeated(log: ScannedLog, ids: Ids | None) -> list[Flaws]:
    """Decisions that are logged twice. Of very many ids, a part is looked at."""
    if ids is None or not ids.repeats:
        return []
    places = tuple((place >> FILE_BITS, place & (2**FILE_BITS - 1)) for place in ids.again)
    share = f" (among one in {2**ids.share:,} of all ids)" if ids.share else ""
    return [Flaws(str(log.columns.id), f"{REPEATS}{share}", ids.repeats, places)]
