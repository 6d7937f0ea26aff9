"""The losses against loops over pairs of actions, and their gradients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.embedding import slow

torch = pytest.importorskip("torch")

from cael.embedding.published import losses  # noqa: E402
from cael.theory import half_gini as numpy_half_gini  # noqa: E402

TYPES = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


@st.composite
def batches(draw):
    """(p, w, r_hat, r): rows of posteriors and weights, with ties and zeros among both."""
    b, k = draw(st.integers(1, 5)), draw(st.integers(2, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p = rng.dirichlet(np.full(k, draw(st.sampled_from([0.3, 1.0, 20.0]))), b)
    w = rng.lognormal(0, draw(st.sampled_from([0.1, 1.0, 3.0])), (b, k))
    if draw(st.booleans()):  # the weights of a greedy target: two values, and actions it never plays
        w = np.where(rng.random((b, k)) < 0.5, draw(st.sampled_from([0.0, 0.2])), 50.0)
    if draw(st.booleans()):
        p[:, 0] = 0.0
        p[p.sum(axis=1) == 0, 1] = 1.0
        p /= p.sum(axis=1, keepdims=True)
    return p, w, rng.normal(size=b), rng.normal(size=b)


def tensors(arrays, dtype):
    """The arrays as tensors, and as lists of exactly the numbers that the tensors hold."""
    made = [torch.as_tensor(each, dtype=dtype) for each in arrays]
    return made, [each.double().tolist() for each in made]


def close(found, expected, relative, scale=0.0):
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=relative, atol=relative * scale + 1e-300)


@pytest.mark.parametrize(("dtype", "relative"), TYPES, ids=str)
@given(batches())
def test_reward_loss(dtype, relative, given):
    (_, _, r_hat, r), (_, _, r_hat_list, r_list) = tensors(given, dtype)
    close(losses.reward_loss(r_hat, r), slow.reward(r_hat_list, r_list), relative)


@pytest.mark.parametrize(("dtype", "relative"), TYPES, ids=str)
@given(batches())
def test_half_gini_and_bias_loss(dtype, relative, given):
    (p, w, *_), (p_list, w_list, *_) = tensors(given, dtype)
    rows = losses.half_gini(p, losses.sort_weights(w))
    # Where nearly all of p lies on the smallest weights, 1 - F keeps the absolute and not the relative precision of F:
    # the error is small beside the spread of w.
    spread = max(max(row) - min(row) for row in w_list)
    close(rows, [slow.pair_sum(pi, wi) for pi, wi in zip(p_list, w_list, strict=True)], relative, spread)
    close(losses.bias_loss(rows), slow.bias(p_list, w_list), 2 * relative, spread**2)


@given(batches())
def test_the_numpy_form_of_the_half_gini(given):
    p, w, *_ = given
    expected = losses.half_gini(torch.as_tensor(p), losses.sort_weights(torch.as_tensor(w)))
    np.testing.assert_allclose(numpy_half_gini(p, w), expected.numpy(), rtol=1e-12, atol=1e-14 * (1 + w.max()))


@pytest.mark.parametrize(("dtype", "relative"), TYPES, ids=str)
@given(batches())
def test_sharp_bias(dtype, relative, given):
    (p, w, *_), (p_list, w_list, *_) = tensors(given, dtype)
    spread = max(max(row) for row in w_list)
    rows = losses.sharp_bias(p, w)
    close(rows, [slow.sharp(pi, wi) for pi, wi in zip(p_list, w_list, strict=True)], relative, spread)
    close(losses.bias_loss(rows), slow.sharp_bias(p_list, w_list), 2 * relative, spread**2)


@pytest.mark.parametrize(("dtype", "relative"), TYPES, ids=str)
@given(batches(), st.integers(1, 1000))
def test_variance_losses(dtype, relative, given, n):
    (p, w, r_hat, r), (p_list, w_list, r_hat_list, r_list) = tensors(given, dtype)
    squares = (w**2).sum(dim=-1)
    close(
        losses.variance_loss(r_hat, (p**2).sum(dim=-1), squares, n),
        slow.variance(r_hat_list, p_list, w_list, n),
        relative,
    )
    close(losses.direct_variance_loss(r, p, w, n), slow.direct_variance(r_list, p_list, w_list, n), relative)


@pytest.mark.parametrize(("dtype", "relative"), TYPES, ids=str)
@given(batches())
def test_renyi_entropy(dtype, relative, given):
    (p, *_), (p_list, *_) = tensors(given, dtype)
    close(losses.renyi_entropy(p), [slow.renyi(row) for row in p_list], relative, 1.0)


@given(batches())
def test_sharp_bound_below_gini_below_twice_the_sharp_bound(given):
    (p, w, *_), _ = tensors(given, torch.float64)
    d, g = losses.sharp_bias(p, w), losses.half_gini(p, losses.sort_weights(w))
    slack = 1e-12 * (1 + w.max())
    assert (d <= g + slack).all()
    assert (g <= 2 * d + slack).all()


@given(batches())
def test_sharp_bound_is_attained(given):
    """|Cov_p(w, q)| of q = 1{w > rho} is the sharp bound."""
    (p, w, *_), _ = tensors(given, torch.float64)
    rho = (p * w).sum(dim=-1, keepdim=True)
    q = (w > rho).double()
    covariance = (p * w * q).sum(dim=-1) - (rho[..., 0] * (p * q).sum(dim=-1))
    np.testing.assert_allclose(losses.sharp_bias(p, w).numpy(), covariance.numpy(), atol=1e-12 * (1 + w.max()))


@pytest.mark.parametrize("seed", range(5))
def test_gradients(seed):
    rng = np.random.default_rng(seed)
    p = torch.tensor(rng.dirichlet(np.ones(6), 3), requires_grad=True)
    w = torch.tensor(rng.lognormal(0, 1, (3, 6)))
    weights = losses.sort_weights(w)
    assert torch.autograd.gradcheck(lambda p: losses.half_gini(p, weights), (p,))
    assert torch.autograd.gradcheck(lambda p: losses.sharp_bias(p, w), (p,))
    assert torch.autograd.gradcheck(lambda p: losses.bias_loss(losses.half_gini(p, weights)), (p,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_leading_trial_axis(dtype):
    rng = np.random.default_rng(0)
    p = torch.as_tensor(rng.dirichlet(np.ones(7), (4, 5)), dtype=dtype)
    w = torch.as_tensor(rng.lognormal(0, 1, (4, 5, 7)), dtype=dtype)
    r_hat, r = (torch.as_tensor(rng.normal(size=(4, 5)), dtype=dtype) for _ in range(2))
    made = {
        "reward": lambda p, w, r_hat, r: losses.reward_loss(r_hat, r),
        "gini": lambda p, w, r_hat, r: losses.bias_loss(losses.half_gini(p, losses.sort_weights(w))),
        "sharp": lambda p, w, r_hat, r: losses.bias_loss(losses.sharp_bias(p, w)),
        "variance": lambda p, w, r_hat, r: losses.variance_loss(r_hat, (p**2).sum(-1), (w**2).sum(-1), 9),
        "direct": lambda p, w, r_hat, r: losses.direct_variance_loss(r, p, w, 9),
        "renyi": lambda p, w, r_hat, r: losses.renyi_entropy(p),
    }
    for name, loss in made.items():
        one_by_one = torch.stack([loss(p[t], w[t], r_hat[t], r[t]) for t in range(4)])
        torch.testing.assert_close(loss(p, w, r_hat, r), one_by_one, rtol=1e-6, atol=0, msg=name)
