"""Importing is cheap and changes nothing; the public names are what __all__ says."""

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cael
from cael.common import public as _public

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "scipy.stats", "sklearn", "pandas", "matplotlib", "scipy", "rich", "cyclopts", "pyarrow")


def loaded(code, modules):
    """Those of the modules that a fresh Python has loaded after the code."""
    told = f"import sys; {code}; print([m for m in {modules!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout
    return ast.literal_eval(out)


def test_import_loads_nothing_and_the_first_name_loads_numpy_alone():
    assert loaded("import cael", ("numpy", *HEAVY)) == []
    assert loaded("import cael; cael.evaluate", ("numpy", *HEAVY)) == ["numpy"]


def test_the_help_of_the_command_line_waits_for_no_numbers():
    assert loaded("import cael.cli", ("numpy", "pyarrow", "scipy", "cael.results.evaluate")) == []


def test_names_are_there_before_anything_asked_for_them():
    code = "import cael, cael.io; assert 'evaluate' in dir(cael) and 'open_log' in dir(cael.io); import cael.io as io;"
    assert loaded(code + "assert cael.results.evaluate.evaluate is cael.evaluate and io.read is cael.read", ()) == []
    assert loaded("from cael import *; evaluate, report", ("cael.report",)) == ["cael.report"]


def test_a_name_that_is_not_there_is_an_attribute_error():
    for module, name in ((cael, "evaluat"), (cael, "_missing"), (cael.io, "reed")):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute '{name}'"):
            getattr(module, name)


def test_a_weighting_estimate_needs_no_scipy_stats():
    code = "import cael; log, policy = cael.testing.example(); cael.SNIPS().estimate(log, policy).interval()"
    assert loaded(code, ("torch", "sklearn", "pandas", "scipy.stats")) == []


def test_all_is_sorted_out_and_complete():
    assert len(cael.__all__) == len(set(cael.__all__))
    seen = vars(_public).items()
    public = {name for name, value in seen if not name.startswith("_") and not inspect.ismodule(value)}
    assert dir(cael) == sorted(cael.__all__)
    assert public == {name for name in cael.__all__ if not inspect.ismodule(getattr(cael, name))} - {"__version__"}


def test_every_public_class_and_function_has_a_docstring():
    for name in cael.__all__:
        value = getattr(cael, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert (value.__doc__ or "").strip(), name


def test_every_estimator_has_formula_reference_and_doctest():
    for name in cael.__all__:
        value = getattr(cael, name)
        if inspect.isclass(value) and issubclass(value, cael.Estimator) and value is not cael.Estimator:
            assert ">>>" in value.__doc__, name
            assert "V = " in value.__doc__ or "V of `" in value.__doc__ or name in ("SLOPE", "Auto"), name


def script(name):
    """A file of .ci as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_hashed_requirements_have_the_versions_of_the_constraints():
    hashes = script("hashes")
    assert {name: hashes.pins()[name] for name in hashes.needed()} == hashes.written()
    blocks = re.split(r"\n(?=[a-z])", (ROOT / "requirements-runtime.txt").read_text().split("cael\n", 1)[1])
    assert all(re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n?", block) for block in blocks)
    assert len(blocks) == len(hashes.written()) > 20


def test_every_dependency_declares_one_least_version(tmp_path):
    pins = script("minima").minima(ROOT / "pyproject.toml")
    names = [pin.split("==")[0] for pin in pins]
    assert len(names) == len(set(names)) and {"numpy", "pyarrow", "pandas", "distributed", "jinja2"} <= set(names)
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["numpy"]\n[project.optional-dependencies]\n'
                                             'report = []\nplots = []\ndask = []\ntest = []\n')  # fmt: skip
    with pytest.raises(SystemExit, match="must declare one least version"):
        script("minima").minima(tmp_path / "pyproject.toml")
