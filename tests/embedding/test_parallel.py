"""Two processes train the model that one trains, up to the order of additions."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cael
from cael.testing import example

torch = pytest.importorskip("torch")

from cael.embedding.exact.parallel import Processes  # noqa: E402
from cael.embedding.exact.rewards import sparse_rewards  # noqa: E402

LOG, POLICY = example(clusters=True)
GROWTH = {"steps": 15, "hidden": 8, "penalties": (0.5, 1.5), "restarts": 1, "patience": 5}

PROGRAM = """
import os, pickle, sys
import torch
import cael
from cael.embedding.exact.rewards import sparse_rewards
from tests.embedding.test_parallel import GROWTH, LOG, POLICY

torch.set_num_threads(1)
growth = cael.Growth(parallel=True, **GROWTH)
rewards = sparse_rewards([LOG], growth, 3, [0])[0]
value = cael.CAEL(growth=growth, folds=3).estimate(LOG, POLICY).value
told = {"losses": rewards.losses, "value": value, "weights": [
    member.weights for some in rewards.members for member in some
]}
with open(os.path.join(sys.argv[1], os.environ["RANK"]), "wb") as file:
    pickle.dump(told, file)
torch.distributed.destroy_process_group()
"""


@pytest.mark.long
def test_two_processes_give_the_model_of_one(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*command, str(program), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    first, second = (pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(2))
    one = sparse_rewards([LOG], cael.Growth(**GROWTH), 3, [0])[0]
    np.testing.assert_array_equal(first["losses"], second["losses"])
    np.testing.assert_allclose(first["losses"], one.losses, rtol=1e-4)
    members = [member for some in one.members for member in some]
    for mine, theirs, other in zip(members, first["weights"], second["weights"], strict=True):
        for name, value in mine.weights.items():
            np.testing.assert_array_equal(theirs[name], other[name], err_msg=name)
            np.testing.assert_allclose(theirs[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    alone = cael.CAEL(growth=cael.Growth(**GROWTH), folds=3).estimate(LOG, POLICY)
    assert first["value"] == second["value"]
    assert first["value"] == pytest.approx(alone.value, abs=1e-3 * alone.stderr)


def test_the_parts_of_a_batch_are_all_of_it():
    rows = torch.arange(14).reshape(2, 7)
    parts = [Processes(rank, 3).own(rows) for rank in range(3)]
    assert sorted(torch.cat(parts, dim=1)[1].tolist()) == list(range(7, 14))
    values = [torch.ones(2), torch.zeros(1, 3)]
    assert all(a is b for a, b in zip(Processes().added(values), values, strict=True))


def test_parallel_training_without_torchrun_is_refused():
    with pytest.raises(cael.InputError, match="Start it with `torchrun --nproc-per-node 2"):
        cael.CAEL(growth=cael.Growth(parallel=True, **GROWTH)).estimate(LOG, POLICY)
