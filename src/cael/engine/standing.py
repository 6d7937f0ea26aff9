"""Rows that stand for others: what their sampling weights do to the noise of means.

A log that kept a tenth of the rows without a click has weights s of 10 on these and 1 on the others. Every mean over
rows is then sum s c / sum s, and the influence of a row on it is s (c - m) / mean(s): values come from sums of s c c',
noise from sums of s^2 (c - m)(c - m)', which are not the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats


@final
@dataclass(frozen=True, eq=False)
class Standing:
    """Of rows with weights s and deviations d from a mean: total, sum of s; squares, of s^2; along (p,), of s^2 d;
    products (p, p), of s^2 d d'."""

    total: float
    squares: float
    along: Floats
    products: Floats

    def about(self, moved: Floats) -> Standing:
        """The same about a mean that is moved by so much (p,)."""
        cross = np.outer(self.along, moved)
        products = self.products - cross - cross.T + self.squares * np.outer(moved, moved)
        return Standing(self.total, self.squares, self.along - self.squares * moved, products)

    def plus(self, other: Standing) -> Standing:
        """Of the rows of both, about one mean."""
        return Standing(
            self.total + other.total, self.squares + other.squares, self.along + other.along,
            self.products + other.products,
        )  # fmt: skip

    def second(self, c: Floats, mean: float) -> float:
        """The sum of (s z)^2 of a combination c (p,) of columns, with this mean."""
        return float(c @ self.products @ c + 2 * mean * (c @ self.along) + self.squares * mean**2)


def standing_of(counted: Floats, sampling: Floats) -> Standing:
    """From deviations times weights (p, n) and weights (n,)."""
    return Standing(float(sampling.sum()), float(sampling @ sampling), counted @ sampling, counted @ counted.T)
