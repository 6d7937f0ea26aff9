"""Verdict: ok, caution or refuse, each reason one sentence with its number; one place turns facts into trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

from cael.errors import InputError
from cael.results.sheet import Note, paragraphs

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

LEVELS = ("ok", "caution", "refuse")
STATUSES = ("pass", "unknown", "warn", "fail")
MEANING = {
    "ok": "All checks passed.",
    "caution": "The number may be used with the doubts below in mind.",
    "refuse": "Do not decide on this number.",
}


@final
@dataclass(frozen=True)
class Check:
    """One check: its name, how it came out ("pass", "warn", "fail", or "unknown": it could not be made), its number,
    and a sentence with the number in it."""

    name: str
    status: str
    value: float | None
    sentence: str


def worst(checks: Sequence[Check]) -> str:
    """The worst status: "fail", "warn" or "pass"; what is unknown does not count."""
    found = max((STATUSES.index(each.status) for each in checks), default=0)
    return "pass" if STATUSES[found] == "unknown" else STATUSES[found]


def by_gravity(checks: Sequence[Check]) -> list[Check]:
    """The checks, worst first, otherwise in their own order."""
    return sorted(checks, key=lambda each: -STATUSES.index(each.status))


def doubts(checks: Sequence[Check]) -> tuple[Note, ...]:
    """The sentences of the checks that warn or fail."""
    return tuple(Note(each.sentence, each.status) for each in checks if each.status in ("warn", "fail"))


@final
@dataclass(frozen=True)
class Verdict:
    """Whether a number can be trusted: "ok", "caution" or "refuse", with every check that was made.

    estimator: the estimate that it is about. It says nothing about whether the policy is good.
    """

    level: str
    estimator: str
    checks: tuple[Check, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences of the checks that warn or fail, worst first."""
        return tuple(each.sentence for each in by_gravity(self.checks) if each.status in ("warn", "fail"))

    @property
    def meaning(self) -> str:
        """What the level means, in a sentence."""
        return MEANING[self.level]

    def __repr__(self) -> str:
        return f"Verdict({self.level}, {self.estimator}" + "".join(f"; {each}" for each in self.reasons) + ")"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "level": self.level,
            "estimator": self.estimator,
            "reasons": list(self.reasons),
            "checks": [asdict(each) for each in self.checks],
        }

    def notes(self) -> tuple[Note, ...]:
        """What it says: the level, and every check that warns or fails."""
        top = Note(f"verdict: {self.level} ({self.estimator}). {self.meaning}", self.level)
        return (top, *doubts(by_gravity(self.checks)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from (note.rich() for note in self.notes())

    def _repr_html_(self) -> str:
        return paragraphs(self.notes())


def verdict_of(estimator: str, checks: Sequence[Check]) -> Verdict:
    """The verdict that checks add up to: one that fails refuses, one that warns is a caution."""
    level = {"pass": "ok", "warn": "caution", "fail": "refuse"}[worst(checks)]
    return Verdict(level, estimator, tuple(checks))


@final
@dataclass(frozen=True)
class Thresholds:
    """Where a doubt becomes a caution, and where it becomes a refusal: (caution, refuse), each with its reason.

    effective_rows: the worth of the weighted rows. Below the first, a normal interval of skewed contributions is known
        to cover too little; below the second there is no sample to speak of.
    largest_share: share of all the weight on one row. What one row can overturn is no average.
    skewness: |skewness of the contributions| / sqrt(rows). By the Edgeworth expansion one side of a 95% interval errs
        by about 0.085 times it: 0.25 costs two points of coverage, 1 costs eight.
    tail_index: Pareto k of the largest weights. Above 0.7 an average of them settles too slowly to be used (Vehtari et
        al. 2024); from 1 on they have no mean.
    mean_weight_z: the mean weight is 1 if the propensities are right; distance in standard errors. 3 happens by chance
        once in 400 logs, 5 never.
    unsupported_mass: the target's probability of actions that the logging policy never plays. The value of that share
        of decisions is unknown whatever the rows say.
    disagreement: largest paired distance, in standard errors, between estimators that are all consistent. Three pairs
        are looked at, so 3.5 happens by chance once in 700 logs.
    misplaced: share of rows whose action the propensities do not explain, counted over the actions whose frequency is
        off beyond chance. Half a percent is rounding; five percent is another policy.
    surprise: by how much the logged actions are less (or more) likely under the logging policy than it says of itself,
        in nats. 0.005 is rounding; 0.05 is another policy.
    drift: change of the logged reward from the first four fifths of the log to the last, in half-widths of the
        interval, where it is beyond chance. From 0.5 on, an interval for the whole log misses today's value several
        times as often as it says. It never refuses: the number is right for the period of the log.
    bias: the bound on the bias of the estimate, in half-widths of the interval, where the estimator knows one. Above 1
        the bias can be larger than the noise.
    p_value: below it a deviation counts as beyond chance; 0.001, as every log is checked for many things.
    drift_p_value: the same for drift, which never refuses: a caution costs little, and drift is hard to see.
    """

    effective_rows: tuple[float, float] = (100.0, 20.0)
    largest_share: tuple[float, float] = (0.1, 0.3)
    skewness: tuple[float, float] = (0.25, 1.0)
    tail_index: tuple[float, float] = (0.7, 1.0)
    mean_weight_z: tuple[float, float] = (3.0, 5.0)
    unsupported_mass: tuple[float, float] = (0.01, 0.1)
    disagreement: tuple[float, float] = (3.5, 6.0)
    misplaced: tuple[float, float] = (0.005, 0.05)
    surprise: tuple[float, float] = (0.005, 0.05)
    drift: tuple[float, float] = (0.5, float("inf"))
    bias: tuple[float, float] = (1.0, 5.0)
    p_value: float = 0.001
    drift_p_value: float = 0.01

    def __post_init__(self) -> None:
        for name, pair in asdict(self).items():
            if name.endswith("p_value"):
                if not 0 < pair < 1:
                    raise InputError(f"{name} must be between 0 and 1; got {pair!r}.")
                continue
            if len(pair) != 2 or not all(isinstance(each, int | float) and each >= 0 for each in pair):
                raise InputError(f"{name} must be (caution, refuse), two numbers >= 0; got {pair!r}.")
            caution, refuse = pair
            if caution < refuse if name == "effective_rows" else caution > refuse:
                raise InputError(f"{name}: a refusal must not come before a caution; got {pair!r}.")

    def status(self, name: str, value: float) -> str:
        """How a value stands to the two thresholds of a name; of effective_rows less is worse."""
        caution, refuse = getattr(self, name)
        if name == "effective_rows":
            return "fail" if value < refuse else "warn" if value < caution else "pass"
        return "fail" if value > refuse else "warn" if value > caution else "pass"
