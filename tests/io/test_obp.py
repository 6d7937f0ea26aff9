"""A user of obp gets the same point estimates from the same dictionary (golden numbers of obp 0.5.7)."""

import json
from pathlib import Path

import numpy as np
import pytest

import cael
from tests.oracles.test_obp_parity import estimators

CASES = json.loads((Path(__file__).parents[1] / "oracles" / "obp_parity.json").read_text())["cases"]


def feedback(case):
    """The dictionary that obp's datasets give."""
    pi_b, action = np.array(case["logging"]), np.array(case["actions"])
    return {
        "n_rounds": case["n"],
        "n_actions": case["k"],
        "context": np.array(case["contexts"]),
        "action_context": np.eye(case["k"]),
        "action": action,
        "position": None,
        "reward": np.array(case["rewards"]),
        "expected_reward": np.full(pi_b.shape, np.nan),
        "pi_b": pi_b[:, :, None],
        "pscore": pi_b[np.arange(case["n"]), action],
    }


@pytest.mark.parametrize("name", sorted(set(CASES[0]["estimates"]) - {"mips_logistic"}))
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"n={case['n']},k={case['k']}")
def test_the_same_point_estimates(case, name):
    log, policy = cael.io.from_obp(feedback(case), np.array(case["target"])[:, :, None])
    found = estimators(case)[name].estimate(log, policy)
    assert found.value == pytest.approx(case["estimates"][name], abs=1e-6)


def test_what_is_taken_over():
    given = feedback(CASES[0])
    log = cael.io.from_obp(given)
    assert log.n_actions == given["n_actions"]
    assert log.logging is not None
    assert (log.action_features == given["action_context"]).all()
    assert (
        cael.io.from_obp({**given, "pi_b": None, "position": np.zeros(given["n_rounds"])}).propensities
        == given["pscore"]
    ).all()


def test_only_what_is_needed():
    dist = np.full((4, 3, 1), 1 / 3)
    log, policy = cael.io.from_obp({"action": [0, 1, 1, 0], "reward": [1, 0, 1, 1], "pscore": [0.5] * 4}, dist)
    assert log.n_actions == 3
    assert cael.IPS().estimate(log, policy).value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"action": None}, "has no 'action'"),
        ({"position": [0, 1, 0, 1]}, "2 positions: a slate"),
        ({"pscore": [0.5, 0.0, 0.5, 0.5]}, "propensity must be in"),
        ({"pi_b": np.full((4, 2, 3), 0.5)}, r"pi_b must have shape \(n, n_actions, 1\)"),
    ],
)
def test_what_cannot_be_taken_over_is_said(change, says):
    given = {"action": [0, 1, 1, 0], "reward": [1, 0, 1, 1], "pscore": [0.5] * 4}
    with pytest.raises(cael.InputError, match=says):
        cael.io.from_obp({**given, **change})


def test_a_frame_is_not_a_dictionary_of_obp():
    with pytest.raises(cael.InputError, match="a dict; got list"):
        cael.io.from_obp([1, 2])
