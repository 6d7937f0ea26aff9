"""Slow twins: every formula as loops over rows and actions, written from the papers and not from the library."""

import math

import numpy as np


def ips(w, r, clip=math.inf):
    return sum(min(wi, clip) * ri for wi, ri in zip(w, r, strict=True)) / len(r)


def snips(w, r):
    return sum(wi * ri for wi, ri in zip(w, r, strict=True)) / sum(w)


def dm(pi, q):
    n, k = q.shape
    return sum(pi[i, a] * q[i, a] for i in range(n) for a in range(k)) / n


def dr(pi, q, actions, w, r):
    n, k = q.shape
    total = 0.0
    for i in range(n):
        total += sum(pi[i, a] * q[i, a] for a in range(k)) + w[i] * (r[i] - q[i, actions[i]])
    return total / n


def sndr(pi, q, actions, w, r):
    n = len(r)
    residual = sum(w[i] * (r[i] - q[i, actions[i]]) for i in range(n)) / sum(w)
    return dm(pi, q) + residual


def switch(w, tau):
    return [wi if wi <= tau else 0.0 for wi in w]


def shrink(w, lam):
    return [lam * wi / (wi * wi + lam) for wi in w]


def subgaussian(w, lam):
    return [wi / (1 - lam + lam * wi) for wi in w]


def mips_by_groups(pi, mu, group, actions, r):
    """rho = sum of pi over the actions that share the embedding of a_i, over the same sum of mu."""
    n, k = pi.shape
    total = 0.0
    for i in range(n):
        same = [b for b in range(k) if group[b] == group[actions[i]]]
        total += sum(pi[i, b] for b in same) / sum(mu[i, b] for b in same) * r[i]
    return total / n


def mips_mixture(pi, mu, density, e, r):
    """rho by enumeration: sum_a pi(a) prod_j p(e_j|a) / sum_a mu(a) prod_j p(e_j|a)."""
    n, k = pi.shape
    total = 0.0
    for i in range(n):
        like = [math.prod(density[j][a, e[i, j]] for j in range(len(density))) for a in range(k)]
        above = sum(pi[i, a] * like[a] for a in range(k))
        below = sum(mu[i, a] * like[a] for a in range(k))
        total += above / below * r[i]
    return total / n


def slope(values, widths):
    """SLOPE++ step by step: index of the choice."""
    order = sorted(range(len(values)), key=lambda i: -widths[i])
    kept = []
    for i in order:
        if any(abs(values[i] - values[j]) > widths[i] + (math.sqrt(6) - 1) * widths[j] for j in kept):
            break
        kept.append(i)
    return kept[-1]


def cluster_stderr(z, clusters):
    """sqrt( C/(C-1) sum_c (sum_{i in c} (z_i - mean))^2 ) / n."""
    mean = sum(z) / len(z)
    sums = {}
    for zi, c in zip(z, clusters, strict=True):
        sums[c] = sums.get(c, 0.0) + (zi - mean)
    count = len(sums)
    return math.sqrt(count / (count - 1) * sum(s * s for s in sums.values())) / len(z)


def ridge(x, actions, r, phi, alpha, onehot, onehot_alpha=None):
    """Ridge by the full design matrix [1, standardised x, standardised phi(a), one-hot]; a function (x, a) -> q."""
    dense = np.hstack([x, phi[actions]])
    mean, scale = dense.mean(axis=0), dense.std(axis=0)
    scale[scale == 0] = 1.0

    def design(x, a):
        z = (np.hstack([x, phi[a]]) - mean) / scale
        parts = [np.ones((len(a), 1)), z]
        if onehot:
            parts.append(np.eye(len(phi))[a])
        return np.hstack(parts)

    d = design(x, actions)
    penalty = alpha * np.eye(d.shape[1])
    penalty[0, 0] = 0.0
    if onehot and onehot_alpha is not None:
        columns = np.arange(d.shape[1] - len(phi), d.shape[1])
        penalty[columns, columns] = onehot_alpha
    beta = np.linalg.solve(d.T @ d + penalty, d.T @ r)
    return lambda x, a: design(x, a) @ beta


def best_baseline(w, r):
    """The constant b that minimises Var(w (r - b) + b): E[(w^2 - w) r] / E[w^2 - w], w centred; 0 if w is constant.

    Written as a covariance, Cov(w r, w) / Var(w), it does not lose digits when w is nearly constant.
    """
    centred = w - w.mean()
    spread = float(centred @ centred)
    if spread <= 1e-24 * len(w):
        return 0.0
    wr = w * r
    return float((wr - wr.mean()) @ centred) / spread
