"""Mutants: one small change of the source at a time, and whether the tests that are named for it fail.

The working tree is only read. Each mutant is a copy of `src` in a temporary folder, which the tests import by
PYTHONPATH. Tests run in children of a fork server that has imported numpy and the like once.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("list.toml")
MOST_SURVIVORS = 3
LIMIT = 180
"""Seconds for the tests of one mutant. Those of the source as it is must take less."""
FAILED, INTERRUPTED, OTHER_COPY = 1, 2, 99
"""Exit codes: a test failed; a test file could not be imported; the tests would import another copy of the package."""


class MutantError(Exception):
    """The list does not fit the source, or the tests fail without a mutant."""


@dataclass(frozen=True)
class Mutant:
    """One change. file: under the package. old: text that occurs there exactly once. new: what takes its place. tests:
    files or node ids, one of which must fail. why: what is broken, for whoever has to find the place again."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Outcome:
    """killed: whether the tests failed. how: the test that failed, that time ran out, the signal that ended the
    process, or an import that failed."""

    mutant: Mutant
    killed: bool
    how: str
    seconds: float


@dataclass(frozen=True)
class Project:
    """Where the source, the package in it and the tests are. preload: modules that all tests need, imported once."""

    root: Path
    package: str
    preload: tuple[str, ...] = ()

    @property
    def source(self) -> Path:
        return self.root / "src"


PRELOAD = (
    "numpy", "scipy.optimize", "scipy.special", "scipy.stats", "sklearn.linear_model", "pyarrow.parquet", "pyarrow.csv",
    "pyarrow.dataset", "matplotlib.backends.backend_svg", "jinja2", "rich.console", "cyclopts", "joblib", "pytest",
    "hypothesis.extra.numpy",
)  # fmt: skip
CAEL = Project(ROOT, "cael", PRELOAD)


def mutants_of(path: Path = LIST) -> list[Mutant]:
    """The committed list; a mutant without tests of its own has those of its group."""
    groups = tomllib.loads(path.read_text("utf-8"))["group"]
    listed = [{"tests": group["tests"], **mutant} for group in groups for mutant in group["mutant"]]
    found = [Mutant(**{**mutant, "tests": tuple(mutant["tests"])}) for mutant in listed]
    names = [mutant.name for mutant in found]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise MutantError(f"names of mutants must differ; repeated: {', '.join(repeated)}.")
    return found


def mutated(text: str, mutant: Mutant) -> str:
    """The text of a file with the change in it."""
    count = text.count(mutant.old)
    if count != 1:
        raise MutantError(
            f"{mutant.name}: the old text must occur once in {mutant.file} and occurs {count} times: {mutant.old!r} "
            f"({mutant.why}). Find the place again and correct tests/mutants/list.toml."
        )
    if mutant.old == mutant.new:
        raise MutantError(f"{mutant.name}: the new text is the old one.")
    return text.replace(mutant.old, mutant.new)


def changed_file(project: Project, mutant: Mutant) -> str:
    """The text of the mutant's file; an error where the mutant does not fit it, or it is no Python any more."""
    path = project.source / project.package / mutant.file
    if not path.is_file():
        raise MutantError(f"{mutant.name}: there is no file {mutant.file} ({mutant.why}).")
    text = mutated(path.read_text("utf-8"), mutant)
    if path.suffix == ".py":
        try:
            compile(text, mutant.file, "exec")
        except SyntaxError as error:
            raise MutantError(f"{mutant.name}: the mutant is no Python: {error}.") from error
    return text


@contextmanager
def copied(source: Path) -> Iterator[Path]:
    """A copy of a source folder, gone afterwards."""
    with TemporaryDirectory(prefix="mutant-") as folder:
        yield shutil.copytree(source, Path(folder) / "src")


def run_pytest(project: Project, source: Path, tests: Sequence[str], printed: Path) -> None:
    """Run tests on a source folder in this process, which is a child of the fork server, and end it."""
    out = printed.open("w")
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    os.chdir(project.root)
    scratch = {"HYPOTHESIS_STORAGE_DIRECTORY": str(source.parent / "hypothesis"), "PYTHONDONTWRITEBYTECODE": "1"}
    os.environ.update({**scratch, "PYTHONPATH": str(source)})  # of processes that tests start, too
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(source))
    with suppress(Exception):  # a mutant that cannot be imported: the tests say so
        place = importlib.import_module(project.package).__file__
        if not Path(str(place)).resolve().is_relative_to(source.resolve()):
            print(f"the tests would import {place} and not the copy in {source}")
            sys.exit(OTHER_COPY)
    import pytest

    # Nobody reads how an assertion failed, and rewriting assertions takes longer than most of these tests.
    options = ["-x", "-q", "--assert=plain", "-m", "not slow", "-p", "no:cacheprovider", "--tb=line", "-rfE"]
    sys.exit(int(pytest.main([*options, *tests])))


