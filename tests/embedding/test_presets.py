"""The readings of the paper by name: what each differentiates, what it trains with, what it is called."""

from dataclasses import replace

import numpy as np
import pytest

import cael
from cael.embedding.settings import PRESETS, nearest, objective
from cael.estimators.problem import Problem
from cael.testing import example
from tests.embedding import slow

torch = pytest.importorskip("torch")

from cael.embedding import batches, build, training  # noqa: E402
from cael.embedding.published.objective import CAELLoss, WeightSource  # noqa: E402
from cael.embedding.stream import Stream  # noqa: E402
from cael.embedding.tensors import Torch  # noqa: E402
from cael.policies.policy import probabilities  # noqa: E402

LOG, POLICY = example()
CPU = torch.device("cpu")
SMALL = cael.NetworkSettings(hidden=8)
QUICK = cael.Training(iterations=15, batch_size=64, check_every=5)
ROWS = np.arange(0, 240, 8)


def step_of(preset, **changes):
    """A network, its parameters, one mini-batch in evaluation mode, and the loss of a preset."""
    network = build.context_action_network([LOG], replace(SMALL, batchnorm=False), CPU)
    reading = objective(preset, **changes)
    loss = CAELLoss(network, reading, WeightSource([LOG], [POLICY], CPU, sort=True, log_mu=reading.offset))
    data = batches.trial_data([LOG], Torch(CPU))
    step = training.step_at(data, torch.as_tensor(ROWS)[None], None, False)
    return network, network.init(Stream([3], Torch(CPU))), step, loss


def by_loops(network, parameters, step, loss, reading):
    """L of Algorithm 1, line 7, in python loops, the posterior's coefficients as they are."""
    with torch.no_grad():
        e = network.embed(parameters, step.x, step.a, None)
        r_hat = network.reward(parameters, e, step.x)[0].tolist()
        logits = (e @ loss.head.table[:, :-1] + loss.head.table[:, -1:])[0].numpy()
    pi, mu = (probabilities(each, next(LOG.take(ROWS).batches(8))) for each in (POLICY, LOG.logging))
    logits = logits + np.log(mu) if reading.offset else np.where(np.isin(np.arange(8), step.a[0]), logits, -np.inf)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p, w = (p / p.sum(axis=1, keepdims=True)).tolist(), (pi / mu).tolist()
    n = len(ROWS) if reading.variance_n == "batch" else len(LOG)
    terms = slow.reward(r_hat, step.r[0].tolist()), slow.bias(p, w), slow.variance(r_hat, p, w, n)
    return terms[0] + reading.alpha * terms[1] + reading.beta * terms[2]


