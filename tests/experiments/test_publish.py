"""Published results: taken over from a run, and the page in the repository is what its rows give."""

import json
from pathlib import Path

import numpy as np
import pytest

import cael
from cael.experiments import publish, registry
from cael.experiments.claims import NOT_RUN
from cael.experiments.manifest import write_manifest
from cael.experiments.run import Where, plan
from cael.experiments.spec import load
from cael.experiments.trial import canonical
from tests.experiments.test_results import rows_of

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "results"


def keyed(spec, rows):
    """The rows with the keys that the plan gives them."""
    keys = {
        (name, canonical(world), task.n, seed): key
        for task in plan(spec, "cpu")
        for (name, (world, seed)), key in zip(
            [(name, each) for name in (task.name, task.auto) if name for each in task.trials], task.keys, strict=True
        )
    }
    return [{**r, "key": keys[r["estimator"], canonical(r["world"]), r["n"], r["seed"]]} for r in rows]


@pytest.fixture
def runs(tmp_path):
    """A folder with one finished run, whose rows are made up."""
    spec, out = load("logging", runs=12), tmp_path / "runs" / "logging"
    out.mkdir(parents=True)
    rng, sizes = np.random.default_rng(0), {"CAELMIPS": 0.1, "IPS": 10.0}
    rows = keyed(spec, rows_of(spec, lambda name, _: sizes.get(name, 1.0) * rng.standard_normal(12)))
    (out / "trials.jsonl").write_text("".join(canonical(row) + "\n" for row in rows))
    write_manifest(out, spec, Where(), finished=False)
    write_manifest(out, spec, Where(), finished=True)
    return tmp_path / "runs"


def told(results):
    return publish.rendered(publish.all_published(results))


def test_a_finished_run_is_taken_over_and_told(runs, tmp_path):
    results = tmp_path / "results"
    assert publish.take_over(runs, results) == ["logging"]
    publish.draw(publish.all_published(results), results)
    texts = told(results)
    names = {path.name for path in (results / "logging").iterdir()}
    assert names == {"trials.csv.gz", "manifest.json", "summary.csv", "table.tex", "figure.svg", "figure-full.svg"}
    assert {path.name for path in (results / "paper").iterdir()} == {"sentences.tex"}
    assert "`cael reproduce logging`" in texts["experiments"] and NOT_RUN in texts["found"]
    judged = publish.in_every_reading({"logging": publish.published(results, "logging")[0]})
    verdicts = {each.claim.id for each in judged["constant-posterior"] if each.verdict != NOT_RUN}
    assert verdicts == {"abstract-ips-overlap", "logging-negative", "logging-below-ael", "logging-order"}
    assert texts["found"].count("**✓ holds**") + texts["found"].count("**✗ does not hold**") > 0


def test_an_estimator_added_later_does_not_spoil_what_was_published(runs, tmp_path, monkeypatch):
    publish.take_over(runs, tmp_path / "results")
    before = told(tmp_path / "results")
    monkeypatch.setitem(registry.ESTIMATORS, "New", registry.ESTIMATORS["SNIPS"])
    assert told(tmp_path / "results") == before


def test_rows_of_settings_that_are_no_longer_those_of_the_spec_are_not_published(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(registry.ESTIMATORS, "DM", lambda device, quick: cael.DM(cael.Ridge(7.0)))
    assert publish.take_over(runs, tmp_path / "results") == []
    assert "left: logging was run with other settings than those of today" in capsys.readouterr().err


def test_quick_and_unfinished_runs_are_left(runs, tmp_path):
    path, trials = runs / "logging" / "manifest.json", runs / "logging" / "trials.jsonl"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "quick": True}))
    assert publish.take_over(runs, tmp_path / "results") == []
    path.write_text(json.dumps(manifest))
    trials.write_text("".join(f"{line}\n" for line in trials.read_text().splitlines()[:-1]))
    assert publish.take_over(runs, tmp_path / "results") == []


def test_of_the_extended_set_what_has_all_its_rows_comes_along(tmp_path, capsys):
    """30 runs of all, 100 of the paper's; one reading has all 100, one 30 and a few more, one lacks a row."""
    spec, out = load("bias-variance-mse", extended=True), tmp_path / "runs" / "bias-variance-mse"
    out.mkdir(parents=True)
    counts = {"CAELMIPS(offset)": 100, "AELMIPS(offset)": 57, "CAELMIPS(through-posterior)": 29}
    rows = keyed(spec, rows_of(spec, lambda *_: np.random.default_rng(0).standard_normal(100)))
    kept = [row for row in rows if row["seed"] < counts.get(row["estimator"], spec.runs_of(row["estimator"]))]
    (out / "trials.jsonl").write_text("".join(canonical(row) + "\n" for row in kept))
    write_manifest(out, spec, Where(), finished=False)
    assert publish.take_over(tmp_path / "runs", tmp_path / "results") == ["bias-variance-mse"]
    table, manifest = publish.published(tmp_path / "results", "bias-variance-mse")
    lengths = {name: len(values) for name, values in table.values[""].items()}
    assert lengths["CAELMIPS"] == lengths["CAELMIPS(offset)"] == 100 and lengths["DM"] == 30
    assert lengths["AELMIPS(offset)"] == 30 and "CAELMIPS(through-posterior)" not in lengths
    assert manifest["runs_of"]["NetworkDM"] == 100 and table.spec.panels["readings"][-1] == "AELMIPS(offset)"


@pytest.mark.long
def test_the_papers_figures_are_drawn_of_what_is_published(tmp_path):
    from cael.experiments.composite import compose

    tables = {name: table for name, (table, _) in publish.all_published(COMMITTED).items()}
    paths = compose(["figure-1", "figure-2", "figure-3"], tables, tmp_path)
    assert [path.name for path in paths] == [f"figure-{n}.{kind}" for n in (1, 2, 3) for kind in ("svg", "png", "pdf")]
    text = (tmp_path / "figure-3.svg").read_text()
    assert all(f"({letter})" in text for letter in "abcdefghi") and "linear in k" in text
    assert "more than" in (tmp_path / "figure-2.svg").read_text()
    del tables["noise"]
    assert compose(["figure-3"], tables, tmp_path) == []


def test_the_committed_pages_are_what_the_committed_rows_give():
    texts = told(COMMITTED)
    names = {"experiments", "sentences", "found", "found_literal", "found_summary", "readings"}
    assert texts.keys() == names
    assert {name: (COMMITTED / f"{name}.inc").read_text("utf-8") for name in names} == texts
