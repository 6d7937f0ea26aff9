"""One answer: the verdict, its checks and their numbers are the same for a log in memory, in files and on Dask."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cael
from cael.experiments.broken import CONDITIONS
from cael.judging import judge as judging
from cael.log import budget
from cael.policies.policy import probabilities
from tests.streaming.logs import write

WORLD = cael.worlds.PaperWorld(n_actions=12, gamma=0.3, action_dim=2)
ROLES = {"contexts": ["x_*"]}


def all_of(policy, log):
    return pa.array(
        list(np.concatenate([probabilities(policy, batch) for batch in log.batches(width=log.n_actions)])),
        pa.list_(pa.float64()),
    )


def as_table(log, target, clusters=None, timed=False):
    """The log as a table; the policies are columns of lists."""
    columns = {"action": log.actions, "reward": log.rewards}
    columns |= {f"x_{j}": log.contexts[:, j] for j in range(log.contexts.shape[1])}
    if log.propensities is not None:
        columns["propensity"] = log.propensities
    if log.logging is not None and log.logging.complete:
        columns["mu"] = all_of(log.logging, log)
    columns["pi"] = all_of(target, log)
    if clusters is not None:
        columns["user"] = np.random.default_rng(1).integers(0, clusters, len(log))
    if timed:
        columns["timestamp"] = np.arange(len(log)) * 60.0
    return pa.table(columns)


def both(where, table, k, roles=None, **scanning):
    """The same files in memory and scanned."""
    given = {"n_actions": k, "logging": "mu" if "mu" in table.column_names else None}
    roles = {**ROLES, "cluster": "user" if "user" in table.column_names else None, **(roles or {})}
    return cael.read(where, roles, **given), cael.scan(where, roles, **given, **scanning)


def close(a, b):
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def same(here, there):
    """Equal levels, checks, statuses, numbers and sentences."""
    assert [check.name for check in here.checks] == [check.name for check in there.checks]
    for mine, other in zip(here.checks, there.checks, strict=True):
        assert mine.status == other.status, (mine, other)
        assert close(mine.value, other.value), (mine, other)
    assert here.level == there.level


def same_evaluation(here, there):
    same(here.verdict, there.verdict)
    assert here.headline == there.headline
    for mine, other in zip(here, there, strict=True):
        assert mine.estimator == other.estimator
        assert close(mine.value, other.value), mine.estimator
        assert close(mine.stderr, other.stderr), mine.estimator
    assert close(here.lift.value, there.lift.value)
    assert close(here.lift.stderr, there.lift.stderr)
    assert here.direction == there.direction
    a, b = here.overlap.to_dict(), there.overlap.to_dict()
    for name in ("effective_rows", "max_weight", "zero_share", "largest_share", "top_share", "never_logged"):
        assert close(a[name], b[name]), name
    assert a["counts"] == b["counts"]
    assert [each["expected"] for each in a["actions"]] == pytest.approx([each["expected"] for each in b["actions"]])


LOST = "a fifth of the actions lost, logging policy known"


@example(condition=LOST, n=855, cuts=[], batch=70, clusters=None, timed=False, seed=0)
@settings(max_examples=14, deadline=None)
@given(
    condition=st.sampled_from(sorted(CONDITIONS)),
    n=st.integers(600, 1500),
    cuts=st.lists(st.integers(1, 1500), max_size=3),
    batch=st.sampled_from([70, 500, 10_000]),
    clusters=st.sampled_from([None, 80]),
    timed=st.booleans(),
    seed=st.integers(0, 50),
)
def test_every_check_says_the_same(condition, n, cuts, batch, clusters, timed, seed):
    try:
        log, _ = CONDITIONS[condition](WORLD.sample(n, seed), np.random.default_rng(seed))
    except cael.CaelError:  # the door refused the broken log
        return
    table = as_table(log, WORLD.target, clusters, timed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "MOST_ROWS", batch)
        where = write(Path(folder) / "log", table, cuts, 333)
        here, there = both(where, table, 12)
        same_evaluation(cael.evaluate(here, "dense:pi", learn=False), cael.evaluate(there, "dense:pi", learn=False))
        policies = {"new": "dense:pi", "uniform": "uniform"}
        mine, other = (cael.compare(each, policies, learn=False) for each in (here, there))
        for row in mine:
            same(row.verdict, other[row.name].verdict)
            assert close(row.interval.low, other[row.name].interval.low)


def wrong_logging(n=10_000, k=100):
    """A log whose logging policy is another one than it says, told to both paths; and its target."""
    world = cael.worlds.PaperWorld(n_actions=k, gamma=0.3, action_dim=2)
    log = world.sample(n, 3)
    rng = np.random.default_rng(0)
    mu = np.concatenate([probabilities(log.logging, batch) for batch in log.batches(width=k)])
    stated = mu[rng.permutation(n)]  # the probabilities of another row's context
    return cael.LoggedData(log.contexts, log.actions, log.rewards, logging=stated), world.target


def test_a_mis_stated_logging_policy_is_refused_in_memory_and_in_files(tmp_path):
    log, target = wrong_logging()
    table = as_table(log, target)
    where = write(tmp_path / "log", table, [4000], 3000)
    here, there = (cael.evaluate(each, "dense:pi", learn=False) for each in both(where, table, 100))
    same_evaluation(here, there)
    assert here.verdict.level == "refuse"
    surprise = next(check for check in there.verdict.checks if check.name == "surprise")
    assert surprise.status == "fail"


@pytest.mark.parametrize("name", ["likeliness", "frequencies_of", "drifting"])
def test_the_comparison_fails_when_a_check_is_taken_out_of_one_path(name, tmp_path, monkeypatch):
    log = WORLD.sample(1200, 0)
    table = as_table(log, WORLD.target)
    here, there = both(write(tmp_path / "log", table, [500]), table, 12)
    mine = cael.evaluate(here, "dense:pi", learn=False)
    monkeypatch.setattr(judging, name, lambda *_: None)
    with pytest.raises(AssertionError):
        same(mine.verdict, cael.evaluate(there, "dense:pi", learn=False).verdict)


@pytest.mark.long
def test_dask_says_what_memory_says(tmp_path):
    distributed = pytest.importorskip("distributed")
    log, target = wrong_logging(2000, 20)
    table = as_table(log, target, clusters=200)
    where = write(tmp_path / "log", table, [600, 1100], 300)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        here, there = both(where, table, 20, client=client)
        same_evaluation(cael.evaluate(here, "dense:pi", learn=False), cael.evaluate(there, "dense:pi", learn=False))


def test_repeated_decisions_are_refused_in_memory_and_in_files(tmp_path):
    log = WORLD.sample(300, 0)
    ids = [f"d{number}" for number in range(300)]
    ids[250] = ids[3]
    table = as_table(log, WORLD.target).append_column("decision", pa.array(ids))
    where = write(tmp_path / "log", table, [100])
    roles = {**ROLES, "id": "decision"}
    with pytest.raises(cael.LogError, match="repeats the id of an earlier decision"):
        cael.read(where, roles, n_actions=12)
    with pytest.raises(cael.LogError, match=r"repeats the id of an earlier decision.*row 250 \(part-01.parquet: 150\)"):
        cael.evaluate(cael.scan(where, roles, n_actions=12), "dense:pi", learn=False)
