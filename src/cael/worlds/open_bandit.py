"""The Open Bandit Dataset as a world: with the truth that its second log gives, and with a reward that is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from cael.common.types import Floats, Ints, frozen
from cael.errors import InputError
from cael.log.logged import LoggedData
from cael.policies.policy import Policy, Tabular, Uniform
from cael.worlds.population import Population, generator


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
    def _made(self) -> tuple[Any, Floats, Population, Floats, float, float]:
        from cael.datasets import obd as data

        where = Path(self.folder) if self.folder else None
        random, bts = data.open_bandit("random", folder=where), data.open_bandit("bts", folder=where)
        if self.as_published:
            target = data.flattened_as_published(data.thompson(*data.thompson_prior()))
        else:
            target = data.flattened(data.frequencies(bts))
        truth, error = float(bts.clicks.mean()), float(bts.clicks.std(ddof=1) / np.sqrt(len(bts)))
        population = Population(data.dummies(random.users), data.POSITIONS * random.n_items, action_features(random))
        return random, bts.clicks, population, frozen(target), truth, error

    @property
    def n_actions(self) -> int:
        """Items x positions."""
        return self._made[2].n_actions

    @property
    def logging(self) -> Policy:
        """Uniform over items and positions."""
        return Uniform(self.n_actions)

    @cached_property
    def target(self) -> Policy:
        """Thompson sampling: the same for every context."""
        return Tabular(self._made[3])

    @property
    def truth_error(self) -> float:
        """The standard error of `value`."""
        return self._made[5]

    def sample(self, n: int, seed: int) -> LoggedData:
        """A bootstrap sample of n rows of the log."""
        log, _, population, *_ = self._made
        rows = generator(seed, 0x0BD).integers(0, len(log), n)
        return population.log(rows, log.actions[rows], log.clicks[rows], self.logging)

    def value(self, policy: Policy) -> float:
        """The mean click of the target's own log; of no other policy is it known."""
        if policy is not self.target:
            raise InputError("the Open Bandit Dataset tells the value of its own target alone; use world.target.")
        return self._made[4]


@final
@dataclass(frozen=True)
class KnownRewardWorld:
    """The users and the 240 actions of the Open Bandit Dataset with clicks whose probability is known.

    P(click | x, a) = sigmoid(b + u_item + v_position + effect z'A f(a)): u_item are the log-odds that the production
    policy had learned before the log, z the user's indicators, f(a) those of the item's features, A random and fixed by
    `seed`, and b such that the uniform policy earns `click_rate`. The population is the users of the uniform policy's
    log; logging and target are those of `OpenBanditWorld`. `value` is exact.
    """

    click_rate: float = 0.0042
    effect: float = 0.7
    folder: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.click_rate < 1:
            raise InputError(f"click_rate must be between 0 and 1; got {self.click_rate!r}.")

    @cached_property
    def _made(self) -> tuple[Population, Floats, Floats, Ints]:
        """The population, the distinct contexts with their mean rewards, and which of them each member has."""
        from scipy.optimize import brentq

        from cael.datasets.obd import thompson_prior

        real = OpenBanditWorld(folder=self.folder)
        population = real._made[2]
        distinct, which = np.unique(population.contexts, axis=0, return_inverse=True)
        which = which.reshape(-1)
        features = population.action_features
        assert features is not None
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, 0x5E1]))
        alpha, beta = thompson_prior()
        own = np.log(alpha / beta)
        place = np.repeat([0.2, 0.0, -0.2], len(own))
        slopes = rng.standard_normal((distinct.shape[1], features.shape[1])) / np.sqrt(8)  # 4 + 4 indicators are on
        score = np.tile(own - own.mean(), 3) + place + self.effect * (distinct @ slopes @ features.T)
        share = np.bincount(which, minlength=len(distinct)) / len(which)
        base = brentq(lambda b: share @ _sigmoid(score + b).mean(axis=1) - self.click_rate, -50.0, 50.0)
        return population, distinct, _sigmoid(score + base), which

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
        """Thompson sampling's time average, as of `OpenBanditWorld`."""
        return OpenBanditWorld(folder=self.folder).target

    def _means(self, members: Ints) -> Floats:
        _, _, table, which = self._made
        return table[which[members]]

    def sample(self, n: int, seed: int) -> LoggedData:
        """A log of n rows: users with replacement, actions uniform, clicks from the known probabilities."""
        population = self._made[0]
        rng = generator(seed, 0x5E1)
        members, actions = population.draw(n, self.logging, rng, rng)
        chance = self._made[2][self._made[3][members], actions]
        return population.log(members, actions, (rng.random(n) < chance).astype(np.float64), self.logging)

    def value(self, policy: Policy) -> float:
        """The true value of a policy of contexts: an exact sum over the population."""
        return self._made[0].value(policy, self._means)


def action_features(log: Any) -> Floats:
    """(240, m): indicators of the item's three hashed features and of the position."""
    from cael.datasets.obd import POSITIONS, dummies

    items = np.tile(dummies(log.item_features), (POSITIONS, 1))
    return frozen(np.hstack([items, np.repeat(np.eye(POSITIONS), log.n_items, axis=0)]))


def _sigmoid(x: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * x))
