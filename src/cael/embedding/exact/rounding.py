"""The weights of `cael.codes` for blocks of rows on a device: the same sums, in torch.

`cael.codes` is the definition, in numpy; tests compare the two. Sums over the codes are deterministic on a GPU, too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cael.embedding.exact.codes import LEAST


def rounded(f: Tensor, mu: Tensor, pi: Tensor, pitch: float, shifts: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """The three numbers of `codes.Smoothed` as of `codes.rounded`: f, mu, pi (b, k) of 64 bits."""
    if pitch == torch.inf:
        return torch.ones_like(mu), mu.new_zeros(len(mu)), 0.5 * (pi - mu).abs().sum(dim=1)
    b, k = f.shape
    base = (f - f.amin(dim=1, keepdim=True)) / pitch
    row = torch.arange(b, device=f.device)[:, None]
    weights, lost, rough = torch.zeros_like(f), f.new_zeros(b), f.new_zeros(b)
    for step in range(shifts):
        place = base + (step + 0.5) / shifts
        cell = torch.floor(place)
        upper = place - cell
        lower = 1 - upper
        cell = _closed_up(cell) if float(cell.max()) > 2 * k else cell
        m = int(cell.max()) + 2
        at = (row * m + cell.long()).ravel()
        p_mu, p_pi = (_total(mass, at, lower, upper, b * m) for mass in (mu, pi))
        reached = p_mu > LEAST
        rho = torch.where(reached, p_pi / p_mu, 0.0)
        below, above = rho[at].reshape(b, k), rho[at + 1].reshape(b, k)
        weights += lower * below + upper * above
        lost += torch.where(reached, 0.0, p_pi).reshape(b, m).sum(dim=1)
        rough += 0.5 * (lower * (pi - mu * below).abs() + upper * (pi - mu * above).abs()).sum(dim=1)
    return weights / shifts, lost / shifts, rough / shifts


def _total(mass: Tensor, at: Tensor, lower: Tensor, upper: Tensor, size: int) -> Tensor:
    """The mass (b, k) on each of `size` points: the share `lower` falls on point `at` (b * k,), `upper` on the next."""
    total = mass.new_zeros(size).index_add_(0, at, (mass * lower).ravel())
    return total.index_add_(0, at + 1, (mass * upper).ravel())


def _closed_up(cell: Tensor) -> Tensor:
    """As in `cael.codes`: no gap wider than 2."""
    place, order = torch.sort(cell, dim=1)
    gaps = place.diff(dim=1, prepend=place[:, :1]).clamp(max=2)
    return torch.empty_like(cell).scatter_(1, order, gaps.cumsum(dim=1))
