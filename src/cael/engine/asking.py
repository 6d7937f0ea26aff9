"""A question to a scanned log: which targets, by which estimators, by which segments; and the answer, from one pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from cael.common.types import Floats
from cael.engine.demands import Demand, Key, combine
from cael.engine.drawn import Drawn
from cael.engine.learning import Learning
from cael.engine.marginal_weights import Marginal
from cael.engine.moments import Clusters, Combination
from cael.engine.partial import Partial
from cael.engine.passes import reduced
from cael.engine.path_columns import Path
from cael.engine.predictions import Predictions, RidgeSums, RidgeWork, parts_of, predictable, ridge_run, solved, used
from cael.engine.sample import sampled
from cael.engine.tally import Rule, most_top
from cael.engine.wanted import Wanted, Wanting, flat
from cael.engine.windows import Windows, refuse_disorder
from cael.engine.work import Work, run
from cael.errors import CaelError, LogError, PolicyError, SupportError
from cael.estimators import Estimator
from cael.inference.diagnostics import WeightFacts
from cael.log.logged import LoggedData
from cael.log.pieces import Piece, piece_of, refuse_text_contexts, told_flaws
from cael.log.scanned import ScannedLog
from cael.log.targets import Target, refuse_by_position
from cael.outcomes.outcome_model import FixedOutcome
from cael.outcomes.ridge import Ridge
from cael.policies.propensity import EstimatedLogging, warning

STRETCHES = 640
CSV_STRETCH = 1024


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """What one pass over a log found. demands: of the estimators that could be streamed. index: the place of each
    feature. skipped: (target, estimator, reason). dropped: (reason, rows). warnings: what to tell the user.
    paths: of CAEL."""

    log: ScannedLog
    names: tuple[str, ...]
    targets: tuple[Target, ...]
    outcomes: tuple[Predictions, ...]
    demands: tuple[Wanted, ...]
    index: dict[Key, int]
    rules: tuple[tuple[int, Rule], ...]
    r0: float
    partial: Partial
    skipped: tuple[tuple[int, str, str], ...]
    dropped: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...]
    paths: tuple[Path, ...] = ()
    marginals: tuple[Marginal, ...] = ()

    @property
    def n(self) -> int:
        return self.partial.rows

    @property
    def read(self) -> int:
        return sum(self.partial.read.values())

    def combination(self, demand: Demand) -> Combination:
        """The contributions of an estimator over all rows."""
        p = self.partial
        found = combine(demand, self.index, p.moments, self.r0)
        return replace(found, clusters=p.clusters, by_bucket=p.crowded)

    @cached_property
    def sample(self) -> LoggedData | None:
        """Some rows as a log in memory, with their contexts, for checks that look at single rows."""
        return sampled(self.log)

    @cached_property
    def weight_facts(self) -> tuple[WeightFacts, ...]:
        """What the unmodified weights of each target say; none without propensities."""
        return tuple(facts_of(self, t) for t in range(len(self.targets))) if self.log.has_propensities else ()

    def single(self, key: Key) -> Combination:
        """One feature as it is."""
        c = np.zeros(len(self.index))
        c[self.index[key]] = 1.0
        return Combination(0.0, c, self.partial.moments, self.partial.clusters, self.partial.crowded)

    def unsupported(self, target: int) -> float | None:
        """The target's mean probability of actions that the logging policy never plays; None: not known."""
        at = self.index.get(("lost", target))
        return None if at is None else max(0.0, float(self.partial.moments.mean[at]))

    def need_support(self, target: int) -> None:
        """An error where weighting can say nothing about a target."""
        mass = self.unsupported(target)
        if (mass is None and self.partial.tallies[target].largest == 0) or (mass is not None and mass > 1 - 1e-9):
            raise no_support()

    def of(self, estimator: str, target: int) -> Wanted:
        return next(each for each in self.demands if each.estimator.name == estimator and each.target == target)


