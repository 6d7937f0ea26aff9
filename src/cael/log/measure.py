"""Measure: a column of a log that is evaluated as a reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.errors import InputError


@final
@dataclass(frozen=True)
class Measure:
    """A column, and the value above which it is cut (None: it is taken as it is)."""

    column: str
    cap: float | None = None

    def of(self, values: Floats) -> Floats:
        """The values (n,), cut at the cap."""
        return values if self.cap is None else np.minimum(values, self.cap)

    def changed(self, values: Floats) -> int:
        """How many of the values lie above the cap."""
        return 0 if self.cap is None else int(np.count_nonzero(values > self.cap))


def known_measures(measures: Sequence[Measure], reward: str, others: Sequence[str]) -> tuple[Measure, ...]:
    """The measures, if the log has their columns, each once; reward, others: the names that it has."""
    for at, measure in enumerate(measures):
        if measure.column not in (reward, *others):
            listed = ", ".join([f"{reward} (the reward)", *others])
            raise InputError(
                f"{measure.column!r} is not a metric of this log; there are: {listed}. Name the column when the log is "
                f"read, columns={{'metric': [{measure.column!r}]}} (--metric {measure.column})."
            )
        if measure.column in [earlier.column for earlier in measures[:at]]:
            raise InputError(f"metric {measure.column!r} is named twice. Name every metric once.")
    return tuple(measures)
