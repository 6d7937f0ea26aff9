"""A question to a log: which targets, by which estimators, by which segments; and the pass that answers it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any, TypeAlias, final

from cael.engine.answer import Answer
from cael.engine.columns import (
    Column,
    Control,
    Outcome,
)
from cael.engine.drawn import Sample, sample_of
from cael.engine.gathering import checked, columns_of, in_time_order, refuse_functions, summed, work_of
from cael.engine.nuisances import fitted_to
from cael.engine.predictions import Folded, Modelled, Pair, Predictions, predictable
from cael.engine.ridge_pass import RidgeSums, balanced, ridge_sums, solved, sums_of
from cael.engine.windows import Windows, refuse_disorder
from cael.errors import CaelError, InputError, LogError, NeedsError
from cael.judging.thresholds import DEFAULT
from cael.log.held import EngineLog, Held
from cael.log.logged import LoggedData
from cael.log.pieces import Piece
from cael.log.targets import Target
from cael.outcomes.outcome_model import FittedOutcome, FixedOutcome, refuse_unweighing
from cael.outcomes.ridge import Ridge
from cael.policies.fitted import FittedLogging, rows_for, shown
from cael.policies.policy import Policy
from cael.policies.propensity import EstimatedLogging, warning

if TYPE_CHECKING:
    from cael.engine.parts import Part
    from cael.estimators.estimator import Estimator

LOGGER = getLogger("cael.engine")
NEEDS = {
    "propensities": "the logged propensities (LoggedData(propensities=...) or logging=...)",
    "logging": "all probabilities of the logging policy (LoggedData(logging=...), or logging= of read and scan)",
    "logged_probability": "the target's probability of the logged action",
    "probabilities": "the target's probabilities of all actions, and this policy knows only the logged action's",
}
MODEL_ROWS = 100_000
"""Outcome models of a log in files are trained on at most so many rows."""


@final
@dataclass(frozen=True)
class Look:
    """What a first look at the weights of a target found: rows, the largest weight, and the mean square."""

    rows: int
    largest: float
    second: float


def lacking(needs: Sequence[str], log: EngineLog, target: Target) -> list[str]:
    """Those of the needs that a log and a target cannot meet, in words."""
    unmet = {
        "propensities": not log.has_propensities,
        "logging": log.logging is None,
        "probabilities": not target.complete,
    }
    return [NEEDS[need] for need in needs if unmet.get(need)]


@final
@dataclass(eq=False)
class Asking:
    """A question while it is prepared: what estimators need, each thing once. leaning: targets, and the Ridge models
    whose error is in the standard error of an estimate. fits: the logging policy that was fitted, where that is
    needed."""

    log: EngineLog
    targets: tuple[Target, ...]
    r0: float
    outcomes: dict[Outcome, Predictions | None] = field(default_factory=dict)
    samples: dict[tuple[int, int, tuple[str, ...]], Sample] = field(default_factory=dict)
    learned: dict[Any, Any] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    leaning: list[tuple[int, Outcome]] = field(default_factory=list)
    fits: list[FittedLogging] = field(default_factory=list)

    @property
    def held(self) -> LoggedData | None:
        """The log in memory, where it is."""
        return self.log.log if isinstance(self.log, Held) else None

    def require(self, needs: Sequence[str], target: int, model: Any = None) -> None:
        """An error that says what is missing. model: an outcome model, whose predictions the log may hold."""
        if isinstance(model, Ridge) and isinstance(self.log.predictions, Pair):
            needs = [need for need in needs if need != "probabilities"]
        missing = lacking(needs, self.log, self.targets[target])
        if missing == [NEEDS["logging"]] and self.log.has_propensities:
            missing = self._poor_fit()
        if missing:
            raise NeedsError(f"it needs {'; and '.join(missing)}.")

    @property
    def fit(self) -> FittedLogging:
        """The logging policy, fitted to the propensities of the logged actions."""
        if not self.fits:
            self.fits.append(fitted_to(self.sample(rows_for(self.log.n_actions, MODEL_ROWS), 0)))
        return self.fits[0]

    def _poor_fit(self) -> list[str]:
        """Nothing where the fitted logging policy is good enough to take the place of the known one."""
        fit = self.fit.fit
        if DEFAULT.status("logging_error", fit.error) != "fail":
            return []
        return [
            f"{NEEDS['logging']}: fitted to the logged propensities, it is off by {shown(fit.error)} on held-out rows, "
            f"and at most {shown(DEFAULT.logging_error[1])} are allowed"
        ]

    def whole_logging(self, piece: Piece) -> Policy | None:
        """The logging policy on some rows, known or fitted; None where it is neither."""
        if self.log.logging is not None:
            return self.log.logging.on(piece)
        if not self.log.has_propensities or self._poor_fit():
            return None
        return self.fit.on(piece)

    @property
    def fitted(self) -> FittedLogging | None:
        """The fitted logging policy, where something needed it and it is good enough."""
        return self.fits[0] if self.fits and not self._poor_fit() else None

    def outcome(self, outcome: Outcome, target: int) -> None:
        """Note that an outcome model is needed for a target, or say why it cannot be had."""
        if isinstance(outcome.model, Ridge) and isinstance(self.log.predictions, Pair):
            if len(self.targets) > 1:
                raise InputError(
                    "predictions 'LOGGED+TARGET' belong to one target, and there are several. Give the predictions of "
                    "all actions: a pattern, or a column of lists."
                )
        elif not self.targets[target].complete:
            raise NeedsError(f"it needs {NEEDS['probabilities']}.")
        if outcome not in self.outcomes:
            self.outcomes[outcome] = self._predictions(outcome)

    def _predictions(self, outcome: Outcome) -> Predictions | None:
        """Where the predictions come from; None: from Ridge, which a pass trains."""
        model = outcome.model
        if isinstance(model, FixedOutcome):
            return predictable(model, in_memory=self.held is not None)
        if isinstance(model, Ridge):
            if self.log.predictions is None:
                self.log.probe(contexts=True)  # refuses contexts that are text
            predictions: Predictions | None = self.log.predictions
            return predictions
        return self._modelled(outcome)

    def _modelled(self, outcome: Outcome) -> Modelled:
        model, folds, seed = outcome.model, outcome.folds, outcome.seed
        rows = len(self.held) if self.held is not None else MODEL_ROWS
        sample = self.sample(rows, seed)
        refuse_unweighing(model, sample.log)
        if not model.trains or folds < 2:
            return Modelled((model.fit(sample.log, seed),), seed, model.trains)
        split = list(sample.log.folds(folds, seed))
        return Modelled(tuple(model.fit_without(sample.log, split, seed)), seed, trained=True)

    def sample(self, rows: int, seed: int, more: tuple[str, ...] = ()) -> Sample:
        """At most so many rows of the log in memory, drawn once."""
        key = (rows, seed, more)
        if key not in self.samples:
            self.samples[key] = sample_of(self.log, rows, seed, more=more)
        return self.samples[key]

    def refuse_files(self, error: CaelError) -> None:
        """An error about the rows of a log in files concerns all estimators; in memory they were checked before."""
        if self.held is None and isinstance(error, LogError):
            raise error

    def look(self, target: int) -> Look:
        """A pass that looks at the weights alone, for settings that depend on them."""
        self.require(("propensities",), target)
        if not self.looks:
            bare = Prepared(Asking(self.log, self.targets, self.r0), [], [], (), judged=False)
            work = work_of([bare], (), self.log)
            partial = summed(work, self.log)
            checked(self.log, partial)
            places = [work.place()[column] for column in work.tallied]
            moments, rows = partial.moments, partial.rows
            seconds = [float(moments.comoment[at, at]) / rows + float(moments.mean[at]) ** 2 for at in places]
            largest = [tally.largest * moments.scale for tally in partial.tallies]
            self.looks += [Look(rows, *facts) for facts in zip(largest, seconds, strict=True)]
        return self.looks[target]

    def max_weight(self, target: int) -> float | None:
        """The largest weight that is possible at all, where the two policies bound it beforehand."""
        logging, policy = self.log.logging, self.targets[target].policy
        if logging is None or logging.policy is None or policy is None:
            return None
        if not logging.policy.least or policy.most is None:
            return None
        return (1.0 if self.log.has_eligible else policy.most) / logging.policy.least


def ask(
    log: EngineLog,
    policies: Mapping[str, Any],
    estimators: Sequence[Estimator],
    *,
    asked: Collection[str] = (),
    segments: tuple[str, ...] = (),
    windows: Windows | None = None,
    controls: Iterable[Outcome] | None = (),
    learned: dict[Any, Any] | None = None,
) -> Answer:
    """One pass over the log (and others before it where models are trained) for all targets and estimators.

    asked: names of the estimators whose impossibility is an error; the others are skipped with the reason. windows:
    of time; their sums are behind those of the segments. controls: outcome models of control variates; None: no lift
    and no verdict will be asked for, whose checks take sums over all actions of a row. learned: trained before.
    """
    wanted = Wanted(log, estimators, asked, None if controls is None else tuple(controls), learned)
    return ask_all(log, policies, [wanted], segments=segments, windows=windows)[0]


@final
@dataclass(frozen=True, eq=False)
class Wanted:
    """What a question wants to know of a metric. log: with that metric as the reward. The others are those of `ask`."""

    log: EngineLog
    estimators: Sequence[Estimator]
    asked: Collection[str] = ()
    controls: tuple[Outcome, ...] | None = ()
    learned: dict[Any, Any] | None = None


def ask_all(
    log: EngineLog,
    policies: Mapping[str, Any],
    metrics: Sequence[Wanted],
    *,
    segments: tuple[str, ...] = (),
    windows: Windows | None = None,
) -> tuple[Answer, ...]:
    """The answers to a question about several metrics, from one pass over the log, which measures all of them.

    Weights, and all else that does not depend on the reward, are computed once for all metrics.
    """
    targets = tuple(log.target(policy) for policy in policies.values())
    refuse_functions(log, targets)
    prepared_ones: list[Prepared] = []
    for wanted in metrics:
        prepared_ones.append(preparing(wanted, targets, prepared_ones))
    plans = with_outcomes(log, prepared_ones)
    work = replace(work_of(plans, segments, log), windows=windows)
    partial = replace(summed(work, log), block=work.kept)
    LOGGER.info("one pass: %d rows, %d policies, %d metrics", partial.rows, len(targets), len(metrics))
    dropped, warnings = checked(log, partial)
    refuse_disorder(partial)
    ordered, memo = in_time_order(log, partial), dict[Any, Any]()
    return tuple(
        Answer(
            log=plan.asking.log, names=tuple(policies), targets=targets, parts=tuple(plan.parts), work=work,
            partial=ordered, skipped=tuple(plan.skipped), dropped=dropped, warnings=(*warnings, *about_logging(log)),
            outcomes=plan.outcomes, number=number, memo=memo,
        )
        for number, plan in enumerate(plans)
    )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """What is known of a metric before the pass. controls: of lifts. judged: whether a verdict will be asked for."""

    asking: Asking
    parts: list[Part]
    skipped: list[tuple[int, str, str]]
    controls: tuple[Control, ...]
    judged: bool
    outcomes: dict[Outcome, Predictions] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those that it needs, each once, as if it were the only metric."""
        return columns_of(self.asking, self.parts, self.controls, self.judged)