def facts_of(answer: Answer, target: int, rule: Rule = Rule()) -> WeightFacts:  # noqa: B008
    """Of the weights of a target: unmodified, or those of embeddings."""
    combination = answer.single(("w", target, rule))
    error, mean = combination.stderr, combination.value
    of, number = (
        (answer.partial.tallies, target) if rule.marginal is None else (answer.partial.marginal_tallies, rule.marginal)
    )
    tail = of[number].tail_index(answer.n)
    unsupported = answer.unsupported(target)
    return WeightFacts(answer.n, mean, (mean - 1) / error if error > 0 else None, tail, unsupported)


def ask(
    log: ScannedLog,
    policies: Mapping[str, Any],
    estimators: Sequence[Estimator],
    *,
    asked: Collection[str] = (),
    segments: tuple[str, ...] = (),
    windows: Windows | None = None,
) -> Answer:
    """One pass over the log (and one before it where Ridge is trained) for all targets and estimators.

    asked: names of the estimators whose impossibility is an error; the others are skipped with the reason. windows:
    of time; their sums are behind those of the segments.
    """
    probe = log.probe
    for column in segments:
        log.source.need(column)
    targets = tuple(log.target(given) for given in policies.values())
    refuse_functions(log, targets)
    r0 = float(probe.rewards.mean()) if len(probe) else 0.0
    wanting = Wanting(log, targets, Learning(log, targets, r0), lambda: looked(Learning(log, targets, r0), probe))
    demands, skipped = demanded(wanting, estimators, asked)
    outcomes, paths = prepared(log, wanting, probe), tuple(wanting.learning.paths)
    marginals = tuple(wanting.learning.marginals)
    work, index = work_of(wanting.learning, outcomes, demands, segments, probe)
    work = replace(work, windows=windows)
    with one_thread() if paths else nullcontext():
        partial = reduced(run, work, log.tasks, log.workers, log.client)
    dropped, warned = checked(log, partial)
    refuse_disorder(partial)
    if log.logging is not None and isinstance(log.logging.policy, EstimatedLogging):
        told = f" Each model was trained on {log.logging.policy.trained_on:,} rows."
        warned.append(warning(log.logging.policy, len(log.columns.contexts or ())) + told)
    return Answer(
        log, tuple(policies), targets, outcomes, tuple(demands), index, work.rules, r0, partial, tuple(skipped),
        dropped, tuple(warned), paths, marginals,
    )  # fmt: skip


def refuse_functions(log: ScannedLog, targets: Sequence[Target]) -> None:
    """Refuse policies that are functions of contexts where those are text, or that answer by the number of a row."""
    for each in (log.logging, *targets):
        if each is None or each.policy is None or not each.contexts:
            continue
        refuse_text_contexts(log.source, log.columns)
        if not isinstance(each.policy, EstimatedLogging):
            refuse_by_position(each.policy, piece_of(log.probe.source, log.door(contexts=True)), log.actions)


def demanded(
    wanting: Wanting, estimators: Sequence[Estimator], asked: Collection[str]
) -> tuple[list[Wanted], list[tuple[int, str, str]]]:
    """What the estimators need for each target, and (target, estimator, reason) for those that cannot be had."""
    demands: list[Wanted] = []
    skipped: list[tuple[int, str, str]] = []
    for t in range(len(wanting.targets)):
        for estimator in estimators:
            try:
                demands.append(wanting.demand(estimator, t))
            except LogError:
                raise
            except CaelError as error:
                if estimator.name in asked:
                    told = str(error)
                    raise type(error)(f"{estimator.name}: {told}" if told.startswith("it needs") else told) from None
                skipped.append((t, estimator.name, str(error)))
    return demands, skipped


def looked(nothing: Learning, probe: Piece) -> list[tuple[int, float, float]]:
    """A pass that looks at the weights alone: rows, largest weight, mean squared weight of each target.

    nothing: was learned on this log for it.
    """
    log, targets = nothing.log, nothing.targets
    work, index = work_of(nothing, (), [], (), probe)
    partial = reduced(run, work, log.tasks, log.workers, log.client)
    checked(log, partial)
    found = []
    for t in range(len(targets)):
        at = index["w", t, Rule()]
        moments = partial.moments
        second = float(moments.comoment[at, at]) / partial.rows + float(moments.mean[at]) ** 2
        found.append((partial.rows, partial.tallies[t].largest, second))
    return found


