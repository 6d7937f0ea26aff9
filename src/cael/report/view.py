"""What a report says: numbers and words taken from results, ready for a template. No HTML here, and no drawing."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from cael.common.version import __version__
from cael.inference.intervals import Interval
from cael.inference.overlap import Overlap
from cael.judging.audits import Audit
from cael.judging.verdict import MEANING, Check, by_gravity
from cael.report.method import method_of
from cael.results.calibration import Calibration
from cael.results.comparison import Comparison
from cael.results.evaluation import Evaluation
from cael.results.headline import CHANCE, Headline
from cael.results.lifts import LOGGING, direction
from cael.results.planning import Plan
from cael.results.scorecard import Scorecard
from cael.results.segmentation import Segments
from cael.results.sheet import Column, Sheet, level_text, number, signed, text_of

MOST_ROWS = 60
FEW_GROUPS, MOST_GROUPS = 2, 4
"""Segment columns, and windows of time, that a page shows with a picture and a table; of others it gives a sentence."""
MOST_DECISIONS = 5
MOST_SENTENCES = 20
MOST_TEXT = 300
TITLES = {
    "evidence": "Evidence",
    "effective_rows": "Enough rows",
    "unsmoothed_rows": "Rows of the log alone",
    "successes": "Enough successes",
    "largest_share": "No row dominates",
    "skewness": "Evenness",
    "reward_tail": "Extreme rewards",
    "tail_index": "Extreme weights",
    "mean_weight": "Mean weight",
    "support": "Support",
    "disagreement": "Agreement",
    "frequencies": "Action frequencies",
    "surprise": "Logging policy",
    "propensity_column": "Propensity column",
    "action_effect": "Effect of actions",
    "drift": "Drift",
    "bias": "Bias",
    "propensities": "Propensities",
    "sums": "Sums",
    "rounding": "Rounding",
    "calibration": "Calibration",
    "periods": "Over time",
    "reward_drift": "Reward over time",
    "action_drift": "Actions over time",
    "duplicates": "Duplicates",
    "rewards": "Rewards",
}


@final
@dataclass(frozen=True)
class Grid:
    """A table: heads, rows of text, which columns are numbers, and a class for each row ("" for none)."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    classes: tuple[str, ...]
    note: str = ""


