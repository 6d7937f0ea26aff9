"""audit: is this log what it says it is? Propensities, frequencies, drift, duplicates and support; no target needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, final

from cael.engine.answer import Answer
from cael.engine.asking import as_engine_log, ask
from cael.engine.nuisances import all_alike, in_memory
from cael.engine.work import STRETCHES
from cael.errors import InputError, positive_int
from cael.estimators.doubly_robust import DR
from cael.judging import audit_checks as C
from cael.judging.audit_checks import Frequency, Period
from cael.judging.checks import column, effect
from cael.judging.judge import blocks_of, setless, survey_of, timeless
from cael.judging.survey import time_blocks
from cael.judging.thresholds import DEFAULT, Thresholds
from cael.judging.verdict import Check, by_gravity, doubts, worst
from cael.log.logged import LoggedData
from cael.log.scanned import ScannedLog
from cael.policies.policy import Uniform
from cael.results.plots import plot_audit
from cael.results.sheet import Column, Note, Sheet, Shown, named

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

MOST_SHOWN = 20


@final
@dataclass(frozen=True, eq=False, repr=False)
class Audit(Shown):
    """What supports and what contradicts a log, before any policy is asked about.

    checks: each with a status and a sentence. actions: the frequencies that are furthest off, at most 20. deciles: how
    often actions were taken whose stated probability lies in a range (empty where the logging policy is not known).
    periods: the log in time periods. fingerprint: of the log.
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
        return named("check", {check.name: check for check in self.checks}, name)

    def __repr__(self) -> str:
        return f"Audit({'; '.join([self.status, *(doubt.sentence for doubt in doubts(by_gravity(self.checks)))])})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        fields = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}
        return {"status": self.status, **fields}

    def sheet(self) -> Sheet:
        rows = tuple((check.name, check.status, check.sentence) for check in self.checks)
        return Sheet(self._title, (Column("check"), Column("status"), Column("sentence", head="")), rows)

    @property
    def _title(self) -> str:
        return f"audit: {self.status}. {self.log}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Note(self._title).rich()
        yield from (Note(check.sentence, check.status).rich() for check in self.checks)

    def plot(self, axes: Any = None) -> Any:
        """Rows of the actions against what the propensities say, on Matplotlib's axes, which are returned."""
        return plot_audit(self, axes)


def audit(
    log: LoggedData | ScannedLog,
    *,
    p_value: float | None = None,
    blocks: int = 10,
    names: Sequence[object] | None = None,
    thresholds: Thresholds | None = None,
) -> Audit:
    """Check a log against itself: what the propensities say should have happened, and what did.

    thresholds: where a doubt becomes a warning or a failure. p_value: below it a deviation counts as beyond chance, by
    default that of the thresholds; every family of tests (actions, deciles, periods) keeps its chance of even one false
    alarm below it (Holm). blocks: time periods, in the order of the timestamps, or of the rows where there are
    none. names: (k,) of the actions, for the messages; their numbers if None. log: in memory, or scanned (`cael.scan`):
    counts, sums, surprise, periods and the drift of the rewards are of all its rows, the other checks of a sample.

    >>> import cael
    >>> log, _ = cael.testing.example()
    >>> cael.audit(log).status
    'pass'
    """
    limits = thresholds or DEFAULT
    limits = limits if p_value is None else replace(limits, p_value=p_value)
    engine_log = as_engine_log(log)
    k = engine_log.n_actions
    if names is not None and len(names) != k:
        raise InputError(f"names must have one entry for each of the {k} actions; got {len(names)}.")
    positive_int("blocks", blocks, least=2)
    uniform, sets = Uniform(k), engine_log.has_eligible
    only_logged = engine_log.has_propensities and engine_log.logging is None
    # Where the eligible actions change, so do the rewards: what a model leaves of them should not.
    answer = ask(engine_log, {"uniform": uniform} if only_logged or sets else {}, [DR()] if sets else [])
    if answer.n < 2 * blocks or blocks > STRETCHES:
        raise InputError(
            f"an audit needs at least {2 * blocks} rows, 2 for each of {blocks} time periods (at most "
            f"{STRETCHES}); the log has {answer.n}. Pass a smaller blocks=."
        )
    there = in_memory(log, uniform, 0)[0]
    rows = all_alike(there, "an audit")
    checks, actions, deciles, periods = _checked(answer, rows, there, blocks, names, limits)
    shown = sorted(actions, key=lambda action: 1.0 if action.p_value is None else action.p_value)[:MOST_SHOWN]
    return Audit(
        engine_log.described(answer.n), engine_log.key.fingerprint, checks, tuple(shown), deciles, periods
    )  # fmt: skip


def _checked(
    answer: Answer, rows: LoggedData, there: LoggedData, blocks: int, names: Sequence[object] | None, limits: Thresholds
) -> tuple[tuple[Check, ...], tuple[Frequency, ...], tuple[Frequency, ...], tuple[Period, ...]]:
    """The checks, and the frequencies and periods that they rest on. rows: that count alike, in memory, for checks of
    single rows, and there: all of these."""
    counts, block, whole = survey_of(answer), time_blocks(rows, blocks), answer.log.logging is not None
    why = timeless(answer, blocks, 2 * blocks)
    runs = [] if why else blocks_of(answer, blocks)
    actions, deciles = C.by_action(answer, counts, limits, names), C.by_decile(rows)
    propensities = [
        None if rows.propensities is None else float(rows.propensities[block == b].mean()) for b in range(len(runs))
    ]
    periods = C.by_period(answer, runs, propensities, limits)
    checks = [
        C.known(answer),
        C.sums(answer, limits),
        C.rounding(rows, limits),
        C.action_check(actions, limits, answer.n, open=setless(answer)),
        C.decile_check(deciles, limits),
        C.surprise_check(answer, limits),
        column(rows, limits, known=whole, so="."),
        effect(rows, limits),
        C.period_check(periods, limits),
        *(C.drifts(answer, runs, rows, block, limits) if runs else C.no_drifts(why)),
        C.duplicates(there, answer.n, limits),
        C.support(rows, counts, limits),
        C.reward(rows, limits),
    ]
    return tuple(check for check in checks if check is not None), actions, deciles, periods
