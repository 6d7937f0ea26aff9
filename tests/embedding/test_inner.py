"""The posterior on a mini-batch against scikit-learn, and on all rows against `cael.policies.posterior`."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import cael
from cael.policies.posterior import fit_softmax

torch = pytest.importorskip("torch")

from cael.embedding.published import inner  # noqa: E402
from cael.embedding.published.inner import SoftmaxHead, fit_all_rows, sklearn_head  # noqa: E402
from cael.embedding.settings import Objective  # noqa: E402

CPU = torch.device("cpu")


def batch(seed, n, k, p=4, scale=1.0, only=None):
    """(z (n, p), a (n,)): features that say something about the action."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, scale, (n, p))
    logits = z @ rng.normal(size=(p, k))
    a = (logits + rng.gumbel(size=(n, k))).argmax(axis=1)
    if only is not None:
        a = np.asarray(only)[a % len(only)]
    return z, a


def by_sklearn(z, a, k, C):
    """(n, k) posterior of scikit-learn's optimum; actions that do not occur get 0."""
    with warnings.catch_warnings():  # scikit-learn wonders at more classes than half the rows
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        model = LogisticRegression(C=C, tol=1e-8, max_iter=20_000).fit(z, a)
    p = np.zeros((len(z), k))
    p[:, model.classes_] = model.predict_proba(z)
    return p


def head_for(z, k, C=1.0, offset=False):
    return SoftmaxHead(torch.zeros(len(z), z.shape[2] + 1, k, dtype=z.dtype), C, offset)


def stacked(batches, dtype=None):
    z = torch.as_tensor(np.stack([z for z, _ in batches]), dtype=dtype or torch.float64)
    return z, torch.as_tensor(np.stack([a for _, a in batches]))


def seen(a, k):
    return torch.zeros(len(a), k, dtype=torch.bool).scatter(1, a, True)


def fitted(head, z, a, **options):
    left, squares = head.fit(z, a, None, **{"tolerance": 1e-9, "max_iter": 500, **options})
    p = head.posterior(z, seen(a, head.table.shape[2]), None)
    torch.testing.assert_close(squares, (p**2).sum(dim=-1))
    return p.numpy(), left


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_more_actions_than_rows(seed, C):
    k = 60
    given = batch(seed, 40, k)
    z, a = stacked([given])
    p, left = fitted(head_for(z, k, C), z, a)
    assert max(left) <= 1e-9
    np.testing.assert_allclose(p[0], by_sklearn(*given, k, C), atol=1e-4)


