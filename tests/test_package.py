"""Importing is cheap and changes nothing; the public names are what __all__ says."""

import inspect
import subprocess
import sys

import cael

HEAVY = ("torch", "scipy.stats", "sklearn", "pandas", "matplotlib", "scipy", "rich", "cyclopts", "pyarrow")


def test_import_loads_numpy_and_nothing_heavier():
    code = f"import sys, cael; print([m for m in {HEAVY!r} if m in sys.modules], 'numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[] True"


def test_a_weighting_estimate_needs_no_scipy_stats():
    code = (
        "import sys, cael; log, policy = cael.testing.example(); cael.SNIPS().estimate(log, policy).interval();"
        "print([m for m in ('torch', 'sklearn', 'pandas', 'scipy.stats') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_all_is_sorted_out_and_complete():
    assert len(cael.__all__) == len(set(cael.__all__))
    public = {name for name, value in vars(cael).items() if not name.startswith("_") and not inspect.ismodule(value)}
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
            assert "V = " in value.__doc__ or "V as of" in value.__doc__ or name in ("SLOPE", "Auto"), name