def one_thread() -> AbstractContextManager[None]:
    """The threads of a pass find torch set to one thread each, so that none of them sets it while others look."""
    from cael.embedding.training import one_thread

    return one_thread()


def prepared(log: ScannedLog, wanting: Wanting, probe: Piece) -> tuple[Predictions, ...]:
    """Predictions of all outcome models; Ridge is trained in a pass over the log for each choice of folds."""
    sums: dict[tuple[int, int], RidgeSums] = {}
    found: list[Predictions] = []
    for model, folds, seed in wanting.models:
        if isinstance(model, FixedOutcome):
            found.append(predictable(model))
        elif not isinstance(model, Ridge):
            found.append(wanting.learning.model(model, folds, seed))
        elif log.predictions is not None:
            found.append(log.predictions)
        else:
            parts = parts_of(model, folds)
            if (parts, seed) not in sums:
                sums[parts, seed] = ridge_sums(log, parts, seed, probe)
            found.append(solved(model, sums[parts, seed], folds, inputs_of(log, probe), seed))
    return tuple(found)


def ridge_sums(log: ScannedLog, parts: int, seed: int, probe: Piece) -> RidgeSums:
    door = replace(log.door(contexts=True, times=False), propensities=False)
    x, r = contexts_of(log, probe), probe.rewards
    columns = [log.columns.action, log.columns.reward, log.columns.cluster, *(log.columns.contexts or ())]
    size = log.budget.batch_rows(row_bytes(probe, columns) + 16 * (x.shape[1] + 4))
    work = RidgeWork(
        log.source.name, door, unique(columns), log.csv_types, size, parts, seed,
        x.mean(axis=0) if len(x) else np.zeros(x.shape[1]), float(r.mean()) if len(r) else 0.0,
    )  # fmt: skip
    return reduced(ridge_run, work, log.tasks, log.workers, log.client)


def inputs_of(log: ScannedLog, probe: Piece) -> LoggedData:
    """A log of two rows that has the actions and the contexts' width of this one: what Ridge asks of a log."""
    x = np.zeros((2, contexts_of(log, probe).shape[1]))
    return LoggedData(x, [0, 0], [0.0, 0.0], n_actions=log.n_actions, action_features=log.action_features)


def contexts_of(log: ScannedLog, probe: Piece) -> Floats:
    """The contexts of the first rows."""
    return piece_of(probe.source, log.door(contexts=True)).contexts


def work_of(
    learning: Learning,
    outcomes: tuple[Predictions, ...],
    demands: list[Wanted],
    segments: tuple[str, ...],
    probe: Piece,
) -> tuple[Work, dict[Key, int]]:
    """What every worker shall do, and the places of the features."""
    log, targets = learning.log, learning.targets
    paths, marginals = tuple(learning.paths), tuple(learning.marginals)
    raw: list[Key] = [("w", t, Rule()) for t in range(len(targets))] if log.has_propensities else []
    known = [t for t, each in enumerate(targets) if each.complete and log.logging is not None]
    raw += [(kind, t) for t in known for kind in ("lost", "second")]
    parts = flat(demands)
    own = (key for each in (*parts, *demands) for key in each.keys)
    keys: tuple[Key, ...] = tuple(dict.fromkeys([("r",), *raw, *own]))
    plainly = [each for each in parts if isinstance(each, Demand)]
    plain = [(t, Rule()) for t in range(len(targets))] if log.has_propensities else []
    rules = tuple(dict.fromkeys([*plain, *((each.target, each.rule) for each in plainly if each.rule is not None)]))
    pairs = tuple(dict.fromkeys((each.target, each.outcome) for each in plainly if each.outcome is not None))
    policies = [*targets, *((log.logging,) if log.logging is not None else ())]
    wanted = [*(each.contexts for each in policies), *(each.contexts for each in outcomes), bool(paths)]
    wanted += [each.contexts for each in marginals]
    contexts = any(wanted) and bool(log.columns.contexts)
    if contexts:
        refuse_text_contexts(log.source, log.columns)
    c = log.columns
    columns = unique(
        [c.action, c.reward, c.propensity, c.cluster, c.timestamp, *segments, *((c.contexts or ()) if contexts else ()),
         *(column for each in policies for column in each.columns), *sorted(used(outcomes))]
    )  # fmt: skip
    size = log.budget.batch_rows(row_bytes(probe, columns) + 8 * (len(keys) + 4))
    stretch = CSV_STRETCH if log.rows is None else max(1, log.rows // STRETCHES)
    work = Work(
        log.source.name, log.door(contexts=contexts, segments=segments), columns, log.csv_types, size,
        learning.r0, targets, outcomes, keys, rules, pairs, most_top(log.rows), stretch,
        log.budget.most_clusters(len(keys)), log.logging, paths, marginals=marginals,
    )  # fmt: skip
    return work, {key: at for at, key in enumerate(keys)}


def unique(columns: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for each in columns if each is not None))


