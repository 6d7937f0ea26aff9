"""What a sparse network may be told about an action: every feature, and one input per action, at unit variance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cael.common.types import Floats
from cael.embedding.arrays import AnyArray, Arrays, of
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

    phi: AnyArray
    own: AnyArray

    @property
    def features(self) -> int:
        return int(self.phi.shape[1])

    @property
    def count(self) -> int:
        return self.features + int(self.own.shape[1])

    def values(self, a: AnyArray, active: AnyArray) -> AnyArray:
        """Active inputs of actions a (T, B): (T, B, c)."""
        xp = of(a)
        own = xp.take_along(self.own, a)[..., None] * (active[:, None] - self.features == a[..., None])
        if self.features == 0:
            return own
        column = active.clip(max=self.features - 1)[:, None]
        return xp.where((active < self.features)[:, None], self.phi[a[..., None], column], own)

    def lookup(self, active: AnyArray) -> Callable[[AnyArray], AnyArray]:
        """`values` of the same inputs for many batches: rows of a table of all actions, where that is not too large."""
        trials, k = self.own.shape
        if trials * k * active.shape[1] > SUMS:
            return lambda a: self.values(a, active)
        table = self.values(of(active).zeros((trials, k), active.dtype) + of(active).arange(k), active)
        return lambda a: gather_rows(table, a)

    def table(self, trial: int, active: AnyArray) -> AnyArray:
        """Active inputs (c,) of all actions in one trial: (k, c)."""
        every = of(active).arange(self.own.shape[1])
        return ActionInputs(self.phi, self.own[trial : trial + 1]).values(every[None], active[None])[0]

    def norms(
        self,
        delta: AnyArray,
        a: AnyArray,
        added: Callable[[Sequence[AnyArray]], Sequence[AnyArray]] = lambda sums: sums,
    ) -> AnyArray:
        """The norm over h of the sum over rows of input times delta (T, B, h), for all inputs, (T, F + k).

        Only actions that occur are summed over, some trials at a time: with many actions the sums of all would not fit.
        The sum over rows of phi(a_i) delta_i is the sum over actions of phi(a) times the sum of its rows' delta. added:
        adds sums over processes.
        """
        k, xp = self.own.shape[1], of(delta)
        seen = xp.nonzero(added([xp.bincount(a.reshape(-1), k)])[0])
        place = xp.searchsorted(seen, a)
        count, h = len(seen), delta.shape[2]
        norms = xp.zeros((len(delta), self.features + k), delta.dtype)
        size = max(1, SUMS // (count * h))
        for t in range(0, len(delta), size):
            part = slice(t, min(t + size, len(delta)))
            at = xp.arange(part.stop - t)[:, None] * count + place[part]
            sums = xp.row_sums_at(at.reshape(-1), delta[part].reshape(-1, h), (part.stop - t) * count)
            sums = added([sums])[0].reshape(-1, count, h)
            products = self.phi[seen].T @ sums
            norms[part, : self.features] = xp.sqrt(xp.dots(products, products))
            norms[part, self.features + seen] = xp.sqrt(xp.dots(sums, sums)) * self.own[part][:, seen]
        return norms


def action_inputs_of(logs: Sequence[LoggedData], repeats: int, xp: Arrays) -> ActionInputs:
    """The inputs of logs with the same actions, each log `repeats` times on the trial axis."""
    k = logs[0].n_actions
    features = logs[0].action_features
    phi = standardised(np.asarray(features)) if features is not None else np.empty((k, 0))
    phi = phi[:, np.abs(phi).max(axis=0) > 0] if phi.size else phi
    shares = np.stack([np.maximum(np.bincount(log.actions, minlength=k), 1) / len(log) for log in logs])
    own = np.repeat(1 / np.sqrt(shares), repeats, axis=0)
    return ActionInputs(xp.asarray(phi, xp.float32), xp.asarray(own, xp.float32))
