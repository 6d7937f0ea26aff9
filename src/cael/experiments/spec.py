"""A spec: an experiment as data. Worlds to visit, estimators to run, how often, and what to draw."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, final

from cael.errors import InputError, positive_int
from cael.experiments import registry
from cael.experiments.logs import plain, world_of

NAMES = (
    "bias-variance-mse", "samples", "actions", "logging", "epsilon", "noise", "open-bandit", "open-bandit-published",
    "open-bandit-known", "readings", "selection", "worlds",
)  # fmt: skip


@final
@dataclass(frozen=True)
class Figure:
    """What is drawn. kind: "bars", "lines" or "ecdf". statistics: of the panels. label: of the horizontal axis."""

    kind: str = "lines"
    statistics: tuple[str, ...] = ("mse",)
    label: str = ""
    log_x: bool = False


@final
@dataclass(frozen=True)
class Cell:
    """One problem: the position on the axis, the world, and the rows of a log. Plain data."""

    at: float | str
    world: dict[str, Any]
    n: int


@final
@dataclass(frozen=True)
class Spec:
    """An experiment. cells: its problems. estimators: name -> {kind, settings}. runs: logs per cell. seed: the first.

    paper: where in the paper. note: what a reader must know. panels: name of a figure -> its estimators.
    """

    name: str
    title: str
    paper: str
    note: str
    runs: int
    seed: int
    axis: str
    cells: tuple[Cell, ...]
    estimators: dict[str, dict[str, Any]]
    panels: dict[str, tuple[str, ...]]
    figure: Figure
    quick: bool = False
    source: dict[str, Any] = field(default_factory=dict, compare=False)


def load(name: str, *, quick: bool = False, runs: int | None = None) -> Spec:
    """A spec by its name, or from a TOML file. quick: few trials and short training. runs: in place of the spec's."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise InputError(f"there is no spec file {name!r}.")
        text = path.read_text("utf-8")
    else:
        if name not in NAMES:
            raise InputError(f"unknown experiment {name!r}; there are: {', '.join(NAMES)}, or the path of a TOML file.")
        text = resources.files("cael.experiments").joinpath("specs", f"{name}.toml").read_text("utf-8")
    try:
        return parse(tomllib.loads(text), path.stem, quick=quick, runs=runs)
    except (KeyError, TypeError) as error:
        raise InputError(f"the spec {name!r} is not complete: {error!r}.") from error


def parse(source: dict[str, Any], name: str, *, quick: bool = False, runs: int | None = None) -> Spec:
    """A spec from the contents of its file."""
    contents = {**source, **(source.get("quick", {}) if quick else {})}
    axis = contents.get("axis", "")
    estimators = _estimators(contents)
    chosen = contents.get("panels", {"paper": registry.PAPER, "full": "all"})
    panels = {panel: tuple(estimators) if names == "all" else tuple(names) for panel, names in chosen.items()}
    unknown = [estimator for names in panels.values() for estimator in names if estimator not in estimators]
    if unknown:
        raise InputError(f"{name}: a panel names {unknown[0]!r}, which is not among its estimators.")
    figure = dict(contents.get("figure", {}))
    figure["statistics"] = tuple(figure.get("statistics", ("mse",)))
    return Spec(
        name=name,
        title=contents["title"],
        paper=contents.get("paper", ""),
        note=contents.get("note", ""),
        runs=positive_int("runs", contents["runs"] if runs is None else runs, least=2),
        seed=positive_int("seed", contents.get("seed", 0), least=0),
        axis=axis,
        cells=_cells(contents, axis),
        estimators=estimators,
        panels=panels,
        figure=Figure(**figure),
        quick=quick,
        source=source,
    )


def _estimators(contents: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """ "paper", "full", or a list of names; tables of the spec give settings to names of its own."""
    chosen = contents.get("estimators", "full")
    if chosen in ("paper", "full"):
        names = list(registry.PAPER if chosen == "paper" else registry.ESTIMATORS)
    else:
        names = list(chosen)
    settings = contents.get("settings", {})
    return {name: {"kind": name, **settings.get(name, {})} for name in names}


def _cells(contents: dict[str, Any], axis: str) -> tuple[Cell, ...]:
    """One cell per value of the axis; the axis is a setting of the world, "n", "world", or nothing."""
    base = plain(contents["world"])
    n = base.pop("n", None)
    if not axis:
        return (Cell("", base, positive_int("n", n, least=2)),)
    cells = []
    for value in contents["values"]:
        if axis == "n":
            cells.append(Cell(value, base, value))
        elif axis == "world":
            named = {"kind": "suite", "name": value}
            cells.append(Cell(value, plain(named), world_of(named)[1]))
        else:
            cells.append(Cell(value, plain({**base, axis: value}), positive_int("n", n, least=2)))
    return tuple(cells)
