"""A sample smaller than the log: who saw which row, near the truth, within the budget, and Auto in its place."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.linear_model import LinearRegression

import cael
from cael.cli import main
from cael.embedding.exact import sparse_network as sparse
from cael.embedding.exact import weight_paths as paths
from cael.embedding.exact.path_group import largest
from cael.engine import asking
from cael.engine.asking import Asking
from cael.engine.drawn import sample_in_memory, sample_of
from cael.log import budget
from cael.log.budget import Budget
from tests.streaming.logs import write
from tests.streaming.worlds import COLUMNS, paper

TINY = cael.Growth(steps=20, penalties=(1.5,), restarts=1)
QUICK = cael.CAEL(growth=TINY)


# --- honesty: who saw which row


@pytest.mark.parametrize("clusters", [None, 90])
def test_no_row_is_weighted_by_a_model_that_saw_it_or_its_cluster(clusters, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 120)
    log, actions, _ = paper(600, clusters=clusters)
    roles = {**COLUMNS, "cluster": "user" if clusters else None}
    some = replace(QUICK, growth=replace(TINY, rows=250), folds=3)
    trained, ridge, weighted, samples = [], [], [], []
    grow, fit, cells, sampled = sparse.grow, cael.Ridge.fit_without, paths.cells_of, Asking.sample

    def growing(inputs, data, *given):
        trained.extend(data.rows)  # one penalty and one restart: a trial is a fold
        return grow(inputs, data, *given)

    def fitting(self, part, held_out, seed):
        ridge.extend(np.setdiff1d(np.arange(len(part)), rows) for rows in held_out)
        return fit(self, part, held_out, seed)

    def looking(logging, policy, models, fold, batch, drawn, seed):
        if len(models.folds[fold]) == 0:  # in the pass, and not for the unit
            weighted.extend((fold, int(number)) for number in batch.places)
        return cells(logging, policy, models, fold, batch, drawn, seed)

    def drawing(self, *given):
        samples.append(sampled(self, *given))
        return samples[-1]

    monkeypatch.setattr(sparse, "grow", growing)
    monkeypatch.setattr(cael.Ridge, "fit_without", fitting)
    monkeypatch.setattr(paths, "cells_of", looking)
    monkeypatch.setattr(Asking, "sample", drawing)
    where = write(tmp_path / "log", log, [150, 400], 80)
    scanned = cael.scan(where, roles, actions=actions, logging="mu", memory="2GiB", workers=1)
    found = cael.evaluate(scanned, "pi", some, learn=False)[some.name]
    sample, *_ = samples
    places = sample.piece.places
    assert 100 < len(sample.log) <= 250
    assert found.diagnostics.embedding.trained_rows == len(sample.log)
    starts = {0: 0, 1: 150, 2: 400}
    row_of = {(file << 44) + row - starts[file]: row for file in starts for row in range(600) if row >= starts[file]}
    seen = [[row_of[int(each)] for each in places[rows]] for rows in trained]
    assert len(trained) == len(ridge) == 3
    assert all(np.array_equal(a, b) for a, b in zip(trained, ridge, strict=True))
    assert sorted(row_of[number] for _, number in weighted) == list(range(600))  # every row once
    unit = log["user"].to_numpy() if clusters else np.arange(600)
    for fold in range(3):
        scored = {unit[row_of[number]] for each, number in weighted if each == fold}
        assert len(scored) > 20
        assert not scored & {unit[row] for row in seen[fold]}
    assert {row for each in seen for row in each} == {row_of[int(each)] for each in places}


@pytest.mark.parametrize("clusters", [None, 40])
def test_the_sample_is_uniform_whole_clusters_and_the_same_however_the_log_is_cut(clusters, tmp_path, monkeypatch):
    log, actions, _ = paper(3000, clusters=clusters)
    roles = {**COLUMNS, "cluster": "user" if clusters else None}
    counts, made = np.zeros(3000), []
    for group, batch in ((1000, 5000), (70, 97)):
        monkeypatch.setattr(budget, "MOST_ROWS", batch)
        where = write(tmp_path / f"{group}", log, [], group)
        scanned = cael.scan(where, roles, actions=actions, logging="mu")
        kept = cael.read(where, roles, actions=actions, logging="mu")
        for seed in range(40):
            sample = sample_of(scanned, 600, seed)
            places = sample.piece.places
            assert sample.of == 3000
            made.append(places)
            assert (np.diff(places) > 0).all()
            np.testing.assert_array_equal(sample.log.rewards, log["reward"].to_numpy()[places])
            np.testing.assert_array_equal(places, sample_in_memory(kept, 600, seed).log.row_numbers)
            counts[places] += 0.5
            if clusters:
                users = log["user"].to_numpy()
                assert not {*users[places]} & {*np.delete(users, places)}
                assert 400 < len(sample.log) <= 600
            else:
                assert len(sample.log) == 600
    for one, other in zip(made[:40], made[40:], strict=True):
        np.testing.assert_array_equal(one, other)
    share = 600 / 3000
    if clusters is None:
        assert abs(counts.mean() / 40 - share) < 1e-12
        spread = counts.std() / math.sqrt(40 * share * (1 - share))
        assert abs(spread - 1) < 0.06
        assert abs(np.corrcoef(counts, np.arange(3000))[0, 1]) < 4 / math.sqrt(3000)


@pytest.mark.parametrize("batch", [97, 5000])
def test_actions_that_a_model_draws_are_those_of_memory(tmp_path, monkeypatch, batch):
    """Draws belong to the place of a row in the files, which in one file is its number."""
    monkeypatch.setattr(budget, "MOST_ROWS", batch)
    log, actions, world = paper(900)
    there = cael.scan(write(tmp_path / "log", log, [], 300), COLUMNS, actions=actions, logging="mu")
    estimator = cael.DR(cael.Sampled(cael.Boosting(max_iter=3), size=5), folds=3)
    found = cael.evaluate(there, "dense:pi", estimator, learn=False)[estimator.name]
    kept = world.sample(900, 0)
    policy = np.array(log["pi"].to_pylist())
    twin = estimator.estimate(kept, policy)
    assert found.value == pytest.approx(twin.value, rel=1e-9)
    assert found.stderr == pytest.approx(twin.stderr, rel=1e-9)
    exact = replace(estimator, outcome=cael.Boosting(max_iter=3)).estimate(kept, policy)
    assert exact.value != pytest.approx(twin.value, rel=1e-9)


# --- a sample that is smaller than the log


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """40,000 rows of the paper's world."""
    log, actions, world = paper(40_000)
    return write(tmp_path_factory.mktemp("long") / "log", log, [12_000, 30_000], 5000), actions, world