def short(text: object, most: int = MOST_TEXT) -> str:
    """Text of at most so many characters; strings of the data must not decide the size of a page."""
    text = str(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def grid(sheet: Sheet) -> Grid:
    """The table of a sheet, of at most 60 rows."""
    more = len(sheet.rows) - MOST_ROWS
    return Grid(
        tuple(column.title or column.name for column in sheet.columns),
        tuple(tuple(short(text, 80) for text in row) for row in sheet.texts()[:MOST_ROWS]),
        tuple(column.kind != "text" for column in sheet.columns),
        sheet.styles[:MOST_ROWS] or ("",) * len(sheet.rows[:MOST_ROWS]),
        f"{more:,} more rows are not shown." if more > 0 else "",
    )


def ends(rows: Sequence[Any], most: int) -> list[Any]:
    """The first and the last rows, at most so many together."""
    return list(rows) if len(rows) <= most else [*rows[: most - most // 2], *rows[len(rows) - most // 2 :]]


def room(groups: int) -> tuple[int, int]:
    """How many bars a picture of segments may have, and how many rows its table, where so many groups share a page."""
    return (min(20, 28 // groups), 60 // groups) if groups <= FEW_GROUPS else (20 // groups, 28 // groups)


def view(
    evaluation: Evaluation | None,
    comparison: Comparison | None,
    audit: Audit | None,
    groups: Sequence[tuple[str, Segments]],
    plan: Plan | None,
    calibration: Calibration | None,
    title: str,
    settings: Mapping[str, object],
    seed: int | None,
) -> dict[str, Any]:
    """The words of a report on these results, by the names that the template has for them.

    `evaluation` or `comparison` must be there.
    """
    result: Any = comparison if evaluation is None else evaluation
    verdict = result.verdict
    checks = list(verdict.checks)
    if calibration is not None and any(row.estimator == verdict.estimator for row in calibration):
        checks.append(calibration.check(verdict.estimator, verdict.thresholds))
    level = _with(verdict.level, checks)
    overlap = None if evaluation is None else evaluation.overlap
    return {
        "title": short(title, 120),
        "level": level,
        "meaning": MEANING[level],
        "tiles": _tiles(result, level),
        "sentence": short(result.answer.sentence),
        "decisions": _decisions(result),
        "surer": result.answer.surer,
        "estimator": verdict.estimator,
        "method": method_of(result),
        "reasons": [check.sentence for check in by_gravity(checks) if check.status in ("warn", "fail")],
        "checks": _checks(checks),
        "passed": {check.status for check in checks} <= {"pass", "unknown"},
        "summary": _counted(checks),
        "estimates": None if evaluation is None else grid(evaluation.sheet()),
        "notes": [] if evaluation is None else [short(doubt) for doubt in evaluation.doubts()],
        "card": None if result.scorecard is None else _card(result.scorecard),
        "policies": None if comparison is None else grid(comparison.sheet()),
        "weights": [] if overlap is None else _weights(overlap),
        "actions": None if overlap is None else _actions(overlap),
        "segments": _groups(groups[:MOST_GROUPS]),
        "more_segments": _rest(groups[MOST_GROUPS:]),
        "audit": [] if audit is None else _checks(audit.checks),
        "audit_status": "" if audit is None else audit.status,
        "plan": None if plan is None else (plan.sentences(), grid(plan.sheet())),
        "calibration": None if calibration is None else (calibration.sentence(), grid(calibration.sheet())),
        "settings": _settings(evaluation, result, settings, seed),
    }


def _card(card: Scorecard) -> tuple[str, list[str], Grid, list[str]]:
    """(title, decisions and their rule, table, notes) of several metrics."""
    sheet = card.sheet()
    sentences = [short(note.sentence) for note in sheet.summary[:MOST_SENTENCES]]
    return sheet.title, sentences, grid(sheet), [short(note.sentence) for note in sheet.notes[:MOST_SENTENCES]]


def _with(level: str, checks: Sequence[Check]) -> str:
    """The level of a verdict to which checks were added; it can only get worse."""
    statuses = {check.status for check in checks}
    return "refuse" if "fail" in statuses else "caution" if level == "ok" and "warn" in statuses else level


def _counted(checks: Sequence[Check]) -> str:
    """How many checks came out how, in words."""
    words = {"pass": "passed", "unknown": "could not be made", "warn": "warn", "fail": "failed"}
    counts = [(sum(check.status == status for check in checks), word) for status, word in words.items()]
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def _checks(checks: Sequence[Check]) -> list[tuple[str, str, str]]:
    return [
        (TITLES.get(check.name, check.name.replace("_", " ").capitalize()), check.status, check.sentence)
        for check in by_gravity(checks)
    ]


def _tiles(result: Evaluation | Comparison, trust: str) -> list[tuple[str, str, str]]:
    """(label, number, small print) for the first screen; what is refused is not called better or worse."""
    answer: Headline = result.answer
    adjusted = answer.lift.value != answer.estimate.value - answer.baseline.value
    how = "; adjusted by a control variate for the random choice of logged actions" if adjusted else ""
    joint = "simultaneous " if result.scorecard is not None or isinstance(result, Comparison) else ""
    kind = f"{joint}{level_text(result.level)} interval"
    word = "not to be relied on" if trust == "refuse" else direction(answer.interval, answer.sign)
    unit = f" {answer.scope.unit}" if answer.scope.total else ""
    over = f"over {short(result.baseline_name, 40)}"
    tiles = []
    if answer.relative is not None and answer.relative_interval is not None:
        share, rest = answer.lift_text.split(" (", 1)
        tiles.append((f"Lift {over}", share, f"{kind} {rest.removesuffix(')')}: {word}"))
    per = "per decision" if answer.scope.total else ""
    lift = signed(answer.lift.value)
    tiles.append((f"Lift in {short(answer.metric, 40)} {per}".strip() if tiles else f"Lift {over}{unit}", lift,
                  f"{kind} {_ends('lift', answer.interval)}: {word}{how}"))  # fmt: skip
    if trust == "refuse":
        return tiles
    tiles.append(("Chance that it is better", answer.chance_text, CHANCE))
    if answer.total_text is not None:
        total, rest = answer.total_text.split(" (", 1)
        tiles.append((answer.scope.over, short(total, 40), rest.removesuffix(")")))
    return tiles


def _decisions(result: Evaluation | Comparison) -> list[tuple[str, str, str]]:
    """(choice, policy, reasons) of the decision, or of those about the first policies of a comparison."""
    decisions = [result.decision] if isinstance(result, Evaluation) else result.decisions[:MOST_DECISIONS]
    below = result.answer.surer if len(decisions) == 1 else []  # what stands there need not stand here, too
    return [
        (decision.choice, short(decision.policy, 40), short(" ".join(r for r in decision.reasons if r not in below)))
        for decision in decisions
    ]


def _ends(kind: str, interval: Interval) -> str:
    return f"{text_of(kind, interval.low)} to {text_of(kind, interval.high)}"


def _weights(overlap: Overlap) -> list[tuple[str, str]]:
    rows = [
        ("Rows", f"{overlap.n:,}"),
        ("Effective sample size", f"{overlap.effective_rows:,.0f} rows ({overlap.effective_rows / overlap.n:.1%})"),
        ("Mean weight (should be 1)", f"{overlap.mean_weight:.3f}"),
        ("Largest weight", number(overlap.max_weight)),
        ("Rows with weight 0", f"{overlap.zero_share:.1%}"),
        ("Weight on the heaviest row", f"{overlap.largest_share:.1%}"),
        ("Weight on the heaviest 1% of rows", f"{overlap.top_share:.1%}"),
        ("Actions without a row", f"{overlap.never_logged:,} of {overlap.n_actions:,}"),
    ]
    if overlap.never_logged_mass is not None:
        rows.append(("Probability of these under the new policy", f"{overlap.never_logged_mass:.1%}"))
    return rows


def _actions(overlap: Overlap) -> Grid:
    columns = (
        Column("action"), Column("rows", "count"), Column("expected rows", "count"), Column("logged share", "share"),
        Column("new share", "share"),
    )  # fmt: skip
    rows = tuple(
        (short(row.label, 60) or str(row.action), row.logged, row.expected, row.logged / overlap.n, row.target)
        for row in overlap.actions
    )
    return grid(Sheet("actions", columns, rows))


def _groups(groups: Sequence[tuple[str, Segments]]) -> list[tuple[str, str, Grid]]:
    most = room(len(groups))[1] if groups else 0
    return [(f"By {short(name, 60)}", each.sentence(), _segments(name, each, most)) for name, each in groups]


def _rest(groups: Sequence[tuple[str, Segments]]) -> list[tuple[str, str]]:
    sentences = [(f"By {short(name, 60)}", each.sentence()) for name, each in groups[:MOST_SENTENCES]]
    more = len(groups) - MOST_SENTENCES
    return [*sentences, *([("", f"{more:,} more segment columns are not shown.")] if more > 0 else [])]


def _segments(name: str, segments: Segments, most: int) -> Grid:
    """The segments at both ends of the list, where they are too many: the worst matter as much as the best."""
    sheet = segments.sheet()
    columns = (replace(sheet.columns[0], head=short(name, 30)), *sheet.columns[1:])
    rows, styles = (tuple(ends(lines, most)) for lines in (sheet.rows, sheet.styles))
    hidden = len(sheet.rows) - len(rows)
    note = f"{hidden:,} {segments.noun}s between these are not shown." if hidden else ""
    return replace(grid(replace(sheet, columns=columns, rows=rows, styles=styles)), note=note)


def _settings(
    evaluation: Evaluation | None, result: Evaluation | Comparison, settings: Mapping[str, object], seed: int | None
) -> list[tuple[str, str]]:
    rows: dict[str, object] = {"level": level_text(result.level)}
    if result.metric != "reward":
        rows |= {"metric": f"{result.metric} ({'more' if result.sign > 0 else 'less'} is better)"}
    if result.baseline_name != LOGGING:
        rows |= {"baseline": result.baseline_name}
    if evaluation is not None:
        first = {"log": evaluation.log, "policy": evaluation.policy, "headline estimator": evaluation.headline}
        rows = {**first, **rows, "data hash (SHA-256)": evaluation.fingerprint}
    elif isinstance(result, Comparison):
        rows |= {"simultaneous factor": f"{result.factor:.3f}", "data hash (SHA-256)": result.baseline.fingerprint}
    moved = result.verdict.thresholds.changed()
    rows |= {"thresholds": "; ".join(f"{name} {limit}" for name, limit in moved.items())} if moved else {}
    last = {
        "seed": "the defaults of the estimators" if seed is None else seed,
        "cael": __version__,
        "numpy": np.__version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    return [(short(name, 60), short(value)) for name, value in (*rows.items(), *settings.items(), *last.items())]
