"""Auto: what it chooses from, what it leaves out and says so, and an interval that accounts for the choice."""

import importlib.util
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

import cael
from cael.embedding.auto import SPARED, with_second, worth
from cael.embedding.exact import growing, sparse_network
from cael.embedding.exact.blend import BOUND
from cael.engine import asking as asking_module
from cael.engine.asking import Asking, as_engine_log, ask
from cael.estimators.problem import Problem
from cael.inference.diagnostics import CUT_SHORT
from cael.testing import example
from cael.worlds import DeficientWorld, PaperWorld

TINY = cael.CAEL(growth=cael.Growth(steps=20, hidden=8, penalties=(1.5,), restarts=1))
LOG, POLICY = example()
PROPENSITIES = cael.LoggedData(
    LOG.contexts, LOG.actions, LOG.rewards, LOG.propensities, n_actions=8, action_features=LOG.action_features
)


def logged_only():
    return cael.LoggedOnly(
        np.concatenate([cael.policies.policy.logged_probability(POLICY, b) for b in LOG.batches(width=8)])
    )


def error(estimate, bound=0.0, floor=0.0):
    """Root of the estimated mean squared error."""
    return math.hypot(max(estimate.stderr, floor), bound / BOUND)


def raised(estimate, rewards, second):
    """The standard error, raised towards that of the second moment, by what each of the two is known with."""
    n = len(rewards)
    seen, pooled = estimate.stderr**2, rewards.var() * second / n
    doubt = max(scipy.stats.kurtosis(rewards, fisher=False) - 1, 2) * second / n
    return math.sqrt(seen + max(pooled - seen, 0) * doubt / (doubt + 0.2))


def candidates(found):
    """The candidates of the choice, without the path inside CAEL."""
    return [each for each in found.diagnostics.path if not each.name.startswith("bandwidth")]


def test_it_is_the_candidate_with_the_least_estimated_error():
    found = cael.Auto(learn=False).estimate(LOG, POLICY)
    singles = {each.name: each.estimate(LOG, POLICY) for each in (cael.SNIPS(), cael.SNDR())}
    assert [each.name for each in candidates(found)] == ["SNIPS", "SNDR"]
    (chosen,) = (each for each in candidates(found) if each.chosen)
    assert chosen.width == min(each.width for each in candidates(found))
    assert found.value == pytest.approx(singles[chosen.name].value, rel=1e-12)
    np.testing.assert_allclose(found.contributions, singles[chosen.name].contributions, rtol=1e-12)
    for each in candidates(found):
        assert each.value == pytest.approx(singles[each.name].value, rel=1e-12)
        assert each.width >= singles[each.name].stderr
    assert found.diagnostics.choices == 2
    assert found.estimator == "Auto(learn=False)"
    assert found.diagnostics.warnings[-1] == f"Auto chose {chosen.name} from 2 candidates."


def second_moment(problem):
    """E w^2, as Auto finds it in an answer."""
    auto = cael.Auto(learn=False)
    return ask(as_engine_log(problem.log), {"": problem.policy}, [auto]).second_moment(0)


def test_the_noise_between_the_ends_of_a_blend_counts_once():
    """CAEL says its own error; standard error and bias bound together would hold that noise twice."""
    quick = cael.CAEL(growth=cael.Growth(steps=20, penalties=(1.5,), restarts=1))
    found = cael.Auto(cael=quick).estimate(LOG, POLICY)
    alone = quick.estimate(LOG, POLICY)
    facts = alone.diagnostics
    (own,) = (each for each in candidates(found) if each.name.startswith("CAEL"))
    # The path has the least error of each bandwidth; for the interval more of the sharp estimate was taken.
    assert own.width == facts.embedding.error >= next(each.width for each in facts.path if each.chosen)
    assert own.width < error(alone, facts.bias_bound, facts.stderr_floor)


def test_the_floor_of_an_error_is_what_the_weights_imply():
    """Var(w (r - V)) / n is near Var(r) E w^2 / n: with few matching rows the contributions show far less."""
    mu, pi = np.full((1, 8), 1 / 8), np.array([[0.93, *[0.01] * 7]])
    rng = np.random.default_rng(0)
    log = cael.LoggedData(None, rng.integers(0, 8, 50), rng.normal(size=50), logging=cael.Uniform(8))
    problem = Problem(log, pi[0])
    assert second_moment(problem) == pytest.approx(float((pi**2 / mu).sum()))
    found = cael.Auto(learn=False).solve(problem)
    snips = next(each for each in candidates(found) if each.name == "SNIPS")
    alone = cael.SNIPS().solve(problem)
    w = problem.weights
    floor = raised(alone, log.rewards, max(second_moment(problem), float((w**2).mean() / min(1.0, w.mean() ** 2))))
    assert floor > 1.2 * alone.stderr
    assert snips.width == pytest.approx(error(alone, floor=floor))
    unknown = Problem(cael.LoggedData(None, log.actions, log.rewards, log.propensities, n_actions=8), pi[0])
    assert second_moment(unknown) == pytest.approx(float((unknown.weights**2).mean()))


