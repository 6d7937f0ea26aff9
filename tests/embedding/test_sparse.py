"""The sparse network: inputs, proximal steps, growth, and trials that do not see each other."""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.testing import example

torch = pytest.importorskip("torch")

from cael.embedding import rows as blocks  # noqa: E402
from cael.embedding.arrays import NUMPY  # noqa: E402
from cael.embedding.batches import TrialData  # noqa: E402
from cael.embedding.exact import rewards  # noqa: E402
from cael.embedding.exact import sparse_network as sparse  # noqa: E402
from cael.embedding.exact.inputs import ActionInputs, action_inputs_of, standardised  # noqa: E402
from cael.embedding.exact.proximal import ProximalAdam  # noqa: E402
from cael.embedding.exact.reward_network import gradients, of_actions, predict, predict_all, start, with_one  # noqa: E402
from cael.embedding.rows import gather_rows  # noqa: E402
from cael.embedding.settings import Growth  # noqa: E402
from cael.embedding.stream import Stream  # noqa: E402
from cael.embedding.tensors import Torch  # noqa: E402
from tests.embedding.by_hand import products_of_inputs  # noqa: E402

TORCH = Torch(torch.device("cpu"))
TINY = Growth(steps=20, hidden=8, penalties=(1.5,), restarts=1)
LOG = example()[0]


# --- what the network is told about an action


def inputs_of(kind, trials=2, k=5, features=3):
    rng = np.random.default_rng(1)
    phi = torch.as_tensor(rng.normal(size=(k, features if kind != "own" else 0)), dtype=torch.float32)
    own = torch.as_tensor(rng.uniform(1, 3, size=(trials, k)), dtype=torch.float32)
    return ActionInputs(phi, own)


def slow_value(inputs, trial, action, number):
    """Input `number` of an action: a feature, or the height of its own input, else 0."""
    if number < inputs.features:
        return float(inputs.phi[action, number])
    return float(inputs.own[trial, action]) if number - inputs.features == action else 0.0


KINDS = {"features": (0, 3), "own": (3, 8), "both": (0, 8)}
"""Which input numbers are active: of 3 features and 5 actions."""


def active_of(kind, inputs):
    """(2, 3) active inputs, others in the second trial."""
    rng = np.random.default_rng(2)
    low, high = KINDS[kind] if inputs.features else (0, 5)
    return torch.as_tensor(np.stack([rng.permutation(np.arange(low, high))[:3] for _ in range(2)]))


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_tables_are_looked_up_one_by_one(kind):
    inputs = inputs_of(kind)
    active = active_of(kind, inputs)
    a = torch.as_tensor(np.random.default_rng(3).integers(0, 5, size=(2, 7)))
    values = inputs.values(a, active)
    assert values.shape == (2, 7, 3)
    for t, i, j in np.ndindex(2, 7, 3):
        assert float(values[t, i, j]) == slow_value(inputs, t, int(a[t, i]), int(active[t, j]))
    for t in range(2):
        table = inputs.table(t, active[t])
        assert table.shape == (5, 3)
        for action, j in np.ndindex(5, 3):
            assert float(table[action, j]) == slow_value(inputs, t, action, int(active[t, j]))


@pytest.mark.parametrize("kind", ["own", "both"])
def test_products_are_sums_over_rows(kind):
    inputs = inputs_of(kind)
    rng = np.random.default_rng(4)
    delta = torch.as_tensor(rng.normal(size=(2, 7, 4)), dtype=torch.float32)
    a = torch.as_tensor(rng.integers(0, 5, size=(2, 7)))
    found = products_of_inputs(inputs, delta, a)
    assert found.shape == (2, inputs.count, 4)
    for t, number in np.ndindex(2, inputs.count):
        slow = sum(slow_value(inputs, t, int(a[t, i]), number) * delta[t, i] for i in range(7))
        np.testing.assert_allclose(found[t, number], slow, rtol=1e-5, atol=1e-5)


def test_no_active_input_is_no_value():
    inputs, none = inputs_of("both"), torch.zeros(2, 0, dtype=torch.int64)
    assert inputs.values(torch.zeros(2, 4, dtype=torch.int64), none).shape == (2, 4, 0)
    assert inputs.table(0, none[0]).shape == (5, 0)


