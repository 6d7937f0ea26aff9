"""The documentation runs: every example of README, CONTRIBUTING, the guide and the docstrings, as written."""

from __future__ import annotations

import contextlib
import dataclasses
import doctest
import importlib
import inspect
import io
import itertools
import json
import os
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import cael

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if "_build" not in path.parts and CELL.search(path.read_text("utf-8"))
)
MODULES = sorted(each.name for each in pkgutil.walk_packages(cael.__path__, "cael."))


def shell(lines: str, where: str) -> None:
    """Lines of a shell, as they are, which must all succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", "COLUMNS": "80"}
    words = ["bash", "-euo", "pipefail", "-c", lines]
    done = subprocess.run(words, capture_output=True, text=True, env=settings, check=False)
    assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1000:]}"


def run(blocks: list[str], source: str) -> None:
    """The blocks in order, as one module; options of a code cell (lines of `:name: value`) are not code."""
    page = ModuleType("documentation_page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, page.__name__, page)  # classes of an example must be found by pickle
        for number, block in enumerate(blocks, start=1):
            code = re.sub(r"\A(?::[\w-]+:.*\n)+", "", block)
            if code.startswith("%%bash\n"):
                shell(code.removeprefix("%%bash\n"), f"{source}, block {number}")
                continue
            exec(compile(code, f"{source}, block {number}", "exec"), page.__dict__)
        assert doctest.testmod(page).failed == 0


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")


@pytest.mark.parametrize("name", [pytest.param("README.md", marks=pytest.mark.long), "CONTRIBUTING.md"])
def test_python_blocks_run(name: str) -> None:
    blocks = PYTHON.findall((ROOT / name).read_text("utf-8"))
    assert blocks, f"{name} has no python block"
    run(blocks, name)


SHELL = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.long
def test_shell_lines_of_the_readme_run_as_typed() -> None:
    blocks = SHELL.findall((ROOT / "README.md").read_text("utf-8"))
    assert any("cael evaluate" in block for block in blocks)
    for number, block in enumerate(blocks, start=1):
        shell(block, f"README.md, shell block {number}")
    assert Path("report.html").exists()


def test_no_page_hides_its_commands_behind_a_function() -> None:
    """Commands are shown as lines of a shell that can be copied."""
    assert [page.name for page in PAGES if re.search(r"^def (run|call)\(", page.read_text("utf-8"), re.MULTILINE)] == []


FIRST_SCREEN = 25
"""Lines before the first picture, example or table of a page of the guide."""


def test_every_page_of_the_guide_shows_something_soon() -> None:
    late = []
    for page in sorted((DOCS / "guide").rglob("*.md")):
        body = re.sub(r"\A---\n.*?\n---\n", "", page.read_text("utf-8"), flags=re.DOTALL).splitlines()
        shown = [at for at, line in enumerate(body) if re.match(r"(\||```|:::|.*!\[)", line)]
        late += [page.name] if not shown or shown[0] > FIRST_SCREEN else []
    assert late == []


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_cells_run(page: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    try:
        run(CELL.findall(page.read_text("utf-8")), page.name)
    finally:
        import matplotlib.pyplot as plt

        plt.close("all")


def test_pages_were_found() -> None:
    """A suite that finds its own members must say which it found."""
    found = {page.relative_to(DOCS).as_posix() for page in PAGES}
    guide = ("quickstart", "logs-and-policies", "estimators", "intervals", "compare", "from-obp")
    guide += ("which", "faq", "gallery", "from-skdr-eval")
    guide += ("verdict", "audit", "planning", "segments", "report")
    guide += ("tutorial", "reading", "policies-in-files", "large-logs", "many-actions")
    guide += tuple(f"examples/{name}" for name in ("revenue", "email", "recommender", "ads", "llm-router"))
    assert {f"guide/{name}.md" for name in guide} | {
        "index.md",
        "worlds.md",
        "cli.md",
        "experiments.md",
        "found.md",
        "algorithm.md",
    } <= found


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    if name.startswith("cael.embedding.published"):
        pytest.importorskip("torch")
    found = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert found.failed == 0


def test_doctests_were_found() -> None:
    finder = doctest.DocTestFinder()
    with_examples = {
        test.name.rpartition(".")[2]
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        if test.examples
    }
    assert {"LoggedData", "IPS", "SNIPS", "DR", "MIPS", "SLOPE", "Softmax", "Ridge", "PaperWorld"} <= with_examples


def test_reference_lists_every_public_name() -> None:
    text = "\n".join(path.read_text("utf-8") for path in sorted((DOCS / "reference").glob("*.md")))
    directive = re.compile(r"^\.\. (?:auto\w+|py:data):: (?:cael\.)?(\w+)$", re.MULTILINE)
    listed = directive.findall(runpy.run_path(str(DOCS / "conf.py"))["with_estimators"](text))
    assert set(cael.__all__) - set(listed) == set()


def undocumented() -> dict[str, list[str]]:
    """Public names without a docstring, and public fields, properties and methods that none mentions."""
    missing: dict[str, list[str]] = {}
    for name in cael.__all__:
        thing = getattr(cael, name)
        if inspect.ismodule(thing) or not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        kinds = [kind for kind in getattr(thing, "__mro__", (thing,)) if kind is not object]
        words = " ".join(inspect.getdoc(kind) or "" for kind in kinds)
        fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
        public = [each.name for each in fields if each.name[0] != "_"]
        gaps = [field for field in public if not re.search(rf"\b{field}\b", words)]
        if inspect.isclass(thing):
            members = [(key, value) for key, value in vars(thing).items() if key[0] != "_"]
            described = [(key, value.fget if isinstance(value, property) else value) for key, value in members]
            gaps += [
                key for key, value in described
                if inspect.isfunction(value) and not inspect.getdoc(getattr(thing, key)) and not value.__doc__
            ]  # fmt: skip
        if gaps or not inspect.getdoc(thing):
            missing[name] = gaps or ["no docstring"]
    return missing


def test_every_public_name_and_field_is_documented() -> None:
    assert undocumented() == {}


def test_negative_control_a_field_without_a_word_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cael.Interval, "__doc__", "A two-sided interval.")
    assert undocumented() == {"Interval": ["low", "high", "level", "method"]}


def test_no_page_is_left_out() -> None:
    """Every page stands in a table of contents."""
    listed = set()
    for path in DOCS.rglob("*.md"):
        if "_build" in path.parts:
            continue
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            entries = [line for line in block.split("\n") if line and not line.startswith(":")]
            listed |= {(path.parent / entry).resolve() for entry in entries}
    pages = {path.with_suffix("") for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    assert pages - listed == {DOCS / "index"}


def test_the_table_of_the_search_is_rendered_from_the_committed_results(tmp_path: Path) -> None:
    from cael.experiments import readings

    (tmp_path / "search.json").write_text((DOCS / "results" / "search.json").read_text())
    readings.page(tmp_path)
    assert (tmp_path / "search.inc").read_text() == (DOCS / "results" / "search.inc").read_text()


def test_tables_of_trust_are_rendered_from_the_committed_results(tmp_path: Path) -> None:
    from cael.experiments import trust_page

    (tmp_path / "trust.json").write_text((DOCS / "results" / "trust.json").read_text())
    trust_page.page(tmp_path)
    made = {path.name: path.read_text("utf-8") for path in tmp_path.glob("*.inc")}
    assert made == {path.name: path.read_text("utf-8") for path in (DOCS / "results").glob("trust_*.inc")}
    assert len(made) > 5


@pytest.mark.parametrize("name", ["propensities_only", "without_propensities"])
def test_tables_of_propensities_are_rendered_from_the_committed_results(name: str) -> None:
    table = (DOCS / "results" / f"{name}.inc").read_text("utf-8")
    facts = DOCS / "results" / f"{name}.json"
    module = importlib.import_module(f"cael.experiments.{name}")
    assert table == (module.page(json.loads(facts.read_text("utf-8"))) if facts.exists() else module.NONE)


def test_links_to_docs_exist() -> None:
    """Relative links of the top-level files point to files."""
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / name).read_text("utf-8")):
            assert (ROOT / target).exists(), f"{name} links to {target}, which does not exist"


@pytest.fixture(scope="module")
def demo() -> str:
    """What `cael demo` prints in a terminal of 80 columns."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", "80")
        importlib.import_module("cael.cli").app(["demo"], result_action="return_value")
    return printed.getvalue()


