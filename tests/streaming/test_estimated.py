"""A scanned log without propensities: the logging policy is estimated from a sample, as in memory, with a warning."""

import numpy as np
import pytest

import cael
import cael.io
from cael.engine import nuisances
from cael.log import budget
from cael.policies.propensity import EstimatedLogging, estimated
from tests.streaming.logs import write
from tests.streaming.test_equal import same
from tests.streaming.worlds import COLUMNS, paper

pytestmark = pytest.mark.filterwarnings("ignore:There are no logged propensities")
PANEL = [cael.IPS(), cael.SNIPS(), cael.DR(cael.FixedOutcome(np.zeros(20)))]


def scanned(folder, n=600, cuts=(200, 330), clusters=None, **given):
    log, actions, world = paper(n, clusters=clusters)
    kept = log.drop(["propensity"])
    roles = {**COLUMNS, "cluster": None if clusters is None else "user"}
    return cael.scan(write(folder / "log", kept, list(cuts)), roles, actions=actions, **given), log, world


def in_memory(folder, clusters=None):
    """The same log in memory."""
    roles = {**COLUMNS, "cluster": None if clusters is None else "user"}
    return cael.io.open_log(folder / "log", roles, actions=paper(600)[1])


@pytest.mark.parametrize("clusters", [None, 90])
@pytest.mark.parametrize("batch", [70, 10_000])
def test_where_the_sample_is_the_log_the_answer_is_that_of_memory(tmp_path, monkeypatch, clusters, batch):
    monkeypatch.setattr(budget, "MOST_ROWS", batch)
    there, _, _ = scanned(tmp_path, clusters=clusters)
    kept = in_memory(tmp_path, clusters)
    found = cael.evaluate(there, "dense:pi", PANEL, learn=False)
    for each in PANEL:
        same(found[each.name], each.estimate(kept.log, "dense:pi"))


def test_of_a_long_log_a_sample_is_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(nuisances, "MODEL_ROWS", 300)
    there, _, world = scanned(tmp_path, n=5000)
    assert 200 < there.logging.policy.trained_on < 300
    found = cael.evaluate(there, "dense:pi", cael.SNIPS(), learn=False)["SNIPS"]
    assert abs(found.value - world.value(world.target)) < 4 * found.stderr


@pytest.mark.parametrize("counted", [True, False])
def test_frequencies_are_those_of_the_whole_log(tmp_path, monkeypatch, counted):
    """The mean weight of the uniform policy is 1 where the frequencies are right; the negative control has those of the
    sample."""
    monkeypatch.setattr(nuisances, "MODEL_ROWS", 500)
    if not counted:
        monkeypatch.setattr(nuisances, "estimated", lambda log, split, how, counts: estimated(log, split))
    there, _, _ = scanned(tmp_path, n=40_000, cuts=())
    found = cael.evaluate(there, "uniform", cael.IPS(), learn=False)["IPS"].diagnostics
    assert (abs(found.mean_weight_z) < 4) == counted


def test_actions_that_the_sample_does_not_hold_have_about_their_frequency():
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(4000, 2)), rng.choice(6, 4000, p=[0.4, 0.3, 0.2, 0.07, 0.02, 0.01])
    whole = cael.LoggedData(x, a, x[:, 0], n_actions=6)
    sample = whole.take(np.flatnonzero(a < 4)[:300])
    policy = estimated(sample, sample.folds(5, 0), counts=np.bincount(a, minlength=6)).on_folds(np.zeros(4000, int))
    mean = np.concatenate([policy.probabilities(batch) for batch in whole.batches(6)]).mean(axis=0)
    np.testing.assert_allclose(mean, np.bincount(a) / 4000, rtol=0.1)


def test_it_is_near_the_answer_with_known_propensities(tmp_path):
    there, _, world = scanned(tmp_path, n=20_000, cuts=())
    found = cael.evaluate(there, "dense:pi", cael.SNIPS(), learn=False)
    assert found.headline in ("SNDR", "SNIPS")
    assert abs(found["SNIPS"].value - world.value(world.target)) < 4 * found["SNIPS"].stderr


def test_the_reader_is_told(tmp_path):
    there, _, _ = scanned(tmp_path)
    with pytest.warns(UserWarning, match="they were estimated from the 5 context numbers"):
        found = cael.evaluate(there, "dense:pi", learn=False)
    assert found.verdict.level != "ok"
    assert any("estimated, not logged" in each.sentence for each in found.verdict.checks)


def test_a_propensity_column_is_used_where_there_is_one_and_not_looked_at_otherwise(tmp_path):
    log, actions, _ = paper(600)
    where = write(tmp_path / "log", log)
    given, estimated_, without = (
        cael.scan(where, COLUMNS, actions=actions, logging=logging) for logging in (None, "estimate", "none")
    )
    assert given.logging is None
    assert given.has_propensities
    assert isinstance(estimated_.logging.policy, EstimatedLogging)
    assert not without.has_propensities
    assert without.logging is None
    with pytest.raises(cael.InputError, match="is circular"):
        cael.scan(where, COLUMNS, actions=actions, logging="logging")


def test_cael_and_the_logging_policy_as_a_target(tmp_path):
    there, _, _ = scanned(tmp_path)
    quick = cael.CAEL(growth=cael.Growth(steps=10, restarts=1, penalties=(1.0,)))
    found = cael.evaluate(there, "logging", [quick, cael.SNIPS()], learn=False)
    assert found["SNIPS"].value == pytest.approx(found["LoggedMean"].value, abs=1e-12)
    assert found[quick.name].value == pytest.approx(found["LoggedMean"].value, abs=4 * found["LoggedMean"].stderr)


def test_auto_allows_for_the_same_error_in_memory_and_in_files(tmp_path):
    there, _, _ = scanned(tmp_path)
    auto = cael.Auto(cael=cael.CAEL(growth=cael.Growth(steps=20, penalties=(1.5,))))
    one, two = (auto.estimate(log, "dense:pi") for log in (in_memory(tmp_path).log, there))
    assert {candidate.name.split("(")[0] for candidate in two.diagnostics.path[:2]} == {"SNDR", "CAEL"}
    for name in ("value", "error"):
        assert getattr(two, name) == pytest.approx(getattr(one, name), rel=1e-6)
    assert two.diagnostics.moved == pytest.approx(one.diagnostics.moved, rel=1e-6)
    assert two.diagnostics.moved > 0
    assert two.interval().width > two.without_bias(0.95).width
