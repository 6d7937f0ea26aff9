"""The normal equations of a linear model of the reward, by action, solved in two steps: the coefficients that an action
has alone are eliminated, which is a small system for each action, and those that actions share are solved for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from cael.common.types import Floats
from cael.outcomes.action_sums import Sums
from cael.outcomes.linear import AdditiveOutcome, InteractingOutcome

SINGULAR = 1e-11
"""Of the mean diagonal: what is added to a matrix of products that may be singular."""

ROUNDING = 1e-10
"""Of the mean square of a context: a variance below it is what rounding leaves of the difference of two numbers."""


@final
class Penalties(NamedTuple):
    """Penalties on squared coefficients; None: there are no such coefficients.

    dense: of contexts, and of action features. onehot: of an action's own effect. products: of contexts times action
    features. slopes: of an action's own slopes.
    """

    dense: float
    onehot: float | None
    products: float | None = None
    slopes: float | None = None


@final
@dataclass(frozen=True)
class Coefficients:
    """effect[a] + x'slope[a], contexts and rewards in the shifts of the sums: effect (k,), slope (k, d) or (1, d)."""

    effect: Floats
    slope: Floats

    def outcome(self, sums: Sums) -> AdditiveOutcome | InteractingOutcome:
        """The model of contexts and rewards as they are."""
        if len(self.slope) == 1:
            slope = self.slope[0]
            return AdditiveOutcome(sums.r_shift - float(sums.x_shift @ slope), slope, self.effect)
        return InteractingOutcome(self.effect + sums.r_shift, self.slope, sums.x_shift)


@final
@dataclass(frozen=True)
class Eliminated:
    """What is left for the shared coefficients, as sums, when those that actions have alone are eliminated."""

    rest: Sums
    penalties: Penalties
    inverse: Floats | None

    def alone(self, sums: Sums, shared: Coefficients) -> Coefficients:
        """The shared coefficients and those of each action together."""
        effect, slope = shared.effect, shared.slope
        if self.penalties.onehot is None:
            return shared
        left = sums.r - sums.counts * effect - np.einsum("ij,ij->i", sums.x, np.broadcast_to(slope, sums.x.shape))
        if self.inverse is None:
            return Coefficients(effect + left / (sums.counts + self.penalties.onehot), slope)
        slope = np.broadcast_to(slope, sums.x.shape)
        tilt = sums.xr - sums.x * effect[:, None] - np.matmul(sums.xx, slope[:, :, None])[:, :, 0]
        more = np.matmul(self.inverse, np.column_stack([left, tilt])[:, :, None])[:, :, 0]
        return Coefficients(effect + more[:, 0], slope + more[:, 1:])


@final
@dataclass(frozen=True)
class System:
    """The sums of one training set with contexts standardised by mean and scale (d,), and such features z (k, f)."""

    sums: Sums
    z: Floats
    mean: Floats
    scale: Floats

    @staticmethod
    def of(sums: Sums, phi: Floats) -> System:
        n = sums.counts.sum()
        mean = sums.x.sum(axis=0) / n
        square = np.diagonal(sums.xx, axis1=1, axis2=2).sum(axis=0) / n
        variance = square - mean**2
        scale = spread(np.where(variance > ROUNDING * square, variance, 0.0), mean)
        z = _coordinates(_standardised(phi, sums.counts / n), sums.counts)
        return System(_rescaled(sums, mean, scale), z, mean, scale)

    def solve(self, settings: Iterable[Penalties]) -> Iterator[Coefficients]:
        """The coefficients under each of these penalties."""
        eliminated: dict[tuple[float | None, float | None], Eliminated] = {}
        equations: dict[tuple[float | None, float | None, bool], Equations] = {}
        for each in settings:
            alone = each.onehot, each.slopes
            if alone not in eliminated:
                eliminated[alone] = _eliminated(self.sums, each)
            of = (*alone, each.products is not None)
            if of not in equations:
                make = _additive if each.products is None else _with_products
                equations[of] = make(eliminated[alone].rest, self.z)
            shared = equations[of].solve(each)
            yield self._unscaled(eliminated[alone].alone(self.sums, shared))

    def additive(self, settings: Sequence[Penalties]) -> tuple[Floats, Floats]:
        """Effects (s, k) and shared slopes (s, d) under s penalties without interactions that have one `onehot`."""
        eliminated = _eliminated(self.sums, settings[0])
        effects, slopes = _additive(eliminated.rest, self.z).additive([each.dense for each in settings])
        if settings[0].onehot is not None:
            left = self.sums.r - self.sums.counts * effects - np.einsum("sj,ij->si", slopes, self.sums.x)
            effects = effects + left / (self.sums.counts + settings[0].onehot)
        slopes = slopes / self.scale
        return effects - np.einsum("sj,j->s", slopes, self.mean)[:, None], slopes

    def _unscaled(self, standardised: Coefficients) -> Coefficients:
        slope = standardised.slope / self.scale
        return Coefficients(standardised.effect - slope @ self.mean, slope)


