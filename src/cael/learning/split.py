"""Which rows learn and choose, and which are kept for the certificate, by a hash of their keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.engine.drawn import Sample, sample_in_memory, sample_of, with_logging
from cael.errors import InputError, LogError, NeedsError
from cael.log.held import Held
from cael.log.keys import SALT, seeded
from cael.log.logged import LoggedData

FEWEST = 40
"""Rows that both parts must have."""


@final
@dataclass(frozen=True, eq=False)
class Split:
    """learn: the rows to learn from and to choose by. sample: what they were drawn from. certificate: the other rows,
    as the engine reads them. left: about how many these are."""

    learn: LoggedData
    sample: Sample
    certificate: Any
    left: int


def split_of(log: Any, share: float, most: int, seed: int) -> Split:
    """A share of the rows is kept for the certificate, and more where learning takes at most so many rows."""
    if log.weighted:
        raise NeedsError(
            "learn needs rows that count alike, and this log has sampling weights. Learn from the log before rows were "
            "left out."
        )
    if not 0.05 <= share <= 0.95:
        raise InputError(f"certify must be a share of the rows in [0.05, 0.95]; got {share!r}.")
    more = () if isinstance(log, Held) or log.logging is None else log.logging.columns
    sample = sample_of(log, most, seed, more=more)
    rows = with_logging(log, sample)
    wanted = min(len(rows), round((1 - share) * sample.of))
    if min(wanted, sample.of - wanted) < FEWEST:
        raise LogError(
            f"the log has {sample.of} rows: learning and its certificate need at least {FEWEST} each. Collect more."
        )
    learn = sample_in_memory(rows, wanted, seed).log
    above = int(seeded(learn.keys, seed, SALT).max())
    return Split(learn, sample, others(log, above, seed), sample.of - len(learn))


def others(log: Any, above: int, seed: int) -> Any:
    """The rows whose number is larger than that of all that was learned from."""
    if not isinstance(log, Held):
        return replace(log, portion=(above, seed))
    rows = np.flatnonzero(seeded(log.log.keys, seed, SALT) > np.uint64(above))
    return Held(log.log.take(rows))
