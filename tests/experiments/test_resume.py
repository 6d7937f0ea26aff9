"""Long measurements write what they have as they go, and do not make it again."""

import json

import pytest

from cael.experiments import beyond, trial

objective = pytest.importorskip("cael.experiments.trained_heads")  # needs torch


def test_heads_are_written_world_by_world(tmp_path, monkeypatch):
    made = []

    def one_world(name, trials, device):
        made.append(name)
        if name == "dense" and len(made) < 4:
            raise KeyboardInterrupt
        return name, {"CAEL": {"mse": 1.0, "error": 0.1}}

    monkeypatch.setattr(objective, "one_world", one_world)
    out = tmp_path / "objective.json"
    with pytest.raises(KeyboardInterrupt):
        objective.run(["independent", "paper", "dense"], 3, "cpu", 1, out)
    assert set(json.loads(out.read_text())["worlds"]) == {"independent", "paper"}
    objective.run(["independent", "paper", "dense"], 3, "cpu", 1, out)
    assert made == ["independent", "paper", "dense", "dense"]
    assert list(json.loads(out.read_text())["worlds"]) == ["paper", "independent", "dense"]
    with pytest.raises(SystemExit, match="another run"):
        objective.run(["deficient"], 4, "cpu", 1, out)


def test_gradient_boosting_runs_what_has_no_row_or_failed(tmp_path, monkeypatch):
    made = []

    def run(task):
        made.append(task.seeds[0])
        return [{"seed": task.seeds[0], "truth": 1.0, "value": 2.0, "cost": {"seconds": 0.5}}]

    monkeypatch.setattr(trial, "run", run)
    path = tmp_path / "boosted.json"
    path.write_text('[{"cell": "k = 50", "seed": 0, "value": 1.5}, {"cell": "k = 50", "seed": 1, "error": "no"}]')
    beyond.main(["boosted", str(tmp_path), "--runs", "3", "--cells", "k = 50"])
    assert made == [1, 2]
    assert [row["value"] for row in json.loads(path.read_text())] == [1.5, 2.0, 2.0]
