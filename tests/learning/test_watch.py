"""watch: a bound that holds for all looks together, sums that do not depend on how rows come, files, the command."""

from __future__ import annotations

import json
import math

import jsonschema
import numpy as np
import pytest

import cael
from cael.cli import main
from cael.cli.schema import schema_of
from cael.errors import LogError, NeedsError, PolicyError
from cael.inference.intervals import quantile
from cael.learning.saved import digest
from cael.learning.sequences import width
from cael.worlds import MixedWorld, Play

SEQUENCES, LOOKS, FIRST, STEP, LEVEL = 1000, 100, 1000, 100, 0.95
MOST = 0.05 + 4 * math.sqrt(0.05 * 0.95 / SEQUENCES)


@pytest.fixture(scope="module")
def sequences():
    """(R, looks) lifts of a policy that is no better, in their standard errors: weights of 0 and 5, rare successes."""
    rng, n = np.random.default_rng(12), FIRST + STEP * np.arange(LOOKS)
    values = []
    for _ in range(SEQUENCES):
        w, r = 5.0 * (rng.random(n[-1]) < 0.2), rng.random(n[-1]) < 0.2
        z = (w - 1) * (r - 0.2)
        mean, square = z.cumsum()[n - 1] / n, (z**2).cumsum()[n - 1] / n
        values.append(mean / np.sqrt((square - mean**2) / n))
    return np.array(values), n


def test_a_hundred_looks_err_as_rarely_as_one(sequences):
    values, n = sequences
    reach = np.array([width(rows, FIRST, LEVEL) for rows in n])
    assert (values > reach).any(axis=1).mean() <= MOST
    fixed = (values > quantile(2 * LEVEL - 1)).any(axis=1).mean()
    assert fixed > MOST + 0.1  # the bound of one look, at every look: the negative control
    assert abs((values[:, 0] > quantile(2 * LEVEL - 1)).mean() - 0.05) < 4 * math.sqrt(0.05 * 0.95 / SEQUENCES)


def test_the_width_is_least_where_it_was_asked_to_be_and_never_below_one_look():
    n = np.array([500, 1000, 2000, 10_000, 10**6])
    first, later = (np.array([width(rows, at, LEVEL) for rows in n]) for at in (1000, 10_000))
    assert first[1] < later[1]
    assert later[3] < first[3]
    assert (first > quantile(2 * LEVEL - 1)).all()


@pytest.fixture(scope="module")
def learned(log):
    return cael.learn(log, candidates=["linear", "best_arm"])


def test_it_begins_with_the_certificate_and_goes_on_with_new_rows(world, log, learned):
    watch = learned.watch()
    assert watch.sums.n == learned.evaluation.best.n
    assert watch.bound < learned.bound  # the price of being asked again
    old, truth = world.value(world.logging), world.value(learned.policy)
    grown = watch
    for seed in (50, 51, 52):
        grown = grown.more(world.sample(1500, seed))
    assert [look.n for look in grown.looks] == [watch.sums.n + 1500 * i for i in range(4)]
    assert grown.bound > watch.bound
    assert grown.ships
    assert abs(grown.looks[-1].lift - (truth - old)) < 4 * grown.sums.error
    assert "Ship it" in grown.sentence()


def test_how_rows_come_does_not_matter_and_none_counts_twice(world, learned):
    new = world.sample(800, 60)
    halves = [new.take(np.arange(400)), new.take(np.arange(400, 800))]
    one, two = learned.watch().more(new), learned.watch().more(halves[0]).more(halves[1])
    assert two.bound == pytest.approx(one.bound)
    assert two.looks[-1].lift == pytest.approx(one.looks[-1].lift)
    with pytest.raises(LogError, match="watched already"):
        one.more(new)