@pytest.fixture(scope="module")
def readme() -> str:
    """What the README says that `cael demo` prints."""
    shown = re.search(r"^\$ cael demo\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert shown is not None
    return shown[1]


NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?")
QUARTER = 0.25
"""Networks round differently on another machine: by so much may differ what Auto's lines say besides its value."""


def lines(text: str) -> list[str]:
    """Each row, each warning and each sentence as one line, without the picture of the intervals."""
    joined = re.sub(r"\n(?=\S)(?!!|verdict:|lift )", " ", text)
    return [" ".join(re.sub(r"[^\x00-\x7f]", " ", line).split()) for line in joined.splitlines() if line.strip()]


def learned(line: str) -> bool:
    """Whether networks are behind a line: Auto's row and warnings, and the verdict's and the lift, which are Auto's."""
    return re.match(r"Auto |On this log,|! Auto:|lift |! (?!\w+(?:, \w+)*:)", line) is not None


def numbers(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def same_line(ours: str, theirs: str) -> bool:
    """To the last digit; where networks are behind it the words, Auto's value to its error, and the rest roughly."""
    if not learned(ours):
        return ours == theirs
    shown, printed = numbers(ours), numbers(theirs)
    close = printed == pytest.approx(shown, rel=QUARTER)
    if ours.startswith("Auto ") and close:
        (value, error, *ends), (now, _, *new_ends) = shown[:4], printed[:4]
        close = abs(now - value) <= error and new_ends == pytest.approx(ends, abs=2 * error)
    return close and NUMBER.sub("", ours) == NUMBER.sub("", theirs)


def differences(shown: str, printed: str) -> list[str]:
    """The lines of the README that the command does not print."""
    pairs = list(itertools.zip_longest(lines(shown), lines(printed), fillvalue=""))
    return [f"{ours!r} is {theirs!r}" for ours, theirs in pairs if not same_line(ours, theirs)]


@pytest.mark.long
def test_readme_shows_what_the_demo_prints(readme: str, demo: str) -> None:
    assert len(lines(readme)) > 15
    assert differences(readme, demo) == []


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("SNIPS        9.8094", "SNIPS        9.8095"),
        ("[7.0721, 13.052]", "[7.0721, 13.053]"),
        ("Auto         9.7", "Auto         9.8"),
        ("simulation knows, is 9.7231", "simulation knows, is 9.7232"),
        ("lift over the logging policy", "lift over the old policy"),
        ("lift over the logging policy: +1.", "lift over the logging policy: +2."),
        ("this log, the new policy", "this log, the policy"),
        ("3 more notes", "4 more notes"),
        ("is shown to be better", "is shown to be worse"),
        ("verdict: caution", "verdict: ok"),
    ],
)
def test_negative_control_a_readme_of_another_day_is_seen(readme: str, now: str, then: str) -> None:
    assert differences(readme, readme) == []
    assert now in readme
    assert len(differences(readme, readme.replace(now, then, 1))) == 1


