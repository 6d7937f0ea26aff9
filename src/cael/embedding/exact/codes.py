"""Exact stochastic embeddings: known noise, added after logging, so that every marginal weight is known.

An action a is sent to a random code E whose distribution P(E|x, a) is ours. With p_mu(E) = sum_b mu(b|x) P(E|x, b), and
p_pi likewise, the marginal weight rho(E) = p_pi(E) / p_mu(E) is exact, and so is its mean over our own noise,

    W(x, a) = sum_E P(E|x, a) rho(E),    sum_a mu(a|x) W(x, a) = 1.

All functions are of arrays: f (b, k) an embedding of each action in each row, mu and pi (b, k) probabilities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.embedding.arrays import NUMPY, AnyArray, of

LEAST = float(np.finfo(np.float64).tiny)
"""A code with less probability than this is never reached: a ratio to it would overflow."""


@final
@dataclass(frozen=True)
class Smoothed:
    """Marginal weights and what they do to a block of b rows.

    weights: (b, k) W. lost: (b,) target mass on codes that the logging policy never reaches, which no weight can carry.
    roughness: (b,) D = E_mu E_code (1/2) sum_a post(a|code) |w_a - rho|: |bias| of the row is at most D times the range
    of the reward function (or of what a model leaves of it).
    """

    weights: AnyArray
    lost: AnyArray
    roughness: AnyArray


def sharp(mu: Floats, pi: Floats) -> Smoothed:
    """No noise and all actions apart: W = pi/mu, no bias but for the mass on actions that mu never plays."""
    return Smoothed(NUMPY.ratio(pi, mu, LEAST), np.where(mu > LEAST, 0.0, pi).sum(axis=1), np.zeros(len(mu)))


def flat(mu: AnyArray, pi: AnyArray) -> Smoothed:
    """One code for all actions: W = 1."""
    xp = of(mu)
    return Smoothed(xp.zeros_like(mu) + 1, xp.zeros((len(mu),), mu.dtype), 0.5 * abs(pi - mu).sum(axis=1))


def discrete(p: Floats, mu: Floats, pi: Floats) -> Smoothed:
    """Codes with known probabilities p (b, k, m) or (k, m), rows summing to 1; O(k m) for all actions of a row."""
    p = np.broadcast_to(p, (len(mu), *p.shape[-2:]))
    p_mu, p_pi = np.einsum("ik,ikm->im", mu, p), np.einsum("ik,ikm->im", pi, p)
    rho = NUMPY.ratio(p_pi, p_mu, LEAST)
    away = np.abs(pi[:, :, None] - mu[:, :, None] * rho[:, None])
    return Smoothed(
        np.einsum("ikm,im->ik", p, rho),
        np.where(p_mu > LEAST, 0.0, p_pi).sum(axis=1),
        0.5 * np.einsum("ikm,ikm->i", p, away),
    )


def rounded(f: AnyArray, mu: AnyArray, pi: AnyArray, pitch: float, shifts: int = 4) -> Smoothed:
    """Stochastic rounding of f to a grid: f between two points goes to each with the probability of its nearness.

    A code that is exact in O(k) per row. The grid is put at `shifts` evenly spaced places, and W is the mean over them:
    the place is part of the code. pitch -> 0 is `sharp` (where no two actions have the same f), pitch = inf is `flat`.
    f, mu and pi may be tensors of torch, too.
    """
    xp, (b, k) = of(f), f.shape
    if math.isinf(pitch):
        return flat(mu, pi)
    base = (f - xp.lowest(f)) / pitch
    row = xp.arange(b)[:, None]
    weights, lost, rough = xp.zeros_like(f), xp.zeros((b,), f.dtype), xp.zeros((b,), f.dtype)
    for step in range(shifts):
        place = base + (step + 0.5) / shifts
        cell = xp.floor(place)
        upper = place - cell
        lower = 1 - upper
        cell = _closed_up(cell) if cell.max() > 2 * k else cell
        m = int(cell.max()) + 2
        at = xp.astype(row * m + cell, xp.int64).reshape(-1)

        p_mu, p_pi = (_total(mass, at, lower, upper, b * m) for mass in (mu, pi))
        rho = xp.ratio(p_pi, p_mu, LEAST)
        below, above = xp.take(rho, at).reshape(b, k), xp.take(rho, at + 1).reshape(b, k)
        weights += lower * below + upper * above
        lost += xp.where(p_mu > LEAST, 0.0, p_pi).reshape(b, m).sum(axis=1)
        rough += 0.5 * (lower * abs(pi - mu * below) + upper * abs(pi - mu * above)).sum(axis=1)
    return Smoothed(weights / shifts, lost / shifts, rough / shifts)


def _total(mass: AnyArray, at: AnyArray, lower: AnyArray, upper: AnyArray, size: int) -> AnyArray:
    """The mass (b, k) on each of `size` points: the share `lower` falls on point `at` (b * k,), `upper` on the next."""
    xp = of(mass)
    total = xp.sums_at(at, (mass * lower).reshape(-1), size)
    total += xp.sums_at(at + 1, (mass * upper).reshape(-1), size)
    return total


def _closed_up(cell: AnyArray) -> AnyArray:
    """Cells (b, k) of each row from 0, with no gap wider than 2: who shares a point with whom stays the same."""
    xp = of(cell)
    order = xp.argsort(cell)
    place = xp.take_along(cell, order)
    closed = xp.zeros_like(cell)
    gaps = (place[:, 1:] - place[:, :-1]).clip(max=2)
    xp.put_along(closed, order[:, 1:], gaps.cumsum(axis=1))
    return closed


def gaussian(f: Floats, mu: Floats, pi: Floats, scale: float, nodes: int = 24) -> Smoothed:
    """E = f + scale * normal noise, in one dimension, by Gauss-Hermite quadrature; O(k^2 nodes) for all actions.

    The reference for what `rounded` does in O(k). The mean weight is 1 up to the error of the quadrature.
    """
    node, mass = np.polynomial.hermite_e.hermegauss(nodes)
    mass = mass / mass.sum()
    weights, rough = np.zeros_like(mu), np.zeros(len(mu))
    for z, share in zip(node, mass, strict=True):
        e = f + scale * z
        log_p = -0.5 * ((e[:, :, None] - f[:, None, :]) / scale) ** 2
        p = np.exp(log_p - log_p.max(axis=2, keepdims=True))
        p_mu = np.einsum("iab,ib->ia", p, mu)
        rho = NUMPY.ratio(np.einsum("iab,ib->ia", p, pi), p_mu, LEAST)
        weights += share * rho
        away = np.einsum("iab,iab->ia", p, np.abs(pi[:, None, :] - mu[:, None, :] * rho[:, :, None]))
        rough += share * 0.5 * (mu * NUMPY.ratio(away, p_mu, LEAST)).sum(axis=1)
    return Smoothed(weights, np.zeros(len(mu)), rough)
