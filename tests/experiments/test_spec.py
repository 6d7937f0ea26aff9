"""Specs are data: those that ship are complete, and a wrong one is refused in words."""

import re
from pathlib import Path

import pytest

import cael
from cael.experiments import registry
from cael.experiments.logs import world_of
from cael.experiments.run import plan
from cael.experiments.spec import BASE, CAUSES, EXTENDED, NAMES, experiments_of, load, parse

RUNS = {"samples": 100, "ablation": 50, "inputs": 50}
VALUES = {
    "actions": [50, 100, 1000, 1500],
    "logging": [-1.0, -0.5, 0.0, 0.5, 1.0],
    "epsilon": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
}


@pytest.mark.parametrize("name", NAMES)
def test_every_spec_says_what_the_paper_says(name):
    spec = load(name)
    assert spec.runs == RUNS.get(name, 30)
    if name in VALUES:
        assert [cell.at for cell in spec.cells] == VALUES[name]
    if spec.paper:
        assert set(registry.PAPER) <= set(spec.estimators) and set(spec.panels) == {"paper", "full"}
    assert all(
        registry.make(**settings).needs for settings in spec.estimators.values() if settings["kind"] != "LoggedMean"
    )


@pytest.mark.parametrize("name", NAMES)
def test_quick_versions_are_small(name):
    spec = load(name, quick=True)
    assert spec.quick and spec.runs == 2 and len(spec.cells) <= 2
    assert load(name, quick=True, runs=7).runs == 7


def test_the_default_problem_is_the_papers():
    (cell,) = load("bias-variance-mse").cells
    assert cell.n == 1000 and world_of(cell.world)[0] == cael.worlds.PaperWorld()


def test_the_suite_has_the_default_problem_by_its_own_name_and_it_is_run_once():
    own = {cell.at: cell for cell in load("worlds").cells}
    assert (own["paper"].world, own["paper"].n) == (load("bias-variance-mse").cells[0].world, 1000)
    assert own["dense"].world == {"kind": "suite", "name": "dense"}


def test_a_new_estimator_in_the_registry_joins_the_full_panels(monkeypatch):
    monkeypatch.setitem(registry.ESTIMATORS, "New", lambda device, quick: cael.SNIPS())
    for name in ("bias-variance-mse", "worlds", "open-bandit"):
        assert "New" in load(name).panels["full"] and "New" not in load(name).panels.get("paper", ())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimators": ["Magic"]}, "unknown estimator 'Magic'"),
        ({"world": {"kind": "moon", "n": 10}}, "unknown kind of world 'moon'"),
        ({"panels": {"full": ["DM"]}}, "a panel names 'DM'"),
        ({"runs": 1}, "runs must be"),
    ],
)
def test_a_wrong_spec_is_refused(change, words):
    told = {
        "title": "t",
        "runs": 2,
        "estimators": ["IPS"],
        "world": {"kind": "paper", "n": 10},
        "panels": {"full": "all"},
    }
    with pytest.raises(cael.InputError, match=words):
        spec = parse({**told, **change}, "mine")
        registry.make(**next(iter(spec.estimators.values())))
        world_of(spec.cells[0].world)


def test_names_and_files_that_do_not_exist_are_refused(tmp_path):
    with pytest.raises(cael.InputError, match="unknown experiment 'nix'; there are: bias-variance-mse"):
        load("nix")
    with pytest.raises(cael.InputError, match="no spec file"):
        load(str(tmp_path / "nix.toml"))
    path = tmp_path / "empty.toml"
    path.write_text("runs = 2")
    with pytest.raises(cael.InputError, match="is not complete"):
        load(str(path))


def test_settings_are_described_without_device_and_seed():
    one = registry.described(registry.make("CAELMIPS", device="cpu"))
    assert one == registry.described(registry.make("CAELMIPS", device="cuda"))
    assert one != registry.described(registry.make("CAELMIPS", quick=True))
    assert registry.described(cael.IPS()) != registry.described(cael.SNIPS())
    assert registry.seeded(cael.DR(), 5).seed == 5 and registry.seeded(cael.IPS(), 5) == cael.IPS()


def test_the_extended_set_adds_readings_and_runs_and_leaves_the_first_blocks_as_they_are():
    base, wide = load("actions"), load("actions", extended=True)
    assert base.estimators.keys() < wide.estimators.keys() and base.often == {}
    assert {wide.runs_of(name) for name in registry.PAPER} == {100} and wide.runs_of("CAELMIPS(offset)") == 40
    assert wide.runs_of("CAEL") == 30 and list(wide.seeds_of("CAELMIPS(offset)")) == list(range(40))
    assert wide.panels["readings"][-1] == "AELMIPS(offset)" and "CAELMIPS(offset)" not in wide.panels["full"]
    for device in ("cpu", "cuda"):
        blocks = {tuple(task.keys) for task in plan(wide, device)}
        assert {tuple(task.keys) for task in plan(base, device)} <= blocks
    assert load("actions", extended=True, runs=5).often == {} == load("actions", extended=True, quick=True).often


def test_estimators_are_chosen_by_name_by_group_and_from_the_registry():
    assert list(load("samples", estimators=["IPS", "CAELMIPS(offset)"]).estimators) == ["IPS", "CAELMIPS(offset)"]
    paper = load("open-bandit", estimators=["paper"])
    assert list(paper.estimators) == ["CAELMIPS", "AELMIPS", "IPS", "NetworkDM", "LoggedMean"]
    assert paper.panels == {"paper": tuple(paper.estimators)}
    assert load("open-bandit", estimators=["CAELMIPS(offset)"]).estimators["CAELMIPS(offset)"] == {
        "kind": "CAELMIPS", "preset": "offset", "network": {"actions": "onehot"},
    }  # fmt: skip
    assert "OffCEM" in load("noise", estimators=["full", "OffCEM"]).estimators
    with pytest.raises(cael.InputError, match="unknown estimator 'Magic'"):
        plan(load("noise", estimators=["Magic"]), "cpu")


def test_a_figure_stands_for_its_experiments():
    assert experiments_of(["figure-2", "open-bandit", "noise"]) == ["open-bandit-published", "open-bandit", "noise"]
    assert set(EXTENDED) <= set(NAMES) and set(BASE) | set(CAUSES) == set(NAMES)
    added = {name for name in BASE if load(name, extended=True).estimators != load(name).estimators}
    assert added | set(CAUSES) == set(EXTENDED)


def test_the_page_lists_every_experiment_with_its_runs():
    text = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \|[^|]*\| (\d+) \| ([^|]*)\|$", text, re.MULTILINE)
    assert {name: int(runs) for name, runs, _ in rows} == {name: load(name).runs for name in NAMES}
    assert all(where.strip().startswith(load(name).paper.partition(" (")[0]) for name, _, where in rows)
