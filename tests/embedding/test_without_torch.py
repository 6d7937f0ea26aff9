"""Where torch is not installed CAEL, Auto and the command say the same, and what needs torch says what to install."""

import json
import os
import subprocess
import sys

import pytest

import cael
import cael.testing

WITHOUT = """
import importlib.machinery, sys
finder = importlib.machinery.PathFinder
find = finder.find_spec
finder.find_spec = staticmethod(lambda name, *rest: None if name.partition(".")[0] == "torch" else find(name, *rest))
"""
"""Python as if torch were not installed."""

QUICK = cael.Growth(steps=20, hidden=8, penalties=(1.5,), restarts=1)
ESTIMATES = """
import cael
from tests.embedding.test_without_torch import QUICK
log, policy = cael.testing.example()
print([e.estimate(log, policy).value for e in (cael.CAEL(growth=QUICK), cael.Auto(cael=cael.CAEL(growth=QUICK)))])
"""
REFUSALS = """
import cael
from tests.embedding.test_without_torch import QUICK
from dataclasses import replace
log, policy = cael.testing.example()
for estimator in (
    cael.CAELMIPS(), cael.AELMIPS(), cael.NetworkDM(), cael.DR(outcome=cael.NetworkOutcome()),
    cael.CAEL(growth=replace(QUICK, device="cuda")), cael.CAEL(growth=replace(QUICK, parallel=True)),
):
    try:
        print(estimator.estimate(log, policy))
    except cael.NeedsError as error:
        print(error)
"""


def python(code, *arguments):
    """What a Python without torch prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode in (0, 3), done.stderr[-2000:]  # 3: the verdict is "refuse"
    return done.stdout


def command(*arguments):
    return python("from cael.cli import main; main()", *arguments)


def test_the_pretence_holds():
    """Negative control: torch can be neither found nor imported there."""
    code = "import importlib.util\nprint(importlib.util.find_spec('torch'))\nimport numpy, scipy"
    assert python(code).strip() == "None"
    with pytest.raises(AssertionError, match="No module named 'torch'"):
        python("import torch")


def test_cael_and_auto_say_the_same_to_the_last_bit():
    log, policy = cael.testing.example()
    flagship = cael.CAEL(growth=QUICK)
    here = [each.estimate(log, policy).value for each in (flagship, cael.Auto(cael=flagship))]
    assert json.loads(python(ESTIMATES)) == here


@pytest.mark.long
def test_the_command_evaluates_with_auto_and_cael(tmp_path):
    log = str(tmp_path / "log.npz")
    command("simulate", log, "--actions", "10", "--rows", "300")
    given = json.loads(command("evaluate", log, "--policy", "target", "--estimators", "CAEL", "--format", "json"))
    estimates = {each["estimator"]: each for each in given["estimates"]}
    assert estimates["CAEL"]["value"] == estimates["Auto"]["value"]
    assert "Auto chose CAEL from 3 candidates." in estimates["Auto"]["diagnostics"]["warnings"]
    demo = json.loads(command("demo", "--actions", "10", "--rows", "300", "--format", "json"))
    assert demo["estimates"][0]["value"] == estimates["Auto"]["value"]


def test_what_needs_torch_says_what_to_install():
    names = ("CAELMIPS", "AELMIPS", "NetworkOutcome", "NetworkOutcome", "device='cuda'", "Growth(parallel=True)")
    said = python(REFUSALS).splitlines()
    assert said == [f"{name} needs torch, which is not installed: pip install 'cael[torch]'." for name in names]
