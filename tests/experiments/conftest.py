"""A small experiment that every test of this folder can run in a moment."""

import pytest

SPEC = """
title = "A small experiment"
runs = {runs}
axis = "n_actions"
values = [5, 10]
estimators = ["IPS", "SNIPS", "DM", "DR"]

[world]
kind = "paper"
n = 100
action_dim = 3

[panels]
full = "all"

[figure]
statistics = ["mse", "bias", "variance"]
label = "number of actions"
"""


@pytest.fixture
def small(tmp_path):
    """The path of the spec, with 4 runs."""
    return written(tmp_path, 4)


def written(folder, runs):
    path = folder / "small.toml"
    path.write_text(SPEC.format(runs=runs))
    return path


def without_cost(rows):
    """Rows as they must be equal: all but time and memory."""
    return [{name: value for name, value in row.items() if name != "cost"} for row in rows]
