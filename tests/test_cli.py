"""The command: what it prints and how it exits."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cael
import cael.io
from cael.cli import main


def run(capsys, *arguments):
    code = 0
    try:
        main(list(arguments))
    except SystemExit as stop:
        code = stop.code or 0
    out = capsys.readouterr()
    return code, out.out, out.err


def test_demo(capsys):
    code, out, _ = run(capsys, "demo", "--rows", "300", "--actions", "10")
    assert code == 0
    for name in ("Auto", "LoggedMean", "IPS", "SNIPS", "DM", "DR", "SNDR"):
        assert name in out
    assert "The truth" in out


def test_demo_json_is_json_only(capsys):
    code, out, _ = run(capsys, "demo", "--rows", "300", "--actions", "10", "--format", "json")
    data = json.loads(out)
    assert code == 0
    world = cael.worlds.PaperWorld(n_actions=10)
    assert data["truth"] == pytest.approx(world.value(world.target))
    by_name = {each["estimator"]: each for each in data["estimates"]}
    alone = cael.SNIPS().estimate(world.sample(300, 0), world.target).value
    assert by_name["SNIPS"]["value"] == pytest.approx(alone, rel=1e-12)


def test_simulate_then_evaluate(capsys, tmp_path):
    file = str(tmp_path / "log.npz")
    assert run(capsys, "simulate", file, "--rows", "200", "--actions", "6")[0] == 0
    code, out, _ = run(capsys, "evaluate", file, "--estimators", "BaselineIPS", "DRos", "--format", "json")
    assert code == 0
    names = [each["estimator"] for each in json.loads(out)["estimates"]]
    assert names == ["Auto", "LoggedMean", "IPS", "SNIPS", "DM", "DR", "SNDR", "BaselineIPS", "DRos"]
    np.save(tmp_path / "other.npy", np.full(6, 1 / 6))
    assert run(capsys, "evaluate", file, "--policy", str(tmp_path / "other.npy"), "--no-learn")[0] == 0
    np.save(tmp_path / "logged.npy", np.full(200, 0.4))
    code, out, _ = run(capsys, "evaluate", file, "--policy", str(tmp_path / "logged.npy"))
    assert code == 3  # the weights average 2.4: that cannot be the probability of the logged action
    assert "was not computed" in out


def test_a_saved_log_is_the_same_log(tmp_path):
    world = cael.worlds.PaperWorld(n_actions=6, gamma=0.2)
    log = world.sample(100, 0)
    cael.io.save_log(tmp_path / "a.npz", log, target=world.target)
    back = cael.io.load_log(tmp_path / "a.npz")
    policy = cael.io.load_policy("target", tmp_path / "a.npz")
    assert cael.DR().estimate(back, policy).value == pytest.approx(cael.DR().estimate(log, world.target).value)


def test_errors_exit_with_1_and_say_what_to_do(capsys, tmp_path):
    code, out, err = run(capsys, "evaluate", str(tmp_path / "none.npz"))
    assert (code, out) == (1, "")
    assert "there is no file" in err
    np.savez(tmp_path / "bad.npz", actions=[0, 1], rewards=[1.0, np.nan], target=[0.5, 0.5])
    code, _, err = run(capsys, "evaluate", str(tmp_path / "bad.npz"))
    assert code == 1
    assert "rewards must be finite; row 1 has nan" in err
    np.savez(tmp_path / "short.npz", actions=[0, 1])
    assert "missing rewards" in run(capsys, "evaluate", str(tmp_path / "short.npz"))[2]
    np.savez(tmp_path / "good.npz", actions=[0, 1], rewards=[1.0, 2.0], propensities=[0.5, 0.5])
    assert "has no array 'target'" in run(capsys, "evaluate", str(tmp_path / "good.npz"))[2]
    assert "there is no file" in run(capsys, "evaluate", str(tmp_path / "good.csv"))[2]
    assert "ends in .npz" in run(capsys, "simulate", str(tmp_path / "x.csv"))[2]


def test_wrong_usage_exits_with_2(capsys):
    assert run(capsys, "demo", "--bogus", "1")[0] == 2
    assert run(capsys, "evaluate")[0] == 2
    assert run(capsys, "demo", "--rows", "many")[0] == 2


def test_unknown_estimator_lists_the_known(capsys, tmp_path):
    file = str(tmp_path / "log.npz")
    run(capsys, "simulate", file, "--rows", "50", "--actions", "4")
    code, _, err = run(capsys, "evaluate", file, "--estimators", "Magic")
    assert code == 1
    assert "unknown estimator 'Magic'; there are: LoggedMean, IPS" in err


def test_estimators_and_version(capsys):
    assert "BaselineIPS" in run(capsys, "estimators")[1]
    assert run(capsys, "--version")[1].strip() == cael.__version__


def test_help_does_not_load_the_heavy_modules():
    """--help answers at once because it loads no numpy-based science stack (asserted by modules, not by a clock)."""
    code = (
        "import sys\nfrom cael.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'scipy', 'sklearn', 'pandas', 'matplotlib') if m in sys.modules], file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "demo" in found.stdout
    assert found.stderr.strip() == "[]"


def test_the_installed_command_runs():
    command = Path(sys.executable).parent / "cael"
    assert subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.strip() == "0.2.0"


def test_a_file_that_is_no_archive_is_an_error_and_not_a_traceback(capsys, tmp_path):
    (tmp_path / "junk.npz").write_text("junk")
    code, _, err = run(capsys, "evaluate", str(tmp_path / "junk.npz"))
    assert code == 1
    assert "is not an .npz file of plain arrays" in err


def test_the_level_reaches_the_json(capsys, tmp_path):
    file = str(tmp_path / "log.npz")
    run(capsys, "simulate", file, "--rows", "80", "--actions", "4")
    _, out, _ = run(capsys, "evaluate", file, "--level", "0.5", "--no-learn", "--format", "json")
    data = json.loads(out)
    assert data["level"] == 0.5
    assert {each["interval"]["level"] for each in data["estimates"]} == {0.5}


def test_a_reader_that_has_seen_enough_is_no_error():
    command = Path(sys.executable).parent / "cael"
    shell = f"{command} demo --rows 200 --actions 5 --no-learn --format json | head -n 1; exit ${{PIPESTATUS[0]}}"
    found = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "{\n", "")
