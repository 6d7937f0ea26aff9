"""Several metrics in one question, ratios, guardrails, a baseline policy, and the decision."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cael
from cael.cli import main
from cael.inference.ratio import ratio_of
from cael.log.measure import Measure
from cael.results.decision import choice_of

K = 4
ROLES = {"reward": "clicked", "metric": ["spend", "latency"]}
METRICS = ["clicked", "spend:cap=30", "spend/clicked", "latency:min:+4%"]


def columns(n: int, seed: int) -> dict[str, np.ndarray]:
    """A log whose later actions get more clicks, earn more a click, and are slower."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    mu = np.exp(0.3 * x[:, None] * np.arange(K))
    mu /= mu.sum(axis=1, keepdims=True)
    a = (rng.random((n, 1)) > mu.cumsum(axis=1)[:, :-1]).sum(axis=1)
    clicked = (rng.random(n) < 0.2 + 0.1 * a).astype(float)
    spend = clicked * rng.lognormal(1 + 0.1 * a, 1.0)
    data = {
        "action": a, "clicked": clicked, "spend": spend, "latency": 100 + a + 5 * rng.normal(size=n), "x_0": x,
        "propensity": mu[np.arange(n), a], "best": np.full(n, 3), "middle": np.full(n, 1),
        "country": np.where(rng.random(n) < 0.5, "a", "b"),
    }  # fmt: skip
    return data | {f"mu_{j}": mu[:, j] for j in range(K)}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp("metrics") / "log.parquet"
    pq.write_table(pa.table(columns(3000, 1)), where, row_group_size=1000)
    return where


@pytest.fixture(scope="module")
def log(path):
    return cael.read(path, ROLES, logging="dense:mu_*")


@pytest.fixture(scope="module")
def card(log):
    return cael.evaluate(log, "choice:best", metrics=METRICS, learn=False).scorecard


def test_each_metric_is_what_it_is_alone(log, card):
    for column, cap in (("clicked", None), ("spend", 30.0), ("latency", None)):
        alone = cael.evaluate(log.measured(Measure(column, cap)), "choice:best", learn=False)
        row = card[column]
        assert row.estimate.value == pytest.approx(alone.best.value, abs=1e-10)
        assert row.lift.value == pytest.approx(alone.lift.value, abs=1e-10)
        assert row.lift.error == pytest.approx(alone.lift.error, rel=1e-9)
        assert row.verdict.level == alone.verdict.level
        assert row.interval.width > alone.lift_interval.width  # it holds for all metrics together


@pytest.mark.parametrize("question", [{}, {"baseline": "choice:middle"}])
def test_a_stream_says_the_same(path, log, question):
    scanned = cael.scan(path, ROLES, logging="dense:mu_*")
    asked = {"metrics": METRICS, "learn": False, **question}
    held, streamed = (cael.evaluate(each, "choice:best", **asked) for each in (log, scanned))
    for a, b in zip(held.scorecard, streamed.scorecard, strict=True):
        assert (a.status, a.cut, a.verdict.level) == (b.status, b.cut, b.verdict.level)
        for pair in (
            (a.estimate.value, b.estimate.value),
            (a.lift.error, b.lift.error),
            (a.interval.low, b.interval.low),
        ):
            assert pair[0] == pytest.approx(pair[1], rel=1e-9)
    assert held.decision == streamed.decision


def test_the_cap_counts_rows_and_the_ratio_takes_it(log, card):
    spend = dict(log.metrics)["spend"]
    assert card["spend"].cut == int((spend > 30).sum()) > 0
    capped = np.minimum(spend, 30)
    assert card["spend/clicked"].baseline.value == pytest.approx(capped.mean() / log.rewards.mean())
    text = " ".join(card.doubts())
    assert f"{card['spend'].cut} rows above 30" in text


def test_a_ratio_has_the_joint_influence_of_its_parts(log):
    """The delta method against a bootstrap of the rows, for estimators of every kind."""
    clicked, spend = log, log.measured(Measure("spend"))
    rng = np.random.default_rng(0)
    asked = cael.evaluate(log, "choice:best", [cael.DR()], metrics=["spend/clicked"], learn=False)
    for name in ("LoggedMean", "IPS", "SNIPS", "DM", "SNDR", "DR"):
        ratio = asked[name]
        estimator = getattr(cael, name)()
        top, bottom = (estimator.estimate(each, "choice:best") for each in (spend, clicked))
        assert ratio.value == pytest.approx(top.value / bottom.value, rel=1e-9)
        z, per = top.contributions, bottom.contributions
        draws = [rng.integers(0, len(log), len(log)) for _ in range(400)]
        spread = np.std([z[rows].mean() / per[rows].mean() for rows in draws])
        assert ratio.stderr == pytest.approx(spread, rel=0.2), name
        apart = ratio.value * math.hypot(top.stderr / top.value, bottom.stderr / bottom.value)
        assert ratio.stderr < 0.97 * apart, name  # what spend and clicks share cancels: as if independent it is wrong


