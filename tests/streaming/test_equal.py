"""The streamed answer is the in-memory answer, however the log is cut into files, row groups and batches."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
import cael.io
from cael.engine import gathering
from cael.log import budget
from tests.streaming.logs import K, table, write

PLAIN = [
    cael.LoggedMean(), cael.IPS(), cael.SNIPS(), cael.IPS(clip=2.0), cael.SNIPS(clip=2.0),
    cael.SubGaussianIPS(lambda_=0.2),
]  # fmt: skip
MODELLED = [
    cael.DM(), cael.DR(), cael.SNDR(), cael.DR(clip=2.0), cael.SNDR(clip=2.0), cael.SwitchDR(tau=2.0),
    cael.DRos(lambda_=3.0), cael.SubGaussianDR(lambda_=0.2),
]  # fmt: skip
FACTS = ("n", "effective_sample_size", "max_weight", "mean_weight", "mean_weight_z", "tail_index", "clipped_share")


def in_memory(estimator, log, policy, q):
    """The estimate of the twin in memory; predictions that are columns there are an array here."""
    if not hasattr(estimator, "outcome"):
        return estimator.estimate(log, policy)
    settings = {name: getattr(estimator, name) for name in ("clip", "tau", "lambda_") if hasattr(estimator, name)}
    return type(estimator)(outcome=cael.FixedOutcome(q), **settings).estimate(log, policy)


def close(a, b, scale=0.0):
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b), scale)


def same(streamed, kept, size=0.0):
    """size: of the two numbers whose difference is looked at; it cannot be had to more than their own last digits."""
    scale = max(kept.stderr, 1e-6 * size)
    assert close(streamed.value, kept.value, scale)
    assert close(streamed.stderr, kept.stderr)
    assert streamed.n == kept.n
    for method in ("normal", "t"):
        a, b = streamed.interval(0.9, method), kept.interval(0.9, method)
        assert close(a.low, b.low, scale)
        assert close(a.high, b.high, scale)


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(3, 900),
    cuts=st.lists(st.integers(1, 900), max_size=4),
    group=st.integers(5, 400),
    batch=st.integers(5, 500),
    workers=st.integers(1, 2),
    offset=st.sampled_from([0.0, -7.0, 1e6]),
    clusters=st.sampled_from([None, 40]),
    weighted=st.booleans(),
    seed=st.integers(0, 5),
)
def test_values_standard_errors_and_diagnostics_are_equal(
    n, cuts, group, batch, workers, offset, clusters, weighted, seed
):
    log = table(n, seed, offset=offset, clusters=clusters)
    if weighted:
        log = log.append_column("sampling_weight", pa.array(np.random.default_rng(seed).uniform(0.2, 9.0, n)))
    columns = {"cluster": None if clusters is None else "user"}
    kept = cael.io.open_log(log, columns, n_actions=K)
    policy, q = kept.policy("dense:pi"), np.array(log["q"].to_pylist())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "MOST_ROWS", batch)
        where = write(Path(folder) / "log", log, cuts, group)
        scanned = cael.scan(where, columns, n_actions=K, predictions="q", workers=workers)
        found = cael.evaluate(scanned, "dense:pi", [*PLAIN, *MODELLED], learn=False)
    for estimator in (*PLAIN, *MODELLED):
        mine, twin = found[estimator.name], in_memory(estimator, kept.log, policy, q)
        same(mine, twin)
        for name in FACTS:
            a, b = getattr(mine.diagnostics, name), getattr(twin.diagnostics, name)
            assert (a is None) == (b is None), name
            assert a is None or close(a, b, 1.0), name
        if estimator.name != "LoggedMean":
            base = in_memory(cael.LoggedMean(), kept.log, policy, q)
            same(mine - found["LoggedMean"], twin - base, size=abs(base.value))


CHOSEN = [
    cael.IPS(clip=cael.SLOPE([1.5, 3.0, 10.0])), cael.SNIPS(clip=cael.SLOPE()), cael.SubGaussianIPS(),
    cael.SubGaussianIPS(lambda_=cael.SLOPE()), cael.SNDR(clip=cael.SLOPE([2.0, 4.0])), cael.SwitchDR(), cael.DRos(),
    cael.SubGaussianDR(), cael.SLOPE([cael.IPS(), cael.SNIPS(), cael.IPS(clip=2.0)]),
]  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(
    n=st.integers(30, 600),
    cuts=st.lists(st.integers(1, 600), max_size=3),
    batch=st.integers(20, 300),
    clusters=st.sampled_from([None, 40]),
    seed=st.integers(0, 50),
)
def test_settings_that_are_chosen_from_the_log_are_chosen_alike(n, cuts, batch, clusters, seed):
    log = table(n, seed, clusters=clusters)
    columns = {"cluster": None if clusters is None else "user"}
    kept = cael.io.open_log(log, columns, n_actions=K)
    policy, q = kept.policy("dense:pi"), np.array(log["q"].to_pylist())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "MOST_ROWS", batch)
        where = write(Path(folder) / "log", log, cuts, 90)
        found = cael.evaluate(cael.scan(where, columns, n_actions=K, predictions="q"), "dense:pi", CHOSEN, learn=False)
    for estimator in CHOSEN:
        mine, twin = found[estimator.name], in_memory(estimator, kept.log, policy, q)
        same(mine, twin)
        paths = [
            [(each.value, each.width) for each in sorted(told.diagnostics.path or (), key=lambda each: each.name)]
            for told in (mine, twin)
        ]
        np.testing.assert_allclose(*paths, rtol=1e-9, atol=1e-12)
        assert close(mine.diagnostics.max_weight, twin.diagnostics.max_weight)


def test_a_look_at_the_weights_is_a_pass_of_its_own_only_where_it_is_needed(tmp_path, monkeypatch):
    passes = []
    whole = gathering.reduced
    monkeypatch.setattr(gathering, "reduced", lambda *given: passes.append(given[0]) or whole(*given))
    scanned = cael.scan(write(tmp_path / "log", table(200)), n_actions=K, predictions="q")
    for estimators, count in (
        ([cael.IPS(clip=cael.SLOPE([2.0, 5.0]))], 1),
        ([cael.SwitchDR(), cael.DRos(), cael.SubGaussianIPS()], 2),
    ):
        passes.clear()
        cael.evaluate(scanned, "dense:pi", estimators, learn=False)
        assert len(passes) == count


SPECS = ["probability:p", "p", "dense:pi", "pi", "dense:pi_*", "topk:items+chances,rest=uniform",
         "topk:items+chances,rest=renormalise", "choice:best", "choice:best,epsilon=0.2",
         "softmax:pi_*,temperature=0.3",
         "greedy:pi,epsilon=0.1", "uniform"]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_every_form_of_a_policy_gives_the_answer_of_a_log_in_memory(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 130)
    log = table(700, 1)
    kept = cael.io.open_log(log, n_actions=K)
    policy = kept.policy(spec)
    scanned = cael.scan(write(tmp_path / "log", log, [250, 260], 90), n_actions=K)
    estimators = [cael.SNIPS(), cael.IPS()]
    found = cael.evaluate(scanned, spec, estimators, learn=False)
    for each in estimators:
        same(found[each.name], each.estimate(kept.log, policy))
    overlap = cael.evaluate(kept.log, policy, learn=False).overlap
    assert found.overlap.zero_share == overlap.zero_share
    assert [each.logged for each in found.overlap.actions] == [each.logged for each in overlap.actions]
    assert np.allclose([a.target for a in found.overlap.actions], [b.target for b in overlap.actions])
    assert found.overlap.top_share == pytest.approx(overlap.top_share, rel=0.04)
    assert sum(found.overlap.counts) == sum(overlap.counts)


@pytest.mark.parametrize("policy", [
    cael.Uniform(K), cael.Tabular(np.arange(1.0, K + 1) / 21), cael.Softmax(lambda x: x[:, :1] * np.arange(K)),
    lambda x: np.full((len(x), K), 1 / K), cael.Mixture([cael.Uniform(K), cael.Tabular(np.eye(K)[0])], [0.5, 0.5]),
], ids=lambda policy: type(policy).__name__)  # fmt: skip
def test_functions_of_contexts_are_policies_too(policy, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 77)
    log = table(400, 2)
    kept = cael.io.open_log(log, n_actions=K)
    scanned = cael.scan(write(tmp_path / "log", log, [150], 90), n_actions=K, predictions="q")
    found = cael.evaluate(scanned, policy, learn=False)
    same(found["SNIPS"], cael.SNIPS().estimate(kept.log, policy))
    q = np.array(log["q"].to_pylist())
    same(found["SNDR"], cael.SNDR(cael.FixedOutcome(q)).estimate(kept.log, policy))


def test_predictions_can_be_two_columns_or_a_function(tmp_path):
    log = table(500, 3)
    kept = cael.io.open_log(log, n_actions=K)
    policy, q = kept.policy("pi"), np.array(log["q"].to_pylist())
    where = write(tmp_path / "log", log, [100])
    pair = cael.evaluate(cael.scan(where, n_actions=K, predictions="q_logged+q_target"), "probability:p", learn=False)
    for name in ("DM", "DR", "SNDR"):
        same(pair[name], getattr(cael, name)(cael.FixedOutcome(q)).estimate(kept.log, policy))
    fixed = cael.DR(cael.FixedOutcome(lambda x: x[:, :1] + np.arange(K) / K))
    found = cael.evaluate(cael.scan(where, n_actions=K), "pi", fixed, learn=False)
    same(found[fixed.name], fixed.estimate(kept.log, policy))


@pytest.mark.parametrize("kind", ["csv", "tsv", "feather", "arrows", "parts"])
def test_every_kind_of_file_is_streamed(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 77)
    log = table(300, 4).select(["action", "reward", "propensity", "p", "part"])
    kept = cael.io.open_log(log, n_actions=K)
    folder = tmp_path / "log"
    folder.mkdir()
    for number, part in enumerate([log.slice(0, 120), log.slice(120)]):
        if kind in ("csv", "tsv"):
            options = pa.csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
            pa.csv.write_csv(part, folder / f"{number}.{kind}", options)
        elif kind == "feather":
            pa.feather.write_feather(part, folder / f"{number}.feather", chunksize=50)
        elif kind == "arrows":
            with pa.ipc.new_stream(folder / f"{number}.arrows", part.schema) as writer:
                writer.write_table(part, 50)
        else:
            write(folder / f"day={number}", part)
    scanned = cael.scan(folder, {"segment": "day"} if kind == "parts" else None, n_actions=K)
    found = cael.evaluate(scanned, "p", learn=False)
    same(found["SNIPS"], cael.SNIPS().estimate(kept.log, kept.policy("p")))
    if kind == "parts":
        assert {row.label: row.rows for row in cael.segments(scanned, "p", "day")} == {"0": 120, "1": 180}


def test_a_log_with_names_as_actions_numbers_them_as_in_memory(tmp_path):
    log = table(300, 5)
    names = np.array(["pear", "apple", "fig", "kiwi", "lime", "plum"])
    log = log.set_column(0, "action", pa.array(names[log["action"].to_numpy()]))
    log = log.set_column(log.column_names.index("best"), "best", pa.array(names[log["best"].to_numpy()]))
    kept = cael.io.open_log(log)
    scanned = cael.scan(write(tmp_path / "log", log, [30, 31, 32]))
    assert scanned.actions.labels == kept.actions
    found = cael.evaluate(scanned, "choice:best,epsilon=0.5", learn=False)
    same(found["SNIPS"], cael.SNIPS().estimate(kept.log, kept.policy("choice:best,epsilon=0.5")))


def test_comparisons_and_segments_are_those_of_a_log_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "MOST_ROWS", 150)
    log = table(900, 6)
    kept = cael.io.open_log(log, n_actions=K)
    scanned = cael.scan(write(tmp_path / "log", log, [333], 100), n_actions=K)
    specs = {"new": "pi", "best": "choice:best,epsilon=0.3", "flat": "uniform"}
    mine = cael.compare(scanned, specs, cael.SNIPS())
    twin = cael.compare(kept.log, {name: kept.policy(spec) for name, spec in specs.items()}, cael.SNIPS())
    assert [row.name for row in mine] == [row.name for row in twin]
    for a, b in zip(mine, twin, strict=True):
        same(a.estimate, b.estimate)
        same(a.lift, b.lift)
        assert a.interval.width == pytest.approx(b.interval.width, rel=0.05)  # the factor is a bootstrap of other sums
        assert a.verdict.level == b.verdict.level
    mine = cael.segments(scanned, "pi", "part", estimator=cael.SNIPS())
    twin = cael.segments(kept.log, kept.policy("pi"), log["part"].to_numpy(), estimator=cael.SNIPS())
    for row in twin:
        other = mine[row.label]
        assert row.rows == other.rows
        for name in ("value", "baseline", "lift", "stderr", "shrunk", "effective_rows"):
            assert close(getattr(row, name), getattr(other, name), 1.0), name
        assert other.interval.width == pytest.approx(row.interval.width, rel=0.05)


def test_the_verdict_rests_on_the_same_checks(tmp_path):
    log = table(3000, 7)
    kept = cael.io.open_log(log, n_actions=K)
    scanned = cael.scan(write(tmp_path / "log", log, [700, 1500], 300), n_actions=K, predictions="q")
    mine = cael.evaluate(scanned, "pi", headline="SNIPS", learn=False)
    twin = cael.evaluate(kept.log, kept.policy("pi"), headline="SNIPS", learn=False)
    other = {check.name: check for check in twin.verdict.checks}
    assert mine.verdict.level == twin.verdict.level
    for check in mine.verdict.checks:
        assert check.status == other[check.name].status, check.name
    assert set(other) == {check.name for check in mine.verdict.checks}
    assert mine.to_dict().keys() == twin.to_dict().keys()


def test_bootstraps_of_buckets_agree_with_bootstraps_of_rows(tmp_path):
    log = table(20_000, 8)
    kept = cael.io.open_log(log, n_actions=K)
    found = cael.evaluate(cael.scan(write(tmp_path / "log", log, [5000]), n_actions=K), "pi", learn=False)["IPS"]
    twin = cael.IPS().estimate(kept.log, kept.policy("pi"))
    for method in ("bca", "studentised"):
        a, b = found.interval(0.9, method), twin.interval(0.9, method)
        assert abs(a.low - b.low) < 0.25 * twin.stderr
        assert abs(a.high - b.high) < 0.25 * twin.stderr
    with pytest.raises(cael.NeedsError, match="keeps sums only"):
        found.interval(0.9, "betting", reward_range=(0, 1))


def test_a_drift_is_seen_in_a_stream(tmp_path):
    log = table(4000, 9)
    moved = log["reward"].to_numpy() + np.where(np.arange(4000) > 3000, 2.0, 0.0)
    log = log.set_column(1, "reward", pa.array(moved))
    found = cael.evaluate(cael.scan(write(tmp_path / "log", log, [1000]), n_actions=K), "pi", learn=False)
    assert {check.name: check.status for check in found.verdict.checks}["drift"] == "warn"


def test_timestamps_out_of_order_are_not_taken_for_time(tmp_path):
    log = table(1000, 10).append_column("timestamp", pa.array(np.arange(1000)[::-1]))
    found = cael.evaluate(cael.scan(write(tmp_path / "log", log), n_actions=K), "pi", learn=False)
    (check,) = [check for check in found.verdict.checks if check.name == "drift"]
    assert check.status == "unknown"
    assert "not in the order of time" in check.sentence


@pytest.mark.parametrize("clusters", [None, 200])
def test_segments_and_policies_by_name_are_the_same_in_memory_and_in_files(clusters, tmp_path):
    columns = {"cluster": None if clusters is None else "user"}
    where = write(tmp_path / "log", table(3000, clusters=clusters), [1500])
    read, scanned = cael.read(where, columns, n_actions=K), cael.scan(where, columns, n_actions=K)
    here, there = (cael.segments(log, "pi", "part", learn=False) for log in (read, scanned))
    assert [row.label for row in here.rows] == [row.label for row in there.rows]
    assert close(here.factor, there.factor)
    for mine, other in zip(here.rows, there.rows, strict=True):
        assert close(mine.lift, other.lift)
        if clusters is not None:  # of rows, buckets of the whole log stand for those of a segment
            assert close(mine.interval.low, other.interval.low)
    assert cael.evaluate(read, "pi", learn=False).policy == cael.evaluate(scanned, "pi", learn=False).policy


def test_a_segment_column_needs_a_table():
    log = cael.worlds.PaperWorld(n_actions=4).sample(100, 0)
    with pytest.raises(cael.InputError, match="made from arrays"):
        cael.segments(log, [0.25] * 4, "country")
