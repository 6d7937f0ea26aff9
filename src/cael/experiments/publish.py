"""Results of real runs for the documentation: rows as compact data, figures, and a page made from them.

python -m cael.experiments.publish RESULTS docs/results     take finished experiments over, then write the page
python -m cael.experiments.publish docs/results             write the page again from what is there
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cael.errors import InputError
from cael.experiments import compact, figures
from cael.experiments.claims import Verdict, judge, load_claims
from cael.experiments.ledger import read_rows
from cael.experiments.run import plan
from cael.experiments.spec import NAMES, Spec, load
from cael.experiments.summary import Line, Table, lines_of, table_of, to_csv

ROWS = "trials.csv.gz"
NOT_RUN = "not run yet"


def as_run(manifest: dict[str, Any]) -> Spec:
    """The spec that a manifest tells of: with its runs, its cells and its estimators, and no others."""
    spec = load(manifest["experiment"], quick=manifest["quick"], runs=manifest["runs"])
    told = {name: settings for name, settings in spec.estimators.items() if name in manifest["estimators"]}
    panels = {panel: tuple(name for name in names if name in told) for panel, names in spec.panels.items()}
    visited = [cell["at"] for cell in manifest["cells"]]
    cells = tuple(cell for cell in spec.cells if cell.at in visited)
    return replace(spec, estimators=told, panels=panels, cells=cells)


def take_over(source: Path, results: Path) -> list[str]:
    """Copy every finished experiment that is neither quick nor out of date from a folder of runs; their names."""
    taken = []
    for name in NAMES:
        here = source / name / "manifest.json"
        manifest = json.loads(here.read_text("utf-8")) if here.exists() else None
        if manifest is None or manifest["quick"] or not manifest["sessions"][-1]["finished"]:
            continue
        spec = as_run(manifest)
        rows, needed = read_rows(source / name / "trials.jsonl"), [k for task in plan(spec, "cpu") for k in task.keys]
        lacking = sum(key not in rows for key in needed)
        if lacking:
            print(
                f"left: {name} was run with other settings than those of today, {lacking} of {len(needed)} rows are "
                f"not there. Run it again: cael reproduce {name} --out {source}",
                file=sys.stderr,
            )
            continue
        out = results / name
        out.mkdir(parents=True, exist_ok=True)
        table = table_of(spec, [rows[key] for key in needed])
        compact.write(table, out / ROWS)
        shutil.copyfile(here, out / "manifest.json")
        taken.append(name)
    return taken


def published(results: Path, name: str) -> tuple[Table, dict[str, Any]] | None:
    """The table and the manifest of a published experiment, or None."""
    path = results / name / "manifest.json"
    if not path.exists():
        return None
    manifest = json.loads(path.read_text("utf-8"))
    spec = as_run(manifest)
    return table_of(spec, compact.read(spec, results / name / ROWS)), manifest


def page(results: Path, *, draw: bool = True) -> str:
    """The page: all verdicts, then each experiment. draw: also its figures and summary.csv."""
    found = {name: entry for name in NAMES if (entry := published(results, name))}
    verdicts = {name: [judge(c, table) for c in load_claims() if c.spec == name] for name, (table, _) in found.items()}
    parts = ["## Every sentence", *_claims_table(verdicts)]
    for name, (table, manifest) in found.items():
        lines = lines_of(table)
        if draw:
            (results / name / "summary.csv").write_text(to_csv(lines), "utf-8")
            for path in figures.draw(table, results / name):
                if path.suffix == ".png":
                    path.unlink()
        parts += ["", *_section(table, lines, manifest)]
    missing = [name for name in NAMES if name not in found]
    if missing:
        parts += ["", "## Not run yet", "", ", ".join(f"`{name}`" for name in missing) + "."]
    return "\n".join(parts) + "\n"


def _claims_table(verdicts: dict[str, list[Verdict]]) -> Iterator[str]:
    told = {verdict.claim.id: verdict for each in verdicts.values() for verdict in each}
    yield ""
    yield "| where | the paper says | verdict | checks | the check that is worst for it |"
    yield "|---|---|---|---|---|"
    for claim in load_claims():
        verdict = told.get(claim.id)
        note = f" *{claim.note}*" if claim.note else ""
        if verdict is None:
            yield f"| {claim.where} | {claim.sentence}{note} | {NOT_RUN} | | |"
        else:
            counts = {"hold": verdict.supported, "do not": verdict.refuted, "open": verdict.open}
            checks = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
            end = f"**{verdict.verdict}** | {checks} | {_plain(verdict.numbers)}"
            yield f"| {claim.where} | {claim.sentence}{note} | {end} |"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


def _section(table: Table, lines: list[Line], manifest: dict[str, Any]) -> Iterator[str]:
    spec, session = table.spec, manifest["sessions"][-1]
    yield f"## {spec.title}"
    yield ""
    if spec.note:
        yield f"{spec.note} "
    devices = " and ".join(dict.fromkeys(str(each["device"]) for each in manifest["sessions"]))
    versions = ", ".join(f"{name} {number}" for name, number in session["versions"].items() if number)
    commit = f" at commit {session['git'][:12]}" if session["git"] else ""
    if "note" in session:  # rows that were not made by the command say how they were made
        told = f" Versions on the CPU: {versions}." if versions else ""
        yield f"{spec.runs} runs per problem, finished {session['finished'][:10]}. {session['note']}{told}"
    else:
        yield (
            f"{spec.runs} runs per problem. `cael reproduce {spec.name}`, finished {session['finished'][:10]} on "
            f"{devices}{commit}; {versions}."
        )
    for panel, names in spec.panels.items():
        stem = "figure" if panel == "paper" else f"figure-{panel}"
        words = ", ".join(figures.shown(name) for name in names)
        yield ""
        yield f"![{spec.title}: {words}](results/{spec.name}/{stem}.svg)"
    yield ""
    yield from _by_axis(table, lines) if spec.axis else _by_estimator(lines)


def _by_estimator(lines: list[Line]) -> Iterator[str]:
    yield "| estimator | bias | variance | MSE | 95% interval covers | mean weight | seconds | MiB |"
    yield "|---|---|---|---|---|---|---|---|"
    for line in lines:
        weight = "" if line.mean_weight is None else f"{line.mean_weight:.2f}"
        memory = "" if line.megabytes is None else f"{line.megabytes:.0f}"
        failed = f" ({line.failed} failed)" if line.failed else ""
        yield (
            f"| {figures.shown(line.estimator)}{failed} | {line.bias:+.3g} ± {line.bias_error:.2g} | "
            f"{line.variance:.3g} ± {line.variance_error:.2g} | {line.mse:.3g} ± {line.mse_error:.2g} | "
            f"{line.coverage:.0%} | {weight} | {line.seconds:.2g} | {memory} |"
        )


def _by_axis(table: Table, lines: list[Line]) -> Iterator[str]:
    spec = table.spec
    yield f"MSE ± its Monte Carlo error; bias, variance and coverage are in `docs/results/{spec.name}/summary.csv`."
    yield ""
    yield f"| {spec.figure.label or spec.axis} | " + " | ".join(str(cell.at) for cell in spec.cells) + " |"
    yield "|---" * (len(spec.cells) + 1) + "|"
    by = {(line.at, line.estimator): line for line in lines}
    for name in spec.estimators:
        told = [by[cell.at, name] for cell in spec.cells]
        cells = [f"{each.mse:.3g} ± {each.mse_error:.2g}" if each.runs else "failed" for each in told]
        yield f"| {figures.shown(name)} | " + " | ".join(cells) + " |"


def main(arguments: list[str]) -> None:
    if not 1 <= len(arguments) <= 2:
        sys.exit("usage: python -m cael.experiments.publish [FOLDER OF RUNS] docs/results")
    results = Path(arguments[-1])
    if len(arguments) == 2:
        taken = take_over(Path(arguments[0]), results)
        if not taken:
            raise InputError(f"there is no finished experiment in {arguments[0]}.")
        print(f"taken over: {', '.join(taken)}", file=sys.stderr)
    (results / "experiments.inc").write_text(page(results), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