@pytest.mark.parametrize("most", [0, 10**6])
def test_inputs_from_a_table_are_those_that_are_made_each_time(most, monkeypatch):
    monkeypatch.setattr("cael.embedding.exact.inputs.SUMS", most)
    inputs = action_inputs_of([LOG, LOG], 2, TORCH)
    a = torch.tensor(np.random.default_rng(0).integers(0, LOG.n_actions, (4, 30)))
    active = torch.tensor([[0, 3], [1, 2], [5, 0], [4, 6]])
    assert torch.equal(inputs.lookup(active)(a), inputs.values(a, active))


@pytest.mark.parametrize("tables", [1, 2, 6])
def test_rows_that_are_gathered(tables):
    """Trials in a row share a table."""
    values = np.arange(24 * tables).reshape(tables, 4, 6)
    rows = np.array([[0, 3], [2, 2], [1, 0], [0, 0], [3, 1], [2, 3]])
    expected = np.stack([values[t // (6 // tables)][rows[t]] for t in range(6)])
    np.testing.assert_array_equal(gather_rows(values, rows), expected)
    np.testing.assert_array_equal(gather_rows(values[:, :, 0], rows), expected[..., 0])
    assert torch.equal(gather_rows(torch.as_tensor(values), torch.as_tensor(rows)), torch.as_tensor(expected))


def test_columns_are_standardised_and_constant_ones_are_0():
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(5, 3, 40), np.full(40, 1e6), rng.random(40)])
    found = standardised(table)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), [1, 0, 1], atol=1e-12)


def test_inputs_of_a_log_have_unit_variance_and_constant_features_are_left_out():
    k, n = 6, 300
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.normal(size=k), np.ones(k), rng.random(k)])
    actions = rng.integers(0, k - 1, n)  # the last action is never logged
    log = cael.LoggedData(None, actions, rng.random(n), logging=cael.Uniform(k), action_features=features)
    inputs = action_inputs_of([log], 2, TORCH)
    assert (inputs.features, inputs.count) == (2, 2 + k)
    assert inputs.own.shape == (2, k)
    share = np.bincount(actions, minlength=k) / n
    np.testing.assert_allclose(inputs.own[0].numpy()[:-1] ** 2 * share[:-1], 1, rtol=1e-5)  # E of its square is 1
    assert float(inputs.own[0, -1]) == pytest.approx(math.sqrt(n))
    bare = cael.LoggedData(None, actions, rng.random(n), logging=cael.Uniform(k))
    assert action_inputs_of([bare], 1, TORCH).features == 0


# --- proximal steps


def tables(x):
    """Weights of a first layer with inputs (1, d, h), which are penalised, and the bias (1, 1, h), which is not."""
    return {"first": torch.cat([x, x.new_zeros(1, 1, x.shape[2])], dim=1)}


def given(g, bias=0.0):
    """The gradient of such a table, from that of the inputs (d, h)."""
    bias = np.broadcast_to(bias, (1, g.shape[1]))
    return [torch.as_tensor(np.concatenate([g, bias]))[None]]


def pace(t, rate=1e-3):
    """The rate of step t, and what the two averages have seen of their whole by then."""
    return torch.tensor([rate, 1 - 0.9**t, 1 - 0.99**t], dtype=torch.float64)


@pytest.mark.parametrize("size", [0.2, 0.9, 1.1, 5.0])
def test_an_input_stays_at_0_if_and_only_if_its_averaged_gradient_is_below_the_penalty(size):
    """From 0, with gradients that change from step to step; their bias-corrected average is what counts."""
    rng = np.random.default_rng(0)
    mean = np.array([3.0, 4.0]) / 5 * size
    optimiser = ProximalAdam(tables(torch.zeros(1, 1, 2, dtype=torch.float64)), torch.tensor([1.0]))
    average = np.zeros(2)
    for t in range(1, 60):
        g = mean + 0.05 * rng.normal(size=2)
        average = 0.9 * average + 0.1 * g
        optimiser.step(given(g[None]), pace(t))
        below = np.linalg.norm(average / (1 - 0.9**t)) < 1.0
        assert bool((optimiser.p["first"][:, :1] == 0).all()) == below
        if not below:
            break
    assert below == (size < 1)


