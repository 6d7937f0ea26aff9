"""Rows that stand for several decisions: laws of sampling weights, in memory and in files."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
import cael.io
from cael.engine.moments import BUCKETS, moments_by
from tests.calibration.kept import K, kept, truth

QUICK = cael.Growth(steps=30, hidden=8, penalties=(1.5,), restarts=1)
CAEL = cael.CAEL(growth=QUICK, folds=3)
FIXED = cael.FixedOutcome(np.linspace(0.02, 0.09, K))
PLAIN = (cael.LoggedMean(), cael.IPS(), cael.SNIPS(), cael.DM(FIXED), cael.DR(FIXED), cael.SNDR(FIXED),
         cael.SwitchDR(FIXED, tau=3.0), cael.DRos(FIXED, lambda_=2.0), cael.BaselineIPS(),
         cael.SubGaussianIPS(lambda_=0.1))  # fmt: skip
TRAINED = (cael.DM(), cael.DR(), cael.SNDR(), cael.DR(cael.Boosting(max_iter=5)), cael.SNDR(cael.Logistic()),
           cael.OffCEM(), cael.MetaOPE(), cael.OPERA(), cael.OCV(), CAEL)  # fmt: skip
WORLD = kept(5000, 4)


def weighted(log, weights, clusters=None, rows=None):
    """The log with other sampling weights, of all rows or of some."""
    rows = np.arange(len(log)) if rows is None else rows
    return cael.LoggedData(
        log.contexts[rows], log.actions[rows], log.rewards[rows], log.propensities[rows], n_actions=K,
        sampling_weights=weights, clusters=clusters,
    )  # fmt: skip


def near(mine, other):
    assert mine.value == pytest.approx(other.value, rel=1e-7, abs=1e-10)
    assert mine.error == pytest.approx(other.error, rel=1e-6, abs=1e-10)
    a, b = mine.interval(), other.interval()
    assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-6, abs=1e-9)
    for name in ("effective_sample_size", "max_weight", "mean_weight", "mean_weight_z", "tail_index"):
        mine_, other_ = getattr(mine.diagnostics, name), getattr(other.diagnostics, name)
        assert (mine_ is None) == (other_ is None), name
        assert mine_ is None or mine_ == pytest.approx(other_, rel=1e-5), name


@pytest.mark.parametrize("estimator", [*PLAIN, *TRAINED], ids=lambda each: each.name)
def test_equal_weights_are_no_weights_and_their_scale_does_not_matter(estimator):
    """Networks are trained in float32: their law is a looser one, below."""
    log = WORLD.alike
    if estimator is CAEL:
        log = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=log.logging)
        same = cael.LoggedData(
            log.contexts, log.actions, log.rewards, logging=log.logging, sampling_weights=np.full(len(log), 0.3)
        )
        mine, other = estimator.estimate(log, WORLD.target), estimator.estimate(same, WORLD.target)
        assert mine.value == pytest.approx(other.value, abs=0.05 * mine.error)
        assert mine.error == pytest.approx(other.error, rel=0.02)
        return
    near(estimator.estimate(weighted(log, np.full(len(log), 7.0)), WORLD.target),
         estimator.estimate(weighted(log, None), WORLD.target))  # fmt: skip
    s = np.random.default_rng(0).uniform(0.5, 4.0, len(log))
    near(estimator.estimate(weighted(log, s), WORLD.target), estimator.estimate(weighted(log, 1000 * s), WORLD.target))


@pytest.mark.parametrize("estimator", PLAIN, ids=lambda each: each.name)
def test_weight_2_is_the_row_twice(estimator):
    """Values always; errors where the two copies are one cluster."""
    log, often = WORLD.alike, np.random.default_rng(1).integers(1, 4, len(WORLD.alike))
    rows = np.repeat(np.arange(len(log)), often)
    once = estimator.estimate(weighted(log, often.astype(float), np.arange(len(log))), WORLD.target)
    twice = estimator.estimate(weighted(log, None, rows, rows), WORLD.target[rows])
    assert once.value == pytest.approx(twice.value, rel=1e-9)
    if estimator.name != "BaselineIPS":  # its folds are of rows
        assert once.stderr == pytest.approx(twice.stderr, rel=1e-9)


def test_the_contributions_average_to_the_value_and_carry_the_error():
    for estimator in (*PLAIN, *TRAINED[:3]):
        estimate = estimator.estimate(weighted(WORLD.log, WORLD.log.sampling_weights), WORLD.target)
        assert estimate.contributions.mean() == pytest.approx(estimate.value, rel=1e-9)
        spread = estimate.contributions.std(ddof=1) / np.sqrt(estimate.n)
        assert estimate.stderr == pytest.approx(spread, rel=1e-9)


def test_moments_merge_as_if_taken_at_once():
    rng = np.random.default_rng(2)
    rows, s, bucket = rng.normal(50, 1, (3, 400)), rng.uniform(0.1, 9, 400), np.arange(400) % BUCKETS
    whole = moments_by(rows, bucket, s)
    parts = [moments_by(rows[:, part], bucket[part], s[part]) for part in np.array_split(np.arange(400), 7)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    mean = np.average(rows, axis=1, weights=s)
    apart = rows - mean[:, None]
    for moments in (whole, merged):
        assert moments.mean == pytest.approx(mean)
        assert moments.comoment / 400 == pytest.approx((apart * s) @ apart.T / s.sum())
        assert moments.noise == pytest.approx((apart * s) @ (apart * s).T * (400 / s.sum()) ** 2)
        assert moments.bucket_sums.sum(axis=1) == pytest.approx(rows @ s)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The log as a Parquet file in several row groups, with both policies as columns of lists."""
    log, path = WORLD.log, tmp_path_factory.mktemp("kept") / "log.parquet"
    mu = np.concatenate([cael.policies.policy.probabilities(log.logging, batch) for batch in log.batches(width=K)])
    columns = {
        "action": log.actions, "reward": log.rewards, "propensity": log.propensities, "x_0": log.contexts[:, 0],
        "x_1": log.contexts[:, 1], "weight": log.sampling_weights, "mu": list(mu), "pi": list(WORLD.target),
        "country": np.where(log.contexts[:, 0] > 0, "A", "B"),
    }  # fmt: skip
    pq.write_table(pa.table(columns), path, row_group_size=300)
    return path


