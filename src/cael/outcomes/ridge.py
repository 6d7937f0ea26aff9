"""Ridge regression from sums: one pass over the log trains the models of all folds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError, choose
from cael.log.keys import fold_of_each, parts_of_keys
from cael.log.logged import Batch, LoggedData, chunks
from cael.outcomes.outcome_model import ACTION_INPUTS, FittedOutcome, OutcomeModel, action_inputs

ALPHAS, ONEHOT_ALPHAS = (1e5, 1e4, 1e3, 1e2, 1e1, 1e0), (1e4, 1e2, 1e1, 1e0)
"""Penalties that "auto" chooses from, the strongest first: of two equal losses the stronger penalty wins."""
MANY = 300
"""With more contexts and features than this, when one solve takes milliseconds, every other penalty is left out."""
SINGULAR = 1e-11
"""Of the mean diagonal: what is added to a matrix of products that may be singular."""
FOLDS = 5
"""Folds of the choice where the caller has none of its own."""


@final
@dataclass(frozen=True)
class Ridge(OutcomeModel):
    """q(x, a) = c + beta'x + gamma'phi(a) + delta_a, squared error plus penalties on the squared coefficients.

    Contexts and action features are standardised first; c is not penalised. Everything follows from sums by action,
    so the cost is O(n d^2) for any number of actions and folds, and the choice of penalties needs no other pass.

    alpha: strength of the penalty. "auto" takes one for beta and gamma and another for delta, those with the least
    squared error on held-out folds of the rows that it trains on.
    actions: "onehot" (delta), "features" (gamma), "both"; "auto" is one-hot plus features where the log has them.

    >>> Ridge(alpha=2.0)
    Ridge(alpha=2.0, actions='auto')
    """

    alpha: float | str = "auto"
    actions: str = "auto"

    def __post_init__(self) -> None:
        choose("actions", self.actions, ACTION_INPUTS)
        if self.alpha == "auto":
            return
        if isinstance(self.alpha, str) or not (np.isfinite(self.alpha) and self.alpha > 0):
            raise InputError(f"alpha must be a positive number or 'auto'; got {self.alpha!r}.")

    def fit(self, log: LoggedData, seed: int) -> FittedOutcome:
        count = min(FOLDS, log.groups) if isinstance(self.alpha, str) else 1
        fold = log.fold_numbers(count, seed) if isinstance(self.alpha, str) else np.zeros(len(log), dtype=np.intp)
        return self.solve_from(log, _sums(log, fold, count), [frozenset()])[0]

    def fit_without(self, log: LoggedData, held_out: list[Array], seed: int) -> list[FittedOutcome]:
        count = len(held_out)
        # The penalties of a fold are chosen on the other folds; of two folds, the other one is halved for that.
        halves = 2 if count == 2 and isinstance(self.alpha, str) else 1
        part = fold_of_each(held_out, len(log)) * halves + parts_of_keys(log.keys, 2, halves, seed) % halves
        without = [frozenset(range(at * halves, (at + 1) * halves)) for at in range(count)]
        return list(self.solve_from(log, _sums(log, part, count * halves), without))

    def solve_from(
        self, log: LoggedData, parts: Sequence[Sums], without: Sequence[frozenset[int]]
    ) -> list[AdditiveOutcome]:
        """For each set of parts of the rows, the model of all other parts. log: for the inputs."""
        if isinstance(self.alpha, str):
            return self._chosen(log, parts, without)
        return [self._solve(log, _total(parts, without=hidden), self.alpha, self.alpha) for hidden in without]

    def _chosen(
        self, log: LoggedData, parts: Sequence[Sums], without: Sequence[frozenset[int]]
    ) -> list[AdditiveOutcome]:
        """For each set of parts, the model of all other parts; its penalties are those that predict these best."""
        chosen: list[AdditiveOutcome] = []
        # Errors, not models, are kept: each model has a number for every action.
        errors: dict[frozenset[int], dict[int, list[float]]] = {}
        for hidden in without:
            losses = np.zeros(len(self._grid(log)))
            for at in sorted(set(range(len(parts))) - hidden):
                key = hidden | {at}
                if key not in errors:
                    models = self._along_grid(log, _total(parts, without=key))
                    errors[key] = {part: [parts[part].squared_error(model) for model in models] for part in key}
                losses += errors[key][at]
            chosen.append(self._solve(log, _total(parts, without=hidden), *self._grid(log)[int(losses.argmin())]))
        return chosen

    def _grid(self, log: LoggedData) -> list[tuple[float, float]]:
        """Pairs (dense, one-hot) of penalties."""
        phi, onehot = self._inputs(log)
        step = 1 if phi.shape[1] + log.contexts.shape[1] <= MANY else 2
        strengths = ONEHOT_ALPHAS[::step] if onehot else (1.0,)
        return [(alpha, strength) for strength in strengths for alpha in ALPHAS[::step]]

    def _along_grid(self, log: LoggedData, sums: Sums) -> list[AdditiveOutcome]:
        system = System.of(sums, *self._inputs(log))
        reduced = {strength: system.without_onehot(strength) for strength in {pair[1] for pair in self._grid(log)}}
        return [reduced[strength].solve(alpha) for alpha, strength in self._grid(log)]

    def _solve(self, log: LoggedData, sums: Sums, dense: float, onehot: float) -> AdditiveOutcome:
        return System.of(sums, *self._inputs(log)).without_onehot(onehot).solve(dense)

    def _inputs(self, log: LoggedData) -> tuple[Floats, bool]:
        onehot, features = action_inputs(self.actions, log, self)
        phi = log.action_features if features and log.action_features is not None else np.empty((log.n_actions, 0))
        return phi, onehot


@final
@dataclass(frozen=True)
class AdditiveOutcome(FittedOutcome):
    """q(x, a) = constant + x'slope + effect[a]: slope (d,), effect (k,)."""

    averages: ClassVar[bool] = True
    constant: float
    slope: Floats
    effect: Floats

    def _context_part(self, batch: Batch) -> Floats:
        return self.constant + batch.contexts @ self.slope

    def predict(self, batch: Batch) -> Floats:
        return self._context_part(batch)[:, None] + self.effect

    def at(self, batch: Batch, actions: Ints) -> Floats:
        return self._context_part(batch)[:, None] + self.effect[np.maximum(actions, 0)]

    def average(self, batch: Batch) -> Floats:
        return self._context_part(batch) + self.effect.mean()

    def value(self, batch: Batch, p: Floats) -> Floats:
        # einsum, not @: a threaded BLAS takes a hundred times as long for this where other work keeps the cores busy
        return self._context_part(batch) + np.einsum("ij,j->i", p, self.effect)


