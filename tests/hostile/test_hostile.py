"""Every hostile case ends as the table says: with its exit code and its message, and without a traceback."""

import re

import pytest

from cael.cli import main
from cael.common.visible import HIDDEN
from tests.hostile import cases, files_of_policies, more_cases
from tests.hostile.cases import REFUSED, Case


def all_cases() -> dict[str, Case]:
    """Every case by its name; no two have the same."""
    named: dict[str, Case] = {}
    for table in (*cases.TABLES, *files_of_policies.ALL, *more_cases.ALL):
        made = table()
        assert not named.keys() & made.keys()
        named |= made
    return named


CASES = all_cases()


def test_there_are_enough_cases():
    assert len(CASES) >= 300


@pytest.mark.parametrize("name", CASES)
def test_it_ends_as_it_must(name, tmp_path, capsys, monkeypatch):
    case = CASES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = case.make(tmp_path)
    with pytest.raises(SystemExit) as stop:  # anything else would be a traceback
        main(arguments)
    out, err = capsys.readouterr()
    assert stop.value.code in case.codes, (out, err)
    assert re.search(case.says, " ".join((out if case.printed else err).split())), err
    assert not HIDDEN.search(out + err)
    if case.codes == REFUSED:
        assert out == ""
        assert err.startswith("error: ")
        assert len(err.strip().splitlines()) == 1 or "probability:COLUMN" in err  # the kinds of policies
