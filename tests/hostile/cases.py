"""Hostile input by the table: what is handed to the command, how it must end, and what it must say."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

N = 60
ANSWER = (0, 3)
REFUSED, USAGE = (1,), (2,)


@dataclass(frozen=True)
class Case:
    """make: writes files into a folder and gives the arguments. codes: exit codes that are right. says: a pattern in
    what is printed. printed: whether that is looked for on standard output."""

    make: Callable[[Path], list[str]]
    codes: tuple[int, ...]
    says: str = ""
    printed: bool = False


def columns(**changes: Any) -> dict[str, Any]:
    """A log that is right, but for the changes; ... leaves a column out."""
    rng = np.random.default_rng(0)
    right = {
        "action": np.arange(N) % 3, "reward": rng.random(N).round(3), "propensity": np.full(N, 1 / 3),
        "x_0": rng.normal(size=N).round(3), "best": (np.arange(N) + 1) % 3, "pi": [[0.2, 0.3, 0.5]] * N,
        "p": np.full(N, 0.4),
    }  # fmt: skip
    return {name: column for name, column in {**right, **changes}.items() if column is not ...}


def parquet(folder: Path, **changes: Any) -> str:
    pq.write_table(pa.table(columns(**changes)), folder / "log.parquet")
    return str(folder / "log.parquet")


def text(folder: Path, name: str = "log.csv", **changes: Any) -> str:
    """The log as CSV; the cells are written as they are given."""
    given = columns(**changes)
    rows = [",".join(given), *(",".join(_cell(column[at]) for column in given.values()) for at in range(N))]
    return raw(folder, "\n".join(rows) + "\n", name)


def _cell(cell: Any) -> str:
    shown = str(cell)
    return '"' + shown.replace('"', '""') + '"' if any(mark in shown for mark in ',"\n') else shown


def raw(folder: Path, content: str | bytes, name: str) -> str:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder / name)


def one(column: str, value: Any, row: int = 4) -> dict[str, Any]:
    """The column with one cell changed."""
    cells = list(columns()[column])
    cells[row] = value
    return {column: cells}


def evaluate(log: Callable[[Path], str], *options: str, policy: str = "choice:best") -> Callable[[Path], list[str]]:
    return lambda folder: ["evaluate", log(folder), "--policy", policy, "--no-learn", *options]


def of(log: Callable[[Path], str], codes: tuple[int, ...], says: str = "", *options: str, policy: str = "choice:best",
       printed: bool = False) -> Case:  # fmt: skip
    return Case(evaluate(log, *options, policy=policy), codes, says, printed)


def option(*words: str, says: str, codes: tuple[int, ...] = REFUSED, policy: str = "choice:best") -> Case:
    return of(parquet, codes, says, *words, policy=policy)


def extremes() -> dict[str, Case]:
    """Finite numbers of any size: an answer or an error, in every form of output."""
    cases: dict[str, Case] = {}
    for scale in (5e-324, 1e-300, 1e-160, 1e-38, 1.0, 1e16, 1e36, 9e36):
        for form in ("table", "json", "markdown"):
            rewards = {"reward": columns()["reward"] * scale}
            cases[f"rewards times {scale:g}, {form}"] = of(
                lambda f, rewards=rewards: parquet(f, **rewards), ANSWER, "", "--format", form, policy="uniform"
            )
    for value in (1.1e37, 1e38, 1e154, 1e300, 1.7e308, -1e300):
        for name in ("reward", "x_0"):
            cases[f"{name} of {value:g}"] = of(
                lambda f, name=name, value=value: parquet(f, **one(name, value)), REFUSED,
                f"'{name}' is beyond 1e.37, too large to be squared", "--contexts", "x_0",
            )  # fmt: skip
    for value in (math.inf, -math.inf):
        for name in ("reward", "x_0", "propensity"):
            cases[f"{name} of {value:g}"] = of(
                lambda f, name=name, value=value: parquet(f, **one(name, value)), REFUSED, "is infinite",
                "--contexts", "x_0",
            )  # fmt: skip
    for value in (1.0, 0.5, 1e-6, 1e-20, 1.1e-37):
        for form in ("table", "json"):
            cases[f"a propensity of {value:g}, {form}"] = of(
                lambda f, value=value: parquet(f, **one("propensity", value)), ANSWER, "", "--format", form,
                policy="uniform",
            )  # fmt: skip
    for value in (9e-38, 1e-200, 1e-308, 5e-324):
        cases[f"a propensity of {value:g}"] = of(
            lambda f, value=value: parquet(f, **one("propensity", value)), REFUSED, "'propensity' is below 1e-37"
        )
    for value, says in (
        (0.0, "is not above 0"), (-0.0, "is not above 0"), (-1.0, "is not above 0"), (1.0000001, "is above 1"),
        (math.nan, "is missing"), (None, "is missing"),
    ):  # fmt: skip
        cases[f"a propensity of {value}"] = of(
            lambda f, value=value: parquet(f, **one("propensity", value)), REFUSED, says
        )
    return cases


def ids() -> dict[str, Case]:
    """Labels of every type, as actions, users and decisions."""
    wide = {
        "uint64": lambda code: pa.array([2**63 + int(c) for c in code], pa.uint64()),
        "int64 at its end": lambda code: pa.array([-(2**63) + int(c) for c in code], pa.int64()),
        "decimals": lambda code: pa.array([Decimal(10**25 + int(c)) for c in code], pa.decimal128(30, 0)),
        "small decimals": lambda code: pa.array([Decimal(int(c)) for c in code], pa.decimal128(30, 2)),
        "decimal256": lambda code: pa.array([Decimal(10**50 + int(c)) for c in code], pa.decimal256(60, 0)),
        "text": lambda code: pa.array([f"a{c}" for c in code]),
        "a dictionary": lambda code: pa.array([f"a{c}" for c in code]).dictionary_encode(),
        "large text": lambda code: pa.array([f"a{c}" for c in code], pa.large_string()),
        "whole floats": lambda code: pa.array([float(c) for c in code]),
        "dates": lambda code: pa.array([int(c) for c in code], pa.int32()).cast(pa.date32()),
        "20 digits": lambda code: pa.array([str(10**19 + int(c)) for c in code]),
    }
    cases: dict[str, Case] = {}
    for name, made in wide.items():
        for role in ("action", "user", "decision_id"):

            def log(folder: Path, role: str = role, made: Any = made) -> str:
                code = {"action": np.arange(N) % 3, "user": np.arange(N) // 2, "decision_id": np.arange(N)}[role]
                more = {"best": made((np.arange(N) + 1) % 3)} if role == "action" else {}
                return parquet(folder, **{role: made(code)}, **more)

            cases[f"{role}: {name}"] = of(log, ANSWER, '"n_actions": 3', "--format", "json", printed=True)
    wrong = {
        "fractions": (lambda code: pa.array(np.asarray(code) + 0.5), "must hold whole numbers or text"),
        "decimals with fractions": (
            lambda code: pa.array([Decimal(int(c)) / 2 for c in code], pa.decimal128(30, 1)), "must hold whole numbers",
        ),
        "floats that merge": (lambda code: pa.array(2.0**60 + np.asarray(code)), "cannot tell whole numbers above"),
        "lists": (lambda code: pa.array([[int(c)] for c in code]), "must hold whole numbers or text"),
        "structs": (lambda code: pa.array([{"a": int(c)} for c in code]), "must hold whole numbers or text"),
    }  # fmt: skip
    for name, (made, says) in wrong.items():
        for role in ("action", "user", "decision_id"):
            cases[f"{role}: {name}"] = of(
                lambda f, role=role, made=made: parquet(f, **{role: made(np.arange(N))}), REFUSED, says
            )
    for name, cells in {
        "leading zeros": ["0017", "17", "18"], "fractions of zero": ["1.0", "1", "2"], "exponents": ["1e1", "10", "2"],
        "spaces": [" 1", "1", "2"], "20 digits": [str(10**19 + at) for at in range(3)], "signs": ["+1", "1", "2"],
        "truth": ["true", "TRUE", "True"], "minus zero": ["-0", "0", "1"], "hexadecimal": ["0x1", "1", "2"],
        "16 digits and a fraction": ["9007199254740993", "9007199254740992", "2.0"], "case": ["a", "A", "b"],
    }.items():  # fmt: skip
        told = [cells[at % 3] for at in range(N)]
        cases[f"text: three actions, {name}"] = of(
            lambda f, told=told: text(f, action=told, best=told, pi=...), ANSWER, '"n_actions": 3', "--format", "json",
            printed=True,
        )  # fmt: skip
    return cases


TOMLS = {
    "policies = 3": (1, "policies. must be a table"),
    "policies.new = 3": (1, "policies.new must be a table, or a text"),
    "policies.new = [1]": (1, "policies.new must be a table, or a text"),
    "policies.new.kind = 3": (1, "a policy needs kind"),
    '[policies.new]\nkind = "choice"\ncolumn = 3': (1, "named by text; got 3"),
    '[policies.new]\nkind = "choice"\ncolumn = ["best", 3]': (1, "named by text"),
    '[policies.new]\nkind = "choice"\ncolumn = "best"\nepsilon = "x"': (1, "epsilon of a policy must be a number"),
    '[policies.new]\nkind = "choice"\ncolumn = "best"\nepsilon = [1]': (1, "epsilon of a policy must be a number"),
    '[policies.new]\nkind = "choice"\ncolumn = "best"\nrest = 3': (1, "has no option 'rest'"),
    '[policies.new]\nkind = "magic"': (1, "unknown kind of policy"),
    '[policies.a]\nkind = "uniform"\n[policies.b]\nkind = "uniform"': (1, "takes one policy, and there are 2: a, b"),
    "[policies]": (1, "takes one policy, and there are 0"),
    "evaluate = 3": (1, "must be a table of options; got 3"),
    'level = "x"': (2, "expected a number"),
    "level = 2.0": (1, "level must be"),
    "level = nan": (1, "level must be"),
    "level = [1]": (2, "unable to convert"),
    "seed = 1.5": (2, "Invalid value for .seed."),
    "seed = 1e400": (2, "Invalid value for .seed."),
    "n_actions = 99999999999999999999": (1, "n_actions must be at most 10,000,000"),
    "n_actions = -1": (1, "n_actions must be a whole number >= 1"),
    'columns = "action"': (1, "columns. must be a table"),
    "columns.action = 3": (1, "has no column '3'"),
    'columns.magic = "x"': (1, "unknown option 'magic'"),
    'thresholds = "x"': (1, "thresholds. must be a table"),
    'thresholds.drift = "x"': (1, "--threshold must be NAME=CAUTION,REFUSE"),
    "thresholds.magic = 1": (1, "magic"),
    "thresholds.drift = []": (1, "--threshold must be NAME=CAUTION,REFUSE"),
    "wrong": (1, "is not a TOML file"),
    "a = 1\na = 2": (1, "is not a TOML file"),
    "[a": (1, "is not a TOML file"),
    'rewrad = "x"': (1, "unknown option 'rewrad'"),
    "windows = 1": (1, "windows must be a whole number >= 2"),
    "\x00": (1, "is not a TOML file"),
}


def tomls() -> dict[str, Case]:
    cases = {}
    for content, (code, says) in TOMLS.items():

        def make(folder: Path, content: str = content) -> list[str]:
            policy = [] if "policies" in content else ["--policy", "uniform"]
            config = raw(folder, content, "options.toml")
            return ["evaluate", parquet(folder), "--config", config, *policy, "--no-learn"]

        cases[f"TOML: {content!r}"] = Case(make, (code,), says)
    return cases


def options() -> dict[str, Case]:
    """Numbers and names on the command line."""
    cases = {
        "--n-actions " + value: option("--n-actions", value, says=says, codes=codes)
        for value, says, codes in (
            ("0", "n_actions must be a whole number >= 1", REFUSED), ("-3", "whole number >= 1", REFUSED),
            ("2", "is not in 0..1", REFUSED), ("1000000000", "n_actions must be at most 10,000,000", REFUSED),
            ("9" * 30, "n_actions must be at most", REFUSED), ("1e3", "", USAGE), ("x", "", USAGE), ("", "", USAGE),
        )
    }  # fmt: skip
    for value, says in (
        ("0", "at least 384 MiB"), ("-1", "must be a size"), ("1e5", "must be a size"), ("nan", "must be a size"),
        ("inf", "must be a size"), ("2 GiB GiB", "must be a size"), ("1XB", "must be a size"), ("", "must be a size"),
        ("383MiB", "at least 384 MiB"), (".5GiB", "must be a size"),
    ):  # fmt: skip
        cases[f"--memory {value!r}"] = option("--memory", value, says=says)
    for value in ("9" * 40 + "GB", "9" * 400, "384MiB"):
        cases[f"--memory {value[:10]}, {len(value)} signs"] = option("--memory", value, says="", codes=ANSWER)
    for value in ("0", "1", "-1", "2", "95", "nan", "inf", "1e-400"):
        cases[f"--level {value}"] = option("--level", value, says="level must be")
    for value, says in (("1", ">= 2"), ("0", ">= 2"), ("-5", ">= 2"), ("99999999", "at most 10,000"), ("59", "rows")):
        cases[f"--windows {value}"] = option("--windows", value, says=says)
    for value in ("-1", "9" * 30):
        cases[f"--seed {value}"] = option("--seed", value, says="seed must be")
    for words, says in (
        (("--headline", "Magic"), "no estimate named"), (("--estimators", "Magic"), "unknown estimator 'Magic'"),
        (("--threshold", "drift"), "--threshold must be"), (("--threshold", "drift=x"), "--threshold must be"),
        (("--threshold", "=1"), "threshold"), (("--threshold", "drift=nan,nan"), "drift"),
        (("--reward", "\x1b[31m"), r"no column '\\x1b\[31m'"), (("--contexts", "x_\u202e*"), r"matches 'x_\\u202e\*'"),
        (("--config", "none.toml"), "there is no file"), (("--config", "."), "there is no file"),
        (("--actions", "none.csv"), "there is no file"), (("--actions", "."), "lists 0 more than once"),
        (("--logging", "logging"), "is circular"),
        (("--logging", "dense:pi"), "disagree"), (("--out", "report.pdf"), "ends in .html"),
        (("--out", "none/report.html"), "there is no folder"), (("--predictions", "x_0"), "numbers per row"),
        (("--predictions", "none+x_0"), "has no column 'none'"), (("--segment", "none"), "has no column 'none'"),
    ):  # fmt: skip
        cases[" ".join(words)] = option(*words, says=says)
    for word in ("--format", "--magic", "--n-actions"):
        cases[f"{word} alone"] = option(word, says="", codes=USAGE)
    for lift, says in (
        ("0", "must be a positive number"), ("-1%", "must be a positive number"), ("nan", "must be a positive number"),
        ("inf", "must be a positive number"), ("1e-300", "lift must be between"), ("5e-324", "lift must be between"),
        ("1e300", "lift must be between"), ("x", "must be a percentage"), ("", "must be a percentage"),
        ("1e-300%", "lift must be between"), ("%", "must be a percentage"),
    ):  # fmt: skip
        cases[f"--lift {lift!r}"] = Case(
            lambda f, lift=lift: ["plan", parquet(f), "--policy", "uniform", f"--lift={lift}"], REFUSED, says
        )
    cases["--lift 1e-30"] = Case(lambda f: ["plan", parquet(f), "--policy", "uniform", "--lift", "1e-30"], ANSWER)
    for words, says in (
        (("--rows", "0"), "rows"), (("--rows", "9" * 25), "at most"), (("--power", "2"), "level must be|power"),
        (("--exploration", "2"), "exploration"), (("--exploration", "nan"), "exploration"),
    ):  # fmt: skip
        cases["plan " + " ".join(words)] = Case(
            lambda f, words=words: ["plan", parquet(f), "--policy", "uniform", *words], REFUSED, says
        )
    for value, says in (("1", ">= 2"), ("99999999", "at most 10,000"), ("59", "")):
        cases[f"--blocks {value}"] = Case(
            lambda f, value=value: ["audit", parquet(f), "--blocks", value], REFUSED if says else (0, 1, 3), says
        )
    for words, says in (
        (("--actions", "1000000000"), "n_actions must be at most"), (("--rows", "99999999999"), "n must be at most"),
        (("--context-dim", "99999999"), "context_dim must be at most"), (("--actions", "0"), "n_actions must be"),
        (("--rows", "1"), "n must be"), (("--noise", "nan"), "reward_std must be"), (("--epsilon", "2"), "epsilon"),
        (("--gamma", "inf"), "gamma must be finite"), (("--rows", "900000000"), "would take"),
        (("--seed", "-1"), "seed must be"),
    ):  # fmt: skip
        cases["simulate " + " ".join(words)] = Case(
            lambda f, words=words: ["simulate", str(f / "log.npz"), *words], REFUSED, says
        )
    return cases


SPECS = {
    "": "empty text", ":": "unknown kind", "choice:": "say of which column", "choice": "neither a column",
    "chioce:best": "unknown kind", "choice:none": "has no column 'none'", "choice:best,epsilon=": "must be a number",
    "choice:best,epsilon=nan": "epsilon must be in", "choice:best,epsilon=1e999": "epsilon must be in",
    "choice:best,epsilon=0.1,epsilon=0.2": "given twice", "choice:best,rest=error": "has no option 'rest'",
    "choice:pi": "must hold whole numbers or text", "dense:best": "gives 1 numbers per row",
    "dense:p": "gives 1 numbers per row", "dense:x_*": "there must be one column for each of", "dense:*": "action",
    "dense:none_*": "no column of .* matches", "dense:pi+p": "gives 4 numbers per row",
    "topk:pi": "needs two columns of lists", "topk:pi+pi+pi": "needs two columns of lists",
    "topk:pi+pi": "whole numbers or text", "topk:best+p": "must hold lists", "topk:pi+pi,rest=magic": "rest must be",
    "softmax:pi,temperature=0": "temperature must be", "softmax:pi,temperature=nan": "temperature must be",
    "softmax:pi,temperature=-1": "temperature must be", "greedy:pi,epsilon=-1": "epsilon must be",
    "table:none.csv": "there is no file none.csv", "none.parquet": "there is no file none.parquet",
    "table:.": "must hold numbers", "python:": "python:MODULE:ATTRIBUTE", "python:os": "python:MODULE:ATTRIBUTE",
    "python:none_such:x": "importing none_such failed", "python:math:none": "has no attribute", "logging:x": "",
    "python:math:pi": "expected a function of contexts", "probability:best": "is not in \\[0, 1\\]",
    "probability:reward,epsilon=1": "has no option", "best": "can mean two things", "\x1b[2J": r"\\x1b\[2J",
    "choice:\u202ebest": r"\\u202ebest", "uniform,epsilon=1": "neither|unknown|option", "python:..:x": "importing",
}  # fmt: skip


def specs() -> dict[str, Case]:
    return {f"policy {spec!r}": option(says=says, policy=spec) for spec, says in SPECS.items()}


MODULE = """
import os, sys
import numpy as np