def test_mass_on_actions_that_are_never_logged_is_a_bias_of_the_weighting_candidates():
    world = DeficientWorld(n_actions=20, action_dim=2)
    log = world.sample(300, 0)
    problem = Problem(log, world.target)
    found = cael.Auto(learn=False).solve(problem)
    assert problem.unsupported_mass > 0.1
    snips = next(each for each in candidates(found) if each.name == "SNIPS")
    spread = log.rewards.std()
    alone, bound = cael.SNIPS().solve(problem), BOUND * problem.unsupported_mass * spread
    assert snips.width == pytest.approx(
        error(alone, bound, raised(alone, log.rewards, alone.diagnostics.pooled.second))
    )
    assert found.diagnostics.bias_bound > 0
    assert world.value(world.target) in found.interval(method="bias_aware")


def test_the_interval_is_that_of_the_candidate_that_was_chosen():
    """The choice looks at errors and not at values, so that it pulls the value to no side: there is no Bonferroni."""
    found = cael.Auto(learn=False).estimate(LOG, POLICY)
    (chosen,) = (each for each in candidates(found) if each.chosen)
    alone = {"SNIPS": cael.SNIPS(), "SNDR": cael.SNDR()}[chosen.name].estimate(LOG, POLICY).interval()
    assert (found.interval().low, found.interval().high) == pytest.approx((alone.low, alone.high), rel=1e-12)
    assert found.to_dict()["interval"]["low"] == found.interval().low


def test_a_guarantee_is_lost_by_choosing():
    with pytest.raises(cael.NeedsError, match="independent contributions"):
        cael.Auto(learn=False).estimate(LOG, POLICY).interval(method="betting", reward_range=(-5, 15))


def left_out(found):
    return [each for each in found.diagnostics.warnings if each.startswith("Auto left")]


def test_a_policy_known_at_logged_actions_only_leaves_the_models_out():
    found = cael.Auto(cael=TINY).estimate(LOG, logged_only())
    assert found.value == cael.SNIPS().estimate(LOG, POLICY).value
    assert found.diagnostics.choices == 1
    assert len(left_out(found)) == 2
    assert "Auto left SNDR out: it needs the target's probabilities of all actions" in left_out(found)[0]
    assert left_out(found)[1].startswith("Auto left CAEL(")


def test_of_propensities_alone_the_logging_policy_is_fitted():
    fitted = cael.Auto(cael=TINY).estimate(PROPENSITIES, POLICY)
    assert fitted.diagnostics.choices == 3
    assert left_out(fitted) == []
    known = cael.Auto(cael=TINY).estimate(LOG, POLICY)
    assert abs(fitted.value - known.value) < 0.1 * known.error


def test_a_fit_that_is_too_poor_leaves_cael_out(monkeypatch):
    monkeypatch.setattr(asking_module, "DEFAULT", cael.Thresholds(logging_error=(0.0, 0.0)))
    found = cael.Auto(cael=TINY).estimate(PROPENSITIES, POLICY)
    assert found.diagnostics.choices == 2
    (said,) = left_out(found)
    assert said.startswith("Auto left CAEL(")
    assert "all probabilities of the logging policy" in said
    assert "on held-out rows" in said
    assert found.diagnostics.bias_bound == 0  # what is not known to be unsupported is not counted
    assert found.diagnostics.logging_fit is None


def test_a_gpu_without_torch_is_left_out_and_the_message_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "torch" else find(name, *more))
    here, there, either = (
        replace(TINY, growth=replace(TINY.growth, device=device)) for device in ("cpu", "cuda", "auto")
    )
    found = cael.Auto(cael=there).estimate(LOG, POLICY)
    (said,) = left_out(found)
    assert "device='cuda' needs torch, which is not installed: pip install 'cael[torch]'." in said
    assert found.value == cael.Auto(learn=False).estimate(LOG, POLICY).value
    assert either.estimate(LOG, POLICY).value == here.estimate(LOG, POLICY).value


def test_learn_false_leaves_nothing_out_silently():
    assert left_out(cael.Auto(learn=False).estimate(LOG, POLICY)) == []


