"""audit: is this log what it says it is? Propensities, frequencies, drift, duplicates and support; no target needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, final

from cael.errors import InputError, positive_int
from cael.judging import audit_checks as C
from cael.judging.audit_checks import Frequency, Period
from cael.judging.survey import survey, time_blocks
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Check, by_gravity, worst
from cael.log.logged import LoggedData
from cael.results.sheet import Column, Note, Sheet

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

MOST_SHOWN = 20


@final
@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What speaks for and against a log, before any policy is asked about.

    checks: each with a status and a sentence. actions: the frequencies that are furthest off, at most 20. deciles: how
    often actions were taken whose stated probability lies in a range (empty where the logging policy is not known).
    periods: the log in stretches of time. fingerprint: of the log.
    """

    log: str
    fingerprint: str
    checks: tuple[Check, ...]
    actions: tuple[Frequency, ...]
    deciles: tuple[Frequency, ...]
    periods: tuple[Period, ...]

    @property
    def status(self) -> str:
        """The worst of the checks: "pass", "warn" or "fail"."""
        return worst(self.checks)

    def __getitem__(self, name: str) -> Check:
        for each in self.checks:
            if each.name == name:
                return each
        raise KeyError(f"no check named {name!r}; there are: {', '.join(each.name for each in self.checks)}")

    def __repr__(self) -> str:
        told = "; ".join(each.sentence for each in by_gravity(self.checks) if each.status in ("warn", "fail"))
        return f"Audit({self.status}" + (f"; {told}" if told else "") + ")"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        told = asdict(self)
        return {"status": self.status, **{k: list(v) if isinstance(v, tuple) else v for k, v in told.items()}}

    def sheet(self) -> Sheet:
        """What the printed forms show."""
        rows = tuple((each.name, each.status, each.sentence) for each in self.checks)
        return Sheet(self._title, (Column("check"), Column("status"), Column("sentence", head="")), rows)

    @property
    def _title(self) -> str:
        return f"audit: {self.status} of {self.log}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Note(self._title).rich()
        yield from (Note(each.sentence, each.status).rich() for each in self.checks)

    def _repr_html_(self) -> str:
        return self.sheet().html()


def audit(
    log: LoggedData,
    *,
    p_value: float | None = None,
    blocks: int = 10,
    names: Sequence[object] | None = None,
    thresholds: Thresholds | None = None,
) -> Audit:
    """Check a log against itself: what the propensities say should have happened, and what did.

    thresholds: where a doubt becomes a warning or a failure. p_value: below it a deviation counts as beyond chance, by
    default that of the thresholds; every family of tests (actions, deciles, periods) keeps its chance of even one false
    alarm below it (Holm). blocks: stretches of time, in the order of the timestamps, or of the
    rows where there are none. names: (k,) of the actions, for the messages; their numbers if None.

    >>> import cael
    >>> log, _ = cael.testing.example()
    >>> cael.audit(log).status
    'pass'
    """
    if not isinstance(log, LoggedData):
        raise InputError(f"expected a cael.LoggedData; got {type(log).__name__}.")
    limits = DEFAULT if thresholds is None else thresholds
    limits = limits if p_value is None else replace(limits, p_value=p_value)
    if names is not None and len(names) != log.n_actions:
        raise InputError(f"names must have one entry for each of the {log.n_actions} actions; got {len(names)}.")
    positive_int("blocks", blocks, least=2)
    if len(log) < 2 * blocks:
        raise InputError(
            f"an audit needs at least {2 * blocks} rows, 2 for each of {blocks} stretches of time; the log has "
            f"{len(log)}. Pass a smaller blocks=."
        )
    found, block = survey(log), time_blocks(log, blocks)
    actions, deciles = C.by_action(log, found, limits, names), C.by_decile(log)
    periods = C.by_period(log, found, block)
    checks = [
        C.known(log, found),
        C.sums(log, found, limits),
        C.rounding(log, limits),
        C.action_check(actions, limits, len(log)),
        C.decile_check(deciles, limits),
        C.surprise_check(log, found, limits),
        C.column_check(log, found, limits),
        C.effect_check(log, limits),
        C.period_check(periods, limits),
        *C.drifts(log, block, limits),
        C.duplicates(log, limits),
        C.support(log, found, limits),
        C.reward(log, limits),
    ]
    shown = sorted(actions, key=lambda each: 1.0 if each.p_value is None else each.p_value)[:MOST_SHOWN]
    return Audit(
        repr(log), log.fingerprint, tuple(each for each in checks if each), tuple(shown), deciles, periods
    )  # fmt: skip
