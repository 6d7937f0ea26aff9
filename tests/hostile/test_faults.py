"""Whatever happens to a command that writes files, nothing is half-written, and run again it gives what it should."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cael.cli import main
from cael.io.files import File
from tests.hostile.cases import columns, parquet, text
from tests.hostile.faults import (
    ANSWER,
    COMMANDS,
    content,
    learnable,
    leftovers,
    parts,
    prepare,
    run,
    start,
    until_paused,
)

pytestmark = pytest.mark.long
EACH = pytest.mark.parametrize("name", COMMANDS)
RUNS = 25
"""Of the experiment on a cluster."""
TOO_LARGE = {"MOST": "40"}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """What each command writes where nothing disturbs it."""
    answers = {}
    for name, command in COMMANDS.items():
        folder = prepare(tmp_path_factory.mktemp(name) / "right")
        code, _, err = run(command.line(), folder)
        assert code in ANSWER and (folder / "out" / command.done).exists(), err
        answers[name] = content(folder)
    return answers


def again(name, folder, right):
    """Run once more it gives what it would have given at once."""
    code, _, err = run(COMMANDS[name].line(), folder)
    assert code in ANSWER, err
    written = content(folder)
    assert {path: written[path] for path in right[name]} == right[name]


def one_line(code, out, err, *says):
    assert code == 1, err
    err = re.sub(r"^(wrote \S+\n)*", "", err)  # files that were whole before
    assert err.startswith("error: ") and len(err.strip().splitlines()) == 1, err
    assert all(each in err for each in says), err
    assert "Errno" not in err


@pytest.mark.parametrize("stage", ["working", "writing"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@EACH
def test_a_command_that_is_ended_leaves_the_old_result_or_none(name, number, stage, tmp_path, right):
    folder = prepare(tmp_path / "x")
    old = folder / "out" / COMMANDS[name].done
    old.parent.mkdir(exist_ok=True)
    old.write_bytes(b"of the last time")
    process = start(COMMANDS[name].line(), folder, PAUSE=COMMANDS[name].work if stage == "working" else "a file")
    until_paused(process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    expected = {signal.SIGTERM: (-signal.SIGTERM, 143), signal.SIGINT: (130,), signal.SIGKILL: (-signal.SIGKILL,)}
    assert process.returncode in expected[number]
    assert "Traceback" not in err
    assert old.read_bytes() == b"of the last time"
    if number != signal.SIGKILL:
        assert leftovers(folder) == []
    again(name, folder, right)


@EACH
def test_a_file_that_may_not_grow_is_one_line_and_no_file(name, tmp_path, right):
    folder = prepare(tmp_path / "x")
    one_line(*run(COMMANDS[name].line(), folder, **TOO_LARGE), "could not be written: File too large")
    assert leftovers(folder) == [] and not (folder / "out" / COMMANDS[name].done).exists()
    again(name, folder, right)


@pytest.fixture
def tiny(tmp_path):
    """A folder with out/ on a file system of 16 kB, where that can be had."""
    folder = prepare(tmp_path / "x", runs=40)
    mounted = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder / "out")]
    if sys.platform != "linux" or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder / "out")], check=True)


@EACH
def test_a_full_disk_is_one_line_and_whole_files(name, tiny):
    one_line(*run(COMMANDS[name].line(), tiny), "could not be written: No space left on device")
    assert leftovers(tiny) == [] and not (tiny / "out" / COMMANDS[name].done).exists()
    content(tiny)  # every line of what is there can be read


@EACH
def test_a_folder_that_may_not_be_written_is_named(name, tmp_path, right):
    folder = prepare(tmp_path / "x")
    (folder / "out").chmod(0o555)
    one_line(*run(COMMANDS[name].line(), folder, without_rights=True), "out", "Permission denied")
    (folder / "out").chmod(0o755)
    assert list((folder / "out").iterdir()) == []
    again(name, folder, right)


@EACH
def test_a_closed_pipe_and_a_closed_output_change_no_file(name, tmp_path, right):
    folder = prepare(tmp_path / "x")
    reader, writer = os.pipe()
    os.close(reader)
    code, _, err = run(COMMANDS[name].line(), folder, stdout=writer)
    os.close(writer)
    assert code in ANSWER and "Traceback" not in err, err
    assert {path: content(folder)[path] for path in right[name]} == right[name]
    folder = prepare(tmp_path / "y")
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", "from cael.cli import main; main()",
         *COMMANDS[name].line()], cwd=folder, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert closed.returncode in ANSWER and "Traceback" not in closed.stderr, closed.stderr
    assert {path: content(folder)[path] for path in right[name]} == right[name]


def test_an_output_that_is_full_is_an_error_in_one_line(tmp_path):
    folder = prepare(tmp_path / "x")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        one_line(*run(COMMANDS["evaluate"].line(), folder, stdout=full), "standard output could not be written")


@EACH
def test_two_writers_of_one_place_leave_one_whole_result(name, tmp_path, right):
    """Reports take turns; of two that add rows to one folder, the second is refused."""
    folder = prepare(tmp_path / "x")
    if name == "reproduce":
        first = start(COMMANDS[name].line(), folder, PAUSE=COMMANDS[name].work)
        until_paused(first)
        one_line(*run(COMMANDS[name].line(), folder), "another process is writing to", "small")
        first.kill()
        first.communicate()
        again(name, folder, right)
        return
    processes = [start(COMMANDS[name].line(), folder) for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode in ANSWER, err
    assert content(folder) == right[name]


def test_two_commands_that_watch_lose_no_rows(tmp_path):
    """The second is refused while the first reads, adds and writes; what is there afterwards is whole."""
    folder = prepare(tmp_path / "x")
    code, _, err = run([*COMMANDS["learn"].line(), "--watch", "out/watch.json"], folder)
    assert code in ANSWER, err
    pq.write_table(pa.table(learnable(300)), folder / "new.parquet")
    words = ["watch", "new.parquet", "out/watch.json"]
    first = start(words, folder, PAUSE="cael.learning.watching:read_watch")
    until_paused(first)
    one_line(*run(words, folder), "another process is writing to", "out")
    first.kill()
    first.communicate()
    assert leftovers(folder) == []
    code, _, err = run(words, folder)
    assert code in ANSWER, err
    one_line(*run(words, folder), "was watched already")


def unlinked(path):
    path.unlink()


def cut(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def exchanged(path):
    other = path.with_name("other")
    other.write_bytes(b"something else")
    other.replace(path)


def a_folder(path):
    path.unlink()
    path.mkdir()


def arrow(folder):

    table = pa.table(columns(pi=...))
    with pa.ipc.new_file(str(folder / "log.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=20)
    return str(folder / "log.arrow")


MAKERS = {"parquet": parquet, "csv": lambda folder: text(folder, pi=...), "arrow": arrow}


@pytest.mark.parametrize("how", ["in memory", "streamed"])
@pytest.mark.parametrize("damage", [unlinked, cut, exchanged, a_folder])
@pytest.mark.parametrize("form", MAKERS)
def test_a_file_that_goes_or_changes_while_it_is_read_is_named(form, damage, how, tmp_path, monkeypatch, capsys):
    path = MAKERS[form](tmp_path)
    read, damaged = File._stored, []

    def disturbed(self, *arguments):
        for batch in read(self, *arguments):
            if not damaged:
                damaged.append(self.path)
                damage(self.path)
            yield batch

    monkeypatch.setattr(File, "_stored", disturbed)
    words = ["evaluate", path, "--policy", "choice:best,epsilon=0.5", "--no-learn", "--out", str(tmp_path / "r.html")]
    with pytest.raises(SystemExit) as stop:
        main([*words, *(["--n-actions", "3", "--predictions", "x_0+x_0"] if how == "streamed" else [])])
    out, err = capsys.readouterr()
    assert damaged
    if stop.value.code in ANSWER:  # of text there is a copy from before, and labels are whole numbers in it
        assert form == "csv" and (tmp_path / "r.html").exists()
        return
    one_line(stop.value.code, out, err, f"log.{form}")
    assert out == "" and not (tmp_path / "r.html").exists()


def wait_for(there, seconds=30):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers, each a process that a test can kill: (address, processes)."""
    pytest.importorskip("distributed")
    folder, said = prepare(tmp_path / "x", RUNS), tmp_path / "scheduler.json"
    parts(folder)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}

    def dask(kind, *words):
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words, "--no-dashboard", "--dashboard-address",
             "127.0.0.1:0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder,
        )  # fmt: skip

    processes = [dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(said))]
    wait_for(lambda: said.exists() and said.read_text().strip().endswith("}"))
    address = json.loads(said.read_text())["address"]
    processes += [dask("worker", address, "--nthreads", "1", "--no-nanny") for _ in range(2)]
    try:
        yield folder, address, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def on_cluster(name, folder, address):
    """The command, stopped or busy where the cluster is needed once more."""
    words = [*COMMANDS[name].on_dask(), "--dask", address]
    if name == "learn":  # most of its time it learns from a sample, here
        process = start(words, folder, PAUSE=COMMANDS[name].work)
        until_paused(process)
        return process
    process = start(words, folder)
    rows = folder / "out" / "small" / "trials.jsonl"
    if name == "reproduce":
        wait_for(lambda: rows.exists() and rows.read_bytes().count(b"\n") > 8)
    else:
        wait_for(lambda: slowly_asked(address))
    return process


