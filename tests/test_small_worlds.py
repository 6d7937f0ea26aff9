"""The five small examples: each can be read as its tutorial says, and the truth is in the interval."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import cael
from cael.datasets import examples
from cael.datasets.small_worlds import WORLDS
from cael.errors import InputError

ASKED = {
    "revenue": ("revenue.parquet", {"reward": "revenue"}, "choice:new_offer"),
    "email": ("email.csv", {"reward": "visited"}, "choice:by_history"),
    "recommender": ("recommender.jsonl", {}, "topk:eligible+new_probabilities"),
    "ads": ("ads.dsjson", {}, "table:new_model.csv"),
    "llm-router": ("llm_router.jsonl", {"reward": "quality"}, "choice:router"),
}
SEEDS = 3


def test_they_are_all_asked_about() -> None:
    assert set(ASKED) == set(WORLDS)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_truth_is_in_the_interval(name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all estimators that are right without a model, as an error of more than 3.9 standard errors is one in
    10,000."""
    monkeypatch.chdir(tmp_path)
    examples.make(name, seed=seed)
    file, columns, spec = ASKED[name]
    table = cael.io.open_log(file, columns)
    truth = examples.truth(name, seed)
    for policy in (spec, "uniform"):
        evaluation = cael.evaluate(table.log, table.policy(policy), learn=False)
        for estimate in evaluation:
            if estimate.estimator in ("IPS", "DR", "SNDR"):
                assert abs(estimate.value - truth[policy]) < 3.9 * estimate.stderr, (policy, estimate)
    logged = truth.get("logging", truth.get("topk:a+p", truth["uniform"]))
    rewards = table.log.rewards
    assert abs(rewards.mean() - logged) < 4.5 * rewards.std() / math.sqrt(len(rewards))


def test_negative_control_another_truth_is_outside(tmp_path: Path) -> None:
    examples.make("recommender", tmp_path)
    table = cael.io.open_log(tmp_path / "recommender.jsonl")
    estimate = cael.DR().estimate(table.log, table.policy("topk:eligible+new_probabilities"))
    assert abs(estimate.value - examples.truth("recommender")["uniform"]) > 3.9 * estimate.stderr


def test_a_seed_is_an_example(tmp_path: Path) -> None:
    first, again, other = (examples.world("email", seed).files["email.csv"] for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["visited"], other["visited"])


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "new_model.csv").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        examples.make("ads", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new_model.csv"]
    with pytest.raises(InputError, match="there is no example"):
        examples.make("x", tmp_path)
