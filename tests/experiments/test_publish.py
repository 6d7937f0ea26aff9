"""Published results: taken over from a run, and the page in the repository is what its rows give."""

import json
from pathlib import Path

import numpy as np
import pytest

import cael
from cael.experiments import publish, registry
from cael.experiments.manifest import write_manifest
from cael.experiments.run import Where, plan
from cael.experiments.spec import load
from cael.experiments.trial import canonical
from tests.experiments.test_results import rows_of

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.fixture
def runs(tmp_path):
    """A folder with one finished run, whose rows are made up."""
    spec, out = load("logging", runs=12), tmp_path / "runs" / "logging"
    out.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = rows_of(spec, lambda *_: rng.standard_normal(12))
    keys = {
        (name, canonical(world), task.n, seed): key
        for task in plan(spec, "cpu")
        for (name, (world, seed)), key in zip(
            [(name, each) for name in (task.name, task.auto) if name for each in task.trials], task.keys, strict=True
        )
    }
    keyed = [{**r, "key": keys[r["estimator"], canonical(r["world"]), r["n"], r["seed"]]} for r in rows]
    (out / "trials.jsonl").write_text("".join(canonical(row) + "\n" for row in keyed))
    write_manifest(out, spec, Where(), finished=False)
    write_manifest(out, spec, Where(), finished=True)
    return tmp_path / "runs"


def test_a_finished_run_is_taken_over_and_told(runs, tmp_path):
    results = tmp_path / "results"
    assert publish.take_over(runs, results) == ["logging"]
    text = publish.page(results)
    names = {path.name for path in (results / "logging").iterdir()}
    assert names == {"trials.csv.gz", "manifest.json", "summary.csv", "figure.svg", "figure-full.svg"}
    assert "| **" in text and text.count(publish.NOT_RUN) == 35 and "`cael reproduce logging`" in text
    assert text == publish.page(results, draw=False)


def test_an_estimator_added_later_does_not_spoil_what_was_published(runs, tmp_path, monkeypatch):
    publish.take_over(runs, tmp_path / "results")
    before = publish.page(tmp_path / "results", draw=False)
    monkeypatch.setitem(registry.ESTIMATORS, "New", registry.ESTIMATORS["SNIPS"])
    assert publish.page(tmp_path / "results", draw=False) == before


def test_rows_of_settings_that_are_no_longer_those_of_the_spec_are_not_published(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(registry.ESTIMATORS, "DM", lambda device, quick: cael.DM(cael.Ridge(7.0)))
    assert publish.take_over(runs, tmp_path / "results") == []
    assert "left: logging was run with other settings than those of today, 60 of 720 rows" in capsys.readouterr().err


def test_quick_and_unfinished_runs_are_left(runs, tmp_path):
    path = runs / "logging" / "manifest.json"
    manifest = json.loads(path.read_text())
    for change in ({"quick": True}, {"sessions": [{**manifest["sessions"][0], "finished": None}]}):
        path.write_text(json.dumps({**manifest, **change}))
        assert publish.take_over(runs, tmp_path / "results") == []


def test_the_committed_page_is_what_the_committed_rows_give():
    assert publish.page(COMMITTED, draw=False) == (COMMITTED / "experiments.inc").read_text("utf-8")
