"""Ridge regression from sums: one pass over the log trains the models of all folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from cael._types import Array, Floats, Ints
from cael.errors import InputError, choose
from cael.log import Batch, LoggedData
from cael.outcomes.base import ACTION_INPUTS, FittedOutcome, OutcomeModel, action_inputs


@final
@dataclass(frozen=True)
class Ridge(OutcomeModel):
    """q(x, a) = c + beta'x + gamma'phi(a) + delta_a, squared error plus alpha times the squared coefficients.

    Contexts and action features are standardised first; c is not penalised. Everything follows from sums by action,
    so the cost is O(n d^2) for any number of actions and folds.

    alpha: strength of the penalty. actions: "onehot" (delta), "features" (gamma), "both"; "auto" is one-hot plus
    features where the log has them.

    >>> Ridge(alpha=2.0)
    Ridge(alpha=2.0, actions='auto')
    """

    alpha: float = 1.0
    actions: str = "auto"

    def __post_init__(self) -> None:
        choose("actions", self.actions, ACTION_INPUTS)
        if not (np.isfinite(self.alpha) and self.alpha > 0):
            raise InputError(f"alpha must be a positive number; got {self.alpha!r}.")

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        return self._solve(log, _sums(log, np.zeros(len(log), dtype=np.intp), 1)[0])

    def fit_without(self, log: LoggedData, held_out: list[Array], seed: int) -> list[FittedOutcome]:
        fold = np.empty(len(log), dtype=np.intp)
        for number, rows in enumerate(held_out):
            fold[rows] = number
        parts = _sums(log, fold, len(held_out))
        everything = parts[0]
        for part in parts[1:]:
            everything = everything.plus(part)
        return [self._solve(log, everything.plus(part, sign=-1)) for part in parts]

    def _solve(self, log: LoggedData, sums: Sums) -> AdditiveOutcome:
        onehot, features = action_inputs(self.actions, log, self)
        phi = log.action_features if features and log.action_features is not None else np.empty((log.n_actions, 0))
        return solve_ridge(sums, phi, self.alpha, onehot)


@final
@dataclass(frozen=True)
class AdditiveOutcome(FittedOutcome):
    """q(x, a) = constant + x'slope + effect[a]: slope (d,), effect (k,)."""

    constant: float
    slope: Floats
    effect: Floats

    def _context_part(self, batch: Batch) -> Floats:
        return self.constant + batch.contexts @ self.slope

    def predict(self, batch: Batch) -> Floats:
        return self._context_part(batch)[:, None] + self.effect

    def logged(self, batch: Batch) -> Floats:
        return self._context_part(batch) + self.effect[batch.actions]

    def value(self, batch: Batch, p: Floats) -> Floats:
        # einsum, not @: a threaded BLAS takes a hundred times as long for this where other work keeps the cores busy
        return self._context_part(batch) + np.einsum("ij,j->i", p, self.effect)


@final
@dataclass(frozen=True)
class Sums:
    """Sufficient statistics of (x, a, r), mergeable.

    counts: (k,). x_by_action: (k, d). r_by_action: (k,). xx: (d, d). xr: (d,).
    x and r are shifted by constants (the first batch's means), which keeps the digits when their means are large.
    """

    counts: Floats
    x_by_action: Floats
    r_by_action: Floats
    xx: Floats
    xr: Floats
    x_shift: Floats
    r_shift: float

    def plus(self, other: Sums, sign: int = 1) -> Sums:
        return Sums(
            self.counts + sign * other.counts,
            self.x_by_action + sign * other.x_by_action,
            self.r_by_action + sign * other.r_by_action,
            self.xx + sign * other.xx,
            self.xr + sign * other.xr,
            self.x_shift,
            self.r_shift,
        )


