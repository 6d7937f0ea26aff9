"""Decisions of Vowpal Wabbit: read to the right values, and the same to Vowpal Wabbit itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cael
from cael.errors import InputError
from tests.io.dsjson import EPSILON, coffee

WORLD = coffee()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cael.io.open_log(WORLD.write(tmp_path_factory.mktemp("vw") / "log.dsjson"))


def test_what_is_read(log: Any) -> None:
    assert log.actions == ("cold", "hot", "ice", "latte")
    assert log.columns.contexts == ("x_User_time", "x_User_visits")
    line = WORLD.lines[5]
    assert log.actions[log.log.actions[5]] == line["c"]["_multi"][line["_labelIndex"]]["_tag"]
    assert log.log.rewards.tolist() == [-line["_label_cost"] for line in WORLD.lines]
    assert log.log.propensities.tolist() == [line["_label_probability"] for line in WORLD.lines]
    assert log.log.eligible is not None
    assert str(log.log.timestamps[61]) == "2026-03-01T00:01:01.123000"


def test_the_logged_policy_is_its_own_mean(log: Any) -> None:
    estimate = cael.IPS().estimate(log.log, log.policy("topk:a+p"))
    assert estimate.value == pytest.approx(log.log.rewards.mean(), rel=1e-12)


def test_the_truth_is_in_the_interval(log: Any) -> None:
    estimate = cael.evaluate(log.log, log.policy("uniform"), learn=False).best
    assert WORLD.uniform in estimate.interval(0.999)


def test_the_scan_is_the_same(log: Any, tmp_path: Path) -> None:
    path = WORLD.write(tmp_path / "log.dsjson")
    scanned = cael.evaluate(cael.scan(path, {"contexts": ["x_User_visits"]}), "uniform", learn=False)
    held = cael.io.open_log(path, {"contexts": ["x_User_visits"]})
    memory = cael.evaluate(held.log, held.policy("uniform"), learn=False)
    assert [row.value for row in scanned] == pytest.approx([row.value for row in memory], rel=1e-9)


def test_another_file_is_a_policy(log: Any, tmp_path: Path) -> None:
    """The probabilities of another model on the same decisions, in any order of the lines."""
    lines = [{**line, "p": [1 / 3] * 3, "_label_probability": 1 / 3} for line in WORLD.lines]
    (tmp_path / "other.dsjson").write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)))
    other = cael.IPS().estimate(log.log, log.policy(f"table:{tmp_path / 'other.dsjson'}"))
    assert other.value == pytest.approx(cael.IPS().estimate(log.log, log.policy("uniform")).value, rel=1e-12)


def test_json_lines_that_are_dsjson_are_seen(tmp_path: Path) -> None:
    assert len(cael.read(WORLD.write(tmp_path / "log.json"))) == len(WORLD.lines)


def change(**more: Any) -> Callable[[dict[str, Any]], None]:
    return lambda line: line.update(more)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (change(pdrop=1.5), r"line 4: pdrop must be a number in \[0, 1\)"),
        (change(p=[0.5, 0.5]), "line 4: expected a list of 3 probabilities"),
        (change(p=["x", 0.2, 0.3]), "line 4: expected a list of 3 probabilities"),
        (change(_label_probability=0.31), "line 4: _label_probability is 0.31"),
        (change(_labelIndex=7), "line 4: _labelIndex is 7"),
        (change(_label_Action=9), "line 4: _labelIndex is"),
        (change(a=[1, 1, 2]), "line 4: its list of actions must name different ones"),
        (change(a=[1, 2, 9]), "line 4: its list of actions"),
        (change(_label_cost="x"), "line 4: _label_cost must be a number"),
        (lambda line: line.pop("c"), "line 4 has no list of actions"),
        (lambda line: line["c"].update(_multi=[]), "line 4 has no list of actions"),
        (lambda line: line["c"].update(User_time="x"), "line 4: two features are named 'User_time'"),
        (lambda line: line.pop("_label_cost"), r"column 'reward' is missing in 1 row \(row 3\)"),
        (lambda line: line.update(EventId="e0"), "repeats the id"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, damage: Callable[[dict[str, Any]], Any], said: str) -> None:
    lines = [copy.deepcopy(line) for line in WORLD.lines[:30]]
    damage(lines[3])
    (tmp_path / "log.dsjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=said):
        cael.read(tmp_path / "log.dsjson")


def test_lines_that_are_no_rows_are_counted(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = list(WORLD.lines[:40])
    lines[7] = {**lines[7], "_skipLearn": True}
    lines.insert(3, {"RewardValue": 1.0, "EnqueuedTimeUtc": "2026-03-01T00:00:00Z", "EventId": "lost"})
    (tmp_path / "log.dsjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = cael.io.open_log(tmp_path / "log.dsjson")
    assert len(table.log) == 39
    assert any("1 lines say _skipLearn" in note for note in table.notes)
    assert any("1 lines are rewards without a decision" in note for note in table.notes)


def test_actions_without_names_are_places(tmp_path: Path) -> None:
    lines = [copy.deepcopy(line) for line in WORLD.lines[:40]]
    for line in lines:
        line["c"]["_multi"] = [{"Drink": {"warm": 1}}, {"Drink": {"cold": 1}}, {"Drink": {"iced": 1}}]
    (tmp_path / "log.dsjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = cael.io.open_log(tmp_path / "log.dsjson")
    assert table.actions == (1, 2, 3)
    assert any("their places in c._multi" in note for note in table.notes)


def test_several_outcomes_are_columns(tmp_path: Path) -> None:
    lines = [{**line, "o": [{"v": {"spend": 2.0, "click": 1}}, {"v": {"spend": 0.5}}]} for line in WORLD.lines[:40]]
    (tmp_path / "log.dsjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert cael.read(tmp_path / "log.dsjson", {"reward": "outcome_spend"}).rewards.tolist() == [2.5] * 40


def slots() -> dict[str, Any]:
    return {
        "Timestamp": "2026-03-01T00:00:00Z", "Version": "1", "EventId": "page",
        "c": {"u": 1.0, "_multi": [{"_tag": name} for name in "abc"], "_slots": [{"size": 2.0}, {"size": 1.0}]},
        "_outcomes": [
            {"_label_cost": -1.0, "_a": [2, 0, 1], "_p": [0.5, 0.3, 0.2], "_o": [1.0]},
            {"_label_cost": 0.0, "_a": [1, 0], "_p": [0.6, 0.4], "_o": []},
        ],
    }  # fmt: skip


def test_slots_are_rows_of_one_cluster(tmp_path: Path) -> None:
    pages = [{**slots(), "EventId": f"page{at}"} for at in range(20)]
    (tmp_path / "log.dsjson").write_text("".join(json.dumps(page) + "\n" for page in pages))
    table = cael.io.open_log(tmp_path / "log.dsjson")
    assert [table.actions[number] for number in table.log.actions[:2]] == ["c", "b"]
    assert table.log.propensities[:2].tolist() == [0.5, 0.6]
    assert len(np.unique(table.log.clusters)) == 20
    assert table.log.contexts[:2].tolist() == [[0.0, 2.0, 1.0], [1.0, 1.0, 1.0]]


def test_slates_are_refused(tmp_path: Path) -> None:
    page = slots()
    page["c"]["_multi"] = [{"_slot_id": 0}, {"_slot_id": 1}]
    (tmp_path / "log.dsjson").write_text(json.dumps(page) + "\n")
    with pytest.raises(InputError, match="slate"):
        cael.read(tmp_path / "log.dsjson")


def test_vowpal_wabbit_reads_the_same(log: Any, tmp_path: Path) -> None:
    """It sees the cost, the probability and the chosen action that we see."""
    vw = pytest.importorskip("vowpalwabbit")
    workspace = vw.Workspace("--cb_explore_adf --dsjson --quiet")
    for row, line in enumerate(WORLD.lines[:50]):
        examples = workspace.parse(json.dumps(line))
        labels = [example.get_label(vw.LabelType.CONTEXTUAL_BANDIT) for example in examples]
        costs = [(at, each.costs[0]) for at, each in enumerate(labels[1:]) if each.costs]
        assert [at for at, _ in costs] == [line["_labelIndex"]]
        assert -costs[0][1].cost == log.log.rewards[row]
        assert costs[0][1].probability == pytest.approx(log.log.propensities[row], rel=1e-6)
        workspace.finish_example(examples)
    workspace.finish()


def test_a_policy_that_vowpal_wabbit_trained(log: Any, tmp_path: Path) -> None:
    """It trains on one half, and its probabilities on the other are a policy; what cael says of it is the truth."""
    vw = pytest.importorskip("vowpalwabbit")
    workspace = vw.Workspace("--cb_explore_adf --dsjson -q UD --epsilon 0.05 --random_seed 1 --quiet")
    for line in coffee(3000, seed=9).lines:
        examples = workspace.parse(json.dumps(line))
        workspace.learn(examples)
        workspace.finish_example(examples)
    written, truth = [], 0.0
    for line in WORLD.lines:
        examples = workspace.parse(json.dumps(line))
        p = np.array(workspace.predict(examples))
        workspace.finish_example(examples)
        order = [place - 1 for place in line["a"]]
        mine = (p / p.sum())[order]
        written.append({**line, "p": mine.tolist(), "_label_probability": float(mine[0])})
        truth += float(mine @ [_chance(line, at) for at in order]) / len(WORLD.lines)
    workspace.finish()
    (tmp_path / "vw.dsjson").write_text("".join(json.dumps(line) + "\n" for line in written))
    estimate = cael.evaluate(log.log, log.policy(f"table:{tmp_path / 'vw.dsjson'}"), learn=False).best
    assert truth in estimate.interval(0.999)
    assert truth > WORLD.uniform + 0.02


def _chance(line: dict[str, Any], at: int) -> float:
    chances = (0.6, 0.2, 0.1, 0.5) if line["c"]["User"]["time"] == "morning" else (0.2, 0.4, 0.5, 0.3)
    return chances[("hot", "cold", "ice", "latte").index(line["c"]["_multi"][at]["_tag"])]


def test_the_generator_explores() -> None:
    assert min(line["_label_probability"] for line in WORLD.lines) == pytest.approx(EPSILON / 3)