def preparing(wanted: Wanted, targets: tuple[Target, ...], before: Sequence[Prepared]) -> Prepared:
    """A metric, with what was found of the weights and of the logging policy for those before it."""
    probe = wanted.log.probe()
    asking = Asking(
        wanted.log, targets, float(probe.rewards.mean()) if len(probe) else 0.0, learned=wanted.learned or {}
    )
    if before:
        asking.looks, asking.fits = before[0].asking.looks, before[0].asking.fits
    parts, skipped = planned(asking, wanted.estimators, wanted.asked)
    return Prepared(asking, parts, skipped, controlled(asking, wanted.controls or ()), wanted.controls is not None)


def with_outcomes(log: EngineLog, metrics: Sequence[Prepared]) -> list[Prepared]:
    """The metrics, with all their outcome models trained. log: measures all of them."""
    sums: SumsOfRidge = {}
    return [
        replace(metric, outcomes=prepared(metric.asking, log, number, sums)) for number, metric in enumerate(metrics)
    ]


def planned(
    asking: Asking, estimators: Sequence[Estimator], asked: Collection[str]
) -> tuple[list[Part], list[tuple[int, str, str]]]:
    """What the estimators need for each target, and (target, estimator, reason) for those that cannot be had."""
    parts: list[Part] = []
    skipped: list[tuple[int, str, str]] = []
    for target in range(len(asking.targets)):
        for estimator in estimators:
            try:
                parts.append(estimator.part(asking, target))
            except CaelError as error:
                asking.refuse_files(error)
                if estimator.name in asked:
                    raise named_error(estimator.name, error) from None
                skipped.append((target, estimator.name, str(error)))
    return parts, skipped