def test_trained_on_a_part_the_estimate_is_near_the_truth_and_the_weights_have_mean_one(long):
    where, actions, world = long
    some = cael.CAEL(growth=cael.Growth(steps=40, penalties=(0.5,), restarts=1, rows=3000))
    found = cael.evaluate(cael.scan(where, COLUMNS, actions=actions, logging="mu"), "pi", some, learn=False)
    mine, truth = found[some.name], world.value(world.target)
    assert mine.diagnostics.embedding.trained_rows == 3000
    assert mine.diagnostics.embedding.explained > 0.3
    assert mine.n == 40_000
    assert abs(mine.diagnostics.mean_weight_z) < 4
    assert abs(mine.value - truth) < 4 * mine.stderr
    assert truth in mine.interval(method="bias_aware")
    assert mine.stderr < found["SNIPS"].stderr
    assert mine.interval(method="bca").width == pytest.approx(mine.interval(method="normal").width, rel=0.1)


def test_outcome_models_are_trained_on_a_sample_of_a_long_log(long, monkeypatch):
    where, actions, world = long
    monkeypatch.setattr(asking, "MODEL_ROWS", 2000)
    model = cael.DR(cael.SklearnOutcome(LinearRegression()))
    found = cael.evaluate(cael.scan(where, COLUMNS, actions=actions), "pi", model, learn=False)[model.name]
    assert abs(found.value - world.value(world.target)) < 4 * found.stderr


def test_auto_is_first_in_a_stream_and_says_what_it_left_out(long, monkeypatch):
    where, actions, _ = long
    monkeypatch.setattr(
        cael.embedding.auto.Auto, "candidates", lambda self, learn, plain: [cael.SNIPS(), cael.SNDR(), tiny]
    )
    tiny = replace(QUICK, growth=replace(TINY, rows=1000))
    found = cael.evaluate(cael.scan(where, COLUMNS, actions=actions, logging="mu"), "pi", learn=True)
    assert found.headline == found.estimates[0].estimator == "Auto"
    assert found["Auto"].diagnostics.choices == 3
    assert found["Auto"].diagnostics.bias_bound > 0
    without = cael.evaluate(cael.scan(where, COLUMNS, actions=actions), "pi", learn=True)["Auto"]
    assert without.diagnostics.choices == 3 or "is off by" in str(without.diagnostics)
    assert cael.evaluate(cael.scan(where, COLUMNS, actions=actions), "pi").headline == "Auto"
    poor = cael.scan(where, COLUMNS, actions=actions, logging="mu", memory="400MiB", workers=1)
    told = cael.evaluate(poor, "pi")["Auto"].diagnostics.warnings
    assert any("is too little to train models on a sample of rows of" in each for each in told)
    with pytest.raises(cael.InputError, match="too little to train models"):
        cael.evaluate(poor, "pi", tiny, learn=False)
    with pytest.raises(cael.NeedsError, match=r"CAEL.* needs all probabilities of the logging policy"):
        cael.evaluate(cael.scan(where, COLUMNS, actions=actions, logging="none"), "pi", tiny, learn=False)