def test_rows_of_one_user_count_as_one(world, learned):
    new = world.sample(500, 61)
    rows = np.repeat(np.arange(500), 4)
    parts = {"logging": world.logging, "n_actions": new.n_actions}
    columns = new.contexts[rows], new.actions[rows], new.rewards[rows]
    start = cael.Watch(learned.policy, learned.watch().model)
    single, users, alone = (
        start.more(one)
        for one in (new, cael.LoggedData(*columns, clusters=rows, **parts), cael.LoggedData(*columns, **parts))
    )
    assert users.sums.error == pytest.approx(single.sums.error)
    assert alone.sums.error == pytest.approx(single.sums.error / 2)


def test_too_few_effective_rows_bound_nothing(world, learned):
    start = cael.Watch(learned.policy, learned.watch().model)
    assert start.bound == -math.inf
    few = start.more(world.sample(60, 62))
    assert few.bound == -math.inf
    assert few.decision == "keep"
    assert few.to_dict()["looks"][0]["bound"] is None
    assert "too few effective rows" in few.sentence()


def test_a_file_goes_on_where_it_was(tmp_path, world, learned):
    path = learned.watch().save(tmp_path / "watch.json")
    again = cael.read_watch(path)
    new = world.sample(700, 63)
    assert again.more(new).to_json() == learned.watch().more(new).to_json()
    document = json.loads(path.read_text())
    for change, match in (({"level": "high"}, "numbers"), ({"sums": {"n": 1, "m": 2}}, "can be used")):
        entry = {**document["watch"], **change}
        path.write_text(json.dumps({**document, "watch": entry, "sha256": digest(entry)}))
        with pytest.raises(PolicyError, match=match):
            cael.read_watch(path)
    path.write_text(json.dumps({**document, "watch": {**document["watch"], "level": 0.6}}))
    with pytest.raises(PolicyError, match="was changed after it was saved"):
        cael.read_watch(path)
    path.write_text(json.dumps({"format": "cael.policy/1"}))
    with pytest.raises(PolicyError, match=r"cael.watch/1"):
        cael.read_watch(path)


def test_a_log_without_propensities_is_refused(world, learned):
    new = world.sample(100, 64)
    with pytest.raises(NeedsError, match="propensities"):
        learned.watch().more(cael.LoggedData(new.contexts, new.actions, new.rewards, n_actions=new.n_actions))


def test_the_command_adds_to_its_file(tmp_path, capsys, world, learned):
    path, state = tmp_path / "new.npz", learned.watch().save(tmp_path / "watch.json")
    for seed, code in ((65, 0), (65, 1), (66, 0)):
        new = world.sample(900, seed)
        np.savez(
            path, contexts=new.contexts, actions=new.actions, rewards=new.rewards, propensities=new.propensities,
            n_actions=new.n_actions,
        )  # fmt: skip
        with pytest.raises(SystemExit) as stop:
            main(["watch", str(path), str(state), "--format", "json"])
        assert (stop.value.code or 0) == code
        text = capsys.readouterr()
        if code == 0:
            document = json.loads(text.out)
            jsonschema.validate(document, schema_of("watch"))
        else:
            assert "watched already" in text.err
    assert len(cael.read_watch(state).looks) == 3
    assert document["rows"] == cael.read_watch(state).sums.n


@pytest.mark.slow
def test_worlds_with_nothing_to_learn_are_shipped_as_rarely_as_the_level_says():
    world = MixedWorld("none", "clicks", Play("popular", 0.8), n_actions=10, context_dim=3, rate=0.1, seed=8)
    start = cael.learn(world.sample(600, 1), candidates=["best_arm"])
    model, sequences = start.watch().model, 200
    above = fixed = 0
    for number in range(sequences):
        new, watch, by_one = world.sample(5000, 9000 + number), cael.Watch(start.policy, model), False
        for at in range(20):
            watch = watch.more(new.take(np.arange(250 * at, 250 * (at + 1))))
            by_one |= watch.looks[-1].lift > quantile(0.9) * watch.sums.error
        above, fixed = above + watch.ships, fixed + by_one
    most = 0.05 + 4 * math.sqrt(0.05 * 0.95 / sequences)
    assert above / sequences <= most
    assert fixed / sequences > most
