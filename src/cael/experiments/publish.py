"""Results of real runs for the documentation: rows as compact data, figures, and pages made from them.

python -m cael.experiments.publish RESULTS docs/results     take finished experiments over, then write the pages
python -m cael.experiments.publish docs/results             write the pages again from what is there
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cael.errors import InputError
from cael.experiments import compact, composite, figures, latex, registry
from cael.experiments.findings import found, in_every_reading, literal, provenance, sentences
from cael.experiments.ledger import read_json, read_rows
from cael.experiments.markdown import table as table_in_markdown
from cael.experiments.outcome import runs_text
from cael.experiments.run import keys_of
from cael.experiments.spec import FIGURES, NAMES, Spec, load
from cael.experiments.summary import COLUMNS, Line, Table, failed_of, lines_of, numbers_of, table_of, to_csv

ROWS = "trials.csv.gz"
PAPER = "paper"
"""Folder of the paper's figures and of the tables for LaTeX."""
Runs = dict[str, tuple[Table, dict[str, Any]]]


def as_run(manifest: dict[str, Any]) -> Spec:
    """The spec that a manifest tells of: with its runs, its cells and its estimators, and no others."""
    spec = load(manifest["experiment"], quick=manifest["quick"], runs=manifest["runs"], extended=True)
    visited = [cell["at"] for cell in manifest["cells"]]
    cells = tuple(cell for cell in spec.cells if cell.at in visited)
    return replace(spec.only(manifest["estimators"], manifest.get("runs_of", {})), cells=cells)


def take_over(source: Path, results: Path) -> list[str]:
    """Copy from a folder of runs every experiment whose own estimators have all rows by today's settings; their names.

    Of the readings that the extended set adds, those that have all rows come with it, and the more runs if complete.
    """
    taken = []
    for name in NAMES:
        manifest = read_json(source / name / "manifest.json", None)
        if manifest is None or manifest["quick"]:
            continue
        rows = read_rows(source / name / "trials.jsonl")
        base = load(name, runs=manifest["runs"]).only(manifest["estimators"])
        lacking = [key for key in keys_of(base) if key not in rows]
        if lacking:
            print(
                f"left: {name} was run with other settings than those of today, or is not finished: {len(lacking)} of "
                f"{len(keys_of(base))} rows are not there. Run it again: cael reproduce {name} --out {source}",
                file=sys.stderr,
            )
            continue
        spec = whole(name, manifest, rows)
        out = results / name
        out.mkdir(parents=True, exist_ok=True)
        compact.write(table_of(spec, [rows[key] for key in keys_of(spec)]), out / ROWS)
        kept = {name: registry.described(registry.make(**settings)) for name, settings in spec.estimators.items()}
        changed = {**manifest, "runs_of": spec.often, "estimators": kept}
        (out / "manifest.json").write_text(json.dumps(changed, indent=1) + "\n", "utf-8")
        taken.append(name)
    return taken


def whole(name: str, manifest: dict[str, Any], rows: dict[str, Any]) -> Spec:
    """The spec with the estimators, and the numbers of runs, that have all their rows."""
    wide, more = load(name, runs=manifest["runs"], extended=True), load(name, extended=True)
    added = load(name, extended=True).estimators.keys() - load(name).estimators.keys()
    complete: dict[str, int] = {}
    for estimator in wide.estimators:
        if estimator not in manifest["estimators"] and estimator not in added:
            continue
        for count in sorted({more.runs_of(estimator), wide.runs}, reverse=True):
            keys = keys_of(wide.only([estimator], {estimator: count}))
            if all(key in rows for key in keys):
                complete[estimator] = count
                break
    return wide.only(complete, complete)


def published(results: Path, name: str) -> tuple[Table, dict[str, Any]] | None:
    """The table and the manifest of a published experiment, or None."""
    manifest = read_json(results / name / "manifest.json", None)
    if manifest is None:
        return None
    spec = as_run(manifest)
    return table_of(spec, compact.read(spec, results / name / ROWS)), manifest


def all_published(results: Path) -> Runs:
    """Every experiment that is published, by its name."""
    return {name: run for name in NAMES if (run := published(results, name))}


def rendered(runs: Runs) -> dict[str, str]:
    """The texts that pages of the documentation include, by the name of their file."""
    tables = {name: table for name, (table, _) in runs.items()}
    judged = in_every_reading(tables)
    texts = {"experiments": page(runs), "sentences": sentences(judged)}
    texts |= {"found": found(judged), "found_literal": literal(tables), "found_summary": provenance(runs, judged)}
    return texts | ({"readings": _by_estimator(tables["readings"])} if "readings" in tables else {})


