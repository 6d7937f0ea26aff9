"""The same answer on a Dask cluster, also when a worker is killed in the middle."""

import json
import os
import signal
import threading
import time

import numpy as np
import pytest

import cael
from cael.cli import main
from tests.streaming.logs import K, table, write
from tests.streaming.worlds import COLUMNS, paper

distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # the warnings of Dask, about ports and sockets


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as found:
        yield found


def slow(contexts):
    """A policy that takes its time, so that a worker can be killed in the middle of it."""
    time.sleep(0.15)
    return np.full((len(contexts), K), 1 / K)


def answers(found):
    return {each.estimator: (each.value, each.stderr) for each in found}


def test_two_workers_say_what_threads_say(cluster, tmp_path):
    where = write(tmp_path / "log", table(600, clusters=90), [100, 200, 350], 50)
    here = cael.scan(where, {"cluster": "user"}, n_actions=K)
    with distributed.Client(cluster) as client:
        there = cael.scan(where, {"cluster": "user"}, n_actions=K, client=client)
        assert answers(cael.evaluate(there, "pi", learn=False)) == answers(cael.evaluate(here, "pi", learn=False))
        specs = {"a": "pi", "b": "uniform"}
        assert cael.compare(there, specs).to_dict() == cael.compare(here, specs).to_dict()
        assert cael.segments(there, "pi", "part").to_dict() == cael.segments(here, "pi", "part").to_dict()


def test_cael_is_trained_here_and_weighted_by_the_workers(cluster, tmp_path):
    """The networks are sent along; what the workers say is what threads say, to the last bit."""
    log, actions, _ = paper(500, clusters=70)
    where = write(tmp_path / "log", log, [100, 200, 350], 50)
    growth = cael.Growth(steps=20, penalties=(1.5,), restarts=1, rows=300)
    quick, columns = cael.CAEL(growth=growth, folds=3), {**COLUMNS, "cluster": "user"}
    both = [quick, cael.Auto(cael=quick)]
    here = cael.scan(where, columns, actions=actions, logging="mu")
    with distributed.Client(cluster) as client:
        there = cael.scan(where, columns, actions=actions, logging="mu", client=client)
        found = cael.evaluate(there, "pi", both, learn=False)
    assert answers(found) == answers(cael.evaluate(here, "pi", both, learn=False))
    assert found[quick.name].diagnostics.embedding.trained_rows <= 300


def test_the_command_line_takes_the_address_of_a_scheduler(cluster, tmp_path, capsys):
    where = write(tmp_path / "log", table(400), [100, 200])
    options = ("evaluate", str(where), "--policy", "pi", "--n-actions", str(K), "--format", "json")
    with pytest.raises(SystemExit) as stop:
        main([*options, "--dask", cluster.scheduler_address])
        raise SystemExit(0)
    told = json.loads(capsys.readouterr().out)
    assert stop.value.code in (0, 3)
    assert "The log was streamed, as --dask asks." in told["reading"]["notes"]
    found = answers(cael.evaluate(cael.scan(where, n_actions=K), "pi"))
    assert {each["estimator"]: (each["value"], each["stderr"]) for each in told["estimates"]} == found


def test_a_killed_worker_loses_nothing(cluster, tmp_path):
    log = table(480)
    where = write(tmp_path / "log", log, list(range(20, 480, 20)))
    quick = answers(cael.evaluate(cael.scan(where, n_actions=K), lambda x: np.full((len(x), K), 1 / K), learn=False))
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2)
        pids = client.run(os.getpid)
        victim = next(iter(pids.values()))
        killed = []

        def kill():
            time.sleep(0.6)
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

        killer = threading.Thread(target=kill)
        killer.start()
        found = answers(cael.evaluate(cael.scan(where, n_actions=K, client=client), slow, learn=False))
        killer.join()
        client.wait_for_workers(2)
        assert killed
        assert victim not in client.run(os.getpid).values()
    assert found == quick


def test_an_error_of_a_worker_is_the_error_of_the_call(cluster, tmp_path):
    where = write(tmp_path / "log", table(400), [100, 200, 300])
    with distributed.Client(cluster) as client:
        log = cael.scan(where, n_actions=K, client=client)
        (where / "part-02.parquet").unlink()
        with pytest.raises(cael.InputError, match=r"part-02.parquet is gone"):
            cael.evaluate(log, "pi", learn=False)


def test_a_scheduler_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("cael.common.cluster.CONNECT", 1)
    log = cael.scan(write(tmp_path / "log", table(100)), n_actions=K, client="tcp://127.0.0.1:1")
    with pytest.raises(cael.InputError, match=r"there is no Dask scheduler at tcp://127.0.0.1:1"):
        cael.evaluate(log, "pi", learn=False)


def test_any_function_that_maps_can_take_the_place_of_a_cluster(tmp_path):
    import joblib

    where = write(tmp_path / "log", table(600, clusters=90), [100, 200, 350], 50)
    seen = []

    def on_processes(f, tasks):
        seen.append(len(tasks))
        return joblib.Parallel(n_jobs=2)(joblib.delayed(f)(task) for task in tasks)

    here = cael.evaluate(cael.scan(where, {"cluster": "user"}, n_actions=K), "pi", learn=False)
    for client in (map, on_processes):
        there = cael.scan(where, {"cluster": "user"}, n_actions=K, client=client)
        assert answers(cael.evaluate(there, "pi", learn=False)) == answers(here)
    assert seen == [4, 4]  # the pass of Ridge, and the other
