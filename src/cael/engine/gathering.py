"""What a pass does for a question, and what it found: the columns of everybody, one pass, its rows checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cael.common.types import Floats
from cael.engine.columns import (
    Column,
    Control,
    Lost,
    Member,
    Metered,
    Misfit,
    Product,
    Reward,
    SecondMoment,
    Surprise,
    Weight,
    Weights,
    for_metric,
    squared,
)
from cael.engine.partial import Partial
from cael.engine.passes import reduced
from cael.engine.row_pass import refuse_rows_of
from cael.engine.tally import most_top
from cael.engine.work import Work, run, stretches_by_time
from cael.log.held import EngineLog, Held
from cael.log.row_checks import Contradicted
from cael.log.targets import Target, refuse_by_position
from cael.policies.aligned import MOST_CELLS
from cael.policies.expectations import totals
from cael.policies.policy import Tabular, Uniform
from cael.policies.propensity import EstimatedLogging

if TYPE_CHECKING:
    from cael.engine.asking import Asking, Prepared
    from cael.engine.parts import Part

FEWEST_CELLS = 16
"""A batch has at least so many rows, however many actions there are."""


def work_of(metrics: Sequence[Prepared], segments: tuple[str, ...], log: EngineLog) -> Work:
    """What every worker shall do. log: as the pass reads it, with all metrics."""
    asking, judged = metrics[0].asking, metrics[0].judged
    targets, numbered = asking.targets, list(enumerate(metrics))
    wanted = [(column, number) for number, metric in numbered for column in metric.columns]
    columns = tuple(dict.fromkeys(for_metric(*pair) for pair in wanted))
    predictions = [source for metric in metrics for source in metric.outcomes.values()]
    policies = [*targets, *((log.logging,) if log.logging is not None else ())]
    groups = tuple(dict.fromkeys((column.group, at) for column, at in wanted if isinstance(column, Member)))
    weights = [column for column in columns if isinstance(column, Weights)]
    contexts = (
        bool(groups)
        or asking.fitted is not None
        or any(source.contexts for source in (*policies, *predictions, *weights))
        or log.numeric_contexts  # checked where they are not needed, too: as in memory
    )
    more = [name for target in policies for name in target.columns]
    more += sorted({name for source in predictions for name in source.columns})
    reading = log.reading(contexts=contexts, segments=segments, columns=more, numbers=len(columns), ids=True)
    probe = log.probe(contexts=contexts)
    if asking.fitted is not None or any(target.is_dense(probe) for target in policies):
        reading = reading.at_most(max(FEWEST_CELLS, MOST_CELLS // log.n_actions))
    return Work(
        reading, asking.r0, targets, log.logging, metrics[0].outcomes, columns,
        tallied=tuple(column for column in weights if column.tallied),
        ruled=tuple(column for column in weights if isinstance(column, Weight) and not column.plain),
        groups=groups, popularity=popularity(log) if judged else None, judged=judged,
        top=most_top(log.rows), rows=log.rows, starts=log.starts,
        clustered=log.clustered, most_clusters=log.most_clusters(len(columns)),
        kept=np.empty((len(columns), len(log.log))) if isinstance(log, Held) else None,
        segments=len(log.segments) if isinstance(log, Held) else len(segments), fitted=asking.fitted,
        metrics=tuple(Metered(metric.asking.r0, metric.outcomes) for metric in metrics[1:]),
    )  # fmt: skip


def columns_of(asking: Asking, parts: Sequence[Part], control: Sequence[Control], judged: bool) -> tuple[Column, ...]:
    """The columns of everybody, each once."""
    log, targets = asking.log, asking.targets
    of_parts = [column for part in parts for column in part.columns]
    of_parts += [column for part in parts for column in part.doubted if log.estimates_logging and judged]
    weighted = {target for column in of_parts for target in targets_weighted(column)}
    columns: list[Column] = [Reward(), squared(Reward())]
    if log.has_propensities:
        columns += [Weight(t) for t in range(len(targets))]
    if asking.fitted is not None:
        columns += [Misfit(), *(Product(Weight(t), Misfit()) for t in range(len(targets)))]
    if log.logging is not None:
        columns += [Lost(t) for t, target in enumerate(targets) if target.complete]
        columns += [Surprise(relative) for relative in (False, True) if judged]
        now = [judged or (t in weighted and not has_tables(log, target)) for t, target in enumerate(targets)]
        columns += [SecondMoment(t) for t, target in enumerate(targets) if target.complete and now[t]]
    return tuple(dict.fromkeys([*columns, *of_parts, *control]))


def targets_weighted(column: Column) -> set[int]:
    """The numbers of the targets whose weights, by whatever rule, are in a column."""
    if isinstance(column, Product):
        return targets_weighted(column.left) | targets_weighted(column.right)
    return {column.target} if isinstance(column, Weight) else set()


def has_tables(log: EngineLog, target: Target) -> bool:
    """Whether both policies of a log in memory are tables: sums over all actions can wait until they are asked for."""
    both = (target, log.logging) if isinstance(log, Held) and log.logging is not None else ()
    return bool(both) and all(isinstance(each.policy, Tabular | Uniform) for each in both)


def popularity(log: EngineLog) -> Floats | None:
    """(k,) logs of the mean probabilities of the actions under the logging policy, in the first rows of the log."""
    if log.logging is None:
        return None
    probe = log.probe(contexts=log.logging.contexts)
    sums = totals(log.logging.on(probe), probe.batch())
    means: Floats = np.log((sums + 1 / log.n_actions) / (len(probe) + 1))
    return means


def in_time_order(log: EngineLog, partial: Partial) -> Partial:
    """The stretches of a log in memory follow its timestamps, which need not be in the order of the rows."""
    if not isinstance(log, Held) or log.log.timestamps is None or partial.block is None:
        return partial
    timestamps = log.log.timestamps
    if (timestamps[1:] >= timestamps[:-1]).all():
        return partial
    return replace(partial, stretches=stretches_by_time(timestamps, partial.block, log.log.sampling_weights))


def checked(log: EngineLog, partial: Partial) -> tuple[tuple[tuple[str, int], ...], list[str]]:
    """Why rows of a log in files were left out, and what to say about it."""
    if isinstance(log, Held):
        return (), []
    return log.checked(partial)


def refuse_functions(log: EngineLog, targets: Sequence[Target]) -> None:
    """Refuse policies of a log in files that answer by the number of a row."""
    if isinstance(log, Held):
        return
    for target in (log.logging, *targets):
        if target is None or target.policy is None or not target.contexts:
            continue
        probe = log.probe(contexts=True)
        if not isinstance(target.policy, EstimatedLogging):
            refuse_by_position(target.policy, probe)


def summed(work: Work, log: EngineLog) -> Partial:
    """The sums of a pass; where the logging policy contradicts a row of a log in files, all rows are counted."""
    try:
        return reduced(run, work, log)
    except Contradicted:
        assert not isinstance(log, Held)  # whose rows were checked when it was made
        refuse_rows_of(log)
