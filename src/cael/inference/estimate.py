"""Estimate: a value, its standard error, and the per-row contributions that everything else is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cael.common.types import Floats, Ints, frozen
from cael.errors import InputError, NeedsError, choose, positive_int
from cael.inference import intervals as inference
from cael.inference import ratio_bootstrap
from cael.inference.diagnostics import Diagnostics, in_words
from cael.inference.intervals import Interval
from cael.inference.pairs import contrasted, unbiased_pairs
from cael.inference.ratio_bootstrap import Ratios, by_cluster
from cael.inference.reach import allowance, heavier, lacking, no_wider, reach
from cael.inference.score_range import ScoreRange
from cael.judging.thresholds import Thresholds
from cael.log.fingerprints import LogKey
from cael.results.frames import frame_of_facts
from cael.results.plots import plot_estimate
from cael.results.sheet import Column, Note, Sheet

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from cael.engine.moments import Combination


LACKING = {
    "bias_aware": "an allowance for a bias, which CAEL and Auto have",
    "steadied": "a floor of the standard error, which estimators with weights and DM with Ridge have",
}


class Later:
    """The field `diagnostics` of an Estimate, which may be given as a function of it: asked once, when first read."""

    def __get__(self, estimate: Estimate | None, owner: type[Estimate]) -> Diagnostics:
        if estimate is None:
            raise AttributeError  # the field has no default
        diagnostics = estimate.__dict__["diagnostics"]
        if not isinstance(diagnostics, Diagnostics):
            diagnostics = estimate.__dict__["diagnostics"] = diagnostics(estimate)
        return diagnostics

    def __set__(self, estimate: Estimate, diagnostics: Diagnostics | Callable[[Estimate], Diagnostics]) -> None:
        estimate.__dict__["diagnostics"] = diagnostics


@final
@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """What an estimator says about a policy's value.

    estimator: its name. value: the estimate. contributions: (n,), read-only; their mean is the value, and centred
    they are its influence function (nuisances held fixed). key: of the log. `a - b` is a paired contrast.

    sums: what a pass kept of the rows; the standard error is exact. Of a log that was streamed (`cael.scan`)
    `contributions` has one number for each of at most 997 buckets of rows instead of one per row.

    diagnostics: also all that the interval needs in addition to the contributions; made when it is first asked for.

    ratio: of an estimate that divides by a mean, the influence of the ratio and what it divides by, with means 0 and 1.
    diagnostics: doubts, as numbers and in words. clusters: (n,) numbers of the independent units. score_range: of
    contributions, where it is known. ends: the two rewards, where all of them are one or the other: the value that is
    estimated lies between them, and so does the interval that decisions rest on; None of other rewards and of a
    contrast. unbiased: of a blend, the estimates without a bias that it knows: its interval is no wider than the
    widest of theirs, before it is cut to `ends`. stderr: what the contributions show.
    """

    estimator: str
    value: float
    contributions: Floats
    key: LogKey
    diagnostics: Later = Later()
    clusters: Ints | None = None
    score_range: ScoreRange | None = None
    sums: Combination | None = None
    ratio: tuple[Combination, Combination] | None = None
    ends: tuple[float, float] | None = None
    unbiased: tuple[Estimate, ...] = ()
    stderr: float = field(init=False)

    def __post_init__(self) -> None:
        z = self.contributions
        if z.flags.writeable:
            z.setflags(write=False)
        if not np.isfinite(self.value):
            raise InputError(f"{self.estimator}: the estimate is {self.value}; a weight or a prediction overflowed.")
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "stderr", inference.stderr(self.units) if self.sums is None else self.sums.stderr)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "diagnostics": self.diagnostics}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, frozen(value) if isinstance(value, np.ndarray) else value)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the log."""
        return self.key.fingerprint

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.contributions) if self.sums is None else self.sums.n

    @property
    def streamed(self) -> bool:
        """Whether only sums of the rows are known."""
        return self.sums is not None and self.sums.block is None

    @property
    def groups(self) -> Floats:
        """Independent units of any log: sums of rows or clusters in at most 997 groups, whose mean is the value."""
        return self.units if self.sums is None else self.sums.buckets

    @property
    def units(self) -> Floats:
        """The independent units: rows, or clusters where the log has them."""
        return inference.units(self.contributions, self.clusters)

    @property
    def independent(self) -> int:
        """The number of independent units."""
        return len(self.units) if self.sums is None else self.sums.independent

    @property
    def method(self) -> str:
        """The method of the interval that decisions rest on."""
        return "bias_aware" if self.diagnostics.bias_bound is not None else self._unbiased

    @property
    def _unbiased(self) -> str:
        """The same without an allowance for a bias."""
        if self.diagnostics.stderr_floor is not None:
            return "steadied"
        return "normal" if self.freedom is None else "t"

    @property
    def clustered(self) -> bool:
        """Whether the independent units are clusters of rows."""
        sums = self.sums
        return self.clusters is not None or (sums is not None and (sums.by_bucket or sums.clusters is not None))

    @property
    def freedom(self) -> int | None:
        """Degrees of freedom of the interval that decisions rest on: clusters less one, as there can be few of them;
        None of rows: the interval is normal."""
        return self.independent - 1 if self.clustered else None

    @property
    def error(self) -> float:
        """The standard error of the interval that decisions rest on: at least its floor."""
        return max(self.stderr, self.diagnostics.stderr_floor or 0.0)

    def reach(self, factor: float, *, biased: bool = True) -> tuple[float, float]:
        """How far that interval reaches below and above the value, at so many standard errors of a normal one.

        biased: whether it allows for a bias. Together no further than those of an unbiased estimate that it knows.
        """
        return no_wider(self._reach(factor, biased), [other.reach(factor, biased=biased) for other in self.unbiased])

    def _reach(self, factor: float, biased: bool) -> tuple[float, float]:
        """The same by what this estimate alone says."""
        d = self.diagnostics
        bound = d.bias_bound if biased else 0.0
        below, above = reach(self.error, bound or 0.0, d.proportion, heavier(factor, self.freedom))
        if d.proportion is not None or d.stderr_floor is None:
            return below, above
        longer = self.error * lacking(self.skew, self.independent, factor)
        return below + max(-longer, 0.0), above + max(longer, 0.0)

    @property
    def skew(self) -> float:
        """The skewness of the mean of the contributions, which shrinks with the root of their number."""
        return inference.skewness_of_mean(self.groups)

    def interval(
        self,
        level: float = 0.95,
        method: str | None = None,
        *,
        reward_range: tuple[float, float] | None = None,
        max_weight: float | None = None,
        resamples: int = 999,
        seed: int = 0,
    ) -> Interval:
        """A two-sided interval at `level`; without a method the one that decisions rest on.

        That is "bias_aware" where the estimate allows for a bias (`diagnostics.bias_bound`); "steadied" where the
        standard error has a floor (`diagnostics.stderr_floor`); else "normal". With a floor the interval is longer on
        the side of a long tail, and for rewards that are 0 or 1 it has the shape of a binomial's (Jeffreys). Where
        rewards take two values (`ends`), such as 0 and 1, whatever is shown without a method is cut to [0, 1], of every
        estimator. Of clusters, all three take the
        quantiles of Student's t with as many degrees of freedom as there are clusters, less one ("t").
        Others by name: "t", "studentised" or "bca" (bootstrap), or one with a finite-sample guarantee: "bernstein",
        "betting". The last two need `reward_range`, the range in which rewards lie by their nature, and the largest
        possible weight, which the policies supply where they can and `max_weight` states otherwise. The sample's own
        maximum is never used: such an interval would guarantee nothing. "bias_aware" allows for a bias of up to
        `bias_bound`, and assumes that the reward model misses no more than that where the target policy differs from
        the logging policy; the others are about the estimate's expectation.
        """
        method = self.method if method is None else method
        choose("method", method, inference.METHODS)
        whole = self._whole(level, method, reward_range, max_weight, resamples, seed)
        return inference.inside(whole, self.ends if method in (self.method, self._unbiased) else None)

    def _whole(
        self, level: float, method: str, reward_range: tuple[float, float] | None, max_weight: float | None,
        resamples: int, seed: int,
    ) -> Interval:  # fmt: skip
        """The interval, also where no mean of these rewards can be."""
        if method in ("steadied", "bias_aware"):
            return self._decided(level, method)
        if self.streamed:
            return self._streamed(level, method, resamples, seed)
        z, bounds = self.units, None
        if method in ("bernstein", "betting"):
            z, bounds = self._bounded_units(self._bounds(method, reward_range, max_weight))
        if method in ("studentised", "bca") and (self.ratio is not None or self.clusters is not None):
            bootstrap = ratio_bootstrap.studentised if method == "studentised" else ratio_bootstrap.bca
            inference.check_level(level)
            return bootstrap(self.ratios, level, resamples=positive_int("resamples", resamples), seed=seed)
        return inference.interval(z, level, method, bounds=bounds, resamples=resamples, seed=seed)

    @property
    def ratios(self) -> Ratios:
        """The estimate as ratios of means of its independent units, of a log in memory."""
        z = self.contributions - self.value
        ones = np.ones(len(z)) if self.sums is None or self.sums.counted is None else self.sums.counted
        rows = Ratios(self.value, z[None], ones[None])
        if self.ratio is not None:
            part, share = (column.shares for column in self.ratio)
            rows = Ratios(self.value, np.stack([z - part, part]), np.stack([ones, share]))
        return rows if self.clusters is None else by_cluster(rows, self.clusters)

    def _streamed(self, level: float, method: str, resamples: int, seed: int) -> Interval:
        """From the exact standard error, or by a bootstrap of buckets that are scaled to it."""
        assert self.sums is not None
        if method in ("bernstein", "betting"):
            raise NeedsError(f"method={method!r} needs every row's contribution, and a streamed log keeps sums only.")
        if method in ("normal", "t"):
            return inference.around(self.value, self.stderr, level, method, self.sums.independent - 1)
        z = self.contributions - self.value
        spread = inference.stderr(z)
        z = self.value + z * (self.stderr / spread if spread > 0 else 0.0)
        return inference.interval(z, level, method, resamples=resamples, seed=seed)

    def _decided(self, level: float, method: str) -> Interval:
        """The interval that decisions rest on."""
        d = self.diagnostics
        if (d.bias_bound if method == "bias_aware" else d.stderr_floor) is None:
            raise NeedsError(f"method={method!r} needs {LACKING[method]}; {self.estimator} has {self.method!r}.")
        below, above = self.reach(inference.quantile(level), biased=method == "bias_aware")
        return Interval(self.value - below, self.value + above, level, method)

    def _bounds(
        self, method: str, reward_range: tuple[float, float] | None, max_weight: float | None
    ) -> tuple[float, float]:
        if self.score_range is None:
            raise NeedsError(
                f"method={method!r} needs independent contributions with a known range, and those of {self.estimator} "
                "are not: it is a ratio (as with sampling weights), a contrast, or uses a model trained on this log. "
                "Use IPS, LoggedMean, or DR with FixedOutcome; or method='t', 'studentised', 'bca'."
            )
        if reward_range is None:
            raise InputError(
                f"method={method!r} needs reward_range=(low, high), in which rewards lie whatever this sample shows."
            )
        return self.score_range.bounds(reward_range, max_weight)

    def _bounded_units(self, bounds: tuple[float, float]) -> tuple[Floats, tuple[float, float]]:
        """Independent units with a known range whose mean is the value: rows, or the scaled plain sums of clusters."""
        if self.clusters is None:
            return self.contributions, bounds
        _, codes, sizes = np.unique(self.clusters, return_inverse=True, return_counts=True)
        scale = len(sizes) / len(self.contributions)
        low, high = (scale * bound * np.array([sizes.min(), sizes.max()]) for bound in bounds)
        sums = (scale * np.bincount(codes, weights=self.contributions)).astype(np.float64)
        return sums, (float(low.min()), float(high.max()))

    def __float__(self) -> float:
        return self.value

    def __sub__(self, other: Estimate) -> Estimate:
        """The paired contrast: difference of the values, standard error from the row-wise differences."""
        if not isinstance(other, Estimate):
            return NotImplemented
        if self.key != other.key:
            raise InputError(
                f"cannot subtract {other.estimator} from {self.estimator}: they come from different logs "
                f"({self.fingerprint[:12]}..., {other.fingerprint[:12]}...), so their rows are not paired."
            )
        return Estimate(
            estimator=f"{self.estimator} - {other.estimator}",
            value=self.value - other.value,
            contributions=self.contributions - other.contributions,
            key=self.key,
            diagnostics=lambda contrast: contrasted(self, other, contrast),
            clusters=self.clusters,
            sums=None if self.sums is None or other.sums is None else self.sums.minus(other.sums),
            ratio=self.ratio if other.ratio is None else None,
            unbiased=tuple(a - b for a, b in unbiased_pairs(self, other)),
        )

    @property
    def assumes(self) -> str | None:
        """What the interval that decisions rest on allows for and assumes, in a sentence; None without a bias."""
        bound = self.diagnostics.bias_bound
        return f"{allowance(bound, self.diagnostics.moved)}." if bound else None

    def without_bias(self, level: float) -> Interval | None:
        """What the interval would be without its allowance for a bias; None where it allows for none."""
        if not self.diagnostics.bias_bound:
            return None
        return self.interval(level, self._unbiased)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Plain types, ready for JSON, without contributions. stderr: what the contributions show; error: the one
        that intervals rest on, raised where few rows match. interval: the one that decisions rest on, at `level`;
        interval_without_bias: what it would be without its allowance for a bias, where it has one; assumes: the
        sentence on that."""
        without = self.without_bias(level)
        return {
            "estimator": self.estimator,
            "value": self.value,
            "stderr": self.stderr,
            "error": self.error,
            "interval": self.interval(level).to_dict(),
            "interval_without_bias": None if without is None else without.to_dict(),
            "assumes": self.assumes,
            "n": self.n,
            "fingerprint": self.fingerprint,
            "diagnostics": self.diagnostics.to_dict(),
        }

    def __repr__(self) -> str:
        return f"{self.estimator}: {self.value:.6g} ± {self.error:.3g} ({self._named()} {self.interval()})"

    def _named(self) -> str:
        """The interval that decisions rest on, in words."""
        return "bias-aware 95%" if self.method == "bias_aware" else "95%"

    def facts(self) -> list[tuple[str, str]]:
        """What the printed forms show, as (name, text) pairs."""
        d = self.diagnostics
        rows = [
            ("value", f"{self.value:.6g}"),
            ("standard error", f"{self.error:.3g}"),
            (f"{self._named()} interval", str(self.interval())),
            ("rows", f"{self.n:,}"),
            ("effective sample size", _shown(d.effective_sample_size, ",.1f")),
            ("largest weight", _shown(d.max_weight, ".4g")),
            ("mean weight", _shown(d.mean_weight, ".4g") + _shown(d.mean_weight_z, "+.1f", " (z = {})")),
            ("tail index", _shown(d.tail_index, ".2f")),
            ("unsupported target mass", _shown(d.unsupported_mass, ".1%")),
            ("weights changed", _shown(d.clipped_share, ".1%")),
            *(() if d.embedding is None else d.embedding.facts()),
            ("cross-fitted", {None: "", True: "yes", False: "no"}[d.cross_fitted]),
        ]
        return [(name, text) for name, text in rows if text]

    def sheet(self) -> Sheet:
        """What the printed forms show."""
        columns = (Column("fact", head=""), Column("text", head=""))
        doubts = (*((self.assumes,) if self.assumes else ()), *self.diagnostics.warnings)
        notes = tuple(Note(doubt, "warn") for doubt in doubts)
        return Sheet(self.estimator, columns, tuple(self.facts()), notes=notes)

    def to_frame(self, library: str | None = None) -> Any:
        """One row: the numbers of `to_dict`, as a data frame of pandas, or of polars where that is missing."""
        return frame_of_facts(self.to_dict(), library)

    def plot(self, axes: Any = None) -> Any:
        """Its intervals at three levels, on Matplotlib's axes, which are returned."""
        return plot_estimate(self, axes)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.sheet()

    def _repr_html_(self) -> str:
        return self.sheet().html()


def _shown(value: float | None, spec: str, frame: str = "{}") -> str:
    return "" if value is None else frame.format(format(value, spec))


def reworded(estimate: Estimate, limits: Thresholds) -> Estimate:
    """The estimate with warnings that follow these limits."""
    diagnostics = in_words(estimate.diagnostics, limits)
    same = diagnostics.warnings == estimate.diagnostics.warnings
    return estimate if same else replace(estimate, diagnostics=diagnostics)