ROLES = {"sampling_weight": "weight", "segment": "country"}


@pytest.mark.parametrize("estimators", [[cael.SNIPS(), cael.DR(), cael.SNDR()], [CAEL]])
def test_a_stream_is_memory(files, estimators):
    log = cael.io.open_log(files, ROLES, logging="dense:mu")
    scanned = cael.scan(files, ROLES, logging="dense:mu")
    mine = cael.evaluate(scanned, "dense:pi", estimators, learn=False)
    other = cael.evaluate(log.log, log.policy("dense:pi"), estimators, learn=False)
    for estimator in estimators:
        a, b = mine[estimator.name], other[estimator.name]
        digits = 1e-3 if estimator is CAEL else 1e-8  # of its error: networks have float32
        assert a.value == pytest.approx(b.value, abs=digits * a.error)
        assert a.error == pytest.approx(b.error, rel=digits)
        size = b.diagnostics.effective_sample_size
        assert a.diagnostics.effective_sample_size == pytest.approx(size, rel=digits)
    assert mine.lift.value == pytest.approx(other.lift.value, abs=digits * a.error)
    assert mine.verdict.level == other.verdict.level
    assert [check.status for check in mine.verdict.checks] == [check.status for check in other.verdict.checks]
    assert mine.overlap.effective_rows == pytest.approx(other.overlap.effective_rows)
    parts = cael.segments(scanned, "dense:pi", "country", estimator=cael.SNDR())
    whole = cael.segments(log.log, log.policy("dense:pi"), log.labels("country"), estimator=cael.SNDR())
    for a, b in zip(parts.rows, whole.rows, strict=True):
        assert (a.label, a.rows) == (b.label, b.rows)
        assert a.lift == pytest.approx(b.lift, rel=1e-7)


def test_every_command_takes_the_log(files):
    old, new = truth()
    log = cael.io.open_log(files, ROLES, logging="dense:mu")
    policy, target = log.policy("dense:pi"), WORLD.target
    result = cael.evaluate(log.log, policy, learn=False)
    assert new in result[result.headline].interval(0.99)
    assert old in result["LoggedMean"].interval(0.99)
    assert result.verdict.level != "refuse"
    compared = cael.compare(log.log, {"new": policy, "even": np.full(target.shape, 1 / K)}, learn=False)
    assert compared.rows[0].estimate.value == pytest.approx(result[result.headline].value)
    assert cael.audit(log.log).status == "pass"
    needed = cael.plan(log.log, policy, lift=0.1)
    full = cael.plan(cael.LoggedData(*(array for array in _all()[:3]), logging=_all()[3]), _all()[4], lift=0.1)
    assert needed.baseline == pytest.approx(full.baseline, rel=0.2)
    assert needed.rows_needed == pytest.approx(full.rows_needed, rel=0.35)
    assert len(log.log) < needed.n <= 1.3 * full.n
    assert cael.calibrate(log.log, policy, [cael.SNIPS()], repeats=2).repeats == 2


