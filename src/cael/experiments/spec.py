"""A spec: an experiment as data. Worlds to visit, estimators to run, how often, and what to draw."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, final

from cael.errors import InputError, positive_int
from cael.experiments import registry
from cael.experiments.logs import plain, world_of

FIGURES = {
    "figure-1": ("bias-variance-mse",),
    "figure-2": ("open-bandit-published", "open-bandit"),
    "figure-3": ("samples", "actions", "logging", "epsilon", "noise"),
}
"""Figures of the paper, and the experiments that they are made of."""
CAUSES = ("ablation", "inputs")
"""Experiments on why the method does what it does: part of the extended set alone."""
NAMES = (
    *FIGURES["figure-1"], *FIGURES["figure-3"], "open-bandit", "open-bandit-published", "open-bandit-known", "readings",
    "selection", "worlds", *CAUSES,
)  # fmt: skip
BASE = tuple(name for name in NAMES if name not in CAUSES)
EXTENDED = (
    "bias-variance-mse", "open-bandit", "logging", "ablation", "open-bandit-published", "samples", "actions", "noise",
    "epsilon", "inputs",
)  # fmt: skip
"""Experiments that the extended set has something in, the most important first."""
READINGS: dict[str, dict[str, Any]] = {
    "CAELMIPS(offset)": {"kind": "CAELMIPS", "preset": "offset"},
    "CAELMIPS(literal)": {"kind": "CAELMIPS", "preset": "literal"},
    "CAELMIPS(through-posterior)": {"kind": "CAELMIPS", "preset": "through-posterior"},
    "AELMIPS(offset)": {"kind": "AELMIPS", "offset": True},
    "AELMIPS(trained)": {"kind": "AELMIPS", "preset": "trained"},
}
"""Estimators with settings that every spec can name."""


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

    paper: where in the paper. note: what a reader must know. panels: name of a figure -> its estimators. often:
    estimators with another number of runs than `runs`.
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
    often: dict[str, int] = field(default_factory=dict)

    def runs_of(self, name: str) -> int:
        """Logs per cell for an estimator."""
        return self.often.get(name, self.runs)

    def seeds_of(self, name: str) -> range:
        """Seeds of the logs of an estimator; those of two estimators have the first ones in common."""
        return range(self.seed, self.seed + self.runs_of(name))

    def only(self, names: Collection[str], often: dict[str, int] | None = None) -> Spec:
        """The same with these of its estimators, and the panels that still differ. often: other numbers of runs."""
        estimators = {name: settings for name, settings in self.estimators.items() if name in names}
        panels: dict[str, tuple[str, ...]] = {}
        for panel, members in self.panels.items():
            kept = tuple(name for name in members if name in estimators)
            if kept and kept not in panels.values():
                panels[panel] = kept
        counts = self.often if often is None else often
        runs = {name: count for name, count in counts.items() if name in estimators and count != self.runs}
        return replace(self, estimators=estimators, panels=panels, often=runs)


def experiments_of(names: Sequence[str]) -> list[str]:
    """Names of experiments; a figure of the paper stands for those that it is made of."""
    return list(dict.fromkeys(each for name in names for each in FIGURES.get(name, (name,))))


def load(
    name: str,
    *,
    quick: bool = False,
    runs: int | None = None,
    estimators: Sequence[str] = (),
    extended: bool = False,
) -> Spec:
    """A spec by its name, or from a TOML file. quick: few trials and short training. runs: in place of the spec's.

    estimators: some of its estimators, "paper" or "full"; empty: all. extended: with the readings and the runs that its
    table `extended` adds, too.
    """
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
        spec = parse(tomllib.loads(text), path.stem, quick=quick, runs=runs, extended=extended)
        return _chosen(spec, tomllib.loads(text), estimators) if estimators else spec
    except (KeyError, TypeError) as error:
        raise InputError(f"the spec {name!r} is not complete: {error!r}.") from error


def _chosen(spec: Spec, source: dict[str, Any], names: Sequence[str]) -> Spec:
    """The spec with the estimators that are asked for: its own, its readings, or any that the registry knows."""
    groups = {"paper": spec.panels.get("paper", tuple(spec.estimators)), "full": tuple(spec.estimators)}
    wanted = [each for name in names for each in groups.get(name, (name,))]
    more = {name: settings for name, settings in _named(wanted, source).items() if name not in spec.estimators}
    panels = {**spec.panels, "full": (*spec.panels.get("full", ()), *more)}
    return replace(spec, estimators=spec.estimators | more, panels=panels).only(wanted)


def parse(
    source: dict[str, Any], name: str, *, quick: bool = False, runs: int | None = None, extended: bool = False
) -> Spec:
    """A spec from the contents of its file."""
    contents = {**source, **(source.get("quick", {}) if quick else {})}
    axis = contents.get("axis", "")
    added: dict[str, Any] = source.get("extended", {}) if extended else {}
    estimators, readings = _estimators(contents), _named(added.get("estimators", ()), contents)
    chosen = contents.get("panels", {"paper": registry.PAPER, "full": "all"})
    panels = {panel: tuple(estimators) if names == "all" else tuple(names) for panel, names in chosen.items()}
    if readings:
        estimators, panels["readings"] = estimators | readings, (*panels.get("paper", panels["full"]), *readings)
    often = _often(added, panels) if runs is None and not quick else {}
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
        often=often,
    )


def _often(added: dict[str, Any], panels: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """Other numbers of runs: `runs`, of the paper's estimators and of the readings; `readings`, of these alone."""
    paper, more = panels.get("paper", panels["full"]), added.get("estimators", ())
    counts = {name: added["runs"] for name in (*paper, *more) if "runs" in added}
    counts |= {name: added["readings"] for name in more if "readings" in added}
    return {name: positive_int("runs", count, least=2) for name, count in counts.items()}


def _estimators(contents: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """ "paper", "full", or a list of names; tables of the spec give settings to names of its own."""
    chosen = contents.get("estimators", "full")
    if chosen in ("paper", "full"):
        names = list(registry.PAPER if chosen == "paper" else registry.ESTIMATORS)
    else:
        names = list(chosen)
    return _named(names, contents)


def _named(names: Sequence[str], contents: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name -> {kind, settings} of estimators of the registry, of readings, and of those that the spec itself names."""
    settings = contents.get("settings", {})
    return {name: {"kind": name, **READINGS.get(name, {}), **settings.get(name, {})} for name in names}


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
