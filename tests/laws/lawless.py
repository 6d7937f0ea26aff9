"""Estimators and policies that break one law each: negative controls for cael.testing."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

import cael
from cael.policies.policy import Policy
from cael.policies.support import Support


@dataclass
class Changeable(cael.Estimator):
    """Not frozen."""

    needs: ClassVar[tuple[str, ...]] = ()
    clip: float = 1.0

    def solve(self, problem):
        return cael.LoggedMean().solve(problem)


@dataclass(frozen=True)
class Moody(cael.Estimator):
    """Answers differently each time, and does not even pickle."""

    needs: ClassVar[tuple[str, ...]] = ()
    calls: list = field(default_factory=list)

    def solve(self, problem):
        self.calls.append(1)
        found = cael.LoggedMean().solve(problem)
        return replace(found, value=found.value + len(self.calls))


@dataclass(frozen=True)
class Unpicklable(cael.Estimator):
    needs: ClassVar[tuple[str, ...]] = ()
    make: object = lambda: None

    def solve(self, problem):
        return replace(cael.LoggedMean().solve(problem), estimator=self.name)


@dataclass(frozen=True)
class Meddler(cael.Estimator):
    """Changes the log."""

    needs: ClassVar[tuple[str, ...]] = ()

    def solve(self, problem):
        object.__setattr__(problem.log, "rewards", problem.log.rewards + 1)
        return cael.LoggedMean().solve(problem)


@dataclass(frozen=True)
class Wrong(cael.Estimator):
    """A value that is not the mean of its contributions, and a name that is not its own; asks for clusters."""

    needs: ClassVar[tuple[str, ...]] = ("probabilities",)

    def solve(self, problem):
        found = cael.LoggedMean().solve(problem)
        shift = 0.0 if problem.log.clusters is None else 1.0
        return replace(found, value=found.value + 100 + shift)


@dataclass(frozen=True)
class NotPaired(cael.Estimator):
    """Its estimates cannot be subtracted, not even from themselves."""

    needs: ClassVar[tuple[str, ...]] = ()

    def solve(self, problem):
        found = cael.LoggedMean().solve(problem)
        object.__setattr__(found, "key", FreshKey())
        return found


class FreshKey:
    """A key that equals nothing, not even itself."""

    fingerprint = "0" * 64

    def __eq__(self, other):
        return False

    __hash__ = None


@dataclass(frozen=True)
class Backwards(cael.Estimator):
    """A value far outside the intervals that its contributions give."""

    needs: ClassVar[tuple[str, ...]] = ()

    def solve(self, problem):
        found = cael.LoggedMean().solve(problem)
        return replace(found, value=found.value + 1e6)


@dataclass(frozen=True)
class Secretive(cael.Estimator):
    """Uses the probabilities of all actions without saying so."""

    needs: ClassVar[tuple[str, ...]] = ()

    def solve(self, problem):
        return cael.DM().solve(problem)


LAWLESS = {
    "same_answer_twice": Moody(),
    "settings_are_frozen": Changeable(),
    "pickles": Unpicklable(),
    "log_is_not_changed": Meddler(),
    "contributions_average_to_the_value": Wrong(),
    "minus_itself_is_zero": NotPaired(),
    "intervals_nest": Backwards(),
    "prints": Wrong(),
    "singleton_clusters_change_nothing": Wrong(),
    "needs_are_honest": Secretive(),
}


class _Bad(Policy):
    """Uniform, with one defect each below; trusted, so that the gate does not catch it first."""

    trusted: ClassVar[bool] = True

    def probabilities(self, batch):
        return np.full((len(batch), batch.n_actions), 1 / batch.n_actions)


class NotOne(_Bad):
    def probabilities(self, batch):
        return 2 * super().probabilities(batch)


class OtherEntry(_Bad):
    def logged_probability(self, batch):
        return np.full(len(batch), 0.9)


class OtherEntries(_Bad):
    def probability_of(self, batch, actions):
        return np.full(actions.shape, 1 / batch.n_actions)  # an entry of -1 must have 0


class OtherFixed(_Bad):
    @property
    def fixed(self):
        return np.array([0.5, 0.5, *np.zeros(6)])


class OtherList(_Bad):
    def support(self, batch):
        b = len(batch)
        return Support(np.zeros((b, 1), dtype=np.intp), np.ones((b, 1)), np.zeros(b))


class OtherDraws(_Bad):
    def draw(self, batch, u):
        return (u * u * batch.n_actions).astype(np.intp)


class BatchBound(_Bad):
    """Depends on where a batch starts."""

    def probabilities(self, batch):
        p = np.zeros((len(batch), batch.n_actions))
        p[:, 0] = 1.0
        p[0] = np.roll(p[0], 1)
        return p


class Unaligned(_Bad):
    """Counts rows from the start of the batch, not of the log."""

    def probabilities(self, batch):
        p = np.zeros((len(batch), batch.n_actions))
        p[np.arange(len(batch)), np.arange(len(batch)) % batch.n_actions] = 1.0
        return p


class Unbounded(_Bad):
    most = 1e-3


class Amnesiac(_Bad):
    """Forgets its table when pickled."""

    def __init__(self):
        self.first = 1.0

    def __getstate__(self):
        return {}

    def probabilities(self, batch):
        p = np.zeros((len(batch), batch.n_actions))
        p[:, 0 if hasattr(self, "first") else 1] = 1.0
        return p


LAWLESS_POLICIES = {
    "rows_are_distributions": NotOne(),
    "logged_probability_is_an_entry": OtherEntry(),
    "probability_of_is_an_entry": OtherEntries(),
    "fixed_is_every_row": OtherFixed(),
    "support_is_the_table": OtherList(),
    "draws_follow_the_probabilities": OtherDraws(),
    "batches_do_not_matter": BatchBound(),
    "taken_rows_stay_aligned": Unaligned(),
    "bounds_hold": Unbounded(),
    "policy_pickles": Amnesiac(),
}