def _all():
    from tests.calibration.kept import everything

    return everything(5000, 4)


def test_counts_of_actions_are_weighed():
    """Clicks are kept, so popular actions are too many among the rows; by their weights they are as they should be."""
    world = kept(40_000, 9)
    for log, status in ((world.log, "pass"), (world.alike, "off")):
        found = {check.name: check.status for check in cael.audit(log).checks}
        assert (found["frequencies"] == "pass") == (status == "pass")
        assert found["duplicates"] == "pass"


@pytest.mark.parametrize("known", [{"logging": [0.5, 0.5]}, {"propensities": np.full(4000, 0.5)}])
def test_an_action_that_always_earns_is_no_more_frequent(known):
    """Nine of ten rows of one action are kept, and two of ten of the other; their weights tell."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 4000)
    rewards = (rng.random(4000) < np.where(actions == 0, 0.9, 0.1)).astype(float)
    rows = (rewards == 1) | (rng.random(4000) < 0.1)
    given = {name: np.asarray(values)[rows] if name == "propensities" else values for name, values in known.items()}
    for weights, as_stated in ((np.where(rewards == 1, 1.0, 10.0)[rows], True), (None, False)):
        log = cael.LoggedData(None, actions[rows], rewards[rows], sampling_weights=weights, **given)
        found = {check.name: check.status for check in cael.audit(log).checks}
        assert (found["frequencies"] == "pass") == as_stated


def test_totals_are_over_the_decisions_that_rows_stand_for():
    result = cael.evaluate(WORLD.log, WORLD.target, learn=False)
    stand = round(WORLD.log.sampling_weights.sum())
    assert f"Over the {stand:,} decisions that the rows stand for" in result.markdown()


def test_what_cannot_count_rows_says_so():
    log, target = WORLD.log, WORLD.target

    class Plain:
        def fit(self, x, y):
            return self

        def predict(self, x):
            return np.zeros(len(x))

        def get_params(self, deep=True):
            return {}

    with pytest.raises(cael.NeedsError, match="sampling weights"):
        cael.DR(cael.SklearnOutcome(Plain())).estimate(log, target)
    with pytest.raises(cael.CaelError, match="sampling weights"):
        cael.learn(log, candidates=["best_arm"])
    with pytest.raises(cael.CaelError, match="sampling weights"):
        cael.read(pa.table({"action": log.actions, "reward": log.rewards, "sampling_weight": log.sampling_weights}))


@pytest.mark.parametrize(("weights", "said"), [([1.0, 0.0, 1.0], "above 0"), ([1.0, np.nan, 1.0], "finite"),
                                               ([1.0, 2.0], "lengths differ")])  # fmt: skip
def test_wrong_weights_are_refused(weights, said):
    with pytest.raises(cael.LogError, match=said):
        cael.LoggedData(None, [0, 1, 0], [1.0, 0.0, 1.0], [0.5] * 3, sampling_weights=weights)


def test_wrong_weights_in_files_are_named_by_row(tmp_path):
    rows = {"action": [0, 1, 0], "reward": [1.0, 0.0, 1.0], "propensity": [0.5] * 3, "sampling_weight": [1.0, -2.0, 1]}
    with pytest.raises(cael.LogError, match=r"'sampling_weight' is not above 0, such as -2.0, in 1 row \(row 1"):
        cael.read(pa.table(rows))
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    with pytest.raises(cael.LogError, match="is not above 0"):
        cael.evaluate(cael.scan(tmp_path / "log.parquet"), "uniform", cael.IPS(), learn=False)


def test_npz_and_take_keep_the_weights(tmp_path):
    log = WORLD.log
    cael.io.save_log(tmp_path / "log.npz", log)
    again = cael.read(tmp_path / "log.npz")
    assert (again.sampling_weights == log.sampling_weights).all()
    assert (log.take([5, 2]).sampling_weights == log.sampling_weights[[5, 2]]).all()
    assert log.fingerprint != WORLD.alike.fingerprint


def test_dropped_events_of_vowpal_wabbit(tmp_path):
    """pdrop is the chance that an event was left out: the others stand for 1 / (1 - pdrop)."""

    def line(at, reward, dropped):
        event = {"_label_cost": -reward, "_label_probability": 0.5, "_label_Action": 1, "_labelIndex": 0,
                 "EventId": f"e{at}", "Timestamp": f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z",
                 "a": [1, 2], "p": [0.5, 0.5], "pdrop": dropped,
                 "c": {"x": at % 3, "_multi": [{"id": "a"}, {"id": "b"}]}}  # fmt: skip
        return json.dumps(event)

    rng = np.random.default_rng(0)
    rewards = (rng.random(400) < 0.3).astype(float)
    lines = [line(at, r, 0.0 if r else 0.75) for at, r in enumerate(rewards)]
    (tmp_path / "log.dsjson").write_text("\n".join(lines))
    table = cael.io.open_log(tmp_path / "log.dsjson")
    assert set(table.log.sampling_weights) == {1.0, 4.0}
    assert any("pdrop" in note for note in table.notes)
    mean = np.average(rewards, weights=np.where(rewards == 1, 1, 4))
    assert cael.LoggedMean().estimate(table.log, "uniform").value == pytest.approx(mean)


def test_a_guarantee_needs_rows_that_count_alike():
    """A mean by weights is a ratio: its contributions have no known range."""
    with pytest.raises(cael.NeedsError, match="as with sampling weights"):
        cael.IPS().estimate(WORLD.log, WORLD.target).interval(0.95, "betting", reward_range=(0, 1), max_weight=60)
    assert cael.IPS().estimate(WORLD.alike, WORLD.target).interval(
        0.95, "betting", reward_range=(0, 1), max_weight=60
    ).width > 0  # fmt: skip


@pytest.mark.parametrize("method", ["studentised", "bca"])
def test_a_bootstrap_draws_rows_with_their_weights(method):
    """Equal weights draw as none do; of others, an interval is about as long as the normal one."""
    log = WORLD.alike
    for estimator in (cael.SNIPS(), cael.SNDR(FIXED)):
        same = estimator.estimate(weighted(log, np.full(len(log), 3.0)), WORLD.target)
        none = estimator.estimate(weighted(log, None), WORLD.target)
        a, b = (each.interval(0.95, method, resamples=200) for each in (same, none))
        assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-6)
        kept_ones = estimator.estimate(WORLD.log, WORLD.target)
        wide = kept_ones.interval(0.95, method, resamples=2000).width
        assert wide == pytest.approx(kept_ones.interval(0.95, "normal").width, rel=0.15)


def test_rows_that_count_alike_have_the_mean_of_all():
    """The sample for checks of single rows: what a log that kept every row would look like."""
    world = kept(60_000, 5)
    rows, mean = world.log.alike(), cael.LoggedMean().estimate(world.log, world.target)
    assert rows.sampling_weights is None
    assert len(rows) < len(world.log)
    assert abs(rows.rewards.mean() - mean.value) < 4 * np.sqrt(mean.value / len(rows))
    assert world.alike.alike() is world.alike


def test_the_floor_of_an_error_knows_that_all_clicks_were_kept():
    """By Kish's number of rows the error would be raised to more than twice what the rows show."""
    mean = cael.LoggedMean().estimate(WORLD.log, WORLD.target)
    assert mean.error < 1.02 * mean.stderr
    raised = np.sqrt(mean.value * (1 - mean.value) / mean.diagnostics.effective_sample_size)
    assert raised > 2 * mean.stderr


