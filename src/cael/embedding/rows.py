"""Rows of tables, for each trial its own."""

from __future__ import annotations

from cael.embedding.arrays import AnyArray, Arrays, of

BLOCK_FLOATS = {"cpu": 2**18, "device": 2**23}
"""Predictions are made in blocks whose hidden layer has about so many numbers: what a CPU's cache holds (twice as fast
as blocks that it does not), and what keeps a device busy."""


def rows_at_once(xp: Arrays, numbers: int) -> int:
    """Rows of a block of predictions, where each needs so many numbers."""
    return max(1, BLOCK_FLOATS["device" if xp.on_device else "cpu"] // max(1, numbers))


def gather_rows(values: AnyArray, rows: AnyArray) -> AnyArray:
    """values (L, n, ...), rows (T, B) -> (T, B, ...). T / L trials in a row share a table. Rows are copied whole."""
    (tables, n), rest, xp = values.shape[:2], values.shape[2:], of(values)
    if tables > 1:
        rows = rows + (xp.arange(len(rows)) // (len(rows) // tables) * n)[:, None]
    return xp.take(values.reshape(tables * n, *rest), rows.reshape(-1)).reshape(*rows.shape, *rest)
