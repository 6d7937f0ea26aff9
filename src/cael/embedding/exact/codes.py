"""Exact stochastic embeddings: noise of our own, added after logging, so that every marginal weight is known.

An action a is sent to a random code E whose distribution P(E|x, a) is ours. With p_mu(E) = sum_b mu(b|x) P(E|x, b), and
p_pi likewise, the marginal weight rho(E) = p_pi(E) / p_mu(E) is exact, and so is its mean over our own noise,

    W(x, a) = sum_E P(E|x, a) rho(E),    sum_a mu(a|x) W(x, a) = 1.

All functions are of arrays: f (b, k) an embedding of each action in each row, mu and pi (b, k) probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats, Ints

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

    weights: Floats
    lost: Floats
    roughness: Floats


def sharp(mu: Floats, pi: Floats) -> Smoothed:
    """No noise and all actions apart: W = pi/mu, no bias but for the mass on actions that mu never plays."""
    return Smoothed(_ratio(pi, mu), np.where(mu > LEAST, 0.0, pi).sum(axis=1), np.zeros(len(mu)))


def flat(mu: Floats, pi: Floats) -> Smoothed:
    """One code for all actions: W = 1."""
    return Smoothed(np.ones_like(mu), np.zeros(len(mu)), 0.5 * np.abs(pi - mu).sum(axis=1))


def discrete(p: Floats, mu: Floats, pi: Floats) -> Smoothed:
    """Codes with known probabilities p (b, k, m) or (k, m), rows summing to 1; O(k m) for all actions of a row."""
    p = np.broadcast_to(p, (len(mu), *p.shape[-2:]))
    p_mu, p_pi = np.einsum("ik,ikm->im", mu, p), np.einsum("ik,ikm->im", pi, p)
    rho = _ratio(p_pi, p_mu)
    away = np.abs(pi[:, :, None] - mu[:, :, None] * rho[:, None])
    return Smoothed(
        np.einsum("ikm,im->ik", p, rho),
        np.where(p_mu > LEAST, 0.0, p_pi).sum(axis=1),
        0.5 * np.einsum("ikm,ikm->i", p, away),
    )


def rounded(f: Floats, mu: Floats, pi: Floats, pitch: float, shifts: int = 4) -> Smoothed:
    """Stochastic rounding of f to a grid: f between two points goes to each with the probability of its nearness.

    A code that is exact in O(k) per row. The grid is put at `shifts` evenly spaced places, and W is the mean over them:
    the place is part of the code. pitch -> 0 is `sharp` (where no two actions have the same f), pitch = inf is `flat`.
    """
    if np.isinf(pitch):
        return flat(mu, pi)
    b, k = f.shape
    base = (f - f.min(axis=1, keepdims=True)) / pitch
    row = np.arange(b)[:, None]
    weights, lost, rough = np.zeros((b, k)), np.zeros(b), np.zeros(b)
    for shift in (np.arange(shifts) + 0.5) / shifts:
        cell = np.floor(base + shift)
        upper = base + shift - cell
        lower = 1 - upper
        cell = _closed_up(cell) if cell.max() > 2 * k else cell
        m = int(cell.max()) + 2
        at = (row * m + cell).astype(np.intp).ravel()

        p_mu, p_pi = (_total(mass, at, lower, upper, b * m) for mass in (mu, pi))
        rho = _ratio(p_pi, p_mu)
        below, above = rho[at].reshape(b, k), rho[at + 1].reshape(b, k)
        weights += lower * below + upper * above
        lost += np.where(p_mu > LEAST, 0.0, p_pi).reshape(b, m).sum(axis=1)
        rough += 0.5 * (lower * np.abs(pi - mu * below) + upper * np.abs(pi - mu * above)).sum(axis=1)
    return Smoothed(weights / shifts, lost / shifts, rough / shifts)


def _total(mass: Floats, at: Ints, lower: Floats, upper: Floats, size: int) -> Floats:
    """The mass (b, k) on each of `size` points: the share `lower` falls on point `at` (b * k,), `upper` on the next."""
    total: Floats = np.bincount(at, (mass * lower).ravel(), size).astype(np.float64, copy=False)
    total += np.bincount(at + 1, (mass * upper).ravel(), size)
    return total


def _closed_up(cell: Floats) -> Floats:
    """Cells (b, k) of each row from 0, with no gap wider than 2: who shares a point with whom stays the same."""
    order = cell.argsort(axis=1)
    place = np.take_along_axis(cell, order, axis=1)
    place[:, 1:] = np.minimum(np.diff(place, axis=1), 2).cumsum(axis=1)
    place[:, 0] = 0
    closed = np.empty_like(cell)
    np.put_along_axis(closed, order, place, axis=1)
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
        rho = _ratio(np.einsum("iab,ib->ia", p, pi), p_mu)
        weights += share * rho
        away = np.einsum("iab,iab->ia", p, np.abs(pi[:, None, :] - mu[:, None, :] * rho[:, :, None]))
        rough += share * 0.5 * (mu * _ratio(away, p_mu)).sum(axis=1)
    return Smoothed(weights, np.zeros(len(mu)), rough)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > LEAST)
