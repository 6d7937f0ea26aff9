"""A model of all probabilities of a logging policy, from the one that each row has logged: an exact label, not a draw.

The model is a softmax of scores that are linear in inputs made of the contexts, with coefficients of each action's own
or of its features, mixed with the uniform policy or not. It is fitted by least squares of log probabilities, plus a
little likelihood of the logged actions, which speaks of the actions that have no label on a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.log.eligible import Eligible
from cael.policies.scored import softmax

LIKELIHOOD = 0.02
"""What the mean of -log mu(a_i|x_i) counts beside the mean squared error of log mu(a_i|x_i)."""
STEPS, TOLERANCE = 200, 1e-10
LOWEST = 1e-300
NEVER, OUT = 1e-7, -1e4
"""An action with less probability than this is never played; and a score that gives it 0."""
FIRST_FLOOR = -3.0


@final
@dataclass(frozen=True)
class Family:
    """A kind of model. inputs: "none" (the contexts do not matter), "linear" or "products" of contexts. own: whether
    actions have coefficients of their own, or those of their features alone. floor: whether it is mixed with the
    uniform policy. ridge: on squared coefficients. Labels are exact, so that little has to be shrunk, but directions
    that no label speaks of stay at 0."""

    inputs: str
    own: bool = True
    floor: bool = False
    ridge: float = 1e-3

    @property
    def name(self) -> str:
        kind = {"none": "the same in every context", "linear": "softmax", "products": "softmax of products of contexts"}
        of = "" if self.own else ", by action features"
        return kind[self.inputs] + of + (", mixed with the uniform policy" if self.floor else "")


@final
@dataclass(frozen=True, eq=False)
class Basis:
    """Inputs (b, p) of contexts (b, d), a constant first."""

    mean: Floats
    scale: Floats
    inputs: str

    def __call__(self, contexts: Floats) -> Floats:
        parts = [np.ones((len(contexts), 1))]
        x = (contexts - self.mean) / self.scale
        if self.inputs != "none":
            parts.append(x)
        if self.inputs == "products":
            i, j = np.triu_indices(x.shape[1])
            parts.append(x[:, i] * x[:, j])
        return np.hstack(parts)


def basis_of(contexts: Floats, inputs: str) -> Basis:
    """For contexts (n, d); those without spread are no inputs."""
    mean, scale = contexts.mean(axis=0), contexts.std(axis=0)
    still = scale <= 1e-12 * np.maximum(1.0, np.abs(mean))
    return Basis(mean, np.where(still, np.inf, scale), inputs)


@final
@dataclass(frozen=True, eq=False)
class LabelModel:
    """mu(a|x) = floor / k + (1 - floor) softmax_a(basis(x) @ table). table: (p, k)."""

    basis: Basis
    table: Floats
    floor: float

    def probabilities(self, contexts: Floats, eligible: Array | None = None) -> Floats:
        """(b, k). eligible: (b, k) whether an action can be taken on a row; None: all can."""
        scores = self.basis(contexts) @ self.table
        if eligible is None:
            p = self.floor / self.table.shape[1] + (1 - self.floor) * softmax(scores)
        else:
            uniform = eligible / eligible.sum(axis=1, keepdims=True)
            p = self.floor * uniform + (1 - self.floor) * softmax(np.where(eligible, scores, OUT))
        return np.where(p < NEVER, 0.0, p)


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """Rows that a model is fitted to. contexts: (n, d). actions: (n,). logged: (n,) their propensities. features: (k,
    f), standardised. eligible: the actions of each row; None: all."""

    contexts: Floats
    actions: Ints
    logged: Floats
    features: Floats
    eligible: Eligible | None = None

    @property
    def mask(self) -> Array | None:
        """(n, k) whether an action is eligible; None: all are."""
        return None if self.eligible is None else self.eligible.mask()

    def part(self, rows: Ints) -> Labels:
        eligible = None if self.eligible is None else self.eligible.part(rows)
        return Labels(self.contexts[rows], self.actions[rows], self.logged[rows], self.features, eligible)

    def errors(self, model: LabelModel) -> Floats:
        """log mu(a_i|x_i) - log of the logged propensity, (n,)."""
        p = model.probabilities(self.contexts, self.mask)[np.arange(len(self.actions)), self.actions]
        return np.asarray(np.log(np.maximum(p, NEVER)) - np.log(self.logged))


def fit_labels(
    labels: Labels, family: Family, basis: Basis, start: Floats | None = None
) -> tuple[LabelModel, Floats | None]:
    """The model of a family, and its parameters to start another fit from."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    if family.inputs == "none" and labels.eligible is None:
        return LabelModel(basis, shares_of(labels), 0.0), None
    fun = _Squares(labels, family, basis)
    options = {"maxiter": STEPS, "gtol": 1e-7, "ftol": TOLERANCE, "maxcor": 10}
    first = fun.start() if start is None else start
    with threadpool_limits(1, user_api="blas"):  # products of this size: threads would only spin
        optimum: Any = minimize(fun, first, jac=True, method="L-BFGS-B", options=options)
    return LabelModel(basis, *fun.unpacked(optimum.x)), optimum.x


