"""The cells of the paper's problem, of its sweeps and of the other worlds, by name."""

from __future__ import annotations

from cael.experiments.logs import world_of
from cael.experiments.spec import Cell, load

DEFAULT = "n = 1000, k = 500"
SWEEPS = {"samples": "n", "actions": "k", "logging": "gamma", "epsilon": "epsilon", "noise": "noise"}
"""Experiment -> what its axis is called."""


def cells() -> dict[str, tuple[str, Cell]]:
    """Name -> (experiment, cell): the paper's problem and its sweeps, then the other worlds; each problem once."""
    default = load("bias-variance-mse").cells[0]
    named = {DEFAULT: ("bias-variance-mse", default)}
    for experiment, axis in SWEEPS.items():
        for cell in load(experiment).cells:
            if not _same(cell, default):
                named[f"{axis} = {cell.at:g}"] = (experiment, cell)
    return named | {str(cell.at): ("worlds", cell) for cell in load("worlds").cells if cell.at != "paper"}


def _same(one: Cell, other: Cell) -> bool:
    return one.n == other.n and world_of(one.world)[0] == world_of(other.world)[0]


def sweeps() -> list[str]:
    """The cells of the paper's own world."""
    return [name for name, (experiment, _) in cells().items() if experiment != "worlds"]
