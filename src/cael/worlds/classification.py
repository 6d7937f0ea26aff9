"""Classification turned into a bandit: the context is what is to be classified, the actions are the classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, Ints
from cael.errors import InputError, choose
from cael.log.batch import Batch
from cael.policies.policy import Policy
from cael.policies.scored import EpsilonGreedy
from cael.worlds.population import DrawnWorld, Population
from cael.worlds.world import check_settings

SOURCES = ("digits", "letter", "penbased", "satimage", "optdigits")


@final
@dataclass(frozen=True)
class ClassificationWorld(DrawnWorld):
    """Real contexts with exact truth: an action is right (reward 1) or wrong (reward 0), so every reward is known.

    data: "digits" comes with scikit-learn and needs no network; "letter", "penbased", "satimage" and "optdigits" are
    KEEL data sets, fetched once into the user's cache (`cael.datasets`). Half of the rows train two logistic
    regressions, the other half is the population that logs are drawn from. The logging policy is epsilon-greedy on a
    classifier trained on `weak` of its rows, with logging_epsilon; the target on one trained on all, with epsilon.
    flip: the probability that a reward is turned round, so that rewards have noise. Classes have no features.

    >>> world = ClassificationWorld()
    >>> world.sample(100, seed=0)
    LoggedData(n=100, n_actions=10, context_dim=64, propensities, logging)
    """

    stream: ClassVar[int] = 0xC1A
    data: str = "digits"
    weak: float = 0.05
    logging_epsilon: float = 0.5
    epsilon: float = 0.1
    flip: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        choose("data", self.data, SOURCES)
        check_settings(self)
        if not 0 < self.weak <= 1:
            raise InputError(f"weak must be in (0, 1]; got {self.weak!r}.")
        if self.logging_epsilon == 0:
            raise InputError(
                "logging_epsilon must be > 0: without exploration the log has no other actions to learn from."
            )

    @cached_property
    def _made(self) -> tuple[Population, Ints, Any, Any]:
        x, y = _read(self.data)
        order = np.random.default_rng(np.random.SeedSequence([self.seed, self.stream])).permutation(len(y))
        half = len(y) // 2
        train, held = order[:half], order[half:]
        std = x[train].std(axis=0)
        x = (x - x[train].mean(axis=0)) / np.where(std > 0, std, 1.0)
        k = int(y.max()) + 1
        few = train[: max(2 * k, round(self.weak * half))]
        weak, strong = (_linear(x[rows], y[rows], k) for rows in (few, train))
        return Population(x[held], k), y[held], weak, strong

    @property
    def labels(self) -> Ints:
        """(N,) the right class of each member of the population."""
        classes: Ints = self._made[1]
        return classes

    def _weak_scores(self, contexts: Floats) -> Floats:
        slopes, intercepts = self._made[2]
        return contexts @ slopes + intercepts

    def _strong_scores(self, contexts: Floats) -> Floats:
        slopes, intercepts = self._made[3]
        return contexts @ slopes + intercepts

    def _means(self, members: Batch) -> Floats:
        right = np.eye(self.n_actions)[self.labels[members.rows]]
        return self.flip + (1 - 2 * self.flip) * right

    def _rewards(self, members: Ints, actions: Ints, rng: np.random.Generator) -> Floats:
        mean = np.where(actions == self.labels[members], 1 - self.flip, self.flip)
        return (rng.random(len(members)) < mean).astype(np.float64)

    @property
    def logging(self) -> Policy:
        """Epsilon-greedy on the weak classifier."""
        return EpsilonGreedy(self._weak_scores, self.logging_epsilon)

    @property
    def target(self) -> Policy:
        """Epsilon-greedy on the strong classifier."""
        return EpsilonGreedy(self._strong_scores, self.epsilon)


def _read(data: str) -> tuple[Floats, Ints]:
    """(n, d) features and (n,) class numbers."""
    if data == "digits":
        from sklearn.datasets import load_digits

        features, classes = load_digits(return_X_y=True)
        return features.astype(np.float64), classes.astype(np.intp)
    from cael.datasets import keel

    return keel(data)


def _linear(x: Floats, y: Ints, k: int) -> tuple[Floats, Array]:
    """Slopes (d, k) and intercepts (k,) of a logistic regression; classes it never saw score below all others."""
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=0.1, max_iter=300).fit(x, y)
    slopes, intercepts = np.zeros((x.shape[1], k)), np.full(k, -1e9)
    slopes[:, fitted.classes_], intercepts[fitted.classes_] = fitted.coef_.T, fitted.intercept_
    return slopes, intercepts