def test_an_interval_of_a_ratio_covers_the_truth():
    """200 logs; the same interval with the standard error of the numerator alone covers far less."""
    repeats, hits, naive, truth = 200, 0, 0, math.exp(1 + 0.3 + 0.5)
    for seed in range(repeats):
        data = columns(600, 1000 + seed)
        log = cael.LoggedData(
            None, data["action"], data["spend"], data["propensity"], metrics={"clicked": data["clicked"]}, n_actions=K
        )
        [estimate] = [
            e
            for e in cael.evaluate(log, [0, 0, 0, 1.0], metrics=["reward/clicked"], learn=False)
            if e.estimator == "SNIPS"
        ]
        low, high = estimate.interval()
        hits += low <= truth <= high
        top = cael.SNIPS().estimate(log, [0, 0, 0, 1.0])
        naive += abs(estimate.value - truth) <= 0.5 * 1.96 * top.stderr
    error = math.sqrt(0.95 * 0.05 / repeats)
    assert abs(hits / repeats - 0.95) < 4 * error
    assert naive / repeats < 0.95 - 4 * error


def test_less_is_better_everywhere(log):
    more, less = (
        cael.evaluate(log, "choice:best", metrics=[metric], learn=False) for metric in ("latency", "latency:min")
    )
    assert (more.direction, less.direction) == ("better", "worse")
    assert (more.lift.value, more.lift_interval) == (less.lift.value, less.lift_interval)
    assert less.to_dict()["better"] == "less"
    assert "less is better" in less.sheet().title
    compared = cael.compare(log, {"b": "choice:best", "m": "choice:middle"}, metrics=["latency:min"], learn=False)
    assert [row.name for row in compared] == ["m", "b"]
    assert compared["b"].direction == "worse"
    cut = cael.segments(log, "choice:best", columns(3000, 1)["country"], metrics=["latency:min"], learn=False)
    assert {row.direction for row in cut} == {"worse"}


def test_a_baseline_policy_is_paired(log):
    over = cael.evaluate(log, "choice:best", baseline=("middle", "choice:middle"), learn=False)
    best, middle = (cael.SNDR().estimate(log, policy) for policy in ("choice:best", "choice:middle"))
    assert over.baseline.value == pytest.approx(middle.value)
    assert over.lift.value == pytest.approx((best - middle).value, abs=3 * (best - middle).stderr)
    assert "lift over middle:" in over.sentence()
    assert over.relative_lift == pytest.approx(over.lift.value / middle.value)
    same = cael.evaluate(log, "choice:best", baseline="choice:best", learn=False)
    assert (same.lift.value, same.lift.error) == (0.0, 0.0)
    compared = cael.compare(log, {"b": "choice:best"}, baseline=("middle", "choice:middle"), learn=False)
    assert compared["b"].interval.low == pytest.approx(over.lift_interval.low, rel=1e-6)
    cut = cael.segments(
        log, "choice:best", columns(3000, 1)["country"], baseline=("middle", "choice:middle"), learn=False
    )
    rows = np.array([row.rows for row in cut])
    assert rows @ [row.lift for row in cut] / len(log) == pytest.approx(over.lift.value)
    assert cael.plan(log, "choice:best", baseline=("middle", "choice:middle")).rows_needed > 0
    assert cael.plan(log, "choice:best", baseline="logging").rows_needed == pytest.approx(
        cael.plan(log, "choice:best").rows_needed, rel=0.02
    )


def test_a_lift_over_a_policy_covers_the_truth():
    repeats, hits = 150, 0
    for seed in range(repeats):
        data = columns(600, 5000 + seed)
        log = cael.LoggedData(data["x_0"][:, None], data["action"], data["clicked"], data["propensity"], n_actions=K)
        over = cael.evaluate(log, [0, 0, 0, 1.0], baseline=[0, 1.0, 0, 0], learn=False)
        hits += over.lift_interval.low <= 0.2 <= over.lift_interval.high
    assert abs(hits / repeats - 0.95) < 4 * math.sqrt(0.95 * 0.05 / repeats)


