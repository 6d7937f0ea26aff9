"""The training loop and the networks: repeatable, trial by trial the same, and equal to plain torch modules."""

import numpy as np
import pytest

import cael
from cael.testing import example

torch = pytest.importorskip("torch")

from cael.embedding import batches, build, tensors, training  # noqa: E402
from cael.embedding import rows as blocks  # noqa: E402
from cael.embedding.network import ActionNetwork, ContextActionNetwork  # noqa: E402
from cael.embedding.published.objective import CAELLoss, WeightSource  # noqa: E402
from cael.embedding.settings import NetworkSettings, Objective, Training  # noqa: E402
from cael.embedding.stream import Stream  # noqa: E402

CPU = torch.device("cpu")
HERE = tensors.Torch(CPU)
LOG, POLICY = example()
QUICK = Training(iterations=15, batch_size=64, check_every=5)
REWARD_ONLY = Objective(alpha=0.0, beta=0.0)
ACTIONS = ("features", "onehot", "both")


def logs(count):
    world = cael.worlds.PaperWorld(n_actions=8, action_dim=3, gamma=0.2)
    return [world.sample(120, seed) for seed in range(count)]


def train(some, settings, seeds, objective=None, network_settings=None, rows=None):
    network = build.context_action_network(some, network_settings or NetworkSettings(hidden=16), CPU)
    data = batches.trial_data(some, HERE, rows)
    loss = CAELLoss(network, REWARD_ONLY)
    if objective is not None:
        weights = WeightSource(some, [POLICY] * len(some), CPU, sort=True, log_mu=objective.offset)
        loss = CAELLoss(network, objective, weights)
    return training.train(network, data, loss, settings, seeds)


def same(a, b, exact=True):
    assert a.keys() == b.keys()
    for name in a:
        if exact:
            assert torch.equal(a[name], b[name]), name
        else:
            torch.testing.assert_close(a[name], b[name], rtol=1e-10, atol=1e-10, msg=name)


OBJECTIVES = [
    None,
    Objective(),
    Objective(posterior_gradient=True, alpha=0.01, beta=0.001),
    Objective(posterior_gradient=True, alpha=0.01, beta=0.001, offset=True, bias="sharp", features="xe"),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=["reward", "constant", "through", "offset"])
def test_same_seed_same_parameters(objective):
    first, second = (train(logs(2), QUICK, [3, 4], objective) for _ in range(2))
    same(first[0], second[0])
    assert first[1] == second[1]
    other, _ = train(logs(2), QUICK, [3, 5], objective)
    assert torch.allclose(other["x"][0], first[0]["x"][0], atol=1e-5)
    assert not torch.allclose(other["x"][1], first[0]["x"][1], atol=1e-3)


def trained_alone_and_beside(objective, batchnorm):
    """Pairs (alone, beside others) of three trials' parameters, and the network."""
    some, settings = logs(3), NetworkSettings(hidden=16, batchnorm=batchnorm)
    together, _ = train(some, QUICK, [5, 6, 7], objective, settings)
    network = build.context_action_network(some, settings, CPU)
    for t in range(3):
        alone, _ = train(some[t : t + 1], QUICK, [5 + t], objective, settings)
        yield network, batches.trial_data(some[t : t + 1], HERE), alone, {n: v[t : t + 1] for n, v in together.items()}


@pytest.mark.parametrize("batchnorm", [True, False])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=["reward", "constant", "through", "offset"])
def test_trial_alone_equals_trial_beside_others(objective, batchnorm):
    for _, _, alone, beside in trained_alone_and_beside(objective, batchnorm):
        same(alone, beside, exact=False)


