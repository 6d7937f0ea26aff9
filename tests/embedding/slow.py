"""Slow twins of the losses: python loops over rows and actions, written from the paper and not from the library."""

import math


def reward(r_hat, r):
    """(eq. emp-r-loss)"""
    return sum((a - b) ** 2 for a, b in zip(r_hat, r, strict=True)) / len(r)


def pair_sum(p, w):
    """The sum over pairs a < b of p_a p_b |w_b - w_a| of one row, O(k^2)."""
    k = len(p)
    return sum(p[a] * p[b] * abs(w[b] - w[a]) for a in range(k) for b in range(a + 1, k))


def bias(p, w):
    """(eq. emp-b-loss) (1/n^2) (sum over rows of the pair sums)^2"""
    return sum(pair_sum(pi, wi) for pi, wi in zip(p, w, strict=True)) ** 2 / len(p) ** 2


def sharp(p, w):
    """Half the mean absolute deviation of w from its mean under p, of one row."""
    rho = sum(pa * wa for pa, wa in zip(p, w, strict=True))
    return sum(pa * abs(wa - rho) for pa, wa in zip(p, w, strict=True)) / 2


def sharp_bias(p, w):
    return sum(sharp(pi, wi) for pi, wi in zip(p, w, strict=True)) ** 2 / len(p) ** 2


def variance(r_hat, p, w, n):
    """(eq. emp-v-loss) with the n of the theory apart from the number of rows."""
    total = 0.0
    for q, pi, wi in zip(r_hat, p, w, strict=True):
        total += q**2 * sum(pa**2 for pa in pi) * sum(wa**2 for wa in wi)
    return total / len(p) / n


def direct_variance(r, p, w, n):
    total = 0.0
    for ri, pi, wi in zip(r, p, w, strict=True):
        total += (sum(pa * wa for pa, wa in zip(pi, wi, strict=True)) * ri) ** 2
    return total / len(p) / n


def renyi(p):
    """Order-2 entropy of one row."""
    return -math.log(sum(pa**2 for pa in p))
