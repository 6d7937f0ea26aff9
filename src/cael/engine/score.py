"""Score: an estimator's contribution of a row, as a linear combination of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats


@final
@dataclass(frozen=True)
class Score:
    """constant + coefficients @ columns, for each row."""

    constant: float
    coefficients: Floats

    def minus(self, other: Score) -> Score:
        return Score(self.constant - other.constant, self.coefficients - other.coefficients)

    def blended(self, other: Score, share: float) -> Score:
        """A share of another one, and the rest of this one."""
        return Score(
            (1 - share) * self.constant + share * other.constant,
            (1 - share) * self.coefficients + share * other.coefficients,
        )

    def mean(self, means: Floats) -> float:
        used = np.flatnonzero(self.coefficients)
        return self.constant + float(self.coefficients[used] @ means[used])
