"""Bad input through the command line: one clear message with the place, exit code 1 or 2, never a traceback."""

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cael.cli import main

N = 8


def good(**changes: Any) -> pd.DataFrame:
    """A small log that is right, but for the changes; a column set to ... is left out."""
    columns: dict[str, Any] = {
        "decision_id": [f"d{i}" for i in range(N)],
        "action": [0, 1, 2, 0, 1, 2, 0, 1],
        "reward": [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
        "propensity": [0.5, 0.25, 0.25] * 2 + [0.5, 0.25],
        "x_0": np.arange(N) / 4,
        "pi": [[0.2, 0.3, 0.5]] * N,
        "top": [[0, 1]] * N,
        "chance": [[0.6, 0.4]] * N,
        "best": [2, 1, 0, 2, 1, 0, 2, 1],
        "p": [0.5] * N,
        "pi_0": 0.2,
        "pi_1": 0.3,
        "pi_2": 0.5,
    }
    return pd.DataFrame({name: value for name, value in {**columns, **changes}.items() if value is not ...})


def changed(column: str, row: int, value: Any) -> pd.DataFrame:
    values = list(good()[column])
    values[row] = value
    return good(**{column: values})


def at(folder: Path, frame: pd.DataFrame, name: str = "log.parquet") -> str:
    path = folder / name
    if name.endswith(".csv"):
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return str(path)


def raw(folder: Path, content: bytes | str, name: str = "log.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def long(folder: Path, **changes: Any) -> str:
    """A long table of a policy, with changes."""
    columns = {
        "decision_id": [f"d{i}" for i in range(N) for _ in range(3)],
        "action": [0, 1, 2] * N,
        "probability": [0.2, 0.3, 0.5] * N,
    }
    frame = {name: value for name, value in {**columns, **changes}.items() if value is not ...}
    pq.write_table(pa.table(frame), folder / "policy.parquet")
    return str(folder / "policy.parquet")


def folder_of(folder: Path, **files: bytes) -> str:
    (folder / "many").mkdir()
    for name, content in files.items():
        (folder / "many" / name.replace("__", ".")).write_bytes(content)
    return str(folder / "many")


def parts(folder: Path, *frames: pd.DataFrame) -> str:
    (folder / "many").mkdir()
    for number, frame in enumerate(frames):
        frame.to_parquet(folder / "many" / f"part-{number}.parquet")
    return str(folder / "many")


def truncated(folder: Path) -> str:
    path = Path(at(folder, good()))
    path.write_bytes(path.read_bytes()[:-40])
    return str(path)


def damaged(folder: Path) -> str:
    path = Path(at(folder, good()))
    content = bytearray(path.read_bytes())
    content[4:300] = bytes(296)
    path.write_bytes(bytes(content))
    return str(path)


@dataclass(frozen=True)
class Case:
    """make: writes files into a folder and gives the arguments. says: a pattern of the message."""

    make: Callable[[Path], list[str]]
    says: str
    code: int = 1


def log(make: Callable[[Path], str], says: str, *options: str) -> Case:
    """A case about the log alone; the policy is right."""
    return Case(lambda folder: ["evaluate", make(folder), "--policy", "dense:pi", *options], says)


def policy(spec: str | Callable[[Path], str], says: str, frame: pd.DataFrame | None = None, *options: str) -> Case:
    """A case about the policy; the log is right, or as given."""

    def make(folder: Path) -> list[str]:
        chosen = spec if isinstance(spec, str) else spec(folder)
        return ["evaluate", at(folder, good() if frame is None else frame), "--policy", chosen, *options]

    return Case(make, says)


def usage(*arguments: str, says: str) -> Case:
    return Case(lambda folder: list(arguments), says, code=2)


TEXT = "action,reward,propensity,pi\n"
CASES: dict[str, Case] = {
    # files
    "no such file": log(lambda f: str(f / "none.parquet"), "there is no file .*none.parquet"),
    "an unknown ending": log(lambda f: raw(f, "x", "log.xlsx"), r"ending .* must be one of \.parquet"),
    "a folder without files": log(lambda f: folder_of(f), "has no file that ends in .*it has no files"),
    "a folder without tables": log(lambda f: folder_of(f, notes__txt=b"hello"), r"it has notes\.txt"),
    "a folder of several formats": log(
        lambda f: folder_of(f, a__csv=b"x", b__parquet=b"x"), "files of several formats .csv, parquet."
    ),
    "a pattern without a match": log(lambda f: str(f / "*.parquet"), r"no file matches the pattern"),
    "files with different columns": log(
        lambda f: parts(f, good(), good(reward=...)), "differ: .*part-1.parquet has no column 'reward'"
    ),
    "an empty file": log(lambda f: raw(f, ""), r"log\.csv is empty \(0 bytes\)"),
    "a header without rows": log(lambda f: raw(f, TEXT), "has no rows"),
    "a Parquet file without rows": log(lambda f: at(f, good().iloc[:0]), "has no rows"),
    "one row": log(lambda f: at(f, good().iloc[:1]), "the log has one row"),
    "truncated Parquet": log(truncated, "log.parquet cannot be read: .*broken or incomplete"),
    "damaged Parquet": log(damaged, "log.parquet cannot be read: .*broken or incomplete"),
    "text named Parquet": log(lambda f: raw(f, TEXT, "log.parquet"), "cannot be read: .*ending does not say"),
    "truncated gzip": log(
        lambda f: raw(f, gzip.compress(os.urandom(2000))[:500], "log.csv.gz"), "log.csv.gz cannot be read"
    ),
    "no gzip at all": log(lambda f: raw(f, TEXT, "log.csv.gz"), "log.csv.gz cannot be read"),
    "broken Arrow": log(lambda f: raw(f, b"ARROW1\0\0junk", "log.arrow"), "log.arrow cannot be read"),
    "broken npz": log(lambda f: raw(f, b"PK junk", "log.npz"), "is not an .npz file of plain arrays"),
    "an empty npz": log(lambda f: raw(f, b"", "log.npz"), "is not an .npz file of plain arrays"),
    "a policy of text in an npz": Case(
        lambda f: [
            "evaluate",
            np.savez(f / "log.npz", actions=[0, 1], rewards=[1.0, 0.0], target=["a", "b"]) or str(f / "log.npz"),
        ],
        "policy 'target' must be an array of numbers; got <U1",
    ),
    "a policy that is no npy": Case(
        lambda f: [
            "evaluate",
            np.savez(f / "log.npz", actions=[0, 1], rewards=[1.0, 0.0]) or str(f / "log.npz"),
            "--policy",
            raw(f, b"junk", "policy.npy"),
        ],
        "is not an .npy file of a plain array",
    ),
    "columns of an npz": Case(
        lambda f: [
            "evaluate",
            np.savez(f / "log.npz", actions=[0, 1], rewards=[1.0, 0.0], target=[0.5, 0.5]) or str(f / "log.npz"),
            "--drop-invalid",
        ],
        "drop_invalid does not go with an .npz log",
    ),
    "a pickle in an npz": log(
        lambda f: np.savez(f / "log.npz", actions=np.array([{}], dtype=object)) or str(f / "log.npz"),
        "is not an .npz file of plain arrays",
    ),
    "rows of mixed lengths": log(lambda f: raw(f, TEXT + "0,1,0.5,0\n1,1\n"), "Row #3: Expected 4 columns, got 2"),
    "not UTF-8, in the actions": log(
        lambda f: raw(f, (TEXT + "é,1,0.5,0\nb,0,0.5,1\n").encode("latin-1")),
        "'action' holds binary|log.csv is not valid UTF-8 text: .* invalid UTF8 data",
    ),
    "not UTF-8, in the names of columns": log(
        lambda f: raw(f, "é,reward\na,1\nb,0\n".encode("latin-1")), "names of the columns are not valid UTF-8"
    ),
    "UTF-16": log(
        lambda f: raw(f, (TEXT + "a,1,0.5,0\nb,0,0.5,1\n").encode("utf-16")), "log.csv is UTF-16 text: expected UTF-8"
    ),
    "a column twice": log(lambda f: raw(f, "action,reward,reward\n0,1,1\n1,0,0\n"), "two columns named 'reward'"),
    # columns
    "no reward": log(lambda f: at(f, good(reward=...)), r"no column for the reward: .*--reward"),
    "no action": log(lambda f: at(f, good(action=...)), r"no column for the action: .*--action"),
    "a column that is not there": log(
        lambda f: at(f, good()), "has no column 'clicks'; it has 'decision_id', 'action'", "--reward", "clicks"
    ),
    "a context that is not there": log(lambda f: at(f, good()), "has no column 'age'", "--contexts", "age"),
    "a pattern that matches nothing": log(lambda f: at(f, good()), "no column of .* matches 'u_", "--contexts", "u_*"),
    "the reward as a context": log(
        lambda f: at(f, good()), "'reward' is the reward and cannot be a context", "--contexts", "x_0", "reward"
    ),
    "a reward that is text": log(
        lambda f: at(f, changed("reward", 3, "yes").astype({"reward": str}), "log.csv"),
        r"'reward' is not a number, such as 'yes', in 1 row \(row 3\)",
    ),
    "a reward that is a list": log(
        lambda f: at(f, good(reward=[[1.0]] * N)), "'reward' must hold numbers; it holds list"
    ),
    "a missing reward": log(lambda f: at(f, changed("reward", 2, None)), r"'reward' is missing in 1 row \(row 2\)"),
    "NaN rewards": log(
        lambda f: at(f, good(reward=[np.nan] * 3 + [1.0] * 5)),
        r"3 of 8 rows .*'reward' is missing in 3 rows \(rows 0, 1, 2\)",
    ),
    "an infinite reward": log(lambda f: at(f, changed("reward", 4, np.inf)), r"'reward' is infinite, such as inf"),
    "every reward the same": log(lambda f: at(f, good(reward=1.0)), "every one of the 8 rewards is 1"),
    "a missing action": log(lambda f: at(f, changed("action", 5, None)), r"'action' is missing in 1 row \(row 5\)"),
    "an action of 1.5": log(lambda f: at(f, changed("action", 5, 1.5)), "whole numbers or text; .*for example 1.5"),
    "an action beyond n_actions": log(
        lambda f: at(f, good()), r"'action' is not in 0..1, such as 2, in 2 rows \(rows 2, 5\)", "--n-actions", "2"
    ),
    "n_actions with text": log(
        lambda f: at(f, good(action=list("abcabcab"))),
        "n_actions=3 goes with actions that are numbers",
        "--n-actions",
        "3",
    ),
    "n_actions of 0": log(lambda f: at(f, good()), "n_actions must be a whole number >= 1", "--n-actions", "0"),
    "a propensity of 0": log(
        lambda f: at(f, changed("propensity", 1, 0.0)), r"'propensity' is not above 0, such as 0.0, in 1 row \(row 1\)"
    ),
    "a negative propensity": log(lambda f: at(f, changed("propensity", 1, -0.1)), "is not above 0, such as -0.1"),
    "a propensity above 1": log(
        lambda f: at(f, changed("propensity", 6, 1.2)), r"above 1, such as 1.2, in 1 row \(row 6\)"
    ),
    "a missing propensity": log(lambda f: at(f, changed("propensity", 6, None)), r"'propensity' is missing in 1 row"),
    "duplicated decisions": log(
        lambda f: at(f, changed("decision_id", 4, "d1")), r"'decision_id' repeats the id .* in 1 row \(row 4\)"
    ),
    "a missing decision id": log(lambda f: at(f, changed("decision_id", 4, None)), "'decision_id' is missing in 1 row"),
    "a context that is infinite": log(
        lambda f: at(f, changed("x_0", 7, np.inf)), r"'x_0' is infinite, such as inf, in 1 row \(row 7\)"
    ),
    "context lists of mixed lengths": log(
        lambda f: at(f, good(x=[[1.0, 2.0]] * 7 + [[1.0]])), r"'x' has another number of entries than 2, such as 1"
    ),
    "a context with too many categories": log(
        lambda f: at(f, pd.concat([good()] * 20).assign(x_0=[f"u{i}" for i in range(160)], decision_id=range(160))),
        "text with 160 different values, more than 100",
    ),
    "a time that is none": log(lambda f: at(f, good(time=["noon"] * N)), "'time' must hold times .*for example 'noon'"),
    "one cluster": log(lambda f: at(f, good(user_id="u")), "all rows are in one cluster"),
    "every row is invalid": log(lambda f: at(f, good(reward=np.nan)), "every one of the 8 rows", "--drop-invalid"),
    "an action table without actions": log(
        lambda f: at(f, good(), "t.csv") and at(f, good()), "needs a column 'action'", "--actions", "{f}/no_action.csv"
    ),
    "an action that the action table lacks": log(
        lambda f: at(f, good()), r"'action' is not in the actions of .*two.csv, such as 2", "--actions", "{f}/two.csv"
    ),
    "an action table with a repeat": log(
        lambda f: at(f, good()), r"lists 1 more than once \(rows 1, 2\)", "--actions", "{f}/repeat.csv"
    ),
    # logging policies
    "propensities and logging disagree": log(
        lambda f: at(f, good()), "propensities and logging disagree on", "--logging", "dense:pi"
    ),
    "a logging policy that excludes a logged action": log(
        lambda f: at(f, good(propensity=...)), "gives the logged action probability 0", "--logging", "choice:best"
    ),
    "the logging policy defined by itself": log(lambda f: at(f, good()), "is circular", "--logging", "logging"),
    # policies
    "a policy that does not exist": policy("magic", "'magic' is neither a column .* nor one of the kinds"),
    "an unknown kind of policy": policy("chioce:best", "unknown kind of policy 'chioce'"),
    "an ambiguous column": policy("best", "can mean two things. Say probability:best .* choice:best"),
    "a policy of a missing column": policy("choice:worst", "has no column 'worst'"),
    "an unknown option of a policy": policy("choice:best,eps=0.1", "'choice' has no option 'eps'; it takes epsilon"),
    "an option that is no number": policy("choice:best,epsilon=some", "epsilon of a policy must be a number"),
    "an impossible epsilon": policy("choice:best,epsilon=2", r"epsilon must be in \[0, 1\]; got 2"),
    "an impossible temperature": policy("softmax:pi,temperature=0", "temperature must be a positive number"),
    "an unknown rest rule": policy("topk:top+chance,rest=drop", "rest must be one of error, uniform, renormalise"),
    "a choice that is no action": policy(
        "choice:best", r"'best' is not among the actions .*such as 9, in 1 row \(row 3\)", changed("best", 3, 9)
    ),
    "a missing choice": policy("choice:best", r"'best' is missing in 1 row", changed("best", 3, None)),
    "a probability above 1": policy("probability:p", r"'p' is not in \[0, 1\], such as 1.5", changed("p", 1, 1.5)),
    "a missing probability": policy("p", "'p' is missing in 1 row", changed("p", 1, None)),
    "probabilities that do not sum to one": policy(
        "dense:pi", r"sum to 1 .*row 2 has 0.9", changed("pi", 2, [0.2, 0.2, 0.5])
    ),
    "a negative probability": policy("dense:pi", ">= 0 and not NaN; row 2", changed("pi", 2, [-0.2, 0.7, 0.5])),
    "lists of mixed lengths": policy("dense:pi", "another number of entries than 3", changed("pi", 2, [0.5, 0.5])),
    "lists of the wrong length": policy(
        "dense:pi", r"gives 4 numbers per row, but there are 3 actions.*--n-actions", good(pi=[[0.25] * 4] * N)
    ),
    "a NaN in a list": policy("dense:pi", r"has an entry that is missing in 1 row", changed("pi", 2, [0.2, None, 0.5])),
    "a dense policy that is text": policy(
        "dense:country", "'country' is not a number, such as 'a', in 8 rows", good(country=list("abcabcab"))
    ),
    "lists for actions that are names": policy(
        "dense:pi",
        "the actions are names, of which the log says no order: 'a', 'b', 'c' .*action table",
        good(action=list("abcabcab")),
    ),
    "columns that miss an action": policy("dense:pi_*", "there is no column pi_1", good(pi_1=...)),
    "columns of no action": policy("dense:pi_*", "pi_7 is not an action", good(pi_7=0.1)),
    "a top-k list with a stranger": policy(
        "topk:top+chance",
        r"an entry that is not among the actions .*such as 9, in 1 row \(row 0\)",
        changed("top", 0, [0, 9]),
    ),
    "a top-k list that leaves mass over": policy(
        "topk:top+chance", "must sum to 1; row 5 has 0.5.*rest='uniform'", changed("chance", 5, [0.4, 0.1])
    ),
    "a top-k list with a repeat": policy("topk:top+chance", "listed twice; row 1", changed("top", 1, [0, 0])),
    "top-k lists of different lengths": policy(
        "topk:top+chance", "lists of different lengths, such as 2 and 1", changed("chance", 5, [1.0])
    ),
    "top-k with one column": policy("topk:top", "needs two columns of lists"),
    "a long table without decisions of the log": policy(
        lambda f: long(f, decision_id=[f"e{i}" for i in range(N) for _ in range(3)]), "no row for 8 of the 8 decisions"
    ),
    "a long table without probabilities": policy(lambda f: long(f, probability=...), "needs a column 'probability'"),
    "a long table with an unknown action": policy(
        lambda f: long(f, action=[0, 1, 5] * N), r"'action' is not among the actions .*such as 5, in 8 rows"
    ),
    "a long table that repeats an action": policy(
        lambda f: long(f, decision_id=...), "lists action 0 more than once. .*column of decision ids"
    ),
    "a long table for a log without ids": policy(
        lambda f: long(f), r"the log has no column for their ids. Name it with id=", good(decision_id=...)
    ),
    "a long table that does not sum to one": policy(
        lambda f: long(f, probability=[0.2, 0.3, 0.4] * N), "must sum to 1; row 0 has 0.9"
    ),
    "a policy file that is not there": policy("table:none.parquet", "there is no file none.parquet"),
    "no such module": policy("python:no_such_module_x:f", "importing no_such_module_x failed: ModuleNotFoundError"),
    "no such attribute": policy("python:math:nothing", "math has no attribute 'nothing'"),
    "an object that is no policy": policy("python:math:pi", "is a float: expected a function of contexts"),
    "half a Python name": policy("python:math", "expected python:MODULE:ATTRIBUTE"),
    "a function that fails": policy("python:json:loads", "policy python:json:loads failed on contexts of shape"),
    "a function of the wrong shape": policy("python:numpy:exp", "expected probabilities of shape"),
    # options
    "an unknown estimator": policy(
        "dense:pi", "unknown estimator 'Magic'; there are: LoggedMean", None, "--estimators", "Magic"
    ),
    "an estimator that cannot be computed": policy(
        "p", "DR needs the target's probabilities", None, "--estimators", "DR"
    ),
    "an impossible level": policy("dense:pi", "level must be", None, "--level", "95"),
    "two policies of one name": Case(
        lambda f: ["compare", at(f, good()), "--policy", "a=dense:pi", "--policy", "a=choice:best"],
        "two policies are named 'a'",
    ),
    "a configuration that is not there": policy(
        "dense:pi", "there is no file none.toml", None, "--config", "none.toml"
    ),
    "a configuration that is no TOML": policy("dense:pi", "is not a TOML file", None, "--config", "{f}/broken.toml"),
    "a configuration with an unknown option": policy(
        "dense:pi", "unknown option 'rewad'; there are: ", None, "--config", "{f}/typo.toml"
    ),
    "a report that is no HTML": policy("dense:pi", "ends in .html; got 'report.pdf'", None, "--out", "report.pdf"),
    "a report into no folder": policy("dense:pi", "there is no folder none", None, "--out", "none/report.html"),
    "a headline that was not computed": policy("dense:pi", "no estimate named 'MIPS'", None, "--headline", "MIPS"),
    "windows of one": policy("dense:pi", "windows must be a whole number >= 2", None, "--windows", "1"),
    "segments that are too small": policy(
        "dense:pi", "rows", good(country=[f"c{i}" for i in range(N)]), "--segment", "country"
    ),
    "a calibration without all probabilities": policy(
        "p", "calibrate needs the target's probabilities of all", None, "--calibrate"
    ),
    "an audit of too few rows": Case(lambda f: ["audit", at(f, good())], "needs at least 20 rows, .*the log has 8"),
    "a lift that is no number": Case(
        lambda f: ["plan", at(f, good()), "--policy", "dense:pi", "--lift", "some"],
        "lift must be a percentage such as 1%",
    ),
    "a lift of 0": Case(
        lambda f: ["plan", at(f, good()), "--policy", "dense:pi", "--lift", "0%"], "lift must be a positive number"
    ),
    "a plan without propensities": Case(
        lambda f: ["plan", at(f, good()), "--policy", "dense:pi", "--logging", "none"],
        "plan needs the logged propensities",
    ),
    "no command": usage("magic", says="magic"),
    "no log": usage("evaluate", says="log"),
    "no policy": usage("compare", "log.parquet", says="policy"),
    "an unknown flag": usage("evaluate", "log.parquet", "--rewrad", "x", says="rewrad"),
    "a level that is no number": usage("evaluate", "log.parquet", "--level", "high", says="level"),
    "an unknown format": usage("evaluate", "log.parquet", "--format", "pdf", says="pdf"),
}


def test_there_are_more_than_forty_kinds():
    assert len(CASES) > 90


def prepare(case: Case, folder: Path) -> list[str]:
    (folder / "no_action.csv").write_text("name,weight\nx,1\n")
    (folder / "two.csv").write_text("action,weight\n0,1.0\n1,2.0\n")
    (folder / "repeat.csv").write_text("action,weight\n0,1.0\n1,2.0\n1,2.0\n2,1\n")
    (folder / "broken.toml").write_text("level = = 2\n")
    (folder / "typo.toml").write_text("rewad = 'click'\n")
    return [each.replace("{f}", str(folder)) for each in case.make(folder)]


@pytest.mark.parametrize("kind", CASES)
def test_bad_input(capsys, tmp_path, kind):
    case = CASES[kind]
    arguments = prepare(case, tmp_path)
    with pytest.raises(SystemExit) as stop:  # anything else would be a traceback
        main(arguments)
    out, err = capsys.readouterr()
    assert stop.value.code == case.code
    assert out == ""
    assert re.search(case.says, " ".join(err.split())), err
    assert "Traceback" not in err
    assert len(err) < 2500


def test_in_a_process_of_its_own(tmp_path):
    """As a user sees it: no traceback, nothing on standard output."""
    command = Path(sys.executable).parent / "cael"
    done = subprocess.run(
        [command, "evaluate", truncated(tmp_path), "--policy", "dense:pi"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_the_log_is_good_without_the_change(capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", at(tmp_path, good()), "--policy", "dense:pi"])
    assert stop.value.code in (0, 3), capsys.readouterr().err


def test_nothing_is_executed_unless_it_is_named(tmp_path, monkeypatch, capsys):
    """A module next to the log is not imported, and a bare 'module:attribute' is no policy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text("raise SystemError('executed')\n")
    with pytest.raises(SystemExit):
        main(["evaluate", at(tmp_path, good()), "--policy", "trap:policy"])
    assert "unknown kind of policy 'trap'" in capsys.readouterr().err
    assert "trap" not in sys.modules
