"""OffCEM: weights between clusters of actions, and an outcome model for what differs inside a cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Ints, frozen
from cael.engine.asking import MODEL_ROWS, Asking
from cael.engine.parts import Form, Part, form_part
from cael.errors import InputError, choose, positive_int
from cael.estimators.estimator import Estimator
from cael.estimators.grouping import kmeans, profiles, standardised
from cael.estimators.marginal_weights import Clustered, MarginalWeight
from cael.outcomes.outcome_model import FittedOutcome, OutcomeModel
from cael.outcomes.ridge import Ridge

CLUSTER_BIAS = (
    "The interval covers the mean of the estimate; the bias of an outcome model that is wrong inside clusters is not "
    "in it."
)
WAYS = ("learned", "features")


@final
@dataclass(frozen=True, eq=False)
class OffCEM(Estimator):
    """Off-policy evaluation by a conjunct effect model (Saito, Ren and Joachims 2023, arXiv:2305.08062).

    V = (1/n) sum_i [ f(x_i, pi) + w(x_i, c_i) (r_i - f(x_i, a_i)) ], w(x, c) = pi(c|x) / mu(c|x), where c_i is the
    cluster of the logged action and pi(c|x) the sum of pi(a|x) over its actions. Unbiased if f is right about the
    *differences* of the expected rewards of actions of one cluster (local correctness), and the target plays only
    clusters that the logging policy plays. One cluster for each action: DR. One cluster for all: DM, moved by the mean
    residual. f is fitted to rewards, not to pairs of rows (the second of the paper's two steps).

    clusters: (k,) the cluster of each action; or "features": k-means of the log's action_features; or "learned":
    k-means of what f predicts for the actions at contexts of the log, for each row by the f that did not see it.
    count: clusters of k-means, about sqrt(k) by default. self_normalised: divide by the mean weight. outcome, folds,
    seed: see `DM`. The standard error takes clusters and f as fixed.

    >>> import cael
    >>> log = cael.LoggedData(None, [0, 1, 2], [1.0, 1.0, 4.0], logging=[0.25, 0.25, 0.5])
    >>> cluster = cael.OffCEM([0, 0, 1], outcome=cael.FixedOutcome([0.0, 0.0, 0.0]))  # f = 0: MIPS
    >>> cluster.estimate(log, [0.0, 0.5, 0.5]).value
    2.0
    """

    needs: ClassVar[tuple[str, ...]] = ("logging", "probabilities")
    clusters: Any = "learned"
    count: int | None = None
    outcome: OutcomeModel = field(default_factory=Ridge)
    self_normalised: bool = False
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count is not None:
            positive_int("count", self.count)
        if isinstance(self.clusters, str):
            choose("clusters", self.clusters, WAYS)
        else:
            object.__setattr__(self, "clusters", frozen(_as_clusters(self.clusters)))

    @property
    def name(self) -> str:
        """For tables."""
        way = self.clusters if isinstance(self.clusters, str) else "given"
        said = [] if way == "learned" else [way]
        said += [] if self.count is None else [f"{self.count}"]
        said += [] if self.outcome == Ridge() else [f"{self.outcome}"]
        return ("SNOffCEM" if self.self_normalised else "OffCEM") + (f"({', '.join(said)})" if said else "")

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        outcome = self.modelled
        assert outcome is not None
        asking.outcome(outcome, target)
        if self not in asking.learned:
            asking.learned[self] = Clustered(self.groups(asking), self.seed)
        weight = MarginalWeight(target, asking.learned[self])
        form = Form(weight, outcome, self_normalised=self.self_normalised, notes=(CLUSTER_BIAS,))
        return form_part(asking, self.name, target, form)

    def groups(self, asking: Asking) -> Ints:
        """The cluster of each action, (1, k), or (folds, k) where each fold has its own."""
        k, features = asking.log.n_actions, asking.log.action_features
        count = self.count or max(2, round(math.sqrt(k)))
        if not isinstance(self.clusters, str):
            if len(self.clusters) != k:
                raise InputError(f"clusters must have one entry per action, {k}; got {len(self.clusters)}.")
            return np.asarray(self.clusters)[None]
        if self.clusters == "learned":
            return self._learned(asking, count)
        if features is None:
            raise InputError("clusters='features' needs action_features in the log. Use 'learned', or give clusters.")
        return kmeans(standardised(features), count, self.seed)[None]

    def _learned(self, asking: Asking, count: int) -> Ints:
        sample = asking.sample(MODEL_ROWS if asking.held is None else len(asking.held), self.seed)
        models: list[FittedOutcome]
        if self.outcome.trains and self.folds >= 2:
            models = self.outcome.fit_without(sample.log, sample.folds(self.folds, self.seed), self.seed)
        else:
            models = [self.outcome.fit(sample.log, self.seed)]
        return np.stack([kmeans(profiles(model, sample.log), count, self.seed) for model in models])


def _as_clusters(values: Any) -> Ints:
    clusters = np.asarray(values)
    if clusters.ndim != 1 or clusters.size == 0 or clusters.dtype.kind not in "iub":
        raise InputError(
            f"clusters must be whole numbers (k,), 'learned' or 'features'; got {clusters.dtype} of shape "
            f"{clusters.shape}."
        )
    return clusters.astype(np.intp)
