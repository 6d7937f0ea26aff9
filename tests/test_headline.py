"""The headline: one sentence, its numbers against oracles, and the same in every form."""

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import cael
from cael.inference.intervals import quantile
from cael.inference.lift import moved
from cael.inference.shares import chance_positive, relative_interval
from cael.judging.remedies import ADVICE, advice_on
from cael.judging.verdict import Check
from cael.results.headline import alike, percents, places_for, plain
from cael.results.scope import Scope

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def clicks(n=4000, seed=0, rates=(0.02, 0.06), start="2026-05-01"):
    """A log of an even choice between two banners over two weeks, by time."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 2, n)
    rewards = (rng.random(n) < np.array(rates)[actions]).astype(float)
    times = np.datetime64(start) + np.arange(n) * np.timedelta64(14 * 86400 - 60, "s") // n
    return cael.LoggedData(
        rng.standard_normal((n, 1)), actions, rewards, logging=np.full(2, 0.5), timestamps=times.astype("M8[s]")
    )  # fmt: skip


@pytest.fixture(scope="module")
def evaluation():
    return cael.evaluate(clicks(), [0.0, 1.0], learn=False)


def test_the_sentence_has_policy_period_unit_lift_and_interval(evaluation):
    answer = evaluation.answer
    words = answer.sentence
    assert words.startswith("From 1 to 14 May 2026, the new policy would have earned ")
    value, base = answer.values
    assert f"earned a total reward of {value} per 100 decisions instead of {base} under the logging policy" in words
    assert float(value) == pytest.approx(100 * evaluation.best.value, abs=0.06)
    assert words.endswith(f"{answer.lift_text}.")


def test_the_same_answer_in_every_form(evaluation):
    out = io.StringIO()
    Console(file=out, width=1000).print(evaluation)
    answer = evaluation.answer
    page = cael.report.render(evaluation)
    document = json.loads(evaluation.to_json())["answer"]
    assert document["sentence"] == answer.sentence
    assert out.getvalue().startswith(answer.sentence)
    for text in (out.getvalue(), evaluation._repr_html_(), page):
        assert answer.sentence in text
        assert answer.chance_text in text
        assert answer.surer[0] in text
    assert answer.sentence.split("+")[0] in evaluation.markdown().replace("\\", "")
    assert document["total"]["value"] == pytest.approx(4000 * document["lift"])


def test_a_comparison_says_of_its_best_policy_what_an_evaluation_says(evaluation):
    both = cael.compare(clicks(), {"second": [0.0, 1.0], "first": [1.0, 0.0]}, cael.SNDR())
    answer = both.answer
    assert answer.policy == "second"
    assert both.answer_on("first").sentence.count("would have earned") == 1
    alone = cael.compare(clicks(), {"second": [0.0, 1.0]}, cael.SNDR()).answer
    assert alone.lift_text == evaluation.answer.lift_text
    assert alone.chance == pytest.approx(evaluation.answer.chance, abs=1e-6)


def fieller(lift, base, factor):
    """The textbook formula, from the means and covariances of the rows."""
    n = lift.n
    z, b = lift.contributions, base.contributions
    v11, v22, v12 = (np.cov(z, b, ddof=1)[i, j] / n for i, j in ((0, 0), (1, 1), (0, 1)))
    a2, a1, a0 = (
        base.value**2 - factor**2 * v22, -2 * (lift.value * base.value - factor**2 * v12),
        lift.value**2 - factor**2 * v11,
    )  # fmt: skip
    root = math.sqrt(a1**2 - 4 * a2 * a0)
    return (-a1 - root) / 2 / a2, (-a1 + root) / 2 / a2


@QUICK
@given(st.integers(0, 10**6), st.sampled_from([0.8, 0.95]), st.sampled_from([5.0, 20.0]))
def test_the_relative_interval_is_fiellers(seed, level, mean):
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 2, 300)
    log = cael.LoggedData(None, actions, mean + actions + rng.standard_normal(300), propensities=np.full(300, 0.5))
    panel = cael.evaluate(log, [0.1, 0.9], learn=False)
    base, lift = panel.baseline, panel["IPS"] - panel.baseline
    lift = replace(lift, diagnostics=replace(lift.diagnostics, stderr_floor=None, proportion=None, bias_bound=None))
    found = relative_interval(lift, base, quantile(level), level)
    assert (found.low, found.high) == pytest.approx(fieller(lift, base, quantile(level)), rel=1e-6, abs=1e-9)


@QUICK
@given(st.integers(0, 10**6), st.sampled_from([(0.05, 0.05), (0.05, 0.12), (0.3, 0.25)]), st.sampled_from([0.8, 0.95]))
def test_relative_interval_chance_and_direction_agree(seed, rates, level):
    """The relative interval leaves 0 out exactly where that of the lift does; then the chance is beyond its level."""
    found = cael.evaluate(clicks(1500, seed, rates), [0.0, 1.0], learn=False, level=level)
    answer = found.answer
    low, high = answer.relative_interval
    assert low < answer.relative < high
    assert (low > 0, high < 0) == (answer.interval.low > 0, answer.interval.high < 0)
    edge = 0.5 + level / 2
    assert (answer.chance > edge) == (found.direction == "better") or answer.chance == pytest.approx(edge, abs=1e-3)
    lower = answer.chance < 1 - edge
    assert lower == (found.direction == "worse") or answer.chance == pytest.approx(1 - edge, abs=1e-3)
    ends = moved(found.lift, -low * math.copysign(1, found.baseline.value), found.baseline)
    assert ends.value - ends.reach(answer.factor)[0] == pytest.approx(0, abs=1e-6)


def test_the_chance_is_the_normal_one_where_the_interval_is():
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    log = cael.LoggedData(None, rng.integers(0, 2, 400), rng.standard_normal(400) + 0.1, propensities=np.full(400, 0.5))
    mean = cael.LoggedMean().estimate(log, [0.5, 0.5])
    known = replace(mean, diagnostics=replace(mean.diagnostics, stderr_floor=None, proportion=None, bias_bound=None))
    assert known.method == "normal"
    assert chance_positive(known) == pytest.approx(norm.cdf(known.value / known.stderr), abs=1e-4)
    below = replace(known, value=-known.value, contributions=known.contributions - 2 * known.value)
    assert chance_positive(below) == pytest.approx(1 - chance_positive(known), abs=1e-6)


def test_the_chance_is_calibrated_under_no_lift():
    """Of logs without a difference, the chance is above 0.9 in about a tenth; the negative control shifts the truth."""

    def chances_of(rates, logs):
        found = [cael.evaluate(clicks(400, seed, rates), [0.0, 1.0], learn=False) for seed in range(logs)]
        return [each.answer.chance for each in found]

    chances, shifted = chances_of((0.3, 0.3), 120), chances_of((0.3, 0.45), 30)
    error = math.sqrt(0.1 * 0.9 / 120)
    assert abs(np.mean(np.array(chances) > 0.9) - 0.1) < 4 * error
    assert np.mean(np.array(shifted) > 0.9) > 0.1 + 4 * math.sqrt(0.1 * 0.9 / 30)


def test_less_is_better_turns_the_chance_and_the_words():
    log = clicks(rates=(0.1, 0.3))
    found = cael.evaluate(log, [0.0, 1.0], metrics=["reward:min"], learn=False)
    assert found.direction == "worse"
    assert found.answer.chance < 0.01
    assert "less is better" in found.answer.sentence
    assert found.decision.choice == "keep"


def test_no_difference_says_how_many_rows_would_settle_it():
    found = cael.evaluate(clicks(1000, 3, (0.05, 0.055)), [0.0, 1.0], learn=False)
    assert found.direction == "no difference shown"
    assert "This is no significant difference." in found.answer.sentence
    assert found.decision.choice == "test"
    if found.decision.rows is not None:
        assert "would settle it" in found.answer.surer[0]


def test_what_is_refused_is_not_called_better():
    world = cael.worlds.PaperWorld(n_actions=200, gamma=-0.3)
    found = cael.evaluate(world.sample(1000, seed=0), world.target, learn=False)
    answer = found.answer
    assert found.verdict.level == "refuse"
    assert "it cannot be said what" in answer.sentence
    assert answer.impact == ""
    assert answer.surer == advice_on(found.verdict.checks)
    assert answer.surer


def test_every_check_of_a_verdict_has_advice():
    judged = Path(cael.__file__).parent / "judging"
    sources = "".join((judged / name).read_text("utf-8") for name in ("checks.py", "judge.py"))
    names = set(re.findall(r'(?:Check|graded)\(\s*"([a-z_]+)"', sources))
    assert {"support", "mean_weight", "skewness"} <= names
    assert names - set(ADVICE) == set()


def test_advice_comes_worst_first_and_once():
    checks = [Check("drift", "warn", 1.0, ""), Check("support", "fail", 1.0, ""), Check("bias", "pass", 0.0, "")]
    assert advice_on(checks) == [ADVICE["support"], ADVICE["drift"]]
    assert advice_on([Check("bias", "warn", 4.0, ""), Check("unsmoothed_rows", "warn", 3.0, "")]) == [ADVICE["bias"]]


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        ("2026-05-01", "2026-05-14", "from 1 to 14 May 2026"),
        ("2026-04-28", "2026-05-14", "from 28 April to 14 May 2026"),
        ("2025-12-20", "2026-01-03", "from 20 December 2025 to 3 January 2026"),
        ("2025-05-20", "2026-05-03", "from 20 May 2025 to 3 May 2026"),
        ("2026-05-01", "2026-05-01", "on 1 May 2026"),
        (None, None, None),
    ],
)
def test_periods_in_words(first, last, words):
    assert Scope(10, first, last).period == words


def test_the_period_is_from_the_first_row_to_the_last():
    for rows in (200, 4000):  # one stretch of rows, and many
        scope = cael.evaluate(clicks(rows, rates=(0.2, 0.4)), [0.0, 1.0], learn=False).answer.scope
        assert (scope.first, scope.last) == ("2026-05-01", "2026-05-14")
    log = clicks(4000, rates=(0.2, 0.4))
    times = log.timestamps.copy()
    times[-1] += np.timedelta64(5, "D")  # alone on its day
    late = cael.LoggedData(log.contexts, log.actions, log.rewards, logging=np.full(2, 0.5), timestamps=times)
    scope = cael.evaluate(late, [0.0, 1.0], learn=False).answer.scope
    assert (scope.first, scope.last) == ("2026-05-01", "2026-05-19")


def test_numbers_in_words():
    assert percents((1.48, 1.32, 1.61)) == ["+148%", "+132%", "+161%"]
    assert percents((0.041, 0.022, 0.06)) == ["+4.1%", "+2.2%", "+6.0%"]
    assert percents((0.05, 0.0004, 0.1))[1] != "+0%"  # what is not 0 does not look like 0
    assert alike((1146.63, 670.2, 1621.3)) == ["+1,147", "+670", "+1,621"]
    assert alike((123456.0, 100000.0, 150000.0)) == ["+123,000", "+100,000", "+150,000"]
    assert (places_for(1.7), places_for(0.24), places_for(30.0)) == (0, 1, 0)
    assert plain(1234567.891, 3) == "1,234,568"


def test_the_course_ends_at_the_total(evaluation):
    last = evaluation.course[-1]
    total = evaluation.answer.total
    assert (last.total, last.low, last.high) == pytest.approx(total, rel=1e-6)
    assert last.day == "2026-05-14"
    widths = [point.high - point.low for point in evaluation.course]
    assert widths == sorted(widths)
    for point in evaluation.course[5:]:  # noise grows with the root of the rows: they are alike over time
        share = (point.high - point.low) / (last.high - last.low)
        assert share == pytest.approx(math.sqrt(point.rows / last.rows), rel=0.15)
    halfway = evaluation.course[len(evaluation.course) // 2]
    rows = halfway.rows
    assert halfway.total == pytest.approx(evaluation.lift.contributions[:rows].sum(), rel=1e-6)


def test_a_stream_says_the_same(tmp_path, evaluation):
    import pyarrow as pa
    import pyarrow.parquet as pq

    log = clicks()
    table = {"x": log.contexts[:, 0], "action": log.actions, "reward": log.rewards, "propensity": log.propensities,
             "timestamp": log.timestamps}  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    policy = cael.Tabular([0.0, 1.0])
    memory = cael.evaluate(cael.read(tmp_path / "log.parquet"), policy, learn=False).answer
    stream = cael.evaluate(cael.scan(tmp_path / "log.parquet"), policy, learn=False).answer
    assert stream.sentence == memory.sentence
    assert (stream.scope, stream.surer) == (memory.scope, memory.surer)
    assert stream.chance == pytest.approx(memory.chance, abs=1e-6)
