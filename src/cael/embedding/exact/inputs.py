"""What a sparse network may be told about an action: every feature, and one input per action, at unit variance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from cael.common.types import Floats
from cael.embedding.rows import gather_rows
from cael.log.logged import LoggedData

SUMS = 2**24
"""Sums over rows of all inputs are made for so many trials at once that they have about so many numbers."""


def centre_and_scale(values: Floats) -> tuple[Floats, Floats]:
    """Means and standard deviations of columns; a constant column gets a scale that makes it 0."""
    mean, spread = values.mean(axis=0), values.std(axis=0)
    return mean, np.where(spread > 1e-12 * (1 + np.abs(mean)), spread, np.inf)


def standardised(values: Floats) -> Floats:
    """Columns at mean 0 and variance 1; a constant column becomes 0."""
    mean, scale = centre_and_scale(values)
    return (values - mean) / scale


@final
@dataclass(frozen=True, eq=False)
class ActionInputs:
    """phi: (k, F) features. own: (T, k), the height of each action's own input, 1/sqrt(its share of the log).

    Inputs are numbered 0 .. F - 1 (features) and F .. F + k - 1 (one per action); `active` (T, c) are numbers.
    """

    phi: Tensor
    own: Tensor

    @property
    def features(self) -> int:
        return int(self.phi.shape[1])

    @property
    def count(self) -> int:
        return self.features + int(self.own.shape[1])

    def values(self, a: Tensor, active: Tensor) -> Tensor:
        """Active inputs of actions a (T, B): (T, B, c)."""
        own = torch.gather(self.own, 1, a)[..., None] * (active[:, None] - self.features == a[..., None])
        if self.features == 0:
            return own
        column = active.clamp(max=self.features - 1)[:, None]
        return torch.where((active < self.features)[:, None], self.phi[a[..., None], column], own)

    def lookup(self, active: Tensor) -> Callable[[Tensor], Tensor]:
        """`values` of the same inputs for many batches: rows of a table of all actions, where that is not too large."""
        trials, k = self.own.shape
        if trials * k * active.shape[1] > SUMS:
            return lambda a: self.values(a, active)
        table = self.values(torch.arange(k, device=active.device).expand(trials, k), active)
        return lambda a: gather_rows(table, a)

    def table(self, trial: int, active: Tensor) -> Tensor:
        """Active inputs (c,) of all actions in one trial: (k, c)."""
        every = torch.arange(self.own.shape[1], device=self.own.device)
        return ActionInputs(self.phi, self.own[trial : trial + 1]).values(every[None], active[None])[0]

    def norms(
        self, delta: Tensor, a: Tensor, added: Callable[[Sequence[Tensor]], Sequence[Tensor]] = lambda sums: sums
    ) -> Tensor:
        """The norm over h of the sum over rows of input times delta (T, B, h), for all inputs, (T, F + k).

        Only actions that occur are summed over, some trials at a time: with many actions the sums of all would not fit.
        The sum over rows of phi(a_i) delta_i is the sum over actions of phi(a) times the sum of its rows' delta. added:
        adds sums over processes.
        """
        k = self.own.shape[1]
        seen = added([torch.bincount(a.ravel(), minlength=k)])[0].nonzero().ravel()
        place = torch.searchsorted(seen, a)
        count, h = len(seen), delta.shape[2]
        norms = delta.new_zeros(len(delta), self.features + k)
        size = max(1, SUMS // (count * h))
        for t in range(0, len(delta), size):
            part = slice(t, min(t + size, len(delta)))
            at = torch.arange(part.stop - t, device=a.device)[:, None] * count + place[part]
            sums = delta.new_zeros((part.stop - t) * count, h).index_add_(0, at.ravel(), delta[part].reshape(-1, h))
            sums = added([sums])[0].reshape(-1, count, h)
            norms[part, : self.features] = (self.phi[seen].T @ sums).norm(dim=2)
            norms[part, self.features + seen] = sums.norm(dim=2) * self.own[part][:, seen]
        return norms


def action_inputs_of(logs: Sequence[LoggedData], repeats: int, device: torch.device) -> ActionInputs:
    """The inputs of logs with the same actions, each log `repeats` times on the trial axis."""
    k = logs[0].n_actions
    features = logs[0].action_features
    phi = standardised(np.asarray(features)) if features is not None else np.empty((k, 0))
    phi = phi[:, np.abs(phi).max(axis=0) > 0] if phi.size else phi
    shares = np.stack([np.maximum(np.bincount(log.actions, minlength=k), 1) / len(log) for log in logs])
    own = np.repeat(1 / np.sqrt(shares), repeats, axis=0)
    return ActionInputs(
        torch.as_tensor(phi, dtype=torch.float32, device=device),
        torch.as_tensor(own, dtype=torch.float32, device=device),
    )
