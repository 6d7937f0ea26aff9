"""CAEL and Auto in a stream: those of a log in memory where the sample is the whole log, and honest where it is not."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from sklearn.linear_model import LinearRegression

import cael
import cael.io
from cael.embedding.exact import rewards as models
from cael.log import budget
from tests.streaming.logs import K, table, write
from tests.streaming.worlds import COLUMNS, paper

TINY = cael.Growth(steps=20, penalties=(1.5,), restarts=1)
QUICK = cael.CAEL(growth=TINY)


def close(a, b):
    return a == b or (a is not None and b is not None and abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b)))


def same(streamed, kept):
    """Values, errors, intervals, the whole path and every number of the diagnostics are equal."""
    assert close(streamed.value, kept.value)
    assert close(streamed.stderr, kept.stderr)
    for method in ("normal", "t", "bias_aware"):
        a, b = streamed.interval(0.9, method), kept.interval(0.9, method)
        assert close(a.low, b.low)
        assert close(a.high, b.high)
    a, b = streamed.diagnostics.to_dict(), kept.diagnostics.to_dict()
    facts = (a.pop("embedding"), b.pop("embedding"))
    for mine, twin in ((a, b), *((facts,) if facts[0] else ())):
        for name in mine:
            if isinstance(mine[name], float) and not isinstance(mine[name], bool):
                assert close(mine[name], twin[name]), name
            elif isinstance(mine[name], dict):
                assert mine[name] == pytest.approx(twin[name], rel=1e-9), name
            elif name not in ("path", "losses"):
                assert mine[name] == twin[name], name
    for mine, twin in zip(streamed.diagnostics.path, kept.diagnostics.path, strict=True):
        assert (mine.name, mine.chosen) == (twin.name, twin.chosen)
        assert close(mine.value, twin.value)
        assert close(mine.width, twin.width)


@pytest.fixture
def exactly(monkeypatch):
    """Networks that predict with 64 bits, which do not depend on the blocks that rows are in.

    With 32 bits the sixth digit does, as products of other shapes are added up in another order.
    """
    trained = models.sparse_rewards
    monkeypatch.setattr(
        models,
        "sparse_rewards",
        lambda *given, **more: [each.in_numpy(np.float64) for each in trained(*given, **more)],
    )


def twins(tmp_path, monkeypatch, *, cuts, group, batch, clusters=None, n=500, workers=1, columns=None):
    """A scanned log, and the same log in memory."""
    monkeypatch.setattr(budget, "MOST_ROWS", batch)
    log, actions, _ = paper(n, clusters=clusters)
    roles = {**COLUMNS, "cluster": "user" if clusters else None, **(columns or {})}
    where = write(tmp_path / "log", log, cuts, group)
    kept = cael.io.open_log(where, roles, actions=actions, logging="mu")
    scanned = cael.scan(where, roles, actions=actions, logging="mu", workers=workers, memory="4GiB")
    return scanned, kept.log, kept.policy("pi")


@pytest.mark.parametrize(
    ("cuts", "group", "batch", "clusters", "workers"),
    [([], 1000, 5000, None, 1), ([100, 350], 70, 97, None, 2), ([33], 500, 313, 60, 1), ([200, 201], 50, 64, 60, 2)],
)
def test_with_the_whole_log_as_its_sample_it_is_the_estimate_in_memory(
    cuts, group, batch, clusters, workers, tmp_path, monkeypatch, exactly
):
    scanned, log, policy = twins(
        tmp_path, monkeypatch, cuts=cuts, group=group, batch=batch, clusters=clusters, workers=workers
    )
    auto = cael.Auto(cael=QUICK)
    found = cael.evaluate(scanned, "pi", [QUICK, auto], learn=False)
    same(found[QUICK.name], QUICK.estimate(log, policy))
    same(found[auto.name], auto.estimate(log, policy))


def test_with_numbers_of_32_bits_it_is_the_estimate_in_memory_up_to_their_last_digits(tmp_path, monkeypatch):
    scanned, log, policy = twins(tmp_path, monkeypatch, cuts=[33], group=500, batch=313, clusters=60)
    found, twin = cael.evaluate(scanned, "pi", QUICK, learn=False)[QUICK.name], QUICK.estimate(log, policy)
    assert found.value == pytest.approx(twin.value, rel=1e-6)
    assert found.stderr == pytest.approx(twin.stderr, rel=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [
        cael.CAEL(form="plain", growth=TINY),
        cael.CAEL(form="self_normalised", growth=TINY, folds=3),
        cael.CAEL(form="doubly_robust", selector="slope", growth=TINY, folds=3, seed=4),
        cael.CAEL(selector=0.3, growth=TINY, folds=3),
        cael.CAEL(selector=math.inf, growth=TINY, folds=3),
        cael.CAEL(selector=0.0, growth=TINY, folds=3),
    ],
    ids=lambda each: each.name.split(", growth")[0],
)
def test_every_form_and_selector_is_that_of_a_log_in_memory(estimator, tmp_path, monkeypatch, exactly):
    scanned, log, policy = twins(tmp_path, monkeypatch, cuts=[130], group=100, batch=90, n=300)
    same(cael.evaluate(scanned, "pi", estimator, learn=False)[estimator.name], estimator.estimate(log, policy))


def test_drawn_actions_are_those_of_a_log_in_memory_in_one_file(tmp_path, monkeypatch, exactly):
    scanned, log, policy = twins(tmp_path, monkeypatch, cuts=[], group=100, batch=90, n=300)
    drawn = replace(QUICK, candidates=5, folds=3)
    found = cael.evaluate(scanned, "pi", drawn, learn=False)[drawn.name]
    same(found, drawn.estimate(log, policy))
    assert found.diagnostics.embedding.candidates == 5


def test_a_logging_policy_stands_in_for_propensities_and_is_checked_against_them(tmp_path, monkeypatch, exactly):
    scanned, log, policy = twins(tmp_path, monkeypatch, cuts=[130], group=100, batch=90, columns={"propensity": None})
    found = cael.evaluate(scanned, "pi", QUICK, learn=False)
    same(found[QUICK.name], QUICK.estimate(log, policy))
    assert found["SNIPS"].value == pytest.approx(cael.SNIPS().estimate(log, policy).value, rel=1e-12)
    where, (_, actions, _) = tmp_path / "log", paper(500)
    wrong = cael.scan(where, COLUMNS, actions=actions, logging="pi")
    with pytest.raises(cael.LogError, match=r"propensities and logging disagree on .* rows: row 0 \(part-00"):
        cael.evaluate(wrong, "pi", learn=False)
    never = cael.scan(where, {**COLUMNS, "propensity": None}, actions=actions, logging=np.eye(20)[0])
    with pytest.raises(cael.LogError, match="the logging policy gives the logged action probability 0"):
        cael.evaluate(never, "pi", learn=False)
    assert cael.evaluate(scanned, "logging", learn=False)["IPS"].value == pytest.approx(log.rewards.mean(), rel=1e-9)
    half = cael.scan(where, COLUMNS, actions=actions, logging="propensity")
    with pytest.raises(cael.InputError, match="Name that column as the propensity"):
        cael.evaluate(half, "pi", learn=False)


@pytest.mark.parametrize("clusters", [None, 60])
@pytest.mark.parametrize("policy", ["pi", "uniform"])
def test_outcome_models_trained_on_the_whole_log_are_those_of_a_log_in_memory(clusters, policy, tmp_path, monkeypatch):
    scanned, log, _ = twins(tmp_path, monkeypatch, cuts=[130], group=100, batch=90, clusters=clusters, n=300)
    model = cael.SklearnOutcome(LinearRegression())
    target = cael.Uniform(20) if policy == "uniform" else cael.Tabular(np.array(paper(300)[0][policy].to_pylist()))
    for estimator in (cael.DM(model, folds=3), cael.DR(model, folds=3), cael.SNDR(model, folds=0)):
        found = cael.evaluate(scanned, policy, estimator, learn=False)[estimator.name]
        twin = estimator.estimate(log, target)
        assert close(found.value, twin.value)
        assert close(found.stderr, twin.stderr)
        assert found.diagnostics.cross_fitted is twin.diagnostics.cross_fitted


# --- policies that look at the numbers of rows


class ByPosition(cael.Policy):
    """A policy of a third party, aligned with the rows of some array."""

    def __init__(self, table):
        self.table = table

    def probabilities(self, batch):
        return self.table[batch.rows]


class ByParity(cael.Policy):
    def probabilities(self, batch):
        return np.eye(K)[batch.row_numbers % 7 % K]


@pytest.mark.parametrize("policy", [ByPosition(np.full((100, K), 1 / K)), ByParity()], ids=["array", "rule"])
def test_a_policy_that_answers_by_position_is_refused(policy, tmp_path):
    log = cael.scan(write(tmp_path / "log", table(100)), n_actions=K)
    with pytest.raises(cael.PolicyError, match="aligned with the rows of a log in memory"):
        cael.evaluate(log, policy, learn=False)


# --- other files, and rows with flaws


def uniform_log(n=400):
    """A log of a uniform logging policy, without lists."""
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(n, 2)), rng.integers(0, 4, n)
    rewards = x[:, 0] * (a == 1) + a / 4 + 0.1 * rng.normal(size=n)
    return pa.table({"action": a, "reward": rewards, "x_0": x[:, 0], "x_1": x[:, 1]})


def test_a_log_of_text_of_unknown_length_gives_the_same(tmp_path):
    log = uniform_log()
    pa.csv.write_csv(log, tmp_path / "log.csv")
    pa.parquet.write_table(log, tmp_path / "log.parquet")
    quick = replace(QUICK, folds=3)
    scanned = [cael.scan(tmp_path / name, n_actions=4, logging="uniform") for name in ("log.csv", "log.parquet")]
    found = [cael.evaluate(log, [0.1, 0.7, 0.1, 0.1], quick, learn=False)[quick.name] for log in scanned]
    assert found[0].value == pytest.approx(found[1].value, rel=1e-6)
    assert found[0].diagnostics.embedding.trained_rows == 400


def test_flaws_are_found_before_anything_is_trained_and_left_out_where_asked(tmp_path, monkeypatch):
    log = uniform_log()
    rewards = log["reward"].to_pylist()
    rewards[7] = rewards[300] = None
    pa.parquet.write_table(log.set_column(1, "reward", pa.array(rewards)), tmp_path / "log.parquet")
    calls = []
    trained = models.sparse_rewards
    monkeypatch.setattr(models, "sparse_rewards", lambda *given: calls.append(1) or trained(*given))
    quick = replace(QUICK, folds=3)
    with pytest.raises(cael.LogError, match=r"2 of 400 rows are invalid: column 'reward' is missing in 2 rows"):
        cael.evaluate(
            cael.scan(tmp_path / "log.parquet", n_actions=4, logging="uniform"), np.eye(4)[1], quick, learn=False
        )
    assert not calls
    with pytest.warns(UserWarning, match="2 of 400 rows were left out"):
        scanned = cael.scan(tmp_path / "log.parquet", n_actions=4, logging="uniform", drop_invalid=True)
        found = cael.evaluate(scanned, np.eye(4)[1], quick, learn=False)[quick.name]
    assert found.n == found.diagnostics.embedding.trained_rows == 398


def test_rewards_that_are_all_equal_leave_cael_out(tmp_path):
    log = uniform_log().set_column(1, "reward", pa.array(np.ones(400)))
    pa.parquet.write_table(log, tmp_path / "log.parquet")
    scanned = cael.scan(tmp_path / "log.parquet", n_actions=4, logging="uniform")
    with pytest.raises(cael.NeedsError, match="needs rewards that are not all equal, to learn from"):
        cael.evaluate(scanned, np.eye(4)[1], QUICK, learn=False)
    with pytest.raises(cael.LogError, match="every one of the 400 rewards is 1"):
        cael.evaluate(scanned, np.eye(4)[1], learn=True)
