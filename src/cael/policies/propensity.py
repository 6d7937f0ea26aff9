"""The logging policy estimated from the log itself, for logs without propensities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, Ints, frozen
from cael.errors import InputError, NeedsError, positive_int
from cael.log.batch import chunks
from cael.log.keys import fold_of_each
from cael.log.logged import LoggedData
from cael.policies.action_models import ActionFamily, ActionModel, check_model, families
from cael.policies.gate import need_actions, need_rows
from cael.policies.policy import Policy
from cael.policies.scored import among, softmax

if TYPE_CHECKING:
    from cael.log.batch import Batch
    from cael.log.eligible import Eligible

FOLDS = 5
LUCE_STEPS = 50
FLOORS, STRONGEST = (0.0, 0.05, 0.2, 0.5), 4.0
"""Floors for which the best strength is looked for, before both are refined; and the largest strength."""
BINS = 10
"""Probabilities are compared with what happened in so many groups of rows and actions."""
CALIBRATION_CELLS = 10**6
"""The calibration looks at no more rows times actions than this."""


@final
@dataclass(frozen=True)
class LoggingModel:
    """How `read` and `scan` estimate a logging policy: the arguments of `estimate_logging`.

    >>> LoggingModel("boosting")
    LoggingModel(model='boosting', folds=5, C=1.0, seed=0)
    """

    model: Any = "auto"
    folds: int = FOLDS
    C: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        positive_int("folds", self.folds, least=2)
        if not (np.isfinite(self.C) and self.C > 0):
            raise InputError(f"C must be a positive number; got {self.C!r}.")
        check_model(self.model)


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EstimatedLogging(Policy):
    """mu(a|x) = (1-e) p(a|x) + e f(a), p proportional to f(a)^(1-s) m(a|x)^s: a model m of the actions, pulled towards
    their frequencies f, which are also a floor.

    Made by `estimate_logging`. Every row is predicted by a model that did not see it. family: which model it is.
    strength, floor: s and e, fitted by maximum likelihood on those predictions, which calibrates them; a strength of 0
    means that the contexts say nothing about the action. loss: mean of -log mu(a_i|x_i) of the held-out predictions;
    loss_frequencies: the same for the frequencies alone. miscalibration: what they could still gain, in the same unit,
    if rows and actions of about the same probability got what happened there. tried: (family, loss + miscalibration)
    on the first fold. trained_on: rows in the training of each fold. seed: of the folds.
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    n_actions: int
    family: str
    strength: float
    floor: float
    loss: float
    loss_frequencies: float
    miscalibration: float
    trained_on: int
    seed: int
    tried: tuple[tuple[str, float], ...]
    _parts: tuple[ActionModel, ...]
    _fold: Ints
    _frequencies: Floats

    def __repr__(self) -> str:
        size = f"{len(self._fold)} rows, {self.n_actions} actions"
        return f"EstimatedLogging({size}, {self.family}, strength={self.strength:.2f})"

    @property
    def folds(self) -> int:
        """How many models there are."""
        return len(self._parts)

    def on_folds(self, fold: Ints) -> EstimatedLogging:
        """The same policy on other rows: row i is predicted by model fold[i]."""
        return replace(self, _fold=fold)

    def probabilities(self, batch: Batch) -> Floats:
        need_actions("EstimatedLogging", self.n_actions, batch)
        need_rows("EstimatedLogging", len(self._fold), batch)
        fold, log_f = self._fold[batch.rows], np.log(self._frequencies)
        logits = np.empty((len(batch), self.n_actions))
        for number in np.unique(fold):
            rows = np.flatnonzero(fold == number)
            logits[rows] = self._parts[number].logs(batch.contexts[rows])
        return _floored(_pulled(logits, log_f, self.strength, batch), log_f, self.floor, batch)


def estimate_logging(
    log: LoggedData, *, model: Any = "auto", folds: int = FOLDS, C: float = 1.0, seed: int = 0
) -> EstimatedLogging:
    """The logging policy from the contexts and the actions of a log, by a calibrated model.

    This assumes that the contexts hold everything that the logging policy looked at; nothing in a log can show that.
    Actions are predicted for rows that the model did not see, so rows with contexts that fix the action do not get
    probability 1 by memory.

    model: "logistic" (multinomial, on standardised contexts; C is scikit-learn's inverse strength of the penalty),
    "products" (the same with all products of two contexts, up to 80 inputs and a row for each coefficient), "boosting"
    (histogram gradient boosting, up to 30 actions and from 400 rows on), a classifier of your own with
    `fit(contexts, actions)` and `predict_proba`, or "auto": of those three that suit the log, the one that predicts
    held-out actions best, by its held-out loss plus its miscalibration.

    >>> import cael
    >>> log, _ = cael.testing.example()
    >>> estimate_logging(log, model="logistic")
    EstimatedLogging(240 rows, 8 actions, logistic, strength=0.41)
    """
    if not isinstance(log, LoggedData):
        raise InputError(
            f"estimate_logging takes a log in memory; got {type(log).__name__}. A log in files has its logging policy "
            "estimated by scan(..., logging='estimate')."
        )
    how = LoggingModel(model, folds, C, seed)
    return estimated(log, log.folds(min(folds, log.groups), seed), how)