def answer_of(project: Project, source: Path, tests: Sequence[str], limit: float) -> tuple[int | None, str]:
    """(exit code of pytest, what it printed) with a source folder; the code is None where time ran out."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(project.preload))
    printed = source.parent / "printed.txt"
    child = context.Process(target=run_pytest, args=(project, source, tests, printed))
    child.start()
    child.join(limit)
    if child.exitcode is None:
        child.kill()
        child.join()
        return None, f"no answer in {limit:.0f} seconds"
    return child.exitcode, printed.read_text("utf-8")


def check_tests(project: Project, source: Path, tests: Sequence[str], limit: float) -> None:
    """An error where these tests do not pass with the source as it is: they would kill any mutant."""
    code, text = answer_of(project, source, tests, limit)
    if code != 0:
        raise MutantError(f"without a mutant these tests must pass: {' '.join(tests)}\n{text[-3000:]}")


def outcome_of(project: Project, base: Path, mutant: Mutant, limit: float) -> Outcome:
    """Whether the tests of a mutant fail. base: the source as it is, of which a copy is changed."""
    start, text = time.monotonic(), changed_file(project, mutant)
    with copied(base) as source:
        path = source / project.package / mutant.file
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            stale.unlink()
        path.write_text(text, encoding="utf-8")
        code, printed = answer_of(project, source, mutant.tests, limit)
    seconds = time.monotonic() - start
    if code == 0:
        return Outcome(mutant, False, "all tests pass", seconds)
    if code is None:
        return Outcome(mutant, True, f"time: {printed}", seconds)
    if code < 0:
        return Outcome(mutant, True, f"the process ended by signal {-code}", seconds)
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    if code not in (FAILED, INTERRUPTED) or named is None:
        raise MutantError(f"{mutant.name}: pytest ended with {code}:\n{printed[-3000:]}")
    kind = "cannot be imported: " if code == INTERRUPTED else ""
    return Outcome(mutant, True, kind + named[1], seconds)


def selected(mutants: Sequence[Mutant]) -> list[list[str]]:
    """The tests of all selections, each once, by file."""
    nodes = list(dict.fromkeys(node for mutant in mutants for node in mutant.tests))
    files = dict.fromkeys(node.partition("::")[0] for node in nodes)
    return [[node for node in nodes if node.partition("::")[0] == file] for file in files]


@contextmanager
def stopping(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that start no more work after an error."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def outcomes(
    mutants: Sequence[Mutant],
    project: Project = CAEL,
    *,
    jobs: int = 1,
    limit: float = LIMIT,
    tell: Callable[[str], None] = print,
) -> list[Outcome]:
    """What became of each mutant. tell: is given a line for each, as they come."""
    for mutant in mutants:
        changed_file(project, mutant)
    found = {}
    with copied(project.source) as base, stopping(jobs) as pool:
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(base)], check=True)
        selections = selected(mutants)
        list(pool.map(lambda tests: check_tests(project, base, tests, limit), selections))
        tell(f"the tests of {len(selections)} files pass without a mutant")
        waiting = [pool.submit(outcome_of, project, base, mutant, limit) for mutant in mutants]
        for number, each in enumerate(as_completed(waiting), start=1):
            outcome = each.result()
            found[outcome.mutant.name] = outcome
            word = "killed" if outcome.killed else "SURVIVES"
            tell(f"{number}/{len(mutants)} {word:8} {outcome.mutant.name} ({outcome.seconds:.0f} s; {outcome.how})")
    return [found[mutant.name] for mutant in mutants]


def chosen(mutants: Sequence[Mutant], patterns: Sequence[str]) -> list[Mutant]:
    """The mutants whose name or file one of the patterns matches; all without patterns."""
    if not patterns:
        return list(mutants)
    return [each for each in mutants if any(fnmatch(each.name, p) or fnmatch(each.file, p) for p in patterns)]


def survivors_table(found: Sequence[Outcome]) -> str:
    """The mutants that no test sees, a line each."""
    survivors = [outcome.mutant for outcome in found if not outcome.killed]
    lines = [f"{len(survivors)} of {len(found)} mutants survive (at most {MOST_SURVIVORS} may)"]
    width = max((len(mutant.name) for mutant in survivors), default=0)
    return "\n".join([*lines, *(f"  {each.name:{width}}  {each.file}  {each.why}" for each in survivors)])
