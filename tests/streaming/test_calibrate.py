"""calibrate on a scanned log: on the rows of a sample, and as in memory where that is the log."""

import pytest

import cael
from tests.streaming.logs import write
from tests.streaming.worlds import COLUMNS, paper

PANEL = [cael.IPS(), cael.SNIPS(), cael.SNDR()]


def scanned(folder, n, **given):
    log, actions, world = paper(n)
    return cael.scan(write(folder / "log", log, [n // 3]), COLUMNS, actions=actions, **given), log, world


@pytest.mark.parametrize("logging", [None, "dense:mu"])
def test_where_the_sample_is_the_log_it_is_that_of_memory(tmp_path, logging):
    there, _, _ = scanned(tmp_path, 500, logging=logging)
    twin = cael.read(tmp_path / "log", COLUMNS, actions=paper(500)[1], logging=logging)
    here = cael.calibrate(there, "dense:pi", PANEL, repeats=3)
    expected = cael.calibrate(twin, "dense:pi", PANEL, repeats=3)
    assert here.redrawn == expected.redrawn == (logging is not None)
    assert here.to_dict() == expected.to_dict()


def test_of_a_long_log_it_takes_as_many_rows_as_were_asked_for(tmp_path):
    there, _, _ = scanned(tmp_path, 4000)
    found = cael.calibrate(there, "dense:pi", PANEL, repeats=2, rows=700)
    assert found.n == 700


def test_what_it_lacks_is_said(tmp_path):
    there, _, _ = scanned(tmp_path, 200)
    with pytest.raises(cael.NeedsError, match="probabilities of all actions"):
        cael.calibrate(there, "probability:propensity", PANEL, repeats=2)
