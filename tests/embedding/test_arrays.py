"""numpy and torch compute the same: operations, random numbers, steps, weights, and a whole training."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cael
from cael.embedding.arrays import NUMPY, arrays_on, of
from cael.embedding.exact import codes
from cael.testing import example

torch = pytest.importorskip("torch")

from cael.embedding.exact import rewards  # noqa: E402
from cael.embedding.exact.grid import all_cells, drawn_cells  # noqa: E402
from cael.embedding.exact.proximal import ProximalAdam  # noqa: E402
from cael.embedding.exact.reward_network import backwards, gradients, predict_all, start, upper, with_one  # noqa: E402
from cael.embedding.exact.weight_paths import weights_of  # noqa: E402
from cael.embedding.stream import Stream  # noqa: E402
from cael.embedding.tensors import Torch  # noqa: E402

TORCH = Torch(torch.device("cpu"))
LOG, POLICY = example()
PITCHES = np.array([0.0, 1e-9, 0.03, 0.4, 3.0, 1e9, np.inf])


def same(here, there, rtol=1e-12, atol=0.0):
    """An array of numpy and a tensor of torch with the same shape, type and numbers."""
    assert isinstance(here, np.ndarray)
    assert here.dtype == there.numpy().dtype
    np.testing.assert_allclose(here, there.numpy(), rtol=rtol, atol=atol)


def both(*values, dtype=None):
    """The same arrays in numpy and in torch."""
    return [[xp.asarray(v, dtype and getattr(xp, dtype)) for v in values] for xp in (NUMPY, TORCH)]


# --- the operations that are written twice

RNG = np.random.default_rng(0)
TABLE, LINE = RNG.normal(size=(4, 6)), RNG.normal(size=9)
PLACES, AT = RNG.integers(0, 6, (4, 3)), RNG.integers(0, 5, 9)
TIED = RNG.integers(0, 3, (4, 6)).astype(float)
OPERATIONS = {
    "take": ((TABLE, RNG.integers(0, 4, 7)), ()),
    "take_along": ((TABLE, PLACES), ()),
    "argsort": ((TIED,), ()),
    "sort": ((TABLE,), ()),
    "lowest": ((TABLE,), ()),
    "nonzero": ((np.array([0, 2, 0, 1]),), ()),
    "bincount": ((AT,), (7,)),
    "sums_at": ((AT, LINE), (7,)),
    "row_sums_at": ((AT, RNG.normal(size=(9, 3))), (7,)),
    "searchsorted": ((np.array([1, 3, 5]), PLACES), ()),
    "ratio": ((TABLE, np.where(TIED > 0, TIED, 0.0)), (1e-300,)),
    "dots": ((TABLE, TIED), ()),
    "total": ((RNG.normal(size=(2, 5, 3)),), ()),
    "sigmoid": ((50 * TABLE,), ()),
    "erfinv": ((np.tanh(TABLE),), ()),
    "sqrt": ((TIED,), ()),
    "floor": ((TABLE,), ()),
    "zeros_like": ((TABLE,), ()),
    "copy": ((TABLE,), ()),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_in_numpy_is_that_in_torch(name):
    arrays, rest = OPERATIONS[name]
    here, there = both(*arrays)
    same(getattr(NUMPY, name)(*here, *rest), getattr(TORCH, name)(*there, *rest), atol=1e-15)


@pytest.mark.parametrize("values", [-1.0, TABLE[:, :3]])
def test_entries_are_put_where_they_are_taken(values):
    places = RNG.permuted(np.tile(np.arange(6), (4, 1)), axis=1)[:, :3]
    for xp, table in ((NUMPY, TABLE.copy()), (TORCH, TORCH.asarray(TABLE))):
        there = xp.asarray(places, xp.int64)
        xp.put_along(table, there, values if isinstance(values, float) else xp.asarray(values))
        np.testing.assert_array_equal(xp.take_along(table, there), np.broadcast_to(values, (4, 3)))
        assert (xp.to_numpy(table) != TABLE).sum() <= 12
        xp.put_along(table, there[:, :0], -1.0)


def test_both_have_the_same_operations():
    names = {name for name in dir(NUMPY) if not name.startswith("_")}
    assert names == {name for name in dir(TORCH) if not name.startswith("_")} - {"device"}
    assert {*OPERATIONS} < names


def test_an_array_knows_what_computes_it():
    assert of(TABLE) is NUMPY
    assert of(torch.zeros(2)) == TORCH
    assert arrays_on("cpu") is NUMPY
    assert not TORCH.on_device


def test_row_sums_of_no_rows_are_0():
    assert NUMPY.row_sums_at(np.empty(0, int), np.empty((0, 3)), 2).tolist() == [[0.0] * 3] * 2


# --- random numbers, to the last bit


def test_streams_are_equal_to_the_bit():
    here, there = (Stream([0, 7, 2**40 + 1], xp) for xp in (NUMPY, TORCH))
    lengths, rows = both([5, 9, 7], np.arange(27).reshape(3, 9), dtype="int64")
    trials = np.arange(3)
    for _ in range(2):
        same(here.bits(11), there.bits(11), rtol=0)
        same(here.uniform(3, 5), there.uniform(3, 5), rtol=0)
        same(here.kept(0.3, 2, 7), there.kept(0.3, 2, 7), rtol=0)
        shuffled = here.shuffled_together(lengths[1], lengths[0], trials)
        same(shuffled, there.shuffled_together(rows[1], rows[0], torch.as_tensor(trials)), rtol=0)
    same(here.drawn, there.drawn, rtol=0)


# --- the network


def network(dtype="float64", contexts=3, active=4, rows=17):
    """Weights, action inputs joined to contexts, rewards and shares, in numpy and in torch."""
    rng = np.random.default_rng(contexts + active)
    p = start(Stream([1, 2], NUMPY), contexts, 8)
    p["first"] = np.concatenate([rng.normal(size=(2, active, 8)), p["first"]], axis=1)
    p = {name: value + 0.1 * rng.normal(size=value.shape) for name, value in p.items()}
    x, values, r = (rng.normal(size=(2, rows, *more)) for more in ((contexts,), (active,), ()))
    inputs, share = np.concatenate([values, with_one(x)], axis=2), rng.random((2, rows))
    for *tables, inputs_, r_, share_ in both(*p.values(), inputs, r, share, dtype=dtype):
        yield dict(zip(p, tables, strict=True)), inputs_, r_, share_


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("contexts", "active"), [(3, 4), (3, 0), (0, 2), (0, 0)])
def test_gradients_in_numpy_are_those_in_torch_and_of_autograd(contexts, active, dtype):
    exact = {"rtol": 1e-10, "atol": 1e-12} if dtype == "float64" else {"rtol": 1e-4, "atol": 1e-5}
    (p, inputs, r, _), (q, inputs_, r_, _) = network(dtype, contexts, active)
    before = {name: value.copy() for name, value in p.items()}
    leaves = {name: value.clone().requires_grad_() for name, value in q.items()}
    loss = ((upper(leaves, inputs_ @ leaves["first"], inputs_[..., active:]) - r_) ** 2).sum() / 20
    slow = torch.autograd.grad(loss, list(leaves.values()))
    for mine, other, oracle in zip(gradients(p, inputs, r, 20), gradients(q, inputs_, r_, 20), slow, strict=True):
        same(mine, other, **exact)
        same(mine, oracle, **exact)
    for name, value in p.items():
        np.testing.assert_array_equal(value, before[name])


def test_the_derivatives_that_rank_inputs_are_those_of_autograd():
    """By the sums of the first layer, of a loss in which each row has a share of its own."""
    (p, inputs, r, share), (q, inputs_, r_, share_) = network()
    found = backwards(p, inputs @ p["first"], inputs[..., 4:], r, share)[3]
    first = (inputs_ @ q["first"]).requires_grad_()
    loss = (share_ * (upper(q, first, inputs_[..., 4:]) - r_) ** 2).sum()
    same(found, torch.autograd.grad(loss, first)[0], rtol=1e-10, atol=1e-12)


def test_predictions_in_numpy_are_those_in_torch():
    (p, inputs, *_), (q, inputs_, *_) = network()
    p, q = ({name: value[:1] for name, value in each.items()} for each in (p, q))
    lifted, chosen = both(RNG.normal(size=(5, 8)), RNG.integers(0, 5, (17, 2)))
    x, x_ = inputs[0, :, 4:7], inputs_[0, :, 4:7]
    same(predict_all(p, x, lifted[0]), predict_all(q, x_, chosen[0]), rtol=1e-10, atol=1e-12)
    some = predict_all(p, x, lifted[0], lifted[1])
    same(some, predict_all(q, x_, chosen[0], chosen[1]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(some, np.take_along_axis(predict_all(p, x, lifted[0]), lifted[1], axis=1))


def test_steps_in_numpy_are_those_in_torch():
    """The weights are views of one table, also after it has grown: a step reaches them."""
    (p, inputs, r, _), (q, inputs_, r_, _) = network()
    penalty, penalty_ = (each[0] for each in both([0.05, 0.5], dtype="float64"))
    here, there = ProximalAdam(p, penalty), ProximalAdam(q, penalty_)
    for t in range(1, 9):
        pace, pace_ = (each[0] for each in both([0.01, 1 - 0.9**t, 1 - 0.99**t], dtype="float64"))
        before = here.p["w2"].copy()
        here.step(gradients(here.p, inputs, r, 17), pace)
        there.step(gradients(there.p, inputs_, r_, 17), pace_)
        assert not np.array_equal(here.p["w2"], before)
        for name in p:
            assert np.shares_memory(here.p[name], here.flat)
            same(here.p[name], there.p[name], rtol=1e-9, atol=1e-12)
        if t == 4:
            here.grow(1, 2)
            there.grow(1, 2)
            inputs, inputs_ = np.repeat(inputs, [1, 3, *[1] * 6], axis=2), inputs_[..., [0, 1, 1, 1, *range(2, 8)]]


@pytest.mark.parametrize("candidates", ["all", 5])
def test_a_training_in_numpy_is_that_in_torch(candidates, monkeypatch):
    """Up to rounding, which some hundred steps multiply. Negative control: another seed is far away."""
    growth = cael.Growth(steps=30, hidden=8, penalties=(0.5, 1.5), restarts=2)
    estimator = cael.CAEL(growth=growth, folds=3, candidates=candidates)
    here, other = estimator.estimate(LOG, POLICY), cael.CAEL(growth=growth, folds=3, seed=1).estimate(LOG, POLICY)
    monkeypatch.setattr(rewards, "arrays_on", lambda device: TORCH)
    model = rewards.sparse_rewards([LOG], growth, 3, [0])[0]
    assert isinstance(model.members[0][0].table, torch.Tensor)
    there = estimator.estimate(LOG, POLICY)
    assert there.value == pytest.approx(here.value, abs=1e-3 * here.stderr)
    assert there.stderr == pytest.approx(here.stderr, rel=1e-3)
    monkeypatch.undo()
    np.testing.assert_allclose(rewards.sparse_rewards([LOG], growth, 3, [0])[0].losses, model.losses, rtol=1e-4)
    assert abs(other.value - here.value) > 1e-2 * here.stderr


# --- weights


class Known:
    """A reward model that knows f(x, a) = x_0 a mod 3."""

    def predict(self, fold, batch, actions=None):
        every = batch.contexts[:, :1] * np.arange(batch.n_actions) % 3
        return every if actions is None else np.take_along_axis(every, actions, axis=1)


@given(
    b=st.integers(1, 6), k=st.integers(1, 12), pitch=st.floats(1e-9, 1e6), shifts=st.integers(1, 5),
    seed=st.integers(0, 2**32), dead=st.floats(0, 0.9), tied=st.booleans(),
)  # fmt: skip
def test_weights_in_numpy_are_those_in_torch(b, k, pitch, shifts, seed, dead, tied):
    rng = np.random.default_rng(seed)
    f = rng.integers(0, 3, (b, k)).astype(float) if tied else rng.normal(size=(b, k))
    mu, pi = rng.dirichlet(np.ones(k), b), rng.dirichlet(np.full(k, 0.3), b)
    here, there = both(f, np.where(rng.random((b, k)) < dead, 0.0, mu), pi)
    for size in (pitch, math.inf):
        one, other = codes.rounded(*here, size, shifts), codes.rounded(*there, size, shifts)
        for name in ("weights", "lost", "roughness"):
            same(getattr(one, name), getattr(other, name), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("drawn", [None, 1, 9])
def test_a_path_in_numpy_is_that_in_torch(drawn):
    (batch,) = LOG.batches(width=1)
    if drawn is None:
        cells = all_cells(LOG.logging, POLICY, Known(), 0, batch)
    else:
        cells = drawn_cells(LOG.logging, POLICY, Known(), 0, batch, drawn, seed=3)
    here, there = weights_of(cells, PITCHES), weights_of(cells, PITCHES, TORCH)
    np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-12)
