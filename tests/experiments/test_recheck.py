"""Committed rows, run again alone: they give what is published, and a row that does not is found."""

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cael
from cael.experiments import publish, recheck
from cael.experiments.run import Where, execute
from cael.experiments.spec import load
from tests.experiments.conftest import without_cost

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "results"
LEARNED = ["CAELMIPS", "CAELMIPS(offset)", "CAELMIPS(literal)", "AELMIPS", "NetworkDM"]
CHEAP = 150_000
"""Rows times actions of the committed rows that are run again."""


def spec_file(tmp_path, runs=3):
    path = tmp_path / "mine.toml"
    path.write_text(
        f"""title = "mine"
runs = {runs}
estimators = ["CAELMIPS", "offset", "literal", "AELMIPS", "NetworkDM", "IPS", "MIPS", "CAEL"]
axis = "gamma"
values = [-0.1, 0.0]
[world]
kind = "paper"
n = 80
n_actions = 6
[settings.offset]
kind = "CAELMIPS"
preset = "offset"
[settings.literal]
kind = "CAELMIPS"
preset = "literal"
training = {{ iterations = 40 }}
[panels]
full = "all"
"""
    )
    return str(path)


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of published results of a short experiment, whose networks were trained many logs at once."""
    monkeypatch.setattr("cael.experiments.registry.QUICK", {"iterations": 20, "epochs": None})
    path = spec_file(tmp_path)
    spec = load(path, quick=True)
    rows = execute(spec, tmp_path / "runs" / "mine", Where(device="auto"), quiet=True)
    assert {row["cost"]["together"] for row in rows if row["estimator"] == "CAELMIPS"} == {6}
    out = tmp_path / "results" / "mine"
    out.mkdir(parents=True)
    recheck.compact.write(recheck.table_of(spec, rows), out / publish.ROWS)
    manifest = json.loads((tmp_path / "runs" / "mine" / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, "experiment": path}))
    return tmp_path / "results"


def test_rows_made_many_at_once_are_found_again_alone(results):
    found = recheck.recheck(results, 48, 0)
    assert len(found.reruns) == 48 and found.older == ()
    assert {rerun.place.estimator for rerun in found.reruns} >= {"CAELMIPS", "offset", "literal", "CAEL", "IPS"}
    assert found.equal, found.text()
    trained = [rerun for rerun in found.reruns if rerun.place.estimator in (*LEARNED, "offset", "literal")]
    assert max(rerun.difference for rerun in trained) < 1e-7
    assert "48 of 48 rows are equal within tolerance." in found.text()


def changed(results, row, shift):
    """The published values of one row moved by so many tolerances."""
    path = results / "mine" / publish.ROWS
    lines = list(csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))
    place = lines[0].index("value")
    lines[row][place] = repr(float(lines[row][place]) + shift)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    path.write_bytes(gzip.compress(buffer.getvalue().encode()))


def test_a_row_that_differs_is_found(results):
    before = recheck.recheck(results, 100, 0)
    changed(results, 1, 2 * max(rerun.tolerance for rerun in before.reruns))
    found = recheck.recheck(results, 100, 0)
    assert not found.equal and [rerun.equal for rerun in found.reruns].count(False) == 1
    assert found.text().count("DIFFERS") == 1


def test_the_draw_follows_the_seed(results):
    def drawn(seed):
        return [(r.place.estimator, r.place.at, r.place.seed) for r in recheck.recheck(results, 4, seed).reruns]

    assert drawn(1) == drawn(1) != drawn(2)


def test_rows_of_another_version_are_not_drawn(results, capsys):
    path = results / "mine" / "manifest.json"
    manifest = json.loads(path.read_text())
    for change in ({"format": 2}, {"estimators": {**manifest["estimators"], "IPS": {"kind": "IPS", "clip": 3.0}}}):
        path.write_text(json.dumps({**manifest, **change}))
        with pytest.raises(cael.InputError, match=r"has no rows of this version .* other versions: mine"):
            recheck.recheck(results, 3, 0)
    with pytest.raises(SystemExit, match="no rows of this version"):
        recheck.main([str(results)])


def test_the_command_exits_with_what_it_found(results):
    with pytest.raises(SystemExit) as ended:
        recheck.main([str(results), "--rows", "2"])
    assert ended.value.code == 0
    for row in range(1, 10):
        changed(results, row, 5.0)
    with pytest.raises(SystemExit) as ended:
        recheck.main([str(results), "--rows", "48"])
    assert ended.value.code == 1


@pytest.mark.long
def test_a_committed_row_of_every_estimator():
    """The cheapest of each; experiments of an older version of the arithmetic have none."""
    places, older = recheck.committed(COMMITTED)
    if not places:
        pytest.skip(f"the committed rows are of another version: {', '.join(older)}")
    cheapest = {}
    for place in sorted(places, key=lambda each: each.task.size):
        if place.task.size <= CHEAP:
            cheapest.setdefault(json.dumps(place.task.estimator, sort_keys=True), place)
    assert {place.task.estimator["kind"] for place in cheapest.values()} >= {
        "CAELMIPS", "AELMIPS", "NetworkDM", "IPS", "SNIPS", "DM", "DR", "SNDR", "MIPS", "CAEL", "Auto", "LoggedMean",
    }  # fmt: skip
    found = recheck.Recheck(tuple(recheck.rerun(place) for place in cheapest.values()), older)
    assert found.equal, found.text()


@pytest.mark.long
def test_more_runs_later_are_the_rows_of_all_runs_at_once(tmp_path, monkeypatch):
    """Seven runs and then ten are ten: blocks have other bounds, trials the same numbers."""
    monkeypatch.setattr("cael.experiments.registry.QUICK", {"iterations": 20, "epochs": None})
    path = spec_file(tmp_path)
    execute(load(path, quick=True, runs=7), tmp_path / "a", Where(), quiet=True)
    twice = execute(load(path, quick=True, runs=10), tmp_path / "a", Where(), quiet=True)
    once = execute(load(path, quick=True, runs=10), tmp_path / "b", Where(device="auto"), quiet=True)
    keys = [[(row["key"], row["estimator"], row["seed"]) for row in without_cost(rows)] for rows in (twice, once)]
    assert keys[0] == keys[1]
    np.testing.assert_allclose([row["value"] for row in twice], [row["value"] for row in once], rtol=1e-10)


@pytest.mark.long
def test_a_row_is_the_same_in_another_process(tmp_path):
    """Alone, in a process with two threads: nothing of the process that wrote the rows is needed."""
    path = spec_file(tmp_path, runs=2)
    rows = execute(load(path, quick=True), tmp_path / "a", Where(), quiet=True)
    code = (
        "import json, sys; from pathlib import Path; from cael.experiments.run import Where, execute; "
        "from cael.experiments.spec import load; "
        f"rows = execute(load({path!r}, quick=True), Path({str(tmp_path / 'b')!r}), Where(jobs=2), quiet=True); "
        "print(json.dumps([row['value'] for row in rows]))"
    )
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    np.testing.assert_allclose(json.loads(again.stdout), [row["value"] for row in rows], rtol=1e-12)
