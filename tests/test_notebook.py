"""Notebooks: every result has styled HTML, a picture, a plot and a data frame; long work says how far it is."""

import html
import logging
import re

import numpy as np
import pytest

import cael

RESULTS = (
    "estimate", "evaluation", "comparison", "segments", "plan", "calibration", "audit", "learned", "scorecard",
)  # fmt: skip
DRAWN = ("evaluation", "comparison", "segments", "learned", "scorecard")


@pytest.fixture(scope="module")
def results():
    world = cael.worlds.PaperWorld(n_actions=6, gamma=0.3)
    log = world.sample(600, seed=1)
    log = cael.LoggedData(
        log.contexts, log.actions, log.rewards, logging=log.logging, metrics={"cost": np.abs(log.rewards) + log.actions}
    )  # fmt: skip
    policy = world.target
    several = cael.evaluate(log, policy, metrics=["reward", "cost:min:+50%"], learn=False)
    return {
        "estimate": cael.SNDR().estimate(log, policy),
        "evaluation": cael.evaluate(log, policy, learn=False),
        "comparison": cael.compare(log, {"new": policy, "<b>": cael.Uniform(6)}, learn=False),
        "segments": cael.segments(log, policy, log.actions % 3, learn=False),
        "plan": cael.plan(log, policy),
        "calibration": cael.calibrate(log, policy, repeats=2),
        "audit": cael.audit(log),
        "learned": cael.learn(log, candidates=["linear"]),
        "scorecard": several.scorecard,
    }


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_html_a_plot_and_a_frame(results, name):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    result = results[name]
    page = result._repr_html_()
    assert "<table" in page
    assert page.count("<table") == page.count("</table>")
    assert "<script" not in page and "<b>" not in page
    frame = result.to_frame()
    assert len(frame) >= 1 and len(frame.columns) >= 2
    axes = plt.subplots()[1]
    assert result.plot(axes) is axes
    assert axes.lines or axes.collections or axes.containers
    plt.close("all")


@pytest.mark.parametrize("name", DRAWN)
def test_intervals_are_drawn_beside_their_numbers(results, name):
    page = results[name]._repr_html_()
    assert page.count("<circle") >= 1
    assert page.count("<circle") <= page.count("<tr")


def test_the_evaluation_begins_with_its_answer(results):
    found = results["evaluation"]
    page = found._repr_html_()
    assert page.index(found.answer.lift_text.split(" ")[0]) < page.index("<table")
    assert page.index(found.decision.note().marked[:10]) < page.index("<table")


def test_a_picture_shows_where_its_numbers_are(results):
    """The larger the lift, the further right its point; the negative control is the order of the rows reversed."""
    found = results["comparison"]
    spots = [float(spot) for spot in re.findall(r'<circle cx="([\d.]+)"', found.sheet().html())]
    lifts = [row.lift.value for row in found]
    assert np.argsort(spots).tolist() == np.argsort(lifts).tolist()
    assert np.argsort(spots[::-1]).tolist() != np.argsort(lifts).tolist()


def test_loggers_say_what_is_done_and_are_silent_unless_asked(caplog, capfd):
    log, policy = cael.testing.example()
    cael.evaluate(log, policy, learn=False)
    assert capfd.readouterr() == ("", "")
    with caplog.at_level(logging.INFO, logger="cael"):
        cael.evaluate(log, policy, learn=False)
    assert any(record.name.startswith("cael.") and "rows" in record.getMessage() for record in caplog.records)


def test_jupyter_gets_lines_of_progress(monkeypatch, capsys):
    from cael.common import progress as module

    monkeypatch.delenv("CAEL_QUIET", raising=False)
    clock = iter(range(0, 10_000, 6))
    monkeypatch.setattr(module, "in_jupyter", lambda: True)
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    with module.progress("training", 400) as advance:
        for _ in range(40):
            advance(10)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 3
    assert lines[0].startswith("training: ")
    assert all(line.endswith("%") for line in lines)


def test_an_answer_and_a_decision_show_themselves(results):
    answer = results["evaluation"].answer
    assert repr(answer) == f"Headline({answer.sentence})"
    page = html.unescape(answer._repr_html_())
    assert f">{answer.sentence}</p>" in page
    assert f"{answer.decision.reasons[0]}</p>" in html.unescape(answer.decision._repr_html_())
