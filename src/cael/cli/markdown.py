"""Results as Markdown tables. Text from the data is escaped: no cell can break out of its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cael.judging.audits import Audit
from cael.judging.verdict import Check
from cael.results.calibration import HEAD as CALIBRATION_HEAD
from cael.results.calibration import Calibration
from cael.results.comparison import Comparison
from cael.results.evaluation import Evaluation
from cael.results.planning import Plan
from cael.results.segmentation import HEAD as SEGMENTS_HEAD
from cael.results.segmentation import Segments


def cell(text: str) -> str:
    """Text inside a table or a list."""
    for mark in ("\\", "|", "`", "*", "_", "[", "]", "<", ">", "#", "~", "&"):
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(map(cell, head))} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)])


def bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {cell(text)}" for text in texts)


def checks(found: Sequence[Check]) -> str:
    return table(("check", "status", ""), [(each.name, each.status, each.sentence) for each in found])


def markdown(result: Any) -> str:
    """A result as Markdown: what it says first, then its table, then the doubts."""
    parts = WRITERS[type(result)](result)
    return "\n\n".join(part for part in parts if part)


def _evaluation(found: Evaluation) -> list[str]:
    head = ("estimator", "value", "std. error", f"{found.level:.0%} interval", "eff. n", "max weight")
    lift = found.lift
    return [
        f"**{cell(found.policy)}** on {cell(found.log)}",
        f"**Verdict: {found.verdict.level}** ({cell(found.headline)}). {cell(found.verdict.meaning)}",
        bullets(found.verdict.reasons),
        f"Lift over the logging policy: {lift.value:+.5g} {cell(str(lift.interval(found.level)))}, {found.direction}.",
        table(head, found.rows()),
        bullets(found.doubts()),
    ]


def _comparison(found: Comparison) -> list[str]:
    head = ("policy", "value", "lift", f"interval, simultaneous {found.level:.0%}", "", "verdict")
    top = f"Logging policy: {found.baseline.value:.5g} ± {found.baseline.stderr:.2g}"
    return [top, table(head, found.table()), bullets(found.doubts())]


def _audit(found: Audit) -> list[str]:
    return [f"**Audit: {found.status}** of {cell(found.log)}", checks(found.checks)]


def _plan(found: Plan) -> list[str]:
    doubts = [each.sentence for each in found.checks if each.status in ("warn", "fail")]
    told = table(("drawn uniformly", "rows needed", "cost per row"), found.table())
    return [" ".join(map(cell, found.sentences())), told, bullets(doubts)]


def _segments(found: Segments) -> list[str]:
    return [
        f"**{cell(found.estimator)}, by {found.kind}**",
        table(SEGMENTS_HEAD, found.table()),
        cell(found.sentence()),
    ]


def _calibration(found: Calibration) -> list[str]:
    return ["**Planted rewards**", table(CALIBRATION_HEAD, found.table()), cell(found.sentence())]


WRITERS: dict[type, Any] = {
    Evaluation: _evaluation,
    Comparison: _comparison,
    Audit: _audit,
    Plan: _plan,
    Segments: _segments,
    Calibration: _calibration,
}