def row_bytes(probe: Piece, columns: Sequence[str | None]) -> float:
    """Bytes of a row of these columns, as the first rows have it; numbers become float64."""
    table = probe.source.memory
    told = 0.0
    for column in unique(columns):
        told += max(8.0, table.column(column).nbytes / max(1, table.num_rows))
    return told


def checked(log: ScannedLog, partial: Partial | Drawn) -> tuple[tuple[tuple[str, int], ...], list[str]]:
    """Why rows were left out, and what to say about it; an error where that was not asked for."""
    read = sum(partial.read.values())
    name, bad = log.source.name, read - partial.rows
    warned = []
    if partial.crowded:
        warned.append(
            "There are more clusters than the memory budget holds: the standard errors come from 997 sums of clusters "
            "and are themselves off by about 2%."
        )
    if read < 2:
        raise LogError(f"{name} has {read} rows: expected at least 2.")
    if partial.flaws:
        counts = [partial.read.get(at, 0) for at in range(len(log.source.files))]
        starts = [sum(counts[:at]) for at in range(len(counts))]
        found = list(partial.flaws.values())
        said = told_flaws(found, [file.path.name for file in log.source.files], starts)
        if not log.drop_invalid:
            raise LogError(
                f"{name}: {bad:,} of {read:,} rows are invalid: {said}. Rows are counted from 0. Correct them, or "
                "leave them out knowingly with drop_invalid=True (--drop-invalid)."
            )
        if bad == read:
            raise LogError(f"{name}: every one of the {read:,} rows is invalid: {said}.")
        dropped = tuple((f"column {each.column!r} {each.what}", each.count) for each in found)
        why = "; ".join(f"{reason} ({rows:,})" for reason, rows in dropped)
        warned.append(f"{bad:,} of {read:,} rows were left out because they are invalid: {why}.")
        return dropped, warned
    return (), warned


def cluster_effect(partial: Partial, combination: Combination) -> float:
    """How much more a count can vary as rows of a cluster share their draw: sum of sizes^2 / n, at least 1."""
    if partial.crowded:
        alone = replace(combination, clusters=None, by_bucket=False)
        return max(1.0, (combination.stderr / alone.stderr) ** 2) if alone.stderr > 0 else 1.0
    if not isinstance(partial.clusters, Clusters):
        return 1.0
    sizes = partial.clusters.rows
    return float((sizes**2).sum() / sizes.sum())


def no_support() -> SupportError:
    return SupportError(
        "the target has no support at all in this log: it gives probability 0 to every action that was logged. No "
        "weighting can say anything about it; collect data with exploration, or use DM, which extrapolates by a model."
    )


def named_policies(policies: Any) -> dict[str, Any]:
    """Policies by name, from a mapping or a sequence."""
    if isinstance(policies, Mapping):
        return dict(policies)
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise PolicyError("compare needs several policies: a mapping of names to policies, or a list.")
    return {f"{at}: {each if isinstance(each, str) else repr(each)}": each for at, each in enumerate(policies)}
