"""What the published rows say about each sentence of the paper, under every reading: the texts of the pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cael.experiments.claims import (
    FAILS,
    HOLDS,
    NOT_RUN,
    OPEN,
    READINGS,
    Verdict,
    judge,
    load_claims,
    untested,
)
from cael.experiments.markdown import table as table_in_markdown
from cael.experiments.summary import Table

Judged = dict[str, list[Verdict]]
"""Reading -> the verdicts on all claims, in their order."""
MARKS = {HOLDS: "✓ holds", FAILS: "✗ does not hold", OPEN: "? cannot tell", NOT_RUN: NOT_RUN}


def in_every_reading(tables: Mapping[str, Table], readings: Sequence[str] = READINGS) -> Judged:
    """The verdict on every claim under these readings."""
    claims = load_claims()
    return {reading: [judge(claim, tables, reading) for claim in claims] for reading in readings}


def rows_of(judged: Judged) -> list[tuple[Verdict, ...]]:
    """One row per claim, with a verdict for each reading."""
    return list(zip(*judged.values(), strict=True))


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


def found(judged: Judged) -> str:
    """One table: claim x reading, each verdict with the number that decides it."""
    rows = []
    for verdicts in rows_of(judged):
        claim = verdicts[0].claim
        cells = [_cell(verdict) for verdict in verdicts]
        if not claim.depends_on_reading:
            cells = [cells[0], *("the same" for _ in cells[1:])]
        rows.append([escaped(claim.where), escaped(claim.sentence), *cells])
    return table_in_markdown(["where", "the paper says, in our words", *judged], rows, 2 + len(judged))


def literal(tables: Mapping[str, Table]) -> str:
    """The sentences that were also judged with the text taken letter by letter."""
    judged = in_every_reading(tables, ("literal",))["literal"]
    rows = [
        [escaped(verdict.claim.where), escaped(verdict.claim.sentence), _cell(verdict)]
        for verdict in judged if verdict.claim.depends_on_reading and verdict.verdict != NOT_RUN
    ]  # fmt: skip
    return table_in_markdown(["where", "the paper says, in our words", "literal"], rows, 3)


def _cell(verdict: Verdict) -> str:
    mark = f"**{MARKS[verdict.verdict]}**"
    return f"{mark}<br>{escaped(verdict.numbers)}" if verdict.numbers else mark


def sentences(judged: Judged) -> str:
    """Every sentence with its rule, notes, verdicts, counts of checks and deciding numbers; then what is untested."""
    parts = []
    for verdicts in rows_of(judged):
        claim = verdicts[0].claim
        note = f" *{escaped(claim.note)}*" if claim.note else ""
        parts += [f"### {claim.id}", "", f"{escaped(claim.where)}: {escaped(claim.sentence)}{note}", ""]
        parts += [f"Rule: {escaped(claim.rule)}.", ""]
        told = verdicts if claim.depends_on_reading else verdicts[:1]
        rows = [_line(verdict, alone=not claim.depends_on_reading) for verdict in told]
        heads = ["reading", "verdict", "checks", "runs", "the check that is worst for it"]
        parts.append(table_in_markdown(heads, rows, len(heads)))
    rows = [[entry["where"], escaped(entry["sentence"]), escaped(entry["why"])] for entry in untested()]
    heads = ["where", "the paper says", "why there is none"]
    parts += ["## Sentences without a test", "", table_in_markdown(heads, rows, len(heads))]
    return "\n".join(parts)


def _line(verdict: Verdict, *, alone: bool) -> list[str]:
    beyond = f"; {verdict.beyond}" if verdict.beyond else ""
    reading, runs = "any" if alone else verdict.reading, str(verdict.runs or "")
    return [reading, f"**{verdict.verdict}**", verdict.counts, runs, escaped(verdict.numbers + beyond)]


def provenance(runs: Mapping[str, tuple[Table, dict[str, Any]]], judged: Judged) -> str:
    """How many sentences came out how, and which version the rows are of."""
    lines = []
    for reading, verdicts in judged.items():
        counts = Counter(verdict.verdict for verdict in verdicts)
        told = ", ".join(f"{counts[word]} {text}" for word, text in WORDS.items() if counts[word])
        lines.append(f"- **{reading}**: of {len(verdicts)} sentences {told}.")
    lines.append(agreement(judged))
    sessions = [session for _, manifest in runs.values() for session in manifest["sessions"]]
    commits = sorted({str(session["git"])[:12] for session in sessions})
    devices = sorted({str(session["device"]) for session in sessions})
    trials = sum(len(rows) for table, _ in runs.values() for rows in table.rows.values())
    where = f"{'commit' if len(commits) == 1 else 'commits'} {', '.join(commits)} on {' and '.join(devices)}"
    lines += ["", f"{trials:,} rows of {len(runs)} experiments, run at {where}."]
    return "\n".join(lines) + "\n"


def agreement(judged: Judged) -> str:
    """How many sentences came out alike under every reading."""
    sets = [{verdict.verdict for verdict in row} for row in rows_of(judged)]
    alike = {word: sum(verdicts == {word} for verdicts in sets) for word in (HOLDS, FAILS, OPEN)}
    rest = sum(len(verdicts) > 1 and NOT_RUN not in verdicts for verdicts in sets)
    return (
        f"- Under every reading {alike[HOLDS]} hold, {alike[FAILS]} do not hold and {alike[OPEN]} cannot be told; of "
        f"{rest} it depends on the reading."
    )


WORDS = {HOLDS: "hold", FAILS: "do not hold", OPEN: "cannot be told", NOT_RUN: "were not run"}
