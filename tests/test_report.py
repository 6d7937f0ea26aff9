"""The report without a browser: self-contained, small, the same bytes twice, strings escaped."""

import base64
import functools
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import cael
from cael import InputError
from cael.report.drawing import tidy
from cael.report.view import short
from cael.results.calibration import Calibration, CalibrationRow

WORLD = cael.worlds.PaperWorld(n_actions=12, gamma=0.3)
LOG = WORLD.sample(1000, seed=0)
LIMIT = 300 * 1024


@functools.cache
def evaluation():
    """What a user gets."""
    return cael.evaluate(LOG, WORLD.target)


class Tags(HTMLParser):
    """Whether every element that is opened is closed, and what their attributes are."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "path", "use", "rect", "hr"})

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.attributes += attributes
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.attributes += attributes

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(page):
    found = Tags()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


def test_the_page_is_well_formed_and_asks_for_nothing():
    page = cael.report.render(evaluation())
    found = parsed(page)
    assert evaluation().headline == "Auto"
    for name, value in found.attributes:
        if name in ("href", "src", "xlink:href"):
            assert value.startswith(("#", "data:")), f"{name}={value}"
        assert not name.startswith("on")
    assert not re.search(r"https?://|//[a-z]|@import|url\((?!#)", page)
    assert page.count("<script") == 1
    script = page[page.index("<script>") + len("<script>") : page.index("</script>")]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in page.replace("&#43;", "+")
    text = " ".join(found.text)
    assert f"Verdict: {evaluation().verdict.level}" in text
    assert evaluation().fingerprint in text
    for each in evaluation():
        assert each.estimator in text


@pytest.mark.long
def test_the_same_results_give_the_same_bytes():
    assert cael.report.render(evaluation()) == cael.report.render(evaluation())
    code = (
        "import cael, hashlib; w = cael.worlds.PaperWorld(n_actions=12, gamma=0.3);"
        "page = cael.report.render(cael.evaluate(w.sample(1000, seed=0), w.target), "
        "segments=cael.segments(w.sample(1000, seed=0), w.target, windows=4));"
        "print(hashlib.sha256(page.encode()).hexdigest())"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout != ""


def test_the_size_does_not_follow_the_rows():
    world = cael.worlds.PaperWorld(n_actions=60, gamma=0.1)
    log = world.sample(20_000, seed=0)
    labels = np.array([f"segment {i} " + "x" * 500 for i in range(400)])[np.arange(20_000) % 400]
    many = {f"policy {i} " + "y" * 500: cael.EpsilonGreedy(world.q, i / 100) for i in range(40)}
    page = cael.report.render(
        cael.evaluate(log, world.target, cael.panel("all"), learn=False),
        comparison=cael.compare(log, many, cael.SNIPS()),
        segments=cael.segments(log, world.target, labels, learn=False),
        windows=cael.segments(log, world.target, windows=100, learn=False),
        audit=cael.audit(log),
        settings={f"setting {i}": "z" * 10_000 for i in range(20)},
    )
    assert len(page.encode()) < LIMIT
    assert "370 segments between these are not shown" in page
    assert "70 time periods between these are not shown" in page
    parsed(page)


def test_every_segment_column_is_shown_and_none_makes_the_page_large():
    world = cael.worlds.PaperWorld(n_actions=60, gamma=0.1)
    log = world.sample(4_000, seed=0)
    labels = np.array([f"segment {i} " + "&" * 500 for i in range(200)])[np.arange(4_000) % 200]
    by_label = cael.segments(log, world.target, labels, learn=False)
    windows = cael.segments(log, world.target, windows=100, learn=False)
    result = cael.evaluate(log, world.target, cael.panel("all"), learn=False)
    many = {f"policy {i} " + "y" * 500: cael.EpsilonGreedy(world.q, i / 100) for i in range(20)}
    comparison, audit = cael.compare(log, many, cael.SNIPS()), cael.audit(log)
    sizes = []
    for count in (1, 3, 100):
        named = {f"column {at} " + "&" * 100: by_label for at in range(count)}
        page = cael.report.render(result, comparison=comparison, audit=audit, segments=named, windows=windows)
        text = " ".join(parsed(page).text)
        assert all(f"By column {at} " in text for at in range(min(count, 23)))
        assert "By time period" in text
        sizes.append(len(page.encode()))
    assert "77 more segment columns are not shown" in text
    assert max(sizes) < LIMIT, sizes


def test_segments_at_both_ends_of_a_long_list_are_shown():
    labels = np.array([f"group {i:02d}" for i in range(40)])[np.arange(len(LOG)) % 40]
    found = cael.segments(LOG, WORLD.target, labels)
    windows = cael.segments(LOG, WORLD.target, windows=4, learn=False)
    text = " ".join(parsed(cael.report.render(evaluation(), segments={"group": found}, windows=windows)).text)
    shown = [row.label in text for row in found]
    assert shown == [True] * 15 + [False] * 10 + [True] * 15
    assert "10 segments between these are not shown" in text
    assert "Lifts of 14 of 40 segments" in text


def test_strings_are_escaped():
    nasty = "<script>alert('x')</script>"
    labels = np.where(np.arange(1000) % 2, nasty, "a & b")
    page = cael.report.render(
        evaluation(),
        comparison=cael.compare(LOG, {nasty: WORLD.target}),
        segments=cael.segments(LOG, WORLD.target, labels, learn=False),
        title=nasty,
        settings={nasty: nasty},
    )
    assert page.count("<script") == 1  # the one that sorts tables
    assert "&lt;script&gt;" in page
    assert nasty in " ".join(parsed(page).text)


def test_a_comparison_alone_makes_a_report():
    policies = {"new": WORLD.target, "uniform": cael.Uniform(12)}
    page = cael.report.render(comparison=cael.compare(LOG, policies, learn=False))
    assert "the policy new would have earned" in page
    assert "Verdict: ok" in page
    assert "Weights and support" not in page
    with pytest.raises(InputError, match="needs an evaluation or a comparison"):
        cael.report.render()


def test_calibration_can_only_make_the_verdict_worse():
    bad = cael.calibrate(LOG, WORLD.target, [cael.DM(), cael.LoggedMean()], repeats=5)
    mean = cael.evaluate(LOG, WORLD.target, headline="LoggedMean", learn=False)
    assert mean.verdict.level != "refuse" or "refuse" in cael.report.render(mean)
    assert "Verdict: refuse" in cael.report.render(mean, calibration=bad)
    good = cael.calibrate(LOG, WORLD.target, repeats=5, seed=1)
    careful = cael.evaluate(LOG, WORLD.target, learn=False, thresholds=cael.Thresholds(effective_rows=(1e6, 0)))
    assert careful.verdict.level == "caution"
    assert "Verdict: caution" in cael.report.render(careful, calibration=good)
    plain = cael.evaluate(LOG, WORLD.target, learn=False)
    assert "Verdict: ok" in cael.report.render(plain, calibration=good)


@pytest.mark.parametrize(("coverage", "level"), [(0.94, "ok"), (0.82, "caution"), (0.5, "refuse")])
def test_a_calibration_is_one_more_check_of_the_page(coverage, level):
    row = CalibrationRow("SNDR", 0.1, 0.0, coverage, 0.02, coverage, "target", 0.4, 0)
    found = Calibration((row,), ("additive", "target"), 20, 1000, 0.95, True)
    plain = cael.evaluate(LOG, WORLD.target, learn=False)
    assert plain.verdict.level == "ok"
    assert f"Verdict: {level}" in cael.report.render(plain, calibration=found)


def test_a_log_without_weights_has_a_report_too():
    bare = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, n_actions=12)
    page = cael.report.render(cael.evaluate(bare, WORLD.target))
    assert "Verdict: refuse" in page
    assert "not computed" in page


def test_saving(tmp_path):
    where = cael.report.save(tmp_path / "report.html", evaluation(), title="Mine")
    assert where.read_text(encoding="utf-8").count("<h1>Mine</h1>") == 1
    with pytest.raises(InputError, match="could not be written"):
        cael.report.save(tmp_path / "nowhere" / "report.html", evaluation())


def test_a_notebook_shows_the_same_page():
    import html

    shown = cael.report.show(evaluation(), height=400)._repr_html_()
    inside = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', shown)[1]
    assert html.unescape(inside) == cael.report.render(evaluation())
    with pytest.raises(InputError, match="height"):
        cael.report.show(evaluation(), height=1)


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_a_missing_extra_is_named(monkeypatch, missing):
    for name in [each for each in sys.modules if each.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=r"pip install 'cael\[report\]'"):
        cael.report.render(evaluation())


def test_drawing_changes_no_setting_of_matplotlib():
    import matplotlib

    before = dict(matplotlib.rcParams)
    cael.report.render(evaluation())
    assert dict(matplotlib.rcParams) == before


def test_pictures_take_their_colours_from_the_page():
    page = cael.report.render(evaluation())
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert pictures
    for each in pictures:
        assert "var(--" in each
        assert not re.search(r"(?:fill|stroke): ?#(?!ffffff)", each)
    assert "var(--ink)" in tidy('<svg width="1" height="1" viewBox="0"><text style="fill: #010101"/></svg>', "x")


def test_long_strings_are_cut():
    assert short("x" * 1000) == "x" * 299 + "…"
    assert short("short") == "short"


def test_the_page_of_a_learned_policy_has_its_decision():
    """The certificate alone can say ship where the learner keeps the logging policy: the page has one decision."""
    import dataclasses

    learned = cael.learn(LOG, candidates=["best_arm"])
    for decision, reasons in (("keep", ("No candidate showed a lift.",)), ("ship", ())):
        changed = dataclasses.replace(learned, decision=decision, reasons=reasons)
        page = cael.report.render(changed.evaluation, learned=changed)
        assert page.count("Decision: ") == 1
        assert f"Decision: {decision}</span> {reasons[0] if reasons else 'Ship it: on '}" in page


def test_the_page_says_whose_propensities_it_assumes():
    bare = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, n_actions=12)
    logging = cael.estimate_logging(bare)
    guessed = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, logging=logging, n_actions=12)
    estimated = cael.evaluate(guessed, WORLD.target, learn=False)
    assert "The model of the logging policy is right" in cael.report.render(estimated)
    assert "The logged propensities are right" not in cael.report.render(estimated)
    assert "The logged propensities are right" in cael.report.render(evaluation())
    assert "The reward model is right" in cael.report.render(cael.evaluate(bare, WORLD.target))
