"""The report in a real browser: nothing is fetched or fails, all can be seen, light and dark, small and wide."""

import base64
import io
import json

import pytest

import cael
from cael.results.sheet import number

pytestmark = pytest.mark.long
WIDTHS = (360, 390, 1280)
SCHEMES = ("light", "dark")


def opened(browser, page, scheme="light", width=1280, height=900):
    """The page, with the console's messages and the addresses that were asked for."""
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # what earlier pages left
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    browser.get(page.as_uri())
    told = [entry["message"] for entry in browser.get_log("browser")]
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return told, asked


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["ok", "refuse"])
def test_no_error_no_request_and_no_sideways_scrolling(browser, pages, name, scheme, width):
    told, asked = opened(browser, pages[name], scheme, width)
    assert told == []
    assert [url for url in asked if not url.startswith("data:")] == [pages[name].as_uri()]
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_verdict_and_every_estimator_can_be_seen(browser, pages, parts, scheme, width):
    opened(browser, pages["ok"], scheme, width)
    verdict = browser.find_element("css selector", "#verdict .level")
    assert verdict.is_displayed()
    assert verdict.text == "Verdict: ok"
    assert verdict.location["y"] < 450  # on the first screen
    cells = browser.find_elements("css selector", "#estimates tbody tr td:first-child")
    assert [cell.text for cell in cells] == [each.estimator for each in parts["evaluation"]]
    assert all(cell.is_displayed() for cell in cells)
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('#estimates figure:first-of-type svg')]"
        ".filter(s => s.getBoundingClientRect().width > 0).map(s => s.textContent)"
    )
    assert len(drawn) == 1  # the wide or the narrow picture, never both
    for each in parts["evaluation"]:
        if each.estimator != "LoggedMean":
            assert each.estimator in drawn[0]
    assert "logging policy" in drawn[0]


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_answers_the_first_five_questions(browser, pages, parts, width, height):
    """What is the answer, of what, how sure, what should we do, what would make it surer: without scrolling."""
    opened(browser, pages["ok"], width=width, height=height)
    answer = parts["evaluation"].answer
    shown = {
        ".answer": answer.sentence, ".decision": f"Decision: {answer.decision.choice}",
        "#verdict .level": "Verdict: ok", ".numbers": "Chance that it is better", ".surer": answer.surer[0],
    }  # fmt: skip
    for selector, words in shown.items():
        element = browser.find_element("css selector", selector)
        assert words in element.text
        assert element.location["y"] + element.size["height"] <= height, selector
    picture = browser.find_element("css selector", ".side svg")
    assert picture.location["y"] + picture.size["height"] <= height


GLYPHS = r"""
const canvas = document.createElement('canvas'); canvas.width = canvas.height = 40;
const pen = canvas.getContext('2d', {willReadFrequently: true});
pen.font = '24px ' + getComputedStyle(document.body).fontFamily;
const drawn = c => { pen.clearRect(0, 0, 40, 40); pen.fillText(c, 4, 30);
                     return pen.getImageData(0, 0, 40, 40).data.join(); };
const missing = drawn('\u{10FFFD}');
const seen = new Set(document.body.textContent + arguments[0]);
return [...seen].filter(c => c.trim() && drawn(c) === missing);
"""


def test_no_glyph_is_missing(browser, pages):
    opened(browser, pages["ok"])
    assert browser.execute_script(GLYPHS, "") == []
    assert browser.execute_script(GLYPHS, "\U0010fffc") == ["\U0010fffc"]  # the negative control


def test_checks_are_folded_where_all_passed_and_the_keyboard_opens_them(browser, pages):
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages["ok"])
    row = browser.find_element("css selector", "#checks li")
    assert not row.is_displayed()
    browser.find_element("css selector", "#checks summary").send_keys(Keys.ENTER)
    assert row.is_displayed()
    opened(browser, pages["refuse"])
    assert browser.find_element("css selector", "#checks li").is_displayed()


def test_a_refusal_comes_first_with_its_reasons(browser, pages):
    opened(browser, pages["refuse"])
    assert browser.find_element("css selector", "#verdict .level").text == "Verdict: refuse"
    reasons = browser.find_elements("css selector", "#verdict li")
    assert any("effective sample size" in reason.text for reason in reasons)
    first = browser.find_element("css selector", "#checks li")
    assert first.get_attribute("class") == "fail"
    assert "not to be relied on" in browser.find_element("css selector", ".numbers").text
    assert "it cannot be said what" in browser.find_element("css selector", ".answer").text
    assert "Chance" not in browser.find_element("css selector", ".numbers").text


