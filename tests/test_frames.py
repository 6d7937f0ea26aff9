"""Results as data frames and on Matplotlib's axes, and in narrow terminals."""

import io

import pandas as pd
import polars as pl
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import cael
from cael.results import frames
from cael.results.sheet import Column, Sheet, number, signed


@pytest.fixture(scope="module")
def example():
    return cael.testing.example()


@pytest.fixture(scope="module")
def evaluation(example):
    return cael.evaluate(*example, learn=False)


@pytest.fixture(scope="module")
def comparison(example):
    log, policy = example
    return cael.compare(log, {"new": policy, "even": cael.Uniform(log.n_actions)}, learn=False)


@pytest.mark.parametrize(
    ("library", "kind"), [(None, pd.DataFrame), ("pandas", pd.DataFrame), ("polars", pl.DataFrame)]
)
def test_a_frame_has_what_is_printed_in_full_precision(evaluation, library, kind):
    frame = evaluation.to_frame(library)
    assert isinstance(frame, kind)
    assert list(frame["estimator"]) == [estimate.estimator for estimate in evaluation]
    assert list(frame["value"]) == [float(estimate) for estimate in evaluation]
    ends = [tuple(estimate.interval()) for estimate in evaluation]
    assert list(zip(frame["interval_low"], frame["interval_high"], strict=True)) == ends


def test_every_result_has_a_frame(example, evaluation, comparison):
    log, policy = example
    assert list(comparison.to_frame()["lift"]) == [row.lift.value for row in comparison]
    parts = cael.segments(log, policy, log.actions % 2, learn=False)
    assert list(parts.to_frame()["lift"]) == [row.lift for row in parts]
    assert "check" in cael.audit(log).to_frame()
    assert "exploration" in cael.plan(log, policy, lift=0.1).to_frame()
    assert len(evaluation.to_frame()) == len(evaluation.estimates)


def test_a_pair_of_numbers_is_two_columns():
    sheet = Sheet("", (Column("name"), Column("covers", "percent and error")), (("a", (0.9, 0.01)), ("b", None)))
    assert frames.columns_of(sheet) == {"name": ["a", "b"], "covers": [0.9, None], "covers_error": [0.01, None]}


def test_without_pandas_and_polars_the_error_says_what_to_install(evaluation, monkeypatch):
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    with pytest.raises(cael.NeedsError, match="pip install pandas"):
        evaluation.to_frame()
    with pytest.raises(cael.InputError, match="'pandas', 'polars'"):
        evaluation.to_frame("dask")


def test_a_plot_shows_every_interval_and_its_point(evaluation, comparison):
    for result, name, at in ((evaluation, "value", evaluation.baseline.value), (comparison, "lift", 0.0)):
        axes = Figure().subplots()
        assert result.plot(axes) is axes
        frame, lines = result.to_frame(), axes.get_lines()
        intervals, points = lines[:-1:2], lines[1:-1:2]
        assert [tuple(line.get_xdata()) for line in intervals] == list(
            zip(frame["interval_low"], frame["interval_high"], strict=True)
        )
        assert [point.get_xdata()[0] for point in points] == list(frame[name])
        assert list(lines[-1].get_xdata()) == [at, at]
        assert [text.get_text() for text in axes.get_yticklabels()] == list(frame.iloc[:, 0])


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_numbers_are_never_cut(evaluation, width):
    out = io.StringIO()
    Console(file=out, width=width).print(evaluation.sheet())
    printed = out.getvalue()
    for estimate in evaluation:
        low, high = estimate.interval()
        assert f"[{number(low)}, {number(high)}]" in printed
        assert number(estimate.value) in printed
    assert ("●" in printed) == (width > 60)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_numbers_of_a_comparison_are_never_cut(example, width):
    log, policy = example
    compared = cael.compare(log, {"a policy with a long name": policy, "b": cael.Uniform(log.n_actions)}, cael.SNIPS())
    out = io.StringIO()
    Console(file=out, width=width).print(compared.sheet())
    printed = out.getvalue()
    for row in compared:
        assert f"[{signed(row.interval.low)}, {signed(row.interval.high)}]" in printed
        assert f"{signed(row.lift.value)} " in printed
    assert ("…" in printed) == (width < 100)
    assert ("verdict" in printed) == (width >= 80)
