"""Learning on a scanned log: networks and other models are trained on a sample of its rows, in this process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

from cael.common.types import Ints
from cael.embedding.auto import to_learn
from cael.embedding.cael import CAEL
from cael.embedding.settings import Growth
from cael.engine.drawn import Drawn, Sample, draw, read_again
from cael.engine.marginal_weights import Marginal, exact, fitted, refuse_rows
from cael.engine.path_columns import MOST_TOP, Path
from cael.engine.predictions import Modelled
from cael.engine.tally import most_top
from cael.errors import InputError, NeedsError
from cael.estimators import MIPS
from cael.estimators.problem import NEEDS
from cael.log.budget import LEARNING
from cael.log.logged import LoggedData
from cael.log.pieces import refuse_text_contexts
from cael.log.scanned import ScannedLog
from cael.log.targets import Target
from cael.outcomes.outcome_model import OutcomeModel
from cael.policies.policy import Policy
from cael.policies.propensity import FOLDS, estimated

if TYPE_CHECKING:
    from cael.embedding.rewards import SparseRewards

MODEL_ROWS = 100_000
"""Outcome models are trained on at most so many rows, as networks are by default."""


@final
@dataclass(eq=False)
class Learning:
    """What was learned for the estimators of one question: samples and models are made once for all of them."""

    log: ScannedLog
    targets: tuple[Target, ...]
    r0: float
    paths: list[Path] = field(default_factory=list)
    samples: dict[tuple[int, int], tuple[Drawn, Sample | None]] = field(default_factory=dict)
    trained: dict[tuple[Growth, int, int], SparseRewards] = field(default_factory=dict)
    models: dict[tuple[OutcomeModel, int, int], Modelled] = field(default_factory=dict)
    places: dict[tuple[CAEL, int], int] = field(default_factory=dict)
    marginals: list[Marginal] = field(default_factory=list)
    posteriors: dict[MIPS, Marginal] = field(default_factory=dict)

    def missing(self, target: int) -> list[str]:
        """What CAEL and MIPS need and this log and target do not have, in words."""
        found = [] if self.log.logging is not None else [NEEDS["logging"]]
        return found + ([] if self.targets[target].complete else [NEEDS["probabilities"]])

    def marginal(self, estimator: MIPS) -> int:
        """The number of the weights of an estimator on one more target; the posterior is fitted once."""
        if estimator not in self.posteriors:
            self.posteriors[estimator] = self._posterior(estimator)
        self.marginals.append(self.posteriors[estimator])
        return len(self.marginals) - 1

    def _posterior(self, estimator: MIPS) -> Marginal:
        refuse_rows(estimator)
        log = self.log
        if estimator.posterior == "exact":
            return exact(estimator, log.action_features, log.n_actions)
        estimator.per_action(log.action_features, log.n_actions)
        assert log.logging is not None
        offset = estimator.offset
        if offset:  # the logging policy of the sample is made of its columns
            sample = sample_of(log, MODEL_ROWS, estimator.seed, more=log.logging.columns)[1]
        else:
            sample = self._sample(MODEL_ROWS, estimator.seed)[1]
        if sample is None:
            raise InputError("there are no rows to fit a posterior on: no whole cluster fits into the sample.")
        rows = sample.log
        if offset:
            rows = _with_logging(log, sample)
        split = split_of(sample, estimator.folds, estimator.seed) if estimator.folds >= 2 else []
        return fitted(estimator, rows, split)

    def path(self, estimator: CAEL, target: int) -> int:
        """The number of the path of an estimator on a target; its networks are trained where that was not done."""
        key = (estimator, target)
        if key not in self.places:
            self.paths.append(self._made(estimator, target))
            self.places[key] = len(self.paths) - 1
        return self.places[key]

    def _made(self, estimator: CAEL, target: int) -> Path:
        log, logging = self.log, self.log.logging
        assert logging is not None
        drawn, sample = self._sample(estimator.growth.rows, estimator.seed)
        if sample is None:
            raise InputError("there are no rows to train networks on: no whole cluster fits into the sample.")
        rewards = self._rewards(estimator, sample)
        candidates = estimator.drawn(drawn.rows, log.n_actions)
        unit = self._unit(estimator, self.targets[target], sample, rewards, candidates)
        bare = replace(rewards.cpu(), folds=tuple(each[:0] for each in rewards.folds))
        return Path(
            target, bare, estimator.bandwidths, unit, candidates, estimator.folds, estimator.seed, estimator.form,
            self.r0, min(MOST_TOP, most_top(drawn.rows)),
        )  # fmt: skip

    def _unit(
        self, estimator: CAEL, target: Target, sample: Sample, rewards: SparseRewards, drawn: int | None
    ) -> float:
        """The spread of f over actions, from the first rows of each fold, which are read again with the policies."""
        from cael.embedding.weight_paths import UNIT_ROWS, unit_of
        from cael.engine.asking import row_bytes, unique

        log = self.log
        assert log.logging is not None
        columns = unique([*columns_of(log), *log.logging.columns, *target.columns])
        size = log.budget.batch_rows(row_bytes(log.probe, columns))
        first = sample.first(estimator.folds, estimator.seed, UNIT_ROWS)
        some = read_again(log, sample, first, columns, size)
        inside = replace(rewards, folds=tuple(some.folds(estimator.folds, estimator.seed)))
        return unit_of(
            some.log, some.policy(log.logging, log), some.policy(target, log), inside, drawn, estimator.seed,
            some.places,
        )  # fmt: skip

    def model(self, model: OutcomeModel, folds: int, seed: int) -> Modelled:
        """An outcome model that needs rows, trained on a sample of them."""
        key = (model, folds, seed)
        if key not in self.models:
            sample = self._sample(MODEL_ROWS, seed)[1]
            if sample is None:
                raise InputError("there are no rows to train a model on: no whole cluster fits into the sample.")
            several = model.trains and folds >= 2
            found = model.fit_without(sample.log, split_of(sample, folds, seed), seed) if several else []
            self.models[key] = Modelled(tuple(found or [model.fit(sample.log, seed)]), seed, model.trains)
        return self.models[key]

    def _sample(self, rows: int, seed: int) -> tuple[Drawn, Sample | None]:
        if (rows, seed) not in self.samples:
            self.samples[rows, seed] = sample_of(self.log, rows, seed)
        return self.samples[rows, seed]

    def _rewards(self, estimator: CAEL, sample: Sample) -> SparseRewards:
        from cael.embedding.rewards import sparse_rewards

        missing = to_learn(equal=bool((sample.log.rewards == sample.log.rewards[0]).all()))
        if missing:
            raise NeedsError(f"it needs {'; and '.join(missing)}.")
        key = (estimator.growth, estimator.folds, estimator.seed)
        if key not in self.trained:
            split = split_of(sample, estimator.folds, estimator.seed)
            self.trained[key] = sparse_rewards(
                [sample.log], estimator.growth, estimator.folds, [estimator.seed], [split]
            )[0]
        return self.trained[key]


def sampled_problem(log: ScannedLog, policy: Any, rows: int, seed: int) -> tuple[LoggedData, Policy]:
    """At most so many rows, drawn at random in whole clusters, as a log in memory with its policies, and the target."""
    from cael.engine.asking import refuse_functions

    target = log.target(policy)
    refuse_functions(log, [target])
    more = target.columns if log.logging is None else (*target.columns, *log.logging.columns)
    sample = sample_of(log, rows, seed, training=0, more=more)[1]
    if sample is None:
        raise InputError("there are too few rows: no whole cluster fits into the sample.")
    return _with_logging(log, sample), sample.policy(target, log)


def _with_logging(log: ScannedLog, sample: Sample) -> LoggedData:
    """The rows of a sample with what is known of the logging policy, for which its columns must have been read."""
    rows = sample.log
    return LoggedData(
        rows.contexts, rows.actions, rows.rewards, propensities=sample.piece.propensities,
        logging=None if log.logging is None else sample.policy(log.logging, log), n_actions=rows.n_actions,
        action_features=rows.action_features, clusters=rows.clusters, copy=False,
    )  # fmt: skip


def columns_of(log: ScannedLog) -> tuple[str, ...]:
    """Those that models are trained on."""
    from cael.engine.asking import unique

    roles = log.columns
    return unique([roles.action, roles.reward, roles.propensity, roles.cluster, *(roles.contexts or ())])


def sample_of(
    log: ScannedLog, rows: int, seed: int, training: int = LEARNING, more: tuple[str, ...] = ()
) -> tuple[Drawn, Sample | None]:
    """What a pass found that drew at most so many rows, and no more than the budget holds; and the sample.
    training: bytes that it will take. more: columns that are read besides."""
    from cael.engine.asking import checked, row_bytes, unique

    columns = unique([*columns_of(log), *more])
    refuse_text_contexts(log.source, log.columns)
    width = row_bytes(log.probe, columns) + 8 * (len(log.columns.contexts or ()) + 4)
    most = min(rows, log.budget.sample_rows(width, training))
    found = draw(log, columns, log.budget.batch_rows(width), most, seed)
    checked(log, found[0])
    return found


def split_of(sample: Sample, folds: int, seed: int) -> list[Ints]:
    """The rows of each fold."""
    split = sample.folds(folds, seed)
    if min(len(each) for each in split) == 0:
        raise InputError(f"{len(sample.log)} rows leave one of {folds} folds empty; use fewer folds.")
    return split


def estimated_logging(log: ScannedLog) -> Target:
    """The logging policy, estimated from a sample of the rows, with the frequencies of the actions among all of them. A
    row is predicted by a model that did not see it, in the sample or not, as models are chosen by the folds of the
    stream."""
    drawn, sample = sample_of(log, MODEL_ROWS, 0, training=0)
    if sample is None:
        raise InputError("there are no rows to estimate the logging policy from: no whole cluster fits the sample.")
    counts = None if len(sample.log) == drawn.rows else drawn.counts
    found = estimated(sample.log, split_of(sample, FOLDS, 0), counts=counts)
    return Target("estimated", None, found, True, contexts=bool(log.columns.contexts))