@pytest.mark.parametrize("width", WIDTHS)
def test_dark_is_dark_and_light_is_light(browser, pages, width):
    from PIL import Image

    shades = {}
    for scheme in SCHEMES:
        opened(browser, pages["ok"], scheme, width)
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
        picture = Image.open(io.BytesIO(base64.b64decode(shot))).convert("L")
        shades[scheme] = sum(picture.resize((20, 20)).tobytes()) / 400
    assert shades["light"] > 200
    assert shades["dark"] < 60


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_stands_out_from_what_is_behind_it(browser, pages, scheme):
    """Contrast of at least 4.5 to 1 (WCAG AA) for text, its faint form and the colours of the verdicts."""
    opened(browser, pages["ok"], scheme)
    colours = browser.execute_script(
        "const s = getComputedStyle(document.documentElement);"
        "return Object.fromEntries(['ink','faint','paper','panel','good','warn','bad','good-soft','warn-soft',"
        "'bad-soft','main'].map(n => [n, s.getPropertyValue('--' + n).trim()]))"
    )

    def luminance(name):
        channels = [int(colours[name][i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a, b):
        high, low = sorted((luminance(a), luminance(b)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    pairs = [("ink", "paper"), ("faint", "paper"), ("faint", "panel"), ("main", "paper")]
    pairs += [(each, f"{each}-soft") for each in ("good", "warn", "bad")]
    pairs += [(each, "paper") for each in ("good", "bad")]
    for text, behind in pairs:
        assert contrast(text, behind) >= 4.5, f"{text} on {behind}"


def test_strings_of_the_data_are_text_and_nothing_else(browser, pages, parts):
    opened(browser, pages["ok"])
    assert browser.title == f"{parts['title']}: ok"
    assert browser.find_elements("css selector", "img, iframe, object, embed, link[rel=stylesheet]") == []
    assert len(browser.find_elements("css selector", "script")) == 1
    labels = [cell.text for cell in browser.find_elements("css selector", "#segments tbody td:first-child")]
    assert any(label.startswith("</title><script>") for label in labels)


def test_paper_is_white_even_where_the_screen_is_dark(browser, pages):
    opened(browser, pages["ok"], "dark")
    colour = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(colour) == "rgb(20, 23, 27)"
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    assert browser.execute_script(colour) == "rgb(255, 255, 255)"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def column(browser, section, number):
    cells = browser.find_elements("css selector", f"{section} tbody td:nth-child({number})")
    return [cell.text for cell in cells]


def test_tables_sort_by_their_heads_by_keyboard_too(browser, pages):
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages["ok"])
    before = column(browser, "#estimates", 2)
    value = browser.find_elements("css selector", "#estimates th")[1]
    button = value.find_element("css selector", "button")
    button.click()
    falling = sorted(before, key=float, reverse=True)
    assert (value.get_attribute("aria-sort"), column(browser, "#estimates", 2)) == ("descending", falling)
    button.send_keys(Keys.ENTER)
    assert (value.get_attribute("aria-sort"), column(browser, "#estimates", 2)) == ("ascending", falling[::-1])
    button.send_keys(Keys.SPACE)
    assert (value.get_attribute("aria-sort"), column(browser, "#estimates", 2)) == (None, before)
    assert falling != before != falling[::-1]
    browser.find_element("css selector", "#estimates th button").click()
    assert column(browser, "#estimates", 1) == sorted(column(browser, "#estimates", 1), key=str.casefold)
    sizes = browser.find_elements("css selector", "#estimates th button")[4]
    sizes.click()
    assert column(browser, "#estimates", 5)[-1] == ""  # what is not known comes last


def test_the_pointer_on_a_line_shows_its_numbers(browser, pages, parts):
    from selenium.webdriver.common.action_chains import ActionChains

    opened(browser, pages["ok"])
    spots = browser.find_elements("css selector", "#estimates figure:first-of-type .wide .spots path")
    best = parts["evaluation"].best
    told = [spot.find_element("css selector", "title").get_attribute("textContent") for spot in spots]
    assert sum(text.startswith(f"{best.estimator}: {number(best.value)} [") for text in told) == 1
    ActionChains(browser).scroll_to_element(spots[0]).move_to_element(spots[0]).perform()
    shade = [spot.value_of_css_property("fill-opacity") for spot in spots]
    assert shade == ["0.07", *["0"] * (len(spots) - 1)]
    label = browser.find_elements("xpath", "//*[@id='estimates']//*[local-name()='text'][.='IPS']")[0]
    line = spots[[text.split(":")[0] for text in told].index("IPS")].rect
    assert line["y"] < label.rect["y"] + label.rect["height"] / 2 < line["y"] + line["height"]  # beside its name


def test_without_scripts_the_page_is_the_same(browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(browser, pages["ok"])
        assert browser.find_elements("css selector", "th button") == []
        assert browser.find_element("css selector", "#estimates th").text == "estimator"
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_it_has_one_of_each_id_and_all_its_sections(browser, pages):
    opened(browser, pages["ok"])
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    titles = [each.text for each in browser.find_elements("css selector", "h2")]
    assert titles == [
        "Policies", "Estimates", "Segments", "Over time", "Weights and support", "Checks", "Calibration on this log",
        "How many rows it takes", "Audit of the log: pass", "How it was computed", "Settings",
    ]  # fmt: skip
    settings = browser.find_element("css selector", "#settings").text
    for told in ("data hash", "seed", "cael", cael.__version__, "numpy", "Python"):
        assert told in settings