class Model:
    classes_ = [0, 1, 2]
    def __init__(self, answer): self.answer = answer
    def predict_proba(self, x): return self.answer(x)

right = Model(lambda x: np.full((len(x), 3), 1 / 3))
narrow = Model(lambda x: np.full((len(x), 2), 1 / 2))
wide = Model(lambda x: np.full((len(x), 4), 1 / 4))
short = Model(lambda x: np.full((max(1, len(x) - 1), 3), 1 / 3))
quits = Model(lambda x: sys.exit(0))
def leaves(x): sys.exit(0)
def leaves_with_words(x): sys.exit("bye")
def raises(x): raise ValueError("\\x1b[31mred\\x1b]0;title\\x07 \\u202egnp.exe")
def runs_out(x): raise MemoryError
def recurses(x): return recurses(x)
def stops(x): raise StopIteration
def none(x): return None
def texts(x): return [["a", "b", "c"]] * len(x)
def nan(x): return np.full((len(x), 3), np.nan)
def infinite(x): return np.full((len(x), 3), np.inf)
def negative(x): return np.tile([1.5, -0.25, -0.25], (len(x), 1))
def sums(x): return np.full((len(x), 3), 0.5)
def flat(x): return np.full(3, 1 / 3)
def more(x): return np.full((len(x), 4), 0.25)
def complex_(x): return np.full((len(x), 3), 1j)
def ragged(x): return [[1.0], [0.5, 0.5]]
class Untrained:
    def predict_proba(self, x): return x
