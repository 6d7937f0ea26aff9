"""Logs of few clusters: an answer by Student's t that says so, in memory and in a stream; one cluster is refused."""

import numpy as np
import pytest

import cael
from tests.streaming.logs import table, write

COLUMNS = {"action": "action", "reward": "reward", "propensity": "propensity", "contexts": ["x_0", "x_1"]}


def log_of(kind, folder, clusters):
    rows = table(300, clusters=1)
    rows = rows.set_column(rows.column_names.index("user"), "user", [np.arange(300) % clusters])
    where = write(folder / f"log{clusters}", rows, [100])
    return (cael.scan if kind == "scan" else cael.read)(where, {**COLUMNS, "cluster": "user"}), rows


@pytest.mark.parametrize("kind", ["scan", "memory"])
@pytest.mark.parametrize("clusters", [2, 3, 4])
def test_few_clusters_have_an_answer_that_says_so(kind, clusters, tmp_path):
    log, rows = log_of(kind, tmp_path, clusters)
    found = cael.evaluate(log, "dense:pi", learn=False)
    assert any(f"only {clusters} clusters" in doubt for doubt in found.doubts())
    assert found.best.interval().width > 3 * found.best.error  # Student's factors are 12.7, 4.3 and 3.2
    row = cael.compare(log, {"pi": "dense:pi"}, learn=False)["pi"]
    assert row.interval.width > 2 * 3 * row.lift.stderr
    labels = "part" if kind == "scan" else np.array(rows["part"].to_pylist())
    whole = found.lift_interval
    assert all(each.interval.width > 0 for each in cael.segments(log, "dense:pi", labels, learn=False))
    assert (row.interval.low, row.interval.high) == pytest.approx((whole.low, whole.high), rel=1e-6)


@pytest.mark.parametrize("kind", ["scan", "memory"])
def test_one_cluster_is_refused_with_what_is_needed(kind, tmp_path):
    with pytest.raises(cael.InputError, match="needs at least 2 clusters"):
        cael.evaluate(log_of(kind, tmp_path, 1)[0], "dense:pi", learn=False)


def test_intervals_of_few_clusters_cover():
    """Four clusters with effects of their own: Student's t covers, and the normal interval does not."""
    student, normal = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        cluster = np.repeat(np.arange(4), 25)
        rewards = rng.standard_normal(100) + rng.standard_normal(4)[cluster]
        log = cael.LoggedData(None, rng.integers(0, 2, 100), rewards, logging=cael.Uniform(2), clusters=cluster)
        found = cael.LoggedMean().estimate(log, cael.Uniform(2))
        student.append(0.0 in found.interval())
        normal.append(0.0 in found.interval(method="normal"))
    error = np.sqrt(0.95 * 0.05 / 300)
    assert np.mean(student) > 0.95 - 3 * error
    assert np.mean(normal) < 0.95 - 4 * error
