"""Hostile files of policies: tables that say what each action's probability is, and policies that were learned."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import cael
from cael.learning.saved import digest
from tests.hostile.cases import ANSWER, REFUSED, Case, N, columns, raw
from tests.hostile.faults import learnable

EVALUATE = ("--no-learn", "--format", "json")
NAN = float("nan")
IDS = [f"d{at}" for at in range(N)]
ROWS = "".join(f"d{row},{action},{p}\n" for row in range(N) for action, p in enumerate((0.2, 0.3, 0.5)))
TABLES: dict[str, tuple[Callable[[str], str], tuple[int, ...], str]] = {
    "as it should be": (lambda rows: rows, ANSWER, '"n_actions": 3'),
    "an id in capitals": (lambda rows: rows.replace("d5,", "D5,"), REFUSED, "no row for 1 of the 60 decisions .* 'd5'"),
    "an id with a space": (lambda rows: rows.replace("d5,", " d5,"), REFUSED, "no row for 1 of the 60 decisions"),
    "an id in quotes": (lambda rows: rows.replace("d5,", '"d5",'), ANSWER, '"n_actions": 3'),
    "an id too many": (lambda rows: rows + "zz,0,1\n", ANSWER, '"n_actions": 3'),
    "a row twice": (lambda rows: rows + "d5,1,0.3\n", REFUSED, "an action is listed twice; row 5"),
    "a negative one": (lambda rows: rows.replace("d5,0,0.2", "d5,0,-0.2"), REFUSED, r"must be in \[0, 1\]; row 5"),
    "no number": (lambda rows: rows.replace("d5,0,0.2", "d5,0,x"), REFUSED, "'probability' is not a number"),
    "nan": (lambda rows: rows.replace("d5,0,0.2", "d5,0,nan"), REFUSED, "'probability' is missing in 1 row"),
    "inf": (lambda rows: rows.replace("d5,0,0.2", "d5,0,inf"), REFUSED, "'probability' is infinite"),
    "an empty cell": (lambda rows: rows.replace("d5,0,0.2", "d5,0,"), REFUSED, "'probability' is missing in 1 row"),
    "an unknown action": (lambda rows: rows.replace("d5,0,0.2", "d5,9,0.2"), REFUSED, "not among the actions"),
    "actions with a fraction": (lambda rows: rows.replace(",0,0.2", ",0.0,0.2"), REFUSED, "such as '0.0'"),
    "actions with a space": (lambda rows: rows.replace(",0,0.2", ", 0,0.2"), REFUSED, "such as ' 0'"),
    "a sum below 1": (lambda rows: rows.replace("d5,0,0.2", "d5,0,0.199"), REFUSED, "must sum to 1; row 5 has 0.999"),
    "percent": (lambda rows: rows.replace(",0.", ",0.").replace("0.", ""), REFUSED, r"in \[0, 1\]"),
    "an action fewer": (lambda rows: rows.replace("d5,0,0.2\n", ""), REFUSED, "must sum to 1; row 5 has 0.8"),
    "no row": (lambda rows: "", REFUSED, "has no rows"),
    "an id that ends in NUL": (lambda rows: rows.replace("d5,", "d5\x00,"), REFUSED, "ends in the character NUL"),
}


def tables() -> dict[str, Case]:
    """A table of probabilities by decision, with one thing wrong."""
    cases = {}
    for name, (change, codes, says) in TABLES.items():

        def make(folder: Path, change: Any = change) -> list[str]:
            pq.write_table(pa.table(columns(decision_id=IDS)), folder / "log.parquet")
            path = raw(folder, "decision_id,action,probability\n" + change(ROWS), "policy.csv")
            return ["evaluate", str(folder / "log.parquet"), "--policy", f"table:{path}", *EVALUATE]

        cases[f"table of a policy: {name}"] = Case(make, codes, says, printed=codes == ANSWER)
    return cases


@cache
def learned(kind: str) -> str:
    """The file of a policy that was learned."""
    with tempfile.TemporaryDirectory() as folder:
        log = cael.read(pa.table(learnable()))
        return cael.learn(log, candidates=[kind]).save(Path(folder) / "policy.json").read_text()


def array(kind: str, *values: Any, shape: Any = None) -> dict[str, Any]:
    return {"part": "array", "kind": kind, "shape": shape or [len(values)], "values": list(values)}


def in_policy(**entries: Any) -> Callable[[Any], None]:
    return lambda document: document["policy"].update(entries)


def in_rule(**entries: Any) -> Callable[[Any], None]:
    return lambda document: document["policy"]["rule"].update(entries)


def reshaped(document: Any) -> None:
    document["policy"]["rule"]["scorer"]["slope"]["shape"].reverse()


DEEP = {"part": "LearnedPolicy"}
CHANGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "a tree that is a loop": (in_rule(low=array("i8", 0, -1, -1)), "children behind their parents"),
    "a child that is none": (in_rule(low=array("i8", 99, -1, -1)), "children behind their parents"),
    "a child below 0": (in_rule(high=array("i8", -5, -1, -1)), "children behind their parents"),
    "a question about no context": (in_rule(feature=array("i8", 7, -1, -1)), "questions about 1 contexts"),
    "half a question": (in_rule(feature=array("f8", 0.5, -1, -1)), "whole numbers in a tree"),
    "half an action": (in_rule(action=array("i8", -1, 1.5, 1)), "numbers of the kind i8"),
    "an action that is none": (in_rule(action=array("i8", -1, 0, 77)), "actions of a tree among 3"),
    "an action below 0": (in_rule(action=array("i8", -1, -9, 1)), "actions of a tree among 3"),
    "an action beyond 64 bits": (in_rule(action=array("i8", -1, 10**30, 1)), "too large"),
    "a threshold that is none": (in_rule(threshold=array("f8", NAN, 0.0, 0.0)), "finite numbers"),
    "a threshold as text": (in_rule(threshold="x"), "a tree of arrays"),
    "one threshold": (in_rule(threshold=array("f8", 0.1)), "one length of a tree"),
    "no node": (in_rule(**{each: array("i8") for each in ("feature", "low", "high", "action")},
                        threshold=array("f8")), "questions about"),
    "a size beyond memory": (in_rule(threshold=array("f8", shape=[10**12])), "cannot reshape"),
    "a size below 0": (in_rule(threshold=array("f8", 1.0, 2.0, 3.0, shape=[-1])), "a negative size"),
    "an unknown kind of numbers": (in_rule(threshold=array("O", 1.0)), "unknown kind of numbers"),
    "bytes that are none": (in_rule(threshold={**array("f8"), "values": None, "bytes": "@"}), "can be used"),
    "one flag for three actions": (in_rule(allowed=array("b1", True)), "allowed: 3 truth values"),
    "no allowed action": (in_rule(allowed=array("b1", False, False, False)), "allowed: 3 truth values"),
    "no actions": (in_policy(n_actions=0), "n_actions must be"),
    "too many actions": (in_policy(n_actions=10**12), "at most 10,000,000"),
    "a number as text": (in_policy(n_actions="3"), "n_actions must be"),
    "contexts below 0": (in_policy(context_dim=-1), "context_dim must be"),
    "other contexts": (in_policy(context_dim=5), "was learned from 5 contexts|can be used"),
    "a share of 2": (in_policy(share=2), r"share in \[0, 1\]"),
    "a share below 0": (in_policy(share=-1), r"share in \[0, 1\]"),
    "a share as text": (in_policy(share="x"), r"share in \[0, 1\]"),
    "no share": (in_policy(share=None), r"share in \[0, 1\]"),
    "too much exploration": (in_policy(explore=2), r"explore in \[0, 1\]"),
    "endless exploration": (in_policy(explore=float("inf")), r"explore in \[0, 1\]"),
    "two labels": (in_policy(labels=[0, 1]), "3 labels, each once"),
    "labels twice": (in_policy(labels=[0, 0, 1]), "3 labels, each once"),
    "a text of labels": (in_policy(labels="abc"), "3 labels, each once"),
    "labels in another order": (in_policy(labels=[2, 1, 0]), "was learned for the actions 2, 1, 0"),
    "other labels": (in_policy(labels=["a", "b", "c"]), "was learned for the actions 'a', 'b', 'c'"),
    "a context that is a number": (in_policy(contexts=[3]), "contexts as names"),
    "a context of another name": (in_policy(contexts=["y"]), "was learned from the contexts y"),
    "a kind that is a number": (in_policy(kind=3), "the kind as text"),
    "no old policy": (in_policy(old=None), "a rule, and the old policy"),
    "an old policy of 5 actions": (in_policy(old={"part": "Uniform", "n_actions": 5}), "Uniform has 5 actions"),
    "an old policy that sums to 9": (
        in_policy(old={"part": "fixed", "table": array("f8", 0.2, 0.3, 9.0)}), "must sum to 1",
    ),
    "an old policy without parts": (in_policy(old=DEEP), "missing 4 required"),
    "a logging policy that is not known": (in_policy(old={"part": "logging"}), "leans on the logging policy"),
    "no rule": (in_policy(rule=None), "a rule, and the old policy"),
    "a policy for a rule": (in_policy(rule={"part": "Uniform", "n_actions": 3}), "a rule, and the old policy"),
    "a part that is code": (in_policy(rule={"part": "os.system", "command": "true"}), "unknown part 'os.system'"),
    "an entry too many": (in_policy(more=1), "unexpected keyword"),
    "a policy that is a list": (lambda document: document.update(policy=[]), "it is a tuple"),
    "another format": (lambda document: document.update(format="cael.policy/2"), "expected the format cael.policy/1"),
    "no policy": (lambda document: document.pop("policy"), "no file of a learned policy"),
}  # fmt: skip
SCORED: dict[str, tuple[Callable[[Any], None], str]] = {
    "slopes on their side": (reshaped, "fails with ValueError"),
    "a spread below 0": (in_rule(spread=-1), "a spread of 0 or more"),
    "a spread that is none": (in_rule(spread=None), "a spread of 0 or more"),
    "no play": (in_rule(play=None), "fails with"),
    "no scorer": (in_rule(scorer=None), "fails with"),
}
CONTENTS: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "one digit changed": (
        lambda text: text.replace('"values": [-1, 0, 1]', '"values": [-1, 0, 2]'),
        "was changed after",
    ),
    "no checksum": (lambda text: text.replace("sha256", "sha255"), "was changed after"),
    "half of it": (lambda text: text[: len(text) // 2], "no file of a learned policy"),
    "nothing in it": (lambda text: "{}", "no file of a learned policy"),
    "a list": (lambda text: "[1]", "no file of a learned policy"),
    "a number of 5,000 digits": (lambda text: "9" * 5000, "no file of a learned policy"),
    "brackets": (lambda text: "[" * 200_000, "no file of a learned policy"),
    "UTF-16": (lambda text: text.encode("utf-16"), "no file of a learned policy"),
    "a Parquet file": (lambda text: b"PAR1\x92\x00", "no file of a learned policy"),
}


def policies() -> dict[str, Case]:
    """Policies that were learned, with one thing changed: with their checksum made anew, or as it was."""
    cases = {}
    for kind, changes in (("tree", CHANGES), ("linear", SCORED)):
        for name, (change, says) in changes.items():

            def signed(text: str, change: Callable[[Any], None] = change) -> str:
                document = json.loads(text)
                change(document)
                return json.dumps({**document, "sha256": digest(document.get("policy"))})

            cases[f"learned {kind}: {name}"] = read(kind, signed, says)
    return cases | {f"learned tree, {name}": read("tree", change, says) for name, (change, says) in CONTENTS.items()}


def read(kind: str, change: Callable[[str], str | bytes], says: str) -> Case:
    def make(folder: Path) -> list[str]:
        pq.write_table(pa.table(learnable()), folder / "log.parquet")
        path = raw(folder, change(learned(kind)), "policy.json")
        return ["evaluate", str(folder / "log.parquet"), "--policy", f"learned:{path}", *EVALUATE]

    return Case(make, REFUSED, says)


ALL = (tables, policies)
