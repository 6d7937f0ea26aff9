"""A lower confidence sequence: a bound on a mean that may be looked at after every row, as often as one likes.

For S = sum of (z_i - mean) / sd and a half-normal mixture of exp(l S - l^2 n / 2) over l > 0, which is a martingale
where z is normal, Ville's inequality gives S rho / root <= sqrt(2 log(root / (2 alpha) + 1/2)) for all n at once with
probability 1 - alpha, where root = sqrt(n rho^2 + 1). For other z it holds asymptotically (Waudby-Smith et al. 2024,
Annals of Statistics 52, "Time-uniform central limit theory and asymptotic confidence sequences"), as a normal interval
does.
"""

from __future__ import annotations

import math


def width(n: float, first: float, level: float) -> float:
    """So many standard errors lie between the mean of n rows and its bound. first: rows for which the sequence is
    tightest, which must not depend on what these rows hold.

    >>> round(width(1000, 1000, 0.95), 2), round(width(100_000, 1000, 0.95), 2)
    (2.77, 3.33)
    """
    alpha = 1 - level
    inner = -2 * math.log(2 * alpha)
    scaled = n * (inner + math.log(inner + 1)) / first
    return math.sqrt(2 * math.log(math.sqrt(scaled + 1) / (2 * alpha) + 0.5) * (scaled + 1) / scaled)
