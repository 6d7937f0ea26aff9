"""The weights in torch are those of `cael.codes`, and a path that is made with them is that of numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cael.embedding.exact import codes
from cael.testing import example

torch = pytest.importorskip("torch")

from cael.embedding.exact import rounding  # noqa: E402
from cael.embedding.exact.grid import all_cells, drawn_cells  # noqa: E402
from cael.embedding.exact.weight_paths import weights_of, weights_on  # noqa: E402

LOG, POLICY = example()
PITCHES = np.array([0.0, 1e-9, 0.03, 0.4, 3.0, 1e9, np.inf])


class Known:
    """A reward model that knows f(x, a) = x_0 a mod 3."""

    def predict(self, fold, batch, actions=None):
        every = batch.contexts[:, :1] * np.arange(batch.n_actions) % 3
        return every if actions is None else np.take_along_axis(every, actions, axis=1)


def same(here, there):
    for one, other in zip(here, (there.weights, there.lost, there.roughness), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-10, atol=1e-12)


@given(
    b=st.integers(1, 6), k=st.integers(1, 12), pitch=st.floats(1e-9, 1e6), shifts=st.integers(1, 5),
    seed=st.integers(0, 2**32), dead=st.floats(0, 0.9), tied=st.booleans(),
)  # fmt: skip
def test_weights_in_torch_are_those_of_numpy(b, k, pitch, shifts, seed, dead, tied):
    rng = np.random.default_rng(seed)
    f = rng.integers(0, 3, (b, k)).astype(float) if tied else rng.normal(size=(b, k))
    mu, pi = rng.dirichlet(np.ones(k), b), rng.dirichlet(np.full(k, 0.3), b)
    mu = np.where(rng.random((b, k)) < dead, 0.0, mu)
    there = [torch.as_tensor(each) for each in (f, mu, pi)]
    same(rounding.rounded(*there, pitch, shifts), codes.rounded(f, mu, pi, pitch, shifts))
    same(rounding.rounded(*there, torch.inf), codes.flat(mu, pi))


@pytest.mark.parametrize("drawn", [None, 1, 9])
def test_a_path_of_a_device_is_that_of_numpy(drawn):
    (batch,) = LOG.batches(width=1)
    if drawn is None:
        cells = all_cells(LOG.logging, POLICY, Known(), 0, batch)
    else:
        cells = drawn_cells(LOG.logging, POLICY, Known(), 0, batch, drawn, seed=3)
    here, there = weights_on(torch.device("cpu"), cells, PITCHES), weights_of(cells, PITCHES)
    np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-12)