def named_error(name: str, error: CaelError) -> CaelError:
    """The error with the estimator's name before what it needs."""
    message = str(error)
    return type(error)(f"{name} {message.removeprefix('it ')}" if message.startswith("it needs") else message)


def controlled(asking: Asking, controls: Iterable[Outcome]) -> tuple[Control, ...]:
    """The control variates of the lift that this log allows: the logging policy must be known and not estimated."""
    logging = asking.log.logging
    if logging is None or asking.log.estimates_logging:
        return ()
    columns = []
    for outcome in controls:
        if outcome.folds < 2 and outcome.model.trains:
            continue
        try:
            if outcome not in asking.outcomes:
                asking.outcomes[outcome] = asking._predictions(outcome)
        except CaelError:
            continue
        columns.append(Control(outcome))
    return tuple(columns)


SumsOfRidge: TypeAlias = dict[tuple[int, int, bool, int], tuple[RidgeSums, ...]]
"""Of each metric, by folds, halves, whether by action, and seed."""


def prepared(asking: Asking, log: EngineLog, number: int, sums: SumsOfRidge) -> dict[Outcome, Predictions]:
    """Predictions of all outcome models of a metric; Ridge is trained in a pass over the log for each choice of folds,
    which makes the sums of all metrics."""
    predictions: dict[Outcome, Predictions] = {}
    for outcome, known in asking.outcomes.items():
        if known is not None:
            predictions[outcome] = known
            continue
        assert isinstance(outcome.model, Ridge)
        folds, halves, by_action = sums_of(outcome.model, outcome.folds, asking.log)
        key = (folds, halves, by_action, outcome.seed)
        if key not in sums:
            sums[key] = ridge_sums(log, folds, halves, outcome.seed, by_action=by_action).all
        own = sums[key][number]
        folded = solved(outcome.model, own, outcome.folds, halves, asking.log, outcome.seed)
        predictions[outcome] = replace(folded, balancing=balancing(asking, outcome, folded, own))
    return predictions


