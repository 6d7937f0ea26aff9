"""Several means with standard errors: whether they differ, by how much, and shrunk towards each other."""

from __future__ import annotations

import math

import numpy as np

from cael.common.types import Floats


def cochran(values: Floats, errors: Floats) -> tuple[float, float]:
    """Cochran's Q of values (g,) with standard errors (g,), and the p-value that they have one mean."""
    from scipy.special import chdtrc

    known = errors > 0
    if known.sum() < 2:
        return 0.0, 1.0
    v, w = values[known], 1 / errors[known] ** 2
    q = float((w * (v - (w @ v) / w.sum()) ** 2).sum())
    return q, float(chdtrc(int(known.sum()) - 1, q))


def between_variance(values: Floats, errors: Floats) -> float:
    """The variance t of the true means for which sum (v - m)^2 / (s^2 + t) is its expectation g - 1; 0 if none is
    (Paule and Mandel 1982)."""

    def excess(t: float) -> float:
        w = 1 / (errors**2 + t)
        return float((w * (values - (w @ values) / w.sum()) ** 2).sum()) - (len(values) - 1)

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, float(values.var()) + float((errors**2).max())
    while excess(high) > 0:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def shrink(values: Floats, errors: Floats) -> tuple[Floats, Floats, float]:
    """Empirical Bayes: posterior means (g,), their standard errors (g,), and the spread of the true means.

    Normal means under a normal prior; the errors hold the uncertainty of the prior's mean and, by Morris (1983), of its
    variance. With fewer than 4 values, or one without error, nothing is shrunk.
    """
    g = len(values)
    if g < 4 or (errors <= 0).any():
        return values.copy(), errors.copy(), 0.0
    t = between_variance(values, errors)
    w = 1 / (errors**2 + t)
    mean = float((w @ values) / w.sum())
    keep = (g - 3) / (g - 1) * errors**2 / (errors**2 + t)  # the share of each value that the prior's mean takes
    shrunk = values - keep * (values - mean)
    average = float(w @ errors**2 / w.sum())
    doubt = 2 / (g - 3) * keep**2 * (average + t) / (errors**2 + t) * (values - mean) ** 2
    variance = errors**2 * (1 - keep * (1 - w / w.sum())) + doubt
    return shrunk, np.sqrt(variance), math.sqrt(t)
