"""Diagnostics: the doubts about an estimate, as numbers; one place turns them into words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, final

import numpy as np

from cael.common.types import Floats
from cael.inference.reach import Pooled, Proportion
from cael.inference.weights import effective_sample_size, tail_index
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.policies.fitted import LoggingFit

NOTHING_LEARNED = (
    "No model predicts held-out rewards better than their mean: nothing was learned to share between actions."
)

CUT_SHORT = "The training ended at its budget of seconds: a longer one may shorten the interval."

FEW_CLUSTERS = 10
"""Standard errors from fewer clusters are themselves off by a quarter or more, which Student's t cannot make good where
the clusters differ in size."""


def few_clusters(count: int) -> str:
    """What is to be said about so few of them."""
    return (
        f"The log has only {count} clusters: the interval is wide, by Student's t with {count - 1} degrees of freedom, "
        f"and still optimistic where clusters differ. Collect at least {FEW_CLUSTERS}."
    )


FIT_BOUND = 2.0
"""The interval allows for a bias of so many times the error of a fitted logging policy, in standard deviations of what
is weighted."""

NOT_TRAINED = "The outcome model was trained on the rows it predicts: the interval is too narrow."


@final
@dataclass(frozen=True)
class Candidate:
    """One candidate on the path of a data-driven choice.

    name, value, width: of its estimate and the half-width it was judged by. accepted: whether it was among
    those that could be chosen. chosen: whether it was.
    """

    name: str
    value: float
    width: float
    accepted: bool
    chosen: bool


@final
@dataclass(frozen=True)
class TrainingFacts:
    """What a learned embedding looks like after training.

    iterations: steps taken. history: losses by name, with "iteration". bias_bound: mean over rows of the half-Gini of
    the posterior and the weights, which times (q_max - q_min) bounds |bias| (Proposition 1). variance_bound: the
    posterior's term of Proposition 2, with the observed r^2. bias_loss, variance_loss: the paper's L_bias and
    L_var (with r_hat) of the whole log and the final posterior. renyi_entropy: mean order-2 entropy of the posterior;
    effective_actions: mean of its exponential. converged: of the final posterior's solver.
    stopped_early: whether held-out rows ended the training.
    """

    iterations: int
    history: dict[str, tuple[float, ...]]
    stopped_early: bool
    bias_bound: float
    variance_bound: float
    bias_loss: float
    variance_loss: float
    renyi_entropy: float
    effective_actions: float
    converged: bool


@final
@dataclass(frozen=True)
class EmbeddingFacts:
    """What `CAEL` learned and chose.

    bandwidth: of the smoothing, in units of `unit`, the spread of f over actions. sharp_share: weight of the unbiased
    estimate in the blend. explained: held-out R^2 of f. explained_of_actions: variance of f over the actions of a row,
    as a share of itself and the variance that f leaves. inputs: action inputs that the network uses. network_share: of
    the network in f, the rest is a ridge model. penalty: of the network's group lasso. losses: held-out losses by round
    and penalty, as shares of the reward's variance. roughness: |bias| is at most this times the range of what f misses.
    lost_mass: target mass that no weight carries. error: root of the estimated mean squared error. trained_rows: rows
    that trained and judged the networks. candidates: actions that were drawn for each row (None: all were looked at).
    """

    bandwidth: float
    unit: float
    sharp_share: float
    explained: float
    explained_of_actions: float
    inputs: int
    network_share: float
    penalty: float
    losses: tuple[tuple[float, ...], ...]
    roughness: float
    lost_mass: float
    error: float
    trained_rows: int
    candidates: int | None

    def facts(self) -> list[tuple[str, str]]:
        """What the printed forms show, as (name, text) pairs."""
        if self.explained == 0:
            return [("reward explained, held out", "nothing: no model beats the mean reward")]
        width = "infinite" if math.isinf(self.bandwidth) else f"{self.bandwidth:g}"
        parts = [
            *([f"a network of {self.inputs} action inputs"] if self.network_share > 0 else []),
            *(["a ridge model"] if self.network_share < 1 else []),
        ]
        return [
            ("bandwidth", f"{width}, blended with {self.sharp_share:.1%} of the sharp estimate"),
            ("reward explained, held out", f"{self.explained:.1%} by {' and '.join(parts)}"),
            ("difference of actions explained", f"{self.explained_of_actions:.1%}"),
            *(
                [("actions", f"{self.candidates} drawn a row; {self.lost_mass:.1%} of the target near none of them")]
                if self.candidates
                else []
            ),
        ]


@final
@dataclass(frozen=True)
class Diagnostics:
    """How much an estimate can be trusted.

    n: rows. effective_sample_size: (sum w)^2 / sum w^2. max_weight, mean_weight: of the weights that were used.
    mean_weight_z: (mean of the unmodified weights - 1) / its standard error; far from 0 means wrong propensities or
        a target that the log does not cover. tail_index: Pareto k of the largest weights (None: no tail to fit).
    unsupported_mass: the target's mean probability of actions that the logging policy never plays (None: unknown).
    clipped_share: share of rows whose weight was changed by clipping, switching or shrinking.
    cross_fitted: whether every row was predicted by a model that did not see it (None: no model was trained).
    bias_bound: the bias that the interval allows for (None: no claim). moved: the part of it that is for the error of
        estimated propensities: by how much their weights moved the value from that of the outcome model alone (None:
        they are not estimated). stderr_floor: the standard error, raised towards
        what the second moment of the weights implies, which the interval uses where it is the larger. pooled: what it
        was raised by. proportion: of rewards that take two values. choices: how many estimators this one was chosen
        from.
    path: what a data-driven choice looked at. training, embedding: of a learned embedding. logging_fit: of the
        logging policy, where its probabilities of all actions were fitted to those of the logged ones.
    warnings: all this in words.
    """

    n: int
    effective_sample_size: float | None = None
    max_weight: float | None = None
    mean_weight: float | None = None
    mean_weight_z: float | None = None
    tail_index: float | None = None
    unsupported_mass: float | None = None
    clipped_share: float | None = None
    cross_fitted: bool | None = None
    bias_bound: float | None = None
    moved: float | None = None
    stderr_floor: float | None = None
    pooled: Pooled | None = None
    proportion: Proportion | None = None
    choices: int = 1
    path: tuple[Candidate, ...] = ()
    training: TrainingFacts | None = None
    embedding: EmbeddingFacts | None = None
    logging_fit: LoggingFit | None = None
    warnings: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; an infinite bandwidth is null."""
        numbers = asdict(self)
        if self.embedding is not None and math.isinf(self.embedding.bandwidth):
            numbers["embedding"]["bandwidth"] = None
        return {**numbers, "path": list(numbers["path"]), "warnings": list(self.warnings)}


