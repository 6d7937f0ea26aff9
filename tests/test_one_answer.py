"""One answer: the terminal, JSON, Markdown, a notebook and the report show the same numbers."""

import dataclasses
import html
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console

import cael
from cael.inference.reach import ASSUMPTION, allowance
from cael.report import view
from cael.results.sheet import Sheet, number, signed

ROOT = Path(__file__).parents[1]
NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
PAIR = re.compile(rf"\[({NUMBER}), ({NUMBER})\]|({NUMBER}) to ({NUMBER})")
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NO_SHRINKING = settings(QUICK, max_examples=1, phases=[Phase.generate], report_multiple_bugs=False)


@st.composite
def questions(draw):
    """A small log, two policies and a level; and an estimator, with a bound on its bias as a rule."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, n = draw(st.integers(2, 4)), draw(st.integers(80, 160))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e6]))
    logging, *targets = rng.dirichlet(np.full(k, 3.0), 3) * 0.9 + 0.1 / k
    actions = rng.choice(k, n, p=logging)
    rewards = scale * (rng.standard_normal(n) + 2 * rng.random(k)[actions])
    log = cael.LoggedData(rng.standard_normal((n, 2)), actions, rewards, logging=cael.Tabular(logging))
    policies = {name: cael.Tabular(target) for name, target in zip(("one", "two"), targets, strict=True)}
    return log, policies, draw(st.sampled_from([0.8, 0.9, 0.95])), draw(st.sampled_from([Bounded(), cael.SNDR()]))


@dataclasses.dataclass(frozen=True)
class Bounded(cael.SNIPS):
    """SNIPS with a bound on its bias, as CAEL has one."""

    name = "Bounded"

    def solve(self, problem):
        found = cael.SNIPS().solve(problem)
        told = dataclasses.replace(found.diagnostics, bias_bound=2 * found.stderr, stderr_floor=1.5 * found.stderr)
        return dataclasses.replace(found, estimator="Bounded", diagnostics=told)


def pairs(text):
    """Every interval that is shown, as it is written."""
    return [tuple(end for end in match if end) for match in PAIR.findall(text)]


def shown(result, **report):
    """The printed forms of a result, as text without marks."""
    out = io.StringIO()
    Console(file=out, width=300).print(result)
    page = re.sub(r"<(svg|style|figure).*?</\1>", " ", cael.report.render(**report), flags=re.DOTALL)
    return {
        "terminal": out.getvalue(),
        "Markdown": re.sub(r"\\(.)", r"\1", result.sheet().markdown()),
        "notebook": plain(result._repr_html_()),
        "report": plain(page),
    }


def plain(page):
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def line_of(text, name):
    """What is written in the row of a table that begins with a name."""
    start = [match.end() for match in re.finditer(rf"(?<!\S){re.escape(name)}[\s|]+(?=[+-]?\d)", text)][-1]
    return re.match(r"[^\]]*\][^\[]*", text[start:])[0]


def ends(interval, write=number):
    return write(interval["low"]), write(interval["high"])


@QUICK
@given(questions())
def test_an_evaluation(question):
    log, policies, level, estimator = question
    found = cael.evaluate(log, policies["one"], estimator, level=level, learn=False, headline=estimator)
    told = json.loads(found.to_json())
    for form, text in shown(found, evaluation=found).items():
        for each in told["estimates"]:
            row = line_of(text, each["estimator"])
            assert row.startswith(number(each["value"])), form
            assert pairs(row)[0] == ends(each["interval"]), form
        lift = told["lift"]
        assert ends(lift["interval"], signed) in pairs(text), form
        assert signed(lift["value"]) in text, form
        refused = form == "report" and found.verdict.level == "refuse"
        assert ("not to be relied on" if refused else told["direction"]) in text, form
        allowed = {ends(each["interval"]) for each in told["estimates"]} | {ends(lift["interval"], signed)}
        normal = {ends(each["interval_without_bias"]) for each in told["estimates"] if each["interval_without_bias"]}
        without = set(re.findall(rf"without it \[({NUMBER}), ({NUMBER})\]", text))
        assert without == normal, form
        assert set(pairs(text)) <= allowed | normal, form


@QUICK
@given(questions())
def test_a_comparison_of_one_policy_says_what_an_evaluation_says(question):
    log, policies, level, estimator = question
    evaluation = cael.evaluate(log, policies["one"], estimator, level=level, learn=False, headline=estimator)
    row = cael.compare(log, {"one": policies["one"]}, estimator, level=level)["one"]
    assert row.lift.value == pytest.approx(evaluation.lift.value, rel=1e-9)
    shown = evaluation.lift_interval
    assert (row.interval.low, row.interval.high) == pytest.approx((shown.low, shown.high), rel=1e-9)
    assert row.direction == evaluation.direction


@QUICK
@given(questions())
def test_a_comparison(question):
    log, policies, level, estimator = question
    found = cael.compare(log, policies, estimator, level=level)
    told = json.loads(json.dumps(found.to_dict()))
    nested = [told["baseline"], *(each["estimate"] for each in told["policies"])]
    assert {each["interval"]["level"] for each in nested} == {level}
    for form, text in shown(found, comparison=found).items():
        for each in told["policies"]:
            row = line_of(text, each["name"])
            assert row.split()[0] == number(each["estimate"]["value"]), form
            assert signed(each["lift"]) in row, form
            assert pairs(row)[0] == ends(each["interval"], signed), form
            assert each["direction"] in row, form
        assert set(pairs(text)) == {ends(each["interval"], signed) for each in told["policies"]}, form


@QUICK
@given(questions(), st.booleans())
def test_segments(question, by_time):
    log, policies, level, estimator = question
    labels = None if by_time else np.arange(len(log)) % 3
    kind = {"windows": 3} if by_time else {"labels": labels}
    found = cael.segments(log, policies["one"], estimator=estimator, level=level, **kind)
    evaluation = cael.evaluate(log, policies["one"], level=level, learn=False)
    told = json.loads(json.dumps(found.to_dict()))
    for form, text in shown(found, evaluation=evaluation, segments=found).items():
        for each in told["rows"]:
            wanted = [ends(each[name], signed) for name in ("interval", "shrunk_interval")]
            at = [pairs(text).index(pair) for pair in wanted]
            assert at[1] == at[0] + 1, form
            assert signed(each["lift"]) in text, form
            assert number(each["value"]) in text, form


@pytest.mark.parametrize("form", ["terminal", "Markdown", "notebook", "report"])
def test_a_renderer_with_another_interval_is_seen(monkeypatch, form):
    """The negative control: one form that shows another interval fails the property."""
    where = view if form == "report" else Sheet
    name = {"terminal": "__rich_console__", "Markdown": "markdown", "notebook": "html", "report": "grid"}[form]
    original = getattr(where, name)
    monkeypatch.setattr(where, name, lambda sheet, *given: original(wider(sheet), *given))
    one = (questions(),)
    for test, arguments in (
        (test_an_evaluation, one),
        (test_a_comparison, one),
        (test_segments, (*one, st.booleans())),
    ):
        with pytest.raises((AssertionError, ValueError)):
            NO_SHRINKING(given(*arguments)(test.hypothesis.inner_test))()


def wider(sheet):
    """A sheet with other intervals."""
    at = [column.name for column in sheet.columns].index("interval")
    rows = [
        (*r[:at], dataclasses.replace(r[at], high=r[at].high + 0.01 * r[at].width), *r[at + 1 :]) for r in sheet.rows
    ]
    return dataclasses.replace(sheet, rows=tuple(rows))


def test_what_an_interval_that_allows_for_a_bias_assumes_is_said_in_the_same_words_everywhere():
    log, policy = cael.testing.example()
    found = cael.evaluate(log, policy, Bounded(), learn=False)
    assert any(f"{allowance(found['Bounded'].diagnostics.bias_bound)}." in doubt for doubt in found.doubts())
    for page in ("docs/guide/intervals.md", "docs/cael.md", "src/cael/inference/estimate.py"):
        assert ASSUMPTION in " ".join((ROOT / page).read_text("utf-8").split()).replace(", and assumes", "; it assumes")