def slowly_asked(address):
    """Whether the workers have tasks."""
    from distributed import Client

    with Client(address, timeout=5) as client:
        return any(client.processing().values())


@pytest.mark.filterwarnings("ignore")
@EACH
def test_a_scheduler_that_is_lost_is_one_line(name, cluster):
    folder, address, processes = cluster
    command = on_cluster(name, folder, address)
    processes[0].kill()
    (folder / "go").touch()
    out, err = command.communicate(timeout=90)
    progress = [line for line in err.splitlines() if "trials" not in line or line.startswith("error")]
    one_line(command.returncode, out, "\n".join(progress), "Dask scheduler")
    assert leftovers(folder) == [] and not (folder / "out" / COMMANDS[name].done).exists()
    if name == "reproduce":
        assert content(folder)["small/trials.jsonl"]


@pytest.mark.filterwarnings("ignore")
@EACH
def test_a_worker_that_is_lost_changes_nothing(name, cluster):
    folder, address, processes = cluster
    command = on_cluster(name, folder, address)
    processes[1].kill()
    (folder / "go").touch()
    _, err = command.communicate(timeout=120)
    assert command.returncode in ANSWER, err
    there = content(folder)
    assert COMMANDS[name].done in there and "Traceback" not in err
    if name == "reproduce":
        here, again = prepare(folder / "here", RUNS), []
        parts(here)
    else:  # a page says what kind of log it is about, and the workers have the files
        here, again = folder, ["--dask", address]
    code, _, err = run([*COMMANDS[name].on_dask(), *again], here)
    assert code in ANSWER, err
    assert content(here) == there


def test_a_second_command_in_the_same_process_may_write_to_the_folder(tmp_path):
    """The lock goes with the block."""
    from cael.common.whole import only_writer
    from cael.errors import InputError

    for _ in range(2):
        with (
            only_writer(tmp_path),
            pytest.raises(InputError, match="another process is writing"),
            only_writer(tmp_path),
        ):
            pass
    with contextlib.suppress(ZeroDivisionError), only_writer(tmp_path):
        raise ZeroDivisionError
    with only_writer(tmp_path):
        assert list(tmp_path.iterdir()) == []