def test_compare_takes_it(tmp_path):
    log, actions, _ = paper(3000)
    log = cael.scan(write(tmp_path / "log", log, [1000]), COLUMNS, actions=actions, logging="mu")
    tiny = replace(QUICK, growth=replace(TINY, rows=1000), folds=2)
    alone = cael.evaluate(log, "pi", tiny, learn=False)[tiny.name]
    both = cael.compare(log, {"new": "pi", "old": "logging"}, tiny)
    assert both["new"].estimate.value == pytest.approx(alone.value, rel=1e-6)
    assert both["old"].lift.value == both["old"].lift.stderr == 0.0  # CAEL's own model is a control: nothing is left


def test_segments_by_cael_add_up_to_the_whole(tmp_path):
    log, actions, _ = paper(600)
    part = pa.array(np.where(np.arange(600) % 3 == 0, "a", "b"))
    where = write(tmp_path / "log", log.append_column("part", part), [200])
    scanned = cael.scan(where, COLUMNS, actions=actions, logging="mu")
    whole = cael.evaluate(scanned, "pi", QUICK, learn=False)[QUICK.name]
    parts = cael.segments(scanned, "pi", "part", estimator=QUICK)
    assert sum(each.value * each.rows for each in parts) / 600 == pytest.approx(whole.value, rel=1e-9)


# --- what is kept of the weights


def test_the_largest_blended_weights_are_exactly_those_of_all_rows():
    rng = np.random.default_rng(0)
    smoothed, sharp = rng.exponential(size=5000), rng.pareto(2.5, 5000)
    found = largest(smoothed[:2000], sharp[:2000], 300).merge(largest(smoothed[2000:], sharp[2000:], 300))
    assert found.pairs.shape[1] < 1000
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        every = np.sort((1 - share) * smoothed + share * sharp)
        top = found.blended(share)
        np.testing.assert_array_equal(top, every[len(every) - len(top) :])
        assert len(top) >= 20
    few = largest(smoothed[:50], sharp[:50], 300)
    np.testing.assert_array_equal(few.blended(0.0), np.sort(smoothed[:50]))


def test_the_sample_grows_with_the_budget_and_a_small_budget_is_refused():
    assert Budget(2**31, 1).sample_rows(100) > 1.5 * Budget(3 * 2**29, 1).sample_rows(100)
    with pytest.raises(cael.InputError, match=r"too little to train models .* expected at least"):
        Budget(2**29, 1).sample_rows(100)


MEASURE = """
import pathlib, sys
import cael
where, actions, status = sys.argv[1:]
growth = cael.Growth(steps=20, penalties=(1.5,), restarts=1)
log = cael.scan(where, {"contexts": ["x_*"]}, actions=actions, logging="mu", memory="800MiB", workers=2)
found = cael.evaluate(log, "pi", cael.CAEL(growth=growth), learn=False)
print(found.estimates[-1].diagnostics.embedding.trained_rows)
pathlib.Path(status).write_text(pathlib.Path("/proc/self/status").read_text())
"""


@pytest.mark.long
def test_training_and_weighting_stay_within_the_budget(long, tmp_path):
    """The sample, 100,000 rows without a budget, is as large as the budget allows."""
    where, actions, _ = long
    listed, status = tmp_path / "actions.parquet", tmp_path / "status"
    pa.parquet.write_table(actions, listed)
    command = [sys.executable, "-c", MEASURE, str(where), str(listed), str(status)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 1000 < int(done.stdout) < 10_000
    assert int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024 < 800 * 2**20


def test_the_command_line_streams_auto_with_a_logging_policy(tmp_path, capsys, monkeypatch):
    from cael.cli import large

    monkeypatch.setattr(large, "IN_MEMORY", 1e9)
    monkeypatch.setattr(
        cael.embedding.auto.Auto, "candidates", lambda self, learn, plain: [cael.SNIPS(), cael.SNDR(), QUICK]
    )
    log, actions, _ = paper(500)
    where, listed = write(tmp_path / "log", log, [200]), tmp_path / "actions.parquet"
    pa.parquet.write_table(actions, listed)
    options = ("--policy", "pi", "--logging", "mu", "--contexts", "x_*", "--actions", listed, "--format", "json")
    with pytest.raises(SystemExit) as stop:
        main([str(each) for each in ("evaluate", where, *options)])
    told = json.loads(capsys.readouterr().out)
    assert stop.value.code in (None, 0, 3)
    assert told["headline"] == "Auto"
    assert told["estimates"][0]["diagnostics"]["choices"] == 3
    assert told["estimates"][0]["interval"]["method"] == "bias_aware"
    assert any("The log was streamed" in note for note in told["reading"]["notes"])
