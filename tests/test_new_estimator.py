"""The estimator of CONTRIBUTING: a module and a line of exports are enough, and it runs wherever the others run."""

import html
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cael

ROOT = Path(__file__).resolve().parent.parent
RULE, ESTIMATOR = re.findall(r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M | re.S)[:2]
MODULE = RULE + ESTIMATOR
LINE = re.search(r"`(from cael\.estimators\.implicit import[^`]*)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))[1]
FOUND = """
import runpy
import cael
from tests.laws.test_membership import ESTIMATORS, exported, test_all_estimators_are_here
assert cael.ImplicitIPS is cael.estimators.ImplicitIPS and "ImplicitIPS" in cael.__all__
assert "ImplicitIPS" in cael.estimators.__all__
assert cael.ImplicitIPS() in cael.panel("all") and cael.ImplicitIPS() not in cael.panel()
assert cael.ImplicitIPS() in ESTIMATORS
test_all_estimators_are_here()
page = runpy.run_path("docs/conf.py")["with_estimators"](open("docs/reference/estimators.md").read())
assert "\\n.. autoclass:: ImplicitIPS\\n" in page and "\\n   ImplicitIPS\\n" in page
from cael.cli.options import estimators_of
assert estimators_of(["ImplicitIPS"]) == [cael.ImplicitIPS()]
"""


def test_a_module_and_a_line_are_enough(tmp_path):
    copy = tmp_path / "cael"
    shutil.copytree(ROOT / "src" / "cael", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "estimators" / "implicit.py").write_text(MODULE, "utf-8")
    with (copy / "common" / "public.py").open("a") as public:
        public.write(" ".join(LINE.split()) + "\n")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", FOUND], env={**os.environ, "PYTHONPATH": paths}, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def implicit(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "implicit.py"
    path.write_text(MODULE, "utf-8")
    return runpy.run_path(str(path), run_name="implicit")["ImplicitIPS"](gamma=0.05)


def test_it_runs_on_a_scanned_log(implicit):
    log = cael.scan(cael.examples.path())
    evaluation = cael.evaluate(log, "uniform", implicit, headline=implicit, learn=False)
    comparison = cael.compare(log, {"uniform": "uniform"}, implicit)
    segments = cael.segments(log, "uniform", "country", estimator=implicit)
    calibration = cael.calibrate(log, "uniform", [cael.SNIPS(), implicit], repeats=3, rows=500)
    value = evaluation[implicit.name].value
    assert evaluation.best.estimator == comparison.estimator == segments.estimator == implicit.name
    assert comparison["uniform"].estimate.value == pytest.approx(value, rel=1e-12)
    rows = np.array([row.rows for row in segments])
    assert rows @ [row.value for row in segments] / rows.sum() == pytest.approx(value, rel=1e-12)
    assert {row.estimator for row in calibration} == {"SNIPS", implicit.name}
    groups = {"segments": segments, "calibration": calibration, "comparison": comparison}
    page = cael.report.render(evaluation, **groups)
    assert html.escape(implicit.name) in page and f"{value:.4g}" in page