def test_without_a_penalty_a_step_is_adam_with_one_scale_per_input():
    rng = np.random.default_rng(0)
    optimiser = ProximalAdam(tables(torch.zeros(1, 2, 3, dtype=torch.float64)), torch.zeros(1))
    m, v, slow = np.zeros((2, 3)), np.zeros(2), np.zeros((2, 3))
    bias_m, bias_v, bias = np.zeros(3), np.zeros(3), np.zeros(3)
    for t in range(1, 20):
        g, g_bias = rng.normal(size=(2, 3)), rng.normal(size=3)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * (g**2).mean(axis=1)
        slow -= 0.01 * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.99**t))[:, None] + 1e-8)
        bias_m, bias_v = 0.9 * bias_m + 0.1 * g_bias, 0.99 * bias_v + 0.01 * g_bias**2
        bias -= 0.01 * bias_m / (1 - 0.9**t) / (np.sqrt(bias_v / (1 - 0.99**t)) + 1e-8)
        optimiser.step(given(g, g_bias), pace(t, 0.01))
    np.testing.assert_allclose(optimiser.p["first"][0, :2].numpy(), slow, rtol=1e-9)
    np.testing.assert_allclose(optimiser.p["first"][0, 2].numpy(), bias, rtol=1e-9)


def test_room_for_more_inputs_changes_nothing_else():
    rng = np.random.default_rng(0)
    start = {"first": torch.as_tensor(rng.normal(size=(2, 4, 3))), "w2": torch.as_tensor(rng.normal(size=(2, 3, 3)))}
    optimiser, same = (ProximalAdam(start, torch.tensor([0.1, 0.2])) for _ in range(2))
    late = [0, 1, 4, 5]  # where the old inputs and the bias are afterwards
    for t in range(1, 9):
        g, g2 = torch.as_tensor(rng.normal(size=(2, 6, 3))), torch.as_tensor(rng.normal(size=(2, 3, 3)))
        same.step([g[:, late], g2], pace(t))
        if t < 4:
            optimiser.step([g[:, late], g2], pace(t))
            continue
        if t == 4:
            optimiser.grow(2, 2)
            assert bool((optimiser.p["first"][:, 2:4] == 0).all())
        optimiser.step([g, g2], pace(t))
    torch.testing.assert_close(optimiser.p["first"][:, late], same.p["first"], rtol=1e-12, atol=0)
    torch.testing.assert_close(optimiser.p["w2"], same.p["w2"], rtol=1e-12, atol=0)
    assert bool((optimiser.p["first"][:, 2:4] != 0).any())


def test_it_solves_a_group_lasso_whose_optimum_is_known():
    """(1/2n)|Y - X B|^2 + lambda sum_j |B_j| with orthonormal columns: each row of B is soft-thresholded."""
    rng = np.random.default_rng(0)
    n, d, h, penalty = 64, 5, 3, 0.7
    x = np.linalg.qr(rng.normal(size=(n, d)))[0] * math.sqrt(n)
    y = x @ (rng.normal(size=(d, h)) * np.array([2.0, 1.0, 0.6, 0.2, 0.0])[:, None]) + 0.1 * rng.normal(size=(n, h))
    plain = x.T @ y / n
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    optimum = plain * np.maximum(1 - penalty / norms, 0)
    assert 0 < (norms < penalty).sum() < d
    optimiser = ProximalAdam(tables(torch.zeros(1, d, h, dtype=torch.float64)), torch.tensor([penalty]))
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    for i in range(3000):
        gradient = x.T @ (x @ optimiser.p["first"][0, :d] - y) / n
        optimiser.step(given(gradient.numpy()), pace(i + 1, 0.02 / (1 + i / 50)))
    found = optimiser.p["first"][0, :d]
    np.testing.assert_allclose(found.numpy(), optimum, atol=2e-3)
    np.testing.assert_array_equal((found == 0).all(dim=1).numpy(), norms[:, 0] < penalty)