def page(runs: Runs) -> str:
    """Each experiment: how it was run, its figures, its numbers."""
    parts: list[str] = []
    for table, manifest in runs.values():
        numbers = _by_axis(table) if table.spec.axis else _by_estimator(table)
        parts += [*_section(table.spec, manifest), numbers]
    missing = [f"`{name}`" for name in NAMES if name not in runs]
    if missing:
        parts += ["## Not run yet", "", f"{', '.join(missing)}.", ""]
    return "\n".join(parts)


def draw(runs: Runs, results: Path) -> None:
    """Figures, summary.csv and table.tex of each experiment, and the paper's figures; PNG are for terminals only."""
    paths: list[Path] = []
    for name, (table, _) in runs.items():
        lines = lines_of(table)
        (results / name / "summary.csv").write_text(to_csv(lines), "utf-8")
        (results / name / "table.tex").write_text(latex.accuracy(table, lines), "utf-8")
        paths += [path for path in figures.draw(table, results / name) if path.suffix != ".svg"]
    (results / PAPER).mkdir(exist_ok=True)
    tables = {name: table for name, (table, _) in runs.items()}
    drawn = composite.compose(list(FIGURES), tables, results / PAPER)
    for path in [*paths, *(path for path in drawn if path.suffix == ".png")]:
        path.unlink()
    judged = in_every_reading(tables)
    heads = list(judged)
    rows = list(zip(*judged.values(), strict=True))
    (results / PAPER / "sentences.tex").write_text(latex.verdicts(rows, heads), "utf-8")


def _section(spec: Spec, manifest: dict[str, Any]) -> Iterator[str]:
    session = manifest["sessions"][-1]
    yield f"## {spec.title}"
    yield ""
    if spec.note:
        yield f"{spec.note} "
    devices = " and ".join(dict.fromkeys(str(run["device"]) for run in manifest["sessions"]))
    versions = ", ".join(f"{name} {number}" for name, number in session["versions"].items() if number)
    commit = f" at commit {session['git'][:12]}" if session["git"] else ""
    finished = f"finished {session['finished'][:10]}" if session["finished"] else f"begun {session['started'][:10]}"
    if "note" in session:  # rows that were not made by the command say how they were made
        version_text = f" Versions on the CPU: {versions}." if versions else ""
        yield f"{runs_text(spec)}, {finished}. {session['note']}{version_text}"
    else:
        origin = f"`cael reproduce {spec.name}`, {finished} on {devices}{commit}; {versions}."
        yield f"{runs_text(spec)}. {origin}"
    for panel, names in spec.panels.items():
        words = ", ".join(figures.shown(name) for name in names)
        yield ""
        yield f"![{spec.title}: {words}](results/{spec.name}/{figures.stem(panel)}.svg)"
    yield ""


def _by_estimator(table: Table) -> str:
    """Bias, variance and MSE of each estimator; the losses and the posterior's entropy where rows have them."""
    heads = ["estimator", "bias", "variance", "MSE", "95% interval covers", "mean weight", "seconds", "MiB"]
    losses = [name for name in COLUMNS if any(name in row for rows in table.rows.values() for row in rows)]
    words = {"bias_loss": "L_bias", "variance_loss": "L_var", "entropy": "entropy of the posterior"}
    rows = []
    for line in lines_of(table):
        bias, bias_error, variance, variance_error, mse, mse_error, coverage, seconds, memory = numbers_of(line)
        weight = "" if line.mean_weight is None else f"{line.mean_weight:.2f}"
        pairs = [f"{bias} ± {bias_error}", f"{variance} ± {variance_error}", f"{mse} ± {mse_error}"]
        more = [_mean(table, line, name) for name in losses]
        name = figures.shown(line.estimator) + failed_of(line)
        rows.append([name, *pairs, coverage, weight, seconds, memory, *more])
    heads += [words[name] for name in losses]
    return table_in_markdown(heads, rows, len(heads))


def _mean(table: Table, line: Line, column: str) -> str:
    value = table.point(line.at, line.estimator, column)
    return "" if value != value else f"{value:.3g}"


def _by_axis(table: Table) -> str:
    spec = table.spec
    mse = {
        (line.at, line.estimator): f"{line.mse:.3g} ± {line.mse_error:.2g}" if line.runs else "failed"
        for line in lines_of(table)
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
        print(f"published: {', '.join(taken)}", file=sys.stderr)
    runs = all_published(results)
    draw(runs, results)
    for name, text in rendered(runs).items():
        (results / f"{name}.inc").write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