@pytest.mark.parametrize(
    "objective",
    OBJECTIVES,
    ids=["reward", "constant", "through", "offset"],
)
def test_embeddings_of_a_trial_alone_equal_those_beside_others(objective):
    for network, data, alone, beside in trained_alone_and_beside(objective, True):
        found, expected = (build.embeddings(network, each, data)[0] for each in (beside, alone))
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("folds", [2, 3, 7])
def test_folds_at_once_equal_folds_alone(folds):
    """240 rows: 2 and 3 folds are of one size, 7 are not."""
    outcome = cael.NetworkOutcome(NetworkSettings(hidden=16), QUICK)
    held_out = list(LOG.folds(folds, 1))
    at_once = outcome.fit_without(LOG, held_out, 10)
    for t, rows in enumerate(held_out):
        others = np.setdiff1d(np.arange(len(LOG)), rows)
        alone = outcome.fit_many([LOG], [10 + t], [others])[0]
        same(alone.parameters, at_once[t].parameters, exact=False)
        batch = next(LOG.batches())
        np.testing.assert_allclose(alone.predict(batch), at_once[t].predict(batch), atol=1e-10)


def test_a_fold_is_not_trained_on():
    outcome = cael.NetworkOutcome(NetworkSettings(hidden=16), QUICK)
    held_out = list(LOG.folds(2, 1))
    rewards = LOG.rewards.copy()
    rewards[held_out[0]] = 1e3
    changed = cael.LoggedData(
        LOG.contexts, LOG.actions, rewards, logging=LOG.logging, n_actions=8, action_features=LOG.action_features
    )
    before, after = (outcome.fit_without(each, held_out, 0) for each in (LOG, changed))
    same(before[0].parameters, after[0].parameters)
    assert not torch.equal(before[1].parameters["x"], after[1].parameters["x"])


def watched_rows(log, settings, seed, network_settings):
    """The rows that `train` keeps from trial 0: drawn after the initial parameters."""
    stream = Stream([seed], HERE)
    network = build.context_action_network([log], network_settings, CPU)
    network.init(stream)
    return network, training._split(batches.trial_data([log], HERE).rows, settings.holdout, stream)


def test_early_stopping_returns_the_best_parameters():
    settings = Training(iterations=400, batch_size=64, learning_rate=0.05, holdout=0.25, patience=3, check_every=5)
    small = NetworkSettings(hidden=16)
    parameters, (history,) = train([LOG], settings, [0], network_settings=small)
    assert history.stopped_early
    assert history.iterations[-1] < 399
    seen = np.array(history.losses["holdout"])
    without = len(seen) - 1 - int(seen.argmin())  # checks after the best
    assert 3 <= without <= 4
    network, (_, (held_out,)) = watched_rows(LOG, settings, 0, small)
    step = training.step_at(batches.trial_data([LOG], HERE), held_out[None], None, False)
    error = (network.reward(parameters, network.embed(parameters, step.x, step.a, None), step.x) - step.r) ** 2
    assert float(error.mean()) == pytest.approx(seen.min(), rel=1e-6)


def test_without_patience_the_last_parameters_are_returned():
    base = Training(iterations=20, batch_size=64, learning_rate=0.05, holdout=0.25, check_every=5)
    parameters, (history,) = train([LOG], base, [0])
    assert not history.stopped_early
    assert history.iterations == (0, 5, 10, 15, 19)
    often, _ = train([LOG], Training(20, 64, 0.05, holdout=0.25, check_every=1), [0])
    same(parameters, often)


def test_holdout_rows_are_not_trained_on():
    settings = Training(iterations=20, batch_size=64, holdout=0.25, check_every=5)
    small = NetworkSettings(hidden=16)
    _, ((kept,), (held_out,)) = watched_rows(LOG, settings, 0, small)
    assert len(held_out) == 60
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(240))
    rewards = LOG.rewards.copy()
    rewards[held_out.numpy()] = -1e3
    changed = cael.LoggedData(
        LOG.contexts, LOG.actions, rewards, logging=LOG.logging, n_actions=8, action_features=LOG.action_features
    )
    before, (history,) = train([LOG], settings, [0], network_settings=small)
    after, (other,) = train([changed], settings, [0], network_settings=small)
    same(before, after)
    assert history.losses["reward"] == other.losses["reward"]
    assert max(history.losses["holdout"]) < min(other.losses["holdout"])


