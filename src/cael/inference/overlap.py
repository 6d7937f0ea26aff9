"""Overlap: where the weight of a target policy lies in a log, in few enough numbers to draw and to write down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints

BINS_PER_DECADE = 4
MOST_ACTIONS = 20


@final
@dataclass(frozen=True)
class ActionOverlap:
    """One action: rows that played it, rows that the logging policy should have (None: unknown), and the target's
    probability of it, averaged over the rows (estimated from the weights where only logged actions are known). label:
    its name, where it has one."""

    action: int
    logged: int
    expected: float | None
    target: float
    label: str = ""


@final
@dataclass(frozen=True)
class Overlap:
    """How the weights of a target are spread over the rows of a log.

    n: rows. n_actions: actions. effective_rows: (sum w)^2 / sum w^2. mean_weight, max_weight: of the unmodified
    weights. zero_share: share of rows with weight 0. largest_share: share of all the weight on the heaviest row;
    top_share: on the heaviest 1% of the rows. edges, counts, shares: a histogram of the positive weights with edges
    in a geometric series: rows, and share of all the weight, of each bin. actions: the 20 with the most target mass.
    never_logged: actions without a row; never_logged_mass: the target's mean probability of them (None: not known).
    """

    n: int
    n_actions: int
    effective_rows: float
    mean_weight: float
    max_weight: float
    zero_share: float
    largest_share: float
    top_share: float
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    shares: tuple[float, ...]
    actions: tuple[ActionOverlap, ...]
    never_logged: int
    never_logged_mass: float | None

    def labelled(self, names: Sequence[object]) -> Overlap:
        """The same, with the names (k,) of the actions."""
        return replace(self, actions=tuple(replace(row, label=str(names[row.action])) for row in self.actions))

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {**asdict(self), "actions": [asdict(row) for row in self.actions]}


def binned(
    weights: Floats, rows: Ints | None, sums: Floats, total: float
) -> tuple[tuple[float, ...], tuple[int, ...], tuple[float, ...]]:
    """The histogram of positive weights (m,); each stands for `rows` (m,) rows, or for one, with `sums` (m,) in all."""
    low, high = np.log10(weights.min()), np.log10(weights.max())
    low = max(low, high - 60 / BINS_PER_DECADE + 1)  # smaller weights fall into the first bin
    first, last = np.floor(low * BINS_PER_DECADE), np.floor(high * BINS_PER_DECADE) + 1
    powers = np.arange(first, last + 1) / BINS_PER_DECADE
    place = np.clip(np.searchsorted(powers, np.log10(weights), side="right") - 1, 0, len(powers) - 2)
    counts = np.bincount(place, weights=rows, minlength=len(powers) - 1).astype(np.int64)
    shares = np.bincount(place, weights=sums, minlength=len(powers) - 1) / total
    return tuple((10.0**powers).tolist()), tuple(counts.tolist()), tuple(shares.tolist())