def test_without_propensities_it_refuses():
    bare = cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, n_actions=8)
    with pytest.raises(cael.NeedsError, match="logged propensities"):
        cael.Auto(learn=False).estimate(bare, POLICY)


def test_without_any_support_it_says_why_nothing_is_left():
    log = cael.LoggedData(None, [0, 1] * 30, np.arange(60.0), logging=[0.5, 0.5, 0.0])
    with pytest.raises(cael.SupportError, match=r"found no estimator.*left SNIPS out.*left SNDR out"):
        cael.Auto(learn=False).estimate(log, [0.0, 0.0, 1.0])


def test_constant_rewards():
    """The answer is that constant, exactly; CAEL, which has nothing to learn from, is left out with a warning."""
    log = cael.LoggedData(LOG.contexts, LOG.actions, np.full(240, 2.5), logging=LOG.logging, n_actions=8)
    found = cael.Auto(learn=False).estimate(log, POLICY)
    assert found.value == pytest.approx(2.5)
    assert found.interval(method="bias_aware").width == pytest.approx(0, abs=1e-9)
    pytest.importorskip("torch")
    found = cael.Auto(cael=TINY).estimate(log, POLICY)
    assert found.value == pytest.approx(2.5)
    assert any("left CAEL" in each and "rewards that are not all equal" in each for each in found.diagnostics.warnings)


def test_with_learning_cael_is_the_third_candidate():
    pytest.importorskip("torch")
    auto = cael.Auto(cael=TINY, seed=3)
    found = auto.estimate(LOG, POLICY)
    names = [each.name.split("(")[0] for each in candidates(found)]
    assert names == ["SNIPS", "SNDR", "CAEL"]
    assert found.diagnostics.choices == 3
    (chosen,) = (each for each in candidates(found) if each.chosen)
    learned = replace(TINY, seed=3).estimate(LOG, POLICY)
    third = candidates(found)[2]
    d = learned.diagnostics  # a pass with other columns beside: equal but for the last digits
    assert third.value == pytest.approx(learned.value, rel=1e-12)
    assert third.width == pytest.approx(d.embedding.error, rel=1e-9)
    assert chosen is third
    for mine, other in zip(found.diagnostics.path[3:], d.path, strict=True):  # nothing was learned: all widths tie
        assert (mine.name, mine.value) == (other.name, pytest.approx(other.value, rel=1e-12))
        assert mine.width == pytest.approx(other.width, rel=1e-9)
    json.dumps(found.to_dict(), allow_nan=False)


def test_cael_is_taken_where_actions_share_and_many_are_rare():
    """The paper's world: SNIPS matches a handful of rows, the network learns the one feature that matters."""
    pytest.importorskip("torch")
    world = PaperWorld(n_actions=100, action_dim=1)
    log = world.sample(400, 5)
    growth = cael.Growth(steps=60, hidden=16, penalties=(0.5,), restarts=1)
    found = cael.Auto(cael=cael.CAEL(growth=growth, folds=3)).estimate(log, world.target)
    assert "Auto chose CAEL from 3 candidates." in found.diagnostics.warnings
    assert world.value(world.target) in found.interval(method="bias_aware")
    assert found.stderr < 0.5 * cael.SNIPS().estimate(log, world.target).stderr


def test_ridge_is_fitted_once_for_cael_and_the_others(monkeypatch):
    counted = []
    fit = cael.Ridge.fit_without
    monkeypatch.setattr(cael.Ridge, "fit_without", lambda *given: counted.append(1) or fit(*given))
    panel = [cael.Auto(cael=TINY), cael.DM(), cael.DR(), cael.SNDR()]
    found = cael.evaluate(LOG, POLICY, panel, learn=False)
    assert len(counted) == 1
    alone = cael.Auto(cael=TINY).estimate(LOG, POLICY)
    assert found[alone.estimator].value == alone.value


# Time that pays


def asked(log, policy):
    return Asking(log, (log.target(policy),), 0.0)


def test_nothing_is_trained_where_the_log_alone_has_enough_rows(monkeypatch):
    world = PaperWorld(n_actions=4)
    log, near = world.sample(2000, seed=1), cael.Mixture([world.logging, world.target], [0.8, 0.2])
    held = as_engine_log(log)
    rows = worth(asked(held, near), 0, len(log))
    monkeypatch.setattr(cael.CAEL, "_trained", lambda *_: pytest.fail("it was trained"))
    found = cael.Auto(enough=rows * 0.99).estimate(log, near)
    assert candidates(found)[-1].name == "SNDR"
    assert SPARED in found.diagnostics.warnings
    problems = [Problem(log, near)] * 2
    assert [each.value for each in cael.Auto(enough=rows * 0.99).solve_many(problems, [0, 0])] == [found.value] * 2
    with pytest.raises(BaseException, match="it was trained"):  # negative control
        cael.Auto(enough=rows * 1.01).estimate(log, near)


