"""Tables as Eppo and GrowthBook write them, whose rewards are in another table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import cael
from cael.cli import app
from cael.errors import InputError

ROWS = 1200
BRANDS = ("adidas", "nike", "reebok")


def eppo(folder: Path) -> tuple[Path, Path, float]:
    """A bandit's events as its SDK logs them, the purchases, and the true value of a uniform choice."""
    rng = np.random.default_rng(0)
    age, action = rng.integers(18, 70, ROWS), rng.choice(3, ROWS, p=[0.5, 0.3, 0.2])
    chance = np.clip(0.2 + 0.15 * action + 0.002 * age, 0, 1)
    bought = rng.random(ROWS) < chance
    events = [
        {
            "timestamp": f"2026-05-{1 + row // 60:02d}T10:{row % 60:02d}:00.000Z", "featureFlag": "shoes",
            "bandit": "shoe_bandit",
            "subject": f"s{row}", "action": BRANDS[action[row]], "actionProbability": [0.5, 0.3, 0.2][action[row]],
            "optimalityGap": 0.1, "modelVersion": "v1", "subjectNumericAttributes": {"age": float(age[row])},
            "subjectCategoricalAttributes": {"country": "USA"}, "actionNumericAttributes": {"price": 1.0},
            "actionCategoricalAttributes": {}, "metaData": {"sdkName": "x"},
        }
        for row in range(ROWS)
    ]  # fmt: skip
    log = folder / "events.jsonl"
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    rows = rng.permutation(np.flatnonzero(bought))
    pyarrow.csv.write_csv(
        pa.table({"subject": [f"s{row}" for row in rows] + ["s-other"], "revenue": [1.0] * (len(rows) + 1)}),
        folder / "buys.csv",
    )
    return (
        log,
        folder / "buys.csv",
        float(np.mean([np.clip(0.2 + 0.15 * at + 0.002 * age, 0, 1).mean() for at in range(3)])),
    )


def test_eppo(tmp_path: Path) -> None:
    log, buys, truth = eppo(tmp_path)
    table = cael.io.open_log(cael.io.Joined(log, buys, "subject", no_reward=0), {"layout": "eppo", "reward": "revenue"})
    columns = table.columns
    assert (columns.action, columns.propensity, columns.cluster) == ("action", "actionProbability", "subject")
    assert columns.contexts == ("subjectNumericAttributes_age", "subjectCategoricalAttributes_country")
    assert any("1 of its" in note and "belong to no decision" in note for note in table.notes)
    assert truth in cael.evaluate(table.log, table.policy("uniform"), learn=False).best.interval(0.999)


def test_the_command_joins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, buys, _ = eppo(tmp_path)
    words = ["evaluate", str(log), "--layout", "eppo", "--rewards", str(buys), "--on", "subject", "--no-reward", "0"]
    app([*words, "--reward", "revenue", "--policy", "uniform", "--no-learn"], result_action="return_value")
    assert "propensity = 'actionProbability'" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(InputError, match="--rewards FILE --on COLUMN"):
        cael.read(log, {"layout": "eppo"})
    with pytest.raises(InputError, match="go together"):
        app(["audit", str(log), "--on", "subject"], result_action="return_value", exit_on_error=False)


def test_decisions_without_a_reward_are_refused(tmp_path: Path) -> None:
    log, buys, _ = eppo(tmp_path)
    with pytest.raises(InputError, match="column 'revenue' is missing"):
        cael.read(cael.io.Joined(log, buys, "subject"), {"layout": "eppo", "reward": "revenue"})


def written(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


LOG: dict[str, Any] = {"id": [1, 2, 3], "action": [0, 1, 0], "propensity": [0.5] * 3}


@pytest.mark.parametrize(
    ("log", "rewards", "said"),
    [
        ({**LOG, "id": [1, 1, 2]}, {"id": [1, 2], "reward": [1.0, 2.0]}, "'id' 1 is in 2 rows of the log"),
        (LOG, {"id": [1, 1, 2, 3], "reward": [1.0] * 4}, "add its rewards up first"),
        (LOG, {"key": [1], "reward": [1.0]}, "has no column 'id' to join by"),
        ({"key": [1], "action": [1]}, {"id": [1], "reward": [1.0]}, "has no column 'id' to join rewards by"),
        (LOG, {"id": ["1", "2", "3"], "reward": [1.0] * 3}, "write both alike"),
        ({**LOG, "id": ["01", "2", "3"]}, {"id": [1, 2, 3], "reward": [1.0] * 3}, "write both alike"),
        ({**LOG, "reward": [1.0] * 3}, {"id": [1, 2, 3], "reward": [1.0] * 3}, "both have a column 'reward'"),
    ],
)
def test_joins_that_would_be_wrong_are_refused(
    tmp_path: Path, log: dict[str, Any], rewards: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        cael.read(
            cael.io.Joined(written(tmp_path / "log.parquet", **log), written(tmp_path / "r.parquet", **rewards), "id")
        )


def test_rows_keep_their_order(tmp_path: Path) -> None:
    log = written(tmp_path / "log.parquet", **{**LOG, "id": ["3", "1", "2"]})
    log_table = cael.read(
        cael.io.Joined(log, written(tmp_path / "r.parquet", id=[1, 2, 3], reward=[1.0, 2.0, 3.0]), "id")
    )
    assert log_table.rewards.tolist() == [3.0, 1.0, 2.0]


def test_growthbook(tmp_path: Path) -> None:
    """A contextual bandit's exposures: the weights of the visitor's leaf are logged, the reward is joined."""
    rng = np.random.default_rng(1)
    leaf = rng.integers(0, 2, ROWS)
    weights = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])[leaf]
    variation = (rng.random((ROWS, 1)) > weights.cumsum(axis=1)).sum(axis=1)
    chance = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.6]])
    rewards = (rng.random(ROWS) < chance[leaf, variation]).astype(float)
    log = written(
        tmp_path / "exposures.parquet", user_id=[f"u{row}" for row in range(ROWS)], timestamp=np.arange(ROWS),
        experiment_id=["e"] * ROWS,
        variation_id=variation, leaf_id=leaf, bandit_version=[1] * ROWS, variation_weights=weights.tolist(),
        x_country=leaf,
    )  # fmt: skip
    orders = written(tmp_path / "orders.parquet", user_id=[f"u{row}" for row in range(ROWS)], converted=rewards)
    table = cael.io.open_log(
        cael.io.Joined(log, orders, "user_id"),
        {"layout": "growthbook", "reward": "converted"},
        logging="dense:variation_weights",
    )
    assert table.log.propensities == pytest.approx(weights[np.arange(ROWS), variation])
    assert table.columns.cluster == "user_id"
    truth = float(chance[leaf].mean())
    assert truth in cael.evaluate(table.log, table.policy("uniform"), learn=False).best.interval(0.999)


def test_attributes_in_one_column_are_refused(tmp_path: Path) -> None:
    path = written(
        tmp_path / "e.parquet",
        action=[0, 1],
        reward=[1.0, 0.0],
        actionProbability=[0.5, 0.5],
        subjectNumericAttributes=["{}"] * 2,
    )
    with pytest.raises(InputError, match="JSON lines"):
        cael.read(path, {"layout": "eppo"})


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are: eppo, growthbook"):
        cael.read(written(tmp_path / "log.parquet", **LOG), {"layout": "optimizely"})