def estimated(
    log: LoggedData, held_out: Sequence[Ints], how: LoggingModel | None = None, counts: Ints | None = None
) -> EstimatedLogging:
    """`estimate_logging` with folds that are given, by the rows that each holds out.

    counts: (k,) of the actions in a longer log of which this is a sample. Its frequencies take the place of those of
    the sample, in the models, too: what is known without error need not be estimated.
    """
    how = how or LoggingModel()
    if log.sampling_weights is not None:
        raise NeedsError(
            "the logging policy is not estimated from rows with sampling weights, which were kept by their rewards. "
            "Log the propensities (propensity=, --propensity), or do without them: logging='none' (--logging none)."
        )
    counts = counts if log.eligible is None else None  # of a set that changes, they say less than the rows do
    of_all = np.bincount(log.actions, minlength=log.n_actions) if counts is None else counts
    frequencies = _frequencies(of_all) if log.eligible is None else _among_eligible(of_all, log.eligible)
    fold = fold_of_each(held_out, len(log))
    fits = Fits(log, fold, frequencies, how.seed, counted=counts is not None)
    tried = tuple(_tried(fits, family) for family in families(how.model, log, how.C, how.seed))
    best = min(tried, key=lambda one: one.score)
    parts = (best.model, *(fits.without(best.family, number) for number in range(1, len(held_out))))
    final = _calibrated(log, parts, fold, frequencies)
    return EstimatedLogging(
        n_actions=log.n_actions, family=best.family.label, **vars(final), trained_on=fits.rows(best.family),
        seed=how.seed, tried=tuple((one.family.label, one.score) for one in tried), _parts=parts, _fold=frozen(fold),
        _frequencies=frozen(frequencies),
    )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Fits:
    """Models of the rows outside of a fold. counted: whether the frequencies (k,) are those of a longer log."""

    log: LoggedData
    fold: Ints
    frequencies: Floats
    seed: int
    counted: bool

    def rows(self, family: ActionFamily) -> int:
        """To how many rows of the last fold a model is fitted."""
        return len(self._others(family, int(self.fold.max())))

    def _others(self, family: ActionFamily, number: int) -> Ints:
        others, most = np.flatnonzero(self.fold != number), max(2000, family.cells // self.log.n_actions)
        if len(others) <= most:
            return others
        return np.sort(np.random.default_rng([self.seed, number]).choice(others, most, replace=False))

    def without(self, family: ActionFamily, number: int) -> ActionModel:
        """The model of a family for the rows of a fold."""
        others = self._others(family, number)
        model = family.fit(self.log.take(others), self.frequencies, self.seed)
        if not self.counted:
            return model
        shares = np.bincount(self.log.actions[others], minlength=self.log.n_actions) / len(others)
        known = np.divide(self.frequencies, shares, out=np.ones(len(shares)), where=shares > 0)
        return model.shifted(np.log(known))


@final
@dataclass(frozen=True, eq=False)
class Tried:
    """A family, its model for the first fold, and how well that predicts it: loss plus miscalibration."""

    family: ActionFamily
    model: ActionModel
    score: float


def _tried(fits: Fits, family: ActionFamily) -> Tried:
    model, held = fits.without(family, 0), np.flatnonzero(fits.fold == 0)
    rows = fits.log.take(held)
    calibrated = _calibrated(rows, (model,), np.zeros(len(held), dtype=np.intp), fits.frequencies)
    return Tried(family, model, calibrated.loss + calibrated.miscalibration)


def _frequencies(counts: Array) -> Floats:
    return (counts + 0.5) / (counts.sum() + 0.5 * len(counts))


def _among_eligible(counts: Array, eligible: Eligible) -> Floats:
    """f (k,) of the largest likelihood if each row plays its eligible actions in proportion to f (Hunter 2004)."""
    sets, smooth = eligible.sets, counts + 0.5
    rows = np.bincount(eligible.codes, minlength=len(sets))
    f = smooth / smooth.sum()
    for _ in range(LUCE_STEPS):
        share = np.divide(rows, sets.sums(f))
        expected = np.bincount(sets.actions, np.repeat(share, sets.sizes), len(counts))
        f = np.divide(smooth, expected, out=f, where=expected > 0)
        f = f / f.sum()
    return f


def _floored(p: Floats, log_f: Floats, floor: float, batch: Batch) -> Floats:
    """(1 - floor) p + floor f, with f among the eligible actions."""
    if floor == 0:
        return p
    f = softmax(among(np.broadcast_to(log_f, p.shape).copy(), batch))
    return (1 - floor) * p + floor * f


def _pulled(log_m: Floats, log_f: Floats, strength: float, batch: Batch) -> Floats:
    return softmax(among(log_f + strength * (log_m - log_f), batch))


@final
@dataclass(frozen=True)
class Calibrated:
    """The strength and the floor of maximal held-out likelihood, with the losses; see `EstimatedLogging`."""

    strength: float
    floor: float
    loss: float
    loss_frequencies: float
    miscalibration: float


def _calibrated(log: LoggedData, parts: Sequence[ActionModel], fold: Ints, frequencies: Floats) -> Calibrated:
    """The likelihood is concave in the strength, and in the floor."""
    most = max(2000, CALIBRATION_CELLS // log.n_actions)
    thinned = np.arange(0, len(log), len(log) // most + 1 if len(log) > most else 1)
    log_f = np.log(frequencies)
    blocks = [
        (log.whole.part(rows), parts[number].logs(log.contexts[rows]))
        for number in np.unique(fold[thinned])
        for held in (thinned[fold[thinned] == number],)
        for part in chunks(len(held), log.n_actions)
        for rows in (held[part],)
    ]

    def tables(strength: float, floor: float) -> Iterator[Floats]:
        for batch, logs in blocks:
            yield _floored(_pulled(logs, log_f, strength, batch), log_f, floor, batch)

    def loss(strength: float, floor: float) -> float:
        logged = (
            p[np.arange(len(p)), batch.actions] for p, (batch, _) in zip(tables(strength, floor), blocks, strict=True)
        )
        return -sum(float(np.log(np.maximum(p, 1e-300)).sum()) for p in logged) / len(thinned)

    strength = floor = 0.0
    alone = loss(0.0, 0.0)
    if log.contexts.shape[1] > 0:
        strengths = {floor: _least(partial(loss, floor=floor), STRONGEST) for floor in FLOORS}
        first = min(FLOORS, key=lambda floor: loss(strengths[floor], floor))
        floor = _least(partial(loss, strengths[first]), 1.0)
        strength = _least(partial(loss, floor=floor), STRONGEST)
    pairs = [(p, batch.actions) for p, (batch, _) in zip(tables(strength, floor), blocks, strict=True)]
    return Calibrated(strength, floor, loss(strength, floor), alone, miscalibration(pairs))


def _least(loss: Callable[[float], float], high: float) -> float:
    """Where a convex function of 0 to high is least; 0 where nothing else is better."""
    from scipy.optimize import minimize_scalar

    optimum: Any = minimize_scalar(loss, bounds=(0.0, high), method="bounded", options={"xatol": 1e-3 * high})
    return float(optimum.x) if optimum.fun < loss(0.0) else 0.0


def miscalibration(tables: Sequence[tuple[Floats, Ints]]) -> float:
    """What probabilities p (b, k) of actions (b,) lack: by groups of about the same p, the Poisson deviance of what was
    taken against what was expected, per row. By chance it is about the number of groups over twice the rows.

    >>> p = np.tile([0.9, 0.1], (10, 1))
    >>> [round(miscalibration([(p, np.repeat([0, 1], counts))]), 3) for counts in ([9, 1], [5, 5])]
    [0.026, 0.857]
    """
    p = np.concatenate([table.ravel() for table, _ in tables])
    taken = np.concatenate([(np.arange(table.shape[1]) == actions[:, None]).ravel() for table, actions in tables])
    order = np.argsort(p, kind="stable")
    # Groups of equal expected counts: of equal sizes, the most would be of actions that are never taken.
    edges = np.minimum((np.cumsum(p[order]) / p.sum() * BINS).astype(np.intp), BINS - 1)
    group = np.empty(len(p), dtype=np.intp)
    group[order] = edges
    expected = np.bincount(group, weights=p, minlength=BINS)
    counts = np.bincount(group, weights=taken, minlength=BINS)
    positive = counts > 0
    ratio = np.divide(counts, expected, out=np.ones(BINS), where=positive & (expected > 0))
    total = float((counts * np.log(ratio) + expected - counts).sum())
    return max(total, 0.0) / sum(len(table) for table, _ in tables)


def warning(policy: EstimatedLogging, d: int) -> str:
    """What a user must know who sees numbers made with an estimated logging policy. d: numbers of a context."""
    source = (
        f"from the {d} context numbers" if d else "from the frequencies of the actions alone (there are no contexts)"
    )
    return (
        f"There are no logged propensities: they were estimated {source} ({policy.family}). Every weight rests on the "
        "assumption that the logging policy looked at nothing else. The intervals of Auto, CAEL, DR and SNDR allow for "
        "an error of this estimate, the others do not. Log the propensities if you can."
    )
