"""A headless Chromium, and pages for it to open; without a browser these tests are skipped and say how to get one.

With CAEL_NEED_BROWSER=1, as in CI, they fail instead."""

import os
import shutil

import numpy as np
import pytest

import cael

HOW = "no browser: install one with `apt-get install -y chromium chromium-driver` (.ci/run does)"


@pytest.fixture(scope="session")
def browser():
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        (pytest.fail if os.environ.get("CAEL_NEED_BROWSER") else pytest.skip)(HOW)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


HOSTILE = "</title><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def parts():
    """Results with every section, and strings that would like to be HTML."""
    world = cael.worlds.PaperWorld(n_actions=10, gamma=0.3)
    log = world.sample(3000, seed=0)
    labels = np.array([HOSTILE, "new & shiny", "returning", "$x_1$"])[(log.contexts[:, 1] * 4).astype(int)]
    return {
        "evaluation": cael.evaluate(log, world.target, cael.panel("all")),
        "comparison": cael.compare(log, {HOSTILE: world.target, "uniform": cael.Uniform(10)}, learn=False),
        "audit": cael.audit(log),
        "segments": cael.segments(log, world.target, labels, learn=False),
        "windows": cael.segments(log, world.target, windows=4, learn=False),
        "plan": cael.plan(log, world.target),
        "calibration": cael.calibrate(log, world.target, repeats=4),
        "title": f"Report {HOSTILE}",
        "settings": {HOSTILE: HOSTILE},
        "seed": 0,
    }


@pytest.fixture(scope="session")
def pages(parts, tmp_path_factory):
    """One page with everything and verdict ok, and one of a hopeless log with verdict refuse."""
    folder = tmp_path_factory.mktemp("pages")
    hard = cael.worlds.PaperWorld(n_actions=200, gamma=-0.3)
    refused = cael.evaluate(hard.sample(1000, seed=0), hard.target, learn=False)
    return {
        "ok": cael.report.save(folder / "ok.html", **parts),
        "refuse": cael.report.save(folder / "refuse.html", refused),
    }
