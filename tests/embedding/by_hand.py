"""CAEL's choice from arrays of all rows, as an oracle of what a pass keeps: paths made by hand or from networks."""

import math
from dataclasses import dataclass, replace

import numpy as np

from cael.embedding.exact.scores import WeightNumbers, choose_bandwidth, columns_of, scores_of
from cael.embedding.exact.weight_paths import cells_of, unit_of, weights_of
from cael.estimators.estimator import mean_of
from cael.inference import intervals as inference
from cael.inference.reach import Pooled
from cael.inference.weights import effective_sample_size, tail_index
from cael.log.held import Run


@dataclass(frozen=True)
class WeightPath:
    """Weights (J, n) of J bandwidths, and what goes with them, of all rows; lost: (J,)."""

    bandwidths: np.ndarray
    unit: float
    weights: np.ndarray
    second: np.ndarray
    cross: np.ndarray
    roughness: np.ndarray
    lost: np.ndarray
    smoothed: np.ndarray
    f_logged: np.ndarray
    f_target: np.ndarray
    placed: np.ndarray
    drawn: int | None = None


def weight_path(log, policy, rewards, bandwidths, drawn=None, seed=0):
    """Of trained reward models, fold by fold."""
    n, count = len(log), len(bandwidths)
    weights, second, cross, rough, smoothed = (np.empty((count, n)) for _ in range(5))
    lost, placed, f_logged, f_target = np.zeros(count), np.zeros(count), np.empty(n), np.empty(n)
    piece = Run(log, 0, n).piece(slice(0, n))
    unit = unit_of(piece, log.logging, policy, rewards, len(rewards.folds), drawn, seed)
    for fold, rows in enumerate(rewards.folds):
        cells = cells_of(log.logging, policy, rewards, fold, piece.batch().some(rows), drawn, seed)
        numbers = weights_of(cells, bandwidths * unit)
        weights[:, rows], second[:, rows], cross[:, rows], rough[:, rows], gone, smoothed[:, rows] = numbers[:6]
        placed += numbers[6].sum(axis=1) / n
        f_logged[rows], f_target[rows] = cells.logged(cells.f), (cells.pi * cells.f).sum(axis=1)
        lost += gone.sum(axis=1) / n
    return WeightPath(
        bandwidths, unit, weights, second, cross, rough, lost, smoothed, f_logged, f_target, placed, drawn
    )


def rows_of(score, columns):
    return score.constant + score.coefficients @ columns


def contributions(path, rewards, form):
    """(J, n) per-row scores of each bandwidth."""
    r0 = float(rewards.mean())
    columns = columns_of(path.weights, path.f_logged, path.f_target, rewards, form, r0)
    return np.stack([rows_of(score, columns) for score in scores_of(columns.mean(axis=1), form, r0)])


class Rows:
    """All rows, with the weights of every bandwidth."""

    def __init__(self, problem, path, form):
        log = problem.log
        self.n = self.read = self.kish = len(log)
        self.r0 = float(log.rewards.mean())
        self.columns = columns_of(path.weights, path.f_logged, path.f_target, log.rewards, form, self.r0)
        self.means = self.columns.mean(axis=1)
        self.bandwidths, self.unit, self.drawn, self.lost = path.bandwidths, path.unit, path.drawn, path.lost
        self.second, self.cross = path.second.mean(axis=1), path.cross.mean(axis=1)
        self.roughness, self.shift = path.roughness.mean(axis=1), (path.smoothed - path.f_target).mean(axis=1)
        self.residual, self.reward = float((log.rewards - path.f_logged).var()), float(log.rewards.var())
        self.explained_of_actions = 1.0
        noisy = log.rewards - path.f_logged if form.endswith("doubly_robust") else log.rewards
        self.noise = float(noisy.var())
        self.kurtosis = float(((noisy - noisy.mean()) ** 4).mean() / self.noise**2) if self.noise else 0.0
        self.problem, self.unsupported = problem, problem.unsupported_mass
        self.placed, self.fit = path.placed - path.placed[0], None
        self.slope = self.slope_of(path.weights[0] ** 0.25, log.rewards - path.f_logged)

    def slope_of(self, place, left):
        """By least squares; the standard error of rows that differ in their noise."""
        x, e = place - place.mean(), left - left.mean()
        if place.var() < 1e-12:
            return 0.0, 0.0
        product = x * e - (x * e).mean()
        return (x * e).mean() / x.var(), inference.stderr(inference.units(product, self.problem.log.clusters)) / x.var()

    def variance(self, score):
        return inference.stderr(inference.units(rows_of(score, self.columns), self.problem.log.clusters)) ** 2

    def weights(self, j, share):
        w = (1 - share) * self.columns[1 + j] + share * self.columns[1]
        tail = tail_index(w)
        return WeightNumbers(effective_sample_size(w), float(w.max()), None if math.isnan(tail) else tail)

    def estimate(self, name, score, diagnostics, second):
        alone = mean_of(name, self.problem, rows_of(score, self.columns), diagnostics)
        pooled = Pooled(second, self.noise, self.kurtosis)
        floor = float(np.sqrt(pooled.variance(alone.stderr**2, self.n)))
        return replace(alone, diagnostics=replace(diagnostics, stderr_floor=floor, pooled=pooled))


def estimate_from(name, problem, path, rewards, form, selector):
    """Choose a bandwidth, blend, and tell everything that was looked at."""
    return choose_bandwidth(name, Rows(problem, path, form), rewards, form, selector)


def products_of_inputs(inputs, delta, a):
    """The sum over rows of input times delta (T, B, h), for all inputs: (T, F + k, h)."""
    phi, own, delta, a = (np.asarray(each) for each in (inputs.phi, inputs.own, delta, a))
    sums = np.zeros((len(delta), own.shape[1], delta.shape[2]), delta.dtype)
    for t in range(len(delta)):
        np.add.at(sums[t], a[t], delta[t])
    return np.concatenate([phi.T @ sums, sums * own[..., None]], axis=1)