def test_the_margin_of_a_guardrail_is_a_share_of_the_baseline(log):
    """Its interval is that of the lift less the margin, with the error of the baseline in it."""
    card = cael.evaluate(log, "choice:best", metrics=["clicked", "latency:min:+4%"], learn=False).scorecard
    row = card["latency"]
    middle = (row.excess.low + row.excess.high) / 2
    assert middle == pytest.approx(row.lift.value - 0.04 * row.baseline.value, abs=0.1 * row.excess.width)
    assert row.status == "within"
    tight = cael.evaluate(log, "choice:best", metrics=["clicked", "latency:min:+0.1%"], learn=False)
    assert tight.scorecard["latency"].status == "beyond"
    assert tight.decision.choice == "keep"
    limits = [cael.Metric("latency", direction="min", limit=limit) for limit in (50.0, 200.0)]
    statuses = [
        cael.evaluate(log, "choice:best", metrics=["clicked", limit], learn=False).scorecard["latency"].status
        for limit in limits
    ]
    assert statuses == ["beyond", "within"]


def test_a_hard_limit_on_the_cost_of_a_policy(log):
    """The expected cost of a policy is a metric; its limit a guardrail."""
    cost = cael.Metric("latency", direction="min", limit=103.0)
    row = cael.evaluate(log, "choice:best", metrics=["clicked", cost], learn=False).scorecard["latency"]
    assert row.excess.low == pytest.approx(
        row.estimate.value - 103 - (row.excess.width / 2), abs=0.1 * row.excess.width
    )
    assert row.metric.bound == "at most 103"


def test_a_budget_decides(log):
    """The same policy and goal: only what it may spend differs."""
    spent = cael.evaluate(log, "choice:best", metrics=["clicked", "latency"], learn=False).scorecard["latency"].estimate
    half = spent.interval().width / 2
    choices = {
        at: cael.evaluate(
            log, "choice:best", metrics=["clicked", f"latency:min:limit={spent.value + at * half:.6f}"], learn=False
        ).decision.choice
        for at in (-4, 0, 4)
    }
    assert choices == {-4: "keep", 0: "test", 4: "ship"}


@pytest.mark.parametrize(
    ("primary", "guardrails", "refused", "choice"),
    [
        ("better", [], False, "ship"),
        ("better", ["within"], False, "ship"),
        ("better", ["within", "open"], False, "test"),
        ("better", ["beyond"], False, "keep"),
        ("worse", ["within"], False, "keep"),
        ("no difference shown", ["within"], False, "test"),
        ("better", ["within"], True, "test"),
        ("worse", ["beyond"], True, "test"),
    ],
)
def test_the_rule(primary, guardrails, refused, choice):
    assert choice_of(primary, guardrails, refused=refused) == choice


def test_the_rows_that_would_settle_it_do(path):
    """As many rows as the decision names, of the same kind, settle it in most logs."""
    log = cael.read(pa.table(columns(250, 3)), ROLES, logging="dense:mu_*")
    first = cael.evaluate(log, "choice:middle", metrics=["spend", "latency:min:+4%"], learn=False).decision
    assert first.choice == "test"
    assert first.rows > len(log)
    assert f"{float(f'{first.rows:.2g}'):,.0f} rows" in " ".join(first.reasons)


def test_segments_of_several_metrics_hold_together(log):
    labels = columns(3000, 1)["country"]
    both = cael.segments(log, "choice:best", labels, metrics=["clicked", "latency:min"], learn=False)
    alone = cael.segments(log, "choice:best", labels, learn=False)
    assert [other.metric for other in both.others] == ["latency"]
    assert both.factor == both.others[0].factor > alone.factor
    assert both["a"].lift == pytest.approx(alone["a"].lift)
    assert len(both.sheets()) == 2


def test_all_forms_show_the_same(log, card):
    result = cael.evaluate(log, "choice:best", metrics=METRICS, learn=False)
    parts = json.loads(result.to_json())
    assert [row["name"] for row in parts["scorecard"]["metrics"]] == ["clicked", "spend", "spend/clicked", "latency"]
    assert parts["decision"]["choice"] == result.decision.choice == result.scorecard.decision.choice
    assert parts["lift"]["interval"]["low"] == parts["scorecard"]["metrics"][0]["interval"]["low"]
    for text in (result.markdown(), result._repr_html_(), cael.report.render(result)):
        assert f"decision: {result.decision.choice}" in text
        assert "spend/clicked" in text
    assert "clicked" in result.sheet().title


