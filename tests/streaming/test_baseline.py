"""BaselineIPS on a scanned log: the definition, row by row."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cael
import cael.io
from cael.log import budget
from tests.oracles.twins import best_baseline
from tests.streaming.logs import K, table, write


def by_rows(w, r, folds):
    """The definition, row by row."""
    b = np.empty(len(r))
    for rows in folds:
        others = np.setdiff1d(np.arange(len(r)), rows)
        b[rows] = best_baseline(w[others], r[others])
    return b + w * (r - b)


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(40, 600),
    cuts=st.lists(st.integers(1, 600), max_size=3),
    batch=st.integers(10, 300),
    folds=st.integers(2, 5),
    offset=st.sampled_from([0.0, -7.0, 1e6]),
    seed=st.integers(0, 20),
)
def test_it_is_the_definition_row_by_row(n, cuts, batch, folds, offset, seed):
    log = table(n, seed, offset=offset)
    estimator = cael.BaselineIPS(folds=folds, seed=seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "MOST_ROWS", batch)
        where = write(Path(folder) / "log", log, cuts, 90)
        scanned = cael.scan(where, n_actions=K)
        found = cael.evaluate(scanned, "p", estimator, learn=False)[estimator.name]
        split = cael.read(where, n_actions=K).folds(folds, seed)
    z = by_rows(log["p"].to_numpy() / log["propensity"].to_numpy(), log["reward"].to_numpy(), split)
    assert found.value == pytest.approx(z.mean(), rel=1e-9, abs=1e-9 * z.std())
    assert found.stderr == pytest.approx(z.std(ddof=1) / np.sqrt(n), rel=1e-7)
    assert found.diagnostics.cross_fitted


def test_a_target_that_is_the_logging_policy_has_no_baseline_to_choose(tmp_path):
    log = table(300)
    scanned = cael.scan(write(tmp_path / "log", log), n_actions=K)
    found = cael.evaluate(scanned, "probability:propensity", cael.BaselineIPS(), learn=False)["BaselineIPS"]
    assert found.value == pytest.approx(log["reward"].to_numpy().mean(), rel=1e-12)