def _sums(log: LoggedData, fold: Ints, n_folds: int) -> list[Sums]:
    """The sums of each fold, in one pass over the log."""
    k, d = log.n_actions, log.contexts.shape[1]
    first = next(log.batches(width=d + 1))
    x_shift, r_shift = first.contexts.mean(axis=0), float(first.rewards.mean())
    size = n_folds * k
    counts, r_sum, x_sum = np.zeros(size), np.zeros(size), np.zeros((size, d))
    xx, xr = np.zeros((n_folds, d, d)), np.zeros((n_folds, d))
    at = 0
    for batch in log.batches(width=d + 1):
        of = fold[at : at + len(batch)]
        at += len(batch)
        x, r = batch.contexts - x_shift, batch.rewards - r_shift
        cell = of * k + batch.actions
        counts += np.bincount(cell, minlength=size)
        r_sum += np.bincount(cell, weights=r, minlength=size)
        for column in range(d):
            x_sum[:, column] += np.bincount(cell, weights=x[:, column], minlength=size)
        for number in range(n_folds):
            mine = x if n_folds == 1 else x[of == number]
            xx[number] += mine.T @ mine
            xr[number] += mine.T @ (r if n_folds == 1 else r[of == number])
    return [
        Sums(counts[s], x_sum[s], r_sum[s], xx[number], xr[number], x_shift, r_shift)
        for number in range(n_folds)
        for s in [slice(number * k, (number + 1) * k)]
    ]


def solve_ridge(sums: Sums, phi: Floats, alpha: float, onehot: bool) -> AdditiveOutcome:
    """The ridge solution. The one-hot block of the normal equations is diagonal and is eliminated (Schur complement).

    Dense columns are [1, x, phi(a)]; phi: (k, f).
    """
    gram, by_action, moment = _normal_equations(sums, phi)
    n = gram[0, 0]
    if n < 1:
        raise InputError("Ridge: a fold leaves no rows to train on; use fewer folds.")
    mean = gram[0] / n
    scale = np.sqrt(np.clip(np.diag(gram) / n - mean**2, 0.0, None))
    scale[scale <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    change = np.diag(1 / scale)
    change[0] = -mean / scale
    change[0, 0] = 1.0
    gram, by_action, moment = change.T @ gram @ change, by_action @ change, change.T @ moment
    penalty = np.full(len(gram), alpha)
    penalty[0] = 0.0
    gram[np.diag_indices_from(gram)] += penalty
    r_by_action = sums.r_by_action
    if onehot:
        inverse = 1 / (sums.counts + alpha)
        gram -= by_action.T @ (by_action * inverse[:, None])
        moment = moment - by_action.T @ (r_by_action * inverse)
    beta = np.linalg.solve(gram, moment)
    delta = (r_by_action - by_action @ beta) * inverse if onehot else np.zeros(len(phi))
    raw = change @ beta
    d = len(sums.xr)
    effect = delta + phi @ raw[1 + d :]
    return AdditiveOutcome(float(raw[0]) + sums.r_shift - float(sums.x_shift @ raw[1 : 1 + d]), raw[1 : 1 + d], effect)


def _normal_equations(sums: Sums, phi: Floats) -> tuple[Floats, Floats, Floats]:
    """D'D (p, p), the per-action sums of D (k, p), and D'r (p,), for D = [1, x, phi(a)], from the sums alone."""
    counts = sums.counts[:, None]
    by_action = np.hstack([counts, sums.x_by_action, counts * phi])
    first = by_action.sum(axis=0)
    d = len(sums.xr)
    gram = np.empty((len(first), len(first)))
    gram[0] = gram[:, 0] = first
    gram[1 : 1 + d, 1 : 1 + d] = sums.xx
    gram[1 : 1 + d, 1 + d :] = sums.x_by_action.T @ phi
    gram[1 + d :, 1 : 1 + d] = gram[1 : 1 + d, 1 + d :].T
    gram[1 + d :, 1 + d :] = phi.T @ (counts * phi)
    return gram, by_action, np.concatenate([[sums.r_by_action.sum()], sums.xr, phi.T @ sums.r_by_action])