def test_beyond_tables_are_rendered_from_the_committed_results(tmp_path: Path) -> None:
    from cael.experiments import beyond_page
    from cael.experiments import trained_heads as objective

    (tmp_path / "objective.json").write_text((DOCS / "results" / "objective.json").read_text())
    objective.page(tmp_path)
    made = {**beyond_page.rendered(DOCS / "results"), "objective": (tmp_path / "objective.inc").read_text()}
    for name, text in made.items():
        assert text == (DOCS / "results" / f"{name}.inc").read_text()


def test_real_trials_are_rendered_from_the_committed_results() -> None:
    page = runpy.run_path(str(ROOT / "benchmarks" / "real_trials.py"))["page"]
    results = json.loads((DOCS / "results" / "real_trials.json").read_text())
    assert page(results) == (DOCS / "results" / "real_trials.inc").read_text()
    assert all(len(trial["arms"]) >= 4 for trial in results.values())


def test_tables_of_learning_are_rendered_from_the_committed_results() -> None:
    from cael.experiments.ledger import read_lines
    from cael.experiments.shipping import page

    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        pages = {"shipping": page, "learners": runpy.run_path(str(ROOT / "benchmarks" / "learners.py"))["page"]}
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    for name, rendered in pages.items():
        text = rendered(read_lines(DOCS / "results" / f"{name}.jsonl"))
        assert text == (DOCS / "results" / f"{name}.inc").read_text()