def balancing(asking: Asking, outcome: Outcome, folded: Folded, sums: RidgeSums) -> dict[int, FittedOutcome]:
    """For each target that leans on a Ridge model, what makes residuals the influence of its training rows."""
    assert isinstance(outcome.model, Ridge)
    of_model = partial(balanced, outcome.model, sums, asking.log, interacting=folded.interacting)
    targets = [target for target, model in asking.leaning if model == outcome]
    return {target: of_model(asking.targets[target]) for target in targets}


def about_logging(log: EngineLog) -> list[str]:
    """What to say about a logging policy that was estimated on the way."""
    if isinstance(log, Held) or log.logging is None or not isinstance(log.logging.policy, EstimatedLogging):
        return []
    policy = log.logging.policy
    return [f"{warning(policy, log.context_dim)} Each model was trained on {policy.trained_on:,} rows."]


def as_engine_log(log: Any, segments: tuple[tuple[list[str], Any], ...] = ()) -> EngineLog:
    """A log in memory as the engine reads it; others as they are."""
    if isinstance(log, LoggedData):
        return Held(log, segments)
    if not hasattr(log, "reading"):
        raise InputError(f"expected a cael.LoggedData or a log from cael.scan; got {type(log).__name__}.")
    scanned: EngineLog = log
    return scanned
