"""Rows of tables, for each trial its own."""

from __future__ import annotations

import torch
from torch import Tensor


def gather_rows(values: Tensor, rows: Tensor) -> Tensor:
    """values (T, n, ...), rows (T, B) -> (T, B, ...). Rows are copied whole; values that all trials share, once."""
    (t, n), rest = values.shape[:2], values.shape[2:]
    if t == 1 or values.stride(0) == 0:
        flat, place = values[0], rows
    else:
        flat, place = values.reshape(t * n, *rest), rows + torch.arange(0, t * n, n, device=rows.device)[:, None]
    return flat.index_select(0, place.ravel()).reshape(*rows.shape, *rest)
