"""MIPS on a scanned log: where the sample is the log, the answer of memory; of a long one, a posterior of a sample."""

import numpy as np
import pytest

import cael
from cael.estimators import marginal
from cael.log import budget
from tests.streaming.logs import write
from tests.streaming.test_equal import same
from tests.streaming.worlds import COLUMNS, paper

GROUPS = (np.arange(20) % 4)[:, None]
ESTIMATORS = [
    cael.MIPS(),
    cael.MIPS(offset=True),
    cael.MIPS(self_normalised=True),
    cael.MIPS(GROUPS),
    cael.MIPS(GROUPS, posterior="exact"),
    cael.MIPS(GROUPS, posterior="exact", self_normalised=True),
]


def scanned(folder, n=600, cuts=(200, 330), clusters=None, logging="dense:mu"):
    log, actions, world = paper(n, clusters=clusters)
    roles = {**COLUMNS, "cluster": None if clusters is None else "user"}
    return cael.scan(write(folder / "log", log, list(cuts)), roles, actions=actions, logging=logging), log, world


def in_memory(folder, clusters=None):
    roles = {**COLUMNS, "cluster": None if clusters is None else "user"}
    return cael.read(folder / "log", roles, actions=paper(600)[1], logging="dense:mu")


def by_fields(diagnostics):
    return {name: value for name, value in diagnostics.to_dict().items() if name != "warnings"}


@pytest.mark.parametrize("clusters", [None, 90])
@pytest.mark.parametrize("batch", [70, 10_000])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: f"{each.name} {each.embeddings is None}")
def test_where_the_sample_is_the_log_the_answer_is_that_of_memory(tmp_path, monkeypatch, clusters, batch, estimator):
    monkeypatch.setattr(budget, "MOST_ROWS", batch)
    there, _, _ = scanned(tmp_path, clusters=clusters)
    found = cael.evaluate(there, "dense:pi", estimator, learn=False)[estimator.name]
    kept = estimator.estimate(in_memory(tmp_path, clusters), "dense:pi")
    same(found, kept)
    for name, value in by_fields(kept.diagnostics).items():
        expected = pytest.approx(value, rel=1e-8, abs=1e-12) if isinstance(value, float | dict) else value
        assert by_fields(found.diagnostics)[name] == expected, name
    assert found.diagnostics.warnings == kept.diagnostics.warnings


def test_every_row_is_weighted_by_a_posterior_that_did_not_see_it(tmp_path, monkeypatch):
    there, _, _ = scanned(tmp_path)
    kept = in_memory(tmp_path)
    estimator = cael.MIPS(folds=3, seed=5)
    found = cael.evaluate(there, "dense:pi", estimator, learn=False)[estimator.name]
    assert found.diagnostics.cross_fitted
    same(found, estimator.estimate(kept, "dense:pi"))


def test_of_a_long_log_a_sample_is_enough(tmp_path, monkeypatch):
    """The error of the posterior does not fall with the rows: half of a standard error of a short log is allowed."""
    monkeypatch.setattr(marginal, "MODEL_ROWS", 2000)
    there, _, _ = scanned(tmp_path, n=6000)
    estimator = cael.MIPS(offset=True)
    found = cael.evaluate(there, "dense:pi", estimator, learn=False)[estimator.name]
    kept = estimator.estimate(in_memory(tmp_path), "dense:pi")
    assert found.value != kept.value and found.value == pytest.approx(kept.value, abs=3 * kept.stderr)


def test_several_targets_share_the_posterior_and_keep_their_weights_apart(tmp_path, monkeypatch):
    there, _, _ = scanned(tmp_path)
    counted = []
    real = marginal.fit
    monkeypatch.setattr(marginal, "fit", lambda *given, **more: counted.append(1) or real(*given, **more))
    estimator = cael.MIPS()
    found = {
        row.name: row.estimate for row in cael.compare(there, {"new": "dense:pi", "uniform": "uniform"}, estimator)
    }
    kept = in_memory(tmp_path)
    assert len(counted) == 1
    for name, policy in (("new", "dense:pi"), ("uniform", cael.Uniform(20))):
        assert found[name].value == pytest.approx(estimator.estimate(kept, policy).value, rel=1e-9)


def test_what_it_lacks_is_said(tmp_path):
    there, _, _ = scanned(tmp_path)
    with pytest.raises(cael.NeedsError, match="row_embeddings, which belong to rows by number"):
        cael.evaluate(there, "dense:pi", cael.MIPS(row_embeddings=np.zeros((600, 1))), learn=False)
    with pytest.raises(cael.InputError, match="one row per action, 20; got 3"):
        cael.evaluate(there, "dense:pi", cael.MIPS(np.zeros((3, 1))), learn=False)
    with pytest.raises(cael.NeedsError, match="needs"):
        cael.evaluate(there, "probability:propensity", cael.MIPS(), learn=False)
    bare = cael.scan(there.source.files[0].path, COLUMNS, n_actions=20, logging="none")
    with pytest.raises(cael.NeedsError, match="logging"):
        cael.evaluate(bare, "dense:pi", cael.MIPS(GROUPS), learn=False)
