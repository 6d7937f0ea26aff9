"""Plain words: phrases of a private dialect that must not come back into the source and the documentation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PHRASES = {
    r"\btook \w+ out of \d": "Auto chose CAEL from 3 candidates.",
    r"the worth of only|leave the worth": "effective sample size",
    r"\btells? (a|this|the|its) lift\b.* apart|told apart|tell a lift of": "detect a lift",
    r"\bnot told apart": "is not significant",
    r"\bhold(s)? (all )?together\b": "simultaneous 95% intervals",
    r"without what chance did": "adjusted by a control variate for the random choice of logged actions",
    r"interval counts a bias": "this interval allows for a bias of up to X",
    r"\bspeaks? against\b": "contradicts; All checks passed.",
    r"\bstretch(es)? of time\b": "time periods",
    r"rows (are )?out of place": "rows whose action the propensities do not explain",
    r"\b(nats|bytes|numbers|times|seconds|ns|ms) a row\b": "per row",
    r"\bas of (`|all\b|an?\b|another\b)": "see X; the same as in X",
    r"growing a sparse": "training the reward model",
    r"\bare no UTF-8|\bis no UTF-8": "are not valid UTF-8",
    r"\bbesides\b": "in addition; an extra column",
    r"defines the logging policy by itself": "is circular",
    r"[Nn]oise of our own": "We add known noise to f, so the weights are exact.",
}
"""What must not be found, as a pattern, and what to write in its place. A phrase can run over a line break."""
FILES = sorted(
    path
    for folder, kinds in (("src", ("*.py", "*.toml", "*.j2")), ("docs", ("*.md",)))
    for kind in kinds
    for path in (ROOT / folder).rglob(kind)
    if not {"decisions", "_build", "jupyter_execute"} & set(path.relative_to(ROOT).parts)
)


def odd(text: str) -> list[str]:
    """The phrases that are in a text."""
    flat = re.sub(r"\s+", " ", text)
    return [found[0] for pattern in PHRASES for found in [re.search(pattern, flat)] if found]


def test_files_were_found():
    names = {path.name for path in FILES}
    assert {"evaluation.py", "tutorial.md", "page.html.j2", "index.md"} <= names
    assert len(FILES) > 250


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_first_pages_use_plain_words(name):
    assert odd((ROOT / name).read_text("utf-8")) == []


def test_source_and_documentation_use_plain_words():
    found = {str(path.relative_to(ROOT)): odd(path.read_text("utf-8")) for path in FILES}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


@pytest.mark.parametrize(
    "sentence",
    [
        "Auto took CAEL out of 3.", "This leaves\n    the worth of only 5 rows", "rows tell the lift apart",
        "intervals that hold\ntogether at 95%", "Nothing speaks against it.", "by 0.02 nats a row", "seed: as of `DM`",
    ],
)  # fmt: skip
def test_negative_control_odd_words_are_seen(sentence):
    assert odd(sentence)


def test_the_help_of_every_command_uses_plain_words():
    program = "from cael.cli import main; main()"
    for command in ("evaluate", "compare", "audit", "plan", "demo", "example"):
        words = [sys.executable, "-c", program, command, "--help"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert odd(done.stdout) == []