@final
@dataclass(frozen=True)
class Sums:
    """Sufficient statistics of (x, a, r), mergeable.

    counts: (k,). x_by_action: (k, d). r_by_action: (k,). xx: (d, d). xr: (d,). rr: sum of r^2.
    x and r are shifted by constants (the first batch's means), which keeps the digits when their means are large.
    """

    counts: Floats
    x_by_action: Floats
    r_by_action: Floats
    xx: Floats
    xr: Floats
    rr: float
    x_shift: Floats
    r_shift: float

    def plus(self, other: Sums, sign: int = 1) -> Sums:
        return Sums(
            self.counts + sign * other.counts, self.x_by_action + sign * other.x_by_action,
            self.r_by_action + sign * other.r_by_action, self.xx + sign * other.xx, self.xr + sign * other.xr,
            self.rr + sign * other.rr, self.x_shift, self.r_shift,
        )  # fmt: skip

    def squared_error(self, model: AdditiveOutcome) -> float:
        """sum (r - q(x, a))^2 of the rows in these sums."""
        slope, effect = model.slope, model.effect + (model.constant + float(self.x_shift @ model.slope) - self.r_shift)
        cross = float(self.xr @ slope) + float(self.r_by_action @ effect)
        # einsum, not @: see AdditiveOutcome.value
        along = np.einsum("ij,j->i", self.x_by_action, slope)
        square = slope @ self.xx @ slope + 2 * effect @ along + effect @ (self.counts * effect)
        return max(0.0, self.rr - 2 * cross + float(square))


def _total(parts: Sequence[Sums], without: Collection[int] = ()) -> Sums:
    """The sums of all parts together, but some."""
    everything = parts[0]
    for part in parts[1:]:
        everything = everything.plus(part)
    for at in sorted(without):
        everything = everything.plus(parts[at], sign=-1)
    return everything


def _sums(log: LoggedData, part: Ints, parts: int) -> list[Sums]:
    """The sums of each part of the rows, in one pass over the log."""
    width = log.contexts.shape[1] + 1
    first = next(log.batches(width))
    sums = Summing(parts, log.n_actions, first.contexts.mean(axis=0), float(first.rewards.mean()))
    for rows, batch in zip(chunks(len(log), width), log.batches(width), strict=True):
        sums.add(part[rows], batch.actions, batch.contexts, batch.rewards)
    return sums.done()


@final
class Summing:
    """Sums that grow by batches of rows, for each of f parts of them; k actions, d contexts."""

    def __init__(self, f: int, k: int, x_shift: Floats, r_shift: float) -> None:
        self.f, self.k, self.x_shift, self.r_shift = f, k, x_shift, r_shift
        d = len(x_shift)
        self.counts, self.r_sum, self.x_sum = np.zeros(f * k), np.zeros(f * k), np.zeros((f * k, d))
        self.xx, self.xr, self.rr = np.zeros((f, d, d)), np.zeros((f, d)), np.zeros(f)

    def add(self, part: Ints, actions: Ints, contexts: Floats, rewards: Floats) -> None:
        x, r = contexts - self.x_shift, rewards - self.r_shift
        cell, size = part * self.k + actions, self.f * self.k
        self.counts += np.bincount(cell, minlength=size)
        self.r_sum += np.bincount(cell, weights=r, minlength=size)
        self.rr += np.bincount(part, weights=r * r, minlength=self.f)
        for column in range(x.shape[1]):
            self.x_sum[:, column] += np.bincount(cell, weights=x[:, column], minlength=size)
        for number in range(self.f):
            rows = slice(None) if self.f == 1 else part == number
            x_here = x[rows]
            self.xx[number] += x_here.T @ x_here
            self.xr[number] += x_here.T @ r[rows]

    def done(self) -> list[Sums]:
        cells = [slice(at * self.k, (at + 1) * self.k) for at in range(self.f)]
        return [
            Sums(self.counts[s], self.x_sum[s], self.r_sum[s], xx, xr, float(rr), self.x_shift, self.r_shift)
            for s, xx, xr, rr in zip(cells, self.xx, self.xr, self.rr, strict=True)
        ]