@final
@dataclass(frozen=True)
class WeightFacts:
    """What the unmodified weights (n,) of a log and a target say; computed once for all estimators."""

    n: int
    mean: float
    z: float | None
    tail: float | None
    unsupported_mass: float | None
    expected: float = 1.0


def weight_facts(w: Floats, error: float, unsupported_mass: float | None) -> WeightFacts:
    """Facts about weights whose mean should be 1, and has this standard error."""
    mean, tail = float(w.mean()), tail_index(w)
    z = (mean - 1.0) / error if error > 0 else None
    return WeightFacts(len(w), mean, z, None if math.isnan(tail) else tail, unsupported_mass)


def weighted(
    w: Floats,
    raw: Floats,
    facts: WeightFacts,
    *,
    cross_fitted: bool | None = None,
    extra: tuple[str, ...] = (),
) -> Diagnostics:
    """Diagnostics of an estimate that used weights w (n,), made from the raw ones (n,)."""
    changed = None if w is raw else float(np.mean(w != raw))
    return weighted_by(
        effective_sample_size(w), float(w.max()), facts, mean=float(w.mean()), clipped_share=changed,
        cross_fitted=cross_fitted, extra=extra,
    )  # fmt: skip


def weighted_by(
    effective: float,
    largest: float,
    facts: WeightFacts,
    *,
    mean: float | None = None,
    clipped_share: float | None = None,
    cross_fitted: bool | None = None,
    extra: tuple[str, ...] = (),
) -> Diagnostics:
    """The same, from the effective sample size, the largest weight and the mean (by default that of the facts)."""
    diagnostics = Diagnostics(
        facts.n, effective, largest, facts.mean if mean is None else mean, facts.z, facts.tail, facts.unsupported_mass,
        clipped_share, cross_fitted,
    )  # fmt: skip
    return with_warnings(diagnostics, (*doubts(diagnostics, DEFAULT), *extra))


