"""The three losses of the paper as pure tensor functions; the last axis of p and w is the k actions.

Each has a slow twin in tests/embedding/slow.py. p: posterior mu(a|x, e), rows sum to 1. w: pi/mu for all actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True)
class SortedWeights:
    """What the bias loss needs of w, made once per context, since w does not depend on the network.

    order: (..., k) actions by rising weight. gaps: (..., k - 1) differences of neighbours.
    """

    order: Tensor
    gaps: Tensor


def sort_weights(w: Tensor) -> SortedWeights:
    values, order = torch.sort(w, dim=-1)
    return SortedWeights(order, values[..., 1:] - values[..., :-1])


def reward_loss(r_hat: Tensor, r: Tensor) -> Tensor:
    """(eq. emp-r-loss) mean over rows of (r_hat - r)^2; (..., B) -> (...)."""
    return ((r_hat - r) ** 2).mean(dim=-1)


def half_gini(p: Tensor, weights: SortedWeights) -> Tensor:
    """sum over pairs a < b of p_a p_b |w_a - w_b|, in O(k) as sum_j F_j (1 - F_j) (w_(j+1) - w_(j)), F = cumsum of p.

    No term is a difference of large numbers: the error is of the order of float rounding times the range of w.
    """
    below = torch.cumsum(torch.gather(p, -1, weights.order), dim=-1)[..., :-1]
    return (below * (1 - below) * weights.gaps).sum(dim=-1)


def sharp_bias(p: Tensor, w: Tensor) -> Tensor:
    """(1/2) sum_a p_a |w_a - rho|, rho = sum p w: the tight bound of |Cov_p(w, q)| over 0 <= q <= 1."""
    rho = (p * w).sum(dim=-1, keepdim=True)
    return 0.5 * (p * (w - rho).abs()).sum(dim=-1)


def bias_loss(per_row: Tensor) -> Tensor:
    """(eq. emp-b-loss) the squared mean of the rows' bias terms; (..., B) -> (...)."""
    return per_row.mean(dim=-1) ** 2


def variance_loss(r_hat: Tensor, p_squares: Tensor, w_squares: Tensor, n: int) -> Tensor:
    """(eq. emp-v-loss) (1/n) mean over rows of r_hat^2 sum_a p_a^2 sum_a w_a^2; the two sums are given, (..., B)."""
    return (r_hat**2 * p_squares * w_squares).mean(dim=-1) / n


def direct_variance_loss(r: Tensor, p: Tensor, w: Tensor, n: int) -> Tensor:
    """(1/n) mean over rows of (rho r)^2: the part of the variance that depends on the posterior, observed. -> (...)."""
    rho = (p * w).sum(dim=-1)
    return ((rho * r) ** 2).mean(dim=-1) / n


def renyi_entropy(p: Tensor) -> Tensor:
    """Order 2: -log sum_a p_a^2; its exponential is the effective number of actions. (..., k) -> (...)."""
    return -torch.log((p**2).sum(dim=-1))
