"""Logs as teams write them: each is read right, or refused with a message that says what to do."""

import csv
import json
import uuid
from pathlib import Path

import numpy as np
import pytest

import cael
import cael.io

RNG, N, NAMES = np.random.default_rng(5), 400, ["red", "green", "blue"]
MU = np.array([0.5, 0.3, 0.2])
ACTION = RNG.choice(3, N, p=MU)
REWARD = (RNG.random(N) < np.array([0.2, 0.3, 0.5])[ACTION]).astype(int)
AGE = RNG.normal(size=N).round(3)


def written(folder: Path, *, ending: str = "csv", delimiter: str = ",", without: str = "", **changed: list[object]):
    """The log as a file, with some columns changed."""
    columns = {
        "action": [NAMES[a] for a in ACTION], "reward": REWARD.tolist(), "propensity": MU[ACTION].tolist(),
        "x_age": AGE.tolist(), **changed,
    }  # fmt: skip
    columns.pop(without, None)
    path = folder / f"log.{ending}"
    with path.open("w", newline="") as file:
        if ending == "jsonl":
            rows = zip(*columns.values(), strict=True)
            file.writelines(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        else:
            lines = csv.writer(file, delimiter=delimiter)
            lines.writerow(columns)
            lines.writerows(zip(*columns.values(), strict=True))
    return path


def each(of):
    return [of(at) for at in range(N)]


READ = {
    "true and false": {"reward": each(lambda at: str(bool(REWARD[at])))},
    "times with a zone": {"timestamp": each(lambda at: f"2026-03-29T0{at % 9}:{at % 60:02}:00+02:00")},
    "seconds": {"timestamp": each(lambda at: 1.7e9 + at)},
    "users by UUID": {"user_id": each(lambda at: str(uuid.UUID(int=at % 90)))},
    "semicolons": {"delimiter": ";"},
    "tabs": {"delimiter": "\t", "ending": "tsv"},
}


@pytest.mark.parametrize("kind", READ)
def test_is_read_as_it_is_meant(tmp_path, kind):
    log = cael.read(written(tmp_path, **READ[kind]))
    assert (log.rewards == REWARD).all()
    assert log.action_labels == ("blue", "green", "red")
    assert (log.propensities == MU[ACTION]).all()
    assert (log.contexts[:, 0] == AGE).all()
    assert (log.clusters is not None) == (kind == "users by UUID")
    if kind == "times with a zone":
        assert str(log.timestamps[0]) == "2026-03-28T22:00:00.000000"


def test_names_with_commas_and_quotes(tmp_path):
    names = ["red, dark", "green", 'blue "sky"']
    table = cael.io.open_log(written(tmp_path, action=[names[a] for a in ACTION]))
    assert sorted(table.actions) == sorted(names)
    value = cael.SNIPS().estimate(table.log, {names[0]: 1.0, names[1]: 0.0, names[2]: 0.0}).value
    assert value == pytest.approx(REWARD[ACTION == 0].mean())


def test_probabilities_of_all_actions_in_an_object(tmp_path):
    probabilities = each(lambda at: dict(zip(NAMES, MU.tolist(), strict=True)))
    path = written(tmp_path, ending="jsonl", without="propensity", p=probabilities)
    log = cael.read(path, logging="dense:p_*")
    assert log.propensities == pytest.approx(MU[ACTION])


WRONG = {
    "yes and no": ({"reward": each(lambda at: "yes" if REWARD[at] else "no")}, "Write 1 for yes and 0 for no"),
    "thousands": ({"reward": each(lambda at: f"{1234.5 * REWARD[at]:,.2f}")}, "leave out the largest amounts"),
    "currency": ({"reward": each(lambda at: f"${REWARD[at]}.00")}, "without the currency"),
    "decimal comma": (
        {"reward": each(lambda at: f"{REWARD[at]},5"), "delimiter": ";"}, "Write a decimal point in place of the comma",
    ),
    "percent": ({"propensity": (100 * MU[ACTION]).tolist()}, "Divide the column by 100"),
    "percent signs": ({"propensity": each(lambda at: f"{100 * MU[ACTION[at]]:.0f}%")}, "Take the percent sign off"),
    "logarithms": ({"propensity": np.log(MU[ACTION]).tolist()}, "Write their exponentials"),
    "no reward is empty": ({"reward": each(lambda at: 1 if REWARD[at] else "")}, "nothing was earned, write 0"),
    "positions": ({"decision_id": each(lambda at: at // 3)}, r"--cluster decision_id"),
    "named zones": ({"timestamp": ["2026-03-01 00:00:00 Europe/Berlin"] * N}, r"\+01:00 behind for a time zone"),
    "an object in a cell": ({"propensity": [json.dumps({"red": 0.5})] * N}, r"--logging 'dense:p_\*'"),
    "one column for each action": (
        {"without": "action", "action_red": (ACTION == 0).tolist(), "action_blue": (ACTION == 2).tolist()},
        "write one column with the name of the action",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("open_", [cael.read, cael.scan])
def test_is_refused_with_what_to_do(tmp_path, kind, open_):
    changes, said = WRONG[kind]
    with pytest.raises(cael.InputError, match=said):
        log = open_(written(tmp_path, **changes))
        cael.evaluate(log, "uniform", [cael.IPS()], learn=False)


def test_positions_are_a_cluster(tmp_path):
    log = cael.read(written(tmp_path, decision_id=each(lambda at: at // 3)), {"cluster": "decision_id"})
    assert log.groups == -(-N // 3)


def test_small_rewards_are_no_logarithms_and_zero_propensities_are_named(tmp_path):
    with pytest.raises(cael.InputError, match="is not above 0"):
        cael.read(written(tmp_path, propensity=each(lambda at: 0.0 if at == 3 else MU[ACTION[at]])))
    assert cael.read(written(tmp_path, reward=(-REWARD).tolist())).rewards.min() == -1
