"""Verdict: ok, caution or refuse, each reason one sentence with its number; one place turns facts into trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

from cael.judging.thresholds import DEFAULT, Thresholds
from cael.results.notebook import paragraphs
from cael.results.sheet import Note

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

LEVELS = ("ok", "caution", "refuse")
STATUSES = ("pass", "unknown", "warn", "fail")
MEANING = {
    "ok": "All checks passed.",
    "caution": "Use the number with the doubts below in mind.",
    "refuse": "Do not base a decision on this number.",
}


@final
@dataclass(frozen=True)
class Check:
    """One check: its name, how it came out ("pass", "warn", "fail", or "unknown": it could not be made), its number,
    and a sentence with the number in it.

    name: of the check. status: how it came out. value: its number (None: it has none). sentence: in words.
    """

    name: str
    status: str
    value: float | None
    sentence: str


def worst(checks: Sequence[Check]) -> str:
    """The worst status: "fail", "warn" or "pass"; what is unknown does not count."""
    return max(("pass", *(check.status for check in checks if check.status != "unknown")), key=STATUSES.index)


def by_gravity(checks: Sequence[Check]) -> list[Check]:
    """The checks, worst first, otherwise in their own order."""
    return sorted(checks, key=lambda check: -STATUSES.index(check.status))


def doubts(checks: Sequence[Check]) -> tuple[Note, ...]:
    """The sentences of the checks that warn or fail."""
    return tuple(Note(check.sentence, check.status) for check in checks if check.status in ("warn", "fail"))


@final
@dataclass(frozen=True)
class Verdict:
    """Whether a number can be trusted: "ok", "caution" or "refuse", with every check that was made.

    estimator: the estimate that it is about. It says nothing about whether the policy is good. thresholds: by which the
    checks were judged.

    level: "ok", "caution" or "refuse". checks: all that were made.
    """

    level: str
    estimator: str
    checks: tuple[Check, ...]
    thresholds: Thresholds = DEFAULT

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences of the checks that warn or fail, worst first."""
        return tuple(doubt.sentence for doubt in doubts(by_gravity(self.checks)))

    @property
    def meaning(self) -> str:
        """What the level means, in a sentence."""
        return MEANING[self.level]

    def __repr__(self) -> str:
        return f"Verdict({self.level}, {self.estimator}" + "".join(f"; {reason}" for reason in self.reasons) + ")"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "level": self.level,
            "estimator": self.estimator,
            "reasons": list(self.reasons),
            "checks": [asdict(check) for check in self.checks],
            "thresholds": self.thresholds.to_dict(),
        }

    def notes(self) -> tuple[Note, ...]:
        """What it says: the level, and every check that warns or fails."""
        top = Note(f"verdict: {self.level} ({self.estimator}). {self.meaning}", self.level)
        return (top, *doubts(by_gravity(self.checks)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from (note.rich() for note in self.notes())

    def _repr_html_(self) -> str:
        return paragraphs(self.notes())


def verdict_of(estimator: str, checks: Sequence[Check], limits: Thresholds = DEFAULT) -> Verdict:
    """The verdict that checks add up to: one that fails refuses, one that warns is a caution."""
    level = {"pass": "ok", "warn": "caution", "fail": "refuse"}[worst(checks)]
    return Verdict(level, estimator, tuple(checks), limits)
