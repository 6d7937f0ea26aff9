"""Experiments on logs that hold few propensities or none: they stop in time, go on, and count what they say."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import cael
from cael.experiments import propensities_only, resumed, without_propensities
from cael.experiments.untold import WORLDS, UntoldWorld, bare, hidden_from
from cael.policies.policy import probabilities

SMALL = ("linear, 2 actions", "hidden 1.2, 2 actions")


def test_hidden_causes_move_probabilities_by_no_more_than_the_factor():
    rng = np.random.default_rng(0)
    p, favoured = rng.dirichlet(np.ones(5), 200), np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    up, down = (hidden_from(p, np.full(200, sign), favoured, 1.5) for sign in (1.0, -1.0))
    for moved in (up, down):
        assert moved.sum(axis=1) == pytest.approx(1.0)
        assert (moved <= 1.5 * p + 1e-12).all()
        assert (moved >= p / 1.5 - 1e-12).all()
    np.testing.assert_allclose((up + down) / 2, p)
    assert np.abs(up / p - 1).max() > 0.3


@pytest.mark.parametrize("name", ["steps, 4 actions", "epsilon-greedy, 5 actions", "eligible, 12 actions"])
def test_logs_of_these_worlds_are_sound_with_their_propensities(name):
    world, n = WORLDS[name]
    log = world.sample(n, 9000)
    assert cael.audit(log)["frequencies"].status == "pass"
    assert cael.audit(log)["surprise"].status == "pass"
    assert bare(log).propensities is None
    estimate = cael.SNDR().estimate(log, world.target)
    assert abs(estimate.value - world.value(world.target)) < 4 * estimate.stderr


@pytest.mark.parametrize("world", [UntoldWorld(4, factor=1.5, effect=1.0), UntoldWorld(5, "waves")])
def test_the_logging_policy_earns_what_is_said(world):
    rewards = world.sample(20_000, 9001).rewards
    assert abs(rewards.mean() - world.logged_value()) < 4 * rewards.std() / math.sqrt(len(rewards))
    assert probabilities(world.target, world.sample(10, 0).whole).sum(axis=1) == pytest.approx(1.0)


def test_a_run_stops_goes_on_and_ends_where_one_run_ends(tmp_path, capsys):
    def run(folder, *options):
        out = tmp_path / folder / "facts.json"
        where = ["--out", str(out), "--rows", str(out.with_suffix(".jsonl")), "--only", *SMALL, "--logs", "2"]
        without_propensities.main([*where, "--seeds", "100", *options])
        return out

    stopped = run("parts", "--seconds", "0.0")
    assert "logs are done; run the same command again to go on" in capsys.readouterr().err
    run("parts")
    whole = run("whole")
    one, other = (json.loads(path.read_text()) for path in (stopped, whole))
    for facts in (one, other):
        for world in facts["worlds"].values():
            del world["seconds"]
    assert one == other
    assert list(one["worlds"]) == list(SMALL)
    assert all(world["logs"] == 2 for world in one["worlds"].values())
    assert whole.with_suffix(".inc").read_text() == without_propensities.page(json.loads(whole.read_text()))


def test_calls_end_in_time(monkeypatch):
    clock = iter([0.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr(resumed.time, "monotonic", lambda: next(clock))
    assert list(resumed.until([(0,), (1,), (2,)], 1.5)) == [(0,)]


def test_unknown_worlds_are_named():
    with pytest.raises(cael.InputError, match="there is no world 'x'; there are: linear, 2 actions"):
        without_propensities.main(["--out", "x.json", "--only", "x"])


def test_the_summary_counts_what_the_lines_say():
    line = {
        "world": SMALL[1], "seed": 1, "n": 10, "k": 2, "truth": 1.0, "true_lift": 0.5, "family": "logistic",
        "off": 0.1, "seconds": 1.0, "level": "caution", "refused": [], "best": [0.0, -1.0, 0.5],
        "lift": [0.4, 0.3, 0.6], "known": [1.0, 0.5, 1.5], "snips": [1.0, 0.9, 1.2], "factor": 1.2,
        "bound": [-2.0, 1.1], "sign": 1.3,
    }  # fmt: skip
    broken = {**line, "level": "refuse", "refused": ["support"], "bound": [2.0, 3.0]}
    of = without_propensities.of_world([line, broken])
    counts = {name: of[name] for name in ("covers", "lift_covers", "snips_covers", "known_covers", "bound_covers")}
    assert counts == {"covers": 0, "lift_covers": 2, "snips_covers": 2, "known_covers": 2, "bound_covers": 1}
    assert (of["width"], of["levels"]["refuse"]) == (1.5, 1)
    table = without_propensities.page({"worlds": {SMALL[1]: of}})
    assert "least coverage with the bound 50% (asked: at least 95%, **does not hold**)" in table
    assert "Refusals, which are not wanted: 1 (**does not hold**)" in table


def test_ratios_of_squared_errors_have_their_error():
    value, error = propensities_only.ratio_of([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (value, error) == (2.0, pytest.approx(0.0, abs=1e-12))
    rng = np.random.default_rng(0)
    draws = [propensities_only.ratio_of(rng.exponential(size=200), rng.exponential(size=200)) for _ in range(300)]
    assert np.mean([error for _, error in draws]) == pytest.approx(np.std([value for value, _ in draws]), rel=0.15)


def test_neither_needs_more_than_numpy_scipy_and_scikit_learn():
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pyarrow', 'cyclopts', 'rich', 'pandas', 'jinja2'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from cael.experiments import propensities_only as a, without_propensities as b\n"
        "from cael.experiments.resumed import LogTask\n"
        f"print(b.row(LogTask({SMALL[0]!r}, 100))['level'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "caution", done.stderr
