"""Results of real runs for the documentation: rows as compact data, figures, and a page made from them.

python -m cael.experiments.publish RESULTS docs/results     take finished experiments over, then write the page
python -m cael.experiments.publish docs/results             write the page again from what is there
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cael.errors import InputError
from cael.experiments import compact, figures
from cael.experiments.claims import judge, load_claims
from cael.experiments.ledger import read_json, read_rows
from cael.experiments.markdown import table as table_in_markdown
from cael.experiments.run import keys_of
from cael.experiments.spec import NAMES, Spec, load
from cael.experiments.summary import Line, Table, failed_of, lines_of, numbers_of, table_of, to_csv

ROWS = "trials.csv.gz"
NOT_RUN = "not run yet"


def as_run(manifest: dict[str, Any]) -> Spec:
    """The spec that a manifest tells of: with its runs, its cells and its estimators, and no others."""
    spec = load(manifest["experiment"], quick=manifest["quick"], runs=manifest["runs"])
    known = manifest["estimators"]
    estimators = {name: settings for name, settings in spec.estimators.items() if name in known}
    panels = {panel: tuple(name for name in names if name in known) for panel, names in spec.panels.items()}
    visited = [cell["at"] for cell in manifest["cells"]]
    cells = tuple(cell for cell in spec.cells if cell.at in visited)
    return replace(spec, estimators=estimators, panels=panels, cells=cells)


def take_over(source: Path, results: Path) -> list[str]:
    """Copy every finished experiment that is neither quick nor out of date from a folder of runs; their names."""
    taken = []
    for name in NAMES:
        path = source / name / "manifest.json"
        manifest = read_json(path, None)
        if manifest is None or manifest["quick"] or not manifest["sessions"][-1]["finished"]:
            continue
        spec = as_run(manifest)
        rows, keys = read_rows(source / name / "trials.jsonl"), keys_of(spec)
        lacking = sum(key not in rows for key in keys)
        if lacking:
            print(
                f"left: {name} was run with other settings than those of today, {lacking} of {len(keys)} rows are "
                f"not there. Run it again: cael reproduce {name} --out {source}",
                file=sys.stderr,
            )
            continue
        out = results / name
        out.mkdir(parents=True, exist_ok=True)
        compact.write(table_of(spec, [rows[key] for key in keys]), out / ROWS)
        shutil.copyfile(path, out / "manifest.json")
        taken.append(name)
    return taken


def published(results: Path, name: str) -> tuple[Table, dict[str, Any]] | None:
    """The table and the manifest of a published experiment, or None."""
    manifest = read_json(results / name / "manifest.json", None)
    if manifest is None:
        return None
    spec = as_run(manifest)
    return table_of(spec, compact.read(spec, results / name / ROWS)), manifest


def page(results: Path, *, draw: bool = True) -> str:
    """The page: all verdicts, then each experiment. draw: also its figures and summary.csv."""
    runs = {name: run for name in NAMES if (run := published(results, name))}
    parts = ["## Every sentence", "", _claims_table({name: table for name, (table, _) in runs.items()})]
    for name, (table, manifest) in runs.items():
        lines = lines_of(table)
        if draw:
            (results / name / "summary.csv").write_text(to_csv(lines), "utf-8")
            for path in figures.draw(table, results / name):
                if path.suffix == ".png":
                    path.unlink()
        parts += [*_section(table.spec, manifest), _by_axis(table, lines) if table.spec.axis else _by_estimator(lines)]
    missing = [f"`{name}`" for name in NAMES if name not in runs]
    if missing:
        parts += ["## Not run yet", "", f"{', '.join(missing)}.", ""]
    return "\n".join(parts)


def _claims_table(tables: dict[str, Table]) -> str:
    rows = []
    for claim in load_claims():
        cells = [NOT_RUN, "", ""]
        if claim.spec in tables:
            verdict = judge(claim, tables[claim.spec])
            counts = {"hold": verdict.supported, "do not": verdict.refuted, "open": verdict.open}
            checks = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
            cells = [f"**{verdict.verdict}**", checks, verdict.numbers.replace("|", "\\|").replace("_", "\\_")]
        note = f" *{claim.note}*" if claim.note else ""
        rows.append([claim.where, f"{claim.sentence}{note}", *cells])
    return table_in_markdown(
        ["where", "the paper says", "verdict", "checks", "the check that is worst for it"], rows, 5
    )


def _section(spec: Spec, manifest: dict[str, Any]) -> Iterator[str]:
    session = manifest["sessions"][-1]
    yield f"## {spec.title}"
    yield ""
    if spec.note:
        yield f"{spec.note} "
    devices = " and ".join(dict.fromkeys(str(run["device"]) for run in manifest["sessions"]))
    versions = ", ".join(f"{name} {number}" for name, number in session["versions"].items() if number)
    commit = f" at commit {session['git'][:12]}" if session["git"] else ""
    finished = f"finished {session['finished'][:10]}"
    if "note" in session:  # rows that were not made by the command say how they were made
        version_text = f" Versions on the CPU: {versions}." if versions else ""
        yield f"{spec.runs} runs per problem, {finished}. {session['note']}{version_text}"
    else:
        origin = f"`cael reproduce {spec.name}`, {finished} on {devices}{commit}; {versions}."
        yield f"{spec.runs} runs per problem. {origin}"
    for panel, names in spec.panels.items():
        words = ", ".join(figures.shown(name) for name in names)
        yield ""
        yield f"![{spec.title}: {words}](results/{spec.name}/{figures.stem(panel)}.svg)"
    yield ""


def _by_estimator(lines: list[Line]) -> str:
    heads = ["estimator", "bias", "variance", "MSE", "95% interval covers", "mean weight", "seconds", "MiB"]
    rows = []
    for line in lines:
        bias, bias_error, variance, variance_error, mse, mse_error, coverage, seconds, memory = numbers_of(line)
        weight = "" if line.mean_weight is None else f"{line.mean_weight:.2f}"
        pairs = [f"{bias} ± {bias_error}", f"{variance} ± {variance_error}", f"{mse} ± {mse_error}"]
        rows.append([figures.shown(line.estimator) + failed_of(line), *pairs, coverage, weight, seconds, memory])
    return table_in_markdown(heads, rows, len(heads))


def _by_axis(table: Table, lines: list[Line]) -> str:
    spec = table.spec
    mse = {
        (line.at, line.estimator): f"{line.mse:.3g} ± {line.mse_error:.2g}" if line.runs else "failed" for line in lines
    }
    heads = [spec.figure.label or spec.axis, *map(str, table.places)]
    rows = [[figures.shown(name), *(mse[at, name] for at in table.places)] for name in spec.estimators]
    where = f"MSE ± its Monte Carlo error; bias, variance and coverage are in `docs/results/{spec.name}/summary.csv`."
    return f"{where}\n\n{table_in_markdown(heads, rows, len(heads))}"


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
