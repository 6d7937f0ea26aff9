"""The runner: rows are a function of the spec alone, whoever runs it, in what order, and however often it is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cael
from cael.experiments import registry, trial
from cael.experiments.hours import seconds_of
from cael.experiments.ledger import read_rows
from cael.experiments.run import Where, execute, execute_all, mixed, plan, reproduce
from cael.experiments.spec import load
from cael.experiments.summary import lines_of, table_of
from tests.experiments.conftest import without_cost, written


def run(path, out, where=None):
    return without_cost(execute(load(str(path)), out, where or Where(), quiet=True))


@pytest.mark.long
def test_one_worker_two_workers_and_a_dask_cluster_give_identical_rows(small, tmp_path):
    from distributed import LocalCluster

    one = run(small, tmp_path / "one")
    assert len(one) == 2 * 4 * 4
    assert run(small, tmp_path / "two", Where(jobs=2)) == one
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    )
    with cluster:
        assert run(small, tmp_path / "dask", Where(dask=cluster.scheduler_address)) == one
    files = [(tmp_path / name / "trials.jsonl").read_text().splitlines() for name in ("one", "two", "dask")]
    first, *others = [[without_cost([json.loads(line)]) for line in lines] for lines in files]
    assert all(each == first for each in others)


def test_what_two_experiments_share_is_run_once_and_has_its_name_in_each(small, tmp_path, monkeypatch):
    other = tmp_path / "other.toml"
    text = small.read_text().replace("[5, 10]", "[10, 15]").replace('["IPS", "SNIPS", "DM", "DR"]', '["IPS", "mine"]')
    other.write_text(text + '[settings.mine]\nkind = "SNIPS"\n')
    counted = []
    monkeypatch.setattr(trial, "run", lambda task, real=trial.run: counted.append(task) or real(task))
    wanted = [(load(str(each)), tmp_path / each.stem) for each in (small, other)]
    found = {spec.name: without_cost(rows) for spec, rows in execute_all(wanted, Where(), quiet=True)}
    assert len(counted) == 2 * 4 * 4 + 2 * 2 * 4 - 2 * 4
    assert found["small"] == run(small, tmp_path / "alone")
    assert {row["estimator"] for row in found["other"]} == {"IPS", "mine"}
    assert found["other"] == run(other, tmp_path / "other alone")


def test_the_time_of_all_trials_follows_from_some_of_each_cell(small, tmp_path):
    """Half of the runs of every cell took half of the time; without a cell there is nothing to go by."""
    spec = load(str(small))
    for _ in reproduce([str(small)], tmp_path, Where(), runs=2, quiet=True):
        pass
    rows = read_rows(tmp_path / "small" / "trials.jsonl").values()
    seen, whole = seconds_of(tmp_path, [spec])
    assert seen == pytest.approx(sum(row["cost"]["seconds"] for row in rows)) and len(rows) == 2 * 2 * 4
    assert whole == pytest.approx(2 * seen)
    wider = tmp_path / "small" / "small.toml"
    wider.write_text(small.read_text().replace("[5, 10]", "[5, 10, 15]"))
    with pytest.raises(cael.InputError, match=r"how long IPS takes on .*15.*: run it first"):
        seconds_of(tmp_path, [load(str(wider))])


@pytest.mark.long
def test_killed_in_the_middle_it_resumes_to_the_same_rows(tmp_path):
    """kill -9 of the whole process group while rows are written; the second call runs only what is missing."""
    path, out = written(tmp_path, 60), tmp_path / "killed"
    command = [sys.executable, "-m", "cael.experiments.run", str(path), "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    trials, end = out / "small" / "trials.jsonl", time.monotonic() + 60
    while time.monotonic() < end and (not trials.exists() or trials.read_bytes().count(b"\n") < 60):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = trials.read_bytes().count(b"\n")
    assert 60 <= before < 480, "killed too late or too early to be a test"
    resumed = run(path, out / "small")
    assert resumed == run(path, tmp_path / "whole")
    assert len(json.loads((out / "small" / "manifest.json").read_text())["sessions"]) == 2
    assert trials.read_bytes().count(b"\n") == 480


def test_a_line_cut_in_the_middle_is_run_again(small, tmp_path):
    rows = run(small, tmp_path / "a")
    path = tmp_path / "a" / "trials.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert run(small, tmp_path / "a") == rows


def test_what_is_done_is_not_run_again_and_more_runs_add_rows(small, tmp_path, monkeypatch):
    four = run(small, tmp_path / "a")
    more = without_cost(execute(load(str(small), runs=6), tmp_path / "a", Where(), quiet=True))
    assert len(more) == 2 * 4 * 6 and [row for row in more if row["seed"] < 4] == four
    monkeypatch.setattr(trial, "run", lambda task: pytest.fail("ran a trial that has a row"))
    assert run(small, tmp_path / "a") == four


def test_a_file_that_is_no_trials_is_refused(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text('{"no": "key"}\n')
    with pytest.raises(cael.InputError, match="is not a file of trials"):
        read_rows(path)


def test_a_key_is_the_content_of_a_trial(small):
    tasks = plan(load(str(small)), "cpu")
    keys = [key for task in tasks for key in task.keys]
    assert len(set(keys)) == len(keys) == 32
    on_gpu = {key for task in plan(load(str(small)), "cuda") for key in task.keys}
    assert on_gpu == set(keys)
    assert trial.key_of({"kind": "paper"}, 5, {"b": 1, "a": 2}, 0) == trial.key_of(
        {"kind": "paper"}, 5, {"a": 2, "b": 1}, 0
    )


def test_blocks_of_a_gpu_do_not_depend_on_what_is_done(small):
    small.write_text(small.read_text().replace('"DR"]', '"AELMIPS"]'))
    tasks = plan(load(str(small), runs=70), "cuda")
    trained = [task.seeds for task in tasks if task.name == "AELMIPS"]
    assert trained == [list(range(50)), list(range(50, 70))] * 2  # two numbers of actions, so two shapes
    assert all(len(task.seeds) == 1 and task.device == "cpu" for task in tasks if task.name != "AELMIPS")
    sizes = [len(task.seeds) for task in plan(load("epsilon"), "cuda") if task.name == "AELMIPS"]
    assert sizes == [50, 50, 50, 30]  # six values of epsilon with 30 runs each, of one shape


def test_what_a_gpu_trains_is_evenly_among_the_rest():
    tasks = plan(load("bias-variance-mse"), "cuda") + plan(load("actions"), "cuda")
    found = mixed(tasks)
    assert sorted(map(id, found)) == sorted(map(id, tasks))
    places = [at for at, task in enumerate(found) if task.device == "cuda"]
    sizes = [found[at].size for at in places]
    assert places[0] == 0 and np.ptp(np.diff([*places, len(found)])) <= 1 and sizes == sorted(sizes, reverse=True)
    alone = plan(load("selection"), "cuda")
    assert mixed(alone) == alone and mixed([]) == []


def test_blocks_of_a_cpu_are_the_same_in_every_spec_that_has_the_cell():
    def blocks(name):
        return {tuple(task.keys) for task in plan(load(name), "cpu") if task.name == "CAELMIPS"}

    assert all(len(keys) == 5 for keys in blocks("samples"))
    for name in ("samples", "logging", "epsilon", "noise"):  # the default problem is a cell of each
        assert blocks("bias-variance-mse") < blocks(name)


def test_a_log_that_is_refused_is_refused_alone(small, monkeypatch):
    """Trained at once, one log without any spread of rewards would stop all."""
    small.write_text(small.read_text().replace('"DR"]', '"CAEL"]'))
    task = next(task for task in plan(load(str(small), quick=True), "auto") if task.name == "CAEL")
    assert len(task.trials) > 1
    sample = cael.worlds.PaperWorld.sample

    def constant(world, n, seed):
        log = sample(world, n, seed)
        if seed != task.seeds[0]:
            return log
        return cael.LoggedData(log.contexts, log.actions, np.ones(n), logging=log.logging, n_actions=log.n_actions)

    monkeypatch.setattr(cael.worlds.PaperWorld, "sample", constant)
    first, *others = trial.run(task)
    assert "all equal" in first["error"] and not any("error" in row for row in others)


def test_trials_trained_at_once_give_the_rows_of_trials_alone(small, tmp_path, monkeypatch):
    """Device "auto" takes the path of a GPU: all seeds in one call; here it ends on the CPU."""
    monkeypatch.setattr("cael.experiments.run.TOGETHER_ON_CPU", 1)
    told = small.read_text().replace('["IPS", "SNIPS", "DM", "DR"]', '["CAELMIPS", "AELMIPS", "NetworkDM", "IPS"]')
    small.write_text(
        told.replace("n_actions", "gamma").replace("[5, 10]", "[-0.1, 0.0]").replace("n = 100", "n_actions = 5\nn = 60")
    )
    spec = load(str(small), quick=True, runs=2)
    alone, together = (execute(spec, tmp_path / device, Where(device=device), quiet=True) for device in ("cpu", "auto"))
    assert [row["key"] for row in alone] == [row["key"] for row in together]
    assert {row["estimator"]: row["cost"]["together"] for row in together} == {
        "CAELMIPS": 4, "AELMIPS": 4, "NetworkDM": 4, "IPS": 1,
    }  # fmt: skip
    np.testing.assert_allclose([row["value"] for row in alone], [row["value"] for row in together], rtol=1e-6)


def test_an_estimator_that_refuses_leaves_a_row_that_says_why(small, tmp_path, monkeypatch):
    def refuse(device, quick):
        return cael.MIPS(embeddings=np.zeros((3, 1)))

    monkeypatch.setitem(registry.MORE, "Refusing", refuse)
    small.write_text(small.read_text().replace('"DM", "DR"', '"Refusing"'))
    spec = load(str(small))
    rows = execute(spec, tmp_path / "a", Where(), quiet=True)
    refused = [row for row in rows if row["estimator"] == "Refusing"]
    assert len(refused) == 8 and all("one row per action" in row["error"] for row in refused)
    line = next(line for line in lines_of(table_of(spec, rows)) if line.estimator == "Refusing")
    assert line.failed == 4 and line.runs == 0 and np.isnan(line.mse)


def test_what_failed_is_tried_again(small, tmp_path, monkeypatch):
    small.write_text(small.read_text().replace('"DM", "DR"', '"Refusing"'))
    monkeypatch.setitem(registry.MORE, "Refusing", lambda device, quick: cael.MIPS(posterior="exact"))
    good = run(small, tmp_path / "a")
    monkeypatch.setattr(cael.MIPS, "solve", lambda *_: (_ for _ in ()).throw(cael.InputError("not today")))
    assert sum("error" in row for row in run(small, tmp_path / "b")) == 8
    monkeypatch.undo()
    monkeypatch.setitem(registry.MORE, "Refusing", lambda device, quick: cael.MIPS(posterior="exact"))
    assert run(small, tmp_path / "b") == good


def test_a_machine_that_cannot_do_it_is_told_at_once(small, tmp_path, monkeypatch):
    small.write_text(small.read_text().replace('"DR"]', '"AELMIPS"]'))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(cael.CaelError, match="cuda"):
        run(small, tmp_path / "a", Where(device="cuda"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(cael.NeedsError, match=r"cael\[torch\]"):
        run(small, tmp_path / "a")
    assert not (tmp_path / "a" / "trials.jsonl").exists()


def test_reproduce_leaves_all_files_and_tells(small, tmp_path, capsys):
    (found,) = reproduce([str(small)], tmp_path / "out", Where())
    names = {path.name for path in (tmp_path / "out" / "small").iterdir()}
    figures = {f"figure-full.{suffix}" for suffix in ("svg", "png", "pdf")}
    assert names == figures | {"trials.jsonl", "manifest.json", "summary.csv", "table.tex", "claims.json"}
    assert "small: 32 trials" in capsys.readouterr().err
    text = found.text()
    assert "SNIPS" in text and "truth 5: 9.67" in text
    manifest = json.loads((tmp_path / "out" / "small" / "manifest.json").read_text())
    assert manifest["sessions"][0]["versions"]["numpy"] == np.__version__ and manifest["runs"] == 4


@pytest.mark.long
def test_a_figure_of_the_paper_by_its_name_with_some_estimators(tmp_path, capsys):
    """The command and `cael.paper.reproduce` run the same trials; the second finds the rows of the first."""
    from cael.experiments.command import Extent, Machine
    from cael.experiments.command import reproduce as command

    command("figure-1", out=tmp_path, extent=Extent(runs=3, estimators=("IPS", "LoggedMean")), machine=Machine(jobs=1))
    text = capsys.readouterr().out
    assert "IPS" in text and "CAELMIPS" not in text and "figure-1.pdf" in text
    assert {path.name for path in tmp_path.glob("figure-1.*")} == {"figure-1.svg", "figure-1.png", "figure-1.pdf"}
    before = (tmp_path / "bias-variance-mse" / "trials.jsonl").read_text()
    found = cael.paper.reproduce("figure-1", out=tmp_path, estimators=["IPS", "LoggedMean"], runs=3)
    assert list(found) == ["bias-variance-mse"] and found["bias-variance-mse"].table.spec.runs == 3
    assert (tmp_path / "bias-variance-mse" / "trials.jsonl").read_text() == before


@pytest.mark.long
def test_the_module_runs_without_the_command_line_package(small, tmp_path):
    """`python -m cael.experiments.run` needs neither cyclopts nor rich."""
    code = (
        "import sys; sys.modules['cyclopts'] = sys.modules['rich'] = None\n"
        "from cael.experiments.run import main\n"
        f"main([{str(small)!r}, '--out', {str(tmp_path / 'o')!r}, '--jobs', '1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "SNIPS" in done.stdout, done.stderr
    bad = [sys.executable, "-m", "cael.experiments.run", "--nix"]
    assert "unrecognized arguments: --nix" in subprocess.run(bad, capture_output=True, text=True, check=False).stderr


def test_cael_and_auto_train_once_and_each_is_as_if_alone(tmp_path):
    rows = {}
    for names in (["CAEL", "Auto"], ["CAEL"], ["Auto"]):
        path = tmp_path / f"{'_'.join(names)}.toml"
        path.write_text(
            f'title = "x"\nruns = 2\nestimators = {json.dumps(names)}\n[world]\nkind = "paper"\nn = 80\nn_actions = 6\n'
            'action_dim = 3\n[panels]\nfull = "all"\n[figure]\nkind = "bars"\n'
        )
        spec = load(str(path), quick=True)
        assert sum(len(task.trials) for task in plan(spec, "cpu")) == 2
        rows |= {tuple(names): without_cost(execute(spec, tmp_path / path.stem, Where(), quiet=True))}
    together = rows["CAEL", "Auto"]
    assert [row["estimator"] for row in together] == ["CAEL", "Auto"] * 2
    apart = sorted(rows["CAEL",] + rows["Auto",], key=lambda row: row["key"])
    for one, other in zip(sorted(together, key=lambda row: row["key"]), apart, strict=True):
        assert one.keys() == other.keys()
        for name in one:  # sums of other columns beside them change the last digits
            assert one[name] == (pytest.approx(other[name], rel=1e-9) if isinstance(one[name], float) else other[name])