@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0])
def test_small_and_large_features(scale):
    given = batch(3, 80, 6, scale=scale)
    z, a = stacked([given])
    p, _ = fitted(head_for(z, 6), z, a)
    np.testing.assert_allclose(p[0], by_sklearn(*given, 6, 1.0), atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_two_classes(seed):
    """The head's optimum for two classes is scikit-learn's, which has one logit then."""
    k = 5
    given = batch(seed, 50, k, only=[1, 4])
    z, a = stacked([given])
    p, _ = fitted(head_for(z, k), z, a)
    np.testing.assert_allclose(p[0], by_sklearn(*given, k, 1.0), atol=1e-4)


def test_several_trials_with_different_numbers_of_classes():
    k = 20
    given = [batch(0, 40, k), batch(1, 40, k, only=[3, 7, 19]), batch(2, 40, k, only=[0, 1, 2, 3, 10]), batch(3, 40, k)]
    z, a = stacked(given)
    p, _ = fitted(head_for(z, k), z, a)
    for t, each in enumerate(given):
        np.testing.assert_allclose(p[t], by_sklearn(*each, k, 1.0), atol=1e-4, err_msg=f"trial {t}")
        alone, _ = fitted(head_for(z[:1], k), z[t : t + 1], a[t : t + 1])
        np.testing.assert_allclose(p[t], alone[0], atol=1e-7)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
def test_a_trial_stops_where_it_would_alone(tolerance):
    """One that converges late does not make those beside it go on."""
    k = 20
    given = [batch(seed, 40, k, scale=scale) for seed, scale in enumerate((0.1, 1.0, 10.0))]
    z, a = stacked(given)
    together = head_for(z, k)
    left, _ = together.fit(z, a, None, tolerance)
    for t in range(3):
        alone = head_for(z[:1], k)
        mine, _ = alone.fit(z[t : t + 1], a[t : t + 1], None, tolerance)
        torch.testing.assert_close(together.table[t], alone.table[0], rtol=1e-11, atol=1e-11)
        assert float(left[t]) == pytest.approx(float(mine), rel=1e-6)
    further = head_for(z, k)
    further.fit(z, a, None, tolerance / 100)
    assert float((further.table[0] - together.table[0]).abs().max()) > 1e-9  # that it stopped can be seen


def test_warm_start_from_another_batch():
    k = 15
    first, second = [batch(seed, 50, k) for seed in (0, 1)], [batch(seed, 50, k, only=range(11)) for seed in (2, 3)]
    z, a = stacked(first)
    head = head_for(z, k)
    fitted(head, z, a)
    z, a = stacked(second)
    p, _ = fitted(head, z, a)
    for t, each in enumerate(second):
        np.testing.assert_allclose(p[t], by_sklearn(*each, k, 1.0), atol=1e-4)


def test_default_tolerance_in_single_precision():
    """What training uses: probabilities are right to a few thousandths."""
    k = 100
    given = [batch(seed, 64, k) for seed in range(3)]
    z, a = stacked(given, torch.float32)
    head = head_for(z, k)
    left, _ = head.fit(z, a, None)
    assert max(left) <= 1e-4
    p = head.posterior(z, seen(a, k), None).numpy()
    for t, each in enumerate(given):
        np.testing.assert_allclose(p[t], by_sklearn(*each, k, 1.0), atol=1e-2)


def test_actions_outside_the_batch_keep_their_coefficients_and_have_probability_zero():
    k = 10
    z, a = stacked([batch(0, 30, k, only=[0, 1, 2])])
    head = head_for(z, k)
    head.table = head.table + 3.0
    p, _ = fitted(head, z, a)
    assert (head.table[:, :, 3:] == 3.0).all()
    assert (p[..., 3:] == 0).all()
    np.testing.assert_allclose(p.sum(axis=-1), 1.0)


def test_posterior_is_differentiable_in_the_features():
    z, a = stacked([batch(0, 6, 4, p=2)])
    head = head_for(z, 4)
    head.fit(z, a, None)
    assert torch.autograd.gradcheck(lambda z: head.posterior(z, seen(a, 4), None), (z.requires_grad_(),))


def log_with(z, a, mu):
    return cael.LoggedData(z, a, np.zeros(len(a)), logging=mu)


@pytest.mark.parametrize("seed", range(3))
def test_offset(seed):
    """With log mu(a|x) all actions take part; those that never occur follow the logging policy."""
    k, n = 12, 60
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    mu = rng.dirichlet(np.ones(k), n)
    a = np.array([rng.choice(k - 2, p=row[:-2] / row[:-2].sum()) for row in mu])
    expected = fit_softmax(log_with(z, a, mu), z, C=1.0, offset=True, max_iter=5000).probabilities(z, mu)
    tensor = torch.as_tensor(z)[None]
    head = head_for(tensor, k, offset=True)
    log_mu = torch.log(torch.as_tensor(mu))[None]
    head.fit(tensor, torch.as_tensor(a)[None], log_mu, tolerance=1e-8, max_iter=500)
    np.testing.assert_allclose(head.posterior(tensor, None, log_mu)[0].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("only", [None, [1, 4], [0, 2, 5]], ids=str)
def test_literal_form_and_fast_form(only):
    k = 30
    given = [batch(seed, 40, k, only=only) for seed in range(2)]
    z, a = stacked(given)
    head = head_for(z, k)
    fast, _ = fitted(head, z, a)
    head.table = sklearn_head(z, a, k, 1.0, tolerance=1e-9)
    literal = head.posterior(z, seen(a, k), None).numpy()
    np.testing.assert_allclose(fast, literal, atol=1e-4)
    for t, each in enumerate(given):
        np.testing.assert_allclose(literal[t], by_sklearn(*each, k, 1.0), atol=1e-4)


@pytest.mark.parametrize("final_bytes", [0, 2**29], ids=["one by one", "at once"])
@pytest.mark.parametrize("offset", [False, True])
def test_all_rows(monkeypatch, final_bytes, offset):
    monkeypatch.setattr(inner, "FINAL_BYTES", final_bytes)
    k, n, rng = 10, 120, np.random.default_rng(1)
    logs, features = [], []
    for seed in range(3):
        z, a = batch(seed, n, k, only=None if seed else range(8))
        logs.append(log_with(z, a, rng.dirichlet(np.full(k, 5.0), n)))
        features.append(z)
    found = fit_all_rows(features, logs, Objective(C=2.0, offset=offset), 2000, CPU)
    for log, z, each in zip(logs, features, found, strict=True):
        mu = None
        expected = fit_softmax(log, z, C=2.0, offset=offset, max_iter=2000)
        np.testing.assert_array_equal(each.classes, expected.classes)
        assert each.offset is offset
        assert each.converged
        if offset:
            mu = np.concatenate([cael.policies.policy.probabilities(log.logging, b) for b in log.batches(k)])
        np.testing.assert_allclose(each.probabilities(z, mu), expected.probabilities(z, mu), atol=1e-4)


def test_stopping_short_is_said(monkeypatch):
    z, a = batch(0, 200, 8, scale=5.0)
    log = log_with(z, a, np.full(8, 1 / 8))
    for final_bytes in (0, 2**29):
        monkeypatch.setattr(inner, "FINAL_BYTES", final_bytes)
        assert not fit_all_rows([z], [log], Objective(), 1, CPU)[0].converged


@pytest.mark.parametrize("final_bytes", [0, 2**29], ids=["one by one", "at once"])
def test_one_logged_action_is_refused(monkeypatch, final_bytes):
    monkeypatch.setattr(inner, "FINAL_BYTES", final_bytes)
    z = np.random.default_rng(0).normal(size=(20, 2))
    log = log_with(z, np.zeros(20, dtype=int), np.full(4, 0.25))
    with pytest.raises(cael.InputError, match="two different"):
        fit_all_rows([z], [log], Objective(), 100, CPU)


# --- the blocks of the Hessian


@pytest.mark.parametrize(("inputs", "classes"), [(3, 9), (4, 5), (9, 3)])
def test_blocks_are_weighted_sums_of_products_of_inputs(inputs, classes):
    """With more classes than inputs, and with fewer."""
    rng = np.random.default_rng(0)
    z, a = batch(0, 60, classes, p=inputs)
    a[:classes] = np.arange(classes)
    head = head_for(torch.as_tensor(z)[None], classes)
    fun = head.begin(torch.as_tensor(z)[None], torch.as_tensor(a)[None], None, head.table).fun
    w = torch.as_tensor(rng.random((1, 60, classes)))
    z1 = np.hstack([z, np.ones((60, 1))])
    by_hand = np.einsum("bi,bj,bc->ijc", z1, z1, w[0].numpy()) * classes / (classes - 1) / 60
    np.testing.assert_allclose(fun.blocks(w)[0].numpy(), by_hand, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("count", [2, 400])
def test_blocks_are_solved_one_by_one_or_all_at_once(count):
    """Few and many of them, against numpy."""
    rng = np.random.default_rng(count)
    roots = rng.normal(size=(2, count, 5, 5))
    blocks = roots @ roots.transpose(0, 1, 3, 2) + 0.1 * np.eye(5)
    right = rng.normal(size=(2, count, 5))
    found = inner._solve(torch.as_tensor(blocks).permute(0, 2, 3, 1), torch.as_tensor(right).transpose(1, 2))
    by_numpy = np.linalg.solve(blocks, right[..., None])[..., 0]
    np.testing.assert_allclose(found.transpose(1, 2).numpy(), by_numpy, rtol=1e-7)
