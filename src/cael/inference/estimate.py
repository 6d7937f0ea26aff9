"""Estimate: a value, its standard error, and the per-row contributions that everything else is made from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from cael.common.types import Floats, Ints, frozen
from cael.errors import InputError, NeedsError, choose
from cael.inference import intervals as inference
from cael.inference.diagnostics import Diagnostics, contrast_floor, in_words, of_contrast
from cael.inference.intervals import Interval
from cael.judging.thresholds import Thresholds
from cael.log.logged import LogKey
from cael.results.sheet import Column, Note, Sheet

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from cael.engine.moments import Combination


@final
@dataclass(frozen=True)
class ScoreRange:
    """How the range of a contribution follows from ranges known before the data.

    form: "mean" (z = r), "weighted" (z = w r), "doubly_robust" (z = q(x, pi) + w (r - q), q inside the reward range).
    max_weight: the largest weight possible, where the policies or a clip fix it; else the user must state it.
    """

    form: str
    max_weight: float | None

    def bounds(self, reward_range: tuple[float, float], max_weight: float | None) -> tuple[float, float]:
        low, high = map(float, reward_range)
        if not low < high:
            raise InputError(f"reward_range must be (low, high) with low < high; got {reward_range}.")
        if self.form == "mean":
            return low, high
        w = self.max_weight if max_weight is None else float(max_weight)
        if w is None or not math.isfinite(w):
            raise InputError(
                "the largest possible weight is not known beforehand: neither policy bounds it. State it with "
                "max_weight=, from how the policies were made and never from this sample; or clip the weights."
            )
        if self.form == "weighted":
            return min(0.0, w * low), max(0.0, w * high)
        return low - w * (high - low), high + w * (high - low)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """What an estimator says about a policy's value.

    estimator: its name. value: the estimate. contributions: (n,), read-only; their mean is the value, and centred
    they are its influence function (nuisances held fixed). key: of the log. `a - b` is a paired contrast.

    sums: what a pass kept of the rows; the standard error is exact. Of a log that was streamed (`cael.scan`)
    `contributions` has one number for each of at most 997 buckets of rows instead of one per row.
    """

    estimator: str
    value: float
    contributions: Floats
    key: LogKey
    diagnostics: Diagnostics
    clusters: Ints | None = None
    score_range: ScoreRange | None = None
    sums: Combination | None = None
    stderr: float = field(init=False)

    def __post_init__(self) -> None:
        z = self.contributions
        if z.flags.writeable:
            z.setflags(write=False)
        if not np.isfinite(self.value):
            raise InputError(f"{self.estimator}: the estimate is {self.value}; a weight or a prediction overflowed.")
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "stderr", inference.stderr(self.units) if self.sums is None else self.sums.stderr)

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
        return "normal" if self.diagnostics.bias_bound is None else "bias_aware"

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

        That is "bias_aware" where the estimate has a bound on its bias (`diagnostics.bias_bound`), else "normal".
        Others by name: "t", "studentised" or "bca" (bootstrap), or one with a finite-sample guarantee: "bernstein",
        "betting". The last two need `reward_range`, the range in which rewards lie by their nature, and the largest
        possible weight, which the policies supply where they can and `max_weight` states otherwise. The sample's own
        maximum is never used: such an interval would guarantee nothing. "bias_aware" allows for a bias as large as
        the bound; the others are about the estimate's expectation.
        """
        method = self.method if method is None else method
        choose("method", method, inference.METHODS)
        if method == "bias_aware":
            return self._bias_aware(level)
        if self.streamed:
            return self._streamed(level, method, resamples, seed)
        z, bounds = self.units, None
        if method in ("bernstein", "betting"):
            z, bounds = self._bounded_units(self._bounds(method, reward_range, max_weight))
        return inference.interval(z, level, method, bounds=bounds, resamples=resamples, seed=seed)

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

    def _bias_aware(self, level: float) -> Interval:
        d = self.diagnostics
        if d.bias_bound is None:
            raise NeedsError(
                f"method='bias_aware' needs a bound on the bias, and {self.estimator} has none. CAEL and Auto have; "
                "for the others, the interval covers the estimate's expectation only."
            )
        inference.check_level(level)
        error = max(self.stderr, d.stderr_floor or 0.0)
        interval = inference.bias_aware(self.value, error, d.bias_bound, 1 - (1 - level) / d.choices)
        return replace(interval, level=level)

    def _bounds(
        self, method: str, reward_range: tuple[float, float] | None, max_weight: float | None
    ) -> tuple[float, float]:
        if self.score_range is None:
            raise NeedsError(
                f"method={method!r} needs independent contributions with a known range, and those of {self.estimator} "
                "are not: it is a ratio, a contrast, or uses a model trained on the same log. Use IPS, LoggedMean, or "
                "DR with FixedOutcome; or method='t', 'studentised', 'bca'."
            )
        if reward_range is None:
            raise InputError(
                f"method={method!r} needs reward_range=(low, high): the range in which rewards lie by their nature, "
                "not the range seen in this sample."
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

    def __sub__(self, other: Estimate) -> Estimate:
        """The paired contrast: difference of the values, standard error from the row-wise differences."""
        if not isinstance(other, Estimate):
            return NotImplemented
        if self.key != other.key:
            raise InputError(
                f"cannot subtract {other.estimator} from {self.estimator}: they come from different logs "
                f"({self.fingerprint[:12]}..., {other.fingerprint[:12]}...), so their rows are not paired."
            )
        contrast = Estimate(
            estimator=f"{self.estimator} - {other.estimator}",
            value=self.value - other.value,
            contributions=self.contributions - other.contributions,
            key=self.key,
            diagnostics=of_contrast(self.diagnostics, other.diagnostics),
            clusters=self.clusters,
            sums=None if self.sums is None or other.sums is None else self.sums.minus(other.sums),
        )
        floor = contrast_floor(
            (self.stderr, other.stderr, contrast.stderr),
            (self.diagnostics.stderr_floor, other.diagnostics.stderr_floor),
        )
        diagnostics = replace(contrast.diagnostics, stderr_floor=floor)
        return contrast if floor is None else replace(contrast, diagnostics=diagnostics)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Plain types, ready for JSON, without contributions. interval: the one that decisions rest on, at `level`;
        normal_interval: where that is another one."""
        return {
            "estimator": self.estimator,
            "value": self.value,
            "stderr": self.stderr,
            "interval": self.interval(level).to_dict(),
            "normal_interval": None if self.method == "normal" else self.interval(level, "normal").to_dict(),
            "n": self.n,
            "fingerprint": self.fingerprint,
            "diagnostics": self.diagnostics.to_dict(),
        }

    def __repr__(self) -> str:
        return f"{self.estimator}: {self.value:.6g} ± {self.stderr:.3g} ({self._named()} {self.interval()})"

    def _named(self) -> str:
        """The interval that decisions rest on, in words."""
        return "95%" if self.method == "normal" else f"{self.method.replace('_', '-')} 95%"

    def facts(self) -> list[tuple[str, str]]:
        """What the printed forms show, as (name, text) pairs."""
        d = self.diagnostics
        rows = [
            ("value", f"{self.value:.6g}"),
            ("standard error", f"{self.stderr:.3g}"),
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
        notes = tuple(Note(warning, "warn") for warning in self.diagnostics.warnings)
        return Sheet(self.estimator, columns, tuple(self.facts()), notes=notes)

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
