"""The house: few rooms, no stem twice, no import cycle, short functions, and a map of it in the README."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
HOUSE = SOURCE / "cael"
FILES = sorted(HOUSE.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def top_level() -> set[str]:
    """The packages (with a final /) and modules right under src/cael, the package's own __init__ aside."""
    rooms = {f"{path.name}/" for path in HOUSE.iterdir() if (path / "__init__.py").exists()}
    return rooms | {path.name for path in HOUSE.glob("*.py") if path.stem != "__init__"}


def test_the_top_level_has_at_most_twenty_entries():
    assert len(top_level()) <= 20, sorted(top_level())


def test_no_stem_twice():
    stems = Counter(path.stem if path.stem != "__init__" else path.parent.name for path in FILES)
    assert [stem for stem, count in stems.items() if count > 1] == []


# Import cycles


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements under a node, those inside functions too, those for type checkers not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and is_type_checking(child.test):
            for other in child.orelse:
                yield from imports(ast.Module([other], []))
        else:
            yield from imports(child)


def imported(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The cael modules that a statement names: cael.x.y of `from cael.x import y` if that is a module, else cael.x."""
    if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    else:
        base = statement.module or ""
        names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in statement.names]
    yield from (name for name in names if name in MODULES)


def edges_of(importer: str, path: Path) -> set[str]:
    """The modules that have to be loaded for this one: what it names, and the packages around those it is not in."""
    found = set()
    for statement in imports(ast.parse(path.read_text("utf-8"))):
        for name in imported(statement):
            parts = name.split(".")
            parents = {".".join(parts[:length]) for length in range(1, len(parts))}
            found |= {name} | {parent for parent in parents if not f"{importer}.".startswith(f"{parent}.")}
    return found - {importer}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts with more than one member, each sorted (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    parts: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            part = [stack.pop()]
            while part[-1] != name:
                part.append(stack.pop())
            parts.append(sorted(part))

    for name in graph:
        if name not in index:
            visit(name)
    return [part for part in parts if len(part) > 1]


def test_cycles_are_found():
    """The search itself: two loops that share a module are one part, a chain is none."""
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"b"}, "e": {"a"}, "f": {"e"}}
    assert cycles(graph) == [["a", "b", "c", "d"]]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_imports_inside_functions_count_and_those_of_type_checkers_do_not(tmp_path):
    text = "if TYPE_CHECKING:\n    from cael.io import read\ndef f():\n    from cael.inference import intervals\n"
    (tmp_path / "x.py").write_text(text)
    assert edges_of("cael.log.x", tmp_path / "x.py") == {"cael.inference", "cael.inference.intervals"}


def test_there_is_no_import_cycle():
    graph = {name: edges_of(name, path) for name, path in MODULES.items()}
    told = []
    for part in cycles(graph):
        told += [f"{name} -> {other}" for name in part for other in sorted(graph[name] & set(part))]
    assert told == [], "\n" + "\n".join(told)


# Functions

LONG_SIGNATURES = {
    "LoggedData.__init__": "the columns of a log",
    "scan": "mirrors the options of the command",
    "learn": "mirrors the options of the command",
    "plan": "mirrors the options of the command",
    "evaluate": "the options of the command",
    "compare": "the options of the command",
    "segments": "mirrors the options of the command",
    "render": "what a report can hold",
    "view": "what a report can hold",
    "trained": "an experiment's settings",
}
"""Functions with more than 8 parameters, and why."""


def functions(path: Path) -> Iterator[tuple[str, Function]]:
    """(name, function) of a file; of a method the name of its class before it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        inner = node.body if isinstance(node, ast.ClassDef | ast.Module) else []
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        yield from ((prefix + each.name, each) for each in inner if isinstance(each, Function))


def length(function: Function) -> int:
    """Lines of the body without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def parameters(function: Function) -> int:
    own = function.args
    names = [each.arg for each in (*own.posonlyargs, *own.args, *own.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


EVERY = [(name, function) for path in FILES for name, function in functions(path)]


def test_functions_are_short():
    lengths = [length(function) for _, function in EVERY]
    assert np.median(lengths) <= 6
    assert np.quantile(lengths, 0.95) <= 25


def test_parameters_are_few():
    many = {name for name, function in EVERY if parameters(function) > 8}
    assert many - LONG_SIGNATURES.keys() == set()


def test_the_readme_shows_the_rooms():
    text = (ROOT / "README.md").read_text("utf-8")
    listed = set(re.findall(r"^  ([a-z]+(?:/|\.py))  ", text, re.MULTILINE))
    assert listed == top_level()