@pytest.mark.parametrize(("contexts", "active"), [(3, 4), (3, 0), (0, 2), (0, 0)])
def test_the_gradient_by_hand_is_that_of_autograd(contexts, active):
    """Of the squared error, for every table."""
    rng = np.random.default_rng(contexts + 10 * active)
    p = {name: value.double() for name, value in start(Stream([1, 2], TORCH), contexts, 8).items()}
    p["first"] = torch.cat([torch.as_tensor(rng.normal(size=(2, active, 8))), p["first"]], dim=1)
    p = {name: (value + torch.as_tensor(0.1 * rng.normal(size=value.shape))) for name, value in p.items()}
    x, values, r = (torch.as_tensor(rng.normal(size=(2, 17, *more))) for more in ((contexts,), (active,), ()))
    found = gradients(p, torch.cat([values, with_one(x)], dim=-1), r, 20)
    leaves = {name: value.clone().requires_grad_() for name, value in p.items()}
    loss = ((predict(leaves, x, values) - r) ** 2).sum() / 20
    for mine, other in zip(found, torch.autograd.grad(loss, list(leaves.values())), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


# --- growth


def trial_data(log, trials=1, rows=None):
    n = len(log)
    x = torch.as_tensor(standardised(np.array(log.contexts)), dtype=torch.float32)[None]
    a = torch.as_tensor(np.array(log.actions))[None]
    r = torch.as_tensor(standardised(np.array(log.rewards)), dtype=torch.float32)[None]
    return TrialData(x, a, r, tuple(rows or [torch.arange(n)] * trials))


def relevant_log(place, features=12, k=40, n=400, seed=0):
    """The reward depends on one action feature alone."""
    rng = np.random.default_rng(seed)
    table, a = rng.normal(size=(k, features)), rng.integers(0, k, n)
    rewards = 2 * table[a, place] + 0.3 * rng.normal(size=n)
    return cael.LoggedData(rng.random((n, 2)), a, rewards, logging=cael.Uniform(k), action_features=table)


def with_actions(p, table):
    """The weights of a network without action inputs, with these (T, c, h)."""
    return {**p, "first": torch.cat([table, p["first"]], dim=1)}


@pytest.mark.parametrize("place", [0, 5, 11])
def test_the_strongest_input_is_the_only_relevant_one(place):
    log = relevant_log(place)
    data, inputs = trial_data(log), action_inputs_of([log], 1, TORCH)
    p = start(Stream([0], TORCH), 2, 8)
    none = torch.zeros(1, 0, dtype=torch.int64)
    found = sparse._strongest(p, inputs, data, sparse.padded(data.rows), none, 3)
    assert int(found[0, 0]) == place
    again = sparse._strongest(
        with_actions(p, torch.zeros(1, 1, 8)), inputs, data, sparse.padded(data.rows), found[:, :1], inputs.count - 1
    )
    assert sorted([place, *again[0].tolist()]) == list(range(inputs.count))  # an active input does not join again


def test_the_gradient_that_ranks_inputs_is_that_of_the_loss():
    """Against autograd through a table of all inputs at 0; more rows than one block, and padding."""
    log = relevant_log(3, features=4, k=6, n=1500)
    rows = [torch.arange(1500), torch.arange(100, 1300)]
    data, inputs = trial_data(log, 2, rows), action_inputs_of([log], 2, TORCH)
    p = start(Stream([0, 1], TORCH), 2, 8)
    none = torch.zeros(2, 0, dtype=torch.int64)
    found = sparse._strongest(p, inputs, data, sparse.padded(rows), none, inputs.count)
    for t, some in enumerate(rows):
        one = {name: value[t : t + 1] for name, value in p.items()}
        every = torch.zeros(1, inputs.count, 8, requires_grad=True)
        one = with_actions(one, every)
        values = inputs.table(t, torch.arange(inputs.count))[data.a[0, some]][None]
        loss = ((predict(one, data.x[:, some], values) - data.r[:, some]) ** 2).mean()
        norms = torch.autograd.grad(loss, every)[0][0].norm(dim=1)
        assert found[t].tolist() == norms.argsort(descending=True).tolist()


def test_predictions_of_all_actions_are_those_one_by_one():
    inputs = inputs_of("both", trials=1)
    active = torch.tensor([[1, 4, 6]])
    p = start(Stream([3], TORCH), 2, 8)
    p = with_actions(p, torch.as_tensor(np.random.default_rng(0).normal(size=(1, 3, 8)), dtype=torch.float32))
    x = torch.as_tensor(np.random.default_rng(1).normal(size=(4, 2)), dtype=torch.float32)
    every = predict_all(p, x, inputs.table(0, active[0]) @ of_actions(p)[0])
    for i, a in np.ndindex(4, 5):
        one = predict(p, x[None, i : i + 1], inputs.values(torch.tensor([[a]]), active))
        assert float(every[i, a]) == pytest.approx(float(one), abs=1e-5)


def grown(log, rounds, steps=5, trials=1, rows=None, seeds=None, penalty=0.1, held_out=None):
    data = trial_data(log, trials, rows)
    return sparse.grow(
        action_inputs_of([log], trials, TORCH), data, held_out or data.rows, torch.full((trials,), penalty),
        replace(TINY, steps=steps), seeds or list(range(trials)), lambda seen: len(seen) == rounds,
    )  # fmt: skip


def test_a_round_begins_with_the_function_of_the_last_one(monkeypatch):
    """Inputs join with weights 0: with steps of size 0 the held-out loss stays what it was, to rounding."""
    monkeypatch.setattr(sparse, "_paces", lambda settings, *_: torch.tensor([[0.0, 1.0, 1.0]] * settings.steps))
    found = grown(LOG, 5)
    assert [each.active.shape[1] for each in found] == [0, 1, 2, 4, 8]
    assert len({round(float(each.held_out[0]), 6) for each in found}) == 1


def test_inputs_that_joined_stay_and_each_joins_once():
    found = grown(LOG, 9)
    assert [each.active.shape[1] for each in found] == [0, 1, 2, 4, 8, 11]  # 3 features and 8 actions
    for before, after in itertools.pairwise(found):
        assert torch.equal(after.active[:, : before.active.shape[1]], before.active)
        assert of_actions(after.weights).shape[1] == after.active.shape[1]
    assert sorted(found[-1].active[0].tolist()) == list(range(11))


@pytest.mark.parametrize(("count", "sizes"), [(1, [0, 1]), (2, [0, 1, 2]), (3, [0, 1, 2, 3]), (9, [0, 1, 2, 4, 8, 9])])
def test_sizes_double_and_end_with_all(count, sizes):
    assert sparse.sizes(count) == sizes


def test_rates_fall_to_a_twentieth():
    paces = sparse._paces(cael.Growth(steps=100, learning_rate=0.02), 3, NUMPY)
    rates = paces[:, 0].tolist()
    assert paces[0, 1:].tolist() == pytest.approx([1 - 0.9**301, 1 - 0.99**301])
    assert rates[0] == pytest.approx(0.02)
    assert rates == sorted(rates, reverse=True)
    assert 0.001 <= rates[-1] < 0.0012


def test_a_strong_penalty_leaves_no_input_and_a_weak_one_some():
    nothing, some = grown(LOG, 4, steps=80, penalty=50.0)[-1], grown(LOG, 4, steps=80, penalty=0.01)[-1]
    d = LOG.contexts.shape[1]
    for part in (slice(0, 4), slice(4, 4 + d)):  # of actions, of contexts
        assert not nothing.weights["first"][:, part].any()
        assert some.weights["first"][:, part].any()


def test_the_held_out_loss_is_the_mean_squared_error_of_those_rows():
    held = [torch.arange(0, 60), torch.arange(60, 160)]
    rows = [torch.arange(60, 240), torch.arange(0, 60)]
    last = grown(LOG, 3, trials=2, rows=rows, held_out=held)[-1]
    data, inputs = trial_data(LOG, 2), action_inputs_of([LOG], 2, TORCH)
    for t in range(2):
        one = {name: value[t : t + 1] for name, value in last.weights.items()}
        every = predict_all(one, data.x[0], inputs.table(t, last.active[t]) @ of_actions(one)[0])
        error = (every[torch.arange(240), data.a[0]] - data.r[0])[held[t]]
        assert last.held_out[t] == pytest.approx(float((error**2).mean()), rel=1e-5)


def test_ragged_rows_are_padded_and_the_padding_is_marked():
    table, valid = sparse.padded([torch.tensor([5, 6, 7]), torch.tensor([8])])
    assert table.shape == (2, 3)
    assert valid.tolist() == [[True, True, True], [True, False, False]]
    assert int(table[1, 0]) == 8


# --- trials, seeds and folds


def paper_logs(count, n=120):
    world = cael.worlds.PaperWorld(n_actions=8, action_dim=3, gamma=0.2)
    return [world.sample(n, seed) for seed in range(count)]


@functools.cache
def fitted(settings=TINY, seed=3):
    return rewards.sparse_rewards([LOG], settings, 3, [seed])[0]


def whole(log):
    return next(log.batches(width=1))


def of_fold(model, fold, log=LOG, rows=None):
    """Predictions for the rows of a fold, or for others."""
    return model.predict(fold, whole(log.take(model.folds[fold] if rows is None else rows)))


def predictions(model, log=LOG):
    return np.concatenate([of_fold(model, fold, log) for fold in range(len(model.folds))])


def networks(model):
    """Without the ridge model."""
    return replace(model, ridge=(), share=1.0)


def test_same_seed_same_bits_and_another_seed_another_network():
    again, other = (rewards.sparse_rewards([LOG], TINY, 3, [seed])[0] for seed in (3, 4))
    np.testing.assert_array_equal(predictions(fitted()), predictions(again))
    np.testing.assert_array_equal(fitted().losses, again.losses)
    assert not np.array_equal(fitted().losses, other.losses)


@pytest.mark.parametrize("settings", [TINY, replace(TINY, penalties=(0.5, 4.0), restarts=2, steps=8)])
def test_logs_trained_together_are_as_trained_alone(settings):
    """Not bit by bit: a batched product of float32 adds in another order than a single one (relative error 1e-7 a
    step), and growth multiplies that over some hundred steps. 1e-3 of the spread of the rewards is far above it, and
    far below what another seed changes. A log that has had enough does not look at the rounds of the others."""
    settings = replace(settings, patience=1)
    some, seeds = paper_logs(3), (4, 5, 6)
    together = rewards.trained_at_once(some, settings, 2, seeds, NUMPY)
    assert len({len(model.losses) for model in together}) > 1
    for log, seed, model in zip(some, seeds, together, strict=True):
        alone = rewards.sparse_rewards([log], settings, 2, [seed])[0]
        np.testing.assert_allclose(model.losses, alone.losses, rtol=1e-3)
        assert (model.penalty, model.inputs) == (alone.penalty, alone.inputs)
        np.testing.assert_allclose(predictions(model, log), predictions(alone, log), atol=1e-3 * log.rewards.std())


def test_logs_of_other_shapes_or_other_actions_are_not_trained_together():
    first = paper_logs(1)[0]
    with pytest.raises(cael.InputError, match="same numbers of rows, actions, contexts and action features"):
        rewards.sparse_rewards([first, paper_logs(1, n=90)[0]], TINY, 2, [0, 1])
    other = cael.worlds.PaperWorld(n_actions=8, action_dim=3, gamma=0.2, seed=5).sample(120, 1)
    with pytest.raises(cael.InputError, match="same action_features"):
        rewards.sparse_rewards([first, other], TINY, 2, [0, 1])


def test_folds_of_unequal_size_work():
    """Clusters of very different sizes: each row is predicted by networks that saw none of its cluster."""
    clusters = np.repeat([0, 1, 2, 3, 4], [150, 40, 30, 15, 5])
    log = cael.LoggedData(
        LOG.contexts, LOG.actions, LOG.rewards, logging=LOG.logging, action_features=LOG.action_features,
        clusters=clusters,
    )  # fmt: skip
    model = rewards.sparse_rewards([log], TINY, 3, [0])[0]
    sizes = [len(rows) for rows in model.folds]
    assert sum(sizes) == 240
    assert len(set(sizes)) > 1
    assert np.isfinite(predictions(model, log)).all()
    assert np.isfinite(model.losses).all()


def test_the_networks_of_a_fold_did_not_see_its_rewards():
    """Two rewards of one fold change places: no prediction for that fold changes."""
    settings = replace(TINY, patience=10)
    model = rewards.sparse_rewards([LOG], settings, 3, [3])[0]
    rows = model.folds[1]
    changed = LOG.rewards.copy()
    worst, best = rows[changed[rows].argmin()], rows[changed[rows].argmax()]
    changed[[worst, best]] = changed[[best, worst]]
    log = cael.LoggedData(LOG.contexts, LOG.actions, changed, logging=LOG.logging, action_features=LOG.action_features)
    other = rewards.sparse_rewards([log], settings, 3, [3])[0]
    assert (other.inputs, other.penalty) == (model.inputs, model.penalty)  # else other networks would be compared
    models = [networks(each) for each in (model, other)]
    # The mean and spread of the rewards are summed in another order, and so differ in the last bit.
    np.testing.assert_allclose(*[of_fold(each, 1) for each in models], rtol=1e-5)
    seen = [of_fold(each, 0, rows=rows) for each in models]
    assert np.abs(seen[0] - seen[1]).max() > 1e-3  # negative control: the others did see them


def test_the_chosen_networks_have_the_least_held_out_loss():
    model = fitted(replace(TINY, penalties=(0.5, 4.0), patience=10))
    at, penalty = np.unravel_index(model.losses.argmin(), model.losses.shape)
    assert model.losses.shape == (6, 2)
    assert model.inputs == [0, 1, 2, 4, 8, 11][at]
    assert model.penalty == (0.5, 4.0)[penalty]
    assert held_out(networks(model)) == pytest.approx(model.losses.min(), rel=1e-4)
    assert held_out(model) == pytest.approx(1 - model.explained)


def held_out(model, log=LOG):
    """The squared error on rows that the model did not see, as a share of the reward's variance."""
    errors = np.concatenate([
        (of_fold(model, i, log)[np.arange(len(rows)), log.actions[rows]] - log.rewards[rows]) ** 2
        for i, rows in enumerate(model.folds)
    ])  # fmt: skip
    return errors.mean() / log.rewards.var()


def test_a_ridge_model_joins_where_it_adds_something():
    """Ten actions with effects of their own and no features, which networks of 20 steps have not learned."""
    rng = np.random.default_rng(0)
    actions, x = rng.integers(0, 10, 400), rng.normal(size=(400, 2))
    r = rng.normal(size=10)[actions] + np.sin(2 * x[:, 0]) + 0.5 * rng.normal(size=400)
    log = cael.LoggedData(x, actions, r, logging=cael.Uniform(10))
    model = rewards.sparse_rewards([log], TINY, 3, [0])[0]
    assert len(model.ridge) == 3
    assert 0 < model.share < 1
    ridge = replace(model, share=0.0)
    assert held_out(model, log) < min(held_out(networks(model), log), held_out(ridge, log))
    mixed = model.share * predictions(networks(model), log) + (1 - model.share) * predictions(ridge, log)
    np.testing.assert_allclose(predictions(model, log), mixed)
    for share in (model.share - 0.01, model.share + 0.01):
        assert held_out(replace(model, share=share), log) > held_out(model, log)


@pytest.mark.parametrize("useless", ["constant", "noise", "same"])
def test_a_ridge_model_that_knows_nothing_does_not_shrink_the_network(useless):
    """Half of f and half of the mean may predict better than f, and that is not what the ridge model is for."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=2000)
    r = 0.7 * own + 0.1 * rng.normal(size=2000)
    ridge = {"constant": np.full(2000, 0.3), "noise": 0.01 * rng.normal(size=2000), "same": own}[useless]
    assert rewards._share(own, ridge, r, np.ones(2000)) == (False, 1.0)
    joins, share = rewards._share(
        own, r + 0.1 * rng.normal(size=2000), r, np.ones(2000)
    )  # negative control: one that knows it all
    assert joins
    assert share < 0.1


def test_restarts_are_averaged():
    model = fitted(replace(TINY, restarts=2))
    assert [len(each) for each in model.members] == [2, 2, 2]
    alone = [of_fold(replace(model, members=((each,), *model.members[1:])), 0) for each in model.members[0]]
    np.testing.assert_allclose(of_fold(model, 0), np.mean(alone, axis=0), rtol=1e-5)
    assert not np.allclose(*alone)


def test_blocks_of_predictions_do_not_matter(monkeypatch):
    at_once = predictions(fitted())
    monkeypatch.setitem(blocks.BLOCK_FLOATS, "cpu", 8 * 8 * 3)
    np.testing.assert_allclose(predictions(fitted()), at_once, rtol=1e-5)


def test_where_nothing_can_be_learned_the_mean_is_predicted():
    rng = np.random.default_rng(0)
    log = cael.LoggedData(rng.random((200, 3)), rng.integers(0, 4, 200), rng.normal(size=200), logging=cael.Uniform(4))
    model = rewards.sparse_rewards([log], replace(TINY, penalties=(0.0,), steps=60), 2, [0])[0]
    assert model.losses.min() >= 1  # overfitted networks are worse than the mean
    assert model.explained == 0
    np.testing.assert_array_equal(predictions(model, log), np.full((200, 4), log.rewards.mean()))


def test_constant_rewards_are_refused():
    log = cael.LoggedData(None, [0, 1] * 20, np.ones(40), logging=cael.Uniform(2))
    with pytest.raises(cael.InputError, match="rewards are all equal"):
        rewards.sparse_rewards([log], TINY, 2, [0])