BAD = [
    ({"metrics": ["clicked", "nothing"]}, "'nothing' is not a metric of this log; there are: clicked"),
    ({"metrics": ["clicked", "clicked"]}, "named twice"),
    ({"metrics": ["latency:min:+2%"]}, "only guardrails"),
    ({"metrics": ["clicked", "latency:min:-2%"]}, r"expected \+2%, got '-2%'"),
    ({"metrics": ["clicked", "clicked:+2%"]}, "expected -2%"),
    ({"metrics": ["clicked", "latency:low"]}, "'low' is not understood"),
    ({"metrics": ["clicked", "latency:min:max"]}, "says its direction twice"),
    ({"metrics": ["clicked", "spend:cap=-5"]}, "cap -5 of metric 'spend' lies at or below all of its 3,000 values"),
    ({"metrics": ["spend:cap=3", "spend/clicked:cap=4"]}, "two caps"),
    ({"metrics": ["spend/spend"]}, "always 1"),
    ({"metrics": ["spend/"]}, "expected COLUMN"),
    ({"metrics": "clicked"}, "must be a list"),
    ({"metrics": [3]}, "metrics are texts"),
]


@pytest.mark.parametrize(("question", "message"), BAD)
def test_bad_questions(log, question, message):
    with pytest.raises(cael.InputError, match=message):
        cael.evaluate(log, "choice:best", learn=False, **question)


def test_a_denominator_that_may_be_0():
    data = columns(400, 2)
    log = cael.LoggedData(
        None, data["action"], data["spend"], data["propensity"], metrics={"none": data["x_0"] * 1e-3}, n_actions=K
    )
    with pytest.raises(cael.SupportError, match="which may be 0"):
        cael.evaluate(log, [0, 0, 0, 1.0], metrics=["reward/none"], learn=False)


@pytest.mark.filterwarnings("ignore:3 of 300 rows")
@pytest.mark.parametrize("read", [cael.read, cael.scan])
def test_missing_values_of_a_metric(tmp_path, read):
    data = columns(300, 2)
    spend = data["spend"].astype(object)
    spend[[3, 5, 8]] = None
    where = tmp_path / "holes.parquet"
    pq.write_table(pa.table({**data, "spend": pa.array(spend.tolist(), pa.float64())}), where)
    with pytest.raises(cael.LogError, match="3 of 300 rows are invalid: column 'spend'"):
        cael.evaluate(read(where, ROLES), "choice:best", metrics=["clicked", "spend"], learn=False)
    kept = read(where, ROLES, drop_invalid=True)
    assert cael.evaluate(kept, "choice:best", metrics=["clicked", "spend"], learn=False).best.n == 297


def test_roles_of_metrics(path):
    with pytest.raises(cael.InputError, match="is the action and cannot be a metric"):
        cael.read(path, {"reward": "clicked", "metric": ["action"]})
    with pytest.raises(cael.InputError, match="is the metric and cannot be a context"):
        cael.read(path, {"reward": "clicked", "metric": ["spend"], "contexts": ["spend"]})
    with pytest.raises(cael.InputError, match="named twice"):
        cael.read(path, {"reward": "clicked", "metric": ["spend", "spend"]})


def run(capsys, *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--no-learn", "--logging", "dense:mu_*"])
    return int(stop.value.code or 0), capsys.readouterr().out


def test_exit_codes(capsys, path):
    words = ("evaluate", str(path), "--metric", "clicked", "--metric", "spend/clicked", "--policy")
    assert run(capsys, *words, "choice:best", "--ship")[0] == 0
    assert run(capsys, *words, "choice:best", "--guardrail", "latency:min:+0.1%")[0] == 0
    assert run(capsys, *words, "choice:best", "--guardrail", "latency:min:+0.1%", "--gate")[0] == 4
    code, text = run(capsys, *words, "logging", "--ship")
    assert code == 5
    assert "decision: test" in text
    assert run(capsys, *words, "logging", "--gate")[0] == 0


def test_the_command_takes_a_baseline(capsys, path):
    code, text = run(
        capsys, "compare", str(path), "--reward", "clicked", "--policy", "b=choice:best", "--baseline",
        "m=choice:middle", "--guardrail", "latency:min:+4%", "--format", "json",
    )  # fmt: skip
    document = json.loads(text)
    assert (code, document["baseline_name"], document["metric"]) == (0, "m", "clicked")
    assert [row["name"] for row in document["scorecard"]["metrics"]] == ["clicked", "latency"]


def test_ratio_of_refuses_what_keeps_no_sums(log):
    estimate = replace(cael.SNIPS().estimate(log, "choice:best"), sums=None)
    with pytest.raises(cael.InputError, match="does not keep the sums"):
        ratio_of(estimate, estimate, "a/b")
