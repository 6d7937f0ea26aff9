"""The logging policy estimated from the log itself, for logs without propensities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from cael.common.types import Array, Floats, Ints, frozen
from cael.errors import InputError, positive_int
from cael.log.keys import fold_of_each
from cael.log.logged import LoggedData, chunks
from cael.policies.gate import need_actions, need_rows
from cael.policies.policy import Policy, Uniform
from cael.policies.scored import among, softmax

if TYPE_CHECKING:
    from cael.log.eligible import Eligible
    from cael.log.logged import Batch

TRAINING_CELLS = 2 * 10**7
"""Each fold is trained on at most so many rows times actions."""
LUCE_STEPS = 50


@final
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EstimatedLogging(Policy):
    """mu(a|x) proportional to f(a)^(1-s) m(a|x)^s: a multinomial logistic model m, pulled towards the frequencies f.

    Made by `estimate_logging`. Every row is predicted by a model that did not see it. strength: s, fitted by maximum
    likelihood on those predictions, which calibrates them; 0 means that the contexts say nothing about the action.
    loss: mean of -log mu(a_i|x_i) of the held-out predictions; loss_frequencies: the same for the frequencies alone.
    trained_on: rows in the training of each fold.
    """

    trusted: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    n_actions: int
    strength: float
    loss: float
    loss_frequencies: float
    trained_on: int
    _parts: tuple[tuple[Floats, Floats], ...]
    _fold: Ints
    _frequencies: Floats

    def __repr__(self) -> str:
        return f"EstimatedLogging({len(self._fold)} rows, {self.n_actions} actions, strength={self.strength:.2f})"

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
        for number, part in enumerate(self._parts):
            rows = fold == number
            logits[rows] = _log_model(part, batch.contexts[rows])
        return _pulled(logits, log_f, self.strength, batch)


FOLDS = 5


def estimate_logging(log: LoggedData, *, folds: int = FOLDS, C: float = 1.0, seed: int = 0) -> EstimatedLogging:
    """The logging policy from the contexts and the actions of a log, by a calibrated multinomial logistic model.

    This assumes that the contexts hold everything that the logging policy looked at; nothing in a log can show that.
    C: inverse strength of the penalty (scikit-learn's), on standardised contexts. Actions are predicted for rows that
    the model did not see, so rows with contexts that fix the action do not get probability 1 by memory.

    >>> import cael
    >>> log, _ = cael.testing.example()
    >>> estimate_logging(log)
    EstimatedLogging(240 rows, 8 actions, strength=0.17)
    """
    if not isinstance(log, LoggedData):
        raise InputError(
            f"estimate_logging takes a log in memory; got {type(log).__name__}. A log in files has its logging policy "
            "estimated by scan(..., logging='estimate')."
        )
    positive_int("folds", folds, least=2)
    if not (np.isfinite(C) and C > 0):
        raise InputError(f"C must be a positive number; got {C!r}.")
    return estimated(log, log.folds(min(folds, log.groups), seed), C, seed)


def estimated(
    log: LoggedData, held_out: Sequence[Ints], C: float = 1.0, seed: int = 0, counts: Ints | None = None
) -> EstimatedLogging:
    """`estimate_logging` with folds that are given, by the rows that each holds out.

    counts: (k,) of the actions in a longer log of which this is a sample. Its frequencies take the place of those of
    the sample, in the models, too: what is known without error need not be estimated.
    """
    counts = counts if log.eligible is None else None  # of a set that changes, they say less than the rows do
    of_all = np.bincount(log.actions, minlength=log.n_actions) if counts is None else counts
    frequencies = _frequencies(of_all) if log.eligible is None else _among_eligible(of_all, log.eligible)
    fold = fold_of_each(held_out, len(log))
    most = max(2000, TRAINING_CELLS // log.n_actions)
    rng = np.random.default_rng(seed)
    parts, trained_on = [], 0
    for number in range(len(held_out)):
        others = np.flatnonzero(fold != number)
        if len(others) > most:
            others = np.sort(rng.choice(others, most, replace=False))
        trained_on = len(others)
        weights, intercept = _trained(log.take(others), frequencies, C)
        if counts is not None:
            shares = np.bincount(log.actions[others], minlength=log.n_actions) / len(others)
            intercept = intercept + np.log(np.divide(frequencies, shares, out=np.ones(len(shares)), where=shares > 0))
        parts.append((weights, intercept))
    strength, losses = _calibrated(log, tuple(parts), fold, frequencies)
    return EstimatedLogging(
        n_actions=log.n_actions, strength=strength, loss=losses[0], loss_frequencies=losses[1], trained_on=trained_on,
        _parts=tuple(parts), _fold=frozen(fold), _frequencies=frozen(frequencies),
    )  # fmt: skip


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


def _trained(log: LoggedData, frequencies: Floats, C: float) -> tuple[Floats, Floats]:
    """Weights (d, k) and intercept (k,) of log m(a|x) up to a constant; actions not in these rows keep frequencies."""
    from cael.policies.posterior import fit_softmax

    d, k = log.contexts.shape[1], log.n_actions
    if d == 0 or len(np.unique(log.actions)) < 2:
        return np.zeros((d, k)), np.log(frequencies)
    mean, scale = log.contexts.mean(axis=0), log.contexts.std(axis=0)
    scale[scale <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    on_sets = log if log.eligible is None else log.with_logging(Uniform(k))  # only eligible actions have a logit
    model = fit_softmax(on_sets, (log.contexts - mean) / scale, C=C, offset=log.eligible is not None, max_iter=200)
    weights, intercept, seen = np.zeros((d, k)), np.log(frequencies), np.unique(log.actions)
    fitted = np.searchsorted(model.classes, seen)
    # An unseen action has the mean logit of the seen ones, shifted by its log frequency relative to theirs.
    level = model.intercept[fitted].mean() - np.log(frequencies[seen]).mean()
    intercept += level
    weights[:, seen] = model.weights[:, fitted] / scale[:, None]
    intercept[seen] = model.intercept[fitted] - mean @ weights[:, seen]
    return weights, intercept


def _log_model(part: tuple[Floats, Floats], contexts: Floats) -> Floats:
    logits = contexts @ part[0] + part[1]
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def _pulled(log_m: Floats, log_f: Floats, strength: float, batch: Batch) -> Floats:
    return softmax(among(log_f + strength * (log_m - log_f), batch))


def _calibrated(
    log: LoggedData, parts: tuple[tuple[Floats, Floats], ...], fold: Ints, frequencies: Floats
) -> tuple[float, tuple[float, float]]:
    """The strength of maximal held-out likelihood, which is concave in it, and the two losses."""
    from scipy.optimize import minimize_scalar

    most = max(2000, TRAINING_CELLS // log.n_actions)
    thinned = slice(None, None, len(log) // most + 1 if len(log) > most else 1)
    log_f = np.log(frequencies)
    of, rows_of = fold[thinned], np.arange(len(log))[thinned]

    def loss(strength: float) -> float:
        total = 0.0
        for number, part in enumerate(parts):
            held_out = np.flatnonzero(of == number)
            for block in chunks(len(held_out), log.n_actions):
                rows = held_out[block]
                batch = log.whole.part(rows_of[rows])
                p = _pulled(_log_model(part, batch.contexts), log_f, strength, batch)
                total -= float(np.log(np.maximum(p[np.arange(len(rows)), batch.actions], 1e-300)).sum())
        return total / len(of)

    if log.contexts.shape[1] == 0:
        return 0.0, (loss(0.0), loss(0.0))
    optimum: Any = minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-3})
    return float(optimum.x), (float(optimum.fun), loss(0.0))


def warning(policy: EstimatedLogging, d: int) -> str:
    """What a user must know who sees numbers made with an estimated logging policy. d: numbers of a context."""
    source = (
        f"from the {d} context numbers" if d else "from the frequencies of the actions alone (there are no contexts)"
    )
    return (
        f"There are no logged propensities: they were estimated {source}. Every weight rests on the assumption that "
        "the logging policy looked at nothing else; intervals do not include the error of this estimate. Log the "
        "propensities if you can."
    )