def with_warnings(diagnostics: Diagnostics, warnings: tuple[str, ...]) -> Diagnostics:
    return replace(diagnostics, warnings=(*diagnostics.warnings, *warnings))


def with_fit(diagnostics: Diagnostics, fit: LoggingFit | None, noise: float | None = None) -> Diagnostics:
    """The diagnostics of an estimate that took a fitted logging policy. noise: variance of what is weighted, to allow
    for the bias of weights that are off by the error of the fit; None: that is done already."""
    if fit is None:
        return diagnostics
    bound = diagnostics.bias_bound
    if noise is not None:
        bound = (bound or 0.0) + FIT_BOUND * fit.off * math.sqrt(noise)
    return with_warnings(replace(diagnostics, logging_fit=fit, bias_bound=bound), (fit.sentence,))


def with_moved(diagnostics: Diagnostics, moved: float) -> Diagnostics:
    """The diagnostics of an estimate whose propensities are estimated. moved: by how much the weights moved it."""
    return replace(diagnostics, bias_bound=(diagnostics.bias_bound or 0.0) + abs(moved), moved=abs(moved))


def doubts(diagnostics: Diagnostics, limits: Thresholds) -> tuple[str, ...]:
    """The doubts about the weights that these limits put into words; none where there are no weights."""
    return tuple(sentence for doubted, sentence in remarks(diagnostics, limits) if doubted)


def in_words(diagnostics: Diagnostics, limits: Thresholds) -> Diagnostics:
    """The same with the words of these limits in place of those of others; what estimators add of their own is kept."""
    sentences = {sentence for _, sentence in remarks(diagnostics, limits)}
    kept = tuple(warning for warning in diagnostics.warnings if warning not in sentences)
    return replace(diagnostics, warnings=(*doubts(diagnostics, limits), *kept))


def remarks(diagnostics: Diagnostics, limits: Thresholds) -> list[tuple[bool, str]]:
    """Every sentence that can be said about the weights, and whether these limits ask for it.

    A sentence depends on the diagnostics alone, so that it is recognised whatever limits it was said by.
    """
    d = diagnostics
    if d.effective_sample_size is None:
        return []
    return [*_size_remarks(d, d.effective_sample_size, limits), *_mean_remarks(d, limits), *_support_remarks(d, limits)]


def worth(size: float, n: int) -> str:
    """What an effective sample size of n rows means, without the full stop."""
    rows = f"{size:,.0f}" if size >= 10 else f"{size:.2g}"
    return f"After weighting, the {n:,} rows carry the information of about {rows} (effective sample size)"


def _size_remarks(d: Diagnostics, size: float, limits: Thresholds) -> list[tuple[bool, str]]:
    """Few rows, and one row; where all rows weigh the same, the weights lose nothing."""
    if size == 0:
        return [(True, "No logged action has positive target probability: no row says anything about the target.")]
    if size >= d.n * (1 - 1e-12) or not d.mean_weight or d.max_weight is None:
        return []
    few = limits.cautions("effective_rows", size) or size < limits.effective_share * d.n
    share = d.max_weight / (d.mean_weight * d.n)
    return [
        (few, worth(size, d.n) + "."),
        (limits.cautions("largest_share", share), f"One row carries {share:.0%} of all the weight."),
    ]


