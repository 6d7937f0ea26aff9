"""The Open Bandit Dataset as a world: with the truth that its second log gives, and with a reward that is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from cael.common.types import Floats, Ints, frozen
from cael.datasets import obd
from cael.datasets.obd import OpenBanditLog
from cael.errors import InputError
from cael.log.batch import Batch
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, Tabular, Uniform
from cael.worlds.population import DrawnWorld, Population, generator
from cael.worlds.world import sigmoid


@final
@dataclass(frozen=True)
class OpenBanditWorld:
    """Bootstrap samples of the log of the uniform policy; the target is Bernoulli Thompson sampling.

    240 actions (80 items in 3 positions), contexts are the 20 indicators of the user features, rewards are clicks.
    `value` is the mean click of the log of Thompson sampling: an approximate truth, with standard error `truth_error`,
    about 15% in the small version of the data, which has 42 clicks.

    The target is the time average of the policy that ran, from the frequencies of its log: it learned for a week, so
    that its state before the first row says little about the rest.
    as_published: True repeats two defects of published pipelines: the target is replayed from the policy's state before
    the first row, and its probabilities are flattened in another order than the actions.
    folder: of the full data set; "" fetches the small version.
    """

    as_published: bool = False
    folder: str = ""

    @cached_property
    def _made(self) -> tuple[Population, OpenBanditLog, Floats, float, float]:
        folder = Path(self.folder) if self.folder else None
        random, bts = obd.open_bandit("random", folder=folder), obd.open_bandit("bts", folder=folder)
        if self.as_published:
            target = obd.flattened_as_published(obd.thompson(*obd.thompson_prior()))
        else:
            target = obd.flattened(obd.frequencies(bts))
        truth, error = float(bts.clicks.mean()), float(bts.clicks.std(ddof=1) / np.sqrt(len(bts)))
        population = Population(obd.dummies(random.users), obd.POSITIONS * random.n_items, action_features(random))
        return population, random, frozen(target), truth, error

    @property
    def n_actions(self) -> int:
        """Items x positions."""
        return self._made[0].n_actions

    @property
    def logging(self) -> Policy:
        """Uniform over items and positions."""
        return Uniform(self.n_actions)

    @cached_property
    def target(self) -> Policy:
        """Thompson sampling: the same for every context."""
        return Tabular(self._made[2])

    @property
    def truth_error(self) -> float:
        """The standard error of `value`."""
        return self._made[4]

    def sample(self, n: int, seed: int) -> LoggedData:
        """A bootstrap sample of n rows of the log."""
        population, log, *_ = self._made
        rows = generator(seed, 0x0BD).integers(0, len(log), n)
        return population.log(rows, log.actions[rows], log.clicks[rows], self.logging)

    def value(self, policy: Policy) -> float:
        """The mean click of the target's own log; of no other policy is it known."""
        if policy is not self.target:
            raise InputError("the Open Bandit Dataset has the value of its own target policy only; use world.target.")
        return self._made[3]


@final
@dataclass(frozen=True)
class KnownRewardWorld(DrawnWorld):
    """The users and the 240 actions of the Open Bandit Dataset with clicks whose probability is known.

    P(click | x, a) = sigmoid(b + u_item + v_position + effect z'A f(a)): u_item are the log-odds that the production
    policy had learned before the log, z the user's indicators, f(a) those of the item's features, A random and fixed by
    `seed`, and b such that the uniform policy earns `click_rate`. The population is the users of the uniform policy's
    log; logging and target are those of `OpenBanditWorld`. `value` is exact.
    """

    stream: ClassVar[int] = 0x5E1
    click_rate: float = 0.0042
    effect: float = 0.7
    folder: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.click_rate < 1:
            raise InputError(f"click_rate must be between 0 and 1; got {self.click_rate!r}.")

    @cached_property
    def _made(self) -> tuple[Population, Floats, Ints]:
        """The population, the mean rewards of its distinct contexts, and which of these each member has."""
        from scipy.optimize import brentq

        population = OpenBanditWorld(folder=self.folder)._made[0]
        distinct, which = np.unique(population.contexts, axis=0, return_inverse=True)
        which = which.reshape(-1)
        features = population.action_features
        assert features is not None
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, self.stream]))
        alpha, beta = obd.thompson_prior()
        popularity = np.log(alpha / beta)
        place = np.repeat([0.2, 0.0, -0.2], len(popularity))
        slopes = rng.standard_normal((distinct.shape[1], features.shape[1])) / np.sqrt(8)  # 4 + 4 indicators are on
        score = np.tile(popularity - popularity.mean(), 3) + place + self.effect * (distinct @ slopes @ features.T)
        share = np.bincount(which, minlength=len(distinct)) / len(which)
        base = brentq(lambda b: share @ sigmoid(score + b).mean(axis=1) - self.click_rate, -50.0, 50.0)
        return population, sigmoid(score + base), which

    @property
    def logging(self) -> Policy:
        """Uniform over items and positions."""
        return Uniform(self.n_actions)

    @cached_property
    def target(self) -> Policy:
        """Thompson sampling's time average, see `OpenBanditWorld`."""
        return OpenBanditWorld(folder=self.folder).target

    def _means(self, members: Batch) -> Floats:
        _, table, which = self._made
        return table[which[members.rows]]

    def _rewards(self, members: Ints, actions: Ints, rng: np.random.Generator) -> Floats:
        _, table, which = self._made
        return (rng.random(len(members)) < table[which[members], actions]).astype(np.float64)


def action_features(log: OpenBanditLog) -> Floats:
    """(240, m): indicators of the item's three hashed features and of the position."""
    items = np.tile(obd.dummies(log.item_features), (obd.POSITIONS, 1))
    return frozen(np.hstack([items, np.repeat(np.eye(obd.POSITIONS), log.n_items, axis=0)]))
