"""On a GPU: the numbers of the CPU, and graphs that do what the steps do that they were captured from."""

from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.embedding.arrays import NUMPY
from cael.embedding.exact import rewards
from cael.embedding.exact import weight_paths as paths
from cael.embedding.exact.weight_paths import cells_of, weights_of
from cael.worlds import PaperWorld

torch = pytest.importorskip("torch")
from cael.embedding.graphs import Replayed  # noqa: E402
from cael.embedding.tensors import Torch  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU on this machine")

WORLD = PaperWorld(n_actions=20, action_dim=3)
CUDA = Torch(torch.device("cuda"))
SHORT = cael.Growth(steps=30, penalties=(0.5, 2.0), restarts=1, device="cuda")


def logs(count, n=300):
    return [WORLD.sample(n, seed) for seed in range(count)]


def losses(settings, count=2):
    return [each.losses for each in rewards.sparse_rewards(logs(count), settings, 3, list(range(count)))]


def test_a_graph_does_what_its_step_does(monkeypatch):
    replayed = losses(SHORT)
    monkeypatch.setattr(Torch, "repeated", lambda self, step, state: step)
    for graph, plain in zip(replayed, losses(SHORT), strict=True):
        np.testing.assert_array_equal(graph, plain)


def test_the_call_before_a_capture_leaves_no_trace():
    state = torch.zeros(3, device="cuda")

    def add(step):
        state.add_(step)

    added = Replayed(add, [state])
    for _ in range(4):
        added(torch.ones(3, device="cuda"))
    assert state.tolist() == [4.0] * 3


def test_networks_learn_what_they_learn_on_the_cpu():
    for here, there in zip(losses(SHORT), losses(replace(SHORT, device="cpu")), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-3)


@pytest.mark.parametrize("candidates", ["all", 8])
@pytest.mark.parametrize("least", [0, 2**21])
def test_cael_says_what_it_says_on_the_cpu(candidates, least, monkeypatch):
    """least: cells from which on the weights are made on the device, too."""
    monkeypatch.setattr(paths, "DEVICE_CELLS", least)
    log = logs(1)[0]
    here, there = (
        cael.CAEL(growth=replace(SHORT, device=device), candidates=candidates).estimate(log, WORLD.target)
        for device in ("cuda", "cpu")
    )
    assert here.value == pytest.approx(there.value, abs=0.05 * there.stderr)
    assert here.stderr == pytest.approx(there.stderr, rel=0.05)


@pytest.mark.parametrize("drawn", [None, 8])
def test_weights_are_those_of_the_cpu(drawn):
    """All but the predictions of f, which are taken from one network: to ten digits."""
    log = logs(1, n=3000)[0]
    fitted = rewards.sparse_rewards([log], SHORT, 3, [0])[0].in_numpy()
    cells = cells_of(log.logging, WORLD.target, fitted, 0, next(log.batches(width=1)), drawn, 0)
    pitches = np.array([0.0, 1e-9, 0.03, 0.4, 3.0, np.inf])
    here, there = (weights_of(cells, pitches, xp) for xp in (CUDA, NUMPY))
    np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(here, weights_of(cells, pitches, CUDA))


@pytest.mark.parametrize("preset", ["constant-posterior", "through-posterior", "offset", "literal"])
def test_the_papers_estimator_says_what_it_says_on_the_cpu(preset):
    log = logs(1)[0]
    here, there = (
        cael.CAELMIPS(preset, training=cael.Training(iterations=30, batch_size=64, device=device)).estimate(
            log, WORLD.target
        )
        for device in ("cuda", "cpu")
    )
    assert here.value == pytest.approx(there.value, rel=1e-8)


def test_the_same_seed_gives_the_same_bits():
    log = logs(1)[0]
    one, two = (cael.CAEL(growth=SHORT).estimate(log, WORLD.target) for _ in range(2))
    np.testing.assert_array_equal(one.contributions, two.contributions)
