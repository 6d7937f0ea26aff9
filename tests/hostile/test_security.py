"""What docs/guide/security.md promises: each promise names a test that exists, and those that have no other home."""

import importlib
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cael
from cael import report
from cael.cli import main, output
from cael.common.visible import HIDDEN, visible
from cael.common.whole import whole_file
from tests.hostile.cases import N, parquet, raw

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guide/security.md"


def test_every_promise_names_a_test_that_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) >= 12
    for path, function in named:
        assert f"def {function}(" in (ROOT / path).read_text(), (path, function)
    rows = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| promise")
    ]
    assert rows and all("`tests/" in row for row in rows)


def test_no_code_is_run_unless_it_is_named(tmp_path, monkeypatch):
    """Modules of the folder, pickles and formulas in cells are not touched; `python:` imports what it names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for name in ("sitecustomize", "cael_plugin", "pandas", "torch", "colorsys", "named_trap"):
        raw(tmp_path, "import pathlib; pathlib.Path('ran').write_text('x')\n", f"{name}.py")
    log = parquet(tmp_path, note=["=cmd|' /C calc'!A0"] * N)
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", log, "--policy", "uniform", "--no-learn"])
    assert stop.value.code in (0, 3)
    np.savez(tmp_path / "log.npz", actions=np.array([{}], dtype=object), rewards=[1.0])
    with pytest.raises(SystemExit):
        main(["evaluate", str(tmp_path / "log.npz")])
    assert not (tmp_path / "ran").exists()
    with pytest.raises(SystemExit):
        main(["evaluate", log, "--policy", "python:named_trap:x", "--no-learn"])
    assert (tmp_path / "ran").exists()
    del sys.modules["named_trap"]
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert str(tmp_path) not in importlib.import_module("colorsys").__file__  # what is installed goes before the folder


def test_nothing_leaves_the_machine(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", parquet(tmp_path), "--policy", "uniform", "--no-learn", "--out", str(tmp_path / "r.html")])
    assert stop.value.code in (0, 3)


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp"


def test_a_report_is_inert(tmp_path):
    names = [f"{HOSTILE}{at % 2}" for at in range(N)]
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", parquet(tmp_path, segment=names), "--policy", "uniform", "--no-learn", "--out",
              str(tmp_path / "r.html")])  # fmt: skip
    assert stop.value.code in (0, 3)
    page = (tmp_path / "r.html").read_text()
    assert "gnp0" in page  # it is there
    assert page.count("<script") == 1  # the one that sorts tables, named by its hash
    assert 'http-equiv="refresh' not in page and not HIDDEN.search(page)
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)


def test_hidden_characters_are_written_out():
    assert visible("a\x1b[0m\u202eb\u200b\x9b\udcff\n\tc") == "a\\x1b[0m\\u202eb\\u200b\\x9b\\udcff\n\tc"
    assert visible("Grüße, 漢字, 🙂") == "Grüße, 漢字, 🙂"
    assert str(cael.InputError("a\x1b")) == "a\\x1b"


def test_a_report_replaces_a_link_and_does_not_follow_it(tmp_path):
    log = cael.read(pd.DataFrame({"action": [0, 1] * 20, "reward": np.arange(40) / 40, "propensity": 0.5}))
    result = cael.evaluate(log, "uniform", learn=False)
    secret, out = tmp_path / "secret", tmp_path / "report.html"
    secret.write_text("mine")
    out.symlink_to(secret)
    (tmp_path / ".report.html.part").symlink_to(secret)  # the name that it once had on the way
    report.save(out, result)
    assert secret.read_text() == "mine"
    assert not out.is_symlink() and "<html" in out.read_text()


def test_the_name_of_a_file_on_its_way_is_new_each_time_and_its_rights_are_the_users(tmp_path):
    names = set()
    for _ in range(2):
        with whole_file(tmp_path / "a.txt") as file:
            names.add(file.name if isinstance(file.name, str) else next(iter(tmp_path.glob(".a.txt.*"))).name)
            file.write(b"x")
    assert len(names) == 2
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "a.txt") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == b"x"
    (tmp_path / "b.txt").write_text("")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode


class Closed(io.TextIOBase):
    """A standard output whose reader has gone."""

    def write(self, _):
        raise BrokenPipeError

    def writable(self):
        return True


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
def test_a_closed_pipe_changes_neither_the_exit_code_nor_the_report(tmp_path, monkeypatch, form):
    words = ["evaluate", parquet(tmp_path), "--policy", "choice:best", "--no-learn", "--format", form]
    codes = []
    for closed in (False, True):
        with monkeypatch.context() as patch:
            if closed:
                patch.setattr(output.sys, "stdout", Closed())
            with pytest.raises(SystemExit) as stop:
                main([*words, "--out", str(tmp_path / f"{closed}.html")])
        codes.append(stop.value.code)
    assert codes[0] == codes[1] == 3
    assert (tmp_path / "True.html").read_bytes() == (tmp_path / "False.html").read_bytes()


def test_a_terminal_without_the_characters_still_gets_an_answer(tmp_path, monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", screen)
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", parquet(tmp_path), "--policy", "uniform", "--no-learn"])
    assert stop.value.code in (0, 3)
    screen.flush()
    assert b"\\u2501" in screen.buffer.getvalue() or b"\\u2500" in screen.buffer.getvalue()


SPILL = """
import sys, time
from cael.common import whole
from cael.io import csv_files
csv_files.SMALL = 0
from cael.cli import main
def slow(x):
    print("asked", flush=True)
    time.sleep(60)
sys.modules["slow"] = type(sys)("slow")
sys.modules["slow"].policy = slow
copied = csv_files.copied
from cael.io import files
files.copied = lambda path: copied(path, small=0)
main(sys.argv[1:])
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_spilled_files_go_when_the_command_is_ended(tmp_path, number):
    room = tmp_path / "room"
    room.mkdir()
    rows = "".join(f"{at % 2},{at % 7},0.5\n" for at in range(200))
    log, out = raw(tmp_path, "action,reward,propensity\n" + rows, "log.csv"), tmp_path / "report.html"
    process = subprocess.Popen(
        [sys.executable, "-c", SPILL, "evaluate", log, "--policy", "python:slow:policy", "--no-learn", "--out", out],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(room)},
    )  # fmt: skip
    assert process.stdout.readline() == "asked\n"
    assert len(list(room.glob("cael-*"))) == 1
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGTERM if number == signal.SIGTERM else 130)
    assert "Traceback" not in err
    for _ in range(50):
        if not list(room.glob("cael-*")):
            break
        time.sleep(0.1)
    assert list(room.glob("cael-*")) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "room"]
