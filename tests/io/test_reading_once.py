"""A command on a log in memory looks at the columns of a Parquet file once and reads the file once."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cael.cli import main
from tests.io import logs

COMMANDS = {
    "evaluate": ("evaluate", "--policy", "dense:pi_*", "--segment", "country", "--segment", "action", "--windows", "4"),
    "a bare column": ("evaluate", "--policy", "best", "--logging", "mu"),
    "compare": ("compare", "--policy", "topk:top+chance,rest=uniform", "--policy", "softmax:scores"),
    "calibrate": ("evaluate", "--policy", "pi", "--calibrate"),
    "plan": ("plan", "--policy", "dense:pi_*"),
    "audit": ("audit",),
}


@pytest.fixture
def opens(monkeypatch):
    """How often pyarrow opened each Parquet file."""
    counts = Counter()

    def counted(function):
        def called(path, *args, **kwargs):
            counts[Path(path).name] += 1
            return function(path, *args, **kwargs)

        return called

    for name in ("ParquetFile", "read_metadata", "read_schema", "read_table"):
        monkeypatch.setattr(pq, name, counted(getattr(pq, name)))
    return counts


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_opens_a_file_for_its_schema_and_to_read_it(tmp_path, capsys, opens, name):
    folder = tmp_path / "log"
    logs.write(folder)
    command, *options = COMMANDS[name]
    opens.clear()
    with pytest.raises(SystemExit) as stop:
        main(
            [command, str(folder / "parts"), *options, *(["--actions", str(folder / "actions.csv")] if options else [])]
        )
    assert stop.value.code in (0, 3), capsys.readouterr().err
    assert opens == {f"part-{at}.parquet": 2 for at in range(3)}


def test_a_policy_in_a_file_is_read_once_and_the_ids_of_the_log_to_join_it(tmp_path, capsys, opens):
    log, policies = logs.write(tmp_path / "log"), logs.write_policies(tmp_path)
    opens.clear()
    with pytest.raises(SystemExit) as stop:
        main(["compare", log["log.parquet"], "--policy", policies["long"]])
    assert stop.value.code in (0, 3), capsys.readouterr().err
    assert opens == {"log.parquet": 3, "long.parquet": 2}