def test_what_a_log_is_worth_is_n_over_the_second_moment_of_the_weights():
    held = as_engine_log(LOG)
    pi, mu = (
        np.concatenate([cael.policies.policy.probabilities(p, b) for b in LOG.batches(width=8)])
        for p in (POLICY, LOG.logging)
    )
    assert worth(asked(held, POLICY), 0, 240) == pytest.approx(240 / (pi**2 / mu).sum(axis=1).mean())
    known_in_part = as_engine_log(PROPENSITIES)
    fitted = worth(asked(known_in_part, POLICY), 0, 240)
    assert fitted == pytest.approx(240 / (pi**2 / mu).sum(axis=1).mean(), rel=0.05)
    bare = as_engine_log(cael.LoggedData(LOG.contexts, LOG.actions, LOG.rewards, n_actions=8))
    assert worth(asked(bare, POLICY), 0, 240) == 0
    deficient = DeficientWorld()
    log = as_engine_log(deficient.sample(500, seed=0))
    assert worth(asked(log, deficient.target), 0, 500) == 0


def test_training_ends_at_its_budget_and_says_so(monkeypatch):
    seconds = iter(range(10_000))
    monkeypatch.setattr(growing.time, "monotonic", lambda: float(next(seconds)))
    rounds = []
    monkeypatch.setattr(sparse_network, "_judged", lambda *a, real=sparse_network._judged: rounds.append(1) or real(*a))
    short = replace(TINY.growth, budget=2.0, patience=9, restarts=3)
    found = cael.CAEL(growth=short).estimate(LOG, POLICY)
    assert len(rounds) == 2  # at the second it is late, and there are no restarts
    assert CUT_SHORT in found.diagnostics.warnings
    rounds.clear()
    whole = cael.CAEL(growth=replace(short, budget=None)).estimate(LOG, POLICY)
    assert len(rounds) > 2
    assert CUT_SHORT not in whole.diagnostics.warnings
    assert found.estimator == whole.estimator  # a budget is no part of what is asked


def test_a_budget_reaches_evaluate_compare_and_segments(monkeypatch):
    seen = []
    monkeypatch.setattr(cael.CAEL, "_trained", lambda self, *_: seen.append(self.growth.budget) or 1 / 0)
    for ask_it in (
        lambda: cael.evaluate(LOG, POLICY, budget=7.0),
        lambda: cael.compare(LOG, {"new": POLICY}, budget=7.0),
        lambda: cael.segments(LOG, POLICY, np.arange(240) % 2, budget=7.0),
    ):
        with pytest.raises(ZeroDivisionError):
            ask_it()
    assert seen == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("budget", [0, -1.0])
def test_a_budget_is_positive(budget):
    with pytest.raises(cael.errors.InputError, match="budget must be a number of seconds > 0"):
        cael.Growth(budget=budget)


def test_few_rows_that_match_do_not_hide_the_second_moment_of_the_weights():
    """Where no row of a log plays what the target wants, its weights are small and alike; both policies know better."""
    world = PaperWorld()
    log = world.sample(200, seed=0)
    pi, mu = (
        np.concatenate([cael.policies.policy.probabilities(p, b) for b in log.batches(width=500)])
        for p in (world.target, log.logging)
    )
    second = (pi**2 / mu).sum(axis=1).mean()
    for estimator in (cael.SNIPS(), cael.SNDR()):
        alone = estimator.estimate(log, world.target)
        assert alone.diagnostics.pooled.second == pytest.approx(second)
        together = cael.evaluate(log, world.target, learn=False)[estimator.name]
        assert (alone.interval().low, alone.interval().high) == pytest.approx(
            (together.interval().low, together.interval().high)
        )
        assert alone.interval().width > 3 * alone.interval(method="normal").width


def test_a_fitted_second_moment_raises_the_errors_of_the_others():
    """As with the logging policy known: few rows that match show far less than E w^2 says."""
    answer = ask(as_engine_log(PROPENSITIES), {"": POLICY}, [cael.SNIPS()], asked=("SNIPS",))
    alone = answer.of("SNIPS", 0)
    second = alone.diagnostics.pooled.second
    raised = with_second(alone, answer, 50 * second)
    assert raised.value == alone.value
    assert raised.error > 1.2 * alone.error
    assert with_second(alone, answer, 0.5 * second) is alone
    assert with_second(alone, answer, None) is alone