@pytest.mark.parametrize("preset", ["through-posterior", "literal"])
def test_the_gradient_is_that_of_the_loss_of_the_text(preset):
    """By differences of the loss in loops, the coefficients of the posterior held: line 8 after line 5."""
    network, parameters, step, loss = step_of(preset)
    learned = {name: value.requires_grad_() for name, value in parameters.items()}
    total, _ = loss(learned, step)
    assert float(total.detach()) == pytest.approx(by_loops(network, parameters, step, loss, loss.settings), rel=1e-9)
    gradients = dict(zip(learned, torch.autograd.grad(total.sum(), list(learned.values())), strict=True))
    checked = 0
    for name, value in parameters.items():
        for place in range(0, value.numel(), max(1, value.numel() // 4)):
            ends = []
            for sign in (1, -1):
                moved = value.detach().clone()
                moved.view(-1)[place] += sign * 1e-5
                ends.append(by_loops(network, {**parameters, name: moved}, step, loss, loss.settings))
            slope, found = (ends[0] - ends[1]) / 2e-5, float(gradients[name].view(-1)[place])
            assert found == pytest.approx(slope, rel=1e-4, abs=1e-4 * float(gradients[name].abs().max())), name
            checked += abs(found) > 1e-6
    assert checked > 10


@pytest.mark.parametrize("preset", ["constant-posterior", "offset"])
def test_a_constant_posterior_gives_the_gradient_of_r_hat_alone(preset):
    network, parameters, step, loss = step_of(preset)
    learned = {name: value.requires_grad_() for name, value in parameters.items()}
    total, _ = loss(learned, step)
    found = torch.autograd.grad(total.sum(), list(learned.values()))
    e = network.embed(learned, step.x, step.a, None)
    r_hat, weights = network.reward(learned, e, step.x), loss.weights.rows(step.rows)
    p = loss.posterior(e.detach(), step, weights)
    held = ((r_hat - step.r) ** 2).mean()
    held = held + 0.1 * (r_hat**2 * (p**2).sum(-1) * weights.squares).mean() / len(LOG)
    for one, other in zip(found, torch.autograd.grad(held, list(learned.values())), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_presets_are_what_they_say():
    readings = {preset: objective(preset) for preset in PRESETS}
    assert list(readings) == ["constant-posterior", "through-posterior", "offset", "literal"]
    assert len(set(map(str, readings.values()))) == 4
    assert [each.posterior_gradient for each in readings.values()] == [False, True, False, True]
    assert [each.offset for each in readings.values()] == [False, False, True, False]
    assert [each.variance_n for each in readings.values()] == ["dataset"] * 3 + ["batch"]
    assert cael.CAELMIPS("literal").training.optimiser == "gradient"
    assert cael.CAELMIPS().training == cael.Training()
    for preset, reading in readings.items():
        assert nearest(reading) == (preset, {})
        assert cael.CAELMIPS(objective=reading).preset == cael.CAELMIPS(preset).preset == preset
        assert cael.CAELMIPS(objective=reading) == cael.CAELMIPS(preset)


def test_names_say_what_differs():
    assert [cael.CAELMIPS(preset).name for preset in PRESETS] == [
        "CAELMIPS", "CAELMIPS(through-posterior)", "CAELMIPS(offset)", "CAELMIPS(literal)",
    ]  # fmt: skip
    assert cael.CAELMIPS(objective=objective("literal", alpha=1.0)).name == "CAELMIPS(literal, alpha=1)"
    assert cael.CAELMIPS("literal", training=QUICK).name == "CAELMIPS(literal, adam)"
    assert cael.CAELMIPS(training=replace(QUICK, optimiser="gradient")).name == "CAELMIPS(gradient)"
    deep = cael.CAELMIPS(network=cael.NetworkSettings(hidden_layers=3, contexts=False))
    assert deep.name == "CAELMIPS(hidden_layers=3, no contexts)"
    candidates = [
        cael.CAELMIPS(objective=objective("constant-posterior", alpha=a, beta=b))
        for a in (1.0, 10.0)
        for b in (0.0, 0.1)
    ]
    assert len({each.name for each in candidates}) == 4
    names = [cael.AELMIPS(offset=True).name, cael.AELMIPS("trained", offset=True).name]
    assert names == ["AELMIPS(offset)", "AELMIPS(trained, offset)"]


def test_slope_prints_its_candidates_by_different_names():
    candidates = [
        cael.CAELMIPS(objective=objective("constant-posterior", beta=beta), network=SMALL, training=QUICK)
        for beta in (0.01, 0.1, 1.0)
    ]
    found = cael.SLOPE(candidates).estimate(LOG, POLICY)
    assert [each.name for each in sorted(found.diagnostics.path, key=lambda each: each.name)] == [
        "CAELMIPS", "CAELMIPS(beta=0.01)", "CAELMIPS(beta=1)",
    ]  # fmt: skip


def test_a_preset_and_another_objective_are_refused():
    with pytest.raises(cael.InputError, match="preset='literal' and an objective that is 'custom': pass one"):
        cael.CAELMIPS("literal", objective=objective("literal", alpha=1.0))
    with pytest.raises(cael.InputError, match="preset='offset'"):
        replace(cael.CAELMIPS(), preset="offset")
    assert replace(cael.CAELMIPS("literal"), seed=3).preset == "literal"


@pytest.mark.parametrize(
    ("changes", "terms"),
    [
        ({}, ["L_bias"]),
        ({"alpha": 0.0}, []),
        ({"offset": True}, ["L_bias"]),
        ({"reward_gradient": False}, ["L_bias", "L_var"]),
        ({"variance": "direct"}, ["L_bias", "L_var"]),
        ({"variance": "direct", "beta": 0.0}, ["L_bias"]),
        ({"posterior_gradient": True}, []),
        ({"posterior_gradient": True, "variance_n": "batch"}, []),
    ],
    ids=str,
)
def test_a_term_without_a_gradient_is_said(changes, terms):
    estimator = cael.CAELMIPS(objective=replace(cael.Objective(), **changes), network=SMALL, training=QUICK)
    warnings = estimator.estimate(LOG, POLICY).diagnostics.warnings
    assert [each.split(" has no gradient")[0] for each in warnings if "has no gradient" in each] == terms


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
@pytest.mark.parametrize("contexts", [True, False])
def test_depth_and_contexts(layers, contexts):
    """The rewards of all actions are those of each; without contexts e is that of the action; 0 layers are linear."""
    network = build.context_action_network([LOG], replace(SMALL, hidden_layers=layers, contexts=contexts), CPU)
    p = network.init(Stream([0, 1], Torch(CPU)))
    assert sum(name.startswith("w") for name in p) == layers
    x = torch.as_tensor(np.array(LOG.contexts[:12])).expand(2, -1, -1)
    every = network.reward_all(p, x)
    for action in range(8):
        e = network.embed(p, x, torch.full((2, 12), action), None)
        torch.testing.assert_close(every[:, :, action], network.reward(p, e, x), rtol=1e-10, atol=1e-12)
        assert torch.allclose(e, e[:, :1], rtol=1e-10, atol=1e-12) != contexts
        if layers == 0:
            shifted = network.embed(p, x + 1, torch.full((2, 12), action), None)
            torch.testing.assert_close(shifted - e, (shifted - e)[:, :1].expand_as(e), rtol=1e-9, atol=1e-12)
    found = cael.CAELMIPS(network=network.settings, training=QUICK).estimate(LOG, POLICY)
    assert np.isfinite(found.value) and found.diagnostics.mean_weight > 0


def test_plain_steps_are_steps_along_the_gradient():
    """One step of each of two rates: the parameters move by the rate times the same gradient."""
    network, _, _, loss = step_of("literal")
    data = batches.trial_data([LOG], Torch(CPU))

    def after(rate, iterations=1):
        one = cael.Training(iterations, 64, rate, optimiser="gradient")
        return training.train(network, data, CAELLoss(network, loss.settings, loss.weights), one, [0])[0]

    start, small, large = after(1e-3, 0), after(1e-3), after(2e-3)
    for name in start:
        torch.testing.assert_close(large[name] - start[name], 2 * (small[name] - start[name]), rtol=1e-6, atol=1e-12)
    assert float((small["w3"] - start["w3"]).abs().max()) > 0


def test_epochs_are_passes_over_whole_batches():
    settings = cael.Training(epochs=3, batch_size=64)
    assert settings.steps(240) == 9 and settings.steps(40) == 3
    assert cael.CAELMIPS(network=SMALL, training=settings).estimate(LOG, POLICY).diagnostics.training.iterations == 9
    with pytest.raises(cael.InputError, match="epochs"):
        cael.Training(epochs=0)
    with pytest.raises(cael.InputError, match="'adam', 'gradient'"):
        cael.Training(optimiser="sgd")


def test_the_offset_of_ael_is_in_its_posterior_alone():
    """Nearly without slopes the posterior is mu(a|x) tilted by intercepts: the mean weight is nearly one."""
    plain, offset = (cael.AELMIPS(C=1e-9, offset=offset).estimate(LOG, POLICY) for offset in (False, True))
    assert plain.diagnostics.training.history["reward"] == offset.diagnostics.training.history["reward"]
    assert abs(offset.diagnostics.mean_weight - 1) < 0.02 < abs(plain.value - offset.value)


def test_action_vectors_that_are_redrawn_with_each_log():
    """Each log has its own, they are trained beside each other as alone, and the truth is the same."""
    world = cael.worlds.PaperWorld(n_actions=8, action_dim=3, redraw=True)
    logs = [world.sample(120, seed) for seed in range(3)]
    assert not np.array_equal(logs[0].action_features, logs[1].action_features)
    assert np.array_equal(logs[0].action_features, world.sample(50, 0).action_features)
    fixed = replace(world, redraw=False)
    assert np.array_equal(logs[0].action_features[:, 0], fixed.action_features[:, 0])
    assert np.array_equal(logs[0].rewards, fixed.sample(120, 0).rewards)
    assert world.value(world.target) == fixed.value(fixed.target)
    problems = [Problem(log, world.target) for log in logs]
    network = cael.NetworkOutcome(SMALL, QUICK)
    learned = cael.CAELMIPS(network=SMALL, training=QUICK)
    for estimator in (learned, cael.AELMIPS(actions="features"), cael.NetworkDM(network)):
        together = estimator.solve_many(problems, [0, 1, 2])
        for seed, (problem, each) in enumerate(zip(problems, together, strict=True)):
            assert each.value == pytest.approx(replace(estimator, seed=seed).solve(problem).value, rel=1e-10)
    other = Problem(fixed.sample(120, 0), world.target)
    assert replace(learned, seed=0).solve(other).value != learned.solve_many(problems, [0, 1, 2])[0].value


def test_a_training_that_diverges_is_refused():
    wild = cael.Training(iterations=40, batch_size=64, learning_rate=1e12, optimiser="gradient", check_every=5)
    with pytest.raises(cael.InputError, match=r"training diverged: its loss grew without bound. Lower learning_rate"):
        cael.NetworkDM(cael.NetworkOutcome(replace(SMALL, batchnorm=False), wild)).estimate(LOG, POLICY)


def test_one_that_diverges_does_not_stop_those_beside_it():
    """Contexts of 1e35 make its loss infinite; the row beside it is what it is alone."""
    from cael.experiments.trial import _answers

    huge = cael.LoggedData(
        LOG.contexts * 1e35, LOG.actions, LOG.rewards, logging=np.full(8, 0.125), n_actions=8,
        action_features=LOG.action_features,
    )  # fmt: skip
    steps = replace(QUICK, optimiser="gradient", learning_rate=1e-3)
    estimator = cael.CAELMIPS("literal", network=SMALL, training=steps)
    problems = [Problem(LOG, POLICY), Problem(huge, POLICY), Problem(LOG, POLICY)]
    first, lost, last = _answers(estimator, problems, [0, 1, 2])
    assert isinstance(lost, cael.InputError) and "diverged" in str(lost)
    for seed, found in ((0, first), (2, last)):
        assert found.value == pytest.approx(replace(estimator, seed=seed).solve(problems[0]).value, rel=1e-10)
    assert all("diverged" in str(each) for each in _answers(estimator, problems[1:2] * 2, [0, 1]))


@pytest.mark.parametrize("preset", list(PRESETS))
def test_training_does_not_amplify_rounding(preset):
    """Rewards changed in the tenth digit are seen, and move the estimate in about that digit."""
    noise = 1 + 1e-10 * np.random.default_rng(0).standard_normal(len(LOG))
    moved = cael.LoggedData(
        LOG.contexts, LOG.actions, LOG.rewards * noise, logging=LOG.logging, n_actions=8,
        action_features=LOG.action_features,
    )  # fmt: skip
    training = replace(cael.CAELMIPS(preset).training, iterations=150, batch_size=64)
    estimator = cael.CAELMIPS(preset, network=SMALL, training=training)
    one, other = estimator.estimate(LOG, POLICY), estimator.estimate(moved, POLICY)
    first, second = (each.diagnostics.training.history["reward"] for each in (one, other))
    assert first[0] != second[0]
    assert 0 < abs(one.value - other.value) < 1e-7
