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


def ridge(x, actions, r, phi, alpha, onehot, onehot_alpha=None, products=None, slopes=None):
    """Ridge by the full design matrix [1, standardised x, standardised phi(a), one-hot]; a function (x, a) -> q.

    products, slopes: penalties of further columns, x times phi(a) and x times one-hot.
    """
    dense = np.hstack([x, phi[actions]])
    mean, scale = dense.mean(axis=0), dense.std(axis=0)
    scale[scale == 0] = 1.0

    def design(x, a):
        z = (np.hstack([x, phi[a]]) - mean) / scale
        parts = [np.ones((len(a), 1)), z]
        if onehot:
            parts.append(np.eye(len(phi))[a])
        if products is not None:
            parts.append((z[:, :width, None] * z[:, None, width:]).reshape(len(a), -1))
        if slopes is not None:
            parts.append((z[:, :width, None] * np.eye(len(phi))[a][:, None, :]).reshape(len(a), -1))
        return np.hstack(parts)

    width, features, k = x.shape[1], phi.shape[1], len(phi)
    d = design(x, actions)
    penalty = np.concatenate([
        [0.0], np.full(width + features, alpha), np.full(k * onehot, alpha if onehot_alpha is None else onehot_alpha),
        np.full(width * features * (products is not None), products or 0.0),
        np.full(width * k * (slopes is not None), slopes or 0.0),
    ])  # fmt: skip
    beta = np.linalg.solve(d.T @ d + np.diag(penalty), d.T @ r)
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


def offcem(pi, mu, group, q, actions, r, self_normalised=False):
    """f(x, pi) + w(x, c) (r - f), w = the mass of the logged action's cluster under pi over that under mu."""
    n, k = pi.shape
    weights, residuals = [], []
    for i in range(n):
        same = [b for b in range(k) if group[b] == group[actions[i]]]
        weights.append(sum(pi[i, b] for b in same) / sum(mu[i, b] for b in same))
        residuals.append(r[i] - q[i, actions[i]])
    corrected = sum(w * d for w, d in zip(weights, residuals, strict=True))
    return dm(pi, q) + corrected / (sum(weights) if self_normalised else n)


def contributions(pi, q, actions, w, r):
    """(4, n) of IPS, SNIPS, DR and SNDR, each centred at its own value plus that value."""
    n, k = pi.shape
    mean = sum(w) / n
    direct = [sum(pi[i, a] * q[i, a] for a in range(k)) for i in range(n)]
    left = [r[i] - q[i, actions[i]] for i in range(n)]
    ratio, ratio_left = snips(w, r), snips(w, left)
    return np.array(
        [
            [w[i] * r[i] for i in range(n)],
            [ratio + w[i] * (r[i] - ratio) / mean for i in range(n)],
            [direct[i] + w[i] * left[i] for i in range(n)],
            [direct[i] + ratio_left + w[i] * (left[i] - ratio_left) / mean for i in range(n)],
        ]
    )


def least_variance(errors, shrinkage):
    """Weights with sum 1 of least variance by Lagrange's system, off-diagonal entries times (1 - shrinkage)."""
    m = len(errors)
    system = np.ones((m + 1, m + 1))
    for i in range(m):
        for j in range(m):
            system[i, j] = errors[i][j] * (1.0 if i == j else 1 - shrinkage)
    system[m, m] = 0.0
    return np.linalg.solve(system, [0.0] * m + [1.0])[:m]


def four(pi, q, actions, w, r):
    """IPS, SNIPS, DR and SNDR."""
    return [ips(w, r), snips(w, r), dr(pi, q, actions, w, r), sndr(pi, q, actions, w, r)]


def bootstrapped_errors(pi, q, actions, w, r, counts):
    """(4, 4) mean products of what the four estimators miss their own values by, on resamples of the rows."""
    values = four(pi, q, actions, w, r)
    total, used = np.zeros((4, 4)), 0
    for count in counts:
        rows = [i for i in range(len(r)) for _ in range(int(count[i]))]
        if not sum(w[rows]) > 0:
            continue
        apart = [a - b for a, b in zip(four(pi[rows], q[rows], actions[rows], w[rows], r[rows]), values, strict=True)]
        total, used = total + np.outer(apart, apart), used + 1
    return total / used


def cross_validated(pi, q, actions, w, r, orders):
    """The candidate of IPS, SNIPS, DR and SNDR that predicts DR on the other rows best, by mean loss and its error."""
    n = len(r)
    spread = contributions(pi, q, actions, w, r).var(axis=1)
    scores = []
    for j in range(4):
        size = min(max(round(n * spread[j] / (spread[j] + spread[2])), 1), n - 1)
        losses = []
        for order in orders:
            part, rest = [i for i in range(n) if order[i] < size], [i for i in range(n) if order[i] >= size]
            inside = four(pi[part], q[part], actions[part], w[part], r[part])[j]
            losses.append((inside - four(pi[rest], q[rest], actions[rest], w[rest], r[rest])[2]) ** 2)
        scores.append(sum(losses) / len(losses) + np.std(losses, ddof=1) / math.sqrt(len(losses)))
    return int(np.argmin(scores)), scores