def _mean_remarks(d: Diagnostics, limits: Thresholds) -> list[tuple[bool, str]]:
    remarks = []
    if d.mean_weight_z is not None:
        raw = f"mean weight is {d.mean_weight:.3g}," if d.clipped_share is None else "mean of the unmodified weights is"
        sentence = (
            f"The {raw} {d.mean_weight_z:+.1f} standard errors from what it should be: the propensities may be "
            "wrong, or the target plays what the log does not hold."
        )
        remarks.append((limits.cautions("mean_weight_z", abs(d.mean_weight_z)), sentence))
    if d.training is not None and d.mean_weight is not None:
        sentence = (
            f"The mean weight is {d.mean_weight:.2f}, far from 1: the learned posterior loses or invents target mass."
        )
        remarks.append((abs(d.mean_weight - 1) > limits.mean_weight_gap, sentence))
    return remarks


def _support_remarks(d: Diagnostics, limits: Thresholds) -> list[tuple[bool, str]]:
    remarks = []
    if d.tail_index is not None:
        sentence = f"The weights have a heavy tail (Pareto k = {d.tail_index:.2f}): the interval is too narrow."
        remarks.append((limits.cautions("tail_index", d.tail_index), sentence))
    if d.unsupported_mass is not None:
        sentence = (
            f"{d.unsupported_mass:.1%} of the target's probability lies on actions that the logging policy never plays."
        )
        remarks.append((limits.cautions("unsupported_mass", d.unsupported_mass), sentence))
    return [*remarks, (d.cross_fitted is False, NOT_TRAINED)]


def of_contrast(a: Diagnostics, b: Diagnostics) -> Diagnostics:
    """Diagnostics of a - b: the weaker of the two in each respect, and the warnings of both; without a floor."""

    def worst(pick: Any, name: str) -> Any:
        return pick((value for value in (getattr(a, name), getattr(b, name)) if value is not None), default=None)

    return Diagnostics(
        n=a.n,
        **{name: worst(min, name) for name in ("effective_sample_size", "cross_fitted")},
        **{name: worst(max, name) for name in ("max_weight", "tail_index", "unsupported_mass")},
        bias_bound=None if a.bias_bound is None or b.bias_bound is None else a.bias_bound + b.bias_bound,
        choices=a.choices * b.choices,  # each pair of candidates could have been the one
        warnings=tuple(dict.fromkeys((*a.warnings, *b.warnings))),
    )


MOST_SHARED = 2.0


def contrast_floor(errors: tuple[float, float, float], floors: tuple[float | None, float | None]) -> float | None:
    """The floor of the standard error of a - b, from the errors of a, b and a - b and the floors of a and b.

    Each error is raised to its floor, and the correlation that the paired rows show is kept: a - a has the floor 0.
    Where the two are raised by very different factors, rows that show almost none of the error say little of what the
    rest of it shares: a correlation above 0 then counts for at most MOST_SHARED times what both are raised by.
    """
    a, b, both = errors
    if floors[0] is None and floors[1] is None:
        return None
    raised = max(a, floors[0] or 0.0), max(b, floors[1] or 0.0)
    if a == 0 or b == 0:
        return math.hypot(*raised)
    factors, shared = (raised[0] / a, raised[1] / b), a**2 + b**2 - both**2  # twice the covariance
    most = MOST_SHARED * min(factors) ** 2
    if shared > 0 and math.prod(factors) > most:
        return math.sqrt(max(raised[0] ** 2 + raised[1] ** 2 - shared * most, 0.0))
    apart = (both**2 - (a - b) ** 2) * math.prod(factors)
    return math.sqrt(max((raised[0] - raised[1]) ** 2 + apart, 0.0))
