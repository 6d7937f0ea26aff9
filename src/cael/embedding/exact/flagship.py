"""CAEL: the default estimator. A learned embedding with exact weights, doubly robust, that tunes itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Floats
from cael.embedding.exact.path_group import MOST_TOP, Path
from cael.embedding.exact.path_part import PathPart
from cael.embedding.settings import Growth
from cael.engine.asking import Asking, ask
from cael.engine.drawn import sample_in_memory
from cael.engine.parts import Part
from cael.engine.tally import most_top
from cael.errors import InputError, NeedsError, choose, positive_int
from cael.estimators.estimator import Estimator
from cael.estimators.problem import Problem
from cael.inference.estimate import Estimate
from cael.log.held import Held
from cael.log.logged import LoggedData

if TYPE_CHECKING:
    from cael.embedding.exact.rewards import SparseRewards

FORMS = ("plain", "self_normalised", "doubly_robust", "self_normalised_doubly_robust")
BANDWIDTHS = (0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.8, 1.3, 2.0, 4.0, 8.0)
MOST_CELLS, DRAWN = 5_000_000, 64
"""Rows times actions beyond which actions are drawn, as every cell is visited for every bandwidth; how many."""


@final
@dataclass(frozen=True)
class CAEL(Estimator):
    """Context-action embeddings with exact weights, tuned by itself; the library's first choice.

    f(x, a) is the reward that a sparse network (`Growth`), with a ridge model beside it where that adds something,
    predicts for rows it has not seen. We add known noise to f and get a code (`cael.codes.rounded`), so the marginal
    weight W(x, a) is exact and its mean is 1. The estimate is
    V = mean_i sum_a pi(a|x_i) f(x_i, a) + sum_i W_i (r_i - f_i) / sum_i W_i, from bandwidth 0 (importance weighting) to
    infinity (the model corrected by its mean residual). The bandwidth is chosen, and blended with the unbiased end, by
    estimated mean squared error (`cael.embedding.exact.blend`). Biased in general by what f misses; `interval()` allows
    for a bias of up to `bias_bound`.

    form: "plain" (mean W r), "self_normalised", "doubly_robust", "self_normalised_doubly_robust". selector: "blend";
    "slope" takes one bandwidth by SLOPE++; a number is a bandwidth, in units of the spread of f over actions. folds:
    of the cross-fitting. growth: of the network. candidates: the actions of a row that are looked at: "all"; a number
    of draws from the logging policy, beside the logged action and those of the target, which is as exact but loses
    target mass that no draw is near to (`cael.embedding.exact.grid`); "auto": all while rows times actions are at most
    five million, and 64 draws beyond. seed: of folds, training and draws.

    >>> import cael
    >>> log, policy = cael.testing.example()
    >>> quick = cael.CAEL(growth=cael.Growth(steps=20, penalties=(1.5,)))
    >>> quick.estimate(log, policy).diagnostics.cross_fitted
    True
    """

    needs: ClassVar[tuple[str, ...]] = ("logging", "probabilities")
    panel: ClassVar[str] = "learned"
    form: str = "self_normalised_doubly_robust"
    selector: str | float = "blend"
    folds: int = 5
    growth: Growth = field(default_factory=Growth)
    candidates: int | str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        choose("form", self.form, FORMS)
        if isinstance(self.candidates, str):
            choose("candidates", self.candidates, ("auto", "all"))
        else:
            positive_int("candidates", self.candidates)
        if isinstance(self.selector, str):
            choose("selector", self.selector, ("blend", "slope"))
        elif not self.selector >= 0:
            raise InputError(f"selector must be 'blend', 'slope' or a bandwidth >= 0; got {self.selector!r}.")
        positive_int("folds", self.folds, least=2)

    def part(self, asking: Asking, target: int) -> Part:
        asking.require(self.needs, target)
        if (self, target) not in asking.learned:
            asking.learned[self, target] = self._path(asking, target)
        return PathPart(self.name, target, asking.learned[self, target], self.selector)

    def _path(self, asking: Asking, target: int) -> Path:
        """How the columns of a target are made; the networks are trained where that was not done."""
        from cael.embedding.exact.weight_paths import DEVICE_CELLS, unit_of

        log, sample = asking.log, asking.sample(self.growth.rows, self.seed)
        if (sample.log.rewards == sample.log.rewards[0]).all():
            raise NeedsError("it needs rewards that are not all equal, to learn from.")
        if self.trained_by not in asking.learned:
            asking.learned[self.trained_by] = self._trained([sample.log], [self.seed])[0]
        rewards: SparseRewards = asking.learned[self.trained_by]
        drawn, probe = self.drawn(sample.of, log.n_actions), log.probe(contexts=True)
        logging = asking.whole_logging(probe)
        assert logging is not None
        policies = logging, asking.targets[target].on(probe)
        unit = unit_of(probe, *policies, rewards, self.folds, drawn, self.seed)
        cells = sample.of * (log.n_actions if drawn is None else 2 * drawn)
        on_device = asking.held is not None and rewards.xp.on_device and cells >= DEVICE_CELLS
        models = rewards if on_device else rewards.in_numpy()
        bare = replace(models, folds=tuple(rows[:0] for rows in rewards.folds))
        return Path(
            target, bare, self.bandwidths, unit, drawn, self.folds, self.seed, self.form, asking.r0,
            min(MOST_TOP, most_top(sample.of)), on_device, log.logging is not None,
        )  # fmt: skip

    @property
    def trained_by(self) -> tuple[Growth, int, int]:
        """What the networks depend on."""
        return self.growth, self.folds, self.seed

    def _trained(self, logs: Sequence[LoggedData], seeds: Sequence[int]) -> list[SparseRewards]:
        from cael.embedding.exact.rewards import sparse_rewards

        return sparse_rewards(logs, self.growth, self.folds, seeds)

    def solve_many(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[Estimate]:
        """Several problems of one shape, all their networks trained at once."""
        trained = self.trained_on(problems, seeds)
        return [solved(problem, *each) for problem, each in zip(problems, trained, strict=True)]

    def trained_on(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[tuple[CAEL, dict[Any, Any]]]:
        """For each problem this estimator with its seed, and the networks that it then needs not train."""
        logs = [sample_in_memory(p.log, self.growth.rows, seed).log for p, seed in zip(problems, seeds, strict=True)]
        seeded = [replace(self, seed=seed) for seed in seeds]
        models = self._trained(logs, seeds)
        return [(cael, {cael.trained_by: rewards}) for cael, rewards in zip(seeded, models, strict=True)]

    def drawn(self, rows: int, actions: int) -> int | None:
        """How many actions of each row are drawn; None: all are looked at."""
        if isinstance(self.candidates, int):
            return self.candidates
        return DRAWN if self.candidates == "auto" and rows * actions > MOST_CELLS else None

    @property
    def bandwidths(self) -> Floats:
        """The path: 0, the bandwidths to choose from, infinity."""
        if isinstance(self.selector, str):
            return np.array([0.0, *BANDWIDTHS, np.inf])
        return np.array([0.0, self.selector, np.inf]) if 0 < self.selector < np.inf else np.array([0.0, np.inf])


def solved(problem: Problem, estimator: Estimator, learned: dict[Any, Any]) -> Estimate:
    """The estimate of a problem whose networks are trained already."""
    answer = ask(
        Held(problem.log), {"": problem.policy}, [estimator], asked=(estimator.name,), learned=learned, controls=None
    )
    return answer.of(estimator.name, 0)
