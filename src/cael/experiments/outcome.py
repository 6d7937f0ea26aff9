"""What an experiment ends with: the table, the figures, the verdicts, as files and as text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cael.common.whole import write_whole
from cael.experiments import claims as C
from cael.experiments import figures
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
        parts += [f"{spec.runs} runs; truth {truths}", "", to_text(self.lines, spec.axis), ""]
        parts += [verdict_text(verdict) for verdict in self.verdicts]
        if not self.figures:
            parts.append("No figures: matplotlib is not installed (pip install 'cael[plots]').")
        parts.append(f"Files are in {self.out}.")
        return "\n".join(parts)


def verdict_text(verdict: C.Verdict) -> str:
    checks = verdict.supported + verdict.refuted + verdict.open
    counts = f" ({verdict.supported} of {checks} checks hold, {verdict.refuted} do not)" if checks > 1 else ""
    return f"{verdict.verdict.upper():<14} {verdict.claim.sentence}{counts}\n{'':<14} {verdict.numbers}"


def conclude(spec: Spec, rows: list[dict[str, Any]], out: Path) -> Outcome:
    """Write summary.csv, claims.json and the figures beside the rows."""
    table = table_of(spec, rows)
    lines = lines_of(table)
    verdicts = [C.judge(claim, table) for claim in C.load_claims() if claim.spec == spec.name]
    write_whole(out / "summary.csv", to_csv(lines))
    judged = [verdict.to_dict() for verdict in verdicts]
    write_whole(out / "claims.json", json.dumps(judged, indent=1, ensure_ascii=False) + "\n")
    paths = figures.draw(table, out) if figures.available() else []
    return Outcome(table, lines, verdicts, paths, out)