def solutions(sums: Sums, phi: Floats, settings: Sequence[Penalties]) -> Iterator[Coefficients]:
    """The coefficients under each of these penalties; 0 without rows, as few clusters may all be in one fold."""
    return System.of(sums, phi).solve(settings) if sums.counts.any() else nothing(sums, settings)


def nothing(sums: Sums, settings: Sequence[Penalties]) -> Iterator[Coefficients]:
    """The same without rows."""
    return iter([Coefficients(np.zeros_like(sums.counts), np.zeros((1, sums.x.shape[1])))] * len(settings))


@final
@dataclass(frozen=True)
class Equations:
    """gram (p, p) and moment (p,) of the shared coefficients: constant, contexts, features; or products of those, the
    constant, contexts by the constant, features."""

    gram: Floats
    moment: Floats
    z: Floats
    d: int
    products: bool

    def solve(self, penalties: Penalties) -> Coefficients:
        gram = self.gram.copy()
        gram.flat[:: len(gram) + 1] += self._diagonal(penalties)
        beta = np.asarray(np.linalg.solve(gram, self.moment), dtype=np.float64)
        if self.products:
            table = beta.reshape(1 + self.d, 1 + self.z.shape[1])
            by_action = table[:, 0] + self.z @ table[:, 1:].T
            return Coefficients(by_action[:, 0], by_action[:, 1:])
        return Coefficients(beta[0] + self.z @ beta[1 + self.d :], beta[None, 1 : 1 + self.d])

    def additive(self, dense: Sequence[float]) -> tuple[Floats, Floats]:
        """Effects (s, k) and slopes (s, d) under s penalties, without products."""
        grams = np.repeat(self.gram[None], len(dense), axis=0)
        at = np.arange(1, len(self.gram))
        grams[:, at, at] += np.array(dense)[:, None]
        beta = np.asarray(np.linalg.solve(grams, self.moment[None, :, None])[:, :, 0], dtype=np.float64)
        return beta[:, :1] + (self.z @ beta[:, 1 + self.d :].T).T, beta[:, 1 : 1 + self.d]

    def _diagonal(self, penalties: Penalties) -> Floats:
        diagonal = np.full(len(self.gram), penalties.dense)
        if penalties.products is not None:
            table = diagonal.reshape(1 + self.d, 1 + self.z.shape[1])
            table[1:, 1:] = penalties.products
        diagonal[0] = 0.0
        return diagonal


def _additive(rest: Sums, z: Floats) -> Equations:
    """The equations of [1, x, z(a)]."""
    d, counts = rest.x.shape[1], rest.counts[:, None]
    gram = np.empty((1 + d + z.shape[1],) * 2)
    gram[0] = gram[:, 0] = np.hstack([counts, rest.x, counts * z]).sum(axis=0)
    gram[1 : 1 + d, 1 : 1 + d] = rest.xx.sum(axis=0)
    gram[1 : 1 + d, 1 + d :] = rest.x.T @ z
    gram[1 + d :, 1 : 1 + d] = gram[1 : 1 + d, 1 + d :].T
    gram[1 + d :, 1 + d :] = z.T @ (counts * z)
    moment = np.concatenate([[rest.r.sum()], rest.xr.sum(axis=0), z.T @ rest.r])
    return Equations(gram, moment, z, d, products=False)


