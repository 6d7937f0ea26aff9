"""evaluate: the panel of estimates of one policy, side by side, with the verdict on them."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from cael.common.version import __version__
from cael.engine.moments import Combination
from cael.inference.estimate import Estimate
from cael.inference.intervals import Interval
from cael.inference.lift import lift_dict, lift_of
from cael.inference.overlap import Overlap
from cael.judging.verdict import Verdict
from cael.results.pictures import axis, picture

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

PLOT_WIDTH = 25


@final
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The estimates of one policy's value, side by side.

    estimates: in the order of the panel. skipped: (estimator, reason) for those of the panel that this log or policy
    does not allow. log, policy: in words. headline: the name of the estimate that `best`, `lift` and `verdict` are
    about. overlap: where the weight of the policy lies in the log (None: there are no weights). control: (n,) of
    `cael.inference.lift.control`, for the lift (None: the logging policy is not known in full).
    """

    estimates: tuple[Estimate, ...]
    skipped: tuple[tuple[str, str], ...]
    log: str
    policy: str
    headline: str
    verdict: Verdict
    overlap: Overlap | None = None
    level: float = 0.95
    control: Combination | None = None

    @property
    def best(self) -> Estimate:
        """The estimate that the verdict is about."""
        return self[self.headline]

    @property
    def baseline(self) -> Estimate:
        """The value of the logging policy: the mean logged reward."""
        return self["LoggedMean"]

    @property
    def lift(self) -> Estimate:
        """The best estimate minus the mean logged reward, paired row by row; its bias is that of the best estimate.

        Where the logging policy is known in full, what chance did to the logged actions is taken out, so that the value
        is not exactly the difference of the two.
        """
        return lift_of(self.best, self.baseline, self.control)

    @property
    def direction(self) -> str:
        """Whether the interval of the lift lies above 0 ("better"), below ("worse"), or holds it."""
        return direction(self.lift.interval(self.level))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the log."""
        return self.best.fingerprint

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates)

    def __getitem__(self, name: str) -> Estimate:
        for each in self.estimates:
            if each.estimator == name:
                return each
        names = ", ".join(each.estimator for each in self.estimates)
        why = dict(self.skipped).get(name)
        raise KeyError(f"no estimate named {name!r}" + (f" ({why})" if why else f"; there are: {names}"))

    def __repr__(self) -> str:
        return f"Evaluation({'; '.join(repr(each) for each in self.estimates)})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        lift = self.lift
        return {
            "version": __version__,
            "log": self.log,
            "fingerprint": self.fingerprint,
            "policy": self.policy,
            "level": self.level,
            "headline": self.headline,
            "verdict": self.verdict.to_dict(),
            "lift": lift_dict(lift, self.baseline, lift.interval(self.level), adjusted=self.control is not None),
            "direction": self.direction,
            "overlap": None if self.overlap is None else self.overlap.to_dict(),
            "estimates": [each.to_dict(self.level) for each in self.estimates],
            "skipped": [{"estimator": name, "reason": reason} for name, reason in self.skipped],
        }

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def rows(self) -> list[tuple[str, ...]]:
        """What the printed forms show: name, value, stderr, interval, effective sample size, largest weight."""
        return [
            (
                each.estimator,
                f"{each.value:.5g}",
                f"{each.stderr:.2g}",
                f"[{(i := each.interval(self.level)).low:.5g}, {i.high:.5g}]",
                _number(each.diagnostics.effective_sample_size, ",.0f"),
                _number(each.diagnostics.max_weight, ".4g"),
            )
            for each in self.estimates
        ]

    def doubts(self) -> list[str]:
        """Every warning once, with the estimators that it concerns."""
        said: dict[str, list[str]] = {}
        for each in self.estimates:
            for warning in each.diagnostics.warnings:
                said.setdefault(warning, []).append(each.estimator)
        told = [f"{', '.join(names)}: {warning}" for warning, names in said.items()]
        told = [
            *(
                f"{each.estimator}: the interval counts a bias of up to {each.diagnostics.bias_bound:.3g}; the normal "
                f"one, which does not, is {each.interval(self.level, 'normal')}."
                for each in self.estimates
                if each.diagnostics.bias_bound
            ),
            *told,
        ]
        return [*told, *(f"{name} was not computed: {reason}" for name, reason in self.skipped)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        wide = options.max_width >= 110
        title = Text(f"{self.policy} on\n{self.log}", style="table.title")
        table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1))
        for name in ("estimator", "value", "error", f"{self.level:.0%} interval", "", "eff. n", "max weight"):
            numeric = name in ("value", "error", "eff. n", "max weight")
            table.add_column(name, justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis")
        for row, drawn in zip(self.rows(), self._pictures(PLOT_WIDTH if wide else PLOT_WIDTH // 2), strict=True):
            table.add_row(*row[:4], drawn, *row[4:])
        if not wide:
            del table.columns[-1]
        yield table
        yield self.verdict
        for doubt in self.doubts():
            yield Text(f"! {doubt}", style="yellow")

    def _pictures(self, width: int) -> list[str]:
        intervals = [each.interval(self.level) for each in self.estimates]
        left, right = axis([(i.low, i.high) for i in intervals])
        pairs = zip(self.estimates, intervals, strict=True)
        return [picture(i.low, each.value, i.high, left, right, width) for each, i in pairs]

    def _repr_html_(self) -> str:
        head = ("estimator", "value", "std. error", f"{self.level:.0%} interval", "eff. n", "max weight")
        notes = "".join(f"<li>{html.escape(doubt)}</li>" for doubt in self.doubts())
        return (
            self.verdict._repr_html_()
            + f"<table><caption>{html.escape(self.policy)} on {html.escape(self.log)}</caption>"
            f"{html_rows(head, self.rows())}</table><ul>{notes}</ul>"
        )


def direction(interval: Interval) -> str:
    """Whether an interval of a lift lies above 0 ("better"), below ("worse"), or holds it ("no difference shown")."""
    return "better" if interval.low > 0 else "worse" if interval.high < 0 else "no difference shown"


def _number(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)


def html_rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of an HTML table."""
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
