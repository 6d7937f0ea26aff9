"""More hostile input by the table: text, types, options and files that a reader may wait for."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.cases import ANSWER, REFUSED, USAGE, Case, N, evaluate, of, parquet, raw, text
from tests.hostile.faults import learnable

JSON = ("--format", "json")


def written(content: Callable[[str], str | bytes], name: str = "log.csv") -> Callable[[Path], str]:
    """The log as CSV, with its text changed."""

    def make(folder: Path) -> str:
        return raw(folder, content(Path(text(folder, "right.csv", pi=...)).read_text()), name)

    return make


TEXTS: dict[str, tuple[Callable[[str], str | bytes], tuple[int, ...], str]] = {
    "lines that end in two ways": (lambda t: t.replace("\n", "\r\n", 20), ANSWER, ""),
    "old lines of a Mac": (lambda t: t.replace("\n", "\r"), ANSWER, ""),
    "no end of the last line": (lambda t: t.rstrip("\n"), ANSWER, ""),
    "empty lines": (lambda t: t.replace("\n", "\n\n"), ANSWER, ""),
    "a line of spaces": (lambda t: t + "   \n", REFUSED, "log.csv cannot be read"),
    "a comment": (lambda t: "# of May\n" + t, REFUSED, "log.csv cannot be read"),
    "two marks of UTF-8": (lambda t: b"\xef\xbb\xbf" * 2 + t.encode(), REFUSED, "no column for the action"),
    "UTF-16 without a mark": (lambda t: t.encode("utf-16-le"), REFUSED, "is UTF-16 text"),
    "UTF-16 the other way": (lambda t: t.encode("utf-16-be"), REFUSED, "is UTF-16 text"),
    "UTF-32": (lambda t: t.encode("utf-32"), REFUSED, "is UTF-16 text"),
    "NULs at the end": (lambda t: t + "\x00" * 99, REFUSED, "log.csv cannot be read"),
    "a long row": (lambda t: t + "1," * 8 + "1\n", REFUSED, "Expected 6 columns, got 9"),
    "a short row": (lambda t: t + "1,0.5\n", REFUSED, "Expected 6 columns, got 2"),
    "a header alone": (lambda t: t.splitlines()[0] + "\n", REFUSED, "has no rows: expected at least 2"),
    "one row": (lambda t: "\n".join(t.splitlines()[:2]), REFUSED, "the log has one row"),
    "no header": (lambda t: t.partition("\n")[2], REFUSED, "no column for the action|two columns named"),
    "a header twice": (lambda t: t + t.splitlines()[0] + "\n", REFUSED, "'reward' is not a number, such as 'reward'"),
    "semicolons": (lambda t: t.replace(",", ";"), ANSWER, ""),
    "tabs": (lambda t: t.replace(",", "\t"), REFUSED, "no column for the action"),
    "a name twice": (lambda t: t.replace("x_0", "reward", 1), REFUSED, "two columns named 'reward'"),
    "names with spaces": (lambda t: t.replace(",", ", ", 5), REFUSED, "no column for the reward"),
    "a name with a hidden space": (lambda t: t.replace("reward", "reward\xa0", 1), REFUSED, "no column for the reward"),
    "a page of the web": (lambda t: "<html>404</html>\n" * 5, REFUSED, "no column for the action"),
    "a decimal comma": (lambda t: t.replace("0.637", '"0,637"'), REFUSED, "'reward' is not a number, such as '0,637'"),
    "a sign of money": (lambda t: t.replace("0.637", "$0.637"), REFUSED, "'reward' is not a number"),
    "a hexadecimal number": (lambda t: t.replace("0.637", "0x1p3"), REFUSED, "'reward' is not a number"),
    "a number that is too large": (lambda t: t.replace("0.637", "1e400"), REFUSED, "'reward' is infinite"),
}  # fmt: skip
PACKED: dict[str, tuple[Callable[[bytes], bytes], tuple[int, ...], str]] = {
    "in two parts": (lambda b: gzip.compress(b[:500]) + gzip.compress(b[500:]), ANSWER, ""),
    "with more behind it": (lambda b: gzip.compress(b) + b"more", REFUSED, "log.csv.gz cannot be read"),
    "with zeros behind it": (lambda b: gzip.compress(b) + b"\x00" * 99, REFUSED, "log.csv.gz cannot be read"),
    "that is cut": (lambda b: gzip.compress(b)[:-9], REFUSED, "Truncated compressed stream"),
    "whose checksum is wrong": (lambda b: gzip.compress(b)[:-8] + b"\x00" * 8, REFUSED, "incorrect data check"),
    "packed twice": (lambda b: gzip.compress(gzip.compress(b)), REFUSED, "log.csv.gz"),
    "that is not packed": (lambda b: b, REFUSED, "log.csv.gz cannot be read"),
}


def texts() -> dict[str, Case]:
    """CSV as other programs write it, and as it arrives."""
    cases = {f"CSV with {name}": of(written(make), codes, says) for name, (make, codes, says) in TEXTS.items()}
    for name, (pack, codes, says) in PACKED.items():
        make = written(lambda content, pack=pack: pack(content.encode()), "log.csv.gz")
        cases[f"gzip {name}"] = of(make, codes, says)
    return cases


LABELS = {
    "in Unicode's two forms": ["\xe9", "e\u0301", "E"], "with a space behind": ["a", "a ", "a\xa0"],
    "with a sign that cannot be seen": ["a", "a\u200b", "\ufeffa"],
    "in digits of other scripts": ["1", "\uff11", "\u0661"],
    "like dates": ["2020-01-01", "2020-1-1", "2020-01-01T00:00:00"], "like times": ["0:00", "00:00", "00:00:00"],
    "like truth": ["true", "TRUE", "yes"], "like infinity": ["inf", "Infinity", "1e999"],
    "of 400 digits": ["9" * 400, "9" * 401, "1"], "like hexadecimal numbers": ["0x10", "16", "1_6"],
    "with a comma, a quote and a line in them": ["a,b", 'a"b', "a\nb"],
    "of a NUL in the middle": ["a\x00b", "a\x00c", "b"],
}  # fmt: skip


def labels() -> dict[str, Case]:
    """Three labels stay three, in text and in Parquet; one that numpy would make another is refused."""
    cases = {}
    for name, three in LABELS.items():
        for make in (text, parquet):
            told = [three[at % 3] for at in range(N)]
            cases[f"three labels {name}, {make.__name__}"] = of(
                lambda f, told=told, make=make: make(f, action=told, best=told, pi=...), ANSWER, '"n_actions": 3',
                *JSON, printed=True,
            )  # fmt: skip
    for role in ("action", "user", "decision_id", "segment"):
        for make in (text, parquet):
            told = [f"{at}\x00" if at == 4 else str(at) for at in range(N)]
            cases[f"{role}: a label that ends in NUL, {make.__name__}"] = of(
                lambda f, told=told, make=make, role=role: make(f, **{role: told}, pi=...), REFUSED,
                f"'{role}' has a label that ends in the character NUL", policy="uniform",
            )  # fmt: skip
    cases["segment: a label that says it is missing"] = of(
        lambda f: parquet(f, segment=["(missing)" if at % 2 else None for at in range(N)]), REFUSED,
        "'segment' has the label '\\(missing\\)'", policy="uniform",
    )  # fmt: skip
    return cases


KINDS: dict[str, Callable[[Any], pa.Array]] = {
    "bytes": lambda code: pa.array([bytes([65 + c]) for c in code]),
    "bytes of one length": lambda code: pa.array([bytes([65 + c]) for c in code], pa.binary(1)),
    "mappings": lambda code: pa.array([[("a", int(c))] for c in code], pa.map_(pa.string(), pa.int64())),
    "objects": lambda code: pa.array([{"a": int(c)} for c in code]),
    "lists": lambda code: pa.array([[int(c)] for c in code]),
    "durations": lambda code: pa.array([int(c) for c in code], pa.duration("s")),
    "times of day": lambda code: pa.array([int(c) for c in code], pa.time32("s")),
    "times with a zone": lambda code: pa.array([int(c) for c in code], pa.timestamp("ms", "Europe/Berlin")),
}
LABELLED = ("durations", "times of day", "times with a zone")


def types() -> dict[str, Case]:
    """Types that a role cannot have."""
    cases = {}
    for name, made in KINDS.items():
        for role in ("action", "user", "reward", "propensity", "x_0"):
            if name == "lists" and role == "x_0":
                continue  # an embedding
            fits = name in LABELLED and role in ("action", "user")
            more = {"best": made((np.arange(N) + 1) % 3)} if role == "action" else {}
            cases[f"{role} of {name}"] = of(
                lambda f, role=role, made=made, more=more: parquet(f, **{role: made(np.arange(N) % 3)}, **more),
                ANSWER if fits else REFUSED, "" if fits else f"'{role}' (must hold|holds)", "--contexts", "x_0",
            )  # fmt: skip
    return cases


def numbers() -> dict[str, Case]:
    """Weights and scores at the ends of what a number can be."""
    tiny = {f"probabilities of {p:g}": of(
        lambda f, p=p: parquet(f, p=np.full(N, p)), REFUSED, "the largest importance weight is", policy="probability:p"
    ) for p in (5e-324, 1e-300, 1e-170, 1e-50)}  # fmt: skip
    scores = {
        f"scores of {value:g}, {spec}": of(
            lambda f, value=value: parquet(f, pi=[[value, 0.0, -value]] * N), ANSWER, policy=f"softmax:pi{spec}"
        )
        for value in (1.0, 1e4, 1e308) for spec in ("", ",temperature=1e-320", ",temperature=1e308")
    }  # fmt: skip
    missing = {"x_0": [float("nan")] * N}
    return tiny | scores | {
        "contexts that are all missing": of(lambda f: parquet(f, **missing), REFUSED, "'x_0' is missing in 60 rows"),
        "contexts that are all missing, streamed": of(
            lambda f: parquet(f, **missing), REFUSED, "'x_0' is missing in 60 rows", "--n-actions", "3",
            "--predictions", "p+p",
        ),
        "a context that is nearly all numbers": of(
            lambda f: parquet(f, x_0=[str(at % 30) if at else "x" for at in range(N)]), ANSWER,
            "'x' is not. Each value became a category", "--contexts", "x_0", printed=True,
        ),
    }  # fmt: skip


def strange_numbers() -> dict[str, Case]:
    """Numbers on the command line that Python reads and others do not."""
    cases = {}
    for cell in ("1_0", "\u0661", "\uff11", " 1", "1 ", "0x1", "\xbd", "1,5", "None", "true", ""):
        for name in ("--seed", "--windows", "--level", "--budget", "--no-reward"):
            cases[f"{name} {cell!r}"] = of(parquet, USAGE, "", f"{name}={cell}")
    for cell in ("nan", "inf", "-1", "0"):
        codes, says = (ANSWER, "") if cell == "inf" else (REFUSED, "budget must be a number of seconds")
        cases[f"--budget {cell}, which is not used"] = of(parquet, codes, says, f"--budget={cell}")
    for name, says in (("--predictions", "no column ''"), ("--layout", "unknown layout ''"), ("--dask", "is empty")):
        cases[f"{name} without a value"] = of(parquet, REFUSED, says, f"{name}=")
    return cases


def learn(*words: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        pq.write_table(pa.table(learnable()), folder / "log.parquet")
        (folder / "folder.csv").mkdir()
        (folder / "logs").mkdir()
        pq.write_table(pa.table(learnable()), folder / "logs" / "log.parquet")
        return ["learn", *(word.replace("HERE", str(folder)) for word in words), "--candidates", "best_arm"]

    return make


LEARN = {
    "--decisions HERE/log.parquet": "a file of the log", "--decisions HERE/folder.csv": "is a folder",
    "--decisions HERE/x.json": "ends in .csv or .parquet", "--save HERE/none/x.json": "there is no folder",
    "--save HERE/x.csv": "ends in .json", "--code HERE/x.txt": "ends in .py or .sql",
    "--min-lift 1e308": "min_lift must be between", "--min-lift nan": "min_lift must be between",
    "--min-lift -1": "min_lift must be between", "--explore 1": "explore must be", "--explore nan": "explore must be",
    "--max-changed 0": "max_changed must be", "--max-changed nan": "max_changed must be",
    "--level 0.5": "level must be",
    "--certify 0": "certify", "--certify nan": "certify", "--depth 0": "depth must be", "--budget 0": "budget must be",
    "--max-actions 0": "max_actions must be", "--seed -1": "seed must be",
}  # fmt: skip


def learning() -> dict[str, Case]:
    """`learn` refuses before it works, and never writes over its log."""
    cases = {
        f"learn {words}": Case(learn("HERE/log.parquet", *words.split()), REFUSED, says)
        for words, says in LEARN.items()
    }
    cases["learn into the folder of the log"] = Case(
        learn("HERE/logs", "--decisions", "HERE/logs/new.parquet"), REFUSED, "would be, a file of the log"
    )
    return cases


def waiting() -> dict[str, Case]:
    """What has no end, or no beginning before somebody writes to it, is no file."""
    if not hasattr(os, "mkfifo"):
        return {}

    def pipe(name: str) -> Callable[[Path], str]:
        def make(folder: Path) -> str:
            os.mkfifo(folder / name)
            return str(folder / name)

        return make

    def link(name: str, to: str) -> Callable[[Path], str]:
        def make(folder: Path) -> str:
            (folder / name).symlink_to(to)
            return str(folder / name)

        return make

    made = {f"a pipe named {name}": pipe(name) for name in ("log.csv", "log.parquet", "log.jsonl", "log.npz")}
    made |= {f"zeros without end named {name}": link(name, "/dev/zero") for name in ("log.csv", "log.jsonl", "log.npz")}
    made["a link to itself"] = link("log.csv", "log.csv")
    cases = {name: Case(evaluate(make), REFUSED, "there is no file") for name, make in made.items()}
    for kind, ending in (("learned", "json"), ("table", "csv")):
        for name, make in (("a pipe", pipe(f"policy.{ending}")), ("zeros", link(f"policy.{ending}", "/dev/zero"))):
            cases[f"{name} as a policy of the kind {kind}"] = Case(
                lambda f, make=make, kind=kind: ["evaluate", parquet(f), "--policy", f"{kind}:{make(f)}", "--no-learn"],
                REFUSED, "there is no file",
            )  # fmt: skip
    return cases


ALL = (texts, labels, types, numbers, strange_numbers, learning, waiting)