def switches():
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def test_deterministic_puts_the_switches_back():
    before = switches()
    with tensors.deterministic():
        assert torch.are_deterministic_algorithms_enabled()
    assert switches() == before
    with pytest.raises(RuntimeError, match="inside"), tensors.deterministic():
        raise RuntimeError("inside")
    assert switches() == before
    train([LOG], QUICK, [0])
    assert switches() == before


def test_training_leaves_the_global_generators_alone():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    train([LOG], QUICK, [0], Objective())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002


def test_batches_of_fewer_than_two_rows_are_refused():
    with pytest.raises(cael.InputError, match="batch_size"):
        Training(batch_size=1)
    with pytest.raises(cael.InputError, match="at least 2 rows"):
        train([LOG], QUICK, [0], rows=[np.array([4])])


def test_logs_of_different_lengths_are_refused():
    with pytest.raises(cael.InputError, match="same numbers of rows"):
        batches.trial_data([LOG, LOG.take(np.arange(100))], HERE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_is_refused_where_there_is_none():
    with pytest.raises(cael.InputError, match="no GPU"):
        cael.CAELMIPS(training=Training(iterations=1, device="cuda")).estimate(LOG, POLICY)
    with pytest.raises(cael.InputError, match="no GPU"):
        cael.AELMIPS(device="cuda").estimate(LOG, POLICY)
    assert tensors.pick_device("auto").type == "cpu"


def test_batches_cover_every_row_once_per_pass():
    passes = batches.Batches([torch.arange(10), torch.arange(20, 30)], 5, Stream([0, 1], HERE))
    for _ in range(3):
        drawn = torch.cat([passes.next(), passes.next()], dim=1)
        assert torch.equal(torch.sort(drawn, dim=1).values, torch.stack([torch.arange(10), torch.arange(20, 30)]))


def test_batches_of_trials_with_unequal_rows_are_those_of_each_alone():
    rows = [torch.arange(11), torch.arange(20, 30), torch.arange(40, 53)]
    together = batches.Batches(rows, 4, Stream([0, 1, 2], HERE))
    alone = [batches.Batches([each], 4, Stream([t], HERE)) for t, each in enumerate(rows)]
    for _ in range(20):
        assert torch.equal(together.next(), torch.cat([each.next() for each in alone]))


def made(actions, trials=2, **settings):
    """A network with its parameters moved away from where they start, and inputs."""
    phi, onehot = build.action_inputs([LOG], actions, CPU)
    network = ContextActionNetwork(NetworkSettings(hidden=16, **settings), LOG.contexts.shape[1], 8, phi, onehot)
    stream = Stream(list(range(trials)), HERE)
    p = network.init(stream)
    for name, value in p.items():
        if name.startswith(("running", "scale", "shift")):
            p[name] = value + stream.uniform(*value.shape[1:])
    x = torch.tensor(LOG.contexts[:30], dtype=torch.float64).expand(trials, -1, -1)
    a = torch.tensor(LOG.actions[:30]).expand(trials, -1)
    return network, p, x, a


def plain_twin(network, p, t):
    """The same network as torch modules on the concatenated input [x, phi(a), onehot(a)]."""
    blocks = [p["x"][t]] + [p[name][t] for name in ("phi", "onehot") if name in p]
    b1, b2 = (p["running_b1"], p["running_b2"]) if "running_b1" in p else (p["b1"], p["b2"])
    weights = [(torch.cat(blocks), b1[t]), (p["w2"][t], b2[t]), (p["w3"][t], p["b3"][t])]
    layers = []
    for number, (weight, bias) in enumerate(weights):
        linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data, linear.bias.data = weight.T.clone(), bias.clone()
        layers.append(linear)
        if number == 2:
            break
        if network.settings.batchnorm:
            norm = torch.nn.BatchNorm1d(weight.shape[1], dtype=torch.float64)
            layer = str(number + 1)
            norm.weight.data, norm.bias.data = p["scale" + layer][t].clone(), p["shift" + layer][t].clone()
            norm.running_mean, norm.running_var = (
                p["running_mean" + layer][t].clone(),
                p["running_var" + layer][t].clone(),
            )
            layers.append(norm)
        layers.append(torch.nn.ReLU())
    return torch.nn.Sequential(*layers)


def concatenated(network, x, a):
    parts = [x] + ([] if network.phi is None else [network.phi[0][a]])
    return torch.cat(parts + ([torch.eye(8, dtype=torch.float64)[a]] if network.onehot else []), dim=1)


@pytest.mark.parametrize("batchnorm", [True, False])
@pytest.mark.parametrize("actions", ACTIONS)
def test_network_equals_plain_modules(actions, batchnorm):
    network, p, x, a = made(actions, batchnorm=batchnorm)
    found = network.embed(p, x, a, None)
    for t in range(2):
        twin = plain_twin(network, p, t).eval()
        torch.testing.assert_close(found[t], twin(concatenated(network, x[t], a[t])), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("actions", ACTIONS)
def test_first_layer_starts_as_torch_linear_does(actions):
    """U(-1/sqrt(inputs), 1/sqrt(inputs)), the inputs of the parts counted together."""
    network, p, x, a = made(actions, trials=200)
    inputs = concatenated(network, x[0], a[0]).shape[1]
    for name in {"x", "phi", "onehot", "b1"} & p.keys():
        largest = float(p[name].abs().max())
        assert 0.98 / np.sqrt(inputs) < largest <= 1 / np.sqrt(inputs), name


def test_batch_normalisation_in_training_and_in_evaluation():
    network, p, x, a = made("both")
    twins = [plain_twin(network, p, t).train() for t in range(2)]
    ones = [torch.ones(2, 30, 16, dtype=torch.float64)] * 2
    before = {name: value.clone() for name, value in p.items() if name.startswith(("running_mean", "running_var"))}
    found = network.embed(p, x, a, ones)
    for t in range(2):
        torch.testing.assert_close(found[t], twins[t](concatenated(network, x[t], a[t])), rtol=1e-10, atol=1e-12)
        norms = [layer for layer in twins[t] if isinstance(layer, torch.nn.BatchNorm1d)]
        for layer, norm in zip("12", norms, strict=True):
            torch.testing.assert_close(p["running_mean" + layer][t], norm.running_mean, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(p["running_var" + layer][t], norm.running_var, rtol=1e-10, atol=1e-12)
    assert all(not torch.equal(p[name], value) for name, value in before.items())
    # In evaluation a row's embedding does not depend on the rows beside it, and the statistics stay.
    after = {name: value.clone() for name, value in p.items()}
    whole = network.embed(p, x, a, None)
    torch.testing.assert_close(network.embed(p, x[:, :1], a[:, :1], None), whole[:, :1], rtol=1e-10, atol=1e-12)
    same(p, after)


def test_dropout_masks():
    network, *_ = made("both", dropout=0.25)
    kept = torch.stack(network.masks(Stream([0, 1], HERE), 2000))
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert abs(float((kept == 0).double().mean()) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / kept.numel())


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("more", [{}, {"batchnorm": False}, {"intercept": True}, {"embedding_dim": 3}])
def test_the_rewards_of_all_actions_are_those_of_each(actions, more):
    network, p, x, _ = made(actions, **more)
    every = network.reward_all(p, x)
    assert every.shape == (2, 30, 8)
    for action in range(8):
        one = network.reward(p, network.embed(p, x, torch.full((2, 30), action), None), x)
        torch.testing.assert_close(every[:, :, action], one, rtol=1e-10, atol=1e-12)


def test_a_fitted_network_answers_for_some_actions_as_for_all(monkeypatch):
    fitted = cael.NetworkOutcome(training=QUICK).fit(LOG, 0)
    (batch,) = LOG.batches(width=8)
    every = fitted.predict(batch)
    np.testing.assert_allclose(fitted.logged(batch), every[np.arange(len(LOG)), LOG.actions], rtol=1e-10, atol=1e-12)
    some = np.random.default_rng(0).integers(0, 8, (len(LOG), 3))
    np.testing.assert_allclose(fitted.at(batch, some), np.take_along_axis(every, some, axis=1), rtol=1e-10, atol=1e-12)
    monkeypatch.setitem(blocks.BLOCK_FLOATS, "cpu", 1)  # one row at a time
    np.testing.assert_allclose(fitted.predict(batch), every, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("actions", ACTIONS)
def test_action_network(actions):
    """e(a) = W [onehot(a), phi(a)] + b, whatever the context; r_hat = e'x + c, c drawn and never trained."""
    phi, onehot = build.action_inputs([LOG], actions, CPU)
    network = ActionNetwork(5, 8, phi, onehot)
    p = network.init(Stream([0, 1], HERE))
    x = torch.tensor(LOG.contexts[:30], dtype=torch.float64).expand(2, -1, -1)
    for action in range(8):
        a = torch.full((2, 30), action)
        e = network.embed(p, x, a, [])
        for t in range(2):
            blocks = [p[name][t] for name in ("phi", "onehot") if name in p]
            inputs = ([] if phi is None else [phi[0][action]]) + (
                [torch.eye(8, dtype=torch.float64)[action]] if onehot else []
            )
            expected = torch.cat(inputs) @ torch.cat(blocks) + p["b"][t]
            torch.testing.assert_close(e[t], expected.expand(30, -1))
            torch.testing.assert_close(network.reward(p, e, x)[t], x[t] @ expected + p["running_c"][t])
    data = batches.trial_data([LOG, LOG], HERE)
    fitted, _ = training.train(network, data, CAELLoss(network, REWARD_ONLY), QUICK, [0, 1])
    assert torch.equal(fitted["running_c"], p["running_c"])
    assert not torch.equal(fitted["b"], p["b"])


def test_reward_without_and_with_projection_and_intercept():
    for intercept in (False, True):
        for dim in (None, 3):
            network, p, x, a = made("both", intercept=intercept, embedding_dim=dim)
            e = network.embed(p, x, a, None)
            assert e.shape[-1] == (dim or 5 + intercept)
            found = network.reward(p, e, x)
            for t in range(2):
                one = torch.cat([x[t], torch.ones(30, 1, dtype=torch.float64)], dim=1) if intercept else x[t]
                inner = one if dim is None else one @ p["u"][t]
                torch.testing.assert_close(found[t], (e[t] * inner).sum(dim=1), rtol=1e-10, atol=1e-12)


def test_intercept_lets_the_network_fit_an_offset():
    """Centred contexts and rewards that are all 5: without an intercept r_hat is small where x is."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 0.1, (200, 2))
    log = cael.LoggedData(x, rng.integers(0, 3, 200), np.full(200, 5.0), logging=np.full(3, 1 / 3))
    settings = Training(iterations=300, batch_size=100, learning_rate=0.02)
    error = {}
    for intercept in (False, True):
        outcome = cael.NetworkOutcome(NetworkSettings(hidden=16, dropout=0.0, intercept=intercept), settings)
        error[intercept] = np.abs(outcome.fit(log, 0).predict(next(log.batches())) - 5).mean()
    assert error[True] < 0.2
    assert error[True] < error[False]


def test_logs_whose_action_features_have_other_shapes_are_refused():
    worlds = [cael.worlds.PaperWorld(n_actions=8, action_dim=dim) for dim in (3, 5)]
    with pytest.raises(cael.InputError, match="action features"):
        batches.trial_data([world.sample(50, 0) for world in worlds], HERE)


def test_training_takes_one_thread_and_gives_the_others_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(ZeroDivisionError), tensors.deterministic():
            assert torch.get_num_threads() == 1
            raise ZeroDivisionError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