def test_networks_learn_from_rows_as_often_as_they_count():
    """The gradient of a row that counts three times is that of three such rows."""
    from cael.embedding.arrays import NUMPY
    from cael.embedding.exact.reward_network import gradients, start
    from cael.embedding.stream import Stream

    rng = np.random.default_rng(0)
    p = start(Stream([1], NUMPY), 2, 8)
    inputs = np.concatenate([rng.normal(size=(1, 5, 2)), np.ones((1, 5, 1))], axis=2).astype(np.float32)
    r, often = rng.normal(size=(1, 5)).astype(np.float32), np.array([[3, 1, 2, 1, 1]], np.float32)
    rows = np.repeat(np.arange(5), often[0].astype(int))
    for one, other in zip(
        gradients(p, inputs, r, 8, often), gradients(p, inputs[:, rows], r[:, rows], 8), strict=True
    ):  # fmt: skip
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)


def test_ridge_and_its_error_count_rows_by_their_weights():
    """With a fixed penalty, a weight of 2 is the row twice but for the penalty, which counts for half as much."""
    log = WORLD.alike
    often = np.random.default_rng(3).integers(1, 4, len(log))
    rows = np.repeat(np.arange(len(log)), often)
    model = cael.Ridge(alpha=1e-6, actions="onehot")
    once = cael.DM(model, folds=1).estimate(weighted(log, often.astype(float), np.arange(len(log))), WORLD.target)
    twice = cael.DM(model, folds=1).estimate(weighted(log, None, rows, rows), WORLD.target[rows])
    assert once.value == pytest.approx(twice.value, rel=1e-6)
    assert once.stderr == pytest.approx(twice.stderr, rel=1e-4)