def _with_products(rest: Sums, z: Floats) -> Equations:
    """The equations of the products of [1, x] with [1, z(a)]."""
    k, d = rest.x.shape
    one = np.hstack([np.ones((k, 1)), z])
    f = one.shape[1]
    pairs = (one[:, :, None] * one[:, None, :]).reshape(k, f * f)
    gram = (_with_constant(rest).reshape(k, -1).T @ pairs).reshape(1 + d, 1 + d, f, f)
    gram = np.ascontiguousarray(gram.transpose(0, 2, 1, 3)).reshape(((1 + d) * f,) * 2)
    return Equations(gram, (np.column_stack([rest.r, rest.xr]).T @ one).ravel(), z, d, products=True)


def _with_constant(sums: Sums) -> Floats:
    """The products of [1, x] over the rows of each action, (k, 1 + d, 1 + d)."""
    k, d = sums.x.shape
    products = np.empty((k, 1 + d, 1 + d))
    products[:, 0, 0], products[:, 1:, 1:] = sums.counts, sums.xx
    products[:, 0, 1:] = products[:, 1:, 0] = sums.x
    return products


def _eliminated(sums: Sums, penalties: Penalties) -> Eliminated:
    """The coefficients that actions have alone, eliminated under their penalties: Schur complements."""
    if penalties.onehot is None:
        return Eliminated(sums, penalties, None)
    if penalties.slopes is None:
        return Eliminated(_without_effects(sums, penalties.onehot), penalties, None)
    return _without_slopes(sums, penalties, penalties.slopes)


def _without_effects(sums: Sums, onehot: float) -> Sums:
    inverse = 1 / (sums.counts + onehot)
    kept, scaled = onehot * inverse, inverse[:, None] * sums.x
    if sums.by_action:
        xx, xr = sums.xx - scaled[:, :, None] * sums.x[:, None, :], sums.xr - scaled * sums.r[:, None]
    else:
        xx, xr = sums.xx - sums.x.T @ scaled, sums.xr - scaled.T @ sums.r
    return replace(sums, counts=sums.counts * kept, x=sums.x * kept[:, None], r=sums.r * kept, xx=xx, xr=xr)


def _without_slopes(sums: Sums, penalties: Penalties, slopes: float) -> Eliminated:
    """Of M, the products of [1, x] over the rows of an action, M - M (M + L)^-1 M is left; L are the penalties."""
    products = _with_constant(sums)
    penalty = np.full(products.shape[1], slopes)
    penalty[0] = penalties.onehot
    inverse = np.asarray(np.linalg.inv(products + np.diag(penalty)), dtype=np.float64)
    # L (M + L)^-1 M, which is the same and keeps its digits where M is much larger than L
    kept = penalty[:, None] * inverse
    left, moment = np.matmul(kept, products), np.matmul(kept, np.column_stack([sums.r, sums.xr])[:, :, None])[:, :, 0]
    rest = replace(sums, counts=left[:, 0, 0], x=left[:, 0, 1:], r=moment[:, 0], xx=left[:, 1:, 1:], xr=moment[:, 1:])
    return Eliminated(rest, penalties, inverse)


def _rescaled(sums: Sums, mean: Floats, scale: Floats) -> Sums:
    """The sums of (x - mean) / scale."""
    x, counts, r = (sums.x, sums.counts, sums.r) if sums.by_action else (
        sums.x.sum(axis=0)[None], sums.counts.sum()[None], sums.r.sum()[None])  # fmt: skip
    cross = x[:, :, None] * mean
    centred = sums.xx - cross - cross.transpose(0, 2, 1) + counts[:, None, None] * np.outer(mean, mean)
    return replace(
        sums, x=(sums.x - sums.counts[:, None] * mean) / scale, xx=centred / np.outer(scale, scale),
        xr=(sums.xr - r[:, None] * mean) / scale,
    )  # fmt: skip


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
