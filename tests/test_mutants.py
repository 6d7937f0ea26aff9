"""The runner of mutants on a package of one function; and the list, which must fit the source."""

import dataclasses

import pytest

from tests.mutants import __main__ as command
from tests.mutants.runner import (
    CAEL,
    ROOT,
    Mutant,
    MutantError,
    Outcome,
    Project,
    answer_of,
    chosen,
    mutants_of,
    mutated,
    outcomes,
    survivors_table,
)

SOURCE = "def double(x):\n    return 2 * x\n\n\ndef half(x):\n    return x / 2\n\n\nhalf(0)\n"
KILLED = Mutant("three", "__init__.py", "2 * x", "3 * x", ("checks/test_toy.py",), "twice")
EQUIVALENT = dataclasses.replace(KILLED, name="turned", new="x * 2")


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A project whose tests call `double` alone."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "src" / "toy").mkdir(parents=True)
    (tmp_path / "src" / "toy" / "__init__.py").write_text(SOURCE)
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "test_toy.py").write_text("import toy\n\n\ndef test_it():\n    assert toy.double(3) == 6\n")
    (tmp_path / "checks" / "test_slow.py").write_text("import time\n\n\ndef test_it():\n    time.sleep(60)\n")
    return Project(tmp_path, "toy", ("pytest",))


def test_a_mutant_that_tests_see_is_killed_and_an_equivalent_one_survives(toy):
    broken = dataclasses.replace(KILLED, name="broken", old="half(0)", new='half("")')
    lines = []
    killed, survivor, no_import = found = outcomes([KILLED, EQUIVALENT, broken], toy, tell=lines.append)
    assert (killed.killed, killed.how) == (True, "checks/test_toy.py::test_it")
    assert not survivor.killed
    assert (no_import.killed, no_import.how) == (True, "cannot be imported: checks/test_toy.py")
    assert "1 of 3 mutants survive" in survivors_table(found)
    assert "turned  __init__.py  twice" in survivors_table(found)
    assert sum("SURVIVES" in line for line in lines) == 1
    assert (toy.source / "toy" / "__init__.py").read_text() == SOURCE  # the tree itself is only read


def test_a_mutant_that_ends_the_process_is_killed(toy):
    ends = dataclasses.replace(KILLED, new="__import__('os').kill(__import__('os').getpid(), 11)")
    (found,) = outcomes([ends], toy)
    assert (found.killed, found.how) == (True, "the process ended by signal 11")


def test_time_that_runs_out_is_told(toy):
    assert answer_of(toy, toy.source, ["checks/test_slow.py"], 0.1) == (None, "no answer in 0 seconds")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"old": "4 * x"}, "occurs 0 times"),
        ({"old": "(x)"}, "occurs 2 times"),
        ({"new": "2 * x"}, "the new text is the old one"),
        ({"new": "2 *"}, "is no Python"),
        ({"file": "other.py"}, "there is no file other.py"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error_before_anything_runs(toy, changes, told):
    with pytest.raises(MutantError, match=told):
        outcomes([dataclasses.replace(KILLED, **changes)], toy)


def test_tests_that_fail_without_a_mutant_are_an_error(toy):
    (toy.root / "checks" / "test_toy.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(MutantError, match="without a mutant these tests must pass"):
        outcomes([KILLED], toy)


def test_tests_that_import_another_copy_are_an_error(toy):
    """A test folder with a package of the same name before the mutant's."""
    elsewhere = dataclasses.replace(toy, package="json")
    (toy.source / "json").mkdir()
    (toy.source / "json" / "__init__.py").write_text(SOURCE)
    with pytest.raises(MutantError, match="and not the copy in"):
        outcomes([KILLED], elsewhere)


def test_the_command_counts_survivors(monkeypatch, capsys):
    def found(killed):
        return lambda mutants, **given: [Outcome(mutant, killed, "", 0.0) for mutant in mutants]

    monkeypatch.setattr(command, "outcomes", found(True))
    assert command.main(["report-*"]) == 0
    assert "0 of 8 mutants survive" in capsys.readouterr().out
    monkeypatch.setattr(command, "outcomes", found(False))
    assert command.main(["report-*"]) == 1
    assert command.main(["report-lift"]) == 0  # three may survive
    assert command.main(["nothing"]) == 2


def test_the_list_fits_the_source():
    """At least 80 mutants, every one of which still has its place, and tests that exist."""
    mutants = mutants_of()
    assert len(mutants) >= 80
    for mutant in mutants:
        assert mutated((CAEL.source / "cael" / mutant.file).read_text("utf-8"), mutant)
    for node in {node for mutant in mutants for node in mutant.tests}:
        path, _, name = node.partition("::")
        name = name.partition("[")[0]  # without the parameters
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8"), node


def test_patterns_choose_by_name_and_by_file():
    mutants = mutants_of()
    assert {each.file for each in chosen(mutants, ["results/planning.py"])} == {"results/planning.py"}
    assert [each.name for each in chosen(mutants, ["plan-cost"])] == ["plan-cost"]
    assert chosen(mutants, []) == mutants


NAMED = {
    "plan's unseen term without its factor k": "plan-unseen-k",
    "the verdict's skewness threshold": "caution-skewness",
    "the verdict's tail-index threshold": "refuse-tail-index",
    "LOW_ESS": "caution-few-effective-rows",
    "ONE_ROW": "caution-one-row",
    "HEAVY_TAIL": "caution-tail-index",
    "calibrate's 30% signal": "calibrate-signal",
    'drift\'s "last fifth" as a half': "drift-last-fifth",
    "HOLES": "caution-holes",
    "ENOUGH": "refuse-few-effective-rows",
    "the mean-weight floor": "constant-weight",
    "streamed effective rows set to n": "effective-rows-of-a-pass",
    "the report's mean weight typed in": "report-mean-weight",
    "overlap's top share": "overlap-top-share",
}
"""Mutants that once survived, and their names in the list."""


def test_the_mutants_that_once_survived_are_in_the_list():
    assert set(NAMED.values()) <= {mutant.name for mutant in mutants_of()}
