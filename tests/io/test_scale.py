"""A million rows, 500 actions and a top-20 policy: under a minute and under 2 GiB, from the file to the verdict."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "million_rows.py"


def measured(*options: str) -> dict:
    found = subprocess.run([sys.executable, BENCHMARK, *options], capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["topk", "table"])
def test_a_million_rows(form):
    found = measured("--form", form)
    assert {"IPS", "SNIPS", "DM", "DR", "SNDR"} <= set(found["estimators"])
    assert found["seconds"] < 60
    assert found["peak_mib"] < 2048


@pytest.mark.parametrize("form", ["topk", "table"])
def test_memory_grows_with_the_lists_and_not_with_the_actions(form):
    """40,000 rows times 4000 actions would be 1,221 MiB as one table of numbers."""
    found = measured("--rows", "40000", "--actions", "4000", "--form", form)
    assert found["peak_mib"] < 600