@final
@dataclass(frozen=True)
class System:
    """The normal equations of one training set, dense columns [1, x, z(a)] standardised by mean and scale.

    z: (k, f) the features, standardised or in fewer coordinates. gram: (p, p). by_action: (k, p). moment: (p,).
    inverse: (k,) of the one-hot block, once that is eliminated.
    """

    sums: Sums
    z: Floats
    onehot: bool
    mean: Floats
    scale: Floats
    gram: Floats
    by_action: Floats
    moment: Floats
    inverse: Floats | None = None

    @staticmethod
    def of(sums: Sums, phi: Floats, onehot: bool) -> System:
        n = sums.counts.sum()
        if n < 1:
            raise InputError("Ridge: a fold leaves no rows to train on; use fewer folds.")
        z = _coordinates(_standardised(phi, sums.counts / n), sums.counts)
        gram, by_action, moment = _normal_equations(sums, z)
        mean, scale = gram[0] / n, np.ones(len(gram))
        d = slice(1, 1 + len(sums.xr))
        scale[d] = spread(np.diag(gram)[d] / n - mean[d] ** 2, mean[d])
        mean[0] = 0.0  # the constant stays as it is
        mean[d.stop :] = 0.0  # the features have mean 0
        centred = gram - n * np.outer(mean, mean)
        centred[0], centred[:, 0] = n * np.eye(len(mean))[0], n * np.eye(len(mean))[0]
        return System(
            sums, z, onehot, mean, scale, centred / np.outer(scale, scale),
            (by_action - np.outer(sums.counts, mean)) / scale, (moment - mean * moment[0]) / scale,
        )  # fmt: skip

    def without_onehot(self, alpha: float) -> System:
        """The one-hot block, which is diagonal, eliminated under its penalty (a Schur complement)."""
        if not self.onehot:
            return self
        inverse = 1 / (self.sums.counts + alpha)
        scaled = self.by_action * inverse[:, None]
        gram, moment = self.gram - self.by_action.T @ scaled, self.moment - scaled.T @ self.sums.r_by_action
        return replace(self, gram=gram, moment=moment, inverse=inverse)

    def solve(self, alpha: float) -> AdditiveOutcome:
        """The coefficients under a penalty on the dense columns, the constant left out."""
        penalty = np.full(len(self.gram), alpha)
        penalty[0] = 0.0
        beta = np.linalg.solve(self.gram + np.diag(penalty), self.moment)
        sums, d = self.sums, len(self.sums.xr)
        raw = beta / self.scale
        raw[0] -= float(self.mean @ raw)
        effect = self.z @ raw[1 + d :]
        if self.inverse is not None:
            effect += (sums.r_by_action - self.by_action @ beta) * self.inverse
        slope = raw[1 : 1 + d]
        return AdditiveOutcome(float(raw[0]) + sums.r_shift - float(sums.x_shift @ slope), slope, effect)


def spread(variance: Floats, mean: Floats) -> Floats:
    """Standard deviations; 1 where there is no variation but rounding."""
    scale = np.sqrt(np.clip(variance, 0.0, None))
    scale[scale <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    return scale


def _standardised(phi: Floats, shares: Floats) -> Floats:
    """Features (k, F) at mean 0 and variance 1 over the rows, of which each action has its share (k,)."""
    mean = shares @ phi
    centred = phi - mean
    return centred / spread(np.einsum("i,ij,ij->j", shares, centred, centred), mean)


def _coordinates(z: Floats, counts: Floats) -> Floats:
    """Features (k, f) with f at most the number m of actions that occur, which give the same model as z (k, F).

    The coefficients lie in the space that the rows of those actions span. With G = P P' = L L' for these rows P, the
    lower triangle L has their coordinates in an orthonormal basis of it: m numbers each in place of F.
    """
    seen = counts > 0
    m = int(seen.sum())
    if z.shape[1] <= m:
        return z
    p = z[seen]
    gram = p @ p.T
    gram.flat[:: m + 1] += SINGULAR * max(float(np.trace(gram)), 1.0) / m  # actions that have the same features
    lower = np.linalg.cholesky(gram)
    coordinates = np.empty((len(z), m))
    coordinates[seen] = lower
    coordinates[~seen] = np.linalg.solve(lower, p @ z[~seen].T).T
    return coordinates


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
