"""cael learn: exit codes, JSON as its schema says, files, a report."""

from __future__ import annotations

import csv
import json

import pytest

import cael
from cael.cli import main
from cael.cli.schema import schema_of
from cael.datasets import examples
from cael.policies.policy import probabilities


def called(*arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        main(["learn", str(cael.examples.path()), "--candidates", "tree", "best_arm", *arguments])
    return stop.value.code or 0


def test_json_has_what_the_schema_requires_and_a_gate_has_a_code(capsys):
    assert called("--min-lift", "5", "--gate", "--format", "json") == 4
    document = json.loads(capsys.readouterr().out)
    assert set(schema_of("learned")["required"]) <= document.keys()
    assert document["decision"] == "keep"
    assert called("--min-lift", "5") == 0


def test_files_are_written(tmp_path, capsys):
    files = {"save": "p.json", "decisions": "d.csv", "code": "p.sql", "out": "r.html"}
    options = [part for name, file in files.items() for part in (f"--{name}", str(tmp_path / file))]
    assert called("--single", *options) == 0
    assert all((tmp_path / file).stat().st_size > 0 for file in files.values())
    assert "The learned policy" in (tmp_path / "r.html").read_text()
    assert "Policy:" in capsys.readouterr().out


def test_files_that_cannot_be_are_refused_before_the_work(tmp_path, capsys):
    assert called("--save", str(tmp_path / "p.txt")) == 1
    assert ".json" in capsys.readouterr().err
    assert called("--code", str(tmp_path / "no" / "p.py")) == 1
    assert "no folder" in capsys.readouterr().err


def test_limits_hold_by_the_command_too(tmp_path, capsys):
    options = ("--max-changed", "0.3", "--explore", "0.1", "--max-actions", "2", "--guardrail", "x_hour:min:+5%")
    called(*options, "--format", "json", "--save", str(tmp_path / "p.json"))
    document = json.loads(capsys.readouterr().out)
    assert document["changed"] <= 0.3
    assert document["limits"]["max_actions"] == 2
    assert document["limits"]["explore"] == 0.1
    assert [(row["name"], row["bound"]) for row in document["guardrails"]] == [("x_hour", "+5%")]
    log = cael.read(cael.examples.path())
    p = probabilities(cael.read_policy(tmp_path / "p.json", log), log.whole)
    assert p.min() >= 0.1 / log.n_actions - 1e-12


def test_a_second_goal_and_an_unknown_guardrail_are_refused(capsys):
    assert called("--metric", "x_hour:min", "--reward", "clicked") == 1
    assert "learn maximises one reward" in capsys.readouterr().err
    assert called("--guardrail", "nowhere:min:+5%") == 1
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.long
def test_ineligible_actions_are_never_advised_and_no_more_actions_than_may(tmp_path, capsys):
    (path,) = examples.make("recommender", tmp_path, 0)
    decisions = tmp_path / "decisions.csv"
    with pytest.raises(SystemExit) as stop:
        main(
            ["learn", str(path), "--candidates", "best_arm", "linear", "--max-actions", "5", "--decisions",
             str(decisions)]
        )  # fmt: skip
    assert not stop.value.code
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    advised = [row["action"] for row in csv.DictReader(decisions.read_text().splitlines())]
    assert all(action in row["eligible"] for action, row in zip(advised, rows, strict=True))
    assert len(set(advised)) <= 5
    assert capsys.readouterr().out
