"""The pictures of the documentation: `python docs/pictures.py` makes docs/_static/which-estimator.svg, and with a
headless Chromium (chromium, chromium-driver, selenium, Pillow) the first screens of two reports."""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATIC = Path(__file__).resolve().parent / "_static"
SCREENS = {"wide": (1280, 800), "narrow": (390, 844)}
CALL = [sys.executable, "-c", "from cael.cli import main; main()"]
REPORTS = {
    "news": [
        ["example"],
        ["evaluate", "news.parquet", "--policy", "new ranking=topk:new_articles+new_probabilities", "--actions",
         "articles.csv", "--segment", "country", "--no-learn", "--out", "report.html"],
    ],
    "router": [
        ["example", "llm-router"],
        ["evaluate", "llm_router.jsonl", "--metric", "quality", "--guardrail", "cost:min:+10%", "--policy",
         "router=choice:router", "--no-learn", "--out", "report.html"],
    ],
}  # fmt: skip
"""The commands whose reports are shown."""


@dataclass(frozen=True)
class Box:
    """A box of the flow chart: the place of its middle in units, what is asked or answered, and whether it asks."""

    x: float
    y: float
    lines: tuple[str, ...]
    asks: bool = False


WHICH = {
    "propensities": Box(0, 0, ("Are propensities logged?",), True),
    "none": Box(1, 0, ("Estimate them (--logging estimate),", "and read the sensitivity")),
    "policy": Box(0, 1, ("Can the new policy name", "probabilities of all actions?"), True),
    "snips": Box(1, 1, ("SNIPS", "interval: the default (steadied)")),
    "rows": Box(0, 2, ("Effective sample size", "above 800?"), True),
    "sndr": Box(0, 3, ("SNDR (Auto takes it by itself)", "interval: the default (steadied)")),
    "cael": Box(1, 2, ("Auto, which tries CAEL", "interval: allows for a bias")),
    "bounded": Box(1, 3, ("A guarantee for any sample size?", "IPS with method='betting'")),
}
ARROWS = (
    ("propensities", "none", "no"), ("propensities", "policy", "yes"), ("policy", "snips", "no"),
    ("policy", "rows", "yes"), ("rows", "sndr", "yes"), ("rows", "cael", "no"), ("sndr", "bounded", ""),
)  # fmt: skip
WIDTH, HEIGHT, ACROSS, DOWN = 250, 52, 330, 92


def which_estimator() -> str:
    """The flow chart as SVG, in colours for light and dark."""
    parts = [arrow(WHICH[start], WHICH[end], word) for start, end, word in ARROWS]
    parts += [box(each) for each in WHICH.values()]
    style = (
        "text{font:13px sans-serif;fill:#1c2127;text-anchor:middle}.f{fill:#5b6572}"
        "rect{fill:#e3f4ea;stroke:#166c40}.q{fill:#f6f7f9;stroke:#7d93b2}line{stroke:#7d93b2;stroke-width:1.5}"
        "@media(prefers-color-scheme:dark){text{fill:#e8eaed}.f{fill:#a3adb9}rect{fill:#173426}.q{fill:#1d2127}}"
    )
    width, height = ACROSS + WIDTH + 20, 3 * DOWN + HEIGHT + 20
    label = "Which estimator and which interval: questions from top to bottom, answers in green"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">\n'
        f"<style>{style}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def place(one: Box) -> tuple[float, float]:
    return 10 + WIDTH / 2 + one.x * ACROSS, 10 + HEIGHT / 2 + one.y * DOWN


def box(one: Box) -> str:
    x, y = place(one)
    kind = ' class="q"' if one.asks else ""
    shape = f'<rect{kind} x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
    top = y + 4.5 - 9 * (len(one.lines) - 1)
    words = "".join(f'<text x="{x:g}" y="{top + 18 * at:g}">{line}</text>' for at, line in enumerate(one.lines))
    return shape + words


def arrow(start: Box, end: Box, word: str) -> str:
    (x0, y0), (x1, y1) = place(start), place(end)
    if start.y == end.y:
        x0, x1 = x0 + WIDTH / 2, x1 - WIDTH / 2
        label = (x0 + x1) / 2, y0 - 6
        tip = f"{x1:g},{y1:g} {x1 - 8:g},{y1 - 4:g} {x1 - 8:g},{y1 + 4:g}"
    else:
        y0, y1 = y0 + HEIGHT / 2, y1 - HEIGHT / 2
        label = x0 + 16, (y0 + y1) / 2 + 4
        tip = f"{x1:g},{y1:g} {x1 - 4:g},{y1 - 8:g} {x1 + 4:g},{y1 - 8:g}"
    return (
        f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}"/><polygon points="{tip}" fill="#7d93b2"/>'
        f'<text class="f" x="{label[0]:g}" y="{label[1]:g}">{word}</text>'
    )


def screens() -> None:
    """The first screens of the reports, at two sizes, as small PNG files."""
    driver = browser()
    try:
        for name, commands in REPORTS.items():
            with tempfile.TemporaryDirectory() as folder:
                for words in commands:
                    settings = {**os.environ, "NO_COLOR": "1"}
                    subprocess.run([*CALL, *words], cwd=folder, check=True, capture_output=True, env=settings)
                page = (Path(folder) / "report.html").as_uri()
                for kind, size in SCREENS.items():
                    (STATIC / f"report-{name}-{kind}.png").write_bytes(screen(driver, page, size))
    finally:
        driver.quit()


def browser() -> Any:
    """A headless Chromium."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def screen(driver: Any, page: str, size: tuple[int, int]) -> bytes:
    """What a page shows without scrolling, in few colours."""
    from PIL import Image

    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(page)
    shot = base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
    out = io.BytesIO()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(64).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    (STATIC / "which-estimator.svg").write_text(which_estimator(), encoding="utf-8")
    screens()