def shares_of(labels: Labels) -> Floats:
    """(1, k) logs of the mean propensity of each action; those without a row share what is left."""
    k = len(labels.features)
    rows = np.bincount(labels.actions, minlength=k)
    sums = np.bincount(labels.actions, weights=labels.logged, minlength=k)
    p = np.divide(sums, rows, out=np.zeros(k), where=rows > 0)
    unseen = int((rows == 0).sum())
    p[rows == 0] = max(1 - float(p.sum()), 0.0) / max(unseen, 1)
    p = np.where(p < NEVER, 0.0, p)
    return np.where(p > 0, np.log(np.maximum(p, LOWEST)), OUT)[None]


@final
class _Squares:
    """The objective over flat parameters: of each action (p, k), of its features (p, f), and of the floor."""

    def __init__(self, labels: Labels, family: Family, basis: Basis) -> None:
        self.z, self.actions, self.logs = basis(labels.contexts), labels.actions, np.log(labels.logged)
        self.family, self.features = family, labels.features
        self.n, self.k, self.rows = len(self.z), len(labels.features), np.arange(len(self.z))
        self.mask = labels.mask
        self.even = 1 / self.k if labels.eligible is None else 1 / labels.eligible.sizes
        self.own = self.z.shape[1] * self.k if family.own else 0

    def start(self) -> Floats:
        return np.append(np.zeros(self.own + self.z.shape[1] * self.features.shape[1]), FIRST_FLOOR)

    def unpacked(self, flat: Floats) -> tuple[Floats, float]:
        """The table (p, k) and the floor."""
        p = self.z.shape[1]
        table = flat[self.own : -1].reshape(p, -1) @ self.features.T
        if self.family.own:
            table = table + flat[: self.own].reshape(p, self.k)
        return table, float(1 / (1 + np.exp(-flat[-1]))) if self.family.floor else 0.0

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        """Loss and gradient."""
        table, floor = self.unpacked(flat)
        scores = self.z @ table
        p = softmax(scores if self.mask is None else np.where(self.mask, scores, OUT))
        chosen = p[self.rows, self.actions]
        mixed = np.maximum(floor * self.even + (1 - floor) * chosen, LOWEST)
        gap = np.log(mixed) - self.logs
        by_log = (2 * gap - LIKELIHOOD) / self.n  # the slope of the loss along log mu
        inside = by_log * (1 - floor) * chosen / mixed
        p *= -inside[:, None]
        p[self.rows, self.actions] += inside
        by_table = self.z.T @ p
        by_floor = float((by_log / mixed * (self.even - chosen)).sum()) * floor * (1 - floor)
        parts = [by_table.ravel()] if self.family.own else []
        gradient = np.concatenate([*parts, (by_table @ self.features).ravel(), [by_floor]])
        pull = self.family.ridge * flat[:-1]
        gradient[:-1] += pull
        loss = float((gap**2 - LIKELIHOOD * (gap + self.logs)).mean()) + 0.5 * float(pull @ flat[:-1])
        return loss, gradient
