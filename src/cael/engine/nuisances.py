"""What is learned of a log before a question is asked: its logging policy, or a part of it in memory."""

from __future__ import annotations

from typing import Any

from cael.engine.drawn import Sample, sample_of, with_logging
from cael.errors import InputError
from cael.io.logging_models import logging_model
from cael.log.held import Held
from cael.log.logged import LoggedData
from cael.log.targets import Target
from cael.policies import fitted
from cael.policies.fitted import FittedLogging, fitted_logging, labels_of
from cael.policies.policy import Policy
from cael.policies.propensity import estimated

MODEL_ROWS = 100_000


def estimated_logging(log: Any) -> Target:
    """The logging policy, estimated from a sample of the rows, with the frequencies of the actions among all of them.

    A row is predicted by a model that did not see it, in the sample or not, as models are chosen by the folds of rows.
    """
    sample = sample_of(log, MODEL_ROWS, 0, training=0)
    counts, how = None if len(sample.log) == sample.of else sample.counts, logging_model(log.given_logging)
    assert how is not None
    policy = estimated(sample.log, sample.folds(min(how.folds, sample.log.groups), how.seed), how, counts)
    return Target("estimated", None, policy, True, contexts=bool(log.columns.contexts))


def fitted_to(sample: Sample) -> FittedLogging:
    """The logging policy, fitted to the propensities of the logged actions of a sample."""
    log, logged = sample.log, sample.piece.propensities
    assert logged is not None
    labels = labels_of(log, logged)
    return fitted_logging(labels, sample.folds(min(fitted.FOLDS, log.groups), fitted.SEED))


def in_memory(log: Any, policy: Any, seed: int, rows: int = MODEL_ROWS) -> tuple[LoggedData, Policy]:
    """A log in memory with its target as they are; of a log in files at most so many rows, in whole clusters."""
    if isinstance(log, LoggedData):
        target = Held(log).target(policy)
        assert target.policy is not None
        return log, target.policy
    target = log.target(policy)
    more = target.columns if log.logging is None else (*target.columns, *log.logging.columns)
    sample = sample_of(log, rows, seed, training=0, more=more)
    return with_logging(log, sample), sample.policy(target)


def all_alike(log: LoggedData, what: str, seed: int = 0) -> LoggedData:
    """The log, or where rows have sampling weights a sample of those that count alike."""
    rows = log.alike(seed)
    if rows is None:
        raise InputError(f"{what} needs rows that count alike, and the sampling weights leave fewer than two of them.")
    return rows
