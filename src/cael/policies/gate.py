"""What policies answer, checked: distributions, lists, probabilities and draws, or an error with row numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cael.common.types import Array, Floats, Ints
from cael.errors import PolicyError, refuse_rows

if TYPE_CHECKING:
    from cael.log.batch import Batch
    from cael.policies.policy import Policy
    from cael.policies.support import Support

EXACT = 1e-12
"""Rows whose sum is further from one are divided by it: float32, or six digits, would move means of large numbers."""
SUM_ATOL = 1e-5
"""How far the probabilities of a row may sum away from one (float32 and six-digit logs pass)."""


@contextmanager
def contained(policy: Policy) -> Iterator[None]:
    """A policy that ends the process has failed: its exit code would be taken for the command's."""
    try:
        yield
    except SystemExit as stop:
        raise PolicyError(
            f"{policy!r} tried to end the process, with exit code {stop.code!r}: expected probabilities. Remove "
            "sys.exit from it."
        ) from None


def checked_rows(table: ArrayLike, shape: tuple[int, int], source: str, rows: Ints | None = None) -> Floats:
    """A (b, k) table of distributions, whose rows add up to one; or a PolicyError that names the rows that are none."""
    p = np.asarray(table, dtype=np.float64)
    if p.shape != shape:
        raise PolicyError(f"{source}: expected probabilities of shape {shape} (rows, actions); got {p.shape}.")
    if not p.min() >= 0:
        low = p.min(axis=1)
        refuse_rows(~(low >= 0), low, f"{source}: probabilities must be >= 0 and not NaN", rows=rows)
    total = np.einsum("ij->i", p)  # faster than sum(axis=1) on short rows
    refuse_rows(
        ~(np.abs(total - 1) <= SUM_ATOL), total,
        f"{source}: the probabilities of a row must sum to 1 (within {SUM_ATOL:g})",
        "Normalise them, or say what the rest is with TopK(rest=...).", rows=rows,
    )  # fmt: skip
    return p / total[:, None] if (np.abs(total - 1) > EXACT).any() else p


