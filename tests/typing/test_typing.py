"""Type checkers accept what a user may hand in, and refuse what is no policy."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHECKERS = {
    "mypy": ["mypy", "--strict", "--ignore-missing-imports", "--config-file="],
    "pyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
}


def check(checker, file):
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", *CHECKERS[checker]]
    command = [*command, str(HERE / file)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)


@pytest.mark.long
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_file_is_accepted(checker):
    answer = check(checker, "user_file.py")
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.long
@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_no_policy_is_refused(checker):
    answer = check(checker, "wrong_file.py")
    lines = {int(line) for line in re.findall(r"wrong_file\.py:(\d+)(?::\d+)?(?: -)?:? error", answer.stdout)}
    assert lines == {6, 7, 8}, answer.stdout + answer.stderr


def test_the_users_file_runs():
    from tests.typing import user_file

    assert 0 < user_file.low < float(user_file.estimate) < user_file.high
