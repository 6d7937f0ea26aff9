"""What an experiment ends with: the table, the figures, the verdicts, as files and as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cael.common.whole import write_whole
from cael.experiments import claims as C
from cael.experiments import figures, latex
from cael.experiments.spec import Spec
from cael.experiments.summary import Line, Table, lines_of, table_of, to_csv, to_text


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """The results of a spec. figures: the files drawn, empty where matplotlib is missing."""

    table: Table
    lines: list[Line]
    verdicts: list[C.Verdict]
    figures: list[Path]
    out: Path

    def text(self) -> str:
        """Table and verdicts, for a terminal."""
        spec = self.table.spec
        parts = [f"{spec.name}: {spec.title}" + (f" ({spec.paper} of the paper)" if spec.paper else "")]
        parts += [spec.note] if spec.note else []
        if spec.quick:
            parts.append("Quick: few runs and a short training show that the machinery works, and nothing else.")
        truths = ", ".join(
            f"{at}: {value:.6g}" if spec.axis else f"{value:.6g}" for at, value in self.table.truths.items()
        )
        parts += [f"{runs_text(spec)}; truth {truths}", "", to_text(self.lines, spec.axis), ""]
        parts += [verdict_text(verdict) for verdict in self.verdicts]
        if not self.figures:
            parts.append("No figures: matplotlib is not installed (pip install 'cael[plots]').")
        parts.append(f"Files are in {self.out}.")
        return "\n".join(parts)


def runs_text(spec: Spec) -> str:
    """How many runs per problem."""
    more = [name for name in spec.estimators if spec.runs_of(name) != spec.runs]
    counts = sorted({spec.runs_of(name) for name in more})
    also = f", {' or '.join(map(str, counts))} of {', '.join(more)}" if more else ""
    return f"{spec.runs} runs per problem{also}"


def verdict_text(verdict: C.Verdict) -> str:
    checks = verdict.supported + verdict.refuted + verdict.open
    counts = f" ({verdict.supported} of {checks} checks hold, {verdict.refuted} do not)" if checks > 1 else ""
    reading = "" if verdict.reading == C.DEFAULT else f"[{verdict.reading}] "
    return f"{verdict.verdict.upper():<14} {reading}{verdict.claim.sentence}{counts}\n{'':<14} {verdict.numbers}"


def judged(tables: Mapping[str, Table]) -> list[C.Verdict]:
    """Every claim that these experiments decide, under every reading that they have."""
    every = [verdict for reading in C.SUFFIX for verdict in C.judge_all(tables, reading)]
    told = [verdict for verdict in every if verdict.verdict != C.NOT_RUN]
    return [verdict for verdict in told if verdict.reading == C.DEFAULT or verdict.claim.depends_on_reading]


def conclude(spec: Spec, rows: list[dict[str, Any]], out: Path) -> Outcome:
    """Write summary.csv, table.tex, claims.json and the figures beside the rows."""
    table = table_of(spec, rows)
    lines = lines_of(table)
    verdicts = judged({spec.name: table})
    write_whole(out / "summary.csv", to_csv(lines))
    write_whole(out / "table.tex", latex.accuracy(table, lines))
    told = [verdict.to_dict() for verdict in verdicts]
    write_whole(out / "claims.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    paths = figures.draw(table, out) if figures.available() else []
    return Outcome(table, lines, verdicts, paths, out)