def checked_in_blocks(table: Array, source: str, size: int = 2**19) -> float:
    """Check all rows, a block at a time; the smallest probability in the table."""
    rows, lowest = max(1, size // table.shape[1]), np.inf
    for start in range(0, len(table), rows):
        part = table[start : start + rows]
        checked_rows(part, part.shape, source, np.arange(start, start + len(part)))
        lowest = min(lowest, float(part.min()))
    return lowest


def checked_entries(p: Floats, shape: tuple[int, ...], source: str, rows: Ints) -> Floats:
    """Probabilities (b,) or (b, m) of some actions, each in [0, 1]."""
    if p.shape != shape:
        raise PolicyError(f"{source} gave probabilities of shape {p.shape}; expected {shape}.")
    bad = ~((p >= 0) & (p <= 1 + SUM_ATOL))
    if bad.any():
        bad = bad.reshape(len(bad), -1)
        first = p.reshape(bad.shape)[np.arange(len(bad)), bad.argmax(axis=1)]
        refuse_rows(bad.any(axis=1), first, f"{source}: a probability must be in [0, 1]", rows=rows)
    return p


def check_listed(actions: Array, k: int, source: str, rows: Ints | None = None) -> None:
    """Refuse lists (b, m) with an action twice, or with numbers that are none of the actions."""
    bad = ((actions < -1) | (actions >= k)).any(axis=1)
    message = f"{source}: listed actions must be in 0..{k - 1}, or -1 for an empty place"
    refuse_rows(bad, actions, message, rows=rows)
    ordered = np.sort(actions, axis=1)
    bad = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    refuse_rows(bad, actions, f"{source}: an action is listed twice", rows=rows)


def checked_support(listed: Support, batch: Batch, source: str) -> Support:
    """Lists of distinct actions whose probabilities, with the rest, sum to one."""
    a, p, rows, k = listed.actions, listed.probabilities, batch.row_numbers, batch.n_actions
    if a.ndim != 2 or a.shape != p.shape or len(a) != len(batch) or listed.rest.shape != (len(batch),):
        raise PolicyError(
            f"{source}: a support needs actions and probabilities of one shape ({len(batch)}, m) and a rest of shape "
            f"({len(batch)},); got {a.shape}, {p.shape} and {listed.rest.shape}."
        )
    check_listed(a, k, source, rows)
    bad = ~((p >= 0) & ((a >= 0) | (p == 0))).all(axis=1) | ~(listed.rest >= 0)
    refuse_rows(bad, p, f"{source}: listed probabilities and the rest must be >= 0, and 0 in empty places", rows=rows)
    total = p.sum(axis=1) + listed.rest * listed.others(k)
    refuse_rows(~(np.abs(total - 1) <= SUM_ATOL), total, f"{source}: a list and its rest must sum to 1", rows=rows)
    return listed


def refuse_ineligible(p: Floats, batch: Batch, source: str) -> None:
    """Refuse probabilities (b, k) of which some are on actions that are not eligible."""
    if batch.eligible is not None:
        outside = np.where(batch.eligible.mask(), 0.0, p)
        _refuse_outside(outside.sum(axis=1), outside.argmax(axis=1), batch, source)


def eligible_support(listed: Support, batch: Batch, source: str) -> Support:
    """Lists of eligible actions; listed actions without probability may be others, and are left out."""
    if batch.eligible is None:
        return listed
    odd = ~batch.eligible.holds(listed.actions) & (listed.actions >= 0)
    outside = np.where(odd, listed.probabilities, 0.0)
    if listed.eligible is None:
        beyond = batch.n_actions - batch.eligible.sizes - odd.sum(axis=1)
        outside = np.column_stack([outside, listed.rest * beyond])
    if outside.any():
        shown = np.column_stack([listed.actions, np.full(len(batch), -1)])
        worst = outside.argmax(axis=1)
        _refuse_outside(outside.sum(axis=1), shown[np.arange(len(batch)), worst], batch, source)
    actions = np.where(odd, -1, listed.actions) if odd.any() else listed.actions
    p = np.where(odd, 0.0, listed.probabilities) if odd.any() else listed.probabilities
    return replace(listed, actions=actions, probabilities=p, eligible=batch.eligible)


def _refuse_outside(mass: Floats, actions: Ints, batch: Batch, source: str) -> None:
    """mass: (b,) on actions that are not eligible. actions: (b,) one of them, or -1."""
    rows = np.flatnonzero(mass > SUM_ATOL)
    if len(rows):
        first, numbers = rows[0], batch.row_numbers[rows]
        some = "" if actions[first] < 0 else f", action {actions[first]} among them"
        more = f" (rows {', '.join(map(str, numbers[:5]))}{', ...' if len(rows) > 5 else ''})" if len(rows) > 1 else ""
        raise PolicyError(
            f"{source} plays actions that are not eligible in {len(rows):,} of {len(batch):,} rows looked at{more}: "
            f"row {numbers[0]} gives {mass[first]:.3g} to such actions{some}. Give a policy that plays eligible "
            "actions alone, or scale it up to them with cael.AmongEligible(policy)."
        )


def checked_draws(drawn: Array, shape: tuple[int, ...], batch: Batch, source: str) -> Ints:
    """Action numbers (b, size)."""
    if drawn.shape != shape or drawn.dtype.kind not in "iu":
        raise PolicyError(
            f"{source} must draw action numbers of shape {shape}; got {drawn.dtype} of shape {drawn.shape}."
        )
    bad = ((drawn < 0) | (drawn >= batch.n_actions)).any(axis=1)
    message = f"{source}: drawn actions must be in 0..{batch.n_actions - 1}"
    refuse_rows(bad, drawn, message, rows=batch.row_numbers)
    if batch.eligible is not None:
        odd = ~batch.eligible.holds(drawn).all(axis=1)
        refuse_rows(odd, drawn, f"{source} draws actions that are not eligible", rows=batch.row_numbers)
    return drawn.astype(np.intp, copy=False)


def last_row(batch: Batch) -> int:
    """The largest number of a row."""
    return batch.rows.stop - 1 if isinstance(batch.rows, slice) else int(batch.rows.max())


def need_rows(what: str, rows: int, batch: Batch) -> None:
    if last_row(batch) >= rows:
        raise PolicyError(
            f"{what} has {rows} rows, but the log asks for row {last_row(batch)}: a row-aligned policy must have one "
            "row per row of the log it was made for."
        )


def need_actions(what: str, count: int, batch: Batch) -> None:
    if count != batch.n_actions:
        raise PolicyError(f"{what} has {count} actions, but the log has {batch.n_actions}.")