untrained = Untrained()
class Strange:
    classes_ = [0, 1, 7]
    def predict_proba(self, x): return x
strange = Strange()
class Hard:
    def __getattr__(self, name): raise SystemExit(0)
"""

CALLS = {
    "narrow": "must give one probability for each of the 3 classes_", "wide": "must give one probability for each",
    "short": "must give one probability for each", "quits": "failed on contexts .*SystemExit",
    "leaves": "failed on contexts .*SystemExit", "leaves_with_words": "SystemExit: bye",
    "raises": r"ValueError: \\x1b\[31mred\\x1b\]0;title\\x07 \\u202egnp", "runs_out": "MemoryError",
    "recurses": "RecursionError", "stops": "StopIteration", "none": "failed|shape", "texts": "must give prob",
    "nan": "must be >= 0 and not NaN", "infinite": "must sum to 1", "negative": "must be >= 0", "sums": "must sum to 1",
    "flat": "expected probabilities of shape", "more": "expected probabilities of shape",
    "complex_": "failed on contexts", "ragged": "failed on contexts", "untrained": "is the model trained",
    "strange": "expected actions of the log", "Model": "is a Model class", "missing": "has no attribute",
}  # fmt: skip
IMPORTS = {
    "import sys\nsys.exit(0)": "SystemExit", "raise SystemExit": "SystemExit", "1 / 0": "ZeroDivisionError",
    "def f(x:": "SyntaxError", "import none_such": "none_such", "raise MemoryError": "MemoryError",
}  # fmt: skip


def objects() -> dict[str, Case]:
    """Code of the user that fails, or tries to end the process with the exit code of a good answer."""
    cases = {}
    for number, (name, says) in enumerate(CALLS.items()):

        def make(folder: Path, name: str = name, number: int = number) -> list[str]:
            raw(folder, MODULE, f"hostile_{number}.py")
            return ["evaluate", parquet(folder), "--policy", f"python:hostile_{number}:{name}", "--no-learn", "--gate"]

        cases[f"python: {name}"] = Case(make, REFUSED, says)
    for number, (content, says) in enumerate(IMPORTS.items()):

        def imported(folder: Path, content: str = content, number: int = number) -> list[str]:
            raw(folder, content, f"importing_{number}.py")
            return ["evaluate", parquet(folder), "--policy", f"python:importing_{number}:x", "--no-learn", "--gate"]

        cases[f"import: {content!r}"] = Case(imported, REFUSED, says)
    return cases


JSON_CELLS = (
    "[0.2,0.3,0.5],[0.2", "[[0.2,0.3],[0.5]]", "[" * 3000, "{}", "3", '"a"', "[0.2,0.3,0.5", "0.2,0.3,0.5]",
    "[0.2;0.3]", "[0.2,0.3,0.5]]", "[1e999,0,0]", "[NaN,0.5,0.5]", "[-1,1,1]", "[]", "[1]", "null", "",
    "[null,null,null]",    '["a","b","c"]', "[99999999999999999999999,0,0]", "[0.2,0.3,0.5]\x00", "nan",
)  # fmt: skip


def json_cells() -> dict[str, Case]:
    """Damage in one cell of lists: an error, and never a list of a neighbour."""
    return {
        f"a list of {cell[:20]!r}, {len(cell)} signs": of(
            lambda f, cell=cell: text(f, **one("pi", cell)), REFUSED, "'pi'|dense:pi|log.csv", policy="dense:pi"
        )
        for cell in JSON_CELLS
    }


SIGNS = {
    "escape": "\x1b[31m", "title": "\x1b]0;owned\x07", "bell": "\x07", "backspace": "a\x08", "return": "a\rb",
    "override": "\u202egnp", "isolate": "\u2066x", "mark": "\u200fx", "c1": "\x9b31m", "no width": "a\u200bb",
    "line": "a\u2028b", "delete": "a\x7f",
}  # fmt: skip


def signs() -> dict[str, Case]:
    """Labels that a terminal would obey: written out in every form."""
    cases = {}
    for name, sign in SIGNS.items():
        for form in ("table", "markdown"):
            labels = [f"{sign}{at % 2}" for at in range(N)]
            cases[f"{name} in a segment, {form}"] = of(
                lambda f, labels=labels: parquet(f, segment=labels), ANSWER, "", "--format", form, policy="uniform"
            )
        cases[f"{name} in a reward"] = of(lambda f, sign=sign: text(f, **one("reward", f"{sign}x")), REFUSED, "log.csv")
        cases[f"{name} in a column's name"] = of(
            lambda f, sign=sign: parquet(f, reward=..., **{f"{sign}x": columns()["reward"]}), REFUSED, "no column"
        )
    return cases


FORMATS = ("parquet", "arrow", "arrows", "csv", "csv.gz", "npz")


@cache
def written(form: str) -> bytes:
    """A log that is right, as the bytes of a file."""
    import io

    table = pa.table(columns(pi=...))
    out = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, out, write_page_checksum=True)
    elif form == "npz":
        given = columns()
        np.savez(out, actions=given["action"], rewards=given["reward"], target=np.full((N, 3), 1 / 3))
    elif form.startswith("csv"):
        import pyarrow.csv

        pyarrow.csv.write_csv(table, out)
    else:
        new = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with new(out, table.schema) as writer:
            writer.write_table(table)
    return gzip.compress(out.getvalue(), mtime=0) if form == "csv.gz" else out.getvalue()


def _in_a_page(content: bytes) -> int:
    """The place of a byte that is the data of a page."""
    chunk = pq.read_metadata(pa.BufferReader(content)).row_group(0).column(1)
    return chunk.data_page_offset + chunk.total_compressed_size - chunk.total_compressed_size // 4


def damaged() -> dict[str, Case]:
    """Files that are cut, or whose ending is not theirs: one line that names the file."""
    cases = {}

    def read(content: bytes, form: str) -> Callable[[Path], list[str]]:
        policy = [] if form == "npz" else ["--policy", "uniform"]
        return lambda f: ["evaluate", raw(f, content, f"log.{form}"), *policy, "--no-learn"]

    for form in FORMATS:
        whole = written(form)
        for share in (0.02, 0.3, 0.6, 0.9, 0.97):
            cut = whole[: max(1, int(share * len(whole)))]
            codes = REFUSED if form not in ("csv", "arrows") else (0, 1, 3)  # rows may end where the file does
            cases[f"{form} cut at {share:.0%}"] = Case(read(cut, form), codes, "log" if codes == REFUSED else "")
        for name, content in {"nothing": b"", "zeros": bytes(500), "text": b"hello", "a line": b"\n"}.items():
            cases[f"{form} of {name}"] = Case(read(content, form), REFUSED, f"log.{form}")
        for other in FORMATS:
            if other != form and not (form.startswith("arrow") and other.startswith("arrow")):
                cases[f"{other} named {form}"] = Case(read(written(other), form), REFUSED, f"log.{form}")
    body = bytearray(written("parquet"))
    body[_in_a_page(written("parquet"))] ^= 1
    cases["a flipped bit in a page with a checksum"] = Case(read(bytes(body), "parquet"), REFUSED, "CRC checksum")
    for name, encoding in (("UTF-16", "utf-16"), ("UTF-16, big", "utf-16-be"), ("Latin-1", "latin-1")):
        content = written("csv").decode().replace("best", "b\xe9st").encode(encoding)
        mark = b"\xfe\xff" if encoding.endswith("be") else b""
        cases[f"text in {name}"] = Case(read(mark + content, "csv"), REFUSED, "Save the file as UTF-8")
    cases["text with a mark of UTF-8"] = Case(read(b"\xef\xbb\xbf" + written("csv"), "csv"), ANSWER)
    cases["text with returns"] = Case(read(written("csv").replace(b"\n", b"\r\n"), "csv"), ANSWER)
    cases["text with an open quote"] = Case(read(written("csv") + b'"', "csv"), REFUSED, "log.csv")
    return cases


TABLES = (extremes, ids, tomls, options, specs, objects, json_cells, signs, damaged)
